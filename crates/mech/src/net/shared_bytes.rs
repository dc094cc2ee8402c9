//! Bytes that connections of several workers send.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

use drover_sys::reserve::try_zeroed;
use memmap2::{MmapMut, MmapOptions};

/// From this length on, bytes have their own mapping. munmap(2) gives that to the kernel at once, while the allocator keeps
/// much of what was freed. A mapping consists of whole pages and costs two system calls.
const MAPPED_FROM: usize = 64 << 10;

/// Bytes that connections of several workers may send at the same time, from one copy ([`super::Body::ProcessWide`]).
pub struct SharedBytes {
    /// Declared before the guard, and so dropped first: when the guard is dropped, the memory is free.
    memory: Memory,
    _guard: Box<dyn Any + Send + Sync>,
}

enum Memory {
    Heap(Box<[u8]>),
    Mapped(MmapMut),
}

impl SharedBytes {
    /// Makes `len` zeroes and has `write` fill them. `guard` is dropped after the memory was freed, so its owner can count
    /// the bytes until the last client has received them.
    ///
    /// # Errors
    /// `ENOMEM`, and the errors of `write`.
    pub fn new(
        len: usize,
        guard: impl Any + Send + Sync,
        write: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<Arc<SharedBytes>> {
        let memory = match len {
            MAPPED_FROM.. => {
                let mut map = MmapOptions::new().len(len).map_anon()?;
                write(&mut map)?;
                Memory::Mapped(map)
            }
            _ => {
                let mut bytes = try_zeroed(len)?;
                write(&mut bytes)?;
                Memory::Heap(bytes)
            }
        };
        Ok(Arc::new(SharedBytes { memory, _guard: Box::new(guard) }))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Heap(bytes) => bytes,
            Memory::Mapped(map) => map,
        }
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBytes").field("len", &self.as_bytes().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    struct Noted(Arc<AtomicBool>);

    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_guard_is_dropped_with_the_last_reference() {
        for len in [0, 1, MAPPED_FROM - 1, MAPPED_FROM, MAPPED_FROM + 1] {
            let is_free = Arc::new(AtomicBool::new(false));
            let fill = |bytes: &mut [u8]| {
                bytes.fill(b'a');
                Ok(())
            };
            let one = SharedBytes::new(len, Noted(Arc::clone(&is_free)), fill).unwrap();
            let other = Arc::clone(&one);
            drop(one);
            assert_eq!(other.as_bytes(), vec![b'a'; len]);
            assert!(!is_free.load(Ordering::SeqCst));
            drop(other);
            assert!(is_free.load(Ordering::SeqCst));
        }
    }

    #[test]
    fn bytes_that_cannot_be_written_leave_nothing() {
        let is_free = Arc::new(AtomicBool::new(false));
        let noted = Noted(Arc::clone(&is_free));
        let refused = SharedBytes::new(MAPPED_FROM, noted, |_| Err(io::ErrorKind::Other.into()));
        assert!(refused.is_err() && is_free.load(Ordering::SeqCst));
    }
}

//! The memory that a read goes to, and that the socket is sent from.

/// A page: what `O_DIRECT` may want, and what copies want. One that stores a little behind where it
/// loads from, as counted within a page, waits for its own stores (4K aliasing); an allocator puts
/// large buffers right there, a few bytes behind the beginning of a page.
const ALIGNMENT: usize = 4096;

/// Aligned memory that a reader writes to.
#[derive(Default)]
pub(super) struct Buffer {
    memory: Vec<u8>,
    /// Where in `memory` it begins.
    start: usize,
    len: usize,
}

impl Buffer {
    /// Makes it `len` bytes long.
    pub(super) fn prepare(&mut self, len: usize) {
        if self.memory.len() < len + ALIGNMENT - 1 {
            self.memory = vec![0; len + ALIGNMENT - 1];
            self.start = self.memory.as_ptr().align_offset(ALIGNMENT);
        }
        self.len = len;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn start(&mut self) -> *mut u8 {
        self.memory[self.start..].as_mut_ptr()
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }

    pub(super) fn bytes(&self, filled: usize) -> &[u8] {
        &self.memory[self.start..][..filled]
    }
}

//! How much memory a process has, and how the allocator of this one uses addresses.

/// The memory of a process that is in the machine's memory now, in bytes, shared pages included: the second number of
/// `/proc/PROCESS/statm` (proc_pid_statm(5)). `None` if there is no such process.
#[must_use]
pub fn resident_memory(process: u32) -> Option<u64> {
    pages(&process.to_string(), 1)
}

/// The addresses that this process has mapped, in bytes: what `RLIMIT_AS` limits. `None` if /proc cannot be read.
#[must_use]
pub fn mapped_memory() -> Option<u64> {
    pages("self", 0)
}

/// A number of `/proc/PROCESS/statm`, in bytes.
fn pages(process: &str, number: usize) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(number)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Has all threads of this process allocate from one heap, if `RLIMIT_AS` leaves few addresses.
///
/// glibc reserves 64 MiB of addresses for the heap of each thread that finds all heaps in use (malloc(3): arenas). The limit
/// counts what is reserved, so that a few threads would use it up before any memory is needed. To be called before there
/// are threads. Other allocators have no such call, and nothing happens.
pub fn spare_addresses() {
    #[cfg(target_env = "gnu")]
    if super::limits::limit(rustix::process::Resource::As).soft.is_some_and(|it| it < FEW_ADDRESSES)
    {
        // SAFETY: mallopt(3) sets a parameter of the allocator; no other thread allocates yet.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// A limit of addresses below this one has no room for a heap per thread, in bytes.
#[cfg(target_env = "gnu")]
const FEW_ADDRESSES: u64 = 2 << 30;

/// Fails if a new thread might not get the memory that it begins with.
///
/// pthread_create(3) fails if there is no memory for a stack. Behind that, the standard library has each thread map the stack of
/// its signal handlers, and aborts the process if that fails. So there has to be more than a stack, and so much that other
/// threads do not use it up until then.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn has_room_for_thread() -> std::io::Result<()> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    /// The stack that the standard library gives a thread, and 4 MiB.
    const ROOM: usize = 6 << 20;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the mapping is new, nobody uses it, and it is removed whole.
    unsafe {
        let room = mmap_anonymous(std::ptr::null_mut(), ROOM, access, MapFlags::PRIVATE)?;
        munmap(room, ROOM)?;
    }
    Ok(())
}

/// Gives the kernel the memory that is free in the allocator, wherever it lies.
///
/// glibc has several heaps (malloc(3): arenas), which threads that come later use again. free(3) shortens a heap at its end only;
/// what threads that have ended leave beneath stays resident until then, if nobody calls this function. Other allocators have
/// no such call, and nothing happens.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) has no requirements, and takes the allocator's locks itself (MT-Safe).
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_written_to_is_resident() {
        let before = resident_memory(std::process::id()).unwrap();
        let bytes = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = resident_memory(std::process::id()).unwrap();
        assert!(after >= before + (32 << 20), "{before} {after}");
        drop(bytes);
        assert_eq!(resident_memory(u32::MAX), None);
    }
}

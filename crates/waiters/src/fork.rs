//! Child processes made by fork(2) without execve(2). The kernel kills them when their parent ends.

use std::ffi::CString;
use std::fs;
use std::io;

use rustix::process::{Pid, Signal, WaitOptions};

/// Forked child processes. Dropping this value kills them and waits for their end.
pub(crate) struct Children {
    ids: Vec<u32>,
}

impl Children {
    /// Makes an empty list with room for `count` children.
    ///
    /// # Errors
    /// `Unsupported`: the process has several threads. A child has only the thread that called fork(2), so
    /// locks that other threads hold would stay locked in the child for ever.
    pub(crate) fn new(count: usize) -> io::Result<Children> {
        if fs::read_dir("/proc/self/task")?.count() != 1 {
            let reason = "a process with several threads cannot be forked safely";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        Ok(Children { ids: Vec::with_capacity(count) })
    }

    /// Forks a child that has the name `name`, runs `work` and then ends.
    pub(crate) fn fork(&mut self, name: &str, work: impl FnOnce()) -> io::Result<()> {
        let parent = rustix::process::getpid();
        let name = CString::new(name)?;
        // SAFETY: the process has one thread (`Children::new`), so no lock in the child stays locked by
        // another thread, and the child may call any function.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let _end = End;
                let dies = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
                // If the parent died before prctl(2), the kernel sends no signal: check the parent.
                if dies.is_ok() && rustix::process::getppid() == Some(parent) {
                    let _ = rustix::thread::set_name(&name);
                    work();
                }
                Ok(())
            }
            child => {
                self.ids.push(child.unsigned_abs());
                Ok(())
            }
        }
    }

    /// The process ids of the children, in the order of the forks.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        let pid = |id: &u32| Pid::from_raw(id.cast_signed());
        for pid in self.ids.iter().filter_map(pid) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        for pid in self.ids.iter().filter_map(pid) {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        }
    }
}

/// Ends the child when dropped, even after a panic, by _exit(2): the child runs no destructor and no exit
/// handler of its parent.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        // SAFETY: _exit ends the process. The child owns nothing that must be released before.
        unsafe { libc::_exit(1) }
    }
}

//! Child processes that go on where fork(2) leaves them, and never outlive their parent.

use std::ffi::CString;
use std::fs;
use std::io;

use rustix::process::{Pid, Signal, WaitOptions};

/// Forked processes; dropping them kills them.
pub(crate) struct Children {
    ids: Vec<u32>,
}

impl Children {
    /// An empty list with room for so many children.
    ///
    /// # Errors
    /// `Unsupported` in a process with several threads: a child has a copy of each lock that another
    /// thread holds, and nobody who would release it.
    pub(crate) fn new(count: usize) -> io::Result<Children> {
        if fs::read_dir("/proc/self/task")?.count() != 1 {
            let reason = "a process with several threads cannot be forked safely";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        Ok(Children { ids: Vec::with_capacity(count) })
    }

    /// Forks a child called `name` that runs `work`, and ends after it.
    pub(crate) fn fork(&mut self, name: &str, work: impl FnOnce()) -> io::Result<()> {
        let parent = rustix::process::getpid();
        let name = CString::new(name)?;
        // SAFETY: there is no other thread (`Children::new`) whose locks the child would have copies
        // of, so that it may do whatever this process may do.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let _end = End;
                let dies = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
                // A parent that died before the signal was asked for sends none.
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

    /// Their process ids, in the order of their birth.
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

/// Ends a child at once, also when it panics: no destructor or exit handler of the parent runs in it.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        // SAFETY: ends this process, which owns nothing that needs an end.
        unsafe { libc::_exit(1) }
    }
}

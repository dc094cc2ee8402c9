//! A process that a supervisor has started from its own program, and the socket to it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_sys::message_socket::MessageSocket;
use drover_sys::process;
use serde::Serialize;
use serde::de::DeserializeOwned;
use signal_hook::consts::{SIGABRT, SIGKILL, SIGSYS};
use tracing::warn;

use crate::json_messages;
use crate::supervisor::process::FLAG;
use crate::supervisor::service_manager;

/// How long is waited for a process that is about to end.
const SOON: Duration = Duration::from_secs(1);

/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(1);

/// A process that runs, or has ended and was not waited for.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    pub(crate) child: Child,
    control: Arc<MessageSocket>,
    pub(crate) started: Instant,
}

/// What comes from a process.
pub(crate) enum ChildEvent<M> {
    Message(M),
    /// Something that is no message: the process must end.
    Garbage,
    /// Its end of the socket is closed: it has ended, or is about to.
    Ended,
}

impl ChildProcess {
    /// Starts this program with `arguments`. `inherit` gets the number of the socket to this process, and writes what the process
    /// inherits, to the memory whose descriptor is passed on by the number that [`FLAG`] names. `passed_on` must be open. What the process sends goes
    /// to `hear`, on a thread of its own.
    ///
    /// # Errors
    /// No more processes, threads or descriptors.
    pub(crate) fn start<M: DeserializeOwned>(
        arguments: &[OsString],
        inherit: impl FnOnce(RawFd) -> io::Result<std::fs::File>,
        passed_on: &[BorrowedFd<'_>],
        (name, hear): (String, impl Fn(ChildEvent<M>) + Send + 'static),
    ) -> io::Result<ChildProcess> {
        let (control, other) = MessageSocket::pair()?;
        let memory = inherit(other.as_fd().as_raw_fd())?;
        // /proc/self/exe is this program's file, also if another file has its name by now.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("drover").args(arguments).arg(FLAG).arg(memory.as_raw_fd().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        for name in service_manager::VARIABLES.iter().chain(&process::activation::VARIABLES) {
            command.env_remove(name);
        }
        process::die_with_parent(&mut command);
        let own = [other.as_fd(), memory.as_fd()];
        process::pass_on(&mut command, passed_on.iter().copied().chain(own));
        let child = command.spawn()?;
        let control = Arc::new(control);
        let process =
            ChildProcess { child, control: Arc::clone(&control), started: Instant::now() };
        drop(other);
        let listen = move || {
            loop {
                match json_messages::receive(&control) {
                    Ok(Some((message, _))) => hear(ChildEvent::Message(message)),
                    Ok(None) => return hear(ChildEvent::Ended),
                    Err(reason) if reason.is::<io::Error>() => return hear(ChildEvent::Ended),
                    Err(_) => hear(ChildEvent::Garbage),
                }
            }
        };
        if let Err(error) = process::start_thread(name, listen) {
            // Nobody would hear of it.
            process.kill();
            return Err(error);
        }
        Ok(process)
    }

    /// Sends the process a message. That fails for one that has ended, or that reads nothing.
    pub(crate) fn tell(
        &self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.control.try_send(&serde_json::to_vec(message)?, descriptors)
    }

    /// Has the process stop in good order.
    pub(crate) fn stop(&self) {
        self.control.end_sending();
    }

    /// Kills the process, and waits until it has ended, but not for long: the kernel does not end a thread that waits for a disk.
    pub(crate) fn kill(mut self) {
        // Killing fails for a process that has ended already.
        let _ = self.child.kill();
        if !self.ends_soon() {
            let pid = self.child.id();
            warn!("process {pid} does not end: the kernel lets none go that waits for a disk");
        }
    }

    /// Waits until the process has ended; `false`: it takes longer than [`SOON`].
    pub(crate) fn ends_soon(&mut self) -> bool {
        let until = Instant::now() + SOON;
        while matches!(self.child.try_wait(), Ok(None)) {
            if until <= Instant::now() {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }
}

/// Why a process has ended; for a signal, also what usually sends it.
pub(crate) fn describe(status: &io::Result<ExitStatus>) -> String {
    let status = match status {
        Ok(status) => status,
        Err(error) => return error.to_string(),
    };
    let hint = match status.signal() {
        Some(SIGKILL) => ", which the kernel sends when memory runs out: see dmesg",
        Some(SIGSYS) => {
            ", which a seccomp filter sends: see 'drover mechanisms' for what it allows"
        }
        Some(SIGABRT) => {
            ", which a program sends itself when it gets no memory: allow more (ulimit -v, ulimit -d)"
        }
        _ => "",
    };
    format!("{status}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_died_names_its_cause() {
        let status = |raw| describe(&Ok(ExitStatus::from_raw(raw)));
        assert!(status(SIGKILL).contains("SIGKILL") && status(SIGKILL).contains("memory"));
        assert!(status(SIGSYS).contains("seccomp"), "{}", status(SIGSYS));
        assert_eq!(status(1 << 8), "exit status: 1");
    }
}

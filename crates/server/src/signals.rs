//! What signals mean to a server, and the thread that receives them.
//!
//! | signal | meaning |
//! |---|---|
//! | SIGTERM, SIGINT, SIGQUIT | stop: in good order at the first, at once at the second |
//! | SIGUSR1 | write the counters, with `--counters FILE`; otherwise a line in the log |
//! | SIGHUP | open the access log again, and read the file of --config again (`reload`) |
//! | SIGUSR2, SIGALRM | nothing: a line in the log |
//! | SIGXFSZ | nothing: the write past the limit of a file's size fails, as on a full disk |
//!
//! A terminal sends SIGINT, SIGQUIT and SIGHUP to all processes of a server; the supervisor answers them. Workers and the process of
//! `--admin` do not: the supervisor ends them.

use std::io;
use std::process;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context;
use drover_sys::process::start_thread;
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ,
};
use signal_hook::iterator::{Handle, Signals};
use tracing::info;

use crate::log;

/// Which process of a server hears the signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The only process of a server that has no supervisor.
    Server,
    /// The supervisor, which keeps the workers.
    Supervisor,
    /// A worker, which has a supervisor.
    Worker,
}

/// What a signal tells a server that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// To stop.
    Stop,
    /// A process that it has started has ended, was stopped, or goes on.
    Child,
    /// To write its counters.
    Counters,
    /// To open its access log anew, and to reload its configuration.
    Reload,
}

/// What is done at a signal.
enum Answer {
    Tell(Heard),
    Log(&'static str),
    Nothing,
}

/// What a terminal, or `kill $(pidof drover)`, sends to all processes of a server.
const SENT_TO_ALL: [i32; 6] = [SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM];

/// Has these signals do nothing in this process, which its supervisor ends.
pub(crate) fn leave_to_supervisor() -> io::Result<()> {
    for signal in SENT_TO_ALL {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    Ok(())
}

/// The signals of the process, heard by a thread from the moment this is made until it is dropped.
///
/// The server that has started is told by another thread than the one that heard the signals while it started: the
/// later thread inherits what the process has given up meanwhile (`sandbox`).
pub struct StopSignals {
    role: Role,
    /// `None` if the thread could not be replaced.
    hearing: Mutex<Option<Hearing>>,
}

/// The thread that hears the signals, and how to end it.
type Hearing = (Handle, JoinHandle<()>);

impl StopSignals {
    /// Begins to hear the signals. Until another listener is told, a signal to stop ends the process
    /// with status 0: nobody is served yet, so nothing is lost.
    ///
    /// # Errors
    /// The error of sigaction(2), or of starting a thread.
    pub fn catch(role: Role) -> anyhow::Result<StopSignals> {
        signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))
            .context("cannot catch SIGXFSZ")?;
        let hearing = hear(register(role)?, role, |heard| match heard {
            Heard::Child | Heard::Counters | Heard::Reload => {}
            Heard::Stop => {
                info!("stopped by a signal while starting");
                exit_at_once(0);
            }
        })?;
        Ok(StopSignals { role, hearing: Mutex::new(Some(hearing)) })
    }

    /// From now on, `listener` is told. To be called before anybody can be served.
    ///
    /// # Errors
    /// As [`StopSignals::catch`].
    pub(crate) fn tell(&self, listener: impl FnMut(Heard) + Send + 'static) -> anyhow::Result<()> {
        // Registered before the other thread ends, so that no signal is missed.
        let signals = register(self.role)?;
        let mut hearing = self.hearing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((handle, thread)) = hearing.take() {
            handle.close();
            // It ends the process if it has heard a signal to stop.
            let _ = thread.join();
        }
        *hearing = Some(hear(signals, self.role, listener)?);
        Ok(())
    }
}

fn register(role: Role) -> anyhow::Result<Signals> {
    let mut heard = [&[SIGTERM], &SENT_TO_ALL[..]].concat();
    if role == Role::Supervisor {
        heard.push(SIGCHLD);
    }
    Signals::new(heard).context("cannot catch signals")
}

/// Starts the thread.
fn hear(
    mut signals: Signals,
    role: Role,
    mut listener: impl FnMut(Heard) + Send + 'static,
) -> anyhow::Result<Hearing> {
    let handle = signals.handle();
    let work = move || {
        for signal in signals.forever() {
            match answer(signal, role) {
                Answer::Tell(heard) => listener(heard),
                Answer::Log(line) => info!("{line}"),
                Answer::Nothing => {}
            }
        }
    };
    Ok((handle, start_thread("signals", work)?))
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        if let Some((handle, _)) = self.hearing.get_mut().unwrap_or_else(PoisonError::into_inner) {
            handle.close();
        }
    }
}

impl std::fmt::Debug for StopSignals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StopSignals").finish_non_exhaustive()
    }
}

/// Ends the process, whatever its other threads do.
pub(crate) fn exit_at_once(status: i32) -> ! {
    log::finish();
    process::exit(status)
}

fn answer(signal: i32, role: Role) -> Answer {
    match signal {
        SIGCHLD => Answer::Tell(Heard::Child),
        SIGTERM => Answer::Tell(Heard::Stop),
        SIGUSR1 if role != Role::Worker => Answer::Tell(Heard::Counters),
        SIGINT | SIGQUIT | SIGHUP if role == Role::Worker => Answer::Nothing,
        SIGINT | SIGQUIT => Answer::Tell(Heard::Stop),
        SIGHUP => Answer::Tell(Heard::Reload),
        SIGUSR1 => Answer::Log("SIGUSR1 is ignored by a worker: send it to the server"),
        SIGUSR2 => Answer::Log(
            "SIGUSR2 is ignored: start another server with --take-over in place of this one",
        ),
        _ => Answer::Log("SIGALRM is ignored: it has no use here"),
    }
}

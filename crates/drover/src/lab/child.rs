//! A child process that the lab listens to, and that never outlives it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::runner::Failure;

/// How often a wait looks whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(50);

/// How long a child may take to stop in good order.
const GRACE: Duration = Duration::from_secs(2);

/// How many of its last words are kept for an error message.
const LAST_WORDS: usize = 3;

/// A running child: dropping it stops it.
///
/// It leads a process group of its own, so that Ctrl-C on the terminal reaches the lab alone, which
/// then stops its children in order; and it dies with the thread that started it.
pub(super) struct Supervised<'a> {
    name: &'static str,
    child: Child,
    lines: Receiver<String>,
    last_words: Option<JoinHandle<String>>,
    interrupted: &'a AtomicBool,
}

impl<'a> Supervised<'a> {
    /// Starts `command` on `cpus` (an empty list: anywhere). Waits for it end early once
    /// `interrupted` is set.
    pub(super) fn start(
        name: &'static str,
        mut command: Command,
        cpus: &[usize],
        interrupted: &'a AtomicBool,
    ) -> Result<Supervised<'a>, Failure> {
        let failed = |error| Failure::Failed(format!("cannot start the {name}: {error}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        mech::process::pin(&mut command, cpus).map_err(failed)?;
        mech::process::die_with_parent(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = child.stderr.take().expect("it is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in lines_of(stdout) {
                // Nobody listens any more: the pipe is emptied all the same.
                let _ = sender.send(line);
            }
        });
        let last_words = Some(thread::spawn(move || last_words(stderr)));
        Ok(Supervised { name, child, lines, last_words, interrupted })
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the line on its stdout that `wanted` makes something of; others are passed over.
    pub(super) fn expect_line<T>(
        &mut self,
        what: &str,
        patience: Duration,
        wanted: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + patience;
        loop {
            match self.next_line(deadline)? {
                Some(line) => {
                    if let Some(found) = wanted(&line) {
                        return Ok(found);
                    }
                }
                None if Instant::now() < deadline => {
                    let status = self.wait_until(deadline)?;
                    return Err(self.failure(&format!("ended before {what} ({status})")));
                }
                None => {
                    return Err(Failure::Failed(format!(
                        "no {what} from the {} within {patience:?}",
                        self.name
                    )));
                }
            }
        }
    }

    /// Lets it go on: an empty line on its stdin.
    pub(super) fn go_on(&mut self) -> Result<(), Failure> {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        stdin.write_all(b"\n").map_err(|error| self.failure(&format!("does not listen ({error})")))
    }

    /// Fails if it has ended already, with its last words.
    pub(super) fn expect_running(&mut self) -> Result<(), Failure> {
        self.look_for_interruption()?;
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.failure(&format!("ended at once ({status})"))),
            Err(error) => Err(Failure::Failed(error.to_string())),
        }
    }

    /// Waits until it has ended by itself, successfully.
    pub(super) fn expect_success(&mut self, patience: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + patience;
        while self.next_line(deadline)?.is_some() {}
        let status = self.wait_until(deadline)?;
        if status.success() {
            return Ok(());
        }
        Err(self.failure(&format!("failed ({status})")))
    }

    /// The next line, or `None` when stdout is closed or the deadline has come.
    fn next_line(&mut self, deadline: Instant) -> Result<Option<String>, Failure> {
        loop {
            self.look_for_interruption()?;
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left.min(LOOK)) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn wait_until(&mut self, deadline: Instant) -> Result<ExitStatus, Failure> {
        loop {
            self.look_for_interruption()?;
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
                Ok(None) => {
                    return Err(Failure::Failed(format!("the {} does not end", self.name)));
                }
                Err(error) => return Err(Failure::Failed(error.to_string())),
            }
        }
    }

    fn look_for_interruption(&self) -> Result<(), Failure> {
        if self.interrupted.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// What happened to it, and the last that it said about it.
    fn failure(&mut self, what: &str) -> Failure {
        // Its process group may hold stderr open: what still runs in there is stopped first.
        let _ = mech::process::kill_group(&self.child);
        let words = self.last_words.take().and_then(|thread| thread.join().ok());
        let words = words.filter(|words| !words.is_empty());
        let words = words.map_or(String::new(), |words| format!(": {words}"));
        Failure::Failed(format!("the {} {what}{words}", self.name))
    }
}

impl Drop for Supervised<'_> {
    fn drop(&mut self) {
        // Whoever waits for a line is told that none will come.
        drop(self.child.stdin.take());
        let has_ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        if !has_ended(&mut self.child) && mech::process::ask_to_stop(&self.child).is_ok() {
            let deadline = Instant::now() + GRACE;
            while !has_ended(&mut self.child) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
        }
        // Whoever is left of its process group, itself included.
        let _ = mech::process::kill_group(&self.child);
        let _ = self.child.wait();
    }
}

/// The lines of a pipe until it ends, whatever bytes they are made of.
fn lines_of(pipe: impl Read) -> impl Iterator<Item = String> {
    let lines = BufReader::new(pipe).split(b'\n').map_while(Result::ok);
    lines.map(|line| String::from_utf8_lossy(&line).trim_end().to_string())
}

/// The last lines of what a child said, as one.
fn last_words(stderr: impl Read) -> String {
    let mut last = VecDeque::new();
    for line in lines_of(stderr) {
        if last.len() == LAST_WORDS {
            last.pop_front();
        }
        last.push_back(line);
    }
    Vec::from(last).join("; ")
}

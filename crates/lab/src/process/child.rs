//! A child process that the lab listens to, and that never outlives it.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit};

use super::cgroup::Cgroup;
use super::guard::Guard;
use super::interrupt::Interrupt;
use super::tree::{self, Tree};
use crate::failure::Failure;

/// How often a wait looks whether the lab is to end.
const LOOK: Duration = Duration::from_millis(50);

/// How long a child may take to stop after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// How many lines of the end of a child's stderr are kept for an error message.
const LAST_LINES: usize = 3;

/// Limits on resources, by the names of setrlimit(2) in lower case: `nofile`, `sigpending`. Soft and hard
/// limit are set alike.
pub type Limits = BTreeMap<String, u64>;

/// How a child is to be started.
#[derive(Debug)]
pub struct Launch<'a> {
    /// What error messages call it.
    pub name: String,
    /// Program, arguments, environment and working folder.
    pub command: Command,
    /// The processors that it may run on; empty: those of the lab.
    pub cpus: Vec<usize>,
    /// Its limits where they differ from the lab's.
    pub limits: Limits,
    /// Whether CPU time is to be billed: with descendants, in a control group if that is allowed.
    pub billed: bool,
    /// Whether the child runs only when a processor has nothing else to do (`SCHED_IDLE`).
    pub stands_back: bool,
    /// Whether the child sees itself as an ordinary user although the lab is root: a server that root
    /// starts gives up its rights, or refuses to serve, and may then not read what only root may read.
    pub hides_root: bool,
    /// Whether the child's own children outlive the lab for the moment that they need to put things in
    /// order, as the one that unmounts the modelled disk. The child itself does not.
    pub tidies_up: bool,
    /// A folder on which every access is noted (`strictatime`) for the child.
    pub notes_access: Option<std::path::PathBuf>,
    /// What ends the child's processes if the lab is killed.
    pub guard: Arc<Guard>,
    /// The flag that ends every wait for the child.
    pub interrupt: &'a Interrupt,
}

impl<'a> Launch<'a> {
    /// A child without anything special.
    pub fn new(
        name: impl Into<String>,
        command: Command,
        guard: &Arc<Guard>,
        interrupt: &'a Interrupt,
    ) -> Launch<'a> {
        Launch {
            name: name.into(),
            command,
            cpus: Vec::new(),
            limits: Limits::new(),
            billed: false,
            stands_back: false,
            hides_root: false,
            tidies_up: false,
            notes_access: None,
            guard: Arc::clone(guard),
            interrupt,
        }
    }
}

/// A running child; dropping it stops it and its descendants.
///
/// It leads a process group, so that Ctrl-C on a terminal reaches the lab alone, and it dies with the
/// thread that started it: start children on a thread that lives as long as they are needed.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: process::Child,
    lines: Receiver<String>,
    last_lines: Option<JoinHandle<String>>,
    interrupt: Interrupt,
    guard: Arc<Guard>,
    cgroup: Option<Cgroup>,
    why_no_cgroup: Option<String>,
    tree: Option<Tree>,
    command_line: Vec<String>,
}

impl Child {
    /// Starts a child.
    ///
    /// The child begins as a shell that waits, so that its limits and its control group are in force
    /// from the first instruction of its program on.
    ///
    /// # Errors
    /// [`Failure::NotTestable`] for a limit that the lab may not set; [`Failure::Failed`] with what the
    /// kernel says. A program that does not exist is noticed by the first wait for the child.
    pub fn start(launch: Launch<'_>) -> Result<Child, Failure> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let Launch { name, guard, interrupt, .. } = &launch;
        let failed = |error| Failure::failed(format!("cannot start the {name}: {error}"));
        let mut command = gated(&launch.command);
        let mark = guard.mark(NUMBER.fetch_add(1, Ordering::Relaxed));
        match launch.tidies_up {
            true => command.env_remove(tree::MARK),
            false => command.env(tree::MARK, &mark),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        sys::process::pin(&mut command, &launch.cpus).map_err(failed)?;
        if launch.stands_back {
            sys::process::stand_back(&mut command);
        }
        if let Some(folder) = &launch.notes_access {
            sys::process::note_access_times(&mut command, folder).map_err(failed)?;
        }
        if launch.hides_root && sys::process::is_root() {
            sys::process::hide_root(&mut command);
        }
        sys::process::die_with_parent(&mut command);
        let mut process = command.spawn().map_err(failed)?;
        tree::note_own(process.id());
        guard.tell(&format!("+group {}", process.id()));
        let stdout = process.stdout.take().expect("stdout is piped");
        let stderr = process.stderr.take().expect("stderr is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in lines_of(stdout) {
                // Without a receiver the pipe is still emptied, so that the child never blocks.
                let _ = sender.send(line);
            }
        });
        let last_lines = Some(thread::spawn(move || last_lines(stderr)));
        let mut child = Child {
            name: name.clone(),
            process,
            lines,
            last_lines,
            interrupt: (*interrupt).clone(),
            guard: Arc::clone(guard),
            cgroup: None,
            why_no_cgroup: None,
            tree: None,
            command_line: command_line(&launch.command),
        };
        for (limit, value) in &launch.limits {
            child.limit(limit, *value)?;
        }
        if launch.billed {
            child.bill(&mark).map_err(failed)?;
        }
        child.go_on()?;
        Ok(child)
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Program and arguments.
    #[must_use]
    pub fn command_line(&self) -> &[String] {
        &self.command_line
    }

    /// CPU time, user and system, of the child and its descendants since its start; `None` if it was not
    /// to be billed.
    ///
    /// # Errors
    /// What the kernel says of the control group.
    pub fn cpu_time(&mut self) -> std::io::Result<Option<Duration>> {
        match (&self.cgroup, &mut self.tree) {
            (Some(cgroup), _) => cgroup.cpu_time().map(Some),
            (None, Some(tree)) => Ok(Some(tree.cpu_time())),
            (None, None) => Ok(None),
        }
    }

    /// How long the child's threads, and its descendants', could have run and were not given a
    /// processor. `None` if the kernel does not count it.
    #[must_use]
    pub fn wait_time(&self) -> Option<Duration> {
        let times: Vec<Duration> = self.members().into_iter().filter_map(tree::waited).collect();
        (!times.is_empty()).then(|| times.iter().sum())
    }

    /// The processes that are billed.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        match (&self.cgroup, &self.tree) {
            (Some(cgroup), _) => cgroup.members().unwrap_or_default(),
            (None, Some(tree)) => tree.members(),
            (None, None) => vec![self.id()],
        }
    }

    /// The control group that is billed.
    #[must_use]
    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// Why there is no control group to be billed.
    #[must_use]
    pub fn why_no_cgroup(&self) -> Option<&str> {
        self.why_no_cgroup.as_deref()
    }

    /// Waits for the line on its stdout that `wanted` makes something of; others are passed over.
    ///
    /// # Errors
    /// [`Failure::Interrupted`]; [`Failure::Failed`] if the child ends, or `patience` does, before.
    pub fn expect_line<T>(
        &mut self,
        what: &str,
        patience: Duration,
        mut wanted: impl FnMut(&str) -> Option<T>,
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
                    let name = &self.name;
                    return Err(Failure::failed(format!(
                        "no {what} from the {name} within {patience:?}"
                    )));
                }
            }
        }
    }

    /// Sends an empty line to its stdin.
    ///
    /// # Errors
    /// [`Failure::Failed`] if the child has closed it.
    pub fn go_on(&mut self) -> Result<(), Failure> {
        let stdin = self.process.stdin.as_mut().expect("stdin is piped");
        stdin
            .write_all(b"\n")
            .map_err(|error| self.failure(&format!("does not read its stdin ({error})")))
    }

    /// Ends its stdin.
    pub fn close_stdin(&mut self) {
        drop(self.process.stdin.take());
    }

    /// Fails if the child has ended, with the end of its stderr.
    ///
    /// # Errors
    /// [`Failure::Interrupted`], [`Failure::Failed`].
    pub fn expect_running(&mut self) -> Result<(), Failure> {
        self.interrupt.check()?;
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.failure(&format!("ended at once ({status})"))),
            Err(error) => Err(Failure::failed(error)),
        }
    }

    /// How the child has ended; `None` while it runs.
    ///
    /// # Errors
    /// What waitpid(2) says.
    pub fn ended(&mut self) -> std::io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Whether descendants of the child run, although the child itself may have ended: a daemon.
    #[must_use]
    pub fn has_descendants(&self) -> bool {
        self.members().iter().any(|pid| *pid != self.id())
    }

    /// Waits until the child has ended. Returns the lines of its stdout that nobody has read.
    ///
    /// # Errors
    /// [`Failure::Interrupted`]; [`Failure::Failed`] if it does not end within `patience`.
    pub fn expect_end(&mut self, patience: Duration) -> Result<(ExitStatus, Vec<String>), Failure> {
        let deadline = Instant::now() + patience;
        let mut lines = Vec::new();
        while let Some(line) = self.next_line(deadline)? {
            lines.push(line);
        }
        Ok((self.wait_until(deadline)?, lines))
    }

    /// Waits until the child has ended successfully.
    ///
    /// # Errors
    /// As [`Child::expect_end`]; [`Failure::Failed`] with the end of its stderr for another exit status.
    pub fn expect_success(&mut self, patience: Duration) -> Result<Vec<String>, Failure> {
        let (status, lines) = self.expect_end(patience)?;
        if status.success() {
            return Ok(lines);
        }
        Err(self.failure(&format!("failed ({status})")))
    }

    /// Asks the child to end and waits a little; kills it, and its descendants, if it does not. Returns the
    /// end of its stderr.
    pub fn stop(&mut self) -> String {
        self.close_stdin();
        self.end();
        self.last_lines.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }

    /// What happened to the child, and the end of its stderr.
    pub fn failure(&mut self, what: &str) -> Failure {
        // A descendant may hold stderr open.
        self.kill_all();
        let words = self.last_lines.take().and_then(|thread| thread.join().ok());
        let words = words.filter(|words| !words.is_empty());
        let words = words.map_or(String::new(), |words| format!(": {words}"));
        Failure::Failed(format!("the {} {what}{words}", self.name))
    }

    /// The next line, or `None` when stdout is closed or the deadline has come.
    fn next_line(&mut self, deadline: Instant) -> Result<Option<String>, Failure> {
        loop {
            self.interrupt.check()?;
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
            self.interrupt.check()?;
            match self.process.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
                Ok(None) => {
                    return Err(Failure::failed(format!("the {} does not end", self.name)));
                }
                Err(error) => return Err(Failure::failed(error)),
            }
        }
    }

    fn limit(&self, name: &str, value: u64) -> Result<(), Failure> {
        let resource = resource(name)
            .ok_or_else(|| Failure::failed(format!("there is no limit named {name}")))?;
        let both = Rlimit { current: Some(value), maximum: Some(value) };
        rustix::process::prlimit(Pid::from_raw(self.id().cast_signed()), resource, both)
            .map(drop)
            .map_err(|error| {
                Failure::not_testable(format!(
                    "the limit {name} = {value} of the {} cannot be set ({error})",
                    self.name
                ))
            })
    }

    fn bill(&mut self, mark: &str) -> std::io::Result<()> {
        self.tree = Some(Tree::of(self.id(), mark)?);
        let made = Cgroup::create().and_then(|cgroup| {
            self.guard.tell(&format!("+cgroup {}", cgroup.folder().display()));
            cgroup.add(self.id()).map_err(|error| error.to_string())?;
            Ok(cgroup)
        });
        match made {
            Ok(cgroup) => self.cgroup = Some(cgroup),
            Err(why) => self.why_no_cgroup = Some(why),
        }
        Ok(())
    }

    /// Has the child end in good order, or kills it.
    fn end(&mut self) {
        let has_ended = |child: &mut process::Child| !matches!(child.try_wait(), Ok(None));
        if !has_ended(&mut self.process) && sys::process::ask_to_stop(&self.process).is_ok() {
            let deadline = Instant::now() + GRACE;
            while !has_ended(&mut self.process) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.kill_all();
    }

    /// Kills the child, its group and its descendants.
    fn kill_all(&mut self) {
        let _ = sys::process::kill_group(&self.process);
        match (&self.cgroup, &mut self.tree) {
            (Some(cgroup), _) => cgroup.kill(),
            (None, Some(tree)) => tree.kill_descendants(),
            (None, None) => {}
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A child that waits for a line reads the end of its stdin.
        self.close_stdin();
        self.end();
        let _ = self.process.wait();
        self.guard.tell(&format!("-group {}", self.id()));
        if let Some(cgroup) = self.cgroup.take() {
            let line = format!("-cgroup {}", cgroup.folder().display());
            drop(cgroup);
            self.guard.tell(&line);
        }
        tree::forget_own(self.id());
    }
}

/// The same command, begun by a shell that waits for a line on its stdin before it becomes the program.
fn gated(command: &Command) -> Command {
    let mut gated = Command::new("sh");
    gated.args(["-c", "read -r _ && exec \"$@\"", "sh"]);
    gated.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => gated.env(name, value),
            None => gated.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        gated.current_dir(folder);
    }
    gated
}

/// Program and arguments of a command, as records have them.
#[must_use]
pub fn command_line(command: &Command) -> Vec<String> {
    let text = |word: &OsStr| word.to_string_lossy().into_owned();
    std::iter::once(command.get_program()).chain(command.get_args()).map(text).collect()
}

fn resource(name: &str) -> Option<Resource> {
    Some(match name {
        "as" => Resource::As,
        "core" => Resource::Core,
        "cpu" => Resource::Cpu,
        "data" => Resource::Data,
        "fsize" => Resource::Fsize,
        "memlock" => Resource::Memlock,
        "msgqueue" => Resource::Msgqueue,
        "nofile" => Resource::Nofile,
        "nproc" => Resource::Nproc,
        "rtprio" => Resource::Rtprio,
        "sigpending" => Resource::Sigpending,
        "stack" => Resource::Stack,
        _ => return None,
    })
}

/// The lines of a pipe until it ends, whatever bytes they are made of.
fn lines_of(pipe: impl Read) -> impl Iterator<Item = String> {
    let lines = BufReader::new(pipe).split(b'\n').map_while(Result::ok);
    lines.map(|line| String::from_utf8_lossy(&line).trim_end().to_string())
}

/// The last lines of a pipe, as one.
fn last_lines(stderr: impl Read) -> String {
    let mut last = VecDeque::new();
    for line in lines_of(stderr) {
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(line);
    }
    Vec::from(last).join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn guard() -> Arc<Guard> {
        Arc::new(Guard::start().unwrap())
    }

    #[test]
    fn limits_and_the_environment_are_in_force_when_the_program_begins() {
        let interrupt = Interrupt::default();
        let mut command = shell("echo limit $(ulimit -n) $COLOUR; grep SigQ /proc/self/status");
        command.env("COLOUR", "red");
        let mut launch = Launch::new("shell", command, &guard(), &interrupt);
        launch.limits = [("nofile".to_string(), 64), ("sigpending".to_string(), 17)].into();
        let mut child = Child::start(launch).unwrap();
        let lines = child.expect_success(PATIENCE).unwrap();
        assert_eq!(lines[0], "limit 64 red");
        assert!(lines[1].ends_with("/17"), "{lines:?}");
    }

    #[test]
    fn a_limit_that_cannot_be_set_makes_the_cell_untestable() {
        let interrupt = Interrupt::default();
        let mut launch = Launch::new("shell", shell("read -r _"), &guard(), &interrupt);
        // More descriptors than the kernel lets anybody have.
        launch.limits = [("nofile".to_string(), u64::from(u32::MAX))].into();
        let failure = Child::start(launch).unwrap_err();
        assert!(
            matches!(&failure, Failure::NotTestable(why) if why.contains("nofile")),
            "{failure}"
        );
    }

    #[test]
    fn a_child_that_fails_is_quoted() {
        let interrupt = Interrupt::default();
        let command = shell("echo first >&2; echo no such key >&2; exit 3");
        let mut child = Child::start(Launch::new("server", command, &guard(), &interrupt)).unwrap();
        let failure = child.expect_line("its address", PATIENCE, |_| None::<()>).unwrap_err();
        let text = failure.to_string();
        assert!(text.contains("the server ended before its address"), "{text}");
        assert!(text.contains("exit status: 3") && text.contains("first; no such key"), "{text}");
    }

    #[test]
    fn an_interruption_ends_the_wait() {
        let interrupt = Interrupt::default();
        let command = shell("read -r _");
        let mut child = Child::start(Launch::new("server", command, &guard(), &interrupt)).unwrap();
        interrupt.set();
        let failure = child.expect_line("a line", PATIENCE, |_| None::<()>).unwrap_err();
        assert_eq!(failure, Failure::Interrupted);
    }

    #[test]
    fn a_daemon_ends_with_its_child() {
        let interrupt = Interrupt::default();
        let script = "setsid sh -c 'echo $$; exec sleep 1000' & read -r _";
        let mut launch = Launch::new("server", shell(script), &guard(), &interrupt);
        launch.billed = true;
        let mut child = Child::start(launch).unwrap();
        let pid: u32 = child.expect_line("a number", PATIENCE, |line| line.parse().ok()).unwrap();
        assert!(child.members().contains(&pid) && child.has_descendants());
        assert!(child.cpu_time().unwrap().is_some());
        drop(child);
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
    }

    #[test]
    fn the_guard_ends_what_the_lab_cannot() {
        let interrupt = Interrupt::default();
        let guard = guard();
        let script = "setsid sh -c 'echo $$; exec sleep 1000' & read -r _";
        let launch = Launch::new("server", shell(script), &guard, &interrupt);
        let mut child = Child::start(launch).unwrap();
        let pid: u32 = child.expect_line("a number", PATIENCE, |line| line.parse().ok()).unwrap();
        // What remains of the lab after SIGKILL is the end of the guard's stdin.
        let shell = Arc::clone(&guard);
        drop(shell.shell_stdin());
        while std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
        {
            thread::yield_now();
        }
    }
}

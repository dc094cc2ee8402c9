//! A child process of the lab. The lab reads its output, and the child never outlives the lab.

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

/// How often a wait checks whether the lab is to end.
const LOOK: Duration = Duration::from_millis(50);

/// How long a child may take to stop after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// How many of the last lines of a child's stderr are kept for an error message.
const LAST_LINES: usize = 3;

/// Resource limits, by the names of setrlimit(2) in lower case: `nofile`, `sigpending`. Soft and hard limit get one
/// value.
pub type ResourceLimits = BTreeMap<String, u64>;

/// When a child runs, beside other processes that want its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// As every process.
    Usual,
    /// Before them, if the lab may decide that (`SCHED_FIFO`).
    First,
    /// When they want nothing (`SCHED_IDLE`).
    Last,
}

/// How to start a child.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The name of the child in error messages.
    pub name: String,
    /// Program, arguments, environment and working folder.
    pub command: Command,
    /// The processors that the child may use; empty: those of the lab.
    pub cpus: Vec<usize>,
    /// The child's limits that differ from the lab's.
    pub limits: ResourceLimits,
    /// Whether CPU time is counted for the child and its descendants, by a control group if control groups are
    /// allowed.
    pub billed: bool,
    /// When the child runs, beside other processes.
    pub turn: Turn,
    /// Whether the child sees itself as an ordinary user although the lab runs as root. A server that root starts
    /// gives up its rights, or refuses to serve, and then may not read files that only root may read.
    pub hides_root: bool,
    /// Whether the child's own children may outlive the lab for as long as they need to clean up; for example the one
    /// that unmounts the modelled disk. The child itself does not outlive the lab.
    pub tidies_up: bool,
    /// A folder on which every access is recorded (`strictatime`) for the child.
    pub notes_access: Option<std::path::PathBuf>,
    /// Ends the child's processes if the lab is killed.
    pub guard: Arc<Guard>,
    /// The flag that ends every wait for the child.
    pub interrupt: &'a Interrupt,
}

impl<'a> Launch<'a> {
    /// A child with default settings.
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
            limits: ResourceLimits::new(),
            billed: false,
            turn: Turn::Usual,
            hides_root: false,
            tidies_up: false,
            notes_access: None,
            guard: Arc::clone(guard),
            interrupt,
        }
    }
}

/// A running child. Dropping the value stops the child and its descendants.
///
/// The child leads a process group, so that Ctrl-C on a terminal reaches the lab only. The child dies with the thread
/// that started it: start children on a thread that lives as long as they are needed.
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
    /// The child begins as a shell that waits, so that its limits and its control group apply from the first
    /// instruction of its program on.
    ///
    /// # Errors
    /// [`Failure::NotTestable`] for a limit that the lab may not set; [`Failure::Failed`] with what the kernel says.
    /// A missing program is noticed by the first wait for the child.
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
        drover_sys::process::pin(&mut command, &launch.cpus).map_err(failed)?;
        match launch.turn {
            Turn::Usual => {}
            Turn::First => drover_sys::process::go_first(&mut command),
            Turn::Last => drover_sys::process::stand_back(&mut command),
        }
        if let Some(folder) = &launch.notes_access {
            drover_sys::process::note_access_times(&mut command, folder).map_err(failed)?;
        }
        if launch.hides_root && drover_sys::process::is_root() {
            drover_sys::process::hide_root(&mut command);
        }
        drover_sys::process::die_with_parent(&mut command);
        let mut process = command.spawn().map_err(failed)?;
        tree::note_own(process.id());
        guard.tell(&format!("+group {}", process.id()));
        let stdout = process.stdout.take().expect("stdout is piped");
        let stderr = process.stderr.take().expect("stderr is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in lines_of(stdout) {
                // The pipe is emptied even if no receiver is left, so that the child never blocks.
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

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Program and arguments.
    #[must_use]
    pub fn command_line(&self) -> &[String] {
        &self.command_line
    }

    /// CPU time, user and system, of the child and its descendants since the start; `None` if [`Launch::billed`] is
    /// not set.
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

    /// How long threads of the child and of its descendants were ready to run and had no processor. `None` if the
    /// kernel does not count it.
    #[must_use]
    pub fn wait_time(&self) -> Option<Duration> {
        let times: Vec<Duration> = self.members().into_iter().filter_map(tree::waited).collect();
        (!times.is_empty()).then(|| times.iter().sum())
    }

    /// The processes whose CPU time is counted.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        match (&self.cgroup, &self.tree) {
            (Some(cgroup), _) => cgroup.members().unwrap_or_default(),
            (None, Some(tree)) => tree.members(),
            (None, None) => vec![self.id()],
        }
    }

    /// The control group whose CPU time is counted.
    #[must_use]
    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// Why the child has no control group.
    #[must_use]
    pub fn why_no_cgroup(&self) -> Option<&str> {
        self.why_no_cgroup.as_deref()
    }

    /// Waits for a line on the child's stdout from which `wanted` makes a value. Other lines are skipped.
    ///
    /// # Errors
    /// [`Failure::Interrupted`]; [`Failure::Failed`] if the child ends, or `timeout` does, before.
    pub fn expect_line<T>(
        &mut self,
        what: &str,
        timeout: Duration,
        mut wanted: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + timeout;
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
                        "no {what} from the {name} within {timeout:?}"
                    )));
                }
            }
        }
    }

    /// Sends an empty line to the child's stdin.
    ///
    /// # Errors
    /// [`Failure::Failed`] if the child has closed its stdin.
    pub fn go_on(&mut self) -> Result<(), Failure> {
        let stdin = self.process.stdin.as_mut().expect("stdin is piped");
        stdin
            .write_all(b"\n")
            .map_err(|error| self.failure(&format!("does not read its stdin ({error})")))
    }

    /// Closes the child's stdin.
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

    /// Waits until the child has ended. Returns the unread lines of its stdout.
    ///
    /// # Errors
    /// [`Failure::Interrupted`]; [`Failure::Failed`] if it does not end within `timeout`.
    pub fn expect_end(&mut self, timeout: Duration) -> Result<(ExitStatus, Vec<String>), Failure> {
        let deadline = Instant::now() + timeout;
        let mut lines = Vec::new();
        while let Some(line) = self.next_line(deadline)? {
            lines.push(line);
        }
        Ok((self.wait_until(deadline)?, lines))
    }

    /// Waits until the child has ended with exit status 0. Returns the unread lines of its stdout.
    ///
    /// # Errors
    /// The errors of [`Child::expect_end`]; [`Failure::Failed`] with the end of its stderr for another exit status.
    pub fn expect_success(&mut self, timeout: Duration) -> Result<Vec<String>, Failure> {
        let (status, lines) = self.expect_end(timeout)?;
        if status.success() {
            return Ok(lines);
        }
        Err(self.failure(&format!("failed ({status})")))
    }

    /// What happened to the child, and the end of its stderr.
    pub fn failure(&mut self, what: &str) -> Failure {
        // A descendant may keep stderr open.
        self.kill_all();
        let words = self.last_lines.take().and_then(|thread| thread.join().ok());
        let words = words.filter(|words| !words.is_empty());
        let words = words.map_or(String::new(), |words| format!(": {words}"));
        Failure::Failed(format!("the {} {what}{words}", self.name))
    }

    /// The next line, or `None` if stdout is closed or the deadline has passed.
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

    /// Asks the child to end, and kills it if it does not end in time.
    fn end(&mut self) {
        let has_ended = |child: &mut process::Child| !matches!(child.try_wait(), Ok(None));
        if !has_ended(&mut self.process) && drover_sys::process::ask_to_stop(&self.process).is_ok()
        {
            let deadline = Instant::now() + GRACE;
            while !has_ended(&mut self.process) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.kill_all();
    }

    /// Kills the child, its group and its descendants.
    fn kill_all(&mut self) {
        let _ = drover_sys::process::kill_group(&self.process);
        match (&self.cgroup, &mut self.tree) {
            (Some(cgroup), _) => cgroup.kill(),
            (None, Some(tree)) => tree.kill_descendants(),
            (None, None) => {}
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A child that waits for a line sees the end of its stdin.
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

/// The command, started by a shell that first waits for a line on its stdin and then becomes the program.
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

/// Program and arguments of a command, for records.
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

/// The lines of a pipe until its end. Invalid UTF-8 is replaced.
fn lines_of(pipe: impl Read) -> impl Iterator<Item = String> {
    let lines = BufReader::new(pipe).split(b'\n').map_while(Result::ok);
    lines.map(|line| String::from_utf8_lossy(&line).trim_end().to_string())
}

/// The last lines of a pipe, joined.
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

    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

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
        let lines = child.expect_success(TEST_TIMEOUT).unwrap();
        assert_eq!(lines[0], "limit 64 red");
        assert!(lines[1].ends_with("/17"), "{lines:?}");
    }

    #[test]
    fn a_limit_that_cannot_be_set_makes_the_cell_untestable() {
        let interrupt = Interrupt::default();
        let mut launch = Launch::new("shell", shell("read -r _"), &guard(), &interrupt);
        // More descriptors than the kernel allows to any process.
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
        let failure = child.expect_line("its address", TEST_TIMEOUT, |_| None::<()>).unwrap_err();
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
        let failure = child.expect_line("a line", TEST_TIMEOUT, |_| None::<()>).unwrap_err();
        assert_eq!(failure, Failure::Interrupted);
    }

    #[test]
    fn a_daemon_ends_with_its_child() {
        let interrupt = Interrupt::default();
        let script = "setsid sh -c 'echo $$; exec sleep 1000' & read -r _";
        let mut launch = Launch::new("server", shell(script), &guard(), &interrupt);
        launch.billed = true;
        let mut child = Child::start(launch).unwrap();
        let pid: u32 =
            child.expect_line("a number", TEST_TIMEOUT, |line| line.parse().ok()).unwrap();
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
        let pid: u32 =
            child.expect_line("a number", TEST_TIMEOUT, |line| line.parse().ok()).unwrap();
        // After SIGKILL of the lab, the guard's stdin ends: that is all that remains.
        let shell = Arc::clone(&guard);
        drop(shell.shell_stdin());
        while std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
        {
            thread::yield_now();
        }
    }
}

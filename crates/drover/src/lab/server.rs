//! Starts the servers of an experiment: Drover's own with the flags of a point, those of the user, and
//! peers; and reads their clocks.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use super::child::Supervised;
use super::experiment::{Compared, Experiment};
use super::peers::{Blanks, Peer};
use super::results::{Ask, Point};
use super::runner::Failure;
use super::store::Opened;

/// How long a server may take until it accepts.
const START: Duration = Duration::from_secs(10);

/// Starts the servers of one experiment.
#[derive(Debug)]
pub(super) struct Servers<'a> {
    pub(super) experiment: &'a Experiment,
    /// This very program.
    pub(super) program: PathBuf,
    /// The processors that servers run on; empty: anywhere.
    pub(super) cpus: Vec<usize>,
    /// Where peers may keep what they need while they run.
    pub(super) folder: PathBuf,
    pub(super) interrupted: &'a AtomicBool,
}

/// A server that accepts connections; dropping it stops it.
pub(super) struct RunningServer<'a> {
    process: Supervised<'a>,
    pub(super) url: String,
    pub(super) command_line: Vec<String>,
    /// Whether the experiment says how many workers it has.
    has_workers: bool,
    /// The folder of a peer: removed after it has ended.
    _work: Option<Work>,
}

impl<'a> Servers<'a> {
    /// Starts the server of `point`; it accepts connections.
    pub(super) fn start(
        &self,
        point: &Point,
        files: Option<&Opened>,
    ) -> Result<RunningServer<'a>, Failure> {
        let name = &point.mechanism;
        let root = files.map_or(Path::new(""), |files| files.root.as_path());
        if let Some(server) = self.experiment.servers.get(name)
            && let Some(command) = &server.command
        {
            let port = free_port()?;
            let script = command.replace("{port}", &port.to_string());
            let script = script.replace("{root}", &root.display().to_string());
            return self.start_script(&script, port, &server.path, None);
        }
        match Peer::by_name(name) {
            Some(peer) => self.start_peer(&peer, root),
            None => self.start_own(point, files),
        }
    }

    /// Drover's own server with the flags that the point is about.
    fn start_own(
        &self,
        point: &Point,
        files: Option<&Opened>,
    ) -> Result<RunningServer<'a>, Failure> {
        let mut command = Command::new(&self.program);
        command.arg("serve").args(self.flags(&point.mechanism));
        let common = &self.experiment.workload.serve;
        let has_workers = common.iter().any(|flag| flag == "--workers");
        if !has_workers {
            command.args(["--workers", "1"]);
        }
        command.args(common);
        match (files, point.ask) {
            // What is kept open, or in memory, would not be the disk's.
            (Some(files), Ask::FileBytes(_)) if !self.experiment.workload.keeps_files => {
                command.arg(&files.root).args(["--cache", "off"]);
            }
            (Some(files), _) => drop(command.arg(&files.root)),
            (None, _) => {
                let bytes = self.experiment.workload.reply_bytes.unwrap_or_default();
                command.args(["--reply-size", &bytes.to_string()]);
            }
        }
        if self.experiment.workload.late_s.is_some() {
            command.arg("--trace").arg(self.trace_file());
        }
        // A connection may be idle for longer than a web server would allow, and from the start.
        command.args(["--listen", "127.0.0.1:0", "--idle-timeout", "0", "--defer-accept", "off"]);
        let command_line = words(&command);
        if let Some(files) = files
            && self.experiment.workload.notes_access
        {
            mech::process::note_access_times(&mut command, &files.root)
                .map_err(|error| failed(&error.to_string()))?;
        }
        let mut process = Supervised::start("server", command, &self.cpus, self.interrupted)?;
        let url = process.expect_line("its address", START, |line| {
            line.strip_prefix("listening on ").map(str::to_string)
        })?;
        Ok(RunningServer { process, url, command_line, has_workers, _work: None })
    }

    /// Where a server writes down where the time of its requests goes, if it is to do that.
    pub(super) fn trace_file(&self) -> PathBuf {
        self.folder.join("trace.unfinished")
    }

    /// What the server of that name has in place of its siblings' flags.
    fn flags(&self, name: &str) -> Vec<String> {
        let of_its_own = self.experiment.servers.get(name).and_then(|server| server.serve.clone());
        let flag = match &self.experiment.compares {
            Compared::Dispatch => "--dispatch",
            Compared::Files => "--files",
            Compared::Flag(flag) => flag,
            // They have no servers but those that the experiment names.
            Compared::Waiters => return of_its_own.unwrap_or_default(),
        };
        of_its_own.unwrap_or_else(|| vec![flag.to_string(), name.to_string()])
    }

    fn start_peer(&self, peer: &Peer, root: &Path) -> Result<RunningServer<'a>, Failure> {
        let program = peer.find().map_err(Failure::Failed)?;
        let work = Work::create(&self.folder.join("peer"))?;
        let port = free_port()?;
        let root = root.canonicalize().map_err(|error| failed(&error.to_string()))?;
        let blanks = Blanks { port, root: &root, work: &work.0 };
        let (script, configuration) = peer.fill_in(&program, &blanks);
        fs::write(work.0.join("configuration"), configuration)
            .map_err(|error| failed(&format!("cannot write a configuration: {error}")))?;
        self.start_script(&script, port, "", Some(work))
    }

    /// A server that the lab did not write, until it accepts on `port`.
    fn start_script(
        &self,
        script: &str,
        port: u16,
        path: &str,
        work: Option<Work>,
    ) -> Result<RunningServer<'a>, Failure> {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {script}")]);
        if work.is_some() && mech::process::is_root() {
            mech::process::hide_root(&mut command);
        }
        let command_line = words(&command);
        let mut process = Supervised::start("server", command, &self.cpus, self.interrupted)?;
        let deadline = Instant::now() + START;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            process.expect_running()?;
            if Instant::now() > deadline {
                return Err(failed(&format!("nothing accepts on port {port} after '{script}'")));
            }
            thread::sleep(Duration::from_millis(10));
        }
        let url = format!("http://127.0.0.1:{port}{path}");
        Ok(RunningServer { process, url, command_line, has_workers: false, _work: work })
    }
}

impl RunningServer<'_> {
    /// The CPU time of all processes of the server's group.
    pub(super) fn cpu_time(&self) -> Result<Duration, Failure> {
        let failed = |error| failed(&format!("cannot read the server's CPU clock: {error}"));
        let leader = self.process.id();
        let mut total = mech::process::cpu_time(leader).map_err(failed)?;
        for member in group_members(leader) {
            // A member that has just ended takes its time with it.
            total += mech::process::cpu_time(member).unwrap_or_default();
        }
        Ok(total)
    }

    /// How long they have waited for a processor; `None`, too, if they are many: those keep each other
    /// from it.
    pub(super) fn wait_time(&self) -> Option<Duration> {
        if self.has_workers {
            return None;
        }
        let leader = self.process.id();
        group_members(leader).into_iter().chain([leader]).map(wait_time).sum()
    }
}

/// A folder that exists as long as this does.
struct Work(PathBuf);

impl Work {
    fn create(folder: &Path) -> Result<Work, Failure> {
        fs::create_dir_all(folder)
            .and_then(|()| folder.canonicalize())
            .map(Work)
            .map_err(|error| failed(&format!("cannot create {}: {error}", folder.display())))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How long the threads of `pid` have waited for a processor while they could have run: the second
/// number of their schedstat, in nanoseconds.
fn wait_time(pid: u32) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_thread = |folder: PathBuf| -> Option<u64> {
        let text = fs::read_to_string(folder.join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
    };
    threads
        .map(|thread| of_thread(thread.ok()?.path()))
        .sum::<Option<u64>>()
        .map(Duration::from_nanos)
}

/// The processes of the group that `leader` leads, except itself.
fn group_members(leader: u32) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != leader && group_of(*pid) == Some(leader))
        .collect()
}

/// The process group of `pid`: the third field after the name, which may itself contain anything.
fn group_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}

/// A port that nobody listens on at this moment.
fn free_port() -> Result<u16, Failure> {
    let find = || -> io::Result<u16> {
        Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
    };
    find().map_err(|error| failed(&error.to_string()))
}

pub(super) fn failed(reason: &str) -> Failure {
    Failure::Failed(reason.to_string())
}

/// A command line, as the record of a run has it.
pub(super) fn words(command: &Command) -> Vec<String> {
    let text = |word: &OsStr| word.to_string_lossy().into_owned();
    std::iter::once(command.get_program()).chain(command.get_args()).map(text).collect()
}

//! Runs a point for real: a server and a load generator, two processes on two processors.
//!
//! The server's CPU clock is read when the load generator says `connected` (every connection is
//! open, no request was sent) and again when it says `measured` (the window is over, every
//! connection is still open), so that opening and closing connections is not part of the bill. Each
//! time the load generator waits until the lab has read the clock: on a busy machine that may take
//! a while, in which the server has nothing to do.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::child::Supervised;
use super::experiment::{Compared, Experiment, Preset, ServerCommand};
use super::results::{Ask, Point, Sample};
use super::runner::{Executor, Failure};
use super::store::{Opened, Store};

/// How long a server may take until it accepts.
const START: Duration = Duration::from_secs(10);

/// How long anything may take that should take no time at all.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a client waits for a file, as http_load was told to.
const TIMEOUT_OF_FILES: &str = "40s";

/// The slowest rate at which opening connections is waited for, per second.
const SLOWEST_CONNECTS: f64 = 500.0;

/// The slowest rate at which files are waited for, in bytes per second.
const SLOWEST_BYTES: f64 = 1e6;

/// The processors that server and load run on; empty lists mean anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The server's.
    pub server: Vec<usize>,
    /// The load generator's.
    pub load: Vec<usize>,
}

impl Placement {
    /// The first processor for the server and the others for the load; with a single one, both
    /// share it.
    ///
    /// # Errors
    /// What sched_getaffinity(2) says.
    pub fn choose() -> io::Result<Placement> {
        let cpus = mech::process::usable_cpus()?;
        Ok(match cpus.split_first() {
            Some((first, rest)) if !rest.is_empty() => {
                Placement { server: vec![*first], load: rest.to_vec() }
            }
            _ => Placement::default(),
        })
    }
}

/// Runs points as processes.
///
/// Children die with the thread that starts them: keep to one thread, and to one that lives on.
#[derive(Debug)]
pub struct Processes<'a> {
    experiment: &'a Experiment,
    preset: &'a Preset,
    store: Option<Store>,
    program: PathBuf,
    placement: Placement,
    folder: PathBuf,
    interrupted: &'a AtomicBool,
    start: Instant,
}

impl<'a> Processes<'a> {
    /// Runs points of `experiment` at the scale of `preset`, whose files are in `store`, with this very
    /// program, keeping the load generator's files in `folder` for a moment, until `interrupted` is
    /// set.
    ///
    /// # Errors
    /// When the path of this program, or the processors it may use, cannot be found out.
    pub fn new(
        experiment: &'a Experiment,
        preset: &'a Preset,
        store: Option<Store>,
        folder: &Path,
        interrupted: &'a AtomicBool,
    ) -> io::Result<Processes<'a>> {
        Ok(Processes {
            experiment,
            preset,
            store,
            program: std::env::current_exe()?,
            placement: Placement::choose()?,
            folder: folder.to_path_buf(),
            interrupted,
            start: Instant::now(),
        })
    }

    /// Whether server and load have processors of their own.
    pub fn is_separated(&self) -> bool {
        !self.placement.server.is_empty()
    }

    /// Starts the server of `point`; it accepts connections.
    fn start_server(
        &self,
        point: &Point,
        files: Option<&Opened>,
    ) -> Result<RunningServer<'a>, Failure> {
        match self.experiment.servers.get(&point.mechanism) {
            Some(server) => self.start_users_server(server, files),
            None => self.start_own_server(point, files),
        }
    }

    fn start_own_server(
        &self,
        point: &Point,
        files: Option<&Opened>,
    ) -> Result<RunningServer<'a>, Failure> {
        let mut command = Command::new(&self.program);
        let flag = match self.experiment.compares {
            Compared::Dispatch => "--dispatch",
            Compared::Files => "--files",
        };
        command.args(["serve", flag, &point.mechanism, "--workers", "1"]);
        match files {
            // What is kept open, or in memory, would not be the disk's.
            Some(files) => command.arg(&files.root).args(["--cache", "off"]),
            None => {
                let bytes = self.experiment.workload.reply_bytes.unwrap_or_default();
                command.args(["--reply-size", &bytes.to_string()])
            }
        };
        // A connection may be idle for longer than a web server would allow, and from the start.
        command.args(["--listen", "127.0.0.1:0", "--idle-timeout", "0", "--defer-accept", "off"]);
        let command_line = words(&command);
        let mut process =
            Supervised::start("server", command, &self.placement.server, self.interrupted)?;
        let url = process.expect_line("its address", START, |line| {
            line.strip_prefix("listening on ").map(str::to_string)
        })?;
        Ok(RunningServer { process, url, command_line })
    }

    fn start_users_server(
        &self,
        server: &ServerCommand,
        files: Option<&Opened>,
    ) -> Result<RunningServer<'a>, Failure> {
        let port = free_port().map_err(|error| failed(&error.to_string()))?;
        let root = files.map_or(String::new(), |files| files.root.display().to_string());
        let script = server.command.replace("{port}", &port.to_string()).replace("{root}", &root);
        let script = format!("exec {script}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        let command_line = words(&command);
        let mut process =
            Supervised::start("server", command, &self.placement.server, self.interrupted)?;
        let deadline = Instant::now() + START;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            process.expect_running()?;
            if Instant::now() > deadline {
                return Err(failed(&format!("nothing accepts on port {port} after '{script}'")));
            }
            thread::sleep(Duration::from_millis(10));
        }
        let url = format!("http://127.0.0.1:{port}{}", server.path);
        Ok(RunningServer { process, url, command_line })
    }

    fn load_command(
        &self,
        url: &str,
        point: &Point,
        files: Option<&Opened>,
        offered_rate: Option<f64>,
        window: Duration,
        seed: u64,
    ) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["load", "--events", "--lockstep"]);
        match files {
            Some(files) => {
                command.arg("--urls").arg(&files.urls).args(["--target", url, "--order", "random"]);
                command.args(["--timeout", TIMEOUT_OF_FILES]);
            }
            None => drop(command.arg(url)),
        }
        if let Some(rate) = offered_rate {
            command.args(["--rate", &rate.to_string()]);
        }
        command.args(["--connections", &point.connections.to_string()]);
        match self.preset.fetches(point.ask) {
            Some(count) => command.args(["--requests", &count.to_string()]),
            None => command.args(["--duration", &format!("{}ms", window.as_millis())]),
        };
        command.args(["--seed", &seed.to_string()]);
        command.arg("--json").arg(self.load_file());
        command
    }

    /// The cold files that are to be served; `None` if there are none.
    fn open_files(&self, point: &Point) -> Result<Option<Opened<'a>>, Failure> {
        let (Ask::FileBytes(bytes), Some(store)) = (point.ask, &self.store) else {
            return Ok(None);
        };
        // Beside the load generator: the disk is no part of the server.
        store.open(bytes, &self.program, &self.placement.load, self.interrupted).map(Some)
    }

    /// How long a window may take.
    fn longest_window(&self, point: &Point, window: Duration) -> Duration {
        match (self.preset.fetches(point.ask), point.ask) {
            (Some(count), Ask::FileBytes(bytes)) => {
                PATIENCE + Duration::from_secs_f64(f64::from(count) * bytes as f64 / SLOWEST_BYTES)
            }
            _ => PATIENCE + window,
        }
    }

    fn load_file(&self) -> PathBuf {
        self.folder.join("load.unfinished")
    }
}

impl Executor for Processes<'_> {
    fn run(
        &mut self,
        point: &Point,
        offered_rate: Option<f64>,
        window: Duration,
        seed: u64,
    ) -> Result<Sample, Failure> {
        let mut files = self.open_files(point)?;
        let server = self.start_server(point, files.as_ref())?;
        let command =
            self.load_command(&server.url, point, files.as_ref(), offered_rate, window, seed);
        let load_command = words(&command);
        let mut load =
            Supervised::start("load generator", command, &self.placement.load, self.interrupted)?;
        let is = |word: &'static str| move |line: &str| (line == word).then_some(());
        let opening = Duration::from_secs_f64(f64::from(point.connections) / SLOWEST_CONNECTS);
        load.expect_line("'connected'", PATIENCE + opening, is("connected"))?;
        // From here on: its first report is of what it did before.
        files.as_mut().map_or(Ok(None), Opened::report)?;
        let (cpu_before, wait_before) = (server.cpu_time()?, server.wait_time());
        load.go_on()?;
        load.expect_line("'measured'", self.longest_window(point, window), is("measured"))?;
        let (cpu_after, wait_after) = (server.cpu_time()?, server.wait_time());
        let disk = files.as_mut().map_or(Ok(None), Opened::report)?;
        load.go_on()?;
        load.expect_success(PATIENCE + opening)?;
        let result = take_json(&self.load_file())?;
        let window_s = result["duration_s"].as_f64().filter(|seconds| *seconds > 0.0);
        Ok(Sample {
            server_command: server.command_line.clone(),
            load_command,
            server_cpu_s: cpu_after.saturating_sub(cpu_before).as_secs_f64(),
            server_wait_s: wait_after
                .zip(wait_before)
                .map(|(after, before)| after.saturating_sub(before).as_secs_f64()),
            disk,
            window_s: window_s.ok_or_else(|| failed("the load generator measured nothing"))?,
            load: result,
        })
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        // A load generator that was stopped leaves it behind.
        let _ = fs::remove_file(self.load_file());
    }
}

/// A server that accepts connections; dropping it stops it.
struct RunningServer<'a> {
    process: Supervised<'a>,
    url: String,
    command_line: Vec<String>,
}

impl RunningServer<'_> {
    /// The CPU time of all processes of the server's group.
    fn cpu_time(&self) -> Result<Duration, Failure> {
        let failed = |error| failed(&format!("cannot read the server's CPU clock: {error}"));
        let leader = self.process.id();
        let mut total = mech::process::cpu_time(leader).map_err(failed)?;
        for member in group_members(leader) {
            // A member that has just ended takes its time with it.
            total += mech::process::cpu_time(member).unwrap_or_default();
        }
        Ok(total)
    }

    /// How long they have waited for a processor.
    fn wait_time(&self) -> Option<Duration> {
        let leader = self.process.id();
        group_members(leader).into_iter().chain([leader]).map(wait_time).sum()
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

fn failed(reason: &str) -> Failure {
    Failure::Failed(reason.to_string())
}

/// A port that nobody listens on at this moment.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Reads what the load generator wrote, and removes it.
fn take_json(path: &Path) -> Result<Value, Failure> {
    let read = || -> anyhow::Result<Value> {
        let text = fs::read_to_string(path)?;
        fs::remove_file(path)?;
        Ok(serde_json::from_str(&text)?)
    };
    read().map_err(|error| failed(&format!("the load generator's result: {error:#}")))
}

fn words(command: &Command) -> Vec<String> {
    let text = |word: &OsStr| word.to_string_lossy().into_owned();
    std::iter::once(command.get_program()).chain(command.get_args()).map(text).collect()
}

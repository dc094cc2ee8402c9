//! Runs a point for real: a server and a load generator, two processes on two processors.
//!
//! The server's CPU clock is read when the load generator says `connected` (every connection is
//! open, no request was sent) and again when it says `measured` (the window is over, every
//! connection is still open), so that opening and closing connections is not part of the bill. Each
//! time the load generator waits until the lab has read the clock: on a busy machine that may take
//! a while, in which the server has nothing to do.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::child::Supervised;
use super::experiment::{Beside, Disk, Experiment, Preset};
use super::results::{Ask, Point, Sample};
use super::runner::{Executor, Failure};
use super::server::{Servers, failed, words};
use super::store::{Opened, Store};
use super::trace::{Stages, Trace};

/// How long anything may take that should take no time at all.
const PATIENCE: Duration = Duration::from_secs(60);

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
    servers: Servers<'a>,
    preset: &'a Preset,
    store: Option<Store>,
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
        let placement = Placement::choose()?;
        let servers = Servers {
            experiment,
            program: std::env::current_exe()?,
            cpus: placement.server.clone(),
            folder: folder.to_path_buf(),
            interrupted,
        };
        Ok(Processes {
            servers,
            preset,
            store,
            placement,
            folder: folder.to_path_buf(),
            interrupted,
            start: Instant::now(),
        })
    }

    /// Whether server and load have processors of their own.
    pub fn is_separated(&self) -> bool {
        !self.placement.server.is_empty()
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
        let mut command = Command::new(&self.servers.program);
        command.args(["load", "--events", "--lockstep"]);
        match files {
            Some(files) => {
                // A count of cold files is one of different files: none has been read before.
                let is_count = self.preset.fetches(point.ask).is_some();
                let order = match is_count && self.preset.disk != Disk::Cached {
                    true => "sequential",
                    false => "random",
                };
                command.arg("--urls").arg(&files.urls).args(["--target", url, "--order", order]);
                command.args(["--timeout", TIMEOUT_OF_FILES]);
            }
            None => drop(command.arg(url)),
        }
        let beside = self.servers.experiment.workload.beside.as_ref();
        let rate_of_small =
            || matches!(point.ask, Ask::ColdReaders(_)).then(|| beside.map(Beside::rate))?;
        if let Some(rate) = offered_rate.or_else(rate_of_small) {
            command.args(["--rate", &rate.to_string()]);
        }
        if let Some(calls) = self.servers.experiment.workload.calls_per_connection {
            command.args(["--calls-per-connection", &calls.to_string()]);
        }
        command.args(["--connections", &point.connections.to_string()]);
        match self.preset.fetches(point.ask) {
            Some(count) => command.args(["--requests", &count.to_string()]),
            None => command.args(["--duration", &format!("{}ms", window.as_millis())]),
        };
        // Refusals are results: the report counts them.
        command.args(["--expect-status", "2xx,3xx,4xx,5xx"]);
        command.args(["--seed", &seed.to_string()]);
        command.arg("--json").arg(self.load_file());
        command
    }

    /// The files that are to be served; `None` if there are none.
    fn open_files(&self, point: &Point) -> Result<Option<Opened<'a>>, Failure> {
        let Some(store) = &self.store else { return Ok(None) };
        // Beside the load generator: the disk is no part of the server.
        let cpus = &self.placement.load;
        store.open(point.ask, &self.servers.program, cpus, self.interrupted).map(Some)
    }

    /// The connections that read cold files beside those that are measured, at work; `None`: the
    /// point has none. They go on until they are dropped.
    fn start_readers(
        &self,
        url: &str,
        point: &Point,
        files: Option<&Opened>,
        seed: u64,
    ) -> Result<Option<Supervised<'a>>, Failure> {
        let (Ask::ColdReaders(readers @ 1..), Some(files)) = (point.ask, files) else {
            return Ok(None);
        };
        let mut command = Command::new(&self.servers.program);
        command.args(["load", "--events", "--lockstep", "--order", "random", "--target", url]);
        command.arg("--urls").arg(&files.cold_urls).args(["--timeout", TIMEOUT_OF_FILES]);
        command.args(["--connections", &readers.to_string(), "--seed", &seed.to_string()]);
        command.args(["--duration", "1h"]);
        mech::process::stand_back(&mut command);
        let cpus = &self.placement.load;
        let mut load = Supervised::start("load of cold files", command, cpus, self.interrupted)?;
        load.expect_line("'connected'", PATIENCE, |line| (line == "connected").then_some(()))?;
        load.go_on()?;
        Ok(Some(load))
    }

    /// What the server has written down of its requests, if it was to.
    fn take_stages(&self) -> Result<Option<Stages>, Failure> {
        let Some(late_s) = self.servers.experiment.workload.late_s else { return Ok(None) };
        let late_us = (1e6 * late_s.0 / self.preset.disk_speed.0) as u64;
        let path = self.servers.trace_file();
        let read = || -> anyhow::Result<Trace> {
            let trace = Trace::read(BufReader::new(File::open(&path)?))?;
            fs::remove_file(&path)?;
            Ok(trace)
        };
        match read() {
            Ok(trace) => Ok(Some(Stages::of(&trace, late_us))),
            // A server of the user's own writes none.
            Err(_) if !path.exists() => Ok(None),
            Err(error) => Err(failed(&format!("the server's trace: {error:#}"))),
        }
    }

    /// What has been written to the disk below the files, if that is counted.
    fn written(&self, files: Option<&Opened>) -> Result<Option<u64>, Failure> {
        let counts = self.servers.experiment.workload.notes_access;
        let Some(files) = files.filter(|_| counts) else { return Ok(None) };
        let written = mech::fs::bytes_written_to_disk(&files.root);
        written.map(Some).map_err(|error| {
            failed(&format!(
                "what is written below {} cannot be counted: {error}",
                files.root.display()
            ))
        })
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
        let server = self.servers.start(point, files.as_ref())?;
        let readers = self.start_readers(&server.url, point, files.as_ref(), seed)?;
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
        let written_before = self.written(files.as_ref())?;
        let (cpu_before, wait_before) = (server.cpu_time()?, server.wait_time());
        load.go_on()?;
        load.expect_line("'measured'", self.longest_window(point, window), is("measured"))?;
        let (cpu_after, wait_after) = (server.cpu_time()?, server.wait_time());
        let written_after = self.written(files.as_ref())?;
        let disk = files.as_mut().map_or(Ok(None), Opened::report)?;
        // What is still under way need not wait for them.
        drop(readers);
        load.go_on()?;
        load.expect_success(PATIENCE + opening)?;
        let server_command = server.command_line.clone();
        // Its trace is complete when it has ended.
        drop(server);
        let result = take_json(&self.load_file())?;
        let window_s = result["duration_s"].as_f64().filter(|seconds| *seconds > 0.0);
        Ok(Sample {
            server_command,
            load_command,
            server_cpu_s: cpu_after.saturating_sub(cpu_before).as_secs_f64(),
            server_wait_s: wait_after
                .zip(wait_before)
                .map(|(after, before)| after.saturating_sub(before).as_secs_f64()),
            disk,
            disk_written: written_after.zip(written_before).map(|(after, before)| after - before),
            stages: self.take_stages()?,
            window_s: window_s.ok_or_else(|| failed("the load generator measured nothing"))?,
            load: result,
            herd: None,
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
        let _ = fs::remove_file(self.servers.trace_file());
    }
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

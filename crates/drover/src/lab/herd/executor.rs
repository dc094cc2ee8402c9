//! Runs a point of a herd experiment: one process that holds the crowd and connects to it.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::Record;
use crate::lab::child::Supervised;
use crate::lab::processes::Placement;
use crate::lab::results::{Ask, Point, Sample};
use crate::lab::runner::{Executor, Failure};

/// As many connections as have a 99th percentile worth the name.
const CONNECTS: u32 = 200;

/// How long a crowd may take to gather, and to go.
const GATHERING: Duration = Duration::from_secs(120);

/// Runs points as crowds.
///
/// Children die with the thread that starts them: keep to one thread, and to one that lives on.
#[derive(Debug)]
pub struct Herds<'a> {
    processes: bool,
    program: PathBuf,
    placement: Placement,
    interrupted: &'a AtomicBool,
    start: Instant,
    instrument: Option<String>,
}

impl<'a> Herds<'a> {
    /// Runs points with this very program, until `interrupted` is set.
    ///
    /// # Errors
    /// When the path of this program, or the processors it may use, cannot be found out.
    pub fn new(processes: bool, interrupted: &'a AtomicBool) -> io::Result<Herds<'a>> {
        Ok(Herds {
            processes,
            program: std::env::current_exe()?,
            placement: Placement::choose()?,
            interrupted,
            start: Instant::now(),
            instrument: None,
        })
    }

    /// What saw the waiters wake up and fall asleep, for the report.
    pub fn instrument(&self) -> Option<String> {
        self.instrument.clone()
    }

    fn command(&self, point: &Point, window: Duration) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["lab", "herd", "--waiter", &point.mechanism]);
        command.args(["--waiters", &point.connections.to_string()]);
        if let Ask::Descriptors(descriptors) = point.ask {
            command.args(["--descriptors", &descriptors.to_string()]);
        }
        if self.processes {
            command.arg("--processes");
        }
        command.args(["--connects", &CONNECTS.to_string()]);
        command.args(["--window", &format!("{}ms", window.as_millis())]);
        if let Some(client) = self.placement.load.first() {
            let waiters: Vec<String> = self.placement.server.iter().map(usize::to_string).collect();
            command.args(["--waiter-cpus", &waiters.join(",")]);
            command.args(["--client-cpu", &client.to_string()]);
        }
        command
    }
}

impl Executor for Herds<'_> {
    fn run(
        &mut self,
        point: &Point,
        _: Option<f64>,
        window: Duration,
        _: u64,
    ) -> Result<Sample, Failure> {
        let command = self.command(point, window);
        let text = |word: &OsStr| word.to_string_lossy().into_owned();
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let command_line = words.map(text).collect();
        let mut herd = Supervised::start("herd", command, &[], self.interrupted)?;
        let patience = GATHERING + 2 * window;
        let line = herd.expect_line("its result", patience, |line| {
            line.starts_with('{').then(|| line.to_string())
        })?;
        herd.expect_success(GATHERING)?;
        let record: Record = serde_json::from_str(&line)
            .map_err(|error| Failure::Failed(format!("the herd's result: {error}")))?;
        self.instrument = Some(describe(&record));
        Ok(Sample {
            server_command: command_line,
            server_cpu_s: record.cpu_s,
            window_s: record.window_s,
            herd: Some(record),
            ..Sample::default()
        })
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

fn describe(record: &Record) -> String {
    let seen = match (&record.why_not_traced, record.settle_us.is_empty()) {
        (None, _) => {
            "Waiters were seen to wake up and to fall asleep by the scheduler's tracepoints \
             (sched_waking, sched_switch), which cost the crowd some time for each wake-up"
                .to_string()
        }
        (Some(why), is_unknown) => {
            let how = match is_unknown {
                true => "that the crowd slept again was read from /proc, and not when",
                false => {
                    "settle times are those of the last change of the process's switch counter"
                }
            };
            format!("The scheduler could not be traced ({why}): {how}")
        }
    };
    format!("{seen}. Wake-ups are counted as voluntary context switches in either case.")
}

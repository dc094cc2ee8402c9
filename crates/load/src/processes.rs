//! A load of several processes, for more connections than one table of descriptors holds.
//!
//! The parent starts its own command line once per process, each time with the number of the process
//! among the options, and sends no request itself. The number of a
//! child alone decides its share: which requests, connections and moments of the schedule are its own.
//! Parent and child talk in lines over the child's stdin and stdout:
//!
//! | from the child | |
//! |---|---|
//! | `connected N` | N connections are open; it waits for `start` |
//! | `second {…}` | what happened in the next second of the window |
//! | `measured` | its window is over; it waits for `close` |
//! | `rest {…}` | what happened after its last full second |
//! | `interrupted` | a signal has ended its window |
//! | `result {…}` | its result, as `--json` writes it |
//!
//! | to the child | |
//! |---|---|
//! | `start N` | begin when the clock that all processes share shows N nanoseconds |
//! | `close` | close the connections |
//!
//! [`merge`] joins the results; it also joins results of several machines. What a child has counted is
//! lost if it dies: the others go on, and the result says whose part is missing.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use drover_sys::process;
use serde::{Deserialize, Serialize};

use crate::account::histograms;
use crate::account::seconds::{SECOND, Second, SecondCounts, Sum};
use crate::output::merge;
use crate::output::result::{LoadResult, since_1970};
use crate::plan::options::LoadPlan;
use crate::run::interrupts::Interrupts;
use crate::run::listener::LoadListener;
use crate::warning::{Warning, WarningCode};

/// The time between the last `connected` and the beginning of the window: enough for a line to reach
/// every process.
const LEAD: Duration = Duration::from_millis(50);

/// How often the parent tells its listener about the progress.
const LOOK: Duration = Duration::from_millis(100);

/// The flag that carries a child's number.
pub const NUMBER_FLAG: &str = "--process";

/// A second as a line carries it.
#[derive(Serialize, Deserialize)]
struct Told {
    counts: SecondCounts,
    latencies: Option<String>,
}

impl Told {
    fn line(kind: &str, second: &Second) -> io::Result<String> {
        let latencies = histograms::encode(&second.latencies);
        let told = Told { counts: second.counts, latencies };
        Ok(format!("{kind} {}", serde_json::to_string(&told)?))
    }

    fn parse(text: &str) -> anyhow::Result<Second> {
        let Told { counts, latencies } = serde_json::from_str(text)?;
        let mut second = Second { counts, ..Second::empty() };
        if let Some(text) = latencies {
            second.latencies = histograms::decode(&text).map_err(anyhow::Error::msg)?;
        }
        Ok(second)
    }
}

/// The listener of a child: tells its parent.
#[derive(Debug)]
pub struct Reporter {
    measured: bool,
}

impl Reporter {
    /// A reporter that has told nothing yet.
    #[must_use]
    pub fn new() -> Reporter {
        Reporter { measured: false }
    }

    /// Tells the result.
    ///
    /// # Errors
    /// The error of writing to stdout.
    pub fn end(self, result: &LoadResult) -> io::Result<()> {
        if result.interrupted {
            tell("interrupted")?;
        }
        tell(&format!("result {}", serde_json::to_string(result)?))
    }
}

impl Default for Reporter {
    fn default() -> Reporter {
        Reporter::new()
    }
}

impl LoadListener for Reporter {
    fn connected(&mut self, open: u32) -> io::Result<Option<Instant>> {
        tell(&format!("connected {open}"))?;
        let line = hear()?;
        let at = line.strip_prefix("start ").and_then(|at| at.parse().ok());
        let at = Duration::from_nanos(at.ok_or(io::ErrorKind::InvalidData)?);
        Ok(Some(Instant::now() + at.saturating_sub(process::monotonic_time())))
    }

    fn wants_seconds(&self) -> bool {
        true
    }

    fn second(&mut self, _at: Duration, _long: Duration, second: &Second) -> io::Result<()> {
        tell(&Told::line(if self.measured { "rest" } else { "second" }, second)?)
    }

    fn measured(&mut self) -> io::Result<()> {
        self.measured = true;
        tell("measured")?;
        hear().map(drop)
    }
}

fn tell(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn hear() -> io::Result<String> {
    let mut line = String::new();
    match io::stdin().read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_string()),
    }
}

/// What the parent hears from a child, or from a signal.
enum Message {
    Connected(u32),
    Second(Second),
    Measured,
    Rest(Second),
    Interrupted,
    Result(Box<LoadResult>),
    /// The child's output has ended; with an error if a line was not understood.
    End(Option<anyhow::Error>),
    /// A signal asks for the end.
    Interrupt,
}

/// Runs the processes of `plan`, and joins their results.
pub(crate) fn conduct(
    plan: &LoadPlan,
    listener: &mut dyn LoadListener,
) -> anyhow::Result<LoadResult> {
    let (messages, inbox) = channel();
    let signals = Interrupts::listen(false).context("cannot listen to signals")?;
    let end_of_signals = signals.end();
    let interrupts = messages.clone();
    let interrupter =
        thread::spawn(move || signals.hear(|| drop(interrupts.send((0, Message::Interrupt)))));
    // Started by this thread, not by a new one: the kernel kills children when the thread that started
    // them ends (PR_SET_PDEATHSIG).
    let children: Result<Vec<Process>, _> =
        (0..plan.processes).map(|number| Process::start(number, &messages)).collect();
    let mut parent = Parent {
        sum: Sum::new(plan.processes as usize),
        children: children.context("--processes: cannot start one")?,
        listener,
        start: None,
        begun: None,
        length: Duration::ZERO,
        told: 0,
        rest: Second::empty(),
        responses: 0,
        interrupted: false,
        closed: false,
    };
    let ended = parent.listen(&inbox);
    drop(end_of_signals);
    let _ = interrupter.join();
    ended?;
    let interrupted = parent.interrupted || parent.children.iter().any(|child| child.interrupted);
    let (results, lost) = parent.results();
    let mut joined = match merge::merge(results) {
        Ok(joined) => joined,
        Err(_) if !lost.is_empty() => bail!("--processes: none is left: {}", lost.join("; ")),
        Err(fault) => bail!(fault),
    };
    joined.interrupted = interrupted;
    // Computed from the plan: adding up the shares of the children would add rounding errors.
    joined.offered_rate = plan.offered_rate(joined.duration_s);
    joined.warnings.extend(lost.iter().map(|lost| {
        let text = format!(
            "{lost}: what it has done is missing here, and nobody did the rest of its part"
        );
        Warning::of(WarningCode::ProcessesLost, 1, text)
    }));
    joined.lost = lost;
    joined.setting =
        format!("{}, {} processes", crate::output::result::setting(plan), plan.processes);
    Ok(joined)
}

/// The arguments of child `number`: the parent's arguments `own`, with the number right behind the name
/// of the subcommand. Behind the last argument it could be taken for a URL: what follows a `--` is no
/// option (POSIX, Utility Syntax Guideline 10). Options before the subcommand have no values, so that
/// the first `load` is the subcommand.
fn arguments(own: impl Iterator<Item = OsString>, number: u32) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = own.collect();
    let subcommand = arguments.iter().position(|argument| argument == "load");
    let at = subcommand.map_or(0, |subcommand| subcommand + 1);
    arguments.splice(at..at, [NUMBER_FLAG.into(), number.to_string().into()]);
    arguments
}

/// A child process. Dropping this kills the child if it still runs.
struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    connected: Option<u32>,
    measured: bool,
    interrupted: bool,
    result: Option<LoadResult>,
    ended: bool,
    /// Why the child ended without a result.
    lost: Option<String>,
}

impl Process {
    fn start(number: u32, messages: &Sender<(u32, Message)>) -> io::Result<Process> {
        // /proc/self/exe is this program's file, also if another file has its name by now.
        let mut command = Command::new("/proc/self/exe");
        command
            .args(arguments(std::env::args_os().skip(1), number))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        process::die_with_parent(&mut command);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let messages = messages.clone();
        thread::spawn(move || {
            let mut end = None;
            for line in BufReader::new(stdout).lines() {
                match line.map_err(anyhow::Error::from).and_then(|line| read(&line)) {
                    // The parent listens until this thread says that it is done.
                    Ok(message) => drop(messages.send((number, message))),
                    Err(error) => {
                        end = Some(error);
                        break;
                    }
                }
            }
            let _ = messages.send((number, Message::End(end)));
        });
        Ok(Process {
            child,
            stdin,
            connected: None,
            measured: false,
            interrupted: false,
            result: None,
            ended: false,
            lost: None,
        })
    }

    /// Why the child ended, after its last line.
    fn exit_reason(&mut self, error: Option<anyhow::Error>) -> io::Result<String> {
        if error.is_some() {
            // A child that writes lines this parent does not know is not waited for.
            self.child.kill()?;
        }
        let status = self.child.wait()?;
        let error = error.map_or(String::new(), |error| format!(": {error:#}"));
        Ok(format!("ended without a result ({status}){error}"))
    }

    /// Writes a line to the child. Ignores errors: a child that has ended is reported by its thread.
    fn tell(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{line}");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(line: &str) -> anyhow::Result<Message> {
    let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
    Ok(match kind {
        "connected" => Message::Connected(rest.parse()?),
        "second" => Message::Second(Told::parse(rest)?),
        "measured" => Message::Measured,
        "rest" => Message::Rest(Told::parse(rest)?),
        "interrupted" => Message::Interrupted,
        "result" => {
            let result = merge::parse(rest.as_bytes()).map_err(anyhow::Error::msg)?;
            Message::Result(Box::new(result))
        }
        _ => bail!("a process said '{kind}', which means nothing"),
    })
}

struct Parent<'l> {
    listener: &'l mut dyn LoadListener,
    children: Vec<Process>,
    sum: Sum,
    /// The beginning of the window.
    start: Option<Instant>,
    begun: Option<f64>,
    length: Duration,
    /// The number of seconds that the listener has heard of.
    told: u32,
    rest: Second,
    responses: u64,
    interrupted: bool,
    closed: bool,
}

impl Parent<'_> {
    /// Handles messages until every child has ended.
    fn listen(&mut self, inbox: &Receiver<(u32, Message)>) -> anyhow::Result<()> {
        while !self.children.iter().all(|child| child.ended) {
            match inbox.recv_timeout(LOOK) {
                Ok((number, message)) => self.hear(number as usize, message)?,
                Err(RecvTimeoutError::Timeout) => {
                    let elapsed =
                        self.start.map(|start| Instant::now().saturating_duration_since(start));
                    self.listener.looked(elapsed, self.responses);
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if self.listener.wants_seconds() {
            let at = SECOND * self.told;
            self.listener.second(at, self.length.saturating_sub(at), &self.rest)?;
        }
        Ok(())
    }

    /// The results of the children with their names, and for each child without a result the reason.
    fn results(self) -> (Vec<(String, LoadResult)>, Vec<String>) {
        let mut results = Vec::new();
        let mut lost = Vec::new();
        for (number, mut child) in self.children.into_iter().enumerate() {
            let name = format!("process {number}");
            match (child.result.take(), child.lost.take()) {
                (Some(mut result), _) => {
                    // All windows begin at one moment, wherever each finds the time of day then.
                    result.window_start = result.window_start.map(|own| self.begun.unwrap_or(own));
                    results.push((name, result));
                }
                (None, reason) => lost.push(format!("{name} {}", reason.unwrap_or_default())),
            }
        }
        (results, lost)
    }

    fn hear(&mut self, number: usize, message: Message) -> anyhow::Result<()> {
        match message {
            Message::Connected(open) => {
                self.children[number].connected = Some(open);
                self.begin()?;
            }
            Message::Second(second) => {
                self.responses += second.counts.responses;
                self.sum.push(number, Some(second));
                self.tell_seconds()?;
            }
            Message::Measured => {
                self.children[number].measured = true;
                self.sum.end(number);
                self.tell_seconds()?;
                self.close()?;
            }
            Message::Rest(second) => self.rest.add(&second),
            Message::Result(result) => {
                let length = Duration::try_from_secs_f64(result.duration_s).unwrap_or_default();
                self.length = self.length.max(length);
                self.children[number].result = Some(*result);
            }
            Message::Interrupted => self.children[number].interrupted = true,
            Message::End(error) => {
                let child = &mut self.children[number];
                (child.ended, child.stdin) = (true, None);
                if child.result.is_none() {
                    child.lost = Some(child.exit_reason(error)?);
                }
                self.sum.end(number);
                self.begin()?;
                self.tell_seconds()?;
                self.close()?;
            }
            Message::Interrupt => self.interrupt(),
        }
        Ok(())
    }

    /// Lets the window begin, once no child is still connecting.
    fn begin(&mut self) -> io::Result<()> {
        let ready = self.children.iter().all(|child| child.connected.is_some() || child.ended);
        if !ready || self.start.is_some() || self.children.iter().all(|child| child.ended) {
            return Ok(());
        }
        let open = self.children.iter().filter_map(|child| child.connected).sum();
        let asked = self.listener.connected(open)?;
        let start = asked.unwrap_or_else(|| Instant::now() + LEAD);
        let ahead = start.saturating_duration_since(Instant::now());
        self.start = Some(start);
        let begins = SystemTime::now() + ahead;
        self.begun = Some(since_1970(begins));
        self.listener.begins(begins)?;
        self.tell_all(&format!("start {}", (process::monotonic_time() + ahead).as_nanos()));
        Ok(())
    }

    /// Lets the connections be closed, once every window is over.
    fn close(&mut self) -> io::Result<()> {
        let over = self.children.iter().all(|child| child.measured || child.ended);
        if !over || self.closed || self.children.iter().all(|child| child.ended) {
            return Ok(());
        }
        self.closed = true;
        self.listener.measured()?;
        self.tell_all("close");
        Ok(())
    }

    /// Ends the children in every phase: a child that waits for a line gets it.
    fn interrupt(&mut self) {
        if std::mem::replace(&mut self.interrupted, true) {
            return;
        }
        for child in &self.children {
            // Signalling fails for a child that has ended; nothing is lost.
            let _ = process::ask_to_stop(&child.child);
        }
        if self.start.is_none() {
            self.start = Some(Instant::now());
            self.tell_all(&format!("start {}", process::monotonic_time().as_nanos()));
        }
        self.closed = true;
        self.tell_all("close");
    }

    fn tell_all(&mut self, line: &str) {
        for child in &mut self.children {
            child.tell(line);
        }
    }

    fn tell_seconds(&mut self) -> io::Result<()> {
        while let Some(second) = self.sum.pop() {
            if self.listener.wants_seconds() {
                self.listener.second(SECOND * self.told, SECOND, &second)?;
            }
            self.told += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::counts::record;

    #[test]
    fn a_second_is_told_whole() {
        let mut second = Second::empty();
        second.counts.responses = 7;
        record(&mut second.latencies, Duration::from_millis(3));
        for told in [second, Second::empty()] {
            let Message::Second(heard) = read(&Told::line("second", &told).unwrap()).unwrap()
            else {
                panic!("it was a second")
            };
            assert_eq!(heard, told);
        }
        assert!(read("nonsense").is_err());
        assert!(read("connected many").is_err());
    }
}

//! A load of HTTP requests by Drover's own generator.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::marks::marks;
use super::result::read;
use super::warmup::Stretch;
use super::{Driven, LoadDriver, Moment, Target, Warm, WarmUp, Window};
use crate::failure::Failure;
use crate::model::{Level, Mark};
use crate::process::{Child, Launch, Turn};
use crate::spec::load::Http;
use crate::spec::setting::level_of;
use crate::subject::{HttpAddress, Running};
use crate::wire::WireEnd;

/// How long a step may take that needs almost no time: start, connect, end.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// The slowest rate of opening connections, per second, that is waited for.
const SLOWEST_CONNECTS: f64 = 500.0;

/// The longest time of a run that ends with its last request.
const LONGEST_COUNT: Duration = Duration::from_secs(3600);

/// The largest share of the window's events that first uses of connections may have.
const FEW_FIRST_USES: f64 = 0.1;

/// The default time-out of `drover load`, in microseconds.
const TIMEOUT_US: f64 = 10e6;

/// The most connections of a warm-up. A warm-up warms the server, not the connections.
const WARM_CONNECTIONS: u64 = 256;

/// HTTP requests by `drover load`.
#[derive(Clone, Debug)]
pub struct HttpLoad<'a> {
    /// The description of the load in the experiment.
    pub http: &'a Http,
}

/// The load of one cell: the experiment's keys with the levels of the cell.
struct Resolved {
    flags: Vec<String>,
    connections: u64,
    idle: u64,
    /// Requests, or connections, per second; `None` in a closed loop, or where the rate changes.
    rate: Option<f64>,
    /// Whether a count of requests ends the run.
    is_counted: bool,
    timeout_us: f64,
    /// Whether connections are opened for the requests, and closed afterwards.
    opens_anew: bool,
}

impl HttpLoad<'_> {
    fn resolve(&self, target: &Target<'_>) -> Result<Resolved, Failure> {
        let levels = target.scene.levels;
        let failed = |fault: String| Failure::failed(fault);
        let spoken = target.scene.spoken();
        let flags =
            self.http.flags(spoken, |name| level_of(levels)(name)).map_err(Failure::failed)?;
        let count = |it: &Option<crate::spec::setting::CountSetting>, default| match it {
            Some(it) => it.resolve(levels).map_err(failed),
            None => Ok(default),
        };
        let rate_of = |it: &Option<crate::spec::setting::Setting>| -> Option<f64> {
            // The rate 0 means a closed loop.
            it.as_ref()?.fill(level_of(levels)).ok()?.parse().ok().filter(|rate| *rate > 0.0)
        };
        let connections = count(&self.http.connections, 64)?;
        let calls = count(&self.http.calls, 0)?;
        let every = self.http.every.as_ref().map(|every| every.resolve(levels).map_err(failed));
        let every = every.transpose()?.map(|every| connections as f64 / every.as_secs_f64());
        let of_connections = rate_of(&self.http.connection_rate);
        let rate = rate_of(&self.http.rate).or(every);
        let timeout = self.http.timeout.as_ref().map(|it| it.resolve(levels).map_err(failed));
        let timeout_us = timeout.transpose()?.map_or(TIMEOUT_US, |it| it.as_secs_f64() * 1e6);
        Ok(Resolved {
            flags,
            connections,
            idle: count(&self.http.idle, 0)?,
            rate: rate.or(of_connections.map(|rate| rate * calls.max(1) as f64)),
            is_counted: count(&self.http.requests, 0)? > 0,
            timeout_us,
            opens_anew: self.http.connection_rate.is_some() || calls > 0,
        })
    }

    /// The generator's command, with the flags that warm-up and measurement share.
    fn command(
        &self,
        address: HttpAddress,
        target: &Target<'_>,
        flags: &[String],
        is_counted: bool,
    ) -> Result<Command, Failure> {
        let mut command = Command::new(target.scene.drover);
        command.args(["load", "--events", "--lockstep"]);
        let file = |name: &str| {
            crate::spec::setting::fill(name, |name| {
                target.scene.levels.get(name).map(Level::to_string)
            })
        };
        let fill = |text: &String| file(text).map_err(Failure::failed);
        match (target.urls, &self.http.urls, &self.http.from_har, &self.http.curl) {
            (Some(urls), ..) => {
                command.arg("--urls").arg(urls).args(["--target", &address.to_string()]);
                if self.http.order.is_none() {
                    // With cold files, a number of requests means as many different files: each file is read once.
                    let once = is_counted && target.is_cold;
                    command.args(["--order", if once { "sequential" } else { "random" }]);
                }
            }
            (None, Some(urls), ..) => {
                command.args(["--urls", &fill(urls)?, "--target", &address.to_string()]);
            }
            (None, None, Some(har), _) => {
                command.args(["--from-har", &fill(har)?, "--target", &address.to_string()]);
            }
            (None, None, None, Some(curl)) => {
                command.args(["--curl", &fill(curl)?, "--target", &address.to_string()]);
            }
            (None, None, None, None) => {
                let path = self.http.path.as_ref().map(fill).transpose()?;
                command.arg(format!("{address}{}", path.unwrap_or_else(|| "/".to_string())));
            }
        }
        command.args(target.scene.trust()).args(flags);
        command.args(["--seed", &target.scene.seed.to_string()]);
        Ok(command)
    }
}

/// A load in turns, whose connections are open.
#[derive(Debug)]
pub struct TurnedLoad {
    generator: Generator,
    turns: u32,
    /// How long a turn may take.
    longest: Duration,
    /// How long the generator's end may take.
    ending: Duration,
    timeout_us: f64,
    command: Vec<String>,
    /// Responses and seconds of the turns until now.
    so_far: (u64, f64),
}

/// What a turn of a load has brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadTurn {
    /// The responses.
    pub responses: u64,
    /// The time until the last of them, in seconds.
    pub seconds: f64,
}

impl HttpLoad<'_> {
    /// Opens the connections of a load of so many turns, at least two.
    ///
    /// # Errors
    /// The errors of [`LoadDriver::measure`].
    pub fn take_turns(
        &self,
        subject: &Running,
        target: &Target<'_>,
        (turns, turn): (u32, Duration),
        warm: Option<&Warm>,
    ) -> Result<TurnedLoad, Failure> {
        let resolved = self.resolve(target)?;
        let mut command = self.command(address(subject)?, target, &resolved.flags, false)?;
        command.args(["--duration", &format!("{}us", turn.as_micros())]);
        command.args(["--turns", &turns.to_string()]);
        let rate = warm.map(|warm| warm.events_per_s);
        let has_first_uses = resolved.has_first_uses(target, turn * turns, rate);
        let generator = open(command, &resolved, target, has_first_uses)?;
        let timeout = Duration::from_secs_f64(resolved.timeout_us / 1e6);
        Ok(TurnedLoad {
            command: generator.process.command_line().to_vec(),
            generator,
            turns,
            longest: STEP_TIMEOUT + turn + timeout,
            ending: opening(&resolved) + timeout,
            timeout_us: resolved.timeout_us,
            so_far: (0, 0.0),
        })
    }
}

impl TurnedLoad {
    /// How many turns there are.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// Drives the subject for a turn, until the last response has come.
    ///
    /// # Errors
    /// The errors of [`LoadDriver::measure`].
    pub fn turn(&mut self) -> Result<LoadTurn, Failure> {
        self.generator.process.go_on()?;
        let turn = self.generator.process.expect_line("'turn'", self.longest, |line| {
            let (responses, seconds) = line.strip_prefix("turn ")?.split_once(' ')?;
            Some((responses.parse::<u64>().ok()?, seconds.parse::<f64>().ok()?))
        });
        let now =
            turn.map_err(|failure| super::of_generator(failure, &mut self.generator.process))?;
        let before = std::mem::replace(&mut self.so_far, now);
        Ok(LoadTurn { responses: now.0.saturating_sub(before.0), seconds: now.1 - before.1 })
    }

    /// Ends the load after its last turn, and reads its result.
    ///
    /// # Errors
    /// The errors of [`LoadDriver::measure`].
    pub fn finish(mut self) -> Result<Driven, Failure> {
        self.generator.process.go_on()?;
        self.generator.expect("measured", STEP_TIMEOUT)?;
        self.generator.process.go_on()?;
        let result = self.generator.finish(self.ending)?;
        let read = read(&result, self.timeout_us);
        Ok(Driven { command: self.command, marks: marks(&result), ..read })
    }
}

/// A running generator, and the files that it writes.
#[derive(Debug)]
struct Generator {
    process: Child,
    json: PathBuf,
}

impl Generator {
    fn start(mut command: Command, target: &Target<'_>, turn: Turn) -> Result<Generator, Failure> {
        let scene = target.scene;
        let json = scene.work.join("load.json");
        let _ = fs::remove_file(&json);
        command.arg("--json").arg(&json);
        let mut launch = Launch::new("load generator", command, scene.guard, scene.interrupt);
        launch.cpus = scene.placement.load.clone();
        launch.limits = scene.limits();
        launch.turn = turn;
        let _there = scene.wire.enter(WireEnd::Load)?;
        Ok(Generator { process: Child::start(launch)?, json })
    }

    fn expect(&mut self, word: &'static str, timeout: Duration) -> Result<(), Failure> {
        let what = format!("'{word}'");
        let found = self.process.expect_line(&what, timeout, |line| (line == word).then_some(()));
        found.map_err(|failure| super::of_generator(failure, &mut self.process))
    }

    /// Waits for the generator's end and reads its files. An exit status other than 0 with a result file is a result:
    /// no response, or responses of another status.
    fn finish(mut self, timeout: Duration) -> Result<Value, Failure> {
        let (status, _) = self.process.expect_end(timeout)?;
        let text = fs::read_to_string(&self.json).unwrap_or_default();
        match serde_json::from_str(&text) {
            Ok(result) => Ok(result),
            Err(_) => {
                let failure = self.process.failure(&format!("wrote no result ({status})"));
                Err(super::of_generator(failure, &mut self.process))
            }
        }
    }
}

impl Resolved {
    /// When the generator runs. Where it shares the only processor with the subject, a load with a schedule goes first: it
    /// stands for clients on other machines, whose requests come when they come, however busy the subject is.
    fn turn(&self, target: &Target<'_>) -> Turn {
        match target.scene.placement.is_shared && self.rate.is_some() {
            true => Turn::First,
            false => Turn::Usual,
        }
    }

    /// Whether so many connections are used for the first time in the window that the values would show it. A first
    /// use costs a server more.
    fn has_first_uses(&self, target: &Target<'_>, length: Duration, rate: Option<f64>) -> bool {
        // If connections are opened for their requests, first uses are what is measured. Cold files must not be read
        // before the window.
        let are_wanted = self.opens_anew || self.is_counted || target.is_cold;
        let events = rate.map(|rate| rate * length.as_secs_f64());
        !are_wanted
            && events.is_some_and(|events| self.connections as f64 > FEW_FIRST_USES * events)
    }
}

/// Starts a generator and waits until its connections are open, each used once if first uses would show.
fn open(
    mut command: Command,
    resolved: &Resolved,
    target: &Target<'_>,
    has_first_uses: bool,
) -> Result<Generator, Failure> {
    if has_first_uses {
        command.args(["--warm-up", "1"]);
    }
    let mut generator = Generator::start(command, target, resolved.turn(target))?;
    generator.expect("connected", opening(resolved))?;
    Ok(generator)
}

/// How long opening the connections may take.
fn opening(resolved: &Resolved) -> Duration {
    let connections = (resolved.connections + resolved.idle) as f64;
    STEP_TIMEOUT + Duration::from_secs_f64(connections / SLOWEST_CONNECTS)
}

/// The flags with other values of some of them. `None` removes a flag.
fn with(flags: &[String], changes: &[(&str, Option<String>)]) -> Vec<String> {
    let mut changed = Vec::new();
    let mut words = flags.iter();
    while let Some(word) = words.next() {
        match changes.iter().find(|(flag, _)| flag == word) {
            Some(_) => drop(words.next()),
            None => changed.push(word.clone()),
        }
    }
    for (flag, value) in changes {
        changed.extend(value.iter().flat_map(|value| [flag.to_string(), value.clone()]));
    }
    changed
}

fn address(subject: &Running) -> Result<HttpAddress, Failure> {
    subject.address.ok_or_else(|| Failure::failed("the subject is no server"))
}

impl LoadDriver for HttpLoad<'_> {
    fn warm_up(
        &self,
        subject: &mut Running,
        target: &Target<'_>,
        at_most: Duration,
    ) -> Result<Option<Warm>, Failure> {
        if target.is_cold {
            return Ok(None);
        }
        let resolved = self.resolve(target)?;
        let connections = resolved.connections.min(WARM_CONNECTIONS);
        let flags = with(
            &resolved.flags,
            &[
                ("--idle", None),
                ("--requests", None),
                ("--think-time", None),
                ("--burst", None),
                ("--connections", Some(connections.to_string())),
            ],
        );
        let warm_up = WarmUp { at_most };
        let warm = warm_up.run(|length| {
            let mut command = self.command(address(subject)?, target, &flags, false)?;
            command.args(["--duration", &format!("{}ms", length.as_millis())]);
            let mut generator = open(command, &resolved, target, false)?;
            let before = cpu_s(subject);
            generator.process.go_on()?;
            generator.expect("measured", STEP_TIMEOUT + length)?;
            let cpu_s = cpu_s(subject) - before;
            generator.process.go_on()?;
            let result = generator.finish(opening(&resolved))?;
            let found = read(&result, resolved.timeout_us);
            Ok(Stretch { events: found.events, seconds: found.seconds, cpu_s })
        })?;
        Ok(Some(warm))
    }

    fn measure(
        &self,
        subject: &mut Running,
        target: &Target<'_>,
        window: &Window,
        warm: Option<&Warm>,
        at: &mut dyn FnMut(Moment, &mut Running) -> Result<(), Failure>,
    ) -> Result<Driven, Failure> {
        let resolved = self.resolve(target)?;
        let rate = resolved.rate.or(warm.map(|warm| warm.events_per_s));
        let length = window.length(rate);
        let mut command =
            self.command(address(subject)?, target, &resolved.flags, resolved.is_counted)?;
        if !resolved.is_counted {
            command.args(["--duration", &format!("{}ms", length.as_millis())]);
        }
        let has_first_uses =
            window.use_every_connection && resolved.has_first_uses(target, length, rate);
        let mut generator = open(command, &resolved, target, has_first_uses)?;
        let command = generator.process.command_line().to_vec();
        at(Moment::Begin, subject)?;
        generator.process.go_on()?;
        let longest = if resolved.is_counted { LONGEST_COUNT } else { STEP_TIMEOUT + length };
        generator.expect("measured", longest)?;
        at(Moment::End, subject)?;
        generator.process.go_on()?;
        let timeout = opening(&resolved) + Duration::from_secs_f64(resolved.timeout_us / 1e6);
        let result = generator.finish(timeout)?;
        let read = read(&result, resolved.timeout_us);
        let mut driven = Driven { command, marks: marks(&result), ..read };
        if window.events.is_some_and(|events| driven.events < events as f64) && !resolved.is_counted
        {
            driven.marks.insert(Mark::FewEvents);
        }
        Ok(driven)
    }
}

fn cpu_s(subject: &mut Running) -> f64 {
    subject.process.cpu_time().ok().flatten().map_or(0.0, |time| time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_replaced_and_removed() {
        let flags = ["--idle", "9", "--connections", "500", "--verify"].map(str::to_string);
        let changed = with(&flags, &[("--idle", None), ("--connections", Some("2".to_string()))]);
        assert_eq!(changed, ["--verify", "--connections", "2"]);
    }
}

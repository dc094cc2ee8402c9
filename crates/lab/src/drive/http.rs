//! HTTP requests by Drover's own generator.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::lead::Lead;
use super::result::{read, set_latencies, set_rates, timeouts};
use super::seconds::{Second, Seconds, latencies_from};
use super::warmup::Stretch;
use super::{Driven, Load, Moment, Target, Warm, WarmUp, Window};
use crate::failure::Failure;
use crate::model::{Level, Mark};
use crate::process::{Child, Launch};
use crate::spec::load::Http;
use crate::spec::setting::level_of;
use crate::subject::{Address, Running};
use crate::wire::End;

/// How long anything may take that should take no time at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// The slowest rate at which opening connections is waited for, per second.
const SLOWEST_CONNECTS: f64 = 500.0;

/// How long a run that ends with its last request may take in all.
const LONGEST_COUNT: Duration = Duration::from_secs(3600);

/// The share of the connections that may wait for a response when the window of an open loop begins.
const BACKLOG: f64 = 0.05;

/// The time-out of `drover load` unless it is told another one, in microseconds.
const TIMEOUT_US: f64 = 10e6;

/// The connections of a warm-up at most: it warms the server and no connection.
const WARM_CONNECTIONS: u64 = 256;

/// HTTP requests by `drover load`.
#[derive(Clone, Debug)]
pub struct HttpLoad<'a> {
    /// What the experiment says of it.
    pub http: &'a Http,
}

/// What follows from the experiment's keys in a cell.
struct Resolved {
    flags: Vec<String>,
    connections: u64,
    idle: u64,
    /// Requests, or connections, per second; `None` in a closed loop, or where the rate changes.
    rate: Option<f64>,
    /// Whether a count of requests ends the run.
    is_counted: bool,
    timeout_us: f64,
    /// Whether connections are opened for the requests, and closed again.
    opens_anew: bool,
}

impl HttpLoad<'_> {
    fn resolve(&self, target: &Target<'_>) -> Result<Resolved, Failure> {
        let levels = target.scene.levels;
        let failed = |fault: String| Failure::failed(fault);
        let flags = self.http.flags(|name| level_of(levels)(name)).map_err(Failure::failed)?;
        let count = |it: &Option<crate::spec::setting::Count>, default| match it {
            Some(it) => it.resolve(levels).map_err(failed),
            None => Ok(default),
        };
        let rate_of = |it: &Option<crate::spec::setting::Setting>| -> Option<f64> {
            // At 0 the loop is closed.
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

    /// The generator's command without what differs between warm-up and measurement.
    fn command(
        &self,
        address: Address,
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
                    // A count of cold files is one of different files: none has been read before.
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
        command.args(flags).args(["--seed", &target.scene.seed.to_string()]);
        Ok(command)
    }
}

/// A generator at work, and the files that it writes.
struct Generator {
    process: Child,
    json: PathBuf,
}

impl Generator {
    fn start(mut command: Command, target: &Target<'_>) -> Result<Generator, Failure> {
        let scene = target.scene;
        let json = scene.work.join("load.json");
        let _ = fs::remove_file(&json);
        command.arg("--json").arg(&json);
        let mut launch = Launch::new("load generator", command, scene.guard, scene.interrupt);
        launch.cpus = scene.placement.load.clone();
        launch.limits = scene.limits();
        let _there = scene.wire.enter(End::Load)?;
        Ok(Generator { process: Child::start(launch)?, json })
    }

    fn expect(&mut self, word: &'static str, patience: Duration) -> Result<(), Failure> {
        let what = format!("'{word}'");
        self.process.expect_line(&what, patience, |line| (line == word).then_some(()))
    }

    /// Waits for its end and reads what it has written, and the lines that nobody has read. An exit status other than 0 with a result is a
    /// result: no reply, or replies of another status.
    fn finish(mut self, patience: Duration) -> Result<(Value, Vec<String>), Failure> {
        let (status, lines) = self.process.expect_end(patience)?;
        let text = fs::read_to_string(&self.json).unwrap_or_default();
        match serde_json::from_str(&text) {
            Ok(result) => Ok((result, lines)),
            Err(_) => Err(self.process.failure(&format!("wrote no result ({status})"))),
        }
    }
}

/// How long opening the connections may take.
fn opening(resolved: &Resolved) -> Duration {
    let connections = (resolved.connections + resolved.idle) as f64;
    PATIENCE + Duration::from_secs_f64(connections / SLOWEST_CONNECTS)
}

/// The same flags with another value of some of them.
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

fn address(subject: &Running) -> Result<Address, Failure> {
    subject.address.ok_or_else(|| Failure::failed("the subject is no server"))
}

impl Load for HttpLoad<'_> {
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
            let mut generator = Generator::start(command, target)?;
            generator.expect("connected", opening(&resolved))?;
            let before = cpu_s(subject);
            generator.process.go_on()?;
            generator.expect("measured", PATIENCE + length)?;
            let cpu_s = cpu_s(subject) - before;
            generator.process.go_on()?;
            let (result, _) = generator.finish(opening(&resolved))?;
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
        let lead = lead(&resolved, target, window, length, rate);
        let length = lead.window;
        let flags = match &lead.rate {
            Some(rate) => {
                with(&resolved.flags, &[("--every", None), ("--rate", Some(rate.clone()))])
            }
            None => resolved.flags.clone(),
        };
        let mut command = self.command(address(subject)?, target, &flags, resolved.is_counted)?;
        if !resolved.is_counted {
            let whole = length + Duration::from_secs(lead.seconds);
            command.args(["--duration", &format!("{}ms", whole.as_millis())]);
        }
        let log = target.scene.work.join("load.hdr");
        if lead.seconds > 0 {
            command.args(["--csv", "/dev/stdout"]).arg("--hdr").arg(&log);
        }
        let mut generator = Generator::start(command, target)?;
        let command = generator.process.command_line().to_vec();
        generator.expect("connected", opening(&resolved))?;
        if lead.seconds == 0 {
            at(Moment::Begin, subject)?;
        }
        generator.process.go_on()?;
        let longest = if resolved.is_counted { LONGEST_COUNT } else { PATIENCE + length };
        let mut seconds = Seconds::default();
        if lead.seconds > 0 {
            // The line of a second comes as that second ends.
            generator.process.expect_line("its seconds", longest, |line| {
                seconds.take(line);
                (seconds.all.len() as u64 == lead.seconds).then_some(())
            })?;
            at(Moment::Begin, subject)?;
        }
        generator.process.expect_line("'measured'", longest, |line| {
            seconds.take(line);
            (line == "measured").then_some(())
        })?;
        at(Moment::End, subject)?;
        generator.process.go_on()?;
        let patience = opening(&resolved) + Duration::from_secs_f64(resolved.timeout_us / 1e6);
        let (result, lines) = generator.finish(patience)?;
        // The last second, which may be a part of one, is told after the window.
        lines.iter().for_each(|line| seconds.take(line));
        let seconds = seconds.all;
        let mut driven = read(&result, resolved.timeout_us);
        driven.command = command;
        if lead.seconds > 0 {
            let from = lead.seconds as f64 - 0.001;
            let of_window: Vec<&Second> =
                seconds.iter().filter(|it| it.begin_s >= from && it.length_s > 0.0).collect();
            let sum = |of: fn(&Second) -> f64| of_window.iter().map(|it| of(it)).sum::<f64>();
            let (events, whole) = (driven.events, driven.events_with_tail.max(1.0));
            let replies = result["replies"].as_f64().unwrap_or(0.0).max(1.0);
            // Statuses are not told second by second: their shares are those of the whole run.
            driven.events = sum(|it| it.replies) * whole / replies;
            driven.bytes *= if events > 0.0 { driven.events / events } else { 0.0 };
            let before: f64 =
                seconds.iter().filter(|it| it.begin_s < from).map(|it| it.replies).sum();
            let asked: f64 =
                seconds.iter().filter(|it| it.begin_s < from).map(|it| it.requests).sum();
            if resolved.rate.is_some() && asked - before > BACKLOG * resolved.connections as f64 {
                driven.marks.insert(Mark::Cold);
                driven.notes.push(format!(
                    "{:.0} first requests had no response yet when the window began.",
                    asked - before
                ));
            }
            driven.events_with_tail = (whole - before).max(0.0);
            driven.seconds = sum(|it| it.length_s);
            set_rates(&mut driven);
            let log = fs::read(&log).unwrap_or_default();
            let latencies = latencies_from(&log, Duration::from_secs(lead.seconds));
            if let Some(latencies) = latencies {
                set_latencies(&mut driven, latencies, timeouts(&result), resolved.timeout_us);
            }
            driven.notes.push(format!(
                "The window began {} s after the first request, when every connection had been used.",
                lead.seconds
            ));
        }
        if lead.is_too_short {
            driven.marks.insert(Mark::Cold);
            driven
                .notes
                .push("Connections were used for the first time within the window.".to_string());
        }
        if window.events.is_some_and(|events| driven.events < events as f64) && !resolved.is_counted
        {
            driven.marks.insert(Mark::FewEvents);
        }
        Ok(driven)
    }
}

/// What comes before the window.
fn lead(
    resolved: &Resolved,
    target: &Target<'_>,
    window: &Window,
    length: Duration,
    rate: Option<f64>,
) -> Lead {
    // Where connections are opened for their requests, first uses are what is measured; and cold files
    // must not be read before the window.
    let has_none = resolved.opens_anew
        || resolved.is_counted
        || target.is_cold
        || !window.use_every_connection;
    match rate.filter(|rate| *rate > 0.0 && !has_none) {
        None => Lead::none(length),
        Some(rate) => {
            let is_open = resolved.rate.is_some();
            Lead::new(resolved.connections as f64, rate, is_open, length, window.at_most)
        }
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

//! A load by another generator: a program that ends by itself and writes its result.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Driven, LoadDriver, Moment, Target, Warm, Window};
use crate::failure::Failure;
use crate::model::Mark;
use crate::process::{Child, Launch};
use crate::spec::load::{LoadCommand, OutputPlace, Pick};
use crate::spec::setting::fill;
use crate::subject::{Running, find};
use crate::wire::WireEnd;

/// How much longer than its window a generator may run.
const EXTRA_TIME: Duration = Duration::from_secs(120);

/// The share of its processors from which on a generator counts as the bottleneck.
const SATURATED: f64 = 0.9;

/// Another generator.
#[derive(Clone, Debug)]
pub struct CommandLoad<'a> {
    /// The description of the generator in the experiment.
    pub load: &'a LoadCommand,
}

impl CommandLoad<'_> {
    fn command(
        &self,
        subject: &Running,
        target: &Target<'_>,
        seconds: f64,
    ) -> Result<Command, Failure> {
        let scene = target.scene;
        let address = subject.address.ok_or_else(|| Failure::failed("the subject is no server"))?;
        let mut own = BTreeMap::from([
            ("url".to_string(), address.to_string()),
            ("host".to_string(), address.socket.ip().to_string()),
            ("port".to_string(), address.socket.port().to_string()),
            ("seconds".to_string(), format!("{}", seconds.ceil().max(1.0))),
            ("seed".to_string(), scene.seed.to_string()),
            ("result".to_string(), scene.work.join("result").display().to_string()),
        ]);
        own.extend(scene.tls.map(|tls| ("ca".to_string(), tls.authority().display().to_string())));
        own.extend(target.urls.map(|urls| ("urls".to_string(), urls.display().to_string())));
        for (name, candidates) in &self.load.find {
            own.insert(name.clone(), find(name, candidates, None)?.display().to_string());
        }
        let value = |name: &str| {
            own.get(name).cloned().or_else(|| scene.levels.get(name).map(ToString::to_string))
        };
        let words = self.load.command.iter().map(|word| fill(word, value).map_err(Failure::failed));
        let words: Vec<String> = words.collect::<Result<_, _>>()?;
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::failed("the load's command is empty"));
        };
        // A missing program makes the cell not testable on this machine.
        let program = find(program, std::slice::from_ref(program), None)?;
        let mut command = Command::new(program);
        command.args(arguments);
        for (name, text) in &self.load.env {
            command.env(name, fill(text, value).map_err(Failure::failed)?);
        }
        Ok(command)
    }
}

impl LoadDriver for CommandLoad<'_> {
    fn warm_up(
        &self,
        _: &mut Running,
        _: &Target<'_>,
        _: Duration,
    ) -> Result<Option<Warm>, Failure> {
        // A warm-up is impossible: the lab knows neither what the program requests nor how to recognise that its end
        // is near.
        Ok(None)
    }

    fn measure(
        &self,
        subject: &mut Running,
        target: &Target<'_>,
        window: &Window,
        warm: Option<&Warm>,
        at: &mut dyn FnMut(Moment, &mut Running) -> Result<(), Failure>,
    ) -> Result<Driven, Failure> {
        let scene = target.scene;
        let length = match window.events {
            // Without a rate, the number of events does not say how long the window has to be.
            Some(_) if warm.is_none() => window.at_least,
            _ => window.length(warm.map(|warm| warm.events_per_s)),
        };
        let command = self.command(subject, target, length.as_secs_f64())?;
        let writes_file = self.load.command.iter().any(|word| word.contains("{result}"));
        let result = scene.work.join("result");
        let _ = fs::remove_file(&result);
        let mut launch = Launch::new("load generator", command, scene.guard, scene.interrupt);
        launch.cpus = scene.placement.load.clone();
        launch.limits = scene.limits();
        launch.billed = true;
        let command = crate::process::command_line(&launch.command);
        let there = scene.wire.enter(WireEnd::Load)?;
        at(Moment::Begin, subject)?;
        let start = Instant::now();
        let mut process = Child::start(launch)?;
        drop(there);
        let (status, lines) = process.expect_end(EXTRA_TIME + length)?;
        let seconds = start.elapsed().as_secs_f64();
        at(Moment::End, subject)?;
        if !status.success() {
            let failure = process.failure(&format!("failed ({status})"));
            return Err(match status.code() {
                Some(_) => failure,
                // Something has killed the generator.
                None => failure.of_lab(),
            });
        }
        let used = process.cpu_time().map_err(Failure::failed)?.unwrap_or_default().as_secs_f64();
        let text = match writes_file {
            true => fs::read_to_string(&result)
                .map_err(|error| Failure::not_measured(format!("the load's result: {error}")))?,
            false => lines.join("\n"),
        };
        let mut driven = Driven { seconds, command, ..Driven::default() };
        let json: Option<Value> = serde_json::from_str(&text).ok();
        for (name, pick) in &self.load.metrics {
            let value = pick_from(pick, &text, json.as_ref())
                .map_err(|why| Failure::not_measured(format!("metric {name}: {why}")))?;
            driven.values.insert(name.clone(), value);
        }
        let processors = scene.placement.load.len().max(1) as f64;
        if used > SATURATED * seconds * processors {
            driven.marks.insert(Mark::GeneratorLimited);
        }
        driven.events = driven.values.get("response-rate").map_or(0.0, |rate| rate * seconds);
        driven.events_with_tail = driven.events;
        driven.bytes = driven.values.get("throughput").map_or(0.0, |rate| rate * 1e6 * seconds);
        driven.result = json.unwrap_or_else(|| json!(text));
        driven.notes.push(format!("The load generator used {used:.2} s of CPU time."));
        Ok(driven)
    }
}

/// The number that `pick` finds in the output of a generator.
fn pick_from(pick: &Pick, text: &str, json: Option<&Value>) -> Result<f64, String> {
    let by_pointer = |pointer: &str| {
        let json = json.ok_or("what the generator wrote is no JSON")?;
        let value = json.pointer(pointer).ok_or(format!("there is nothing at {pointer}"))?;
        let number = value.as_f64().or_else(|| value.as_str().and_then(quantity));
        number.ok_or(format!("{value} at {pointer} is no number"))
    };
    match pick {
        Pick::Pointer(pointer) => by_pointer(pointer),
        Pick::Output(OutputPlace { pointer, after, times }) => {
            let number = match (pointer, after) {
                (Some(pointer), _) => by_pointer(pointer)?,
                (None, Some(after)) => {
                    let at = text.find(after.as_str()).ok_or(format!("there is no '{after}'"))?;
                    quantity(&text[at + after.len()..])
                        .ok_or(format!("no number follows '{after}'"))?
                }
                (None, None) => return Err("neither pointer nor after is given".to_string()),
            };
            Ok(number * times.unwrap_or(1.0))
        }
    }
}

/// The number at the beginning of a text. Generators write times and sizes with units: `1.25ms` gives 1.25, and
/// `times` converts the number into the metric's unit.
fn quantity(text: &str) -> Option<f64> {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || c == ':' || c == '=');
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || ".eE+-".contains(c))).unwrap_or(text.len());
    // A unit may begin like an exponent, so shorter and shorter texts are tried.
    (1..=end).rev().find_map(|end| text.get(..end)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_text_and_in_json() {
        let wrk = "Running 1s test\n  Latency   1.25ms  0.5ms\nRequests/sec:  50123.45\n";
        let after = |after: &str, times| {
            let place =
                OutputPlace { after: Some(after.to_string()), times, ..OutputPlace::default() };
            pick_from(&Pick::Output(place), wrk, None)
        };
        assert_eq!(after("Requests/sec:", None), Ok(50_123.45));
        assert_eq!(after("Latency", Some(1000.0)), Ok(1250.0));
        assert!(after("Transfer", None).unwrap_err().contains("no 'Transfer'"));
        assert!(after("Running 1s", None).unwrap_err().contains("no number follows"));
        let json = json!({"rps": 12.5, "p99": "3.5 ms"});
        let pick = |pointer: &str| pick_from(&Pick::Pointer(pointer.to_string()), "", Some(&json));
        assert_eq!(pick("/rps"), Ok(12.5));
        assert_eq!(pick("/p99"), Ok(3.5));
        assert!(pick("/missing").is_err());
    }
}

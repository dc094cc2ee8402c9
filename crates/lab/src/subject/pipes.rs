//! A set of pipes, measured by `drover lab pipes`: a process that passes tokens through them, and prints
//! one line of JSON.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::guest::drover_in_guest;
use super::{Scene, SelfDriven, SelfMeasurement};
use crate::failure::Failure;
use crate::spec;
use crate::spec::load::TokenSpec;
use crate::spec::setting::CountSetting;
use crate::spec::subject::Pipes;

/// How long the process may take in addition to its measurement: to make some ten thousand pipes, and to pass each
/// token once if that takes longer than the window.
const SURROUNDINGS: Duration = Duration::from_secs(120);

/// A set of pipes that one thread waits for, and the tokens that it passes.
#[derive(Debug)]
pub struct PipeSet<'a> {
    /// The subject's description.
    pub subject: &'a spec::SubjectSpec,
    /// The pipes.
    pub pipes: &'a Pipes,
    /// The tokens.
    pub tokens: &'a TokenSpec,
    /// How long tokens pass before the measurement.
    pub warm_up: Duration,
}

impl PipeSet<'_> {
    fn command(&self, scene: &Scene<'_>, window: Duration) -> Result<Command, Failure> {
        let resolve = |count: &CountSetting| {
            count.resolve(scene.levels).map_err(Failure::failed).map(|count| count.to_string())
        };
        let mut command = match self.pipes.guest {
            true => drover_in_guest(scene)?,
            false => Command::new(scene.drover),
        };
        command.args(["lab", "pipes"]);
        if self.pipes.guest {
            command.arg("--time-waits");
        }
        command.args(["--mechanism", &self.pipes.by]);
        if let Some(parts) = &self.pipes.parts {
            command.args(["--devpoll-model", parts]);
        }
        command.args(["--pipes", &resolve(&self.pipes.count)?]);
        command.args(["--active", &resolve(&self.tokens.active)?]);
        if let Some(writes) = &self.tokens.writes {
            command.args(["--writes", &resolve(writes)?]);
        }
        command.args(["--warmup", &format!("{}ms", self.warm_up.as_millis())]);
        command.args(["--window", &format!("{}ms", window.as_millis())]);
        if let Some(cpu) = scene.placement.subject.first().filter(|_| !self.pipes.guest) {
            command.args(["--cpu", &cpu.to_string()]);
        }
        Ok(command)
    }
}

impl SelfDriven for PipeSet<'_> {
    fn measure(&self, scene: &Scene<'_>, window: Duration) -> Result<SelfMeasurement, Failure> {
        let command = self.command(scene, window)?;
        let timeout = SURROUNDINGS + self.warm_up + 2 * window;
        let measured = scene.result_of("set of pipes", command, &self.subject.limits, timeout)?;
        Ok(SelfMeasurement { values: values(&measured.result), ..measured })
    }
}

/// The metrics of the result of a set of pipes.
fn values(result: &Value) -> BTreeMap<String, f64> {
    let names = [
        ("event-time", "event_median_us"),
        ("cpu-per-event", "cpu_per_event_us"),
        ("copied-per-event", "copied_per_event"),
        ("register-time", "register_us"),
        ("deregister-time", "deregister_us"),
    ];
    let found = |(metric, key): (&str, &str)| Some((metric.to_string(), result[key].as_f64()?));
    let rate = result["events"].as_f64().zip(result["window_s"].as_f64());
    let rate = rate.map(|(events, seconds)| ("event-rate".to_string(), events / seconds));
    names.into_iter().filter_map(found).chain(rate).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metrics_are_read_off_a_set_s_result() {
        let result = json!({
            "mechanism": "epoll", "events": 1000, "event_us": [2.5, 2.0], "event_min_us": 2.0,
            "event_median_us": 2.25, "cpu_per_event_us": 1.5, "copied_per_event": null,
            "register_us": 0.5, "deregister_us": 0.25, "window_s": 0.5,
        });
        let expected = [
            ("event-time", 2.25),
            ("cpu-per-event", 1.5),
            ("register-time", 0.5),
            ("deregister-time", 0.25),
            ("event-rate", 2000.0),
        ];
        assert_eq!(values(&result), expected.map(|(name, value)| (name.to_string(), value)).into());
    }
}

//! Waiters on one socket, measured by `drover lab herd`: a process that forks its waiters while it is small, connects
//! to them again and again, and prints one line of JSON.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{Scene, SelfDriven, SelfMeasurement};
use crate::failure::Failure;
use crate::spec;
use crate::spec::load::Connects;
use crate::spec::subject::{Waiters, WaitersAs};

/// The least number of connections for which a 99th percentile makes sense.
const CONNECTS: u64 = 200;

/// How long waiters may take to start, and to end.
const GATHERING: Duration = Duration::from_secs(120);

/// Waiters on one listening socket, and the connections that they accept.
#[derive(Debug)]
pub struct WaiterSubject<'a> {
    /// The subject's description.
    pub subject: &'a spec::SubjectSpec,
    /// What waits.
    pub waiters: &'a Waiters,
    /// The connections.
    pub connects: &'a Connects,
}

impl WaiterSubject<'_> {
    fn command(&self, scene: &Scene<'_>, window: Duration) -> Result<Command, Failure> {
        let resolve = |count: &spec::setting::CountSetting| {
            count.resolve(scene.levels).map_err(Failure::failed).map(|count| count.to_string())
        };
        let mut command = Command::new(scene.drover);
        command.args(["lab", "herd", "--waiter", &self.waiters.by]);
        command.args(["--waiters", &resolve(&self.waiters.count)?]);
        if let Some(descriptors) = &self.waiters.descriptors {
            command.args(["--descriptors", &resolve(descriptors)?]);
        }
        if self.waiters.r#as == WaitersAs::Processes {
            command.arg("--processes");
        }
        if self.waiters.busy {
            command.arg("--busy");
        }
        let connects = self.connects.count.as_ref().map(resolve).transpose()?;
        command.args(["--connects", &connects.unwrap_or_else(|| CONNECTS.to_string())]);
        command.args(["--window", &format!("{}ms", window.as_millis())]);
        let list = |cpus: &[usize]| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        if let Some(client) = scene.placement.load.first() {
            command.args(["--waiter-cpus", &list(&scene.placement.subject)]);
            command.args(["--client-cpu", &client.to_string()]);
        }
        Ok(command)
    }
}

impl SelfDriven for WaiterSubject<'_> {
    fn measure(&self, scene: &Scene<'_>, window: Duration) -> Result<SelfMeasurement, Failure> {
        let command = self.command(scene, window)?;
        let timeout = GATHERING + 2 * window;
        let measured =
            scene.result_of("crowd of waiters", command, &self.subject.limits, timeout)?;
        Ok(SelfMeasurement { values: values(&measured.result), ..measured })
    }
}

/// The metrics of the waiters' result.
fn values(result: &Value) -> BTreeMap<String, f64> {
    let number = |name: &str| result[name].as_f64();
    let times = |name: &str| -> Vec<f64> {
        let list = result[name].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut times: Vec<f64> = list.iter().filter_map(Value::as_f64).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let connect = times("connect_us");
    let connections = connect.len() as f64;
    let mut values = BTreeMap::new();
    let mut set = |name: &str, value: Option<f64>| {
        values.extend(value.filter(|it| it.is_finite()).map(|value| (name.to_string(), value)));
    };
    set("connect-min", connect.first().copied());
    set("connect-median", quantile(&connect, 0.5));
    set("connect-p99", quantile(&connect, 0.99));
    set("settle-time", quantile(&times("settle_us"), 0.5));
    let per_connection = |name: &str| Some(number(name)? / connections);
    let waiters = number("waiters").unwrap_or(f64::NAN);
    let onlookers = number("onlookers").unwrap_or(0.0);
    set("wake-ups", per_connection("switches"));
    set("wake-up-share", per_connection("switches").map(|it| it / waiters));
    if onlookers > 0.0 {
        set("onlooker-wake-ups", per_connection("onlooker_switches").map(|it| it / onlookers));
    }
    let of_onlookers = per_connection("onlooker_switches");
    set("taker-wake-ups", per_connection("switches").zip(of_onlookers).map(|(all, of)| all - of));
    set("returns", per_connection("returns"));
    set("cpu-per-connection", per_connection("cpu_s").map(|seconds| 1e6 * seconds));
    set("imbalance", number("imbalance"));
    values
}

/// A quantile of sorted values: the smallest value that at least `share` of the values do not exceed.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let at = (share * sorted.len() as f64).ceil().max(1.0) as usize - 1;
    sorted.get(at).copied()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metrics_are_read_off_a_crowd_s_result() {
        let result = json!({
            "waiters": 10, "connect_us": [40.0, 10.0, 20.0, 30.0], "settle_us": [], "switches": 24,
            "onlookers": 5, "onlooker_switches": 20, "returns": 8, "imbalance": 0.5, "cpu_s": 0.002,
        });
        let values = values(&result);
        let expected = [
            ("connect-min", 10.0),
            ("connect-median", 20.0),
            ("connect-p99", 40.0),
            ("wake-ups", 6.0),
            ("wake-up-share", 0.6),
            ("onlooker-wake-ups", 1.0),
            ("taker-wake-ups", 1.0),
            ("returns", 2.0),
            ("cpu-per-connection", 500.0),
            ("imbalance", 0.5),
        ];
        assert_eq!(values, expected.map(|(name, value)| (name.to_string(), value)).into());
    }
}

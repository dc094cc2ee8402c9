//! Metrics that are computed from the readings of load and instruments.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::drive::Driven;
use crate::instrument::reading;
use crate::instrument::stages::StageTrace;
use crate::model::Level;
use crate::old_names;
use crate::spec::Experiment;
use crate::spec::metric::MetricOrigin;

/// Metrics of CPU time: per response, per byte, per second.
///
/// CPU time and responses cover one stretch of time: the window, or, if requests under way at its end are counted
/// (`drained_cpu_s`), the window with its tail. `processors` is how many the subject could use at a time.
pub(super) fn derive(
    driven: &Driven,
    values: &BTreeMap<String, f64>,
    drained_cpu_s: Option<f64>,
    processors: f64,
) -> BTreeMap<String, f64> {
    let mut derived = BTreeMap::new();
    let Some(cpu_s) = values.get(reading::CPU_S).copied() else { return derived };
    let mut set = |name: &str, value: f64| {
        if value.is_finite() {
            derived.insert(name.to_string(), value);
        }
    };
    if driven.seconds > 0.0 {
        set("cpu-percent", 100.0 * cpu_s / driven.seconds);
        set("busy-percent", 100.0 * cpu_s / (driven.seconds * processors));
    }
    if driven.handshakes > 0.0 {
        // Handshakes of the tail are not counted apart: both are of the window.
        set("handshakes-per-cpu", driven.handshakes / cpu_s);
    }
    let (cpu_s, events) = match drained_cpu_s {
        Some(drained) => (drained, driven.events_with_tail),
        None => (cpu_s, driven.events),
    };
    let bytes_per_event = driven.bytes / driven.events;
    if events > 0.0 {
        set("cpu-per-response", 1e6 * cpu_s / events);
        set("responses-per-cpu", events / cpu_s);
        if driven.bytes > 0.0 {
            let megabytes = bytes_per_event * events / 1e6;
            set("cpu-per-megabyte", 1e3 * cpu_s / megabytes);
            set("megabytes-per-cpu", megabytes / cpu_s);
        }
    }
    derived
}

/// The sources of an experiment's own metrics.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inputs<'i> {
    pub(super) load: &'i Value,
    pub(super) subject: &'i Value,
    pub(super) trace: Option<&'i StageTrace>,
    /// How many times as fast as the published disk the modelled disk is.
    pub(super) speed: f64,
    pub(super) levels: Option<&'i BTreeMap<String, Level>>,
}

impl Default for Inputs<'_> {
    fn default() -> Self {
        static NULL: Value = Value::Null;
        Inputs { load: &NULL, subject: &NULL, trace: None, speed: 1.0, levels: None }
    }
}

/// The experiment's own metrics. A metric without a number at its place (`null` where something was not counted) has
/// no value.
pub(super) fn own(experiment: &Experiment, inputs: &Inputs<'_>) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    for (name, metric) in &experiment.metric {
        let from = match metric.origin() {
            Some(MetricOrigin::Load(pointer)) => {
                inputs.load.pointer(&old_names::place(pointer)).and_then(Value::as_f64)
            }
            Some(MetricOrigin::Subject(pointer)) => {
                inputs.subject.pointer(pointer).and_then(Value::as_f64)
            }
            None => None,
        };
        let share = metric.share.as_ref().and_then(|share| {
            let nothing = BTreeMap::new();
            let above = share.above.resolve(inputs.levels.unwrap_or(&nothing)).ok()?;
            inputs.trace?.share(share.stage, above.as_secs_f64() / inputs.speed)
        });
        values.extend(from.or(share).map(|value| (name.clone(), value)));
    }
    values
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn driven() -> Driven {
        Driven {
            seconds: 2.0,
            events: 1000.0,
            events_with_tail: 1500.0,
            bytes: 4e6,
            ..Driven::default()
        }
    }

    #[test]
    fn cpu_time_and_responses_are_of_the_same_time() {
        let values = BTreeMap::from([(reading::CPU_S.to_string(), 0.2)]);
        let window = derive(&driven(), &values, None, 0.5);
        assert_eq!(window["cpu-percent"], 10.0);
        assert_eq!(window["busy-percent"], 20.0);
        assert_eq!(window["cpu-per-response"], 200.0);
        assert_eq!(window["cpu-per-megabyte"], 50.0);
        assert_eq!(window["responses-per-cpu"], 5000.0);
        assert_eq!(window["megabytes-per-cpu"], 20.0);
        // The CPU time of window and tail is divided by the responses of window and tail.
        let drained = derive(&driven(), &values, Some(0.3), 0.5);
        assert_eq!(drained["cpu-per-response"], 200.0);
        assert_eq!(drained["cpu-percent"], 10.0);
        assert_eq!(drained.get("handshakes-per-cpu"), None);
        let shaken = derive(&Driven { handshakes: 50.0, ..driven() }, &values, Some(0.3), 0.5);
        assert_eq!(shaken["handshakes-per-cpu"], 250.0);
    }

    #[test]
    fn without_responses_there_is_no_price_of_one() {
        let values = BTreeMap::from([(reading::CPU_S.to_string(), 0.2)]);
        let nothing = Driven { seconds: 1.0, ..Driven::default() };
        assert_eq!(
            derive(&nothing, &values, None, 1.0).keys().collect::<Vec<_>>(),
            ["busy-percent", "cpu-percent"]
        );
    }

    #[test]
    fn metrics_of_an_experiment_s_own_are_read_from_its_results() {
        let text = "schema = 'drover.experiment/2'\nid = 'x'\n[subject.a]\nserve = []\n[load.http]\n\
                    [metric.hung]\nfrom = 'load:/errors/client_timeout'\n\
                    [metric.unknown]\nfrom = 'load:/errors/none'\n";
        let experiment: Experiment = toml::from_str(text).unwrap();
        let load = json!({ "errors": { "client_timeout": 3, "none": null } });
        let values = own(&experiment, &Inputs { load: &load, ..Inputs::default() });
        assert_eq!(values, BTreeMap::from([("hung".to_string(), 3.0)]));
    }
}

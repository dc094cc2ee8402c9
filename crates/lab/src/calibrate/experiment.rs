//! The experiments of a calibration: one server under two names, and a server that is slowed by known shares of its
//! CPU time per request.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::analysis::summary::median;
use crate::model::{Level, Sample};
use crate::spec::factor::{CASE, Factor};
use crate::spec::{self, Experiment, FileSource, SubjectSpec};

/// The preset of both experiments.
pub const PRESET: &str = "calibrate";

/// The id of the experiment with slowed servers.
pub const SLOWED: &str = "calibration-slowed";

/// The subject that all others are compared with.
pub(super) const SERVER: &str = "server";

/// The second name of the server.
pub(super) const AGAIN: &str = "again";

/// The metric in which a slowed server is worse by a known share.
pub(super) const SLOWED_METRIC: &str = "cpu-per-response";

/// The source of the built-in experiment file.
struct OwnFile;

impl FileSource for OwnFile {
    fn text(&self, _: &Path) -> io::Result<String> {
        Ok(include_str!("calibration.toml").to_owned())
    }
}

/// One server under two names.
#[must_use]
pub fn equal_servers() -> Experiment {
    let read = spec::read_from(&OwnFile, Path::new("built-in/calibration.toml"));
    read.expect("a test reads it")
}

/// The workloads of [`equal_servers`] for a server, and for servers that spin for a share (0.05 is 5 %) of a
/// request's CPU time. `cpu_us` has that CPU time in microseconds, by workload. A workload that is missing in
/// `cpu_us` is left out.
#[must_use]
pub fn slowed_servers(shares: &[f64], cpu_us: &BTreeMap<String, f64>) -> Experiment {
    let mut experiment = equal_servers();
    experiment.id = SLOWED.to_owned();
    experiment.title = Some("Servers slowed by a known share".to_owned());
    experiment.question =
        Some("Are differences found as often as the calibration says?".to_owned());
    experiment.method = Some(
        "A server runs beside copies of itself that spin on each request for a known share of the CPU time \
         that a request took in a first run."
            .to_owned(),
    );
    experiment.subject.shift_remove(AGAIN);
    experiment.case.retain(|case| cpu_us.contains_key(&case.name));
    for share in shares {
        let factor = spin_factor(*share);
        let flags = ["--spin-per-request".to_owned(), format!("{{{factor}}}us")];
        let subject = SubjectSpec { serve: Some(flags.to_vec()), ..SubjectSpec::default() };
        experiment.subject.insert(slowed_name(*share), subject);
        let unit = Some("µs".to_owned());
        experiment.factor.insert(factor.clone(), Factor { unit, ..Factor::default() });
        for case in &mut experiment.case {
            let spin = spin_us(*share, cpu_us[&case.name]);
            case.levels.insert(factor.clone(), Level::Number(spin));
        }
    }
    let figures = &mut experiment.figure;
    figures.retain(|figure| figure.metric == SLOWED_METRIC);
    experiment
}

/// The name of a server that is slowed by a share of its CPU time per request.
pub(super) fn slowed_name(share: f64) -> String {
    format!("slower by {} %", percent(share))
}

/// The name of the factor that sets how long a slowed server spins on each request.
pub(super) fn spin_factor(share: f64) -> String {
    format!("spin-{}", percent(share).to_string().replace('.', "-"))
}

/// A share in percent: 5 for 0.05.
pub(super) fn percent(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

/// How long a slowed server spins on each request, in microseconds, rounded to nanoseconds.
fn spin_us(share: f64, cpu_us: f64) -> f64 {
    (share * cpu_us * 1e3).round() / 1e3
}

/// The median CPU time per request of the server, in microseconds, by workload.
#[must_use]
pub fn cpu_per_request(samples: &[Sample]) -> BTreeMap<String, f64> {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| [SERVER, AGAIN].contains(&&*sample.cell.subject)) {
        let (Some(Level::Name(case)), Some(value)) =
            (sample.cell.levels.get(CASE), sample.values.get(SLOWED_METRIC))
        else {
            continue;
        };
        values.entry(case.clone()).or_default().push(*value);
    }
    values.iter().filter_map(|(case, values)| Some((case.clone(), median(values)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_has_two_names_and_the_same_flags() {
        let experiment = equal_servers();
        let [(one, first), (two, second)] =
            experiment.subject.iter().collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((one.as_str(), two.as_str()), (SERVER, AGAIN));
        assert_eq!(first.serve, second.serve);
        let preset = &experiment.presets[PRESET];
        assert_eq!(experiment.cells(preset).len(), 6);
        let budget = preset.budget.as_ref().unwrap().resolve(&BTreeMap::new()).unwrap();
        assert!(budget.as_secs() <= 240);
    }

    #[test]
    fn a_slowed_server_spins_for_its_share_of_each_workload() {
        let cpu = BTreeMap::from([("saturation".to_owned(), 12.3456)]);
        let experiment = slowed_servers(&[0.05, 0.125], &cpu);
        let cells = experiment.cells(&experiment.presets[PRESET]);
        assert_eq!(cells.len(), 3);
        let slowest = &cells[2];
        assert_eq!(slowest.subject, "slower by 12.5 %");
        assert_eq!(slowest.levels["spin-12-5"], Level::Number(1.543));
        let flags = experiment.subject[&slowest.subject].serve.as_ref().unwrap();
        assert_eq!(flags[1], "{spin-12-5}us");
    }
}

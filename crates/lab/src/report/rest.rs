//! The command that would decide what a quick session leaves open, and how long it takes.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::model::{Report, words};
use super::verdicts::{self, Conclusion};
use crate::plan::limits::MachineLimits;
use crate::plan::{Overrides, Plan, Selection};
use crate::spec::built_in;
use crate::spec::experiment::{Experiment, QUICK};

/// The preset that asks what the quick one leaves open.
const STANDARD: &str = "standard";

/// Says which command would decide more, and how long it takes; nothing if the session was no quick one, or if no claim of a
/// built-in experiment is open.
#[must_use]
pub(super) fn rest(report: &Report) -> Option<String> {
    if report.session.preset != QUICK {
        return None;
    }
    let times = standard_times();
    let (mut open, mut ids, mut seconds) = (0, Vec::new(), 0.0);
    for one in &report.experiments {
        let conclusions = one.claims.iter().map(|claim| verdicts::of_report(&one.id, claim).1);
        let count = conclusions.filter(|it| matches!(it, Conclusion::Open { .. })).count();
        if let Some(time) = times.get(one.id.as_str()).filter(|_| count > 0) {
            open += count;
            ids.push(one.id.as_str());
            seconds += time;
        }
    }
    if ids.is_empty() {
        return None;
    }
    let which =
        if ids.len() == times.len() { String::new() } else { format!("{} ", ids.join(" ")) };
    let open = if open == 1 { "1 is open".to_owned() } else { format!("{open} are open") };
    Some(format!(
        "{open} even so. To put most of them to the test: drover lab run {which}--preset {STANDARD}, about {}.",
        words::duration(seconds)
    ))
}

/// How long each built-in experiment takes in that preset on this machine, in seconds.
fn standard_times() -> &'static BTreeMap<&'static str, f64> {
    static TIMES: OnceLock<BTreeMap<&'static str, f64>> = OnceLock::new();
    TIMES.get_or_init(|| {
        let Ok(limits) = MachineLimits::look() else { return BTreeMap::new() };
        let time = |id: &'static str| {
            Some((id, standard_time(&built_in::experiment(id)?.ok()?, &limits)?))
        };
        built_in::names().into_iter().filter_map(time).collect()
    })
}

fn standard_time(experiment: &Experiment, limits: &MachineLimits) -> Option<f64> {
    let budget = experiment.presets.get(STANDARD)?.budget.as_ref();
    let budget = budget.and_then(|it| it.resolve(&BTreeMap::new()).ok());
    let selection = Selection::new(experiment, STANDARD, &Overrides::default()).ok()?;
    let plan = Plan::new(experiment, &selection, 0, limits).ok()?;
    Some(budget.map_or(plan.estimate_s, |budget| plan.estimate_s.min(budget.as_secs_f64())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::quick;

    #[test]
    fn what_is_open_has_a_command_and_its_time() {
        let report = Report::of(&quick(&["pipes", "raw-file-io"], 6));
        let rest = rest(&report).unwrap();
        assert!(rest.contains(" are open even so."), "{rest}");
        assert!(rest.contains("raw-file-io --preset standard, about "), "{rest}");
        assert!(standard_times()["raw-file-io"] > 60.0);
        assert_eq!(standard_times().len(), built_in::names().len());
    }
}

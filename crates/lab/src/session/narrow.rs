//! Narrows a session's experiments to the subjects and factors that the user has chosen.

use std::collections::BTreeMap;

use crate::document::suggestion;
use crate::model::Level;
use crate::plan::Overrides;
use crate::spec::experiment::Experiment;
use crate::spec::factor::CASE;
use crate::spec::metric::InstrumentName;

/// The experiments to run, each with the user's flags that apply to it, and remarks.
///
/// A session has one list of subjects and one list of levels, and its experiments differ in both: each experiment
/// takes what it knows. An experiment that knows none of the subjects is left out. An experiment that lacks a factor
/// is left out unless the user has named the experiment.
///
/// # Errors
/// A subject or a factor that no experiment has, with the nearest known name; or no experiment is left.
#[allow(clippy::type_complexity)]
pub(super) fn narrow(
    experiments: Vec<Experiment>,
    are_named: bool,
    overrides: &Overrides,
) -> Result<(Vec<(Experiment, Overrides)>, Vec<String>), String> {
    let every = |names: fn(&Experiment) -> Vec<&str>| {
        let mut all: Vec<&str> = experiments.iter().flat_map(names).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let chosen = overrides.subjects.iter().flatten();
    known("--subjects", "subject", chosen, &every(subjects))?;
    known("--levels", "factor", overrides.levels.keys(), &every(factors))?;
    if overrides.rate_scale.is_some() && experiments.iter().all(|it| it.rate_factors().is_empty()) {
        return Err("--rate-scale: no factor sets a request rate that could be scaled".to_owned());
    }
    let mut kept = Vec::new();
    let mut left_out = Vec::new();
    let mut notes = Vec::new();
    for mut experiment in experiments {
        let own = of_experiment(&experiment, overrides);
        let lacks_subjects = own.subjects.as_ref().is_some_and(Vec::is_empty);
        let lacks_levels = own.levels.len() < overrides.levels.len();
        let lacks_rates = own.rate_scale.is_none() && overrides.rate_scale.is_some();
        if lacks_subjects || (!are_named && (lacks_levels || lacks_rates)) {
            left_out.push(experiment.id);
            continue;
        }
        let id = &experiment.id;
        for factor in overrides.levels.keys().filter(|factor| !own.levels.contains_key(*factor)) {
            notes.push(format!(
                "{id} has no factor {factor}: --levels {factor} does not count there."
            ));
        }
        if lacks_rates {
            notes.push(format!("{id} has no request rate: --rate-scale does not count there."));
        }
        keep_awake(&mut experiment, overrides.keeps_awake);
        kept.push((experiment, own));
    }
    if kept.is_empty() {
        return Err("no experiment has both the chosen subjects and the chosen factors".to_owned());
    }
    if !left_out.is_empty() {
        notes.push(format!(
            "Left out, as they lack the chosen subjects or factors: {}.",
            left_out.join(", ")
        ));
    }
    Ok((kept, notes))
}

fn subjects(experiment: &Experiment) -> Vec<&str> {
    experiment.subject.keys().map(String::as_str).collect()
}

fn factors(experiment: &Experiment) -> Vec<&str> {
    let case = (!experiment.case.is_empty()).then_some(CASE);
    experiment.factor.keys().map(String::as_str).chain(case).collect()
}

/// The user's flags, as far as they apply to an experiment.
fn of_experiment(experiment: &Experiment, overrides: &Overrides) -> Overrides {
    let mut own = overrides.clone();
    if let Some(subjects) = &mut own.subjects {
        subjects.retain(|subject| experiment.subject.contains_key(subject));
    }
    let factors = factors(experiment);
    let known = own.levels.into_iter().filter(|(factor, _)| factors.contains(&factor.as_str()));
    own.levels = known.collect::<BTreeMap<String, Vec<Level>>>();
    if experiment.rate_factors().is_empty() {
        own.rate_scale = None;
    }
    own
}

/// Switches the threads that keep processors awake on or off, whatever the experiment says.
fn keep_awake(experiment: &mut Experiment, keeps: Option<bool>) {
    let Some(keeps) = keeps else { return };
    experiment.instruments.retain(|instrument| *instrument != InstrumentName::IdleGuard);
    if keeps {
        experiment.instruments.push(InstrumentName::IdleGuard);
    }
}

fn known<'a>(
    flag: &str,
    what: &str,
    chosen: impl Iterator<Item = &'a String>,
    names: &[&str],
) -> Result<(), String> {
    for name in chosen {
        if !names.contains(&name.as_str()) {
            let suggestion = suggestion(name, names.iter().copied());
            return Err(format!("{flag}: there is no {what} '{name}'{suggestion}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(id: &str, subjects: &[&str], factor: &str) -> Experiment {
        let subjects: String =
            subjects.iter().map(|name| format!("[subject.{name}]\nserve = []\n")).collect();
        let text = format!(
            "schema = 'drover.experiment/2'\nid = '{id}'\n{subjects}[factor.{factor}]\nlevels = [1]\n\
             [load.http]\nrate = '{{rate}}'\n"
        );
        toml::from_str(&text).unwrap()
    }

    fn both() -> Vec<Experiment> {
        vec![experiment("a", &["poll", "epoll"], "rate"), experiment("b", &["poll"], "idle")]
    }

    fn ids(chosen: &[(Experiment, Overrides)]) -> Vec<&str> {
        chosen.iter().map(|(experiment, _)| experiment.id.as_str()).collect()
    }

    #[test]
    fn each_experiment_takes_the_subjects_that_it_knows() {
        let subjects = Some(vec!["poll".to_owned(), "epoll".to_owned()]);
        let overrides = Overrides { subjects, ..Overrides::default() };
        let (chosen, notes) = narrow(both(), false, &overrides).unwrap();
        assert_eq!(ids(&chosen), ["a", "b"]);
        assert_eq!(chosen[1].1.subjects.as_deref(), Some(&["poll".to_owned()][..]));
        assert!(notes.is_empty(), "{notes:?}");
        let overrides = Overrides { subjects: Some(vec!["epoll".to_owned()]), ..overrides };
        let (chosen, notes) = narrow(both(), true, &overrides).unwrap();
        assert_eq!(ids(&chosen), ["a"]);
        assert!(notes[0].ends_with(": b."), "{notes:?}");
    }

    #[test]
    fn who_lacks_a_factor_is_left_out_unless_it_is_named() {
        let levels: BTreeMap<_, _> = [("rate".to_owned(), vec![Level::Number(5.0)])].into();
        let overrides = Overrides { levels, ..Overrides::default() };
        assert_eq!(ids(&narrow(both(), false, &overrides).unwrap().0), ["a"]);
        let (chosen, notes) = narrow(both(), true, &overrides).unwrap();
        assert_eq!(ids(&chosen), ["a", "b"]);
        assert!(chosen[1].1.levels.is_empty() && notes[0].contains("--levels rate"), "{notes:?}");
    }

    #[test]
    fn what_no_experiment_has_is_refused_with_the_nearest() {
        let refusal = |overrides| narrow(both(), false, &overrides).unwrap_err();
        let subjects = Some(vec!["poll".to_owned(), "epol".to_owned()]);
        let why = refusal(Overrides { subjects, ..Overrides::default() });
        assert_eq!(why, "--subjects: there is no subject 'epol'; the nearest is 'epoll'");
        let levels = [("rates".to_owned(), Vec::new())].into();
        let why = refusal(Overrides { levels, ..Overrides::default() });
        assert!(why.starts_with("--levels: there is no factor 'rates'"), "{why}");
    }

    #[test]
    fn processors_are_kept_awake_as_the_user_says() {
        let overrides = |keeps| Overrides { keeps_awake: Some(keeps), ..Overrides::default() };
        let instruments = |experiments, keeps| {
            let (chosen, _) = narrow(experiments, false, &overrides(keeps)).unwrap();
            chosen[0].0.instruments.clone()
        };
        assert_eq!(instruments(both(), true), [InstrumentName::IdleGuard]);
        let mut guarded = both();
        guarded[0].instruments = vec![InstrumentName::IdleGuard];
        assert!(instruments(guarded, false).is_empty());
    }
}

//! What of an experiment is run: a preset, changed by the user's flags.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::Level;
use crate::spec::claim::Levels;
use crate::spec::experiment::QUICK;
use crate::spec::factor::CASE;
use crate::spec::setting::{CountSetting, Setting, TimeSetting};
use crate::spec::{Experiment, Preset};

/// The flags of the user, which replace values of a preset; `None` or empty: not given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// How many rounds (`--repeats`).
    pub rounds: Option<u32>,
    /// The shortest window (`--window`).
    pub window: Option<Duration>,
    /// How many events the window has (`--events`).
    pub events: Option<u64>,
    /// Only these subjects.
    pub subjects: Option<Vec<String>>,
    /// The levels of factors. Those of `case` are the names of cases.
    pub levels: BTreeMap<String, Vec<Level>>,
    /// The factor by which request rates are multiplied, including the rates in `levels` (`--rate-scale`).
    pub rate_scale: Option<f64>,
    /// Whether a thread of the lowest class keeps each processor from going idle (`--keep-awake`).
    pub keeps_awake: Option<bool>,
    /// How long all runs together may take (`--budget`).
    pub budget: Option<Duration>,
}

/// A preset, changed by the user's flags.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// The preset's name.
    pub name: String,
    /// The preset that runs.
    pub preset: Preset,
    /// Remarks for readers of the result: what was changed, and which settings have no effect because of that.
    pub notes: Vec<String>,
}

impl Selection {
    /// The preset of that name, with the user's changes. An experiment without presets has one preset, `quick`, with
    /// all cells.
    ///
    /// # Errors
    /// A name that the experiment does not have; the message lists the names that it has.
    pub fn new(
        experiment: &Experiment,
        name: &str,
        overrides: &Overrides,
    ) -> Result<Selection, String> {
        let mut preset = match experiment.presets.get(name) {
            Some(preset) => preset.clone(),
            None if experiment.presets.is_empty() && name == QUICK => Preset::default(),
            None => {
                let names = experiment.presets.keys().map(String::as_str);
                return Err(unknown("preset", name, names));
            }
        };
        let mut notes = Vec::new();
        if let Some(rounds) = overrides.rounds {
            preset.rounds = Some(rounds);
        }
        if let Some(window) = overrides.window {
            preset.window = Some(TimeSetting(Setting::Text(format!("{}us", window.as_micros()))));
            if overrides.events.is_none() {
                // A window that the user has chosen is not extended for its events.
                preset.events = Some(CountSetting(Setting::Number(0.0)));
            }
        }
        if let Some(events) = overrides.events {
            preset.events = Some(CountSetting(Setting::Number(events as f64)));
        }
        if let Some(subjects) = &overrides.subjects {
            choose_subjects(experiment, &mut preset, subjects)?;
        }
        for (factor, levels) in &overrides.levels {
            choose_levels(experiment, &mut preset, factor, levels)?;
        }
        let says_how_much = overrides.rounds.is_some()
            || overrides.window.is_some()
            || overrides.events.is_some()
            || !overrides.levels.is_empty();
        if let Some(scale) = overrides.rate_scale {
            scale_rates(experiment, &mut preset, scale)?;
        }
        if let Some(budget) = overrides.budget {
            preset.budget = Some(TimeSetting(Setting::Text(format!("{}us", budget.as_micros()))));
        } else if preset.budget.is_some() && says_how_much {
            preset.budget = None;
            notes.push(format!(
                "The preset {name} has a time limit, which does not count because you have said how \
                 much to run (--budget sets another one)."
            ));
        }
        if let Some(part) = experiment.slow_in(&preset) {
            notes.push(format!(
                "A server has {part} of its processors' time, so that the load generator is not what limits it: rates are those \
                 of such a server."
            ));
        }
        Ok(Selection { name: name.to_string(), preset, notes })
    }
}

/// Takes these subjects alone.
fn choose_subjects(
    experiment: &Experiment,
    preset: &mut Preset,
    subjects: &[String],
) -> Result<(), String> {
    for subject in subjects {
        if !experiment.subject.contains_key(subject) {
            let names = experiment.subject.keys().map(String::as_str);
            return Err(unknown("subject", subject, names));
        }
    }
    preset.subjects = Some(subjects.to_vec());
    Ok(())
}

/// Takes these levels of a factor; those of the factor `case` are names of cases.
fn choose_levels(
    experiment: &Experiment,
    preset: &mut Preset,
    factor: &str,
    levels: &[Level],
) -> Result<(), String> {
    // Whoever chooses levels wants them of every subject.
    for only in preset.only.values_mut().flatten() {
        only.remove(factor);
    }
    if factor == CASE {
        preset.cases = Some(cases(experiment, levels)?);
        return Ok(());
    }
    if !experiment.factor.contains_key(factor) {
        let names = experiment.factor.keys().map(String::as_str);
        return Err(unknown("factor", factor, names));
    }
    if experiment.case_factors().contains(&factor) {
        return Err(format!("the levels of {factor} are those of the cases: choose a case"));
    }
    preset.levels.insert(factor.to_owned(), levels.to_vec());
    Ok(())
}

/// Multiplies the levels of the factors that set a request rate.
fn scale_rates(experiment: &Experiment, preset: &mut Preset, scale: f64) -> Result<(), String> {
    let of_rates = experiment.rate_factors();
    if of_rates.is_empty() {
        return Err("no factor of it sets a request rate that could be scaled".to_owned());
    }
    for factor in of_rates {
        let own = || experiment.factor.get(factor).map(|it| it.levels.clone()).unwrap_or_default();
        let mut levels = preset.levels.get(factor).cloned().unwrap_or_else(own);
        let scaled = |level: &mut Level| {
            if let Level::Number(rate) = level {
                *rate *= scale;
            }
        };
        levels.iter_mut().for_each(scaled);
        preset.levels.insert(factor.to_owned(), levels);
        for only in preset.only.values_mut().flatten().filter_map(|only| only.get_mut(factor)) {
            match only {
                Levels::One(level) => scaled(level),
                Levels::Any(levels) => levels.iter_mut().for_each(scaled),
            }
        }
    }
    Ok(())
}

/// The names of the cases that the levels name.
fn cases(experiment: &Experiment, levels: &[Level]) -> Result<Vec<String>, String> {
    let name = |level: &Level| {
        let name = level.to_string();
        match experiment.case.iter().any(|case| case.name == name) {
            true => Ok(name),
            false => {
                let names = experiment.case.iter().map(|case| case.name.as_str());
                Err(unknown("case", &name, names))
            }
        }
    };
    levels.iter().map(name).collect()
}

fn unknown<'a>(what: &str, name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.is_empty() {
        true => format!("there is no {what} named {name}: the experiment has none"),
        false => format!("there is no {what} named {name}; there are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment() -> Experiment {
        let text = r#"
            schema = "drover.experiment/2"
            id = "example"
            [subject.a]
            serve = []
            [subject.b]
            serve = []
            [factor.offered]
            levels = [1, 2]
            [load.http]
            [presets.quick]
            rounds = 6
            budget = "20s"
            events = 500
        "#;
        toml::from_str(text).unwrap()
    }

    #[test]
    fn what_the_user_says_wins_and_the_budget_is_said_to_go() {
        let overrides = Overrides {
            rounds: Some(12),
            window: Some(Duration::from_millis(250)),
            levels: [("offered".to_string(), vec![Level::Number(9.0)])].into(),
            subjects: Some(vec!["b".to_string()]),
            ..Overrides::default()
        };
        let selection = Selection::new(&experiment(), QUICK, &overrides).unwrap();
        assert_eq!((selection.preset.rounds(), selection.preset.budget.clone()), (12, None));
        assert!(selection.notes[0].contains("--budget"), "{:?}", selection.notes);
        let cells = experiment().cells(&selection.preset);
        assert_eq!(cells.len(), 1);
        assert_eq!(cells[0].levels["offered"], Level::Number(9.0));
        let events = selection.preset.events.unwrap().resolve(&BTreeMap::new());
        assert_eq!(events, Ok(0));
        let mut both = overrides.clone();
        both.budget = Some(Duration::from_secs(5));
        let preset = Selection::new(&experiment(), QUICK, &both).unwrap().preset;
        let budget = preset.budget.unwrap().resolve(&BTreeMap::new());
        assert_eq!(budget, Ok(Duration::from_secs(5)));
    }

    #[test]
    fn names_that_are_not_there_are_refused_with_those_that_are() {
        let refusal =
            |overrides: Overrides| Selection::new(&experiment(), QUICK, &overrides).unwrap_err();
        let subjects = Some(vec!["c".to_string()]);
        let error = refusal(Overrides { subjects, ..Overrides::default() });
        assert_eq!(error, "there is no subject named c; there are a, b");
        let levels = [("ofered".to_string(), vec![])].into();
        let error = refusal(Overrides { levels, ..Overrides::default() });
        assert!(error.contains("offered"), "{error}");
        let error = Selection::new(&experiment(), "paper", &Overrides::default()).unwrap_err();
        assert!(error.contains("quick"), "{error}");
    }

    #[test]
    fn request_rates_are_scaled_where_a_factor_sets_them() {
        let scaled = Overrides { rate_scale: Some(2.5), ..Overrides::default() };
        let refusal = Selection::new(&experiment(), QUICK, &scaled).unwrap_err();
        assert!(refusal.contains("request rate"), "{refusal}");
        let mut paced = experiment();
        let http = paced.load.http.as_mut().unwrap();
        http.connection_rate = Some(Setting::Text("{offered}".to_owned()));
        let preset = Selection::new(&paced, QUICK, &scaled).unwrap().preset;
        assert_eq!(preset.levels["offered"], [Level::Number(2.5), Level::Number(5.0)]);
    }

    #[test]
    fn levels_of_single_subjects_are_scaled_and_give_way_to_the_user_s() {
        let mut paced = experiment();
        let http = paced.load.http.as_mut().unwrap();
        http.connection_rate = Some(Setting::Text("{offered}".to_owned()));
        let only = BTreeMap::from([("offered".to_owned(), Levels::One(Level::Number(1.0)))]);
        paced.presets[QUICK].only.insert("a".to_owned(), vec![only]);
        let cells = |overrides: Overrides| {
            let preset = Selection::new(&paced, QUICK, &overrides).unwrap().preset;
            let cells = paced.cells(&preset).into_iter();
            cells.map(|cell| (cell.subject, cell.levels["offered"].to_string())).collect::<Vec<_>>()
        };
        let of = |subject: &str, level: &str| (subject.to_owned(), level.to_owned());
        assert_eq!(cells(Overrides::default()), [of("a", "1"), of("b", "1"), of("b", "2")]);
        let scaled = Overrides { rate_scale: Some(2.0), ..Overrides::default() };
        assert_eq!(cells(scaled), [of("a", "2"), of("b", "2"), of("b", "4")]);
        let levels = [("offered".to_owned(), vec![Level::Number(9.0)])].into();
        let chosen = Overrides { levels, ..Overrides::default() };
        assert_eq!(cells(chosen), [of("a", "9"), of("b", "9")]);
    }
}

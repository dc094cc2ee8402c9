//! What an experiment declares: one TOML file under `experiments/`.

use serde::Deserialize;

/// The experiments that come with the program.
const BUILT_IN: &[&str] = &[include_str!("../../../../experiments/dispatch-overhead.toml")];

/// One experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name on the command line.
    pub id: String,
    /// Its name in the report.
    pub title: String,
    /// The document and section that published it.
    pub source: String,
}

impl Experiment {
    /// Every built-in experiment.
    pub fn built_in() -> Vec<Experiment> {
        BUILT_IN
            .iter()
            .map(|text| toml::from_str(text).expect("a built-in experiment parses"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_experiment_parses() {
        assert_eq!(Experiment::built_in()[0].id, "dispatch-overhead");
    }
}

//! The texts of the experiments that come with the program.

/// The experiments that come with the program.
pub(super) const BUILT_IN: &[&str] = &[
    include_str!("../../../../experiments/dispatch-overhead.toml"),
    include_str!("../../../../experiments/raw-file-io.toml"),
    include_str!("../../../../experiments/read-threads.toml"),
    include_str!("../../../../experiments/stat-threads.toml"),
    include_str!("../../../../experiments/cold-readers.toml"),
    include_str!("../../../../experiments/thread-starvation.toml"),
    include_str!("../../../../experiments/buffered-file-io.toml"),
    include_str!("../../../../experiments/access-times.toml"),
    include_str!("../../../../experiments/herd-at-connect.toml"),
    include_str!("../../../../experiments/settle-time.toml"),
    include_str!("../../../../experiments/many-acceptors.toml"),
    include_str!("../../../../experiments/serialized-accept.toml"),
];

#[cfg(test)]
mod tests {
    use crate::lab::experiment::Experiment;

    #[test]
    fn every_built_in_experiment_has_the_three_presets() {
        for experiment in Experiment::built_in() {
            for preset in ["quick", "standard", "paper"] {
                assert!(experiment.preset(preset).is_ok(), "{}: {preset}", experiment.id);
            }
        }
    }

    /// What `drover lab` promises: four minutes, and what it takes to begin and to end them.
    #[test]
    fn all_quick_presets_together_fit_into_four_minutes() {
        let budgets =
            Experiment::built_in().into_iter().map(|e| e.preset("quick").unwrap().budget_s.0);
        let sum: f64 = budgets.sum();
        assert!(sum <= 230.0, "{sum} s");
    }
}

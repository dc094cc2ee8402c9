//! The plan: the cells of an experiment, in rounds.

pub mod estimate;
pub mod limits;
pub mod order;
pub mod room;
pub mod selection;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::hash::hash_bytes;
use crate::model::{Cell, Mark, Sample};
use crate::spec::load::ResolvedWire;
use crate::spec::pool::PoolDisk;
use crate::spec::setting::level_of;
use crate::spec::subject::SubjectKind;
use crate::spec::{Experiment, SubjectSpec};
use estimate::RunPhases;
use limits::MachineLimits;
pub use selection::{Overrides, Selection};

/// The runs of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The experiment's id.
    pub experiment: String,
    /// A hash of everything in the experiment and the preset that decides a run.
    pub experiment_hash: String,
    /// The name of the preset.
    pub preset: String,
    /// The seed of all random choices.
    pub seed: u64,
    /// How many rounds there are.
    pub rounds: u32,
    /// The cells, in the order of the experiment.
    pub cells: Vec<PlannedCell>,
    /// The factors whose levels take turns with each other, as subjects do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turn_over: Vec<String>,
    /// Remarks for the user: what was cut, and which flag helps.
    pub notes: Vec<String>,
    /// The estimated time of all runs, in seconds.
    pub estimate_s: f64,
}

/// A cell, and whether it can be measured here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedCell {
    /// The cell.
    pub cell: Cell,
    /// Why this machine cannot measure the cell, as far as that is known before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_testable: Option<String>,
    /// Whether its server takes turns with those of the cells that are alike.
    #[serde(default)]
    pub takes_turns: bool,
}

impl Plan {
    /// Plans the runs of a selection on a machine with these limits.
    ///
    /// # Errors
    /// [`Failure::Failed`] if nothing is left to run, or a setting of a cell is wrong.
    pub fn new(
        experiment: &Experiment,
        selection: &Selection,
        seed: u64,
        limits: &MachineLimits,
    ) -> Result<Plan, Failure> {
        let preset = &selection.preset;
        let planned = |cell: Cell| {
            let not_testable = limits.obstacle(experiment, &cell);
            PlannedCell { takes_turns: takes_turns(experiment, &cell), not_testable, cell }
        };
        let cells: Vec<PlannedCell> = experiment.cells(preset).into_iter().map(planned).collect();
        if cells.is_empty() {
            return Err(Failure::failed(format!(
                "{} has no cell with the chosen subjects and levels",
                experiment.id
            )));
        }
        let mut per_round = 0.0;
        for cell in cells.iter().filter(|cell| cell.not_testable.is_none()) {
            let phases = RunPhases::of(experiment, preset, &cell.cell.levels)?;
            per_round += phases.estimate_s(&experiment.load, &cell.cell.levels);
        }
        let rounds = preset.rounds().max(1);
        Ok(Plan {
            experiment: experiment.id.clone(),
            experiment_hash: hash(experiment, selection)?,
            preset: selection.name.clone(),
            seed,
            rounds,
            cells,
            turn_over: experiment.phases.turn_over.clone(),
            notes: selection.notes.clone(),
            estimate_s: per_round * f64::from(rounds),
        })
    }

    /// The numbers of the cells that run in a round, in their order.
    #[must_use]
    pub fn order(&self, round: u32) -> Vec<usize> {
        let order = order::order(self.seed, round, self.cells.len());
        order.into_iter().filter(|cell| self.cells[*cell].not_testable.is_none()).collect()
    }

    /// The cells that run in a round, in their order: those of a set together.
    #[must_use]
    pub fn sets(&self, round: u32) -> Vec<Vec<usize>> {
        let mut sets: Vec<Vec<usize>> = Vec::new();
        for cell in self.order(round) {
            let own = &self.cells[cell];
            let is_own = |set: &&mut Vec<usize>| {
                let other = &self.cells[set[0]];
                own.takes_turns && other.takes_turns && self.are_alike(&own.cell, &other.cell)
            };
            match sets.iter_mut().find(is_own) {
                Some(set) => set.push(cell),
                None => sets.push(vec![cell]),
            }
        }
        sets
    }

    /// Whether two cells differ in nothing but what takes turns.
    fn are_alike(&self, one: &Cell, other: &Cell) -> bool {
        let mut levels = one.levels.iter();
        one.levels.len() == other.levels.len()
            && levels.all(|(factor, level)| {
                self.turn_over.contains(factor) || other.levels.get(factor) == Some(level)
            })
    }

    /// A sample without values for every cell that this machine cannot measure. With it, claims about the cell are
    /// "not testable" instead of "not measured".
    #[must_use]
    pub fn unavailable(&self) -> Vec<Sample> {
        let unavailable = |planned: &PlannedCell| {
            let mut sample = Sample::new(planned.cell.clone(), 1);
            sample.failure = Some(planned.not_testable.clone()?);
            sample.validity.insert(Mark::Unavailable);
            Some(sample)
        };
        self.cells.iter().filter_map(unavailable).collect()
    }

    /// How many runs there are.
    #[must_use]
    pub fn runs(&self) -> usize {
        let testable = self.cells.iter().filter(|cell| cell.not_testable.is_none()).count();
        testable * self.rounds as usize
    }

    /// Why a session that began with this plan cannot continue with `other`; a different number of rounds does not
    /// matter.
    #[must_use]
    pub fn differences(&self, other: &Plan) -> Vec<String> {
        let cells = |plan: &Plan| plan.cells.iter().map(|it| it.cell.clone()).collect::<Vec<_>>();
        let checks = [
            (self.experiment != other.experiment, "it is of another experiment"),
            (self.experiment_hash != other.experiment_hash, "the experiment has changed"),
            (self.preset != other.preset, "it was begun with another preset"),
            (self.seed != other.seed, "it was begun with another seed"),
            (cells(self) != cells(other), "it was begun with other subjects or levels"),
        ];
        let found = checks.into_iter().filter(|(differs, _)| *differs);
        found.map(|(_, what)| what.to_string()).collect()
    }
}

/// Whether the server of a cell is driven in turns with others.
fn takes_turns(experiment: &Experiment, cell: &Cell) -> bool {
    let kind = experiment.subject.get(&cell.subject).and_then(SubjectSpec::kind);
    let wire = experiment.wire.as_ref().map(|wire| wire.resolve(level_of(&cell.levels)));
    let mut pools = experiment.pool.values().map(|pool| pool.disk(&cell.levels));
    experiment.phases.turn.is_some()
        && matches!(kind, Some(SubjectKind::Serve(_) | SubjectKind::Command(_)))
        && matches!(wire, None | Some(Ok(ResolvedWire::Loopback)))
        && pools.all(|disk| disk == Ok(PoolDisk::Memory))
}

/// A hash of what decides a run. It covers the experiment without its claims and figures, which may change, and the
/// preset without its number of rounds and its budget.
fn hash(experiment: &Experiment, selection: &Selection) -> Result<String, Failure> {
    let instruments = experiment.instruments();
    let mut experiment = experiment.clone();
    experiment.claim.clear();
    experiment.figure.clear();
    experiment.presets.clear();
    let mut preset = selection.preset.clone();
    (preset.rounds, preset.budget) = (None, None);
    let text = serde_json::to_vec(&(experiment, preset, instruments)).map_err(Failure::failed)?;
    Ok(hash_bytes(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_some_factors_take_turns_as_subjects_do() {
        let text = "schema = 'drover.experiment/2'\nid = 'x'\ntls = '{tls}'\n[subject.a]\nserve = []\n\
                    [subject.b]\nserve = []\n[factor.tls]\nlevels = [0, 1]\n[factor.n]\nlevels = [1, 2, 3]\n\
                    [load.http]\nconnections = '{n}'\n[phases]\nturn = '20ms'\nturn_over = ['tls']\n\
                    [presets.quick]\n";
        let mut experiment: Experiment = toml::from_str(text).unwrap();
        let sets = |experiment: &Experiment| {
            let selection = Selection::new(experiment, "quick", &Overrides::default()).unwrap();
            let limits = MachineLimits::look().unwrap();
            let plan = Plan::new(experiment, &selection, 1, &limits).unwrap();
            let sets = plan.sets(1);
            for set in &sets {
                let level = |cell: &usize| plan.cells[*cell].cell.levels["n"].clone();
                assert!(set.iter().all(|cell| level(cell) == level(&set[0])), "{set:?}");
            }
            sets.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(sets(&experiment), [4, 4, 4]);
        experiment.phases.turn_over.clear();
        assert_eq!(sets(&experiment), [2; 6]);
    }

    #[test]
    fn a_cell_that_cannot_be_measured_here_has_a_sample_that_says_why() {
        let cell = |subject: &str| Cell { subject: subject.to_owned(), levels: Default::default() };
        let planned = |subject, why: Option<&str>| PlannedCell {
            cell: cell(subject),
            not_testable: why.map(str::to_owned),
            takes_turns: false,
        };
        let plan = Plan {
            experiment: "e".to_owned(),
            experiment_hash: String::new(),
            preset: "quick".to_owned(),
            seed: 1,
            rounds: 6,
            cells: vec![planned("poll", None), planned("uring", Some("no io_uring here"))],
            turn_over: Vec::new(),
            notes: Vec::new(),
            estimate_s: 0.0,
        };
        let [sample] = plan.unavailable().try_into().unwrap();
        assert_eq!(sample.cell, cell("uring"));
        assert_eq!(sample.failure.as_deref(), Some("no io_uring here"));
        assert!(sample.validity.contains(&Mark::Unavailable));
        assert_eq!((plan.order(1), plan.runs()), (vec![0], 6));
    }
}

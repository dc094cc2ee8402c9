//! Synthetic records for tests: experiments as text, samples as a function of cell and round.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::calibrate::{
    Calibration, Found, MetricNoise, SCHEMA as CALIBRATION, SlowedServer, Smallest,
};
use crate::claims;
use crate::journal::{Environment, Header, Run, SCHEMA as JOURNAL};
use crate::model::{Cell, Level, Sample};
use crate::plan::{Plan, PlannedCell};
use crate::record::{MeasuredExperiment, RecordedSession, SCHEMA, SessionRecord};
use crate::spec::Experiment;
use crate::spec::metric::BUILT_IN;

/// A record of several experiments. Its claims are not judged as a family yet.
pub(crate) struct Builder {
    record: SessionRecord,
}

impl Builder {
    /// A session without experiments.
    pub(crate) fn new() -> Builder {
        let session = RecordedSession {
            schema: SCHEMA.to_owned(),
            version: "0.1.0".to_owned(),
            command: ["drover", "lab"].map(str::to_owned).to_vec(),
            preset: "quick".to_owned(),
            seed: 7,
            began: 1_800_000_000.0,
            experiments: Vec::new(),
            refused: Vec::new(),
        };
        Builder { record: SessionRecord { folder: PathBuf::new(), session, measured: Vec::new() } }
    }

    /// Adds an experiment with every cell of its preset `quick` in `rounds` rounds. `measure` fills in the sample of
    /// each run.
    pub(crate) fn experiment(
        self,
        text: &str,
        rounds: u32,
        measure: impl Fn(&Cell, u32, &mut Sample),
    ) -> Builder {
        let experiment: Experiment = toml::from_str(text).unwrap();
        self.measured(experiment, rounds, measure)
    }

    /// Adds an experiment that is already parsed.
    pub(crate) fn measured(
        mut self,
        experiment: Experiment,
        rounds: u32,
        measure: impl Fn(&Cell, u32, &mut Sample),
    ) -> Builder {
        let preset = experiment.presets.get("quick").cloned().unwrap_or_default();
        let cells = experiment.cells(&preset);
        let mut runs = Vec::new();
        for round in 1..=rounds {
            for (number, cell) in cells.iter().enumerate() {
                let mut sample = Sample::new(cell.clone(), round);
                measure(cell, round, &mut sample);
                let began = 1_800_000_001.0 + runs.len() as f64;
                runs.push(Run {
                    cell: number,
                    sample,
                    artefacts: Default::default(),
                    began,
                    took_s: 0.9,
                });
            }
        }
        let planned = |cell: Cell| {
            let not_testable = experiment.subject[&cell.subject].unavailable.clone();
            PlannedCell { cell, not_testable, takes_turns: false }
        };
        let plan = Plan {
            experiment: experiment.id.clone(),
            experiment_hash: "0".to_owned(),
            preset: "quick".to_owned(),
            seed: 7,
            rounds,
            cells: cells.into_iter().map(planned).collect(),
            turn_over: Vec::new(),
            notes: Vec::new(),
            estimate_s: 1.0,
        };
        runs.retain(|run| plan.cells[run.cell].not_testable.is_none());
        let machine = [("processor", "Some CPU"), ("processors", "2"), ("memory", "16384000 kB")];
        let environment = Environment {
            kernel: "Linux 6.1.0 #1 x86_64".to_owned(),
            program: "0123456789abcdef".to_owned(),
            machine: machine.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        };
        let header = Header { schema: JOURNAL.to_owned(), plan, environment };
        self.record.session.experiments.push(experiment.id.clone());
        self.record.measured.push(MeasuredExperiment::unjudged(experiment, header, runs));
        self
    }

    /// Adds an experiment that could not be planned.
    pub(crate) fn refused(mut self, id: &str, reason: &str) -> Builder {
        self.record.session.refused.push((id.to_owned(), reason.to_owned()));
        self
    }

    /// Adds an experiment that has not begun.
    pub(crate) fn pending(mut self, id: &str) -> Builder {
        self.record.session.experiments.push(id.to_owned());
        self
    }

    /// The record, judged as one report.
    pub(crate) fn judged(mut self) -> SessionRecord {
        for one in &mut self.record.measured {
            one.judgements = claims::judge_all(&one.experiment, &one.samples());
        }
        self.record
    }
}

/// The text of an experiment with subjects `a`, `b` and `c`, a factor `n`, and claims in TOML.
pub(crate) fn text(id: &str, claims: &str) -> String {
    format!(
        "schema = 'drover.experiment/2'\nid = '{id}'\ntitle = 'Title of {id}'\n\
         [subject.a]\nserve = []\n[subject.b]\nserve = []\n[subject.c]\nserve = []\n\
         [factor.n]\nlevels = [10, 100]\nunit = 'things'\n[load.http]\nconnections = '{{n}}'\n{claims}\n\
         [[figure]]\nid = 'Figure 1'\nmetric = 'response-rate'\nx = 'n'\n\
         published = [{{ subject = 'a', levels = {{ n = 10 }}, value = 90 }}]\n\
         [[figure]]\nid = 'Table 1'\nmetric = 'cpu-per-response'\n"
    )
}

/// A claim that the response rate of `a` ÷ that of `b` is in this region.
pub(crate) fn ratio(id: &str, holds: &str) -> String {
    format!(
        "[[claim]]\nid = '{id}'\ntext = 'Claim {id}.'\nby = 'document'\n\
         effect = {{ ratio = 'response-rate', of = 'a', against = 'b' }}\nholds = {holds}\n"
    )
}

/// Noise of about ± 1. It differs for each cell and round, and is always the same for a cell and round.
pub(crate) fn noise(cell: &Cell, round: u32) -> f64 {
    let level = cell.levels.values().filter_map(Level::number).sum::<f64>();
    let letters: u32 = cell.subject.bytes().map(u32::from).sum();
    let place = [(round, 7919), (letters, 104_729), (level as u32, 1299)];
    let mixed = place.iter().fold(0u32, |sum, (it, by)| sum.wrapping_add(it.wrapping_mul(*by)));
    let mixed = mixed.wrapping_mul(2_654_435_761) >> 8;
    f64::from(mixed % 2000) / 1000.0 - 1.0
}

/// Sets a response rate by subject, with noise of this share, and the CPU time per response.
pub(crate) fn rates(truths: [f64; 3], share: f64) -> impl Fn(&Cell, u32, &mut Sample) {
    move |cell, round, sample| {
        let truth = match cell.subject.as_str() {
            "a" => truths[0],
            "b" => truths[1],
            _ => truths[2],
        };
        let value = truth * (1.0 + share * noise(cell, round));
        sample.values.insert("response-rate".to_owned(), value);
        sample.values.insert("cpu-per-response".to_owned(), 1e6 / value);
    }
}

/// A session of built-in experiments with their preset `quick`, and values for every metric that the experiments can
/// have.
pub(crate) fn quick(ids: &[&str], rounds: u32) -> SessionRecord {
    let mut builder = Builder::new();
    for id in ids {
        let experiment = crate::spec::built_in::experiment(id).unwrap().unwrap();
        let own: Vec<String> = experiment.metric.keys().cloned().collect();
        // Metrics of HTTP loads and servers come first. Stages are measured if a figure needs them.
        let is_http = experiment.load.http.is_some();
        let of_load = if is_http { &BUILT_IN[..21] } else { &BUILT_IN[21..] };
        let of_figures = experiment.figure.iter().map(|figure| figure.metric.clone());
        let named: BTreeSet<String> = of_load
            .iter()
            .map(|metric| metric.name.to_owned())
            .chain(of_figures)
            .chain(own)
            .collect();
        builder = builder.measured(experiment, rounds, |cell, round, sample| {
            let letters: usize = cell.subject.bytes().map(usize::from).sum();
            let truth = 10.0 + (letters % 17) as f64;
            for (place, name) in named.iter().enumerate() {
                let value = truth * (1.0 + place as f64) * (1.0 + 0.03 * noise(cell, round));
                sample.values.insert(name.clone(), value);
            }
        });
    }
    builder.judged()
}

/// A calibration with a metric and a slowed server.
pub(crate) fn calibration() -> Calibration {
    let (workload, metric) = ("saturation".to_owned(), "cpu-per-response".to_owned());
    Calibration {
        schema: CALIBRATION.to_owned(),
        version: "0.1.0".to_owned(),
        began: 1_800_000_000.0,
        seed: 7,
        size: 0.05,
        power: 0.8,
        environment: Environment::default(),
        metrics: vec![MetricNoise {
            workload: workload.clone(),
            metric: metric.clone(),
            title: "CPU per response".to_owned(),
            unit: "µs".to_owned(),
            median: 12.34,
            rounds: 20,
            limited: 0,
            splits: 400,
            split_rounds: 10,
            false_alarms: 0.0475,
            within_rounds: 0.05,
            between_rounds: 0.1,
            smallest: vec![Smallest { rounds: 6, percent: 12.0 }],
        }],
        slowed: vec![SlowedServer {
            workload,
            metric,
            percent: 5.0,
            spin_us: 0.7,
            measured_percent: 5.5,
            interval_percent: (4.5, 6.5),
            found: vec![Found { rounds: 6, subsets: 400, found: 0.7, predicted: 0.6 }],
        }],
    }
}

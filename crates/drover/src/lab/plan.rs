//! From an experiment, a preset and the user's flags to the points that this machine can run.

use std::time::Duration;

use super::claims::FEWEST_REPEATS;
use super::experiment::{Compared, Crowd, Experiment, Preset};
use super::herd::limits::Room;
use super::results::{Ask, Measured, Point, Skipped};
use crate::error::UsageError;

/// Descriptors that a server or a load generator needs beside its connections.
const SPARE_DESCRIPTORS: u64 = 64;

/// What the user's flags put in the place of the preset's values.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `--repeats`
    pub repeats: Option<u32>,
    /// `--rate-scale`
    pub rate_scale: Option<f64>,
    /// `--mechanisms`
    pub mechanisms: Option<Vec<String>>,
    /// `--connections`
    pub connections: Option<Vec<u32>>,
    /// `--rates`
    pub rates: Option<Vec<f64>>,
    /// `--window`
    pub window: Option<Duration>,
    /// `--keep-awake`
    pub awake: Option<bool>,
}

/// Whether a mechanism can be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It can.
    Usable {
        /// As a model of an interface that this kernel does not have.
        model: bool,
    },
    /// It cannot, for this reason.
    Unusable(String),
    /// There is none of that name.
    Unknown,
}

/// What will be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Every point, in order of declaration; each round shuffles them.
    pub points: Vec<Point>,
    /// How often each point is run.
    pub repeats: u32,
    /// The length of each measured window.
    pub window: Duration,
    /// What the published rates are multiplied by.
    pub rate_scale: f64,
    /// Whether the processors are kept from going idle.
    pub awake: bool,
    /// No round is begun that would not end within this time.
    pub budget: Duration,
    /// The mechanisms of the points.
    pub mechanisms: Vec<Measured>,
    /// Mechanisms that this machine cannot run.
    pub skipped: Vec<Skipped>,
    /// Where the machine's limits changed a level.
    pub notes: Vec<String>,
}

impl Plan {
    /// Plans `experiment` at the scale of `preset`.
    ///
    /// `descriptors` is how many a process may open (`None`: any number); `available` tells of each
    /// mechanism by its name; `obstacle` is why nothing of it can be run here.
    ///
    /// # Errors
    /// A [`UsageError`] if the preset or a mechanism is unknown, or nothing is left to run.
    pub fn new(
        experiment: &Experiment,
        preset: &str,
        overrides: &Overrides,
        descriptors: Option<u64>,
        available: impl Fn(&str) -> Availability,
        obstacle: Option<String>,
    ) -> Result<Plan, UsageError> {
        let preset = experiment.preset(preset)?;
        let (mut mechanisms, mut skipped) =
            choose_mechanisms(experiment, preset, overrides, available)?;
        if let Some(reason) = obstacle {
            mechanisms.clear();
            skipped.push(Skipped { name: format!("{} (all of it)", experiment.title), reason });
        }
        let mut notes = Vec::new();
        let published = || preset.connections.0.iter().map(|level| level.get()).collect();
        let wanted = overrides.connections.clone().unwrap_or_else(published);
        let asks = match &overrides.rates {
            Some(_) if !asks_for_replies(preset, experiment) => {
                return Err(UsageError::new(format!(
                    "--rates: experiment {} has none, its connections ask as fast as they can",
                    experiment.id
                )));
            }
            Some(rates) => rates.iter().map(|rate| Ask::Rate(*rate)).collect(),
            None => preset.asks(&experiment.workload),
        };
        let levels = match (&experiment.compares, experiment.workload.crowd) {
            (Compared::Waiters, Some(crowd)) => gather(&wanted, crowd, &asks, &mut notes),
            _ => {
                let levels = fit(&wanted, descriptors, &mut notes);
                let at = |level: u32| asks.iter().map(move |ask| (level, *ask));
                levels.into_iter().flat_map(at).collect()
            }
        };
        let mut points = Vec::new();
        for Measured { name, .. } in &mechanisms {
            let at = |&(connections, ask)| Point { mechanism: name.clone(), connections, ask };
            points.extend(levels.iter().map(at).filter(tells_something));
        }
        if (overrides.repeats.unwrap_or(preset.repeats) as usize) < FEWEST_REPEATS {
            notes.push(format!(
                "With fewer than {FEWEST_REPEATS} repeats nothing has an interval, so no claim is \
                 judged."
            ));
        }
        Ok(Plan {
            points,
            repeats: overrides.repeats.unwrap_or(preset.repeats),
            window: overrides.window.unwrap_or(Duration::from_secs_f64(preset.window_s.0)),
            rate_scale: overrides.rate_scale.unwrap_or(preset.rate_scale.0),
            awake: overrides.awake.unwrap_or(experiment.workload.keeps_awake),
            budget: Duration::from_secs_f64(preset.budget_s.0),
            mechanisms,
            skipped,
            notes,
        })
    }

    /// How many runs there are in all.
    pub fn runs(&self) -> u64 {
        self.points.len() as u64 * u64::from(self.repeats)
    }
}

/// Whether they can be asked for at a rate: not files.
fn asks_for_replies(preset: &Preset, experiment: &Experiment) -> bool {
    let asks = preset.asks(&experiment.workload);
    asks.iter().all(|ask| matches!(ask, Ask::Rate(_) | Ask::Calls(_)))
}

/// The numbers of waiters that there is room for, by what they watch.
fn gather(wanted: &[u32], crowd: Crowd, asks: &[Ask], notes: &mut Vec<String>) -> Vec<(u32, Ask)> {
    let room = Room::look();
    let mut levels = Vec::new();
    for &ask in asks {
        let Ask::Descriptors(descriptors) = ask else { continue };
        let fitting = room.fit(wanted, crowd == Crowd::Processes, descriptors, notes);
        levels.extend(fitting.into_iter().map(|level| (level, ask)));
    }
    levels
}

/// Whether it is a point of its own: those that wait on the socket itself have one descriptor of it.
fn tells_something(point: &Point) -> bool {
    let kind = waiters::kind::by_name(&point.mechanism);
    match point.ask {
        Ask::Descriptors(count) => count == 1 || kind.is_some_and(|kind| kind.watches),
        Ask::Rate(_) | Ask::Calls(_) | Ask::FileBytes(_) | Ask::ColdReaders(_) => true,
    }
}

/// The mechanisms to measure, and those that cannot be.
fn choose_mechanisms(
    experiment: &Experiment,
    preset: &Preset,
    overrides: &Overrides,
    available: impl Fn(&str) -> Availability,
) -> Result<(Vec<Measured>, Vec<Skipped>), UsageError> {
    let published = preset.mechanisms.as_ref().unwrap_or(&experiment.mechanisms);
    let with_peers = || published.iter().chain(&preset.peers).cloned().collect();
    let wanted = overrides.mechanisms.clone().unwrap_or_else(with_peers);
    let (mut mechanisms, mut skipped) = (Vec::new(), Vec::new());
    for name in &wanted {
        let found = match experiment.servers.contains_key(name) {
            true => Availability::Usable { model: false },
            false => available(name),
        };
        match found {
            Availability::Usable { model } => {
                mechanisms.push(Measured { name: name.clone(), model });
            }
            Availability::Unusable(reason) => skipped.push(Skipped { name: name.clone(), reason }),
            Availability::Unknown => {
                return Err(UsageError::new(format!(
                    "--mechanisms: '{name}' is no mechanism; experiment {} knows {}",
                    experiment.id,
                    experiment.mechanisms.join(", ")
                )));
            }
        }
    }
    if mechanisms.is_empty() {
        let reasons: Vec<String> =
            skipped.iter().map(|skip| format!("{}: {}", skip.name, skip.reason)).collect();
        return Err(UsageError::new(format!(
            "--mechanisms: none can be used here ({}); see 'drover mechanisms'",
            reasons.join("; ")
        )));
    }
    Ok((mechanisms, skipped))
}

/// The levels that the descriptor limit allows. What is too many becomes as many as possible, once.
fn fit(wanted: &[u32], descriptors: Option<u64>, notes: &mut Vec<String>) -> Vec<u32> {
    let most = descriptors.map_or(u64::MAX, |limit| limit.saturating_sub(SPARE_DESCRIPTORS).max(1));
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    let (mut levels, too_many): (Vec<u32>, Vec<u32>) =
        wanted.iter().partition(|level| **level <= most);
    if let Some(limit) = descriptors.filter(|_| !too_many.is_empty()) {
        levels.push(most);
        let too_many: Vec<String> = too_many.iter().map(u32::to_string).collect();
        notes.push(format!(
            "{} connections need more descriptors than a process may open here (RLIMIT_NOFILE, hard \
             limit {limit}); {most} were used instead. To raise it: ulimit -Hn, as root.",
            too_many.join(", ")
        ));
    }
    levels.sort_unstable();
    levels.dedup();
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(overrides: &Overrides, descriptors: Option<u64>) -> Result<Plan, String> {
        let experiment = Experiment::parse(include_str!("test-experiment.toml"), "test").unwrap();
        Plan::new(
            &experiment,
            "quick",
            overrides,
            descriptors,
            |name| match name {
                "poll" => Availability::Usable { model: true },
                "epoll" => Availability::Unusable("not today".to_string()),
                _ => Availability::Unknown,
            },
            None,
        )
        .map_err(|error| error.to_string())
    }

    #[test]
    fn points_are_all_combinations_of_usable_levels() {
        let plan = plan(&Overrides::default(), None).unwrap();
        let names: Vec<&str> = plan.mechanisms.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, ["poll", "mine"]);
        assert_eq!(plan.points.len(), 2 * 2 * 2);
        assert_eq!(plan.runs(), 24);
        assert!(plan.mechanisms[0].model && !plan.mechanisms[1].model);
        assert_eq!(plan.skipped[0].reason, "not today");
        assert!(plan.notes.is_empty());
    }

    #[test]
    fn flags_take_the_place_of_levels() {
        let overrides = Overrides {
            repeats: Some(2),
            mechanisms: Some(vec!["poll".to_string()]),
            connections: Some(vec![7]),
            rates: Some(vec![1.0, 2.0, 3.0]),
            rate_scale: Some(10.0),
            window: Some(Duration::from_millis(5)),
            awake: Some(true),
        };
        let plan = plan(&overrides, None).unwrap();
        assert_eq!((plan.points.len(), plan.runs(), plan.rate_scale), (3, 6, 10.0));
        assert_eq!((plan.window, plan.awake), (Duration::from_millis(5), true));
        assert!(plan.notes[0].contains("3 repeats"), "{:?}", plan.notes);
    }

    #[test]
    fn too_many_connections_become_as_many_as_possible_and_are_told() {
        let overrides =
            Overrides { connections: Some(vec![100, 5000, 9000]), ..Overrides::default() };
        let plan = plan(&overrides, Some(1024)).unwrap();
        let levels: Vec<u32> = plan.points.iter().map(|point| point.connections).collect();
        assert!(levels.iter().all(|level| [100, 960].contains(level)), "{levels:?}");
        assert!(plan.notes[0].contains("5000, 9000") && plan.notes[0].contains("960"));
    }

    #[test]
    fn what_cannot_be_run_here_is_skipped_with_its_cause() {
        let usable = |_: &str| Availability::Usable { model: false };
        let experiments = Experiment::built_in();
        let files = experiments.iter().find(|experiment| experiment.id == "raw-file-io").unwrap();
        let planned = |overrides: &Overrides, obstacle: Option<&str>| {
            Plan::new(files, "standard", overrides, None, usable, obstacle.map(str::to_string))
        };
        let plan = planned(&Overrides::default(), None).unwrap();
        assert_eq!(plan.points.len(), 2 * plan.mechanisms.len());
        assert!(plan.points.iter().any(|point| point.ask == Ask::FileBytes(10 << 20)));
        let plan = planned(&Overrides::default(), Some("no /dev/fuse")).unwrap();
        assert_eq!((plan.points.len(), plan.skipped[0].reason.as_str()), (0, "no /dev/fuse"));
        let rates = Overrides { rates: Some(vec![1.0]), ..Overrides::default() };
        assert!(planned(&rates, None).unwrap_err().to_string().contains("--rates"));
    }

    #[test]
    fn processors_are_kept_awake_where_the_experiment_or_the_user_says_so() {
        let usable = |_: &str| Availability::Usable { model: false };
        let is_awake = |id: &str, awake| {
            let experiment = Experiment::find(id).unwrap();
            let overrides = Overrides { awake, ..Overrides::default() };
            Plan::new(&experiment, "quick", &overrides, None, usable, None).unwrap().awake
        };
        assert!(is_awake("cold-readers", None) && !is_awake("cold-readers", Some(false)));
        assert!(!is_awake("raw-file-io", None) && is_awake("raw-file-io", Some(true)));
    }

    #[test]
    fn an_unknown_mechanism_is_answered_with_the_known_ones() {
        let wish = |name: &str| Overrides {
            mechanisms: Some(vec![name.to_string()]),
            ..Overrides::default()
        };
        let error = plan(&wish("epol"), None).unwrap_err();
        assert!(error.contains("'epol'") && error.contains("poll, epoll, mine"), "{error}");
        let error = plan(&wish("epoll"), None).unwrap_err();
        assert!(error.contains("epoll: not today"), "{error}");
    }
}

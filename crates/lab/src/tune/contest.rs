//! A contest: a few rounds of all candidates, cuts, and the rounds of the last candidates.

use super::halving::{self, Out};
use super::knob::Contest;
use super::reading::Contender;
use super::ruling::{Ruling, rule};
use crate::analysis::FEWEST_ROUNDS;
use crate::decide::fit::{RunExtent, TimeBudget, Wanted};

/// How many rounds are measured before each cut.
const ROUNDS: u32 = 2;

/// The size of a contest.
#[derive(Clone, Copy, Debug)]
struct Course {
    /// The most cuts.
    cuts: u32,
    /// The most candidates in the last rounds.
    last: usize,
}

/// The sizes of contests, the longest first. The first one that fits into the time is taken.
const COURSES: [Course; 3] =
    [Course { cuts: 2, last: 3 }, Course { cuts: 1, last: 3 }, Course { cuts: 1, last: 2 }];

/// The most last rounds that are made unless the user asks for more.
const MOST_ROUNDS: u32 = 10;

/// How many loads each candidate is measured at.
const LOADS: usize = 2;

/// What to measure next.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The candidates.
    pub names: Vec<String>,
    /// The number of rounds, and the length of windows.
    pub extent: RunExtent,
    /// The number of earlier steps of the contest.
    pub number: u32,
    /// Whether these are the last candidates.
    pub is_last: bool,
}

impl Course {
    /// The most runs of a contest of this size, for a number of candidates.
    fn runs(self, candidates: usize) -> usize {
        let mut left = candidates;
        let mut runs = 0;
        for _ in 0..self.cuts {
            if left <= self.last {
                break;
            }
            runs += ROUNDS as usize * left;
            left = left.div_ceil(2);
        }
        // Because of noise, a cut may keep more than half.
        LOADS * (runs + FEWEST_ROUNDS * candidates.min(self.last))
    }
}

/// The most runs of a contest for a number of candidates, if there is time.
#[must_use]
pub fn runs(candidates: usize) -> usize {
    COURSES[0].runs(candidates)
}

/// Runs a contest. Windows and last rounds are as `wanted`, or as time allows. `time` returns the time that is left.
/// `measure` measures a step, and returns an entry for each of its names.
///
/// # Errors
/// What `measure` says.
pub fn run_contest<E>(
    contest: &Contest,
    wanted: Wanted,
    time: impl Fn() -> TimeBudget,
    mut measure: impl FnMut(&Step) -> Result<Vec<Contender>, E>,
) -> Result<Ruling, E> {
    let auto = contest.auto.clone();
    let mut names = contest.names.clone();
    let mut out: Vec<Out> = Vec::new();
    let mut seen: Vec<Contender> = Vec::new();
    let mut number = 0;
    let mut step = |names: &[String], extent, is_last| {
        let step = Step { names: names.to_vec(), extent, number, is_last };
        number += 1;
        measure(&step)
    };
    let once = Wanted { rounds: Some(1), ..wanted };
    let has_time = |course: &&Course| time().extent(course.runs(names.len()), once).is_some();
    let Some(mut course) = COURSES.iter().find(has_time).copied() else {
        return Ok(no_time(contest, out));
    };
    for cut in 0..course.cuts {
        if names.len() <= course.last {
            break;
        }
        let rest = Course { cuts: course.cuts - cut, ..course };
        let Some(extent) = time().extent(rest.runs(names.len()), once) else { break };
        let measured = step(&names, RunExtent { rounds: ROUNDS, ..extent }, false)?;
        seen = joined(seen, measured, cut * ROUNDS);
        out.extend(halving::cut(&seen, auto.as_deref()));
        drop_out(&mut names, &mut seen, &out);
    }
    let last_runs = |last: usize| LOADS * FEWEST_ROUNDS * last;
    if names.len().min(course.last) > 2 && time().extent(last_runs(course.last), once).is_none() {
        course.last = 2;
    }
    if names.len() > course.last {
        out.extend(halving::cut_to(&seen, course.last, auto.as_deref()));
        drop_out(&mut names, &mut seen, &out);
    }
    if names.is_empty() {
        return Ok(rule(contest.knob, auto, &[], out));
    }
    let Some(mut extent) = time().extent(LOADS * names.len(), wanted) else {
        return Ok(no_time(contest, out));
    };
    if wanted.rounds.is_none() {
        extent.rounds = extent.rounds.min(MOST_ROUNDS);
    }
    let last = step(&names, extent, true)?;
    Ok(rule(contest.knob, auto, &last, out))
}

fn no_time(contest: &Contest, out: Vec<Out>) -> Ruling {
    let why = format!(
        "there is too little time for {FEWEST_ROUNDS} rounds of the best of {} candidates: --budget gives \
         more, or --only {} all of it",
        contest.names.len(),
        contest.knob.name()
    );
    Ruling { out, ..Ruling::not_measured(contest.knob, contest.auto.clone(), why) }
}

/// The candidates with the measurements of an earlier step and of a later step together.
fn joined(earlier: Vec<Contender>, later: Vec<Contender>, rounds: u32) -> Vec<Contender> {
    let join = |later: Contender| match earlier.iter().find(|it| it.name == later.name) {
        Some(earlier) => {
            let mut both = earlier.clone();
            both.add(&later, rounds);
            both
        }
        None => later,
    };
    later.into_iter().map(join).collect()
}

fn drop_out(names: &mut Vec<String>, seen: &mut Vec<Contender>, out: &[Out]) {
    let is_out = |name: &String| out.iter().any(|out| out.name == *name);
    names.retain(|name| !is_out(name));
    seen.retain(|it| !is_out(&it.name));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::reading::for_test;
    use crate::tune::{Knob, RulingReason};

    const PLENTY: TimeBudget = TimeBudget { left_s: 1000.0, beside_s: 0.3 };

    fn contest(names: &[&str]) -> Contest {
        Contest {
            knob: Knob::Dispatch,
            names: names.iter().map(ToString::to_string).collect(),
            auto: Some(names[0].to_owned()),
            flags: Vec::new(),
            processors: 1,
            calls: None,
        }
    }

    /// A machine on which a candidate's name is its CPU time per response, and its speed is the inverse.
    fn machine(step: &Step, noise: f64) -> Vec<Contender> {
        let contender = |name: &String| {
            let cost: f64 = name.parse().unwrap();
            let noise = |round: u32| 1.0 + noise * f64::from((round * 7 + cost as u32) % 5);
            let costs: Vec<f64> =
                (0..step.extent.rounds).map(|round| cost * noise(round)).collect();
            let speeds: Vec<f64> = costs.iter().map(|cost| 1e6 / cost).collect();
            for_test(name, &costs, &speeds)
        };
        step.names.iter().map(contender).collect()
    }

    fn held(names: &[&str], noise: f64, time: TimeBudget) -> (Ruling, Vec<Step>) {
        let mut steps = Vec::new();
        let ruling = run_contest(
            &contest(names),
            Wanted::default(),
            || time,
            |step| {
                steps.push(step.clone());
                Ok::<_, ()>(machine(step, noise))
            },
        );
        (ruling.unwrap(), steps)
    }

    #[test]
    fn halves_go_until_few_are_left_who_are_measured_anew() {
        let (ruling, steps) = held(&["40", "10", "20", "30", "50", "60", "70", "80"], 0.0, PLENTY);
        assert_eq!((ruling.taken.as_deref(), &ruling.rule), (Some("10"), &RulingReason::Best));
        let sizes: Vec<usize> = steps.iter().map(|step| step.names.len()).collect();
        assert_eq!(sizes, [8, 4, 2], "{steps:?}");
        assert!(steps[2].is_last && steps[2].extent.rounds >= 6);
        // The candidate that auto takes stays to the end.
        assert!(ruling.places.iter().any(|place| place.name == "40"), "{ruling:?}");
        assert_eq!(ruling.out.len(), 6);
    }

    #[test]
    fn noise_keeps_more_and_the_best_three_are_measured_anew() {
        let (_, steps) = held(&["10", "11", "12", "13", "14", "15"], 0.4, PLENTY);
        let sizes: Vec<usize> = steps.iter().map(|step| step.names.len()).collect();
        assert_eq!(sizes, [6, 6, 3]);
        assert_eq!(steps[0].extent, RunExtent { rounds: 2, window_s: 0.5 });
    }

    #[test]
    fn few_candidates_are_measured_at_once() {
        let (ruling, steps) = held(&["10", "20"], 0.0, PLENTY);
        assert_eq!((steps.len(), steps[0].extent.rounds), (1, MOST_ROUNDS));
        assert_eq!(ruling.taken.as_deref(), Some("10"));
    }

    #[test]
    fn time_shortens_windows_and_then_ends_the_contest() {
        // 24 runs in 13.6 s.
        let (_, steps) = held(&["10", "20"], 0.0, TimeBudget { left_s: 16.0, beside_s: 0.3 });
        let extent = steps[0].extent;
        assert!((extent.window_s - 0.2667).abs() < 1e-3 && extent.rounds == 6, "{extent:?}");
        let (ruling, steps) = held(&["10", "20"], 0.0, TimeBudget { left_s: 3.0, beside_s: 0.3 });
        assert!(steps.is_empty() && ruling.taken.is_none());
        assert!(matches!(ruling.rule, RulingReason::NotMeasured(why) if why.contains("--budget")));
        assert_eq!((runs(2), runs(3), runs(8)), (24, 36, 2 * (16 + 8 + 18)));
    }

    #[test]
    fn little_time_is_for_fewer_cuts_and_fewer_last_candidates() {
        let names = ["10", "20", "30", "40", "50", "60", "70", "80"];
        let sizes = |left_s: f64| -> Vec<usize> {
            let (_, steps) = held(&names, 0.0, TimeBudget { left_s, beside_s: 0.3 });
            steps.iter().map(|step| step.names.len()).collect()
        };
        // Each run takes half a second at least, of 85 % of the time.
        assert_eq!(sizes(50.0), [8, 4, 2]);
        assert_eq!(sizes(45.0), [8, 3]);
        assert_eq!(sizes(36.0), [8, 2]);
        assert!(sizes(30.0).is_empty());
    }

    #[test]
    fn who_fails_is_out_with_the_reason() {
        let ruling = run_contest(
            &contest(&["10", "20", "30", "40"]),
            Wanted::default(),
            || PLENTY,
            |step| {
                let mut all = machine(step, 0.0);
                for it in all.iter_mut().filter(|it| it.name == "10") {
                    it.failure = Some("it ended at once".to_owned());
                }
                Ok::<_, ()>(all)
            },
        );
        let ruling = ruling.unwrap();
        assert_eq!(ruling.taken.as_deref(), Some("20"));
        assert_eq!(
            (ruling.out[0].name.as_str(), ruling.out[0].why.as_str()),
            ("10", "it ended at once")
        );
        let all_fail = run_contest(
            &contest(&["10", "20"]),
            Wanted::default(),
            || PLENTY,
            |step| {
                let mut all = machine(step, 0.0);
                all.iter_mut().for_each(|it| it.failure = Some("no".to_owned()));
                Ok::<_, ()>(all)
            },
        );
        assert!(matches!(all_fail.unwrap().rule, RulingReason::NotMeasured(_)));
    }
}

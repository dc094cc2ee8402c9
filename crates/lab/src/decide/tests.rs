//! Decisions from samples whose truth is known.

use super::fit::RunExtent;
use super::*;
use crate::model::{Cell, Level, Mark, Sample};
use crate::record::SessionRecord;
use crate::report::model::Report;
use crate::report::model::answer::{CandidateStanding, Confidence, QuestionAnswer};
use crate::report::terminal::columns;
use crate::report::testing::{Builder, noise};
use crate::spec::Experiment;
use crate::spec::factor::CASE;

/// A candidate with its CPU time per response, in microseconds, at the low rate and at saturation. At saturation the
/// candidate uses a whole processor.
type Truth = (&'static str, f64, f64);

fn question(workers: u64) -> Question {
    Question {
        connections: 20_000,
        active: 0.05,
        response: ResponseKind::Bytes(4096),
        workers,
        lifetime: Lifetime::Long,
    }
}

fn scene(gaps: &[&str]) -> ScaledQuestion {
    ScaledQuestion {
        active: 1000,
        idle: 19_000,
        processors: 1,
        load_threads: 1,
        source: None,
        gaps: gaps.iter().map(ToString::to_string).collect(),
    }
}

/// A session about these candidates, with noise of this share.
fn record(
    axis: Axis,
    truths: &[Truth],
    auto: Option<&str>,
    gaps: &[&str],
    measure: impl Fn(&Cell, u32, &mut Sample),
) -> SessionRecord {
    add(Builder::new(), axis, truths, auto, gaps, measure).judged()
}

fn add(
    builder: Builder,
    axis: Axis,
    truths: &[Truth],
    auto: Option<&str>,
    gaps: &[&str],
    measure: impl Fn(&Cell, u32, &mut Sample),
) -> Builder {
    builder.measured(experiment(axis, truths, auto, gaps), 8, measure)
}

/// The experiment about these candidates.
fn experiment(axis: Axis, truths: &[Truth], auto: Option<&str>, gaps: &[&str]) -> Experiment {
    let (question, scene) = (question(1), scene(gaps));
    let request = DecideRequest {
        question: &question,
        scene: &scene,
        urls: None,
        rates: &[1700.0, 0.0],
        extent: RunExtent { rounds: 8, window_s: 0.5 },
    };
    let candidates = Candidates {
        axis,
        flags: Vec::new(),
        names: truths.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        auto: auto.map(str::to_owned),
    };
    request.experiment(&candidates).unwrap()
}

/// The answer after this many rounds of the candidates.
fn after(rounds: u32, truths: &'static [Truth], share: f64) -> QuestionAnswer {
    let experiment = experiment(Axis::Dispatch, truths, None, &[]);
    let builder = Builder::new().measured(experiment, rounds, yields(truths, share));
    Decision::of(&builder.judged()).unwrap().answers.remove(0)
}

/// Four candidates, of which the fastest is the last one, as on a machine with 20,000 connections.
const FOUR: &[Truth] = &[
    ("epoll", 45.0, 25.0),
    ("epoll-et", 44.0, 24.5),
    ("uring-poll", 46.0, 26.0),
    ("uring", 36.0, 20.0),
];

#[test]
fn the_best_is_taken_after_any_number_of_rounds_with_how_sure_that_is() {
    for rounds in 1..=8 {
        let answer = after(rounds, FOUR, 0.02);
        let choice = answer.choice.unwrap();
        assert_eq!(choice.take.as_deref(), Some("uring"), "{rounds}: {:?}", answer.verdict);
        assert_eq!((choice.flag, choice.rounds), ("--dispatch", rounds as usize));
        let sure = if rounds < 6 { Confidence::FewRounds } else { Confidence::High };
        assert_eq!(choice.confidence, sure, "{rounds}: {:?}", answer.verdict);
        for finding in &answer.findings {
            let names = finding.candidates.iter().map(|it| it.standing);
            let out = names.filter(|it| *it == CandidateStanding::Out).count();
            assert_eq!(out, 0, "{rounds}: {finding:?}");
        }
    }
    let verdict = after(2, FOUR, 0.02).verdict.unwrap();
    let words =
        " Confidence: low, 2 rounds of the 6 that a verdict needs; a longer --budget makes more.";
    assert!(verdict.contains(words), "{verdict}");
    let verdict = after(8, FOUR, 0.02).verdict.unwrap();
    assert!(verdict.contains(" Confidence: high, 95 % in 8 rounds."), "{verdict}");
}

/// A single bad run of the best candidate, of whatever kind, does not lose it the comparison.
#[test]
fn one_run_never_drops_a_candidate() {
    type Spoil = fn(&mut Sample);
    let slow: Spoil = |sample| {
        *sample.values.get_mut("response-rate").unwrap() *= 0.6;
        *sample.values.get_mut("cpu-per-response").unwrap() /= 0.6;
    };
    let cold: Spoil = |sample| {
        sample.validity.insert(Mark::Cold);
    };
    let failed: Spoil = |sample| {
        sample.values.clear();
        sample.failure = Some("connection refused".to_owned());
    };
    for (spoil, rounds) in
        [(slow, 6), (cold, 2), (cold, 6), (cold, 8), (failed, 2), (failed, 6), (failed, 8)]
    {
        let experiment = experiment(Axis::Dispatch, FOUR, None, &[]);
        let builder = Builder::new().measured(experiment, rounds, |cell, round, sample| {
            yields(FOUR, 0.01)(cell, round, sample);
            if round == 1 && cell.subject == "uring" {
                spoil(sample);
            }
        });
        let answer = Decision::of(&builder.judged()).unwrap().answers.remove(0);
        let choice = answer.choice.unwrap();
        assert_eq!(choice.take.as_deref(), Some("uring"), "{rounds}: {:?}", answer.verdict);
    }
}

/// Where the lab itself fails in most runs of the best candidate, the other runs count as they are.
#[test]
fn a_fault_of_the_lab_is_no_verdict_on_a_candidate() {
    for (faults, sure) in [(2, Confidence::High), (5, Confidence::FewRounds)] {
        let experiment = experiment(Axis::Dispatch, FOUR, None, &[]);
        let builder = Builder::new().measured(experiment, 8, |cell, round, sample| {
            yields(FOUR, 0.01)(cell, round, sample);
            if round <= faults && cell.subject == "uring" {
                sample.values.clear();
                sample.validity.insert(Mark::NotMeasured);
                sample.failure = Some("not measured: the server's counters".to_owned());
            }
        });
        let decision = Decision::of(&builder.judged()).unwrap();
        let choice = decision.answers[0].choice.as_ref().unwrap();
        assert_eq!((choice.take.as_deref(), choice.confidence), (Some("uring"), sure));
        assert!(!decision.text(80).contains("failed"), "{decision:?}");
    }
}

#[test]
fn a_session_without_a_steady_run_is_answered() {
    let experiment = experiment(Axis::Dispatch, FOUR, None, &[]);
    let builder = Builder::new().measured(experiment, 2, |cell, round, sample| {
        yields(FOUR, 0.01)(cell, round, sample);
        sample.validity.insert(Mark::Cold);
    });
    let answer = Decision::of(&builder.judged()).unwrap().answers.remove(0);
    let choice = answer.choice.unwrap();
    assert_eq!((choice.take.as_deref(), choice.confidence), (Some("uring"), Confidence::FewRounds));
}

#[test]
fn the_only_candidate_that_works_is_taken() {
    for rounds in [1, 8] {
        let experiment = experiment(Axis::Dispatch, FOUR, None, &[]);
        let builder = Builder::new().measured(experiment, rounds, |cell, round, sample| {
            yields(FOUR, 0.01)(cell, round, sample);
            if cell.subject != "epoll" {
                sample.values.clear();
                sample.failure = Some("no".to_owned());
            }
        });
        let answer = Decision::of(&builder.judged()).unwrap().answers.remove(0);
        let choice = answer.choice.unwrap();
        assert_eq!(
            (choice.take.as_deref(), choice.confidence),
            (Some("epoll"), Confidence::OnlyOne)
        );
        let verdict = answer.verdict.unwrap();
        assert!(
            verdict.starts_with("Take --dispatch epoll: no other could be measured."),
            "{verdict}"
        );
    }
}

#[test]
fn an_axis_that_was_not_begun_is_told() {
    let truths: &'static [Truth] = &[("epoll", 45.0, 20.0), ("uring", 30.0, 15.0)];
    let builder = add(Builder::new(), Axis::Dispatch, truths, None, &[], yields(truths, 0.01));
    let record = builder.refused("decide-accept", "the session's time was over").judged();
    let decision = Decision::of(&record).unwrap();
    let words = "Which accept strategy? Not measured: the session's time was over.";
    assert_eq!(decision.paragraphs[1], words);
    assert_eq!(decision.answers[1].choice.as_ref().unwrap().take, None);
}

/// What a run of a candidate yields.
fn yields(truths: &'static [Truth], share: f64) -> impl Fn(&Cell, u32, &mut Sample) {
    move |cell, round, sample| {
        let (_, low, saturation) = truths.iter().find(|it| it.0 == cell.subject).unwrap();
        let is_low = cell.levels[CASE] == Level::Name(LOW_RATE.to_owned());
        let cost = if is_low { low } else { saturation } * (1.0 + share * noise(cell, round));
        let rate = if is_low { 1700.0 } else { 1e6 / cost };
        for (metric, value) in
            [("cpu-per-response", cost), ("response-rate", rate), ("latency-p99", 0.9)]
        {
            sample.values.insert(metric.to_owned(), value);
        }
    }
}

/// The verdict on a dispatch mechanism, and all that is printed.
fn decided(truths: &'static [Truth], share: f64, auto: Option<&str>) -> (String, String) {
    let record = record(Axis::Dispatch, truths, auto, &[], yields(truths, share));
    let decision = Decision::of(&record).unwrap();
    (decision.answers[0].verdict.clone().unwrap(), decision.paragraphs.join("\n"))
}

#[test]
fn the_best_at_both_loads_is_taken_with_ratio_and_interval() {
    let truths = &[("poll", 90.0, 40.0), ("epoll", 45.0, 20.0), ("uring", 30.0, 15.0)];
    let (verdict, text) = decided(truths, 0.01, Some("uring"));
    assert!(
        verdict.starts_with(
            "Take --dispatch uring: it is the best at both loads. It is what auto takes here, so that no \
             flag is needed. Confidence: high, 95 % in 8 rounds. At the low rate 99 % of its responses came within 0.9 ms"
        ),
        "{verdict}"
    );
    for expected in [
        "At 1700 requests/s: uring is the best: CPU per response 30",
        "More than uring: epoll: 1.5 × (1.4",
        "At saturation: uring is the best: response rate 66",
        "Less than uring: epoll: 0.7",
    ] {
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
}

#[test]
fn an_order_that_differs_is_told_for_both_loads() {
    let truths = &[("epoll", 30.0, 20.0), ("uring", 45.0, 15.0)];
    let (verdict, _) = decided(truths, 0.01, Some("uring"));
    for expected in [
        "The order differs with the load: take --dispatch epoll where the server has time to spare, and \
         --dispatch uring where it is at its limit.",
        "At the low rate the CPU per response of uring is 1.5 × (1.4",
        "that of epoll.",
        "At saturation the response rate of epoll is 0.7",
        "auto takes uring here.",
    ] {
        assert!(verdict.contains(expected), "no {expected:?} in {verdict}");
    }
}

#[test]
fn of_ties_the_simplest_is_named() {
    let truths = &[("uring", 30.0, 15.0), ("poll", 30.0, 15.0), ("epoll", 30.0, 15.0)];
    let (verdict, text) = decided(truths, 0.002, Some("uring"));
    assert!(verdict.starts_with("Take --dispatch epoll: it does not matter between "), "{verdict}");
    assert!(
        verdict.contains("equal within 5 % at both loads, and epoll is the simplest"),
        "{verdict}"
    );
    assert!(verdict.contains(" uring, which auto takes here, is equal."), "{verdict}");
    assert!(text.contains("At saturation: It does not matter between"), "{text}");
    // One of them is the best at one of the loads.
    let truths = &[("epoll", 30.0, 15.0), ("uring", 30.0, 12.0)];
    let (verdict, _) = decided(truths, 0.002, None);
    assert!(
        verdict.starts_with(
            "Take --dispatch uring: the best at saturation, and equal to the best at the low rate."
        ),
        "{verdict}"
    );
}

#[test]
fn noise_is_no_answer_and_no_tie() {
    let truths = &[("epoll", 30.0, 15.0), ("uring", 31.0, 15.5), ("select", 300.0, 90.0)];
    let (verdict, text) = decided(truths, 0.3, None);
    for expected in ["nothing was shown to be better at either load", "could not tell it from "] {
        assert!(verdict.contains(expected), "no {expected:?} in {verdict}");
    }
    assert!(!verdict.contains("select"), "{verdict}");
    assert!(text.contains("This machine could not tell"), "{text}");
}

#[test]
fn where_nothing_can_be_measured_nothing_is_taken() {
    let truths = &[("epoll", 1.0, 1.0), ("uring", 1.0, 1.0)];
    let record = record(Axis::Dispatch, truths, None, &[], |_, _, sample| {
        sample.failure = Some("it did not start".to_owned());
    });
    let decision = Decision::of(&record).unwrap();
    let verdict = decision.answers[0].verdict.as_deref().unwrap();
    assert!(verdict.starts_with("Which dispatch mechanism? This machine could not tell."));
    assert_eq!(decision.answers[0].choice.as_ref().unwrap().confidence, Confidence::None);
    assert!(
        decision.paragraphs[0].contains("8 of 8 runs failed: it did not start"),
        "{decision:?}"
    );
    assert!(!Report::of(&record).has_answers());
}

#[test]
fn one_load_alone_is_said_to_be_alone() {
    let truths: &'static [Truth] = &[("epoll", 45.0, 20.0), ("uring", 30.0, 15.0)];
    let record = record(Axis::Dispatch, truths, None, &[], |cell, round, sample| {
        yields(truths, 0.01)(cell, round, sample);
        if cell.levels[CASE] == Level::Name(LOW_RATE.to_owned()) {
            sample.failure = Some("too slow".to_owned());
        }
    });
    let decision = Decision::of(&record).unwrap();
    let verdict = decision.answers[0].verdict.as_deref().unwrap();
    let expected =
        "Take --dispatch uring, as far as it was measured, at saturation: it is the best.";
    assert!(verdict.starts_with(expected), "{verdict}");
}

/// Where the load is the limit, rates are bounds, and the CPU time per response decides.
#[test]
fn a_load_that_is_the_limit_leaves_the_cost() {
    let truths: &'static [Truth] = &[("epoll", 45.0, 20.0), ("uring", 30.0, 15.0)];
    let record = record(Axis::Dispatch, truths, None, &[], |cell, round, sample| {
        yields(truths, 0.01)(cell, round, sample);
        if cell.levels[CASE] == Level::Name(SATURATION.to_owned()) {
            sample.values.insert("response-rate".to_owned(), 30_000.0);
            sample.validity.insert(Mark::GeneratorLimited);
        }
    });
    let decision = Decision::of(&record).unwrap();
    let text = &decision.paragraphs[0];
    assert!(text.starts_with("Take --dispatch uring: it is the best at both loads."), "{text}");
    let expected = "At saturation, where the load was the limit, by cost: uring is the best: CPU per response 1";
    assert!(text.contains(expected), "{text}");
    assert!(!text.contains("response rate"), "{text}");
}

#[test]
fn what_the_machine_cannot_tell_ends_the_answer_and_stands_on_the_page() {
    let truths: &'static [Truth] = &[("epoll", 45.0, 20.0), ("uring", 30.0, 15.0)];
    let strategies: &'static [Truth] = &[("exclusive", 30.0, 15.0), ("reuseport", 40.0, 20.0)];
    let question = question(16);
    let limits = crate::plan::limits::MachineLimits {
        processors: [0, 1]
            .map(|number| crate::placement::Processor { number, siblings: [number].into() })
            .to_vec(),
        descriptors: 10_000,
        ports: 28_232,
        room: Default::default(),
    };
    let gaps = question.here(&limits).unwrap().gaps;
    let gaps: Vec<&str> = gaps.iter().map(String::as_str).collect();
    let builder =
        add(Builder::new(), Axis::Dispatch, truths, Some("uring"), &gaps, yields(truths, 0.01));
    let record =
        add(builder, Axis::Accept, strategies, None, &gaps, yields(strategies, 0.01)).judged();
    let decision = Decision::of(&record).unwrap();
    let [dispatch, accept, gaps] = decision.paragraphs.as_slice() else { panic!("{decision:?}") };
    assert!(dispatch.starts_with("Take --dispatch uring: "), "{dispatch}");
    assert!(accept.starts_with("Take --accept exclusive: "), "{accept}");
    for expected in [
        "What this machine cannot tell: Measured with 7840 of 20000 connections because the limit of open \
         files is 10000",
        "16 workers have 1 processor (the load has 1) here: what is measured is workers that share processors.",
        "run the same command on a machine of 32 processors",
    ] {
        assert_eq!(gaps.matches(expected).count(), 1, "no {expected:?}, or twice, in {gaps}");
    }
    let text = decision.text(80);
    let widest = text.lines().map(columns).max().unwrap();
    assert!(widest <= 80, "{widest} columns in {text}");
    let report = Report::of(&record);
    assert!(report.has_answers() && report.answers.len() == 2);
    let page = crate::report::page::render(&report);
    for expected in ["Take --dispatch uring: ", "Take --accept exclusive: ", "share processors"] {
        assert!(page.contains(expected), "no {expected:?} on the page");
    }
}

#[test]
fn idle_connections_that_were_closed_are_told() {
    let truths: &'static [Truth] = &[("epoll", 45.0, 20.0), ("uring", 30.0, 15.0)];
    let mut record = record(Axis::Dispatch, truths, None, &[], yields(truths, 0.01));
    let runs = record.measured[0].runs.len();
    for (number, run) in record.measured[0].runs.iter_mut().enumerate() {
        let held = if number == 3 { 15_000 } else { 19_000 };
        run.artefacts =
            serde_json::json!({ "load": { "result": { "connections": { "idle_held": held } } } });
    }
    let decision = Decision::of(&record).unwrap();
    let verdict = decision.answers[0].verdict.as_deref().unwrap();
    let expected = format!(
        " In 1 of {runs} runs fewer than the 19000 idle connections stayed open, 15000 at least."
    );
    assert!(verdict.ends_with(&expected), "{verdict}");
}

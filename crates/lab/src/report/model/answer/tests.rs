//! Answers from values whose truth is known.

use super::compare::{CandidateValues, compare};
use super::{AnswerKind, AnswerRule, CandidateStanding, finding};
use crate::analysis::Bound;
use crate::model::Mark;
use crate::report::testing::{Builder, noise, text};
use crate::spec::metric::Better;

/// Values around a centre. Values of different phases are hardly correlated.
fn around(centre: f64, spread: f64, phase: usize) -> Vec<f64> {
    let noise = [0.0, 1.0, -0.7, 0.4, -1.0, 0.6, -0.3, 0.9];
    (0..8).map(|round| centre * (1.0 + spread * noise[(round * 3 + phase * 5) % 8])).collect()
}

fn judged(
    candidates: &[(&str, f64, f64)],
    better: Better,
    enough: Option<f64>,
) -> (AnswerKind, Vec<(String, CandidateStanding)>) {
    let entries = candidates.iter().enumerate().map(|(phase, (name, centre, spread))| {
        CandidateValues::for_test(name, &around(*centre, *spread, phase), Bound::Exact)
    });
    let compared = compare(entries.collect(), better, enough);
    let standings = compared.candidates.into_iter().map(|it| (it.name, it.standing));
    (compared.outcome, standings.collect())
}

#[test]
fn the_best_wins_where_it_is_told_from_the_others() {
    let candidates = [("a", 30.0, 0.02), ("b", 10.0, 0.02), ("c", 20.0, 0.02)];
    let (outcome, standings) = judged(&candidates, Better::Lower, None);
    assert_eq!(outcome, AnswerKind::Clear);
    assert_eq!(standings[0], ("b".to_owned(), CandidateStanding::Reference));
    assert!(standings[1..].iter().all(|(_, standing)| *standing == CandidateStanding::Worse));
    let (_, standings) = judged(&candidates, Better::Higher, None);
    assert_eq!(standings[0].0, "a");
}

#[test]
fn equals_are_a_tie_and_noise_is_open() {
    let equal = [("a", 10.0, 0.002), ("b", 10.02, 0.002), ("c", 20.0, 0.002)];
    let (outcome, standings) = judged(&equal, Better::Lower, None);
    assert_eq!(outcome, AnswerKind::Tie);
    assert_eq!(standings[1].1, CandidateStanding::Equal);
    // A difference that is shown, and is smaller than what matters.
    let close = [("a", 10.0, 0.0005), ("b", 10.1, 0.0005)];
    assert_eq!(judged(&close, Better::Lower, None).0, AnswerKind::Tie);
    let noisy = [("a", 10.0, 0.4), ("b", 10.5, 0.4)];
    assert_eq!(judged(&noisy, Better::Lower, None).0, AnswerKind::Open);
    let some = [("a", 10.0, 0.1), ("b", 10.3, 0.1), ("c", 50.0, 0.1)];
    assert_eq!(judged(&some, Better::Lower, None).0, AnswerKind::Narrowed);
}

#[test]
fn the_lowest_level_that_is_enough_is_taken() {
    let levels = [("1", 50.0, 0.01), ("4", 92.0, 0.01), ("64", 100.0, 0.01)];
    let (outcome, standings) = judged(&levels, Better::Higher, Some(0.85));
    assert_eq!((outcome, standings[0].0.as_str()), (AnswerKind::Clear, "4"));
    let (_, standings) = judged(&levels, Better::Higher, Some(0.99));
    assert_eq!(standings[0].0, "64");
}

#[test]
fn a_limited_candidate_is_not_ruled_out_by_its_bound() {
    let entries = vec![
        CandidateValues::for_test("limited", &around(50.0, 0.02, 0), Bound::AtLeast),
        CandidateValues::for_test("b", &around(100.0, 0.02, 1), Bound::Exact),
    ];
    let compared = compare(entries, Better::Higher, None);
    let limited = compared.candidates.iter().find(|it| it.name == "limited").unwrap();
    assert_eq!((compared.outcome, limited.standing), (AnswerKind::Open, CandidateStanding::Open));
}

#[test]
fn too_few_rounds_answer_nothing() {
    let entries = vec![
        CandidateValues::for_test("a", &[1.0, 1.0, 1.0], Bound::Exact),
        CandidateValues::for_test("b", &[2.0, 2.0, 2.0], Bound::Exact),
    ];
    assert_eq!(compare(entries, Better::Lower, None).outcome, AnswerKind::NotMeasured);
}

#[test]
fn a_candidate_with_a_value_of_nothing_spoils_no_answer() {
    for better in [Better::Lower, Better::Higher] {
        let mut broken = around(50.0, 0.02, 2);
        broken[3] = 0.0;
        let entries = vec![
            CandidateValues::for_test("a", &around(100.0, 0.02, 0), Bound::Exact),
            CandidateValues::for_test("b", &around(10.0, 0.02, 1), Bound::Exact),
            CandidateValues::for_test("broken", &broken, Bound::Exact),
        ];
        let compared = compare(entries, better, None);
        assert_eq!(compared.outcome, AnswerKind::Clear);
        let last = compared.candidates.last().unwrap();
        assert_eq!((last.name.as_str(), last.standing), ("broken", CandidateStanding::Out));
        assert!(last.reason.as_deref().unwrap().contains("0 in 1 of 8"), "{last:?}");
    }
}

/// 4 is enough and 16 is the best. 8 is worse than 16, and the sentence must not say that 8 gives less than 4.
#[test]
fn what_is_better_than_what_is_enough_is_not_called_less() {
    let text = text("one", "").replace("levels = [10, 100]", "levels = [1, 4, 8, 16]");
    let record = Builder::new()
        .experiment(&text, 8, |cell, round, sample| {
            let rates = [(1.0, 50.0), (4.0, 90.0), (8.0, 95.0), (16.0, 100.0)];
            let level = cell.levels["n"].number().unwrap();
            let truth = rates.iter().find(|it| it.0 == level).unwrap().1;
            let value = truth * (1.0 + 0.002 * noise(cell, round));
            sample.values.insert("response-rate".to_owned(), value);
        })
        .judged();
    let measured = &record.measured[0];
    let rule = "experiment = 'one'\nmetric = 'response-rate'\nchoose = 'n'\nwhen = 'now'\n\
                enough = 0.85\nwithout = ['b', 'c']";
    let rule: AnswerRule = toml::from_str(rule).unwrap();
    let finding = finding(&rule, measured, &rule.places(measured)[0]);
    assert!(finding.sentence().starts_with("n 4 is enough"), "{}", finding.sentence());
    assert!(finding.sentence().contains("Less than 4: 1: 0.5"), "{}", finding.sentence());
    assert!(!finding.sentence().contains("8: "), "{}", finding.sentence());
}

/// Rounds of a are so far apart that nothing is shown of it, not even that it has half of what b has.
#[test]
fn what_noise_alone_keeps_in_the_race_is_not_recommended() {
    for (of_a, taken) in [(50.0, "Take b"), (98.0, "Take a")] {
        let record = Builder::new()
            .experiment(&text("one", ""), 8, |cell, round, sample| {
                let swing = if round % 2 == 0 { 2.5 } else { 0.4 };
                let value = match cell.subject.as_str() {
                    "a" => of_a * swing,
                    "b" => 100.0 * (1.0 + 0.01 * noise(cell, round)),
                    _ => 10.0 * (1.0 + 0.01 * noise(cell, round)),
                };
                sample.values.insert("response-rate".to_owned(), value);
            })
            .judged();
        let measured = &record.measured[0];
        let rule = "experiment = 'one'\nmetric = 'response-rate'\nchoose = 'subject'\nwhen = 'now'";
        let rule: AnswerRule = toml::from_str(rule).unwrap();
        let finding = finding(&rule, measured, &rule.places(measured)[0]);
        assert_eq!(finding.outcome, AnswerKind::Narrowed);
        assert!(finding.headline.starts_with(taken), "{}", finding.headline);
    }
}

/// Too few events leave out percentiles only. A window that was not steady leaves out every metric.
#[test]
fn only_a_mark_that_leaves_runs_out_is_blamed() {
    for (mark, expected) in [
        (Mark::FewEvents, "3 rounds count, 6 are needed"),
        (Mark::Cold, "no run counts (not steady in 3 of 3)"),
    ] {
        let record = Builder::new()
            .experiment(&text("one", ""), 3, |_, _, sample| {
                sample.values.insert("response-rate".to_owned(), 10.0);
                sample.validity.insert(mark);
            })
            .judged();
        let measured = &record.measured[0];
        let rule = "experiment = 'one'\nmetric = 'response-rate'\nchoose = 'subject'\nwhen = 'now'";
        let rule: AnswerRule = toml::from_str(rule).unwrap();
        let finding = finding(&rule, measured, &rule.places(measured)[0]);
        assert!(finding.sentence().contains(expected), "{}", finding.sentence());
    }
}

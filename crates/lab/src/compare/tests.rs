//! Tests of the comparison from synthetic records.

use std::collections::BTreeMap;

use super::*;
use crate::analysis::Bound;
use crate::claims::Reason;
use crate::report::testing::{Builder, quick, rates, ratio as claim, text};

/// A session of one experiment with three subjects at two levels, and noise of its own for each `seed`.
/// `change` has the last word on each sample.
fn session(rounds: u32, seed: u32, change: impl Fn(&Cell, u32, &mut Sample)) -> SessionRecord {
    let text = text("one", &claim("x", "{ above = 1.5 }"));
    let builder = Builder::new().experiment(&text, rounds, |cell, round, sample| {
        rates([200.0, 100.0, 50.0], 0.02)(cell, 1000 * seed + round, sample);
        change(cell, round, sample);
    });
    builder.judged()
}

fn unchanged(_: &Cell, _: u32, _: &mut Sample) {}

/// Everything in `b` at 100 is slower by a fifth.
fn slower(cell: &Cell, _: u32, sample: &mut Sample) {
    if cell.subject == "b" && cell.levels["n"].number() == Some(100.0) {
        *sample.values.get_mut("response-rate").unwrap() *= 0.8;
        *sample.values.get_mut("cpu-per-response").unwrap() /= 0.8;
    }
}

/// The ratios of a metric by the names of their cells.
fn by_cell<'c>(other: &'c OtherSession, metric: &str) -> BTreeMap<&'c str, &'c CellRatio> {
    let rows = other.ratios.iter().filter(|row| row.metric == metric);
    rows.map(|row| (row.name.as_str(), row)).collect()
}

/// Words without the line ends between them.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn equal_sessions_do_not_differ() {
    let (base, other) = (session(8, 1, unchanged), session(10, 2, unchanged));
    let comparison = SessionComparison::of(&base, &[other], &[]);
    let [other] = &comparison.others[..] else { panic!("one") };
    assert_eq!(other.ratios.len(), 12);
    for row in &other.ratios {
        assert_eq!(row.standing, SessionStanding::Equal, "{row:?}");
        assert_eq!((row.base_rounds, row.other_rounds), (8, 10));
    }
    assert!(other.environment.is_empty() && other.failures.is_empty());
    let text = table(&comparison, false);
    assert!(text.contains("12 comparisons in 6 cells: 0 worse, 0 better, 12 equal within 5 %"));
    assert!(text.contains("Same kernel, program, processors and experiments."), "{text}");
    assert!(
        !text.contains("b, n 100 things") && table(&comparison, true).contains("b, n 100 things"),
        "{text}"
    );
    // A session beside itself is the same to the last digit.
    let comparison = SessionComparison::of(&base, std::slice::from_ref(&base), &[]);
    let same = |row: &CellRatio| row.ratio.unwrap().value == 1.0 && row.p == Some(1.0);
    assert!(comparison.others[0].ratios.iter().all(same));
}

#[test]
fn what_is_slower_by_a_fifth_is_found_and_named() {
    let (base, other) = (session(8, 1, unchanged), session(8, 2, slower));
    let comparison = SessionComparison::of(&base, &[other], &[]);
    let worse: Vec<(&str, &str)> = comparison.others[0]
        .ratios
        .iter()
        .filter(|row| row.standing.differs())
        .map(|row| (row.name.as_str(), row.metric.as_str()))
        .collect();
    assert_eq!(
        worse,
        [("b, n 100 things", "response-rate"), ("b, n 100 things", "cpu-per-response")]
    );
    let row = by_cell(&comparison.others[0], "response-rate")["b, n 100 things"];
    assert_eq!(row.standing, SessionStanding::Worse);
    assert!((row.ratio.unwrap().value - 0.8).abs() < 0.02, "{row:?}");
    let text = table(&comparison, false);
    assert!(
        text.contains("one: response-rate (1/s, higher is better)\n  b, n 100 things"),
        "{text}"
    );
    assert_eq!(text.lines().filter(|line| line.ends_with("  worse")).count(), 2, "{text}");
    assert!(text.contains("2 worse, 0 better, 10 equal"), "{text}");
}

#[test]
fn a_condition_is_met_by_whole_intervals_and_names_the_cells() {
    let (base, other) = (session(8, 1, unchanged), session(8, 2, slower));
    let one = SessionComparison::of(&base, std::slice::from_ref(&other), &[]);
    let met = |text: &str, comparison: &SessionComparison| {
        text.parse::<Condition>().unwrap().met_by(comparison)
    };
    let found = met("response-rate < 0.95", &one);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("one: b, n 100 things: 0.") && found[0].contains(" … "),
        "{found:?}"
    );
    assert_eq!(met("cpu-per-response > 1.1", &one).len(), 1);
    for never in ["response-rate < 0.7", "response-rate > 1.1", "memory < 0.95"] {
        assert_eq!(met(never, &one), Vec::<String>::new(), "{never}");
    }
    assert_eq!(met("response-rate > 0.95", &one).len(), 5);
    assert_eq!(one.compared_metrics(), BTreeSet::from(["response-rate", "cpu-per-response"]));
    // Of several sessions the one is named.
    let mut named = other.clone();
    named.folder = "elsewhere".into();
    let several = SessionComparison::of(&base, &[base.clone(), named], &[]);
    let found = met("response-rate < 0.95", &several);
    assert!(found[0].starts_with("one: b, n 100 things in elsewhere: 0."), "{found:?}");
}

#[test]
fn bounds_and_failures_are_not_comparable_and_say_why() {
    let limited = |cell: &Cell, round: u32, sample: &mut Sample| match cell.subject.as_str() {
        "a" => sample.validity.extend([Mark::GeneratorLimited]),
        "b" if round <= 5 => {
            sample.values.clear();
            sample.failure = Some("it fell over".to_owned());
        }
        "c" if round <= 3 => sample.validity.extend([Mark::Cold]),
        _ => {}
    };
    let (base, other) = (session(8, 1, unchanged), session(8, 2, limited));
    let comparison = SessionComparison::of(&base, std::slice::from_ref(&other), &[]);
    let other_side = &comparison.others[0];
    let rows = by_cell(other_side, "response-rate");
    let why = |name: &str| {
        assert_eq!(rows[name].standing, SessionStanding::NotComparable, "{name}");
        let why = rows[name].why.as_ref().unwrap();
        assert_eq!(why.session, Party::Other, "{name}");
        &why.reason
    };
    // A rate that is at least as good as before may be better by any factor.
    assert_eq!(rows["a, n 10 things"].bound, Bound::AtLeast);
    assert_eq!(rows["a, n 10 things"].ratio.unwrap().high, f64::INFINITY);
    assert!(matches!(why("a, n 10 things"), Reason::Bounded { of: 8, .. }));
    assert!(matches!(why("b, n 10 things"), Reason::Failed { runs: 5, of: 8, .. }));
    assert!(matches!(why("c, n 10 things"), Reason::Unusable { mark: Mark::Cold, rounds: 5, .. }));
    // The price of a response does not depend on the generator.
    let prices = by_cell(other_side, "cpu-per-response");
    assert_eq!(prices["a, n 10 things"].standing, SessionStanding::Equal);
    let failures: Vec<_> = other_side.failures.iter().map(|it| (&it.name[..], it.other)).collect();
    assert_eq!(failures, [("b, n 10 things", [5, 8]), ("b, n 100 things", [5, 8])]);
    let text = in_one_line(&table(&comparison, false));
    for expected in [
        "2 equal within 5 %, 10 not comparable ",
        "2 not comparable: in OTHER, the load generator was at its limit in 8 of 8 runs, so",
        "4 not comparable: in OTHER, 5 of 8 runs failed: it fell over (first: one: b, n 10 things,",
        "! one: b, n 10 things: 5 of 8 runs failed in OTHER, 0 of 8 in BASE: it fell over",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    // Limits on both sides leave nothing; one that was exceeded all the same is a difference.
    let both = SessionComparison::of(&other, std::slice::from_ref(&other), &[]);
    let row = by_cell(&both.others[0], "response-rate")["a, n 10 things"];
    assert_eq!((row.ratio, row.p, row.standing), (None, None, SessionStanding::NotComparable));
    assert_eq!(row.why.as_ref().unwrap().session, Party::Both);
    let doubled = session(8, 2, |cell, round, sample| {
        limited(cell, round, sample);
        sample.values.values_mut().for_each(|value| *value *= 2.0);
    });
    let comparison = SessionComparison::of(&base, &[doubled], &[]);
    let row = by_cell(&comparison.others[0], "response-rate")["a, n 10 things"];
    assert_eq!((row.standing, row.ratio.unwrap().high), (SessionStanding::Better, f64::INFINITY));
}

#[test]
fn zeros_are_equal_to_zeros_and_comparable_with_nothing_else() {
    let zero = |of: &'static str| {
        move |cell: &Cell, _: u32, sample: &mut Sample| {
            if of.contains(cell.subject.as_str()) {
                sample.values.insert("response-rate".to_owned(), 0.0);
            }
        }
    };
    let (base, other) = (session(8, 1, zero("a b")), session(8, 2, zero("b")));
    let comparison = SessionComparison::of(&base, &[other], &["response-rate".to_owned()]);
    let rows = by_cell(&comparison.others[0], "response-rate");
    assert_eq!(
        (rows["b, n 10 things"].standing, rows["b, n 10 things"].ratio),
        (SessionStanding::Equal, None)
    );
    assert_eq!(rows["a, n 10 things"].standing, SessionStanding::NotComparable);
    let why = Obstacle { session: Party::Base, reason: Reason::NoNumber };
    assert_eq!(rows["a, n 10 things"].why, Some(why));
    let text = table(&comparison, true);
    assert!(text.contains("0 in both"), "{text}");
    assert!(!text.contains("cpu-per-response"), "{text}");
}

/// The ratios of all sessions are one family: the more there are, the more each has to show.
#[test]
fn the_more_ratios_the_more_each_has_to_show() {
    let (base, other) = (session(8, 1, unchanged), session(8, 2, slower));
    let least = |others: &[SessionRecord]| {
        let comparison = SessionComparison::of(&base, others, &[]);
        let all = comparison.others.iter().flat_map(|other| &other.ratios);
        let tested: Vec<(f64, f64)> = all
            .map(|row| {
                let adjusted = row.adjusted_p.unwrap();
                let is_decided =
                    matches!(row.standing, SessionStanding::Worse | SessionStanding::Better);
                assert_eq!(is_decided, adjusted <= FALSE_ALARMS, "{row:?}");
                (row.p.unwrap(), adjusted)
            })
            .collect();
        let (p, adjusted) = tested.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        assert!((adjusted / (tested.len() as f64 * p) - 1.0).abs() < 1e-9);
        adjusted
    };
    let (alone, beside) = (least(std::slice::from_ref(&other)), least(&[other, base.clone()]));
    assert!((beside / alone - 2.0).abs() < 1e-9, "{alone} {beside}");
}

#[test]
fn what_its_own_interval_alone_finds_has_a_question_mark() {
    // Half as fast, give or take so much that six rounds among six ratios do not decide.
    let rough = |cell: &Cell, round: u32, sample: &mut Sample| {
        if (cell.subject.as_str(), cell.levels["n"].number()) == ("a", Some(10.0)) {
            let value = [60.0, 160.0, 70.0, 150.0, 65.0, 145.0][round as usize - 1];
            sample.values.insert("response-rate".to_owned(), value);
        }
    };
    let (base, other) = (session(6, 1, unchanged), session(6, 2, rough));
    let comparison = SessionComparison::of(&base, &[other], &["response-rate".to_owned()]);
    let row = by_cell(&comparison.others[0], "response-rate")["a, n 10 things"];
    assert!(row.p.unwrap() > FALSE_ALARMS / 6.0 && row.ratio.unwrap().high < 0.95, "{row:?}");
    assert_eq!(row.standing, SessionStanding::WorseAlone);
    assert!(table(&comparison, false).contains("1 worse?, 5 equal"), "{row:?}");
}

#[test]
fn only_what_both_have_is_compared_and_the_rest_is_told() {
    let measure = |cell: &Cell, round: u32, sample: &mut Sample| {
        rates([200.0, 100.0, 50.0], 0.02)(cell, round, sample);
    };
    let small = text("one", "").replace("levels = [10, 100]", "levels = [10]");
    let base = Builder::new().experiment(&text("one", ""), 6, measure);
    let base = base.experiment(&text("two", ""), 6, measure).judged();
    let mut other = Builder::new().experiment(&small, 6, measure).judged();
    other.measured[0].header.plan.experiment_hash = "1".to_owned();
    other.measured[0].header.environment.kernel = "Linux 6.2.0 #1 x86_64".to_owned();
    let comparison = SessionComparison::of(&base, std::slice::from_ref(&other), &[]);
    let found = &comparison.others[0];
    let shared = &found.experiments[0];
    assert_eq!((shared.cells, shared.only_base, shared.only_other), (3, 3, 0));
    assert_eq!((found.ratios.len(), &found.only_base[..]), (6, &["two".to_owned()][..]));
    let text = in_one_line(&table(&comparison, false));
    for expected in [
        "the kernel was Linux 6.1.0 #1 x86_64, here it is Linux 6.2.0 #1 x86_64",
        "one: the experiment, or what of it was run, is another one (hash 0 then, 1 now)",
        "one: cells in BASE only: 3 experiments in BASE only: two",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    let names = metrics(&base, &[other]);
    assert_eq!(names, BTreeSet::from(["cpu-per-response", "response-rate"].map(str::to_owned)));
    let data = serde_json::to_value(&comparison).unwrap();
    assert_eq!(data["schema"], SCHEMA);
    assert_eq!(data["others"][0]["ratios"][0]["standing"], "equal");
    assert_eq!(data["others"][0]["ratios"][0]["cell"]["subject"], "a");
}

#[test]
fn tables_fit_80_columns() {
    let base = quick(&["settle-time", "raw-file-io"], 6);
    let mut other = base.clone();
    other.folder = "a/folder/with/a/long/name/".repeat(5).into();
    for (number, run) in other.measured.iter_mut().flat_map(|one| &mut one.runs).enumerate() {
        let factor = [1e-4, 1.0, 1e9, 0.0][number % 4];
        run.sample.values.values_mut().for_each(|value| *value *= factor * (number % 7) as f64);
        if number % 11 == 0 {
            run.sample.failure = Some("no such luck ".repeat(12));
        }
    }
    let comparison = SessionComparison::of(&base, &[other, base.clone()], &[]);
    for shows_all in [false, true] {
        for line in table(&comparison, shows_all).lines() {
            let columns = crate::report::terminal::columns(line);
            assert!(columns <= 80, "{columns} columns: {line}");
        }
    }
}

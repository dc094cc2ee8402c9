//! Tests of histories of synthetic sessions.

use super::*;
use crate::model::{Mark, Sample};
use crate::record::SessionRecord;
use crate::report::testing::{Builder, noise, rates, ratio as claim, text};

const DAY: f64 = 86_400.0;

/// The session of a day: three subjects at two levels, each day's values a per cent or so beside another's.
/// `change` has the last word on each sample.
fn session(day: u32, change: impl Fn(&Cell, u32, &mut Sample)) -> SessionRecord {
    let text = text("one", &claim("x", "{ above = 1.5 }"));
    let builder = Builder::new().experiment(&text, 6, |cell, round, sample| {
        let truths = [200.0, 100.0, 50.0].map(|it| it * (1.0 + 0.01 * noise(cell, 777 * day)));
        rates(truths, 0.02)(cell, 1000 * day + round, sample);
        change(cell, round, sample);
    });
    let mut record = builder.judged();
    record.session.began += DAY * f64::from(day);
    record.folder = format!("runs/day-{day}").into();
    record
}

fn unchanged(_: &Cell, _: u32, _: &mut Sample) {}

fn is_b_at_100(cell: &Cell) -> bool {
    cell.subject == "b" && cell.levels["n"].number() == Some(100.0)
}

/// Subject `b` at 100 is slower by a fifth.
fn slower(cell: &Cell, _: u32, sample: &mut Sample) {
    if is_b_at_100(cell) {
        *sample.values.get_mut("response-rate").unwrap() *= 0.8;
        *sample.values.get_mut("cpu-per-response").unwrap() /= 0.8;
    }
}

/// A session for each of so many days, slow on those days.
fn days(count: u32, slow: std::ops::Range<u32>) -> Vec<HistoryEntry> {
    let of_day = |day: u32| match slow.contains(&day) {
        true => session(day, slower),
        false => session(day, unchanged),
    };
    (0..count).map(|day| HistoryEntry::of(&of_day(day)).unwrap()).collect()
}

/// Every change: where it is, in which session, and the direction.
fn changes<'h>(history: &'h History) -> Vec<(&'h str, &'h str, usize, SessionStanding)> {
    let of = |one: &'h Series| {
        let (name, metric) = (one.name.as_str(), one.metric.as_str());
        one.changes.iter().map(move |it| (name, metric, it.session, it.standing))
    };
    history.series.iter().flat_map(of).collect()
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_slower_since_a_day_is_found_with_its_day() {
    let history = History::of(days(12, 9..12), &[]);
    assert_eq!(history.series.len(), 12);
    let b = "b, n 100 things";
    let expected = [
        (b, "response-rate", 9, SessionStanding::Worse),
        (b, "cpu-per-response", 9, SessionStanding::Worse),
    ];
    assert_eq!(changes(&history), expected);
    let change = &history.series.iter().find(|one| !one.changes.is_empty()).unwrap().changes[0];
    assert!((change.ratio.value - 0.8).abs() < 0.02, "{change:?}");
    assert!((change.before - 100.0).abs() < 3.0 && (change.after - 80.0).abs() < 3.0, "{change:?}");
}

#[test]
fn what_was_slower_for_some_days_is_told_twice() {
    let b = "b, n 100 things";
    let history = History::of(days(15, 6..10), &[String::from("response-rate")]);
    let expected = [
        (b, "response-rate", 6, SessionStanding::Worse),
        (b, "response-rate", 10, SessionStanding::Better),
    ];
    assert_eq!(changes(&history), expected);
    assert_eq!(history.metrics(), BTreeSet::from(["response-rate"]));
}

#[test]
fn equal_days_and_single_bad_days_are_no_change() {
    for slow in [0..0, 5..6, 11..12, 4..6] {
        assert_eq!(changes(&History::of(days(12, slow.clone()), &[])), [], "{slow:?}");
    }
    assert!(History::of(days(5, 2..5), &[]).series.iter().all(|one| one.p.is_none()));
    assert_eq!(History::of(Vec::new(), &[]).series.len(), 0);
}

#[test]
fn sessions_are_in_the_order_of_time_whenever_they_were_added() {
    let mut entries = days(12, 9..12);
    entries.reverse();
    entries.swap(3, 7);
    let history = History::of(entries, &[]);
    assert_eq!(changes(&history).len(), 2);
    assert_eq!(history.sessions[0].name, "day-0");
    assert_eq!(history.sessions[9].name, "day-9");
}

#[test]
fn bounds_failures_and_other_presets_are_left_out() {
    let limited = |cell: &Cell, round: u32, sample: &mut Sample| match cell.subject.as_str() {
        "a" => sample.validity.extend([Mark::GeneratorLimited]),
        "b" if round <= 5 => {
            sample.values.clear();
            sample.failure = Some("it fell over".to_owned());
        }
        _ => {}
    };
    let mut entries = days(8, 0..0);
    entries.push(HistoryEntry::of(&session(8, limited)).unwrap());
    let mut other = HistoryEntry::of(&session(3, slower)).unwrap();
    other.preset = "standard".to_owned();
    entries.push(other);
    let history = History::of(entries, &[]);
    assert_eq!((history.sessions.len(), history.other_presets), (9, 1));
    let sessions = |subject: &str, metric: &str| {
        let is_it = |one: &&Series| one.cell.subject == subject && one.metric == metric;
        history.series.iter().find(is_it).unwrap().medians.len()
    };
    // A generator at its limit bounds the rate, and leaves the price of a response as it is.
    assert_eq!((sessions("a", "response-rate"), sessions("a", "cpu-per-response")), (8, 9));
    assert_eq!((sessions("b", "response-rate"), sessions("c", "response-rate")), (8, 9));
    // The newest session is the one without them, and a failure is no silent matter.
    let text = in_one_line(&table(&history, false));
    let lost = "! 6 of them without a value in day-8, which the session before had";
    assert!(
        text.contains(lost) && text.contains("(first: one: a, n 10 things, response-rate)"),
        "{text}"
    );
}

#[test]
fn a_session_that_has_not_ended_is_refused_with_the_remedy() {
    let mut record = session(0, unchanged);
    record.measured[0].runs.pop();
    let told = HistoryEntry::of(&record).unwrap_err();
    assert!(told.contains("'drover lab run --resume runs/day-0'"), "{told}");
    record.measured.clear();
    assert!(
        HistoryEntry::of(&record).unwrap_err().contains("no experiment of this session has begun")
    );
}

#[test]
fn a_condition_is_met_by_the_newest_level_until_it_is_accepted() {
    let history = History::of(days(12, 9..12), &[]);
    let met = |history: &History, condition: &str, since: &str| {
        history.met(&condition.parse().unwrap(), since.parse().unwrap())
    };
    // The first day is 2027-01-15.
    let found = met(&history, "response-rate < 0.95", "2027-01-24");
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("one: b, n 100 things: 0."), "{found:?}");
    assert!(found[0].ends_with(" since day-9"), "{found:?}");
    assert_eq!(met(&history, "cpu-per-response > 1.1", "2027-01-01").len(), 1);
    for never in ["response-rate < 0.7", "response-rate > 1.1", "memory < 0.95"] {
        assert_eq!(met(&history, never, "2027-01-01"), Vec::<String>::new(), "{never}");
    }
    assert_eq!(met(&history, "response-rate < 0.95", "2027-01-25"), Vec::<String>::new());
    // What has become good again meets nothing.
    let again = History::of(days(15, 6..10), &[]);
    assert_eq!(met(&again, "response-rate < 0.95", "2027-01-01"), Vec::<String>::new());
    assert_eq!(met(&again, "response-rate > 1.1", "2027-01-01").len(), 1);
}

#[test]
fn the_table_names_the_session_and_what_was_new_in_it() {
    let mut entries = days(12, 9..12);
    entries[9].environment.kernel = "Linux 6.2.0 #1 x86_64".to_owned();
    entries[10].environment.kernel = "Linux 6.2.0 #1 x86_64".to_owned();
    entries[11].environment.kernel = "Linux 6.2.0 #1 x86_64".to_owned();
    let history = History::of(entries, &[]);
    let text = table(&history, false);
    let expected = [
        "2027-01-24T08:00:00Z: day-9 the kernel was Linux 6.1.0 #1 x86_64, here it is Linux 6.2.0",
        "one: response-rate (1/s, higher is better)",
        "b, n 100 things 1",
        "12 sessions of preset quick, 2027-01-15T08:00:00Z to 2027-01-26T08:00:00Z",
        "12 series, a metric of a cell each: the newest level is worse than the one before it in 2, better \
         in 0; one level in 10; fewer than 6 sessions that count in 0",
        "what one or two sessions did is no change",
    ];
    for expected in expected {
        assert!(in_one_line(&text).contains(expected), "no {expected:?} in\n{text}");
    }
    assert_eq!(text.lines().filter(|line| line.ends_with("  worse")).count(), 2, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains("day-3") && table(&history, true).contains("day-3"), "{text}");
    let of_nothing = table(&History::of(Vec::new(), &[]), false);
    assert!(of_nothing.contains("The history has no session."), "{of_nothing}");
}

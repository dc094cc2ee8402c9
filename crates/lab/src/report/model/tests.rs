//! Tests of the model from synthetic records.

use std::fs;

use super::claim::Tone;
use super::experiment::ExperimentState;
use super::*;
use crate::analysis::Bound;
use crate::calibrate::FILE;
use crate::model::{Cell, Mark, Sample};
use crate::report::testing::{Builder, calibration, rates, ratio, text};

#[test]
fn a_report_has_every_claim_with_what_was_found() {
    let claims = [ratio("x", "{ above = 1.5 }"), ratio("y", "{ below = 0.5 }")].concat();
    let record = Builder::new()
        .experiment(&text("one", &claims), 8, rates([200.0, 100.0, 100.0], 0.01))
        .pending("pipes")
        .refused("cold-readers", "no FUSE here")
        .judged();
    let report = Report::of(&record);
    assert_eq!(report.experiments.len(), 3);
    let [held, opposite] = &report.experiments[0].claims[..] else { panic!("two claims") };
    assert_eq!((held.verdict.word.as_str(), held.verdict.tone), ("holds", Tone::For));
    let row = held.deciding_row().unwrap();
    assert!((row.interval.unwrap().value - 2.0).abs() < 0.05, "{row:?}");
    assert_eq!(opposite.verdict.word, "opposite");
    assert!(opposite.verdict.why.contains("≤ 0.5"), "{}", opposite.verdict.why);
    assert_eq!(
        report.machine.as_ref().unwrap().line,
        "Some CPU · 2 processors · 15.6 GiB · Linux 6.1.0"
    );
    assert_eq!((report.session.runs, report.session.planned), (48, 48));
    assert!(!report.session.is_complete);
}

#[test]
fn what_was_not_measured_keeps_its_rows() {
    let record = Builder::new().pending("pipes").refused("cold-readers", "no FUSE here").judged();
    let report = Report::of(&record);
    let [pipes, cold] = &report.experiments[..] else { panic!("two experiments") };
    assert_eq!(pipes.state, ExperimentState::NotBegun);
    assert!(!pipes.claims.is_empty());
    assert!(pipes.claims.iter().all(|claim| claim.verdict.word == "not measured"));
    assert!(cold.claims.iter().all(|claim| claim.verdict.why == "no FUSE here"));
    let counted = report.document.claims + report.ours.claims;
    assert_eq!(counted, pipes.claims.len() + cold.claims.len());
    assert!(report.machine.is_none());
}

/// An experiment with a disk that filled up after some rounds.
#[test]
fn an_experiment_that_failed_in_the_middle_is_there_once_and_says_so() {
    let text = text("one", &ratio("x", "{ above = 1.5 }"));
    let record = Builder::new()
        .experiment(&text, 8, rates([200.0, 100.0, 100.0], 0.01))
        .refused("one", "No space left")
        .judged();
    let report = Report::of(&record);
    let [one] = &report.experiments[..] else { panic!("{:?}", report.experiments.len()) };
    assert_eq!(one.claims[0].verdict.word, "holds");
    assert!(one.notes.iter().any(|note| note.contains("No space left")), "{:?}", one.notes);
}

/// A cell that turned out to be impossible on this machine is not run again.
#[test]
fn a_session_is_complete_without_the_runs_that_are_not_possible_here() {
    let gives_up = |cell: &Cell, round: u32, sample: &mut Sample| {
        rates([200.0, 100.0, 100.0], 0.01)(cell, round, sample);
        if cell.subject == "c" {
            sample.values.clear();
            sample.failure = Some("no io_uring".to_owned());
            sample.validity.insert(Mark::Unavailable);
        }
    };
    let mut record = Builder::new().experiment(&text("one", ""), 6, gives_up).judged();
    let runs = &mut record.measured[0].runs;
    runs.retain(|run| run.sample.cell.subject != "c" || run.sample.round == 1);
    assert_eq!(Report::of(&record).experiments[0].state, ExperimentState::Complete);
    // The session was resumed with more rounds, and interrupted in the seventh.
    let runs = &mut record.measured[0].runs;
    let mut more = runs.iter().find(|run| run.sample.cell.subject == "a").unwrap().clone();
    more.sample.round = 7;
    runs.push(more);
    let report = Report::of(&record);
    assert_eq!(report.experiments[0].state, ExperimentState::Partial);
    assert_eq!(report.experiments[0].rounds, 7);
}

#[test]
fn what_medians_leave_out_is_told_apart_by_metric() {
    let record = Builder::new()
        .experiment(&text("one", ""), 6, |cell, round, sample| {
            rates([200.0, 100.0, 100.0], 0.01)(cell, round, sample);
            sample.values.extend([("memory".to_owned(), 5.0), ("latency-p99".to_owned(), 1.0)]);
            let mark = [Mark::Cold, Mark::Stalled, Mark::FewEvents, Mark::Late];
            sample.validity.extend(mark.get(round as usize - 1));
        })
        .judged();
    let samples = &Report::of(&record).experiments[0].samples;
    let rounds = |metric: &str| -> std::collections::BTreeSet<u32> {
        let runs = samples.left_out.get(metric).into_iter().flatten();
        runs.map(|run| samples.round[*run]).collect()
    };
    assert_eq!(rounds("response-rate"), [1].into());
    assert_eq!(rounds("latency-p99"), [1, 3].into());
    assert_eq!(rounds("memory"), [].into());
}

/// The effect that speaks most against a claim is shown for the claim.
#[test]
fn a_claim_shows_the_effect_that_speaks_most_against_it() {
    let claim = ratio("x", "{ above = 1.1 }").replace("of = 'a'", "of = ['a', 'c']");
    let record = Builder::new()
        .experiment(&text("one", &claim), 8, rates([300.0, 100.0, 150.0], 0.01))
        .judged();
    let claim = &Report::of(&record).experiments[0].claims[0];
    assert_eq!(claim.verdict.word, "holds");
    assert_eq!(claim.deciding_row().unwrap().of, ["c"]);
}

#[test]
fn an_answer_names_who_was_not_asked() {
    let report = Report::of(&crate::report::testing::quick(&["completion-or-readiness"], 6));
    let findings = report.answers.iter().flat_map(|answer| &answer.findings);
    let mut sentences = findings.map(|it| it.sentence()).filter(|it| it.contains("Not run here"));
    let sentence = sentences.next().unwrap();
    assert!(sentence.ends_with("Not run here: epoll-copy and uring-copy."), "{sentence}");
}

/// The reason names the mark. An operator who reads of the load generator looks there.
#[test]
fn bounds_are_put_down_to_what_made_them() {
    for (mark, reason) in [
        (Mark::GeneratorLimited, "the load generator was at its limit in 8 of 16 runs"),
        (Mark::Stalled, "the machine paused in 8 of 8 runs"),
    ] {
        let claim = match mark {
            Mark::Stalled => "[[claim]]\nid = 'v'\ntext = 'It is slow.'\n\
                              effect = { value = 'response-rate', of = 'a' }\nholds = { below = 300 }\n"
                .to_owned(),
            _ => ratio("x", "{ below = 3 }"),
        };
        let record = Builder::new()
            .experiment(&text("one", &claim), 8, |cell, round, sample| {
                rates([200.0, 100.0, 100.0], 0.01)(cell, round, sample);
                if cell.subject == "a" {
                    sample.validity.insert(mark);
                }
            })
            .judged();
        let claim = &Report::of(&record).experiments[0].claims[0];
        assert_eq!(claim.verdict.word, "not testable", "{mark:?}");
        assert!(claim.verdict.why.contains(reason), "{mark:?}: {}", claim.verdict.why);
    }
}

#[test]
fn an_unknown_experiment_is_named_all_the_same() {
    let report = Report::of(&Builder::new().refused("mine", "line 3: no subject").judged());
    assert_eq!(report.experiments[0].id, "mine");
}

/// An instrument that cannot be read in half of a subject's runs is no failure of the subject.
#[test]
fn runs_in_which_the_lab_failed_count_nowhere_and_are_told() {
    let text = text("one", &ratio("x", "{ above = 1.5 }"));
    let record = |faults: u32| {
        let builder = Builder::new().experiment(&text, 12, |cell, round, sample| {
            rates([200.0, 100.0, 50.0], 0.01)(cell, round, sample);
            if cell.subject == "a" && round <= faults {
                sample.values.clear();
                sample.failure = Some("not measured: no counters".to_owned());
                sample.validity.insert(Mark::NotMeasured);
            }
        });
        builder.judged()
    };
    let measured = record(6);
    assert_eq!((measured.measured[0].runs.len(), measured.measured[0].unmeasured.len()), (60, 12));
    let report = Report::of(&measured);
    let one = &report.experiments[0];
    assert_eq!((one.claims[0].verdict.word.as_str(), one.runs), ("holds", 60));
    let cell = one.cells.iter().find(|cell| cell.subject == "a").unwrap();
    assert_eq!((cell.runs, cell.failed, cell.unmeasured.len()), (6, 0, 1));
    assert!(cell.marks.is_empty() && one.samples.failures.is_empty(), "{cell:?}");
    assert_eq!(one.state, ExperimentState::Partial);
    assert!(crate::report::page::render(&report).contains("not measured: no counters"));
    let all = Report::of(&record(12));
    assert!(all.experiments[0].claims[0].verdict.is_not_measured(), "{:?}", all.experiments[0]);
    // What was made again counts, and the fault is forgotten.
    let mut again = record(6).measured.remove(0);
    let mut runs = again.runs.clone();
    runs.extend(again.unmeasured.iter().cloned().map(|mut run| {
        run.sample = Sample::new(run.sample.cell, run.sample.round);
        run
    }));
    runs.append(&mut again.unmeasured);
    let again = crate::record::MeasuredExperiment::unjudged(again.experiment, again.header, runs);
    assert!(again.unmeasured.is_empty() && again.is_complete());
}

#[test]
fn medians_leave_out_what_counts_for_nothing_and_say_what_is_a_bound() {
    let record = Builder::new()
        .experiment(&text("one", ""), 8, |cell, round, sample| {
            rates([200.0, 100.0, 50.0], 0.0)(cell, round, sample);
            match (cell.subject.as_str(), round) {
                ("a", _) => drop(sample.validity.insert(Mark::GeneratorLimited)),
                ("b", 1) => {
                    sample.validity.insert(Mark::Cold);
                    sample.values.insert("response-rate".to_owned(), 9e9);
                }
                ("c", _) => {
                    sample.values.clear();
                    sample.failure = Some("connection refused".to_owned());
                }
                _ => {}
            }
        })
        .judged();
    let report = Report::of(&record);
    let cells = &report.experiments[0].cells;
    let of = |subject: &str| cells.iter().find(|cell| cell.subject == subject).unwrap();
    assert_eq!(of("a").estimates["response-rate"].bound, Bound::AtLeast);
    assert_eq!(of("a").estimates["response-rate"].high, Some(f64::INFINITY));
    let b = of("b").estimates["response-rate"];
    assert_eq!((b.value, b.rounds), (100.0, 7));
    assert!(of("c").estimates.is_empty());
    assert_eq!((of("c").failed, of("c").failures.len()), (8, 1));
}

#[test]
fn a_subject_that_cannot_be_measured_says_why() {
    let text = text("one", &ratio("x", "{ above = 1.5 }"));
    let text =
        text.replace("[subject.b]\nserve = []", "[subject.b]\nserve = []\nunavailable = 'gone'");
    let record = Builder::new().experiment(&text, 8, rates([200.0, 100.0, 100.0], 0.01)).judged();
    let report = Report::of(&record);
    let one = &report.experiments[0];
    assert_eq!(one.state, ExperimentState::Complete);
    assert_eq!(one.claims[0].verdict.word, "not testable");
    assert_eq!(one.claims[0].verdict.why, "gone");
    let cell = one.cells.iter().find(|cell| cell.subject == "b").unwrap();
    assert_eq!(cell.not_testable.as_deref(), Some("gone"));
}

#[test]
fn a_figure_has_its_cells_and_the_document_s_values() {
    let record =
        Builder::new().experiment(&text("one", ""), 6, rates([200.0, 100.0, 100.0], 0.01)).judged();
    let report = Report::of(&record);
    let [line, rows] = &report.experiments[0].figures[..] else { panic!("two figures") };
    assert_eq!(line.cells.len(), 6);
    assert!(line.x_log && line.panels.iter().all(String::is_empty));
    assert_eq!(line.published.len(), 1);
    assert_eq!(
        (line.published[0].x.clone(), line.published[0].value),
        (Some(crate::model::Level::Number(10.0)), 90.0)
    );
    assert_eq!(rows.panels[0], "n 10 things");
}

#[test]
fn published_values_stand_beside_the_same_effect() {
    let claim = ratio("x", "{ above = 1.5 }")
        + "[[claim.published.rows]]\nsubject = 'a'\nvalue = 30\n\
           [[claim.published.rows]]\nsubject = 'b'\nvalue = 10\n";
    let record = Builder::new()
        .experiment(&text("one", &claim), 6, rates([200.0, 100.0, 100.0], 0.01))
        .judged();
    let claim = &Report::of(&record).experiments[0].claims[0];
    assert_eq!(claim.published_words(), "3");
    assert!((claim.deciding_row().unwrap().published.unwrap() - 3.0).abs() < 1e-9);
}

#[test]
fn a_report_is_data() {
    let record =
        Builder::new().experiment(&text("one", ""), 6, rates([200.0, 100.0, 100.0], 0.01)).judged();
    let value = serde_json::to_value(Report::of(&record)).unwrap();
    assert_eq!(value["schema"], SCHEMA);
    let columns = &value["experiments"][0]["samples"];
    assert_eq!(columns["values"]["response-rate"].as_array().unwrap().len(), 36);
}

#[test]
fn a_calibration_is_found_beside_the_session_or_above() {
    let folder = tempfile::tempdir().unwrap();
    let mut record = Builder::new().judged();
    record.folder = folder.path().join("session");
    fs::create_dir(&record.folder).unwrap();
    let report = Report::of(&record);
    assert!(report.calibration.is_none() && report.calibration_fault.is_none());
    Calibration { seed: 1, ..calibration() }.write(folder.path()).unwrap();
    assert_eq!(Report::of(&record).calibration.unwrap().seed, 1);
    Calibration { seed: 2, ..calibration() }.write(&record.folder).unwrap();
    assert_eq!(Report::of(&record).calibration.unwrap().seed, 2);
}

#[test]
fn a_calibration_that_cannot_be_read_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let mut record = Builder::new().judged();
    record.folder = folder.path().join("session");
    fs::create_dir(&record.folder).unwrap();
    calibration().write(folder.path()).unwrap();
    fs::write(record.folder.join(FILE), "{\"false_alarms\": 0.05}").unwrap();
    let report = Report::of(&record);
    assert!(report.calibration.is_none());
    assert!(report.calibration_fault.unwrap().contains(FILE));
}

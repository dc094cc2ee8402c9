//! Journals that are written, cut off, resumed and refused.

use std::collections::BTreeMap;

use super::*;
use crate::model::{Cell, Level};
use crate::plan::PlannedCell;

fn plan() -> Plan {
    let cell = |subject: &str, level: f64| PlannedCell {
        cell: Cell {
            subject: subject.to_string(),
            levels: BTreeMap::from([("offered".to_string(), Level::Number(level))]),
        },
        takes_turns: false,
        not_testable: None,
    };
    Plan {
        experiment: "example".to_string(),
        experiment_hash: "abc".to_string(),
        preset: "quick".to_string(),
        seed: 7,
        rounds: 2,
        cells: vec![cell("a", 1.0), cell("b", 1.0)],
        turn_over: Vec::new(),
        notes: Vec::new(),
        estimate_s: 4.0,
    }
}

fn run(cell: usize, round: u32) -> Run {
    let sample = Sample {
        cell: plan().cells[cell].cell.clone(),
        round,
        values: BTreeMap::from([("response-rate".to_string(), 500.25)]),
        validity: BTreeSet::new(),
        failure: None,
    };
    Run { cell, sample, artefacts: Value::Null, began: 1.5, took_s: 0.25 }
}

#[test]
fn what_is_written_is_read_while_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let here = Environment::default();
    let mut journal = Journal::create(folder.path(), &plan(), &here).unwrap();
    assert_eq!(read(folder.path()).unwrap().1, []);
    for (cell, round) in [(1, 1), (0, 1), (0, 2)] {
        journal.append(&run(cell, round)).unwrap();
    }
    let (header, runs) = read(folder.path()).unwrap();
    assert_eq!((header.plan, header.environment), (plan(), here));
    assert_eq!(runs, [run(1, 1), run(0, 1), run(0, 2)]);
    assert!(journal.has(0, 2) && !journal.has(1, 2));
}

#[test]
fn a_torn_line_is_passed_over_and_cut_off_before_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let here = Environment::default();
    let mut journal = Journal::create(folder.path(), &plan(), &here).unwrap();
    journal.append(&run(0, 1)).unwrap();
    drop(journal);
    let path = folder.path().join(RUNS);
    for torn in ["{\"cell\":1,\"sam", "\0\0\0\0", "\0\0\0\n", "{\"cell\":1}\n"] {
        let mut text = fs::read(&path).unwrap();
        text.extend(torn.as_bytes());
        fs::write(&path, text).unwrap();
        assert_eq!(read(folder.path()).unwrap().1, [run(0, 1)], "{torn:?}");
        let (journal, runs) = Journal::resume(folder.path(), &plan(), &here, false).unwrap();
        assert_eq!(runs, [run(0, 1)]);
        assert!(journal.has(0, 1) && !journal.has(1, 1));
    }
    let (mut journal, _) = Journal::resume(folder.path(), &plan(), &here, false).unwrap();
    journal.append(&run(1, 1)).unwrap();
    assert_eq!(read(folder.path()).unwrap().1, [run(0, 1), run(1, 1)]);
}

#[test]
fn a_line_that_nobody_wrote_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(folder.path(), &plan(), &Environment::default()).unwrap();
    fs::write(folder.path().join(RUNS), "nonsense\n").unwrap();
    journal.append(&run(0, 1)).unwrap();
    let error = read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("runs.jsonl: line 1"), "{error}");
}

#[test]
fn another_kernel_program_or_experiment_is_refused_unless_forced() {
    let folder = tempfile::tempdir().unwrap();
    let here = Environment { kernel: "Linux 6.1".into(), ..Environment::default() };
    drop(Journal::create(folder.path(), &plan(), &here).unwrap());
    let there = Environment { kernel: "Linux 6.2".into(), ..Environment::default() };
    let error = Journal::resume(folder.path(), &plan(), &there, false).unwrap_err();
    assert!(matches!(&error, JournalError::Differs(what) if what.len() == 1), "{error}");
    assert!(error.to_string().contains("--force"), "{error}");
    Journal::resume(folder.path(), &plan(), &there, true).unwrap();
    let other = Plan { experiment_hash: "abd".to_string(), ..plan() };
    assert!(Journal::resume(folder.path(), &other, &here, false).is_err());
    let other = Plan { seed: 8, ..plan() };
    assert!(Journal::resume(folder.path(), &other, &here, false).is_err());
    // More rounds are a continuation.
    let longer = Plan { rounds: 9, ..plan() };
    Journal::resume(folder.path(), &longer, &here, false).unwrap();
}

#[test]
fn a_journal_has_one_writer_and_is_never_begun_twice() {
    let folder = tempfile::tempdir().unwrap();
    let here = Environment::default();
    let journal = Journal::create(folder.path(), &plan(), &here).unwrap();
    let error = Journal::resume(folder.path(), &plan(), &here, false).unwrap_err();
    assert!(matches!(error, JournalError::InUse(_)), "{error}");
    drop(journal);
    assert!(matches!(
        Journal::create(folder.path(), &plan(), &here),
        Err(JournalError::Invalid(..))
    ));
}

#[test]
fn a_full_disk_leaves_the_lines_before() {
    if !Path::new("/dev/full").exists() {
        return drover_testing::skip!("there is no /dev/full");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(folder.path(), &plan(), &Environment::default()).unwrap();
    journal.append(&run(0, 1)).unwrap();
    journal.runs = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
    assert!(matches!(journal.append(&run(1, 1)), Err(JournalError::Io(..))));
    assert!(!journal.has(1, 1));
    assert_eq!(read(folder.path()).unwrap().1, [run(0, 1)]);
}

#[test]
fn a_file_that_several_write_at_once_is_always_whole_and_nothing_else_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let content = |letter: u8| vec![letter; 100_000];
    std::thread::scope(|scope| {
        for letter in [b'a', b'b', b'c'] {
            let path = &path;
            scope.spawn(move || {
                for _ in 0..20 {
                    write_whole(path, &content(letter)).unwrap();
                    let found = fs::read(path).unwrap();
                    assert_eq!(found, content(found[0]));
                }
            });
        }
    });
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

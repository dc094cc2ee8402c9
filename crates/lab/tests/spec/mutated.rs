//! Whatever a file says, it is read or refused with places inside of it.

use proptest::prelude::*;

use crate::{Memory, WHOLE};

/// A change of a text.
#[derive(Clone, Debug)]
enum Change {
    /// Characters taken out: where, how many.
    Cut(prop::sample::Index, usize),
    /// A text put in.
    Put(prop::sample::Index, String),
    /// A line put elsewhere.
    Move(prop::sample::Index, prop::sample::Index),
}

fn change() -> impl Strategy<Value = Change> {
    let word = prop_oneof![
        prop::sample::select(vec![
            "[",
            "]",
            "{",
            "}",
            "=",
            "\n",
            "\"",
            "'",
            ",",
            ".",
            "#",
            "[[claim]]\n",
            "{offered}",
            "nan",
            "-1",
            "1e999",
            "99999999999999999999",
            "true",
            "1979-05-27",
            "{ best = [] }",
            "\u{e9}",
            "levels",
            "{}",
            "[]",
            "x = 1\n",
            "include = ['f.toml']\n",
        ])
        .prop_map(str::to_owned),
        ".{0,4}",
    ];
    prop_oneof![
        (any::<prop::sample::Index>(), 1..40usize).prop_map(|(at, length)| Change::Cut(at, length)),
        (any::<prop::sample::Index>(), word).prop_map(|(at, word)| Change::Put(at, word)),
        (any::<prop::sample::Index>(), any::<prop::sample::Index>())
            .prop_map(|(from, to)| Change::Move(from, to)),
    ]
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut text: Vec<char> = text.chars().collect();
    for change in changes {
        match change {
            Change::Cut(at, length) if !text.is_empty() => {
                let at = at.index(text.len());
                text.drain(at..(at + length).min(text.len()));
            }
            Change::Put(at, word) => {
                let at = at.index(text.len() + 1);
                text.splice(at..at, word.chars());
            }
            Change::Move(from, to) => {
                let whole: String = text.iter().collect();
                let mut lines: Vec<&str> = whole.lines().collect();
                if !lines.is_empty() {
                    let line = lines.remove(from.index(lines.len()));
                    lines.insert(to.index(lines.len() + 1), line);
                }
                text = lines.join("\n").chars().collect();
            }
            Change::Cut(..) => {}
        }
    }
    text.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_file_is_read_or_refused(changes in prop::collection::vec(change(), 1..6)) {
        let text = changed(WHOLE, &changes);
        match Memory::new([("f.toml", text.as_str())]).read("f.toml") {
            Ok(experiment) => {
                // What is read can be planned: nothing in it leads nowhere.
                for preset in experiment.presets.values() {
                    drop(experiment.cells(preset));
                }
                drop(experiment.instruments());
            }
            Err(faults) => {
                prop_assert!(!faults.0.is_empty());
                let lines = text.lines().count() + 1;
                for fault in faults.0 {
                    prop_assert!((1..=lines).contains(&fault.line), "{}", fault);
                    prop_assert!(fault.column >= 1 && !fault.message.is_empty());
                }
            }
        }
    }

    #[test]
    fn any_text_is_refused(text in ".{0,60}") {
        prop_assert!(Memory::new([("f.toml", text.as_str())]).read("f.toml").is_err());
    }
}

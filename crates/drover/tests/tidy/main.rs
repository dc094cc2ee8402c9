//! House rules that a machine can check, over the sources as they are; `structure` has those of the whole house, `words` those
//! of names.

use std::fs;
use std::path::{Path, PathBuf};

mod structure;
mod words;

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Rust file of the workspace with its text, paths relative to its root.
fn sources() -> Vec<(PathBuf, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.join("crates"), root.join("kernel/vm")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(&root).unwrap().to_owned(), text));
            }
        }
    }
    assert!(found.len() > 20, "the sources were not found under {}", root.display());
    found
}

/// Lists every line of the chosen files that `broken` objects to, and fails if
/// there is one.
#[track_caller]
fn forbid(rule: &str, applies: impl Fn(&Path) -> bool, broken: impl Fn(&[&str], usize) -> bool) {
    let mut offences = Vec::new();
    let mut files = 0;
    for (path, text) in sources().iter().filter(|(path, _)| applies(path)) {
        files += 1;
        let lines: Vec<&str> = text.lines().collect();
        offences.extend(
            (0..lines.len())
                .filter(|&at| broken(&lines, at))
                .map(|at| format!("{}:{}: {}", path.display(), at + 1, lines[at].trim())),
        );
    }
    assert!(files > 0, "the rule \"{rule}\" applies to no file");
    assert!(offences.is_empty(), "{rule}:\n{}", offences.join("\n"));
}

fn is_code(line: &str) -> bool {
    !line.trim_start().starts_with("//")
}

#[test]
fn every_file_opens_by_saying_what_it_holds() {
    forbid(
        "a file opens with a //! doc",
        |_| true,
        |lines, at| at == 0 && !lines[0].starts_with("//!"),
    );
}

#[test]
fn no_file_is_too_long_to_hold_one_thing() {
    forbid("at most 700 lines a file", |_| true, |_, at| at == 700);
}

#[test]
fn unsafe_stays_in_three_crates_and_gives_its_reason() {
    let word = concat!("un", "safe");
    let may_be_unsafe = |path: &Path| {
        ["sys", "mech", "waiters"].iter().any(|it| path.starts_with(format!("crates/{it}")))
    };
    forbid(
        "no unsafe code outside crates/sys, crates/mech and crates/waiters",
        |path| !may_be_unsafe(path),
        |lines, at| is_code(lines[at]) && lines[at].contains(&format!("{word} {{")),
    );
    forbid("an unsafe block follows its SAFETY comment", may_be_unsafe, |lines, at| {
        let opens = is_code(lines[at])
            && (lines[at].contains(&format!("{word} {{"))
                || lines[at].contains(&format!("{word} impl")));
        opens
            && !lines[at.saturating_sub(3)..at].iter().any(|line| line.contains("SAFETY:"))
            && !lines[at].contains("undocumented")
            && !lines[at.saturating_sub(1)].contains("undocumented")
    });
}

#[test]
fn server_and_load_ask_for_features_and_never_for_names() {
    let names: Vec<String> = drover_mech::mechanisms::ALL
        .iter()
        .map(|mechanism| format!("\"{}\"", mechanism.name))
        .collect();
    forbid(
        "no mechanism's name in crates/server or crates/load",
        |path| ["server", "load"].iter().any(|face| path.starts_with(format!("crates/{face}/src"))),
        |lines, at| is_code(lines[at]) && names.iter().any(|name| lines[at].contains(name)),
    );
}

#[test]
fn the_crates_of_protocols_touch_neither_sockets_nor_files_nor_clocks() {
    forbid(
        "http1 and http2 are values only",
        |path| path.starts_with("crates/http1/src") || path.starts_with("crates/http2/src"),
        |lines, at| {
            is_code(lines[at])
                && ["std::net", "std::fs", "std::os", "Instant::now", "SystemTime::now"]
                    .iter()
                    .any(|forbidden| lines[at].contains(forbidden))
        },
    );
}

/// The process of `--admin` is no worker: it speaks HTTP/1 by itself. The heads of a response's parts are content.
#[test]
fn responses_become_bytes_in_the_protocol_alone() {
    let writers = ["push_head(", "push_fields(", "push_text(", "push_early_hints("];
    let src = Path::new("crates/server/src");
    forbid(
        "no response bytes in crates/server but in protocol/ and admin/",
        |path| {
            let others = ["protocol", "admin", "fuzzing"];
            path.starts_with(src) && !others.iter().any(|room| path.starts_with(src.join(room)))
        },
        |lines, at| {
            let is_test = lines[..at].contains(&"#[cfg(test)]");
            let is_call = |writer: &&str| {
                let (before, found) = lines[at].split_once(writer).unzip();
                found.is_some() && !before.is_some_and(|it: &str| it.ends_with('.'))
            };
            !is_test
                && is_code(lines[at])
                && (lines[at].contains("\\r\\n") || writers.iter().any(is_call))
        },
    );
}

/// A test that prints why it cannot run, and passes, looks as if it had run: `drover_testing::skip!` has it
/// counted.
#[test]
fn what_is_skipped_is_counted() {
    let begins = [concat!("print", "ln!(\"skip"), concat!("print", "!(\"skip")];
    forbid(
        "a test is skipped by drover_testing::skip!",
        |path| {
            !path.components().any(|part| part.as_os_str() == "benches")
                && !path.starts_with("crates/testing")
        },
        |lines, at| begins.iter().any(|begin| lines[at].contains(begin)),
    );
}

#[test]
fn no_test_is_ignored_or_ordered_by_sleeping() {
    let sleep = concat!("thread::", "sleep(");
    let ignore = concat!("#[", "ignore");
    forbid(
        "tests neither sleep nor are ignored",
        |path| path.components().any(|part| part.as_os_str() == "tests"),
        |lines, at| lines[at].contains(sleep) || lines[at].contains(ignore),
    );
}

//! The field's words: names that only this project would understand are not in it.

use std::collections::BTreeMap;

use super::sources;

/// What is forbidden as a name, and the field's word for it.
const PRIVATE: &[(&str, &str)] = &[
    ("Door", "ListenerHandle"),
    ("Hall", "AcceptQueue"),
    ("Keeper", "Acceptor"),
    ("Bell", "Notifier"),
    ("Sign", "AcceptRelay"),
    ("gives_sign", "relay_wakeup"),
    ("goes_on", "expects_input"),
    ("unborn", "to_spawn"),
    ("give_birth", "spawn_pending"),
    ("Held", "RobustGuard, PinnedPages"),
    ("patiently", "retry_on_enomem"),
    ("How", "OpenOptions"),
    ("Means", "WaitMode"),
    ("Whose", "a noun"),
    ("Place", "Location, Index"),
    ("Teller", "ConsoleReporter"),
    ("Desk", "CoordinatorHandle"),
    ("Baton", "RunControl"),
    ("Conductor", "Coordinator"),
    ("Seat", "ConnState"),
    ("Ticket", "ScheduledStart"),
    ("Manner", "SessionOptions"),
    ("Board", "CounterTable"),
    ("Asker", "LookupContext"),
    ("Memo", "RepeatedRequest, ResponseHeadCache"),
    ("Trail", "WatchedPath"),
    ("What", "RequestArgs"),
    ("Chosen", "Selection"),
    ("Choice", "Selection"),
    ("Crowd", "WaiterGroup"),
    ("Ask", "Cell"),
    ("Eye", "SleepObserver"),
    ("Awake", "IdleGuard"),
    ("Beside", "background"),
    ("Blanks", "Placeholders"),
    ("forebodings", "preflight_warnings"),
    ("unasked", "unsolicited"),
    ("deserted", "all_lost"),
    ("last_words", "exit_reason"),
];

/// The names in a line of code: comments, and words within texts, are prose.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    let outside = code.split('"').step_by(2);
    outside.flat_map(|part| part.split(|it: char| !it.is_alphanumeric() && it != '_'))
}

#[test]
fn names_are_words_of_the_field() {
    let words: BTreeMap<&str, &str> = PRIVATE.iter().copied().collect();
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (at, line) in text.lines().enumerate() {
            for name in names(line) {
                if let Some(word) = words.get(name) {
                    found.push(format!("{}:{}: {name} ({word})", path.display(), at + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "say the field's word:\n{}", found.join("\n"));
}

/// RFC 9110 has responses. Only what reads old names, and the crate that speaks FUSE, whose messages are replies, say otherwise.
#[test]
fn a_response_has_one_name() {
    const OLD: [&str; 2] = ["reply", "replies"];
    const MAY: [&str; 6] = [
        "crates/disk/",
        "/old_names.rs",
        "cli/mod.rs",
        "serve/flags/mod.rs",
        "config/file.rs",
        "tidy/words.rs",
    ];
    let may = |path: &std::path::Path| {
        let path = path.to_string_lossy();
        MAY.iter().any(|it| path.contains(it))
    };
    let mut found = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| !may(path)) {
        for (at, line) in text.lines().enumerate() {
            let words = line.split(|it: char| !it.is_alphabetic()).map(str::to_lowercase);
            if words.into_iter().any(|word| OLD.contains(&&*word)) {
                found.push(format!("{}:{}: {}", path.display(), at + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "say response:\n{}", found.join("\n"));
}

/// The name of the type that a line makes visible outside its file. A command's `Args` are named by the command's own
/// file, and type aliases within an `impl` are the trait's.
fn public_type(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let item = match code.strip_prefix("pub ") {
        Some(item) => item,
        None => code.strip_prefix("pub(")?.split_once(") ")?.1,
    };
    let (keyword, rest) = item.strip_prefix("unsafe ").unwrap_or(item).split_once(' ')?;
    let name = rest.split(|it: char| !it.is_alphanumeric()).next()?;
    (["struct", "enum", "union", "trait", "type"].contains(&keyword) && name != "Args")
        .then_some(name)
}

#[test]
fn a_type_that_other_files_see_has_a_name_of_its_own() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let of_crates = |path: &std::path::Path| path.components().any(|it| it.as_os_str() == "src");
    for (path, text) in sources().into_iter().filter(|(path, _)| of_crates(path)) {
        for (at, line) in text.lines().enumerate() {
            if let Some(name) = public_type(line) {
                let place = format!("{}:{}", path.display(), at + 1);
                places.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    assert!(places.len() > 500, "only {} types are found", places.len());
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "one name, several types: {places:#?}");
}

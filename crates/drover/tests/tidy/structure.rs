//! The shape of the house: which crate may use which, where a mechanism lies, and that no two files use each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::{root, sources};

/// The crates of the workspace, lowest first, with what each may depend on, as the picture in ARCHITECTURE.md has it.
const CRATES: &[(&str, &[&str])] = &[
    ("sys", &[]),
    ("usage", &[]),
    ("http1", &[]),
    ("http2", &[]),
    ("mech", &["sys"]),
    ("waiters", &["sys", "mech"]),
    ("disk", &["sys", "usage"]),
    ("compress", &["usage", "http1", "mech"]),
    ("tls", &["sys", "usage", "mech"]),
    ("acme", &["sys", "http1"]),
    ("server", &["sys", "usage", "http1", "http2", "tls", "acme", "mech"]),
    ("load", &["sys", "usage", "http1", "http2", "tls", "mech"]),
    ("lab", &["sys", "mech", "waiters"]),
    (
        "drover",
        &[
            "sys", "usage", "http1", "tls", "acme", "mech", "waiters", "disk", "compress",
            "server", "load", "lab", "vm",
        ],
    ),
];

/// The crates of the workspace that a crate uses, by its manifest.
fn used_by(name: &str) -> BTreeSet<String> {
    let path = root().join("crates").join(name).join("Cargo.toml");
    let manifest: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    let used = manifest.get("dependencies").and_then(|it| it.as_table()).unwrap();
    used.keys().filter_map(|it| it.strip_prefix("drover-")).map(str::to_owned).collect()
}

#[test]
fn crates_depend_only_downwards() {
    for (name, may) in CRATES {
        let used = used_by(name);
        let may: BTreeSet<String> = may.iter().map(|it| (*it).to_owned()).collect();
        assert!(used.is_subset(&may), "{name} may use {may:?}, and uses {used:?}");
    }
}

/// Names of packages are shared with everybody else's. The program's own package has the name itself.
#[test]
fn packages_and_libraries_bear_the_name_of_the_project() {
    let manifest = |folder: &str| -> toml::Table {
        let path = root().join(folder).join("Cargo.toml");
        fs::read_to_string(&path).unwrap().parse().unwrap()
    };
    let workspace = manifest("");
    let members = workspace["workspace"]["members"].as_array().unwrap();
    let members: Vec<&str> = members.iter().map(|it| it.as_str().unwrap()).collect();
    assert!(members.contains(&"crates/drover"), "{members:?}");
    for folder in members.into_iter().chain(["fuzz"]) {
        let manifest = manifest(folder);
        let package = manifest["package"]["name"].as_str().unwrap();
        assert!(package == "drover" || package.starts_with("drover-"), "{folder}: {package}");
        // A library without a name has that of its package.
        let library = manifest.get("lib").and_then(|it| it.get("name"));
        let expected = package.replace('-', "_");
        assert!(library.is_none_or(|it| it.as_str() == Some(&expected)), "{folder}: {library:?}");
    }
}

/// The picture names each crate once, and under it what it uses: `mech → sys`.
#[test]
fn the_picture_of_the_crates_is_true() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (name, _) in CRATES {
        let used = used_by(name);
        let begin = format!("| `{name}` |");
        let row = text.lines().find(|line| line.starts_with(&begin));
        let row = row.unwrap_or_else(|| panic!("ARCHITECTURE.md has no row '{begin}'"));
        let column = row.split('|').nth(2).unwrap();
        let told = column.split(',').map(|it| it.trim().trim_matches('`'));
        let told: BTreeSet<String> = told.filter(|it| *it != "–").map(str::to_owned).collect();
        assert_eq!(told, used, "what ARCHITECTURE.md says that {name} uses, and what it uses");
    }
}

/// The files of a folder of `mech` that stand for themselves, without their ending.
fn files_of(folder: &str) -> BTreeSet<String> {
    let folder = root().join("crates/mech/src").join(folder);
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|it| it == "rs"));
    files
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| name != "mod")
        .collect()
}

/// Fails unless every file beside `mod.rs` holds a member of the list, and every member has a file: the one of its
/// name, or the one that its name begins with (`epoll.rs` holds `epoll-et`).
#[track_caller]
fn a_file_is_a_member(folder: &str, members: &[&str], others: &[&str]) {
    let files = files_of(folder);
    let file_of = |member: &str| {
        let name = member.replace('-', "_");
        let begins = |file: &&String| name == **file || name.starts_with(&format!("{file}_"));
        files.iter().filter(begins).max_by_key(|file| file.len()).cloned()
    };
    let mut used: BTreeSet<String> = others.iter().map(|other| (*other).to_owned()).collect();
    for member in members {
        let file = file_of(member);
        used.insert(file.unwrap_or_else(|| panic!("no file of {folder}/ holds {member}")));
    }
    assert_eq!(files, used, "the files of {folder}/, and those that hold a member of its list");
}

#[test]
fn a_file_of_a_mechanism_is_a_member_of_its_list() {
    let readiness: Vec<&str> = drover_mech::mechanisms::ALL
        .iter()
        .filter(|it| matches!(it.kind, drover_mech::mechanisms::MechanismKind::Readiness { .. }))
        .map(|it| it.name)
        .collect();
    a_file_is_a_member("readiness", &readiness, &[]);
    let strategies: Vec<&str> = drover_mech::accept::ALL.iter().map(|it| it.name).collect();
    a_file_is_a_member("accept", &strategies, &[]);
    let backends: Vec<&str> = drover_mech::fileio::ALL.iter().map(|it| it.name).collect();
    // The choice among the backends is a backend by itself, and not one to be listed.
    a_file_is_a_member("fileio", &backends, &["auto"]);
}

#[test]
fn no_folder_has_more_files_than_one_can_look_over() {
    const MOST: usize = 14;
    let mut counts: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for (path, _) in sources() {
        if path.components().any(|part| part.as_os_str() == "src") {
            *counts.entry(path.parent().unwrap().to_owned()).or_default() += 1;
        }
    }
    counts.retain(|_, count| *count > MOST);
    assert!(counts.is_empty(), "folders of more than {MOST} files: {counts:?}");
}

/// The files of one crate by the modules that they hold: `["net", "conn"]`.
type Modules = BTreeMap<Vec<String>, PathBuf>;

fn module_of(path: &Path, src: &Path) -> Vec<String> {
    let inside = path.strip_prefix(src).unwrap().with_extension("");
    let mut module: Vec<String> =
        inside.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

/// The paths that a file's code names from its crate's root: what begins with `crate::` or `super::`, the branches of braces
/// included. Tests at the end of a file do not count, and neither does an import for links in comments alone.
fn named(text: &str, module: &[String]) -> Vec<Vec<String>> {
    let code: Vec<&str> = text
        .lines()
        .take_while(|line| *line != "#[cfg(test)]")
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code = code.join("\n").replace("#[cfg(doc)]\nuse crate::", "");
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_none_or(|it| !it.is_alphanumeric() && it != '_' && it != ':' && it != '$')
            {
                let paths = branches(&code[at..]);
                found.extend(paths.iter().filter_map(|path| resolved(path, module)));
            }
        }
    }
    found
}

/// The paths of the tree that `code` begins with: `a::{b, c::{self, d}}` has `a::b`, `a::c::self` and `a::c::d`.
fn branches(code: &str) -> Vec<String> {
    let is_path = |it: char| it.is_alphanumeric() || it == '_' || it == ':';
    let end = code.find(|it| !is_path(it)).unwrap_or(code.len());
    let (stem, rest) = code.split_at(end);
    let Some(inside) = rest.strip_prefix('{').filter(|_| stem.ends_with("::")) else {
        return vec![stem.to_owned()];
    };
    let mut depth = 0;
    let mut starts = vec![0];
    for (at, it) in inside.char_indices() {
        match it {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => starts.push(at + 1),
            _ => {}
        }
    }
    let branch = |start: usize| branches(inside[start..].trim_start());
    starts.into_iter().flat_map(branch).map(|branch| format!("{stem}{branch}")).collect()
}

#[test]
fn the_branches_of_an_import_are_found() {
    let text = "use crate::{a, b::{self, c as d,\n e::*}, };\nuse super::{\n    f::{g},\n};\nlet x = crate::h::i(crate::j);\n\
        // crate::k\n#[cfg(doc)]\nuse crate::l;\nuse other::crate::m;\n#[cfg(test)]\nuse crate::n;";
    let module = ["y".to_owned(), "z".to_owned()];
    let found: BTreeSet<String> = named(text, &module).iter().map(|it| it.join("::")).collect();
    let expected = ["", "a", "b::c", "b::e::", "b::self", "h::i", "j", "y", "y::f::g"];
    let expected: BTreeSet<String> =
        expected.map(|it| it.trim_end_matches(':').to_owned()).into_iter().collect();
    assert_eq!(found, expected);
}

fn resolved(path: &str, module: &[String]) -> Option<Vec<String>> {
    let mut from = module.to_vec();
    let mut parts = path.split("::").filter(|part| !part.is_empty()).peekable();
    if parts.peek() == Some(&"crate") {
        parts.next();
        from.clear();
    }
    while parts.peek() == Some(&"super") {
        parts.next();
        from.pop()?;
    }
    from.extend(parts.map(str::to_owned));
    Some(from)
}

/// The file whose module is the longest beginning of the path.
fn file_of<'m>(modules: &'m Modules, path: &[String]) -> Option<&'m PathBuf> {
    (0..=path.len()).rev().find_map(|length| modules.get(&path[..length]))
}

/// Whether one file's module lies within the other's: a folder's front page and its rooms know each other.
fn is_family(one: &[String], other: &[String]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

#[test]
fn no_two_files_use_each_other() {
    let all = sources();
    let mut circles = Vec::new();
    for (name, _) in CRATES {
        let src = PathBuf::from("crates").join(name).join("src");
        let files: Vec<_> = all.iter().filter(|(path, _)| path.starts_with(&src)).collect();
        let modules: Modules =
            files.iter().map(|(path, _)| (module_of(path, &src), path.clone())).collect();
        let mut uses: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> = BTreeMap::new();
        for (path, text) in &files {
            let module = module_of(path, &src);
            for target in named(text, &module) {
                let Some(file) = file_of(&modules, &target) else { continue };
                if file != path && !is_family(&module, &module_of(file, &src)) {
                    uses.entry(path).or_default().insert(file);
                }
            }
        }
        circles.extend(circles_of(&uses));
    }
    assert!(circles.is_empty(), "files that use each other:\n{}", circles.join("\n"));
}

/// What can be reached from a file by one use or more.
fn reached<'p>(
    uses: &BTreeMap<&'p PathBuf, BTreeSet<&'p PathBuf>>,
    start: &PathBuf,
) -> BTreeSet<&'p PathBuf> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&PathBuf> = uses.get(start).into_iter().flatten().copied().collect();
    while let Some(file) = next.pop() {
        if seen.insert(file) {
            next.extend(uses.get(file).into_iter().flatten());
        }
    }
    seen
}

/// A line for each file that can be reached from itself, with those of its uses that lead back.
fn circles_of(uses: &BTreeMap<&PathBuf, BTreeSet<&PathBuf>>) -> Vec<String> {
    let mut circles = Vec::new();
    for (start, used) in uses {
        let lead_back = used.iter().filter(|it| reached(uses, it).contains(*start));
        let lead_back: Vec<String> = lead_back.map(|it| it.display().to_string()).collect();
        if !lead_back.is_empty() {
            circles.push(format!("{} → {}", start.display(), lead_back.join(", ")));
        }
    }
    circles
}

/// The rooms of a crate, lowest first: one uses those before it. What begins with a capital is on the crate's front page.
const FLOORS: &[(&str, &[&str])] = &[
    (
        "http2",
        &[
            "error", "frame", "hpack", "priority", "settings", "block", "head", "limits",
            "streams", "schedule", "server", "client",
        ],
    ),
    ("load", &["warning", "plan", "input", "account", "run", "output", "processes"]),
    (
        "server",
        &[
            "clock",
            "log",
            "line_writer",
            "json_messages",
            "private_files",
            "stopper",
            "budget",
            "tls",
            "acme",
            "hosts",
            "proxies",
            "rules",
            "status",
            "lookup",
            "auth",
            "exchange",
            "trace",
            "access_log",
            "observe",
            "config",
            "output_files",
            "listen",
            "respond",
            "protocol",
            "worker",
            "sandbox",
            "signals",
            "admin",
            "crew",
            "server",
            "succession",
            "reload",
            "supervisor",
            "fuzzing",
        ],
    ),
];

/// The rooms by which the crate's front page names things of theirs: `Config` is `config`'s.
fn named_on_front_page(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (at, _) in text.match_indices("pub use ") {
        for path in branches(&text[at + "pub use ".len()..]) {
            let parts: Vec<&str> = path.split("::").collect();
            found.insert(parts.last().unwrap().to_string(), parts[0].to_owned());
        }
    }
    found
}

#[test]
fn rooms_use_those_below_them() {
    let all = sources();
    let mut wrong = Vec::new();
    for (name, floors) in FLOORS {
        let src = PathBuf::from("crates").join(name).join("src");
        let front_page = fs::read_to_string(root().join(&src).join("lib.rs")).unwrap();
        let front_page = named_on_front_page(&front_page);
        let floor_of = |room: &str| floors.iter().position(|it| *it == room);
        for (path, text) in all.iter().filter(|(path, _)| path.starts_with(&src)) {
            let module = module_of(path, &src);
            let Some(own) = module.first().filter(|own| *own != "testing") else { continue };
            let floor = floor_of(own).unwrap_or_else(|| panic!("{own} of {name} has no floor"));
            for target in named(text, &module) {
                let Some(first) = target.first() else { continue };
                let room = front_page.get(first).unwrap_or(first);
                if floor_of(room).is_some_and(|it| it > floor) {
                    wrong.push(format!("{} uses {room}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "rooms that use one above them:\n{}", wrong.join("\n"));
}

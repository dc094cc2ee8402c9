//! `drover tune`, as a user runs it, with two candidates and windows that are short; the file that it writes,
//! and what servers take from what it keeps.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder of a user's with files to serve, and a place for caches.
struct Home(TempDir);

impl Home {
    fn new() -> Home {
        let home = Home(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
        home.file("site/a b.html", 700);
        home.file("site/c", 9000);
        home.file("other/a", 7);
        home
    }

    fn path(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }

    fn file(&self, name: &str, bytes: usize) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b'x'; bytes]).unwrap();
    }

    fn drover(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command.args(arguments.split_whitespace()).current_dir(self.0.path());
        command.env("XDG_CACHE_HOME", self.0.path().join("caches")).env_remove("RUST_LOG");
        command
    }

    fn run(&self, arguments: &str) -> Output {
        self.drover(arguments).output().unwrap()
    }

    /// What `serve --check` says of the folder, on stdout and on stderr.
    #[track_caller]
    fn check(&self, arguments: &str) -> (String, String) {
        let output = self.run(&format!("serve --check --listen 127.0.0.1:0 {arguments}"));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        (String::from_utf8(output.stdout).unwrap(), stderr)
    }

    /// The file that was kept for servers.
    fn kept(&self) -> PathBuf {
        let entries = fs::read_dir(self.0.path().join("caches/drover")).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files.remove(0)
    }
}

/// The value and the origin of a key in what `serve --check` prints.
#[track_caller]
fn line<'t>(told: &'t str, key: &str) -> (&'t str, &'t str) {
    let is_it = |line: &&str| line.starts_with(&format!("{key} = "));
    let line = told.lines().find(is_it).unwrap_or_else(|| panic!("no {key} in\n{told}"));
    let (value, origin) = line.split_once('#').unwrap();
    (value.split_once('=').unwrap().1.trim(), origin.trim())
}

/// What a run prints that has found something out. A machine that has other work to do disturbs rounds, and those that are left may
/// be too few. `None`, and a note, if they are time and again.
#[track_caller]
fn found_out(home: &Home, tune: &str) -> Option<String> {
    for _ in 0..3 {
        let output = home.run(tune);
        let text = String::from_utf8(output.stdout).unwrap();
        if output.status.success() {
            return Some(text);
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let is_disturbed =
            text.contains("there was time for") && stderr.contains("nothing was found out");
        assert!(is_disturbed, "{text}{stderr}");
    }
    drover_testing::skip!("this machine has too much other work for a contest");
    None
}

/// Both are measured in the rounds that a choice needs; which one is taken is the machine's to say.
#[test]
fn what_is_found_is_written_with_its_reason_and_taken_by_servers() {
    let home = Home::new();
    let tune = "tune site --budget 10m --only dispatch --subjects epoll,poll --window 30ms --repeats 6 \
                --connections 4 --seed 7";
    let Some(text) = found_out(&home, tune) else { return };
    let root = home.path().join("site");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "4 connections ask for 2 files of ",
        "(half of them up to 700 B, 90 % up to 9.00 KB), each as likely; for 10m at most",
        "ratio (95 %)",
        "Written to drover.toml. To use it: drover serve --config drover.toml",
        "--tuned off",
    ] {
        assert!(flat.contains(expected), "no {expected:?} in\n{text}");
    }
    let widest = text.lines().filter(|line| !line.contains('/')).map(|line| line.chars().count());
    assert!(widest.max() <= Some(80), "{text}");
    let taken = text.lines().find_map(|line| line.strip_prefix("dispatch: ")).unwrap();
    let taken = if taken.starts_with("epoll") { "epoll" } else { "poll" };

    let config = fs::read_to_string(home.path().join("drover.toml")).unwrap();
    for expected in [
        format!("root = \"{}\"", root.display()),
        format!("dispatch = \"{taken}\""),
        "# Kernel: Linux ".to_owned(),
        "# dispatch: ".to_owned(),
    ] {
        assert!(config.contains(&expected), "no {expected:?} in\n{config}");
    }
    // It can be used from anywhere.
    let path = home.path().join("drover.toml");
    let (told, _) = home.check(&format!("--config {}", path.display()));
    let (value, origin) = line(&told, "dispatch");
    assert_eq!(value, format!("\"{taken}\""));
    assert!(origin.contains("drover.toml:"), "{origin}");
    assert_eq!(line(&told, "root").0, format!("\"{}\"", root.display()));

    let again = home.run(tune);
    let refusal = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(2), "{refusal}");
    assert!(refusal.contains("--force"), "{refusal}");

    servers_take_what_is_kept(&home, taken);
}

fn servers_take_what_is_kept(home: &Home, taken: &str) {
    let (told, _) = home.check("site");
    let (value, origin) = line(&told, "dispatch");
    assert_eq!(value, format!("\"{taken}\""));
    assert!(origin.starts_with("tuned on 2") && origin.ends_with("(drover tune)"), "{origin}");
    let first = told.lines().next().unwrap();
    assert!(
        first.contains(&format!("dispatch {taken}, ")) && first.contains("as tuned on 2"),
        "{first}"
    );
    // By its name, and through a link.
    std::os::unix::fs::symlink("site", home.path().join("link")).unwrap();
    assert!(line(&home.check("link").0, "dispatch").1.starts_with("tuned on"));
    for (arguments, origin) in [
        ("site --tuned off", "default"),
        ("other", "default"),
        ("site --dispatch select", "command line"),
    ] {
        let (told, stderr) = home.check(arguments);
        assert!(line(&told, "dispatch").1.starts_with(origin), "{arguments}: {told}");
        assert_eq!(stderr, "", "{arguments}");
    }

    what_is_kept_counts_where_it_was_measured(home);
}

fn what_is_kept_counts_where_it_was_measured(home: &Home) {
    let file = home.kept();
    let kept: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let with = |pointer: &str, value: Value| {
        let mut changed = kept.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        fs::write(&file, changed.to_string()).unwrap();
    };
    let all = json!({ "dispatch": "poll", "files": "writev", "workers": "2", "accept": "lock" });
    with("/taken", all);
    let (told, _) = home.check("site");
    for (key, value) in [
        ("dispatch", "\"poll\""),
        ("files", "\"writev\""),
        ("workers", "2"),
        ("accept", "\"lock\""),
    ] {
        let (found, origin) = line(&told, key);
        assert!(found == value && origin.starts_with("tuned on "), "{key}: {told}");
    }
    // An accept strategy was measured under its mechanism, and workers are never more than connections.
    let (told, _) = home.check("site --dispatch select --max-connections 1");
    assert!(line(&told, "accept").1.starts_with("default"), "{told}");
    assert!(line(&told, "workers").1.starts_with("default"), "{told}");
    with("/taken", json!({ "dispatch": "kqueue", "files": 3.to_string(), "workers": "many" }));
    let (told, _) = home.check("site");
    assert!(line(&told, "dispatch").1.starts_with("default"), "{told}");

    for (pointer, value, why) in [
        ("/environment/kernel", json!("Linux 2.4.0"), "the kernel was Linux 2.4.0, here it is "),
        ("/environment/program", json!("0"), "the program"),
        ("/environment/machine/processors", json!("4096"), "processors: 4096 then"),
        ("/root", json!("/elsewhere"), "it is of /elsewhere"),
        ("/schema", json!("drover.tuned/0"), "drover.tuned/0"),
        ("/taken", json!(7), "it is no result"),
    ] {
        with(pointer, value);
        ignored(home, why);
    }
    fs::write(&file, "{ broken").unwrap();
    ignored(home, "it is no result");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    ignored(home, "directory");
}

/// A kept result that does not count is named with the reason, and changes nothing.
#[track_caller]
fn ignored(home: &Home, why: &str) {
    let (told, stderr) = home.check("site");
    assert!(line(&told, "dispatch").1.starts_with("default"), "{why}: {told}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for word in [why, "does not count", "drover tune "] {
        assert!(stderr.contains(word), "no {word:?} in {stderr}");
    }
}

#[test]
fn without_a_home_nothing_is_looked_for() {
    let home = Home::new();
    let mut command = home.drover("serve --check --listen 127.0.0.1:0 site");
    let output = command.env_remove("XDG_CACHE_HOME").env_remove("HOME").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn what_cannot_be_tuned_says_why() {
    let home = Home::new();
    fs::create_dir(home.path().join("empty")).unwrap();
    fs::create_dir(home.path().join("huge")).unwrap();
    let huge = fs::File::create(home.path().join("huge/disk.img")).unwrap();
    huge.set_len(1 << 30).unwrap();
    fs::write(home.path().join("there.toml"), "").unwrap();
    for (arguments, expected) in [
        ("empty", "name a folder with files"),
        ("huge", "all 1 files are larger than 16.8 MB"),
        ("nowhere", "ROOT nowhere: No such file"),
        ("site/c", "ROOT"),
        ("site --output there.toml", "--force"),
        ("site --output no/such/drover.toml", "there is no such folder"),
        ("site --urls nowhere", "--urls nowhere: No such file"),
        ("site --only threads", "there are dispatch, files, workers, accept, cache"),
        ("site --budget 0s", "above 0"),
        ("", "ROOT"),
    ] {
        let output = home.run(&format!("tune {arguments}"));
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {told}");
        assert!(told.contains(expected), "{arguments}: no {expected:?} in {told}");
    }
    assert!(!home.path().join("drover.toml").exists() && !home.path().join("caches").exists());
}

#[test]
fn a_directory_that_may_not_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let site = home.path().join("site");
    fs::set_permissions(&site, fs::Permissions::from_mode(0o000)).unwrap();
    let is_readable = fs::read_dir(&site).is_ok();
    if !is_readable {
        let output = home.run("tune site");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("Permission denied"), "{told}");
    }
    fs::set_permissions(&site, fs::Permissions::from_mode(0o755)).unwrap();
    if is_readable {
        drover_testing::skip!("this user may read every directory");
    }
}

/// A list of URLs of another site, and a budget that is too small for anything: nothing is written.
#[test]
fn what_finds_nothing_out_writes_nothing() {
    let home = Home::new();
    fs::write(home.path().join("list"), "/none\n/neither\n/c\n").unwrap();
    let output = home.run("tune site --connections 2 --urls list");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("of the requests fail") && told.contains("begin at ROOT"), "{told}");
    let output = home.run("tune site --connections 2 --budget 1s");
    let (text, told) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(text.contains("left as it is") && text.contains("--budget"), "{text}");
    assert!(told.contains("nothing is written"), "{told}");
    assert!(!home.path().join("drover.toml").exists());
}

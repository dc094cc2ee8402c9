//! When no more threads can be started.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::harness::{Client, Site, signal};
use crate::tls::wire::note;

/// How many users a run of the tests has.
const USERS: u32 = 8;

/// A user with no other processes, so that the limit of a user is exact: one for each case of each run of the tests.
fn nobody_else(case: u32) -> u32 {
    assert!(case < USERS);
    1_000_000_000 + std::process::id() * USERS + case
}

/// More threads than any server here needs.
const ENOUGH: u32 = 40;

/// `drover serve` as this user, who may have `most` threads.
fn limited(user: u32, most: u32, site: &Site, flags: &[&str]) -> Child {
    let mut command = Command::new("sh");
    // The option is -p in dash, -u elsewhere.
    let limit = format!("if (ulimit -u 99) 2>&-; then ulimit -u {most}; else ulimit -p {most}; fi");
    let limited = format!("{limit} && exec \"$0\" serve \"$@\"");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_drover")]).arg(site.path());
    command.args(["--listen", "127.0.0.1:0"]).args(flags);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).uid(user).spawn().unwrap()
}

/// Starts servers with ever more threads until one serves: whoever cannot says so before it
/// announces anything.
fn serves_or_says_why(user: u32, site: &Site, flags: &[&str]) {
    let mut last_log = String::new();
    for most in 1..ENOUGH {
        let mut child = limited(user, most, site, flags);
        let mut first = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut first).unwrap();
        let address = first.trim().strip_prefix("listening on http://");
        if let Some(address) = address {
            let address = address.parse().unwrap();
            note(address, false);
            let mut client = Client::connect(address);
            client.get("/a").is(200);
            client.get("/missing").is(404);
            signal("TERM", child.id());
        }
        let mut log = String::new();
        child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        let status = child.wait().unwrap();
        assert!(!log.contains("panicked"), "{flags:?} with {most} threads: {log}");
        assert_eq!(status.success(), address.is_some(), "{flags:?} with {most}: {status} {log}");
        if status.success() {
            assert!(most > 1, "{flags:?}: one thread was enough");
            return;
        }
        let last = log.lines().last().unwrap_or_default();
        // The mechanisms are tried on threads of their own, and their list tells what failed.
        let has_remedy = last.contains("'ulimit -u'") || last.contains("'drover mechanisms'");
        assert!(has_remedy, "{flags:?} with {most} threads: {log}");
        last_log = log;
    }
    panic!("{flags:?}: {ENOUGH} threads were too few: {last_log}");
}

#[test]
fn a_server_without_the_threads_that_it_needs_says_so_and_does_not_start() {
    if !drover_sys::process::is_root() {
        return drover_testing::skip!("only root can be a user without other processes");
    }
    let site = Site::new();
    site.file("a", "hello");
    // Anybody may come in.
    std::fs::set_permissions(site.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let checked = limited(nobody_else(0), ENOUGH, &site, &["--check"]).wait_with_output();
    if checked.is_ok_and(|it| !it.status.success()) {
        return drover_testing::skip!("another user cannot run the program where it lies");
    }
    let mut cases = vec![vec!["--dispatch", "epoll", "--files", "threads", "--read-threads", "2"]];
    for dispatch in ["epoll", "auto"] {
        for more in [&[][..], &["--processes"], &["--accept", "handoff"]] {
            cases.push([&["--dispatch", dispatch, "--workers", "2"], more].concat());
        }
    }
    let cases: Vec<_> = (0..).zip(cases).collect();
    drover_testing::side_by_side(&cases, |(case, flags)| {
        serves_or_says_why(nobody_else(*case), &site, flags);
    });
}

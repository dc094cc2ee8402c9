//! `drover lab versus`, as a user runs it, with windows that say nothing of the servers.

use std::path::Path;
use std::process::{Command, Output};

fn lab(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.arg("lab").args(arguments).current_dir(folder).output().unwrap()
}

/// What was printed; the command must have succeeded.
#[track_caller]
fn printed(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn has_python() -> bool {
    Command::new("python3").arg("--version").output().is_ok_and(|it| it.status.success())
}

/// The lines of the table below this head, up to the next empty line.
#[track_caller]
fn table<'t>(text: &'t str, head: &str) -> Vec<&'t str> {
    let lines = text.lines().skip_while(|line| !line.starts_with(head));
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    assert!(!lines.is_empty(), "no {head:?} in\n{text}");
    lines
}

/// The table has a line for the server, with a number; or says that its runs do not count, as they may not on a
/// machine that does other things.
#[track_caller]
fn has_value(table: &[&str], server: &str) {
    let line = table.iter().find(|line| line.trim_start().starts_with(server));
    let line = line.unwrap_or_else(|| panic!("no {server} in {table:#?}"));
    let value = line.trim_start()[server.len()..].split_whitespace().next();
    let is_number = value.is_some_and(|value| value.parse::<f64>().is_ok());
    let left_out =
        |line: &&str| line.contains(&format!("! {server}: ")) && line.contains("(left out)");
    assert!(is_number || table.iter().any(left_out), "{table:#?}");
}

#[test]
fn servers_are_measured_side_by_side_and_missing_ones_are_told() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let drover = env!("CARGO_BIN_EXE_drover");
    let epoll = format!("epoll='{drover}' serve {{root}} -p 127.0.0.1:{{port}} --dispatch epoll");
    let python = "python=python3 -m http.server {port} --bind 127.0.0.1 --directory {root}";
    let mut arguments = vec!["versus", "drover", &epoll, "ends=exit 3; : {port}"];
    if has_python() {
        arguments.push(python);
    } else {
        drover_testing::skip!("python3 is not installed");
    }
    let more = "--window 60ms --repeats 1 --idle 20 --connections 2 --file-bytes 1K --pool-mb 1 \
                --rates 50 --seed 3 --out runs";
    arguments.extend(more.split_whitespace());
    let text = printed(&lab(folder.path(), &arguments));
    let saturation = table(&text, "At saturation: files of 1024 B, 2 connections");
    let rates = table(&text, "At a fixed rate: files of 1024 B, 2 connections, 50 requests/s");
    let idle = table(&text, "Memory per idle connection: 20 of them");
    for table in [&saturation, &rates, &idle] {
        let lines = table.iter().map(|line| line.chars().count());
        assert!(lines.max() <= Some(80), "{table:#?}");
        assert!(table.iter().any(|line| line.trim_start().starts_with("! ends: ")), "{table:#?}");
    }
    let servers =
        if has_python() { vec!["drover", "epoll", "python"] } else { vec!["drover", "epoll"] };
    for server in servers {
        has_value(&saturation, server);
        has_value(&idle, server);
    }
    let folder = text.lines().find_map(|line| line.strip_prefix("Samples: ")).unwrap();
    assert!(folder.ends_with("-versus"), "{folder}");
}

#[test]
fn servers_are_compared_over_tls() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let drover = env!("CARGO_BIN_EXE_drover");
    let serve = format!("'{drover}' serve {{root}} -p 127.0.0.1:{{port}} --tls-cert {{cert}}");
    let own = format!("own={serve} --tls-key {{key}}");
    let mut arguments = vec!["versus", "--tls", "drover", &own];
    let more = "--window 60ms --repeats 1 --idle 10 --connections 2 --file-bytes 1K --pool-mb 1 \
                --rates 50 --seed 3 --out runs";
    arguments.extend(more.split_whitespace());
    let text = printed(&lab(folder.path(), &arguments));
    for server in ["drover", "own"] {
        has_value(&table(&text, "At saturation: files of 1024 B, 2 connections"), server);
        has_value(&table(&text, "Memory per idle connection: 10 of them"), server);
    }
    let output = lab(folder.path(), &["versus", "--tls", &serve.replacen('\'', "own='", 1)]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("{cert} and {key}"), "{told}");
}

#[test]
fn rates_follow_from_a_first_look() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let arguments = "versus drover --window 60ms --repeats 1 --idle 0 --connections 2 --out runs";
    let text = printed(&lab(folder.path(), &arguments.split(' ').collect::<Vec<_>>()));
    assert_eq!(
        text.lines().filter(|line| line.starts_with("At a fixed rate: ")).count(),
        2,
        "{text}"
    );
    assert!(!text.contains("Memory per idle"), "{text}");
}

#[test]
fn what_is_no_server_is_refused_with_what_is() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["versus", "caddie"][..], "NAME=COMMAND"),
        (&["versus", "mine=serve"], "{port}"),
        (&["versus", "drover", "--file-bytes", "0"], "--file-bytes"),
        (&["versus", "drover", "--window", "0s"], "--window"),
        (&["versus"], "SERVER"),
        // The name that 'versus' had once is that of another command, which takes folders.
        (&["compare", "drover", "nginx"], "drover lab versus"),
        (&["compare", "drover", "nginx", "--rates", "50"], "drover lab versus"),
    ] {
        let output = lab(folder.path(), arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(expected), "{told}");
    }
}

//! Black-box tests of the command line itself: exit status, one-line errors, closed pipes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};

use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Pid, Signal, kill_process};

fn drover(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_drover")).args(args).output().unwrap()
}

#[track_caller]
fn assert_usage_error(output: &Output, mentions: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("drover: ") && stderr.contains(mentions), "{stderr}");
}

#[test]
fn an_unknown_command_is_answered_with_the_nearest() {
    assert_usage_error(&drover(&["labs"]), "'lab'");
}

#[test]
fn an_unknown_flag_is_named() {
    assert_usage_error(&drover(&["lab", "--no-such-flag"]), "--no-such-flag");
}

#[test]
fn help_and_version_succeed_on_stdout() {
    for flag in ["--help", "--version"] {
        let output = drover(&[flag]);
        assert!(output.status.success());
        assert!(!output.stdout.is_empty() && output.stderr.is_empty());
    }
}

/// The short help is what a user sees first: it fits on one tall screen, `--help` has the rest.
#[test]
fn a_short_help_fits_a_screen() {
    for command in ["serve", "compress", "load", "idle", "mechanisms", "lab"] {
        let mut drover = Command::new(env!("CARGO_BIN_EXE_drover"));
        let output = drover.args([command, "-h"]).env("COLUMNS", "80").output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.lines().count() <= 64, "{command}:\n{help}");
    }
}

/// Experiments' flags come last, and only `--help` shows them.
#[test]
fn help_has_its_groups_in_order() {
    for (command, groups) in [
        ("serve", &["Serving", "HTTPS", "Limits", "Cache", "Workers", "Experiments"][..]),
        ("load", &["Requests", "TLS", "HTTP/2", "Load", "Responses", "Generator", "Output"]),
    ] {
        let output = drover(&[command, "--help"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let headings = text.lines().filter(|line| !line.starts_with(' ') && line.ends_with(':'));
        let found: Vec<&str> = headings.map(|line| line.trim_end_matches(':')).collect();
        assert_eq!(found, [&["Arguments", "Options"], groups].concat(), "{command}");
    }
    let short = String::from_utf8(drover(&["serve", "-h"]).stdout).unwrap();
    assert!(!short.contains("Experiments:") && !short.contains("--overflow"), "{short}");
}

/// Answers to a question end quietly, whoever has stopped reading: `drover lab list | head -1`.
#[test]
fn a_closed_stdout_is_no_failure() {
    for args in [&["--help"][..], &["lab", "list"], &["mechanisms"], &["mechanisms", "--json"]] {
        let output = unread(args).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    }
}

/// A run that failed says so to whoever gates on it: `drover load … --slo … | head`.
#[test]
fn a_closed_stdout_hides_no_failure() {
    // Bound, and nobody listens: it refuses.
    let refusing = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&refusing, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = SocketAddr::try_from(rustix::net::getsockname(&refusing).unwrap()).unwrap();
    let url = format!("http://{address}/");
    for (args, reason) in [
        (&["load", &url, "-n", "1"][..], "refused"),
        (&["load", &url, "-n", "1", "--json", "-"], "refused"),
        (&["load", &url, "-n", "1", "--events"], "refused"),
        (&["load", &url, "-n", "1", "--processes", "2", "-c", "2"], "refused"),
        (&["idle", &url, "-c", "1"], "could not be opened"),
    ] {
        let output = unread(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        assert!(stderr.contains(reason), "{args:?}: {stderr}");
    }
}

#[test]
fn a_closed_stdout_hides_no_missed_objective() {
    let site = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", site.local_addr().unwrap());
    let responses = std::thread::spawn(move || {
        let (mut client, _) = site.accept().unwrap();
        let _ = drover_testing::uninterrupted(|| client.read(&mut [0; 4096])).unwrap();
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        client
    });
    let output =
        unread(&["load", &url, "-n", "1", "-c", "1", "--slo", "max<1us"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("--slo: violated"), "{stderr}");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    responses.join().unwrap();
}

/// A server is there for its clients.
#[test]
fn a_closed_stdout_stops_no_server() {
    let args = ["serve", "--response-size", "1", "--listen", "127.0.0.1:0"];
    let mut server = unread(&args).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(server.stderr.take().unwrap()).lines();
    assert!(log.any(|line| line.unwrap().contains("dispatch")), "it never started");
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(log.any(|line| line.unwrap().contains("stopped")), "it had ended by itself");
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_stdout_that_cannot_be_written_is_named() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = unread(&["lab", "list"]).stdout(full).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot write to stdout: No space left"), "{stderr}");
}

/// The program with `args`, and a stdout whose reader is gone.
fn unread(args: &[&str]) -> Command {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.args(args).stdin(Stdio::null()).stdout(writer);
    command
}

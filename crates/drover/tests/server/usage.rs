//! Wrong use, and what stands on the two outputs.

use std::io::{BufRead, Read};
use std::net::TcpListener;
use std::process::{Output, Stdio};

use drover_mech::accept;
use drover_mech::mechanisms::{self, Mechanism};

use crate::harness::{Server, Site, drover};
use crate::http2::wire as http2;
use crate::tls::wire::{is_spoken, note, url};

fn serve(arguments: &[&str]) -> Output {
    drover().arg("serve").args(arguments).stderr(Stdio::piped()).output().unwrap()
}

/// One line on stderr that contains every one of `words`, nothing on stdout.
#[track_caller]
fn fails(arguments: &[&str], status: i32, words: &[&str]) {
    let output = serve(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    assert_eq!((stderr.lines().count(), output.stdout.len()), (1, 0), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "{word:?} is missing: {stderr}");
    }
}

#[test]
fn an_unknown_mechanism_is_answered_with_the_usable_ones() {
    let usable = mechanisms::ALL.iter().filter(|mechanism| mechanism.probe().is_ok());
    let mut words: Vec<&str> = usable.map(|mechanism| mechanism.name).collect();
    words.extend(["--dispatch", "kqueue", "drover mechanisms"]);
    fails(&["--dispatch", "kqueue"], 2, &words);
}

#[test]
fn wrong_values_are_answered_with_right_ones() {
    fails(&["--files", "tape"], 2, &["--files", "auto", "sendfile", "writev"]);
    fails(&["--accept-batch", "0"], 2, &["--accept-batch", "all"]);
    fails(&["--devpoll-model", "magic"], 2, &["--devpoll-model", "hints"]);
    fails(&["--send-budget", "0"], 2, &["--send-budget", "auto"]);
    fails(&["--accept", "lottery"], 2, &["--accept", "reuseport"]);
    fails(&["--idle-timeout", "5x"], 2, &["--idle-timeout", "10s"]);
    fails(&["--revalidate", "never"], 2, &["--revalidate", "10s", "inotify"]);
    fails(&["--revalidate", "inotify 5s"], 2, &["--revalidate", "inotify,10s"]);
    fails(&["--listen", "nowhere"], 2, &["--listen", "127.0.0.1:8080"]);
    fails(&["--workers", "0"], 2, &["--workers"]);
    fails(&["--user", "no-such-user"], 2, &["--user", "no-such-user", "1000:1000"]);
    fails(&["--user", "root"], 2, &["--user", "www-data"]);
    fails(&["--workers", "9999", "--pin", "--listen", "0"], 2, &["--pin", "--workers"]);
    fails(&["--trace", "t", "--processes"], 2, &["--trace", "--processes"]);
    fails(&["--response-size", "1", "."], 2, &["--response-size", "ROOT"]);
    fails(&["--trace", "/no/such/trace", "--listen", "0"], 1, &["--trace", "/no/such/trace"]);
    fails(&["--no-such-flag"], 2, &["--no-such-flag"]);
}

#[test]
fn overflow_is_ignored_only_where_there_is_one() {
    for mechanism in mechanisms::ALL.iter().filter(|mechanism| mechanism.probe().is_ok()) {
        let flags = ["--dispatch", mechanism.name, "--overflow", "ignore"];
        if mechanism.features.contains(mechanisms::Features::CAN_OVERFLOW) {
            let output = serve(&[&flags[..], &["--check", "--listen", "127.0.0.1:0"]].concat());
            assert!(output.status.success(), "{}", mechanism.name);
        } else {
            fails(&flags, 2, &["--overflow", mechanism.name]);
        }
    }
}

#[test]
fn what_cannot_work_together_is_refused_with_what_can() {
    let usable = |mechanism: &&&Mechanism| mechanism.probe().is_ok();
    for strategy in accept::ALL.iter().filter(|strategy| strategy.probe().is_ok()) {
        for mechanism in mechanisms::ALL.iter().filter(usable) {
            let flags = ["--accept", strategy.name, "--dispatch", mechanism.name];
            if strategy.goes_with(mechanism).is_ok() {
                let output = serve(&[&flags[..], &["--check", "--listen", "127.0.0.1:0"]].concat());
                assert!(output.status.success(), "{flags:?}");
            } else {
                let other = accept::ALL.iter().find(|other| other.goes_with(mechanism).is_ok());
                let other = other.unwrap().name;
                fails(&flags, 2, &["--accept", strategy.name, mechanism.name, "--dispatch", other]);
            }
        }
    }
}

#[test]
fn memory_to_read_into_is_enough_for_two_reads() {
    fails(&["--read-memory", "255K"], 2, &["--read-memory", "256K"]);
    let flags = ["--read-memory", "256K", "--check", "--listen", "127.0.0.1:0"];
    let output = serve(&flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_processor_chooses_only_among_sockets() {
    for strategy in accept::ALL.iter().filter(|strategy| strategy.probe().is_ok()) {
        let flags = ["--accept", strategy.name, "--accept-by-cpu"];
        if strategy.settings.contains(accept::ObeyedFields::BY_CPU) {
            let output = serve(&[&flags[..], &["--check", "--listen", "127.0.0.1:0"]].concat());
            assert!(output.status.success(), "{}", strategy.name);
        } else {
            fails(&flags, 2, &["--accept-by-cpu", strategy.name]);
        }
    }
}

#[test]
fn a_wake_policy_goes_with_a_wait_queue() {
    for strategy in accept::ALL.iter().filter(|strategy| strategy.probe().is_ok()) {
        let flags = ["--accept", strategy.name, "--accept-wake", "wake-one"];
        if strategy.settings.contains(accept::ObeyedFields::WAKE_POLICY) {
            let output = serve(&[&flags[..], &["--check", "--listen", "127.0.0.1:0"]].concat());
            assert!(output.status.success(), "{}", strategy.name);
        } else {
            fails(&flags, 2, &["--accept-wake", strategy.name]);
        }
    }
    fails(&["--accept-wake", "nobody"], 2, &["--accept-wake", "task-exclusive"]);
}

#[test]
fn a_root_that_is_no_directory_is_refused() {
    let site = Site::new();
    let file = site.file("a", "x");
    fails(&[site.path().join("missing").to_str().unwrap()], 2, &["missing", "ROOT"]);
    fails(&[file.to_str().unwrap()], 2, &["ROOT must be a directory"]);
}

#[test]
fn a_port_that_is_taken_is_said_to_be() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for workers in ["1", "2"] {
        let flags = ["--response-size", "1", "--listen", &address, "--workers", workers];
        fails(&flags, 1, &[&address, "taken", "--listen"]);
    }
}

#[test]
fn a_port_is_not_shared_with_another_server() {
    let server = Server::of_size(1, &["--workers", "2"]);
    let address = server.address().to_string();
    for workers in ["1", "2"] {
        let flags = ["--response-size", "1", "--listen", &address, "--workers", workers];
        fails(&flags, 1, &[&address, "taken"]);
    }
}

#[test]
fn an_address_of_another_machine_is_refused() {
    fails(
        &["--response-size", "1", "--listen", "192.0.2.1:0"],
        1,
        &["192.0.2.1", "no such address"],
    );
}

#[test]
fn check_finds_faults_and_serves_nothing() {
    let site = Site::new();
    let root = site.path().to_str().unwrap();
    let output = serve(&["--check", root, "--listen", "127.0.0.1:0", "--workers", "2"]);
    assert!(output.status.success());
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("no fault") && stdout.contains("2 workers"), "{stdout}");
    let served = format!(
        "would serve {} on http://127.0.0.1:0: ",
        site.path().canonicalize().unwrap().display()
    );
    assert!(stdout.contains(&served), "{stdout}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    fails(&["--check", root, "--listen", &taken.local_addr().unwrap().to_string()], 1, &["taken"]);
}

/// As many as the processors that the process may use: one, if it is confined to one, and no more than a quota leaves.
#[test]
fn there_is_a_worker_for_each_processor() {
    let cpus = drover_sys::process::usable_cpus().unwrap();
    let by_quota = std::thread::available_parallelism().unwrap().get();
    for cpus in [&cpus[..1], &cpus[..]] {
        let expected = cpus.len().min(by_quota);
        for flags in [&[][..], &["--workers", "auto"]] {
            let mut command = drover();
            command.args(["serve", "--check", "--response-size", "1", "--listen", "0"]).args(flags);
            drover_sys::process::pin(&mut command, cpus).unwrap();
            let output = command.output().unwrap();
            let stdout = String::from_utf8(output.stdout).unwrap();
            let plural = if expected == 1 { "," } else { "s," };
            assert!(stdout.contains(&format!(" {expected} worker{plural}")), "{stdout}");
        }
    }
}

/// What `--check` says of a trace is what the start would say, and it leaves a file as it is.
#[test]
fn check_tries_the_trace_and_writes_nothing() {
    fn with(path: &str) -> Vec<&str> {
        vec!["--check", "--response-size", "1", "--listen", "127.0.0.1:0", "--trace", path]
    }
    let site = Site::new();
    fails(&with("/no/such/trace"), 1, &["cannot begin --trace /no/such/trace", "No such file"]);
    fails(&with(site.path().to_str().unwrap()), 1, &["cannot begin --trace", "directory"]);
    let kept = site.file("kept", "of an earlier run");
    assert!(serve(&with(kept.to_str().unwrap())).status.success());
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "of an earlier run");
    let new = site.path().join("new");
    assert!(serve(&with(new.to_str().unwrap())).status.success());
    assert!(!new.exists(), "it is left behind");
    // Opening a FIFO would wait for a reader.
    let fifo = site.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert!(serve(&with(fifo.to_str().unwrap())).status.success());
}

#[test]
fn every_address_is_announced_and_answers() {
    let mut command = drover();
    command.args(["serve", "--response-size", "3", "--workers", "2"]);
    let mut n_addresses = 2;
    command.args(["--listen", "127.0.0.1:0", "--listen", "127.0.0.2:0"]);
    if TcpListener::bind("[::1]:0").is_ok() {
        command.args(["--listen", "[::1]:0"]);
        n_addresses += 1;
    } else {
        drover_testing::skip!("this machine has no IPv6");
    }
    let server = Server::start(command, n_addresses);
    for &address in server.addresses() {
        for _ in 0..10 {
            let mut client = crate::harness::Client::connect(address);
            assert_eq!(client.get("/").is(200).body.len(), 3);
        }
    }
}

#[test]
fn the_log_says_what_auto_has_picked() {
    let site = Site::new();
    let mut command = drover();
    command.arg("serve").arg(site.path()).stderr(Stdio::piped());
    let mut server = Server::start(command, 1);
    server.terminate();
    let log: Vec<String> = server.stderr().lines().map(Result::unwrap).collect();
    let picked = mechanisms::auto(1).unwrap().name;
    let served =
        format!("serving {} on {}: ", site.path().canonicalize().unwrap().display(), server.url());
    let says = |line: &String| line.contains(picked) && line.contains(&served);
    assert!(log.iter().any(says), "{served}: {log:?}");
}

#[test]
fn a_client_that_speaks_tls_is_refused_and_told_of_once() {
    if http2::leaves_out("its clients are preceded by those who speak it") {
        return;
    }
    let mut command = drover();
    command.args(["serve", "--response-size", "1"]).stderr(Stdio::piped());
    let mut server = Server::start(command, 1);
    for _ in 0..3 {
        let mut client = server.connect();
        client.send(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03");
        client.response().is(400);
    }
    server.terminate();
    let log: Vec<String> = server.stderr().lines().map(Result::unwrap).collect();
    assert_eq!(log.iter().filter(|line| line.contains("speaks TLS")).count(), 1, "{log:?}");
}

#[test]
fn check_finds_files_that_flags_name_beneath_the_root_and_are_not_there() {
    let site = Site::new();
    site.file("there.html", "");
    for flags in [["--fallback", "none.html"], ["--error-page", "404=none.html"]] {
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(["--check", "--listen", "127.0.0.1:0"]);
        let output = command.args(flags).stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        for part in [flags[0], "none.html", "No such file"] {
            assert!(told.contains(part), "{told}");
        }
    }
    let flags = ["--fallback", "there.html", "--error-page", "404=there.html"];
    let check = ["--check", "--listen", "127.0.0.1:0"];
    let output = drover().arg("serve").arg(site.path()).args(check).args(flags).output().unwrap();
    assert!(output.status.success());
}

/// Nobody can type 0.0.0.0 into a browser elsewhere: the interfaces' addresses follow.
#[test]
fn a_server_on_every_address_names_those_it_can_be_reached_at() {
    for (any, loopback) in [("0.0.0.0", "127.0.0.1"), ("[::]", "[::1]")] {
        if TcpListener::bind(format!("{loopback}:0")).is_err() {
            drover_testing::skip!("this machine has no {loopback}");
            continue;
        }
        let mut command = drover();
        command.args(["serve", "--response-size", "3", "--listen", &format!("{any}:0")]);
        let server = Server::start(command, 1);
        let address = format!("{loopback}:{}", server.address().port());
        let reached = address.parse().unwrap();
        note(reached, is_spoken(server.address()));
        let mut client = crate::harness::Client::connect(reached);
        assert_eq!(client.get("/").is(200).body.len(), 3);
        let rest = server.rest_of_stdout();
        let expected = format!("reachable at {}", url(reached));
        assert!(rest.lines().any(|line| line == expected), "{expected}: {rest}");
    }
}

#[test]
fn only_devpoll_has_parts_of_dev_poll() {
    let flags = ["--dispatch", "poll", "--devpoll-model", "hints"];
    fails(&flags, 2, &["--devpoll-model", "--dispatch devpoll"]);
    for model in ["none", "apart", "hints", "walk,lock", "hints,walk,lock", "ready-list"] {
        let server = Server::of_size(1, &["--dispatch", "devpoll", "--devpoll-model", model]);
        server.get("/").is(200);
    }
}

#[test]
fn events_are_recorded_where_there_are_any_of_one_worker() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events");
    let record = ["--response-size", "1", "--record-events", file.to_str().unwrap()];
    let fails_with = |more: &[&str]| fails(&[&record, more].concat(), 2, &["--record-events"]);
    fails_with(&["--workers", "2", "--dispatch", "poll"]);
    fails_with(&["--workers", "1", "--processes", "--dispatch", "poll"]);
    if mechanisms::by_name("uring").unwrap().probe().is_ok() {
        fails_with(&["--workers", "1", "--dispatch", "uring"]);
    }
    let mut server = Server::of_size(1, &[&record[2..], &["--dispatch", "rtsig-batch"]].concat());
    server.get("/").is(200);
    server.terminate();
    assert!(server.exit_status().success());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# drover.events/1 started="), "{text}");
    assert!(text.lines().count() > 1, "{text}");
}

#[test]
fn events_that_cannot_be_recorded_are_told_of() {
    if !std::path::Path::new("/dev/full").exists() {
        return drover_testing::skip!("there is no /dev/full");
    }
    let mut command = drover();
    command.args(["serve", "--response-size", "1", "--record-events", "/dev/full"]);
    command.args(["--dispatch", "poll"]).stderr(std::process::Stdio::piped());
    let mut server = Server::start(command, 1);
    server.get("/").is(200);
    server.terminate();
    let mut log = String::new();
    server.stderr().read_to_string(&mut log).unwrap();
    assert!(server.exit_status().success());
    assert!(log.contains("--record-events: No space left"), "{log}");
}

//! Workers that are processes: deaths, stops, and the supervisor's own end.

use std::io::BufRead;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use drover_testing::Finally;
use nix::sched::{CloneFlags, unshare};

use crate::accepting::on_every_pair;
use crate::connections::letters;
use crate::harness::{Client, Server, children_of, drover, once, request, signal, wait_until};

const WORKERS: usize = 3;

/// Waits until `gone` has a successor, so that there are `count` processes as before.
pub(crate) fn until_replaced(server: &Server, gone: u32, count: usize) -> Vec<u32> {
    once("another worker", || {
        let children = server.children();
        (children.len() == count && !children.contains(&gone)).then_some(children)
    })
}

/// Sends a request and says whether it is answered; a connection of a dead worker is closed or reset.
fn is_answered(client: &mut Client) -> bool {
    if client.try_send(request("GET", "/a", &["Connection: close"])).is_err() {
        return false;
    }
    let (bytes, end) = client.drain();
    assert!(end.as_ref().err().is_none_or(|error| error.kind() != std::io::ErrorKind::WouldBlock));
    bytes > 0
}

/// All workers die, one after the other: whoever answers in the end is a successor.
#[test]
fn a_killed_worker_costs_the_requests_that_it_held() {
    let site = letters();
    on_every_pair(&site, &["--processes"], |server| {
        for worker in server.children() {
            let mut clients: Vec<Client> = (0..12).map(|_| server.connect()).collect();
            for client in &mut clients {
                client.get("/a").is(200);
            }
            signal("KILL", worker);
            // Neither these nor the ones that come meanwhile hang.
            let mut fresh: Vec<Client> = (0..12).map(|_| server.connect()).collect();
            for client in clients.iter_mut().chain(&mut fresh) {
                is_answered(client);
            }
            until_replaced(&server, worker, WORKERS);
        }
        for _ in 0..30 {
            server.get("/b").is(200);
        }
    });
}

/// How many clients ask without a pause in the next test, and how many workers die meanwhile.
const CLIENTS: usize = 6;
const KILLS: usize = 2;

/// Workers are killed while clients ask, one connection after the other: a client loses at most the
/// one request that it had under way.
#[test]
fn a_kill_under_load_costs_no_more_than_what_was_under_way() {
    let site = letters();
    on_every_pair(&site, &["--processes"], |server| {
        let (answered, lost) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let over = AtomicBool::new(false);
        let ask = || {
            while !over.load(Ordering::Relaxed) {
                let count = if is_answered(&mut server.connect()) { &answered } else { &lost };
                count.fetch_add(1, Ordering::Relaxed);
            }
        };
        let until_many_more_are_answered = |clients: &[ScopedJoinHandle<'_, ()>]| {
            let enough = answered.load(Ordering::Relaxed) + 3 * CLIENTS;
            while answered.load(Ordering::Relaxed) < enough {
                assert!(!clients.iter().any(ScopedJoinHandle::is_finished), "a client gives up");
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(ask)).collect();
            // Their end is a failure's, too.
            let _over = Finally(|| over.store(true, Ordering::Relaxed));
            for worker in server.children().into_iter().take(KILLS) {
                until_many_more_are_answered(&clients);
                signal("KILL", worker);
                until_replaced(&server, worker, WORKERS);
            }
            until_many_more_are_answered(&clients);
        });
        let lost = lost.load(Ordering::Relaxed);
        assert!(lost <= KILLS * CLIENTS, "{lost} requests are lost with {KILLS} workers");
    });
}

/// An abort is how Rust ends a program that gets no memory.
#[test]
fn a_worker_that_aborts_is_replaced_and_the_log_has_one_line_of_that() {
    for (processes, count) in [(&[][..], 1), (&["--processes"], WORKERS)] {
        let mut command = std::process::Command::new("sh");
        // No core file is left behind.
        command.args(["-c", "ulimit -c 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_drover")]);
        command.args(["serve", "--response-size", "1", "--workers", "3"]).args(processes);
        command.stderr(Stdio::piped());
        let mut server = Server::start(command, 1);
        let gone = server.children()[0];
        signal("ABRT", gone);
        until_replaced(&server, gone, count);
        (0..10).for_each(|_| drop(server.get("/").is(200)));
        server.terminate();
        let log: Vec<String> = server.stderr().lines().map(Result::unwrap).collect();
        assert!(server.exit_status().success(), "{log:?}");
        let pid = format!("(pid {gone})");
        let lines = log.iter().filter(|line| line.contains(&pid) || line.contains("SIGABRT"));
        let [line] = lines.collect::<Vec<_>>()[..] else { panic!("{log:?}") };
        for part in [&pid, "has ended", "SIGABRT", "memory", "starting another"] {
            assert!(line.contains(part), "{line}");
        }
    }
}

/// Who was about to take the place of a dead one dies, too.
#[test]
fn workers_killed_all_at_once_are_replaced() {
    let site = letters();
    for strategy in drover_mech::accept::ALL.iter().filter(|strategy| strategy.probe().is_ok()) {
        println!("{}", strategy.name);
        let flags = ["--processes", "--workers", "3", "--dispatch", "epoll", "--accept"];
        let server = Server::on(&site, &[&flags[..], &[strategy.name]].concat());
        for _ in 0..2 {
            let all = server.children();
            all.iter().for_each(|worker| signal("KILL", *worker));
            all.iter().for_each(|worker| drop(until_replaced(&server, *worker, WORKERS)));
            for _ in 0..30 {
                server.get("/c").is(200);
            }
        }
    }
}

/// A worker that is asked to stop by somebody else finishes what it holds, and is replaced.
#[test]
fn a_worker_that_is_asked_to_stop_is_replaced_and_loses_nothing() {
    let site = letters();
    let server = Server::on(&site, &["--processes", "--workers", "3"]);
    for worker in server.children() {
        signal("TERM", worker);
        for _ in 0..20 {
            server.get("/a").is(200);
        }
        until_replaced(&server, worker, WORKERS);
    }
}

#[test]
fn workers_die_with_their_supervisor() {
    let mut server = Server::of_size(1, &["--processes", "--workers", "3"]);
    let children = server.children();
    assert_eq!(children.len(), WORKERS);
    server.kill();
    server.exit_status();
    server.until_it_refuses();
    // Of one that is ending only root may look at the descriptors.
    let lives = |child: &u32| std::fs::exists(format!("/proc/{child}/fd/0")).unwrap_or(false);
    wait_until("they die", || !children.iter().any(lives));
}

#[test]
fn the_grace_and_the_second_signal_hold_for_processes() {
    let site = crate::stopping::site();
    let server = Server::on(&site, &["--processes", "--workers", "2", "--defer-accept", "off"]);
    crate::stopping::finishes_what_is_under_way(server);
    let flags = ["--processes", "--workers", "2", "--grace", "1h"];
    crate::stopping::ends_at_a_second_signal(Server::on(&site, &flags));
}

/// The terminal sends it to everybody in the foreground.
#[test]
fn an_interrupt_of_all_is_one_interrupt() {
    let site = letters();
    let mut server = Server::on(&site, &["--processes", "--workers", "3"]);
    let mut idle = server.connect();
    idle.get("/a").is(200);
    for worker in server.children() {
        signal("INT", worker);
    }
    idle.get("/a").is(200);
    server.interrupt();
    idle.expect_end();
    assert!(server.exit_status().success());
}

#[test]
fn only_a_supervisor_starts_workers() {
    let mut command = drover();
    command.args(["serve", "--response-size", "1", "--processes", "--workers", "2"]);
    command.args(["--listen", "127.0.0.1:0", "--as-worker", "{}"]);
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_shares_of_workers_are_told_at_the_end() {
    for flags in [&["--workers", "2"][..], &["--workers", "2", "--processes"]] {
        let mut command = drover();
        command.args(["serve", "--response-size", "1"]).args(flags).stderr(Stdio::piped());
        let mut server = Server::start(command, 1);
        for _ in 0..10 {
            server.get("/").is(200);
        }
        server.terminate();
        let log: Vec<String> = server.stderr().lines().map(Result::unwrap).collect();
        let line = log.iter().find(|line| line.contains("by worker: connections ["));
        let line = line.unwrap_or_else(|| panic!("{log:?}"));
        let shares = line.split(['[', ']']).nth(1).unwrap();
        let sum: u32 = shares.split(", ").map(|share| share.parse::<u32>().unwrap()).sum();
        assert_eq!(sum, 10, "{line}");
    }
}

/// How often a process is killed that may take too long to start.
const KILLED_MOST: u32 = 20;

/// Kills the newest process again and again, so that each successor is in the same place. One that lived for a second or more is
/// replaced at once: the machine may take so long to start it.
#[test]
fn a_worker_that_dies_time_and_again_is_replaced_after_a_pause() {
    let mut command = drover();
    command.args(["serve", "--response-size", "1", "--processes", "--workers", "3"]);
    command.stderr(Stdio::piped());
    let mut server = Server::start(command, 1);
    let mut log = server.stderr().lines().map(Result::unwrap);
    let mut newest = server.children()[WORKERS - 1];
    let mut killed: Option<Instant> = None;
    for _ in 0..KILLED_MOST {
        let killed_before = killed.replace(Instant::now());
        signal("KILL", newest);
        let line = log.find(|line| line.contains("has ended")).unwrap();
        for part in [&format!("(pid {newest})"), "SIGKILL", "memory"] {
            assert!(line.contains(part), "{line}");
        }
        let before: Vec<u32> = server.children();
        if line.contains("starting another in ") {
            server.get("/").is(200);
            return;
        }
        assert!(line.contains("starting another now"), "{line}");
        // The process has lived since the kill before at most.
        let may_have_lived = killed_before.map(|it| it.elapsed());
        assert!(may_have_lived.is_none_or(|it| it >= Duration::from_secs(1)), "{line}");
        let after = until_replaced(&server, newest, WORKERS);
        newest = *after.iter().find(|child| !before.contains(child)).unwrap_or(&after[WORKERS - 1]);
    }
    drover_testing::skip!("a process takes a second to start here");
}

/// The path leads to a folder for the supervisor alone: workers get it open.
#[test]
fn workers_serve_what_their_supervisor_has_opened() {
    let site = letters();
    for flags in [&[][..], &["--processes", "--workers", "2"]] {
        let mut command = std::process::Command::new("sh");
        command.current_dir(site.path()).stderr(Stdio::null()).args([
            "-c",
            "exec \"$0\" serve /proc/self/task/$$/cwd --listen 127.0.0.1:0 \"$@\"",
            env!("CARGO_BIN_EXE_drover"),
        ]);
        let server = Server::start_as_it_is(
            {
                command.args(flags);
                command
            },
            1,
        );
        server.get("/a").is(200);
    }
}

/// Nobody but root may look into the folder meanwhile. The others serve on.
#[test]
fn a_successor_that_cannot_start_says_why_and_comes_when_it_can() {
    if !drover_sys::process::is_root() {
        return drover_testing::skip!("only root can have workers of another user");
    }
    let site = letters();
    let mode = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(site.path(), permissions).unwrap();
    };
    mode(0o755);
    let mut command = drover();
    command.arg("serve").arg(site.path()).args(["--processes", "--workers", "3"]);
    // Found by every connection, whichever worker has died.
    command.args(["--accept", "blocking", "--user", "4000000:4000000"]).stderr(Stdio::piped());
    let mut server = Server::start(command, 1);
    let mut log = server.stderr().lines().map(Result::unwrap);
    // What is open already is not asked for again by those that live on.
    (0..30).for_each(|_| drop(server.get("/a").is(200)));
    mode(0o700);
    let killed = server.children()[0];
    signal("KILL", killed);
    let line = log.find(|line| line.contains("has ended: --user")).unwrap();
    for part in ["worker ", "(pid ", "cannot look into", "starting another in "] {
        assert!(line.contains(part), "{line}");
    }
    mode(0o755);
    until_replaced(&server, killed, WORKERS);
    for _ in 0..30 {
        server.get("/a").is(200);
    }
}

/// As in a container: process 1 gets no signal that it has no handler for, and nobody else reaps.
#[test]
fn as_process_1_it_replaces_workers_and_stops() {
    for flags in [&[][..], &["--processes"]] {
        let start = || -> nix::Result<Server> {
            let mut command = std::process::Command::new("sh");
            // No core file is left behind.
            let script = "ulimit -c 0; exec \"$0\" \"$@\"";
            command.args(["-c", script, env!("CARGO_BIN_EXE_drover")]);
            command.args(["serve", "--response-size", "8"]).args(flags).stderr(Stdio::null());
            // Of this thread, for what it starts.
            unshare(CloneFlags::CLONE_NEWPID)?;
            Ok(Server::start(command, 1))
        };
        let started = std::thread::scope(|scope| scope.spawn(start).join());
        let mut server = match started.unwrap() {
            Ok(server) => server,
            Err(why) => {
                return drover_testing::skip!("no namespace of processes: unshare(2): {why}");
            }
        };
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.process())).unwrap();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
        assert_eq!(numbers.split_whitespace().last(), Some("1"), "{numbers}");
        for name in ["KILL", "ABRT"] {
            server.get("/").is(200);
            let worker = server.worker_process();
            signal(name, worker);
            until_replaced(&server, worker, 1);
        }
        server.get("/").is(200);
        let dead = |(_, state): &(u32, char)| *state == 'Z';
        wait_until("it has reaped all", || !children_of(server.process()).iter().any(dead));
        server.terminate();
        assert!(server.exit_status().success());
    }
}

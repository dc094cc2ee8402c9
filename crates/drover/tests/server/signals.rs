//! What signals do to a server that starts, and to one that runs.

use std::io::BufRead;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::harness::{
    Server, Site, drover, has_let_go, on_every_mechanism, once, signal, wait_until,
};
use crate::tls::wire::is_spoken;

/// Servers as threads and as processes, whose log is read.
fn servers() -> impl Iterator<Item = Server> {
    [&["--workers", "2"][..], &["--workers", "2", "--processes"]].into_iter().map(|flags| {
        let mut command = drover();
        command.args(["serve", "--response-size", "1"]).args(flags).stderr(Stdio::piped());
        Server::start(command, 1)
    })
}

/// An address of this machine where nobody else listens or connects from: a server's port stays free while the server is away.
pub(crate) fn own_loopback() -> SocketAddr {
    static NUMBER: AtomicU8 = AtomicU8::new(1);
    // Of other processes with tests, few have the same number.
    let [.., high, low] = std::process::id().to_be_bytes();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    SocketAddr::from(([127, 128 | high, low, number], 0))
}

/// Its workers end with it, and the kernel lets go of the sockets of a ring some time later. A server waits for that; where it
/// takes longer than a server waits, because nobody lets the kernel run, the next one is started.
#[test]
fn after_a_sigkill_another_starts_at_the_same_port_on_every_mechanism() {
    on_every_mechanism(|mechanism| {
        for flags in [&["--workers", "1"][..], &["--workers", "2", "--processes"]] {
            let start = |address: &str| {
                once("its port is free", || {
                    let mut command = drover();
                    command.args(["serve", "--response-size", "1", "--listen", address]);
                    command.args(["--dispatch", mechanism.name]).args(flags).stderr(Stdio::piped());
                    let started = Server::try_start(&mut command, 1);
                    started.map_err(|what| assert!(what.contains("is taken"), "{what}")).ok()
                })
            };
            // Where no other test could get the port meanwhile.
            let mut server = start(&own_loopback().to_string());
            let address = server.address().to_string();
            for _ in 0..3 {
                server.get("/").is(200);
                let workers = server.children();
                server.kill();
                wait_until("its workers end", || workers.iter().all(|it| has_let_go(*it)));
                server = start(&address);
            }
            server.get("/").is(200);
        }
    });
}

#[test]
fn signals_without_a_use_are_logged_and_end_nothing() {
    for mut server in servers() {
        let mut log = server.stderr().lines().map(Result::unwrap);
        // A server with a certificate reads its files again.
        let names = ["HUP", "USR1", "USR2", "ALRM"];
        let without_use = if is_spoken(server.address()) { &names[1..] } else { &names };
        for name in without_use {
            for worker in server.children() {
                signal(name, worker);
            }
            signal(name, server.process());
            let ignored = format!("SIG{name} is ignored");
            log.find(|line| line.contains(&ignored)).unwrap_or_else(|| panic!("SIG{name}"));
        }
        server.get("/").is(200);
        server.terminate();
        let rest: Vec<String> = log.collect();
        assert!(!rest.iter().any(|line| line.contains("has ended")), "{rest:?}");
        assert!(server.exit_status().success());
    }
}

#[test]
fn sigquit_stops_as_sigterm_does() {
    for mut server in servers() {
        let mut idle = server.connect();
        idle.get("/").is(200);
        // A terminal sends it to all processes.
        for worker in server.children() {
            signal("QUIT", worker);
        }
        idle.get("/").is(200);
        signal("QUIT", server.process());
        idle.expect_end();
        assert!(server.exit_status().success());
    }
}

/// Opening a FIFO for writing waits for a reader, and here there never is one.
#[test]
fn a_signal_ends_a_server_that_waits_while_it_starts() {
    let site = Site::new();
    let fifo = site.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    for (name, number) in [("TERM", 15), ("INT", 2), ("QUIT", 3)] {
        let mut command = drover();
        command.args(["serve", "--response-size", "1", "--listen", "127.0.0.1:0", "--trace"]);
        let mut child = command.arg(&fifo).spawn().unwrap();
        while !catches(child.id(), number) {
            assert!(child.try_wait().unwrap().is_none(), "it ended");
        }
        signal(name, child.id());
        assert!(child.wait().unwrap().success(), "SIG{name}");
    }
}

/// Whether a process has a handler for a signal (proc_pid_status(5)).
fn catches(process: u32, number: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (number - 1)) != 0
}

//! `drover idle`: connections that are held, lost, opened again, and used now and then.

use std::io::{BufRead, BufReader, Lines, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::run::{drover, load};
use crate::server::{Action, Nobody, Server, response};

/// A running `drover idle`; ended with the test.
struct Holder {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    fn start(listener: &TcpListener, more: &[&str]) -> Holder {
        let url = format!("http://{}/", listener.local_addr().unwrap());
        Holder::start_at(&url, more)
    }

    fn start_at(url: &str, more: &[&str]) -> Holder {
        let mut child = drover(&["idle", url])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Holder { child, lines }
    }

    #[track_caller]
    fn next_line(&mut self) -> String {
        match self.lines.next() {
            Some(line) => line.unwrap(),
            None => panic!("no more lines: {}", self.stderr()),
        }
    }

    /// The line that says what became of the connections, after those on what happens to them.
    #[track_caller]
    fn last_line(&mut self) -> String {
        loop {
            let line = self.next_line();
            if line.starts_with("held ") {
                return line;
            }
        }
    }

    fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    fn stop(&self) {
        drover_sys::process::ask_to_stop(&self.child).unwrap();
    }

    fn status(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It has ended already unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn accept(listener: &TcpListener, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| listener.accept().unwrap().0).collect()
}

#[test]
fn connections_are_held_until_a_signal_comes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut holder = Holder::start(&listener, &["--connections", "100"]);
    let held = accept(&listener, 100);
    assert_eq!(holder.next_line(), "holding 100 connections");
    holder.stop();
    // Every one of them ends, and none was used.
    for mut stream in held {
        assert_eq!(drover_testing::uninterrupted(|| stream.read(&mut [0])).unwrap(), 0);
    }
    let last = holder.next_line();
    assert!(last.starts_with("held 100 connections for "), "{last}");
    assert!(last.ends_with("; 0 closed by the server, 0 opened again"), "{last}");
    assert_eq!(holder.status(), Some(0), "{}", holder.stderr());
}

#[test]
fn connections_that_the_server_closes_are_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut holder = Holder::start(&listener, &["--connections", "10"]);
    let mut held = accept(&listener, 10);
    assert_eq!(holder.next_line(), "holding 10 connections");
    drop(held.split_off(7));
    let mut closed = 0;
    while closed < 3 {
        let line = holder.next_line();
        closed = line.strip_prefix("closed by the server: ").unwrap().parse().unwrap();
    }
    assert_eq!(closed, 3);
    // With the last one there is nothing left to hold.
    drop(held);
    let last = holder.last_line();
    assert!(last.ends_with("; 10 closed by the server, 0 opened again"), "{last}");
    assert_eq!(holder.status(), Some(1));
    assert!(holder.stderr().contains("none is left"));
}

#[test]
fn with_reopen_lost_connections_come_back() {
    for more in [&["--reopen"][..], &["--reopen", "--every", "1h"]] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let arguments = [&["--connections", "4"], more].concat();
        let mut holder = Holder::start(&listener, &arguments);
        let mut held = accept(&listener, 4);
        assert_eq!(holder.next_line(), "holding 4 connections");
        // Those that come after the second loss show that the program knew of the first return.
        for _ in 0..2 {
            drop(held.split_off(1));
            held.extend(accept(&listener, 3));
        }
        holder.stop();
        let last = holder.last_line();
        let counts = last.split("; ").nth(1).unwrap();
        let again = counts.strip_prefix("6 closed by the server, ").unwrap();
        let again: u32 = again.strip_suffix(" opened again").unwrap().parse().unwrap();
        assert!((3..=6).contains(&again), "{more:?}: {last}");
        assert_eq!(holder.status(), Some(0));
    }
}

/// Accepts so many connections, ends them, and waits until the program has noticed each.
fn accept_and_end(listener: &TcpListener, count: usize) {
    let mut ended = accept(listener, count);
    ended.iter().for_each(|stream| stream.shutdown(Shutdown::Write).unwrap());
    for stream in &mut ended {
        assert_eq!(drover_testing::uninterrupted(|| stream.read(&mut [0])).unwrap(), 0);
    }
}

/// The program waits for the server to accept all connections. What it loses meanwhile was opened, and
/// is not opened again.
#[test]
fn connections_lost_before_the_last_is_accepted_are_counted_as_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut holder = Holder::start(&listener, &["--connections", "60"]);
    accept_and_end(&listener, 10);
    let held = accept(&listener, 50);
    assert_eq!(holder.next_line(), "holding 50 connections");
    holder.stop();
    let last = holder.last_line();
    assert!(last.starts_with("held 60 connections for "), "{last}");
    assert!(last.ends_with("; 10 closed by the server, 0 opened again"), "{last}");
    assert_eq!(holder.status(), Some(0), "{}", holder.stderr());
    drop(held);
}

#[test]
fn losing_all_connections_early_is_a_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut holder = Holder::start(&listener, &["--connections", "5"]);
    accept_and_end(&listener, 4);
    accept_and_end(&listener, 1);
    let last = holder.last_line();
    assert!(last.starts_with("held 5 connections for "), "{last}");
    assert!(last.ends_with("; 5 closed by the server, 0 opened again"), "{last}");
    assert_eq!(holder.status(), Some(1));
    assert!(holder.stderr().contains("none is left"));
}

/// Each connection waits twice as long before each further attempt: about seven in a second.
#[test]
fn a_server_that_closes_at_once_is_not_stormed() {
    for more in [&[][..], &["--every", "1h"]] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = ["--connections", "4", "--reopen", "--hold", "1s"];
        let mut holder = Holder::start(&listener, &[&own, more].concat());
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let accepted = listener.incoming().map(drop);
            accepted.take_while(|()| !is_over.load(Ordering::SeqCst)).count()
        });
        let last = holder.last_line();
        assert_eq!(holder.status(), Some(0), "{last}");
        over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(address).unwrap());
        let accepted = server.join().unwrap();
        assert!((4..200).contains(&accepted), "{more:?}: {accepted}");
        assert!(last.starts_with("held 4 connections"), "{last}");
    }
}

#[test]
fn with_every_each_connection_is_used_once_per_period() {
    // Three of each are due, the last a twentieth of a period before the end: it may be too late for some. Where the machine
    // stands still for a part of that time, a longer time shows it.
    for (every, hold) in [("500ms", "1500ms"), ("2s", "6s"), ("8s", "24s")] {
        let server = Server::always(Action::Response(response("200 OK", 1)));
        let arguments = ["--connections", "20", "--every", every, "--hold", hold];
        let mut holder = Holder::start_at(&server.url(), &arguments);
        assert_eq!(holder.next_line(), "holding 20 connections");
        let last = holder.next_line();
        assert!(
            last.starts_with("held 20 connections for ") && last.contains("; 0 closed"),
            "{last}"
        );
        let counts = holder.next_line();
        assert_eq!(holder.status(), Some(0));
        let (log, _) = server.log();
        let mut uses = [0; 20];
        log.iter().for_each(|request| uses[request.connection as usize] += 1);
        let (least, most) = (uses.iter().min().unwrap(), uses.iter().max().unwrap());
        assert!(*most <= 4, "{uses:?}");
        // After a stall the first and the last of a round may have changed places.
        let all_came = counts == format!("{0} requests, {0} responses", log.len());
        if all_came && *least >= 1 && most - least <= 2 {
            return;
        }
        println!("once more with longer periods: {counts}, {uses:?}");
    }
    drover_testing::skip!("the machine stood still for a part of each period");
}

#[test]
fn nothing_to_hold_is_a_failure() {
    let nobody = Nobody::anywhere();
    let mut holder = Holder::start_at(&nobody.url(), &["--connections", "5"]);
    let last = holder.next_line();
    assert!(last.starts_with("held 0 connections"), "{last}");
    assert_eq!(holder.next_line(), "errors: refused 5");
    assert_eq!(holder.status(), Some(1));
    assert!(holder.stderr().contains("5 of 5 connections could not be opened"));
}

#[test]
fn idle_connections_beside_a_load_are_told_when_they_are_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        // The first three are the idle ones; one of them is closed before the first request.
        let mut idle = accept(&listener, 3);
        idle.pop();
        let (mut stream, _) = listener.accept().unwrap();
        let mut input = BufReader::new(stream.try_clone().unwrap()).lines();
        for _ in 0..50 {
            while input.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let bytes = response("200 OK", 1);
            std::io::Write::write_all(&mut stream, bytes.as_bytes()).unwrap();
        }
        (idle, stream)
    });
    let run = load(&[&url, "-c", "1", "-n", "50", "--idle", "3"]);
    server.join().unwrap();
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!(run.number("/connections/idle_held"), 2);
    assert_eq!(run.number("/connections/closed_by_peer"), 1);
    assert_eq!(run.number("/responses"), 50);
}

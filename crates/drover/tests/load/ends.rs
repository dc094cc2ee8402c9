//! Runs come to their end: with every request done that can be, or at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::recorder::Recorder;
use crate::run::{check_sums, drover, finish, line, load, lockstep};
use crate::server::{response, wait};

/// Reads one request.
fn read(stream: &TcpStream) {
    let mut input = BufReader::new(stream);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        assert!(input.read_line(&mut line).unwrap() > 0);
    }
}

/// Of two connections the first is closed, and cannot be opened again for the last request: nobody
/// is accepted any more. The second has nothing to do then, and does it.
#[test]
fn a_request_that_finds_no_connection_is_sent_on_another() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let [mut first, mut second] = [(); 2].map(|()| listener.accept().unwrap().0);
        read(&first);
        read(&second);
        // A queue of one, which is full (listen(2)).
        rustix::net::listen(&listener, 0).unwrap();
        let queued = TcpStream::connect(address).unwrap();
        let closing = response("200 OK", 1).replacen("\r\n", "\r\nConnection: close\r\n", 1);
        first.write_all(closing.as_bytes()).unwrap();
        drop(first);
        // Enough for the first to begin anew; if it is not, the second has the last request at once.
        wait(Duration::from_millis(100));
        second.write_all(response("200 OK", 1).as_bytes()).unwrap();
        read(&second);
        second.write_all(response("200 OK", 1).as_bytes()).unwrap();
        // Kept until the run is over: a further attempt would be refused otherwise.
        (listener, queued)
    });
    let url = format!("http://{address}/");
    let run = load(&[&url, "-c", "2", "-n", "3", "--timeout", "3s"]);
    server.join().unwrap();
    assert_eq!((run.status, run.number("/responses")), (Some(0), 3), "{}", run.json);
    assert_eq!(run.errors(), run.number("/errors/connect_timeout"), "{}", run.json);
}

/// Somebody who waits for a line from a program that has hung is not at its mercy.
#[test]
fn a_second_signal_ends_a_run_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut child = drover(&["load", "--events", "--lockstep", "-c", "1", &url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _connection = listener.accept().unwrap();
    assert_eq!(line(&mut BufReader::new(child.stdout.as_mut().unwrap())), "connected");
    let status = loop {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        match child.try_wait().unwrap() {
            Some(status) => break status,
            // Signals that come too soon after each other are one.
            None => wait(Duration::from_millis(10)),
        }
    };
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
}

/// Between two turns nothing is under way, and nothing is counted twice.
#[test]
fn a_window_in_turns_waits_between_them() {
    let server = Recorder::start();
    let words = ["-c", "3", "-d", "20ms", "--turns", "100000", &server.url];
    let (child, mut stdin, mut stdout) = lockstep(&words);
    assert_eq!(line(&mut stdout), "connected");
    // A machine that stands still may leave a turn without a request.
    let (mut total, mut turns, mut length) = (0, 0, 0.0);
    while turns < 3 {
        stdin.write_all(b"\n").unwrap();
        let turn = line(&mut stdout);
        let numbers = turn.strip_prefix("turn ").unwrap_or_else(|| panic!("{turn}"));
        let (responses, seconds) = numbers.split_once(' ').unwrap();
        let (responses, seconds): (usize, f64) =
            (responses.parse().unwrap(), seconds.parse().unwrap());
        assert!(responses >= total && seconds >= length + 0.02 - 1e-9, "{turn} after {length}");
        assert_eq!(server.requests().len(), responses);
        turns += usize::from(responses > total);
        (total, length) = (responses, seconds);
    }
    drover_sys::process::ask_to_stop(&child).unwrap();
    drop(stdin);
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    let run = finish(Output { stdout: rest, ..child.wait_with_output().unwrap() });
    check_sums(&run.json);
    assert_eq!(run.number("/requests"), server.requests().len() as u64, "{}", run.json);
    assert!(run.number("/responses") >= total as u64, "{}", run.json);
}

//! Runs come to their end: with every request done that can be, or at once.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::run::{drover, load};
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
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "connected\n");
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

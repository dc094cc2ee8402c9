//! When descriptors run out.

use std::io::BufRead;
use std::process::{Command, Stdio};

use mech::dispatch::Mechanism;
use mech::process::{open_files_limit, room_for_descriptors};

use crate::harness::{Client, Server, Site, on_every_mechanism, request};

/// `drover serve` with so few descriptors that a few dozen connections use them up.
pub(crate) fn starved(descriptors: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let limited = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_drover")]);
    command.arg("serve").args(arguments).stderr(Stdio::null());
    command
}

fn connections_beyond_the_limit_wait_their_turn(mechanism: &Mechanism) {
    let server =
        Server::start(starved(40, &["--reply-size", "5", "--dispatch", mechanism.name]), 1);
    let mut clients: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(request("GET", "/", &[]));
    }
    // Each that is answered goes, and makes room for one that waits.
    for mut client in clients {
        client.reply().is(200);
    }
    assert_eq!(server.get("/").is(200).body.len(), 5);
}

#[test]
fn connections_beyond_the_limit_of_descriptors_wait_their_turn() {
    on_every_mechanism(connections_beyond_the_limit_wait_their_turn);
}

#[test]
fn a_file_that_cannot_be_opened_for_want_of_descriptors_is_a_503() {
    let site = Site::new();
    site.file("a", "hello");
    let mut command = starved(40, &[site.path().to_str().unwrap(), "--cache", "off"]);
    command.stderr(Stdio::piped());
    let mut server = Server::start(command, 1);
    let mut client = server.connect();
    client.get("/a").is(200);
    let others: Vec<Client> = (0..60).map(|_| server.connect()).collect();
    let starts_to_fail = (0..100_000).any(|_| client.get("/a").status == 503);
    assert!(starts_to_fail, "60 connections left room for a file under 40 descriptors");
    drop(others);
    let recovers = (0..100_000).any(|_| client.get("/a").status == 200);
    assert!(recovers, "descriptors are free again and the file still does not open");
    server.terminate();
    let log: Vec<String> = server.stderr().lines().map(Result::unwrap).collect();
    let complaints = |about: &str| log.iter().filter(|line| line.contains(about)).count();
    assert!(complaints("cannot accept") > 0 && complaints("cannot open a") > 0, "{log:?}");
}

/// The cache may keep half of the descriptors, and the connections need more than the other half.
#[test]
fn what_is_kept_gives_way_to_connections_when_descriptors_run_out() {
    let site = Site::new();
    let target = |number: usize| format!("/{}", number % 60);
    for number in 0..60 {
        site.file(&number.to_string(), vec![b'a'; 20_000 + number]);
    }
    site.file("small", "in memory");
    on_every_mechanism(|mechanism| {
        let flags = [site.path().to_str().unwrap(), "--dispatch", mechanism.name];
        let server = Server::start(starved(64, &flags), 1);
        let mut clients = vec![server.connect()];
        for number in 0..120 {
            clients[0].get(&target(number)).is(200);
        }
        assert!(server.files_open() >= 30, "the cache keeps descriptors while there are some");
        // It needs no descriptor when it is asked for again: only accepting does.
        clients[0].get("/small").is(200);
        while clients.len() < 36 {
            let mut client = server.connect();
            client.get("/small").is(200);
            clients.push(client);
        }
        for round in 0..60 {
            for (number, client) in clients.iter_mut().enumerate() {
                client.send(request("GET", &target(round + number), &[]));
            }
            for (number, client) in clients.iter_mut().enumerate() {
                let length = client.reply().is(200).body.len();
                assert_eq!(length, 20_000 + (round + number) % 60);
            }
        }
    });
}

/// The kernel stops whoever opens the descriptor for which its table is too small, for some 10 ms.
#[test]
fn a_worker_has_room_for_descriptors_from_the_start() {
    let room = |process| room_for_descriptors(process).unwrap();
    let limit = open_files_limit().hard.unwrap_or(u64::MAX);
    let server = Server::of_size(5, &["--workers", "2"]);
    assert!(room(server.process()) >= limit.min(65_536));
    let server = Server::of_size(5, &["--workers", "2", "--processes"]);
    let rooms: Vec<u64> = server.children().into_iter().map(room).collect();
    assert!(rooms.len() == 2 && rooms.iter().all(|&room| room >= limit.min(32_768)), "{rooms:?}");
}

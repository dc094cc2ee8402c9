//! When descriptors run out.

use std::io::BufRead;
use std::process::{Command, Stdio};
use std::time::Instant;

use drover_mech::mechanisms::Mechanism;
use drover_sys::process::{open_files_limit, room_for_descriptors};
use rustix::process::{Pid, Resource, Rlimit};

use crate::harness::{
    Arrived, Client, PATIENCE, Server, Site, many_connections, on_every_mechanism, once, request,
    usable_mechanisms,
};
use crate::http2::wire as http2;

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
        Server::start(starved(40, &["--response-size", "5", "--dispatch", mechanism.name]), 1);
    // Each that is answered goes, and makes room for one that waits.
    for mut client in server.clients_that_have_asked(100, |_| "/".to_owned()) {
        client.response().is(200);
    }
    assert_eq!(server.get("/").is(200).body.len(), 5);
}

#[test]
fn connections_beyond_the_limit_of_descriptors_wait_their_turn() {
    on_every_mechanism(connections_beyond_the_limit_wait_their_turn);
}

/// Flags under which no time-out ends a connection of a test.
const PATIENT: [&str; 4] = ["--header-timeout", "3600s", "--idle-timeout", "3600s"];

/// Those that have been idle longest are closed, and none that has a request under way.
#[test]
fn idle_clients_that_hold_every_descriptor_give_way_to_new_ones() {
    let _alone = many_connections();
    let site = Site::new();
    site.file("a", "hello");
    site.sparse("large", 16 << 20);
    on_every_mechanism(|mechanism| {
        let flags = [site.path().to_str().unwrap(), "--dispatch", mechanism.name];
        let server = Server::start(starved(64, &[&flags[..], &PATIENT].concat()), 1);
        let mut asks = server.connect();
        asks.send("GET /a HTTP/1.1\r\nHost:");
        let mut takes = server.connect();
        takes.send(request("GET", "/large", &[]));
        let mut sends = server.connect();
        sends.send(request("POST", "/a", &["Content-Length: 5"]) + "ab");
        sends.response().is(405);
        let mut idle = Vec::new();
        for _ in 0..200 {
            let mut client = server.connect();
            client.get("/a").is(200);
            idle.push(client);
        }
        asks.send(" localhost\r\n\r\n");
        asks.response().is(200);
        assert_eq!(takes.response().is(200).body.len(), 16 << 20);
        if !http2::is_wanted() {
            sends.send("cde".to_string() + &request("GET", "/a", &[]));
            sends.response().is(200);
        }
        idle.last_mut().unwrap().get("/a").is(200);
        idle[0].expect_end();
    });
}

#[test]
fn connections_beyond_the_most_that_there_may_be_wait_until_one_is_idle_or_over() {
    on_every_mechanism(|mechanism| {
        let flags = ["--dispatch", mechanism.name, "--max-connections", "2"];
        let server = Server::of_size(5, &[&flags[..], &PATIENT].concat());
        let mut first = server.connect();
        let mut second = server.connect();
        for client in [&mut first, &mut second] {
            client.send("GET / HTTP/1.1\r\nHost:");
        }
        let mut third = server.connect();
        third.send_ahead(request("GET", "/", &[]));
        assert_eq!(third.arrived(), Arrived::Nothing, "a third client is answered");
        // It is over.
        first.send(" localhost\r\nConnection: close\r\n\r\n");
        first.response().is(200);
        third.response().is(200);
        // The third is idle now, and the second is not.
        let mut fourth = server.connect();
        fourth.get("/").is(200);
        third.expect_end();
        second.send(" localhost\r\n\r\n");
        second.response().is(200);
    });
}

#[test]
fn more_workers_than_connections_are_refused() {
    let mut command = crate::harness::drover();
    command.args(["serve", "--workers", "4", "--max-connections", "3"]).stderr(Stdio::piped());
    let output = command.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("--max-connections 4"), "{message}");
    assert_eq!(output.status.code(), Some(2));
    // As many as there are processors need not be said.
    let mut command = crate::harness::drover();
    command.args(["serve", "--workers", "auto", "--max-connections", "1", "--check"]);
    assert!(command.args(["--listen", "127.0.0.1:0"]).status().unwrap().success());
}

/// Descriptors are kept for files: however many clients ask at once, none is refused for want of one.
#[test]
fn a_crowd_leaves_descriptors_for_the_files_that_it_asks_for() {
    let _alone = many_connections();
    let site = Site::new();
    let target = |number: usize| format!("/{}", number % 20);
    for number in 0..20 {
        site.file(&number.to_string(), vec![b'a'; 40_000 + number]);
    }
    on_every_mechanism(|mechanism| {
        for cache in ["off", "64M"] {
            let flags = [site.path().to_str().unwrap(), "--cache", cache];
            let flags = [&flags[..], &["--dispatch", mechanism.name], &PATIENT].concat();
            let server = Server::start(starved(64, &flags), 1);
            let mut clients = server.clients_that_have_asked(200, target);
            for (number, client) in clients.iter_mut().enumerate() {
                assert_eq!(client.response().is(200).body.len(), 40_000 + number % 20);
            }
        }
    });
}

/// There is one for each connection, unless something else has taken them.
/// `--admin` has its descriptors in a process of its own.
#[test]
fn a_status_page_takes_no_descriptors_from_workers() {
    let flags = [&["--response-size", "1", "--admin", "127.0.0.1:0"][..], &PATIENT].concat();
    let server = Server::start(starved(64, &flags), 1);
    let mut clients: Vec<_> = (0..20).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost:"));
    // None of them is idle, so that the last one has a connection only if all have.
    for client in clients.iter_mut().rev() {
        client.send(" localhost\r\n\r\n");
        client.response().is(200);
    }
}

#[test]
fn a_file_that_cannot_be_opened_for_want_of_descriptors_is_a_503() {
    let site = Site::new();
    site.file("a", "hello");
    let mut command = starved(64, &[site.path().to_str().unwrap(), "--cache", "off"]);
    command.stderr(Stdio::piped());
    let mut server = Server::start(command, 1);
    let limit = |most: u64| {
        let process = Pid::from_raw(server.worker_process().cast_signed());
        let limit = Rlimit { current: Some(most), maximum: Some(64) };
        rustix::process::prlimit(process, Resource::Nofile, limit).unwrap();
    };
    let refused = once("a request without a descriptor", || {
        let mut client = server.connect();
        client.get("/a").is(200);
        limit(3);
        let sent = client.try_send(request("GET", "/a", &[]));
        // Once a second the server looks for connections that the kernel keeps back. It has no descriptor for one then, and closes
        // this one to have some.
        let is_answered = sent.is_ok() && client.await_bytes().is_ok_and(|count| count > 0);
        limit(64);
        is_answered.then(|| client.response())
    });
    refused.is(503);
    server.get("/a").is(200);
    server.terminate();
    let log: Vec<String> = server.stderr().lines().map(Result::unwrap).collect();
    let complaints = |about: &str| log.iter().filter(|line| line.contains(about)).count();
    assert!(complaints("cannot open a") > 0, "{log:?}");
}

/// The cache may keep half of the descriptors, and the connections need more than the other half.
#[test]
fn what_is_kept_gives_way_to_connections_when_descriptors_run_out() {
    let site = Site::new();
    let target = |number: usize| format!("/{}", number % 60);
    for number in 0..60 {
        site.file(&number.to_string(), vec![b'a'; 40_000 + number]);
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
        while clients.len() < 24 {
            let mut client = server.connect();
            client.get("/small").is(200);
            clients.push(client);
        }
        for round in 0..60 {
            for (number, client) in clients.iter_mut().enumerate() {
                client.send(request("GET", &target(round + number), &[]));
            }
            for (number, client) in clients.iter_mut().enumerate() {
                let length = client.response().is(200).body.len();
                assert_eq!(length, 40_000 + (round + number) % 60);
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
    assert!(room(server.worker_process()) >= limit.min(65_536));
    let server = Server::of_size(5, &["--workers", "2", "--processes"]);
    let rooms: Vec<u64> = server.children().into_iter().map(room).collect();
    assert!(rooms.len() == 2 && rooms.iter().all(|&room| room >= limit.min(32_768)), "{rooms:?}");
}

/// Request heads that come slowly keep no more memory than their bytes need: an input buffer each, of
/// which the kernel maps 8 KiB, would be 16 MB.
#[test]
fn heads_that_do_not_end_cost_what_they_are_long() {
    let _alone = many_connections();
    for mechanism in usable_mechanisms() {
        let flags = ["--dispatch", mechanism.name];
        let server = Server::of_size(5, &[&flags[..], &PATIENT].concat());
        let mut clients: Vec<Client> = (0..2000).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| client.await_handshake().unwrap());
        server.get("/").is(200);
        let before = server.private_memory();
        for bytes in ["GET / HTTP/1.1\r\nHost: localhost\r\nX: ", "more", "and more"] {
            clients.iter_mut().for_each(|client| client.send(bytes));
            server.get("/").is(200);
        }
        let grown = server.private_memory().saturating_sub(before);
        assert!(grown < 8 << 20, "{}: {} bytes per connection", mechanism.name, grown / 2000);
        for client in &mut clients {
            client.send("\r\n\r\n");
            client.response().is(200);
        }
    }
}

/// One client more than it may have is turned away, whichever worker it comes to, and others are served.
#[test]
fn a_client_has_no_more_connections_than_it_may() {
    const MOST: usize = 5;
    on_every_mechanism(|mechanism| {
        let server = Server::of_size(
            1,
            &["--max-per-address", "5", "--workers", "2", "--dispatch", mechanism.name],
        );
        let mut held: Vec<Client> = (0..MOST).map(|_| server.connect()).collect();
        for client in &mut held {
            client.get("/").is(200);
        }
        for _ in 0..10 {
            let mut more = server.connect();
            // The server may close before it has seen the request.
            let _ = more.try_send(request("GET", "/", &[]));
            assert_eq!(more.drain().0, 0, "no response");
        }
        held.iter_mut().for_each(|client| drop(client.get("/").is(200)));
        // Another address of this machine is another client.
        let other = connect_from("127.0.0.2", server.address());
        assert!(other.is_none_or(|mut client| client.get("/").status == 200));
        // When one has gone, another may come.
        drop(held.pop());
        let since = Instant::now();
        loop {
            let mut next = server.connect();
            let _ = next.try_send(request("GET", "/", &[]));
            if next.await_bytes().is_ok_and(|count| count > 0) {
                break;
            }
            assert!(since.elapsed() < PATIENCE, "nobody else may come");
        }
    });
}

/// A client that connects from this address of the machine; `None`: the machine does not let it.
fn connect_from(from: &str, to: std::net::SocketAddr) -> Option<Client> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .ok()?;
    let from: std::net::IpAddr = from.parse().ok()?;
    rustix::net::bind(&socket, &std::net::SocketAddr::from((from, 0))).ok()?;
    rustix::net::connect(&socket, &to).ok()?;
    Some(Client::of(socket.into()))
}

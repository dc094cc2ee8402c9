//! `--admin`: health and counters of a server, at an address of their own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use drover_mech::mechanisms::Features;
use drover_sys::socket::set_receive_buffer;
use exposition::Exposition;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpMaxSeg;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::authentication::{ANN, Users, ann};
use crate::disk::Disk;
use crate::harness::{
    Client, Response, Server, Site, drover, on_every_mechanism, request, signal, wait_until,
};
use crate::http2::wire as http2;
use crate::limits::starved;
use crate::tls::wire::{is_spoken, note};

mod exposition;
mod hosts;
mod page;
mod status;

/// A server that is watched, with the address where it is.
fn watched(site: &Site, flags: &[&str]) -> (Server, SocketAddr) {
    let mut server = Server::on(site, &[&["--admin", "127.0.0.1:0"], flags].concat());
    let admin = server.admin_address();
    (server, admin)
}

fn get(admin: SocketAddr, path: &str) -> Response {
    Client::connect(admin).get(path)
}

/// The metrics, in good form.
pub(crate) fn metrics(admin: SocketAddr) -> Exposition {
    let response = get(admin, "/metrics").is(200);
    assert_eq!(response.field("Content-Type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    Exposition::check(response.text())
        .unwrap_or_else(|fault| panic!("{fault}\n{}", response.text()))
}

/// What `look` returns, once that is so.
#[track_caller]
fn once<T>(look: impl FnMut() -> Option<T>) -> T {
    crate::harness::once("what is watched", look)
}

/// The metrics, once all connections that were accepted have ended: what a connection has done is counted by then.
fn metrics_at_rest(admin: SocketAddr) -> Exposition {
    once(|| {
        let found = metrics(admin);
        (found.sum("drover_connections", &[]) == 0.0).then_some(found)
    })
}

fn seconds_since_1970() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap().as_secs_f64()
}

const THREADS: &[&str] = &["--workers", "2"];
const PROCESSES: &[&str] = &["--workers", "2", "--processes"];

/// Whether so many bytes were `sent` for responses that have `bytes`.
#[track_caller]
fn holds_bytes(server: &Server, sent: f64, bytes: f64) {
    if http2::is_wanted() {
        // Heads are packed, and each frame has 9 bytes more.
        return assert!((sent - bytes).abs() < bytes * 0.01, "{sent} {bytes}");
    }
    match is_spoken(server.address()) {
        false => assert_eq!(sent, bytes),
        // Sealed, each record has 22 bytes more, and each connection ends with an alert.
        true => assert!(sent > bytes && sent < bytes * 1.01, "{sent} {bytes}"),
    }
}

#[test]
fn the_metrics_are_what_was_asked_and_answered_on_every_mechanism() {
    let site = Site::new();
    site.file("a", "hello");
    site.sparse("large", 1 << 20);
    let parts = "Range: bytes=0-399999,500000-899999";
    on_every_mechanism(|mechanism| {
        for workers in [THREADS, PROCESSES] {
            let flags = [&["--dispatch", mechanism.name], workers].concat();
            let (server, admin) = watched(&site, &flags);
            let mut bytes = 0;
            let closing = |path| request("GET", path, &["Connection: close"]);
            let in_parts = request("GET", "/large", &[parts, "Connection: close"]);
            let pipelined = request("GET", "/a", &[]) + &in_parts;
            for (text, statuses, count) in [
                (closing("/a"), &[200][..], 4),
                (closing("/none"), &[404], 2),
                (pipelined, &[200, 206], 1),
            ] {
                for _ in 0..count {
                    let mut client = server.connect();
                    client.send(&text);
                    for status in statuses {
                        let response = client.response().is(*status);
                        bytes +=
                            response.lines.iter().map(|line| line.len() + 2).sum::<usize>() + 2;
                        bytes += response.body.len();
                    }
                    client.expect_end();
                }
            }
            let found = metrics_at_rest(admin);
            let sum = |name, labels: &[(&str, &str)]| found.sum(name, labels);
            assert_eq!(sum("drover_requests_total", &[]), 8.0, "{flags:?}");
            assert_eq!(sum("drover_responses_total", &[]), 8.0, "{flags:?}");
            assert_eq!(sum("drover_responses_total", &[("status", "200")]), 5.0, "{flags:?}");
            assert_eq!(sum("drover_responses_total", &[("status", "206")]), 1.0, "{flags:?}");
            assert_eq!(sum("drover_responses_total", &[("status", "404")]), 2.0, "{flags:?}");
            assert_eq!(sum("drover_connections_accepted_total", &[]), 7.0, "{flags:?}");
            assert_eq!(sum("drover_connections_closed_total", &[]), 7.0, "{flags:?}");
            holds_bytes(&server, sum("drover_sent_bytes_total", &[]), bytes as f64);
            // Of each response once: also of one that waits for its file, of one in front of another, and of one that has parts.
            assert_eq!(sum("drover_response_seconds_count", &[]), 8.0, "{flags:?}");
            assert_eq!(sum("drover_response_seconds_bucket", &[("le", "+Inf")]), 8.0, "{flags:?}");
            assert!(sum("drover_response_seconds_sum", &[]) > 0.0, "{flags:?}");
            let looked_up =
                sum("drover_cache_hits_total", &[]) + sum("drover_cache_misses_total", &[]);
            assert_eq!(looked_up, 8.0, "{flags:?}");
            let batches = sum("drover_accept_batches_total", &[]);
            assert!((1.0..=7.0).contains(&batches), "{flags:?}: {batches} batches");
            // A worker tells of these before its next wait. How many there are is the mechanism's to say: one that merges
            // reports a connection with what came before it, and a worker may accept two in a row without a wait.
            once(|| {
                let found = metrics(admin);
                let waits = found.sum("drover_dispatch_waits_total", &[]);
                let events = found.sum("drover_dispatch_events_total", &[]);
                (waits > 0.0 && events > 0.0 && batches > 0.0).then_some(())
            });
            assert_eq!(sum("drover_build_info", &[("dispatch", mechanism.name)]), 1.0);
            assert_eq!(sum("drover_workers", &[]), 2.0);
            assert_eq!(sum("drover_stopping", &[]), 0.0);
            // Nothing of what was asked here.
            assert_eq!(metrics(admin).sum("drover_requests_total", &[]), 8.0, "{flags:?}");
        }
    });
}

#[test]
fn the_bytes_of_files_are_those_of_the_backend_that_has_sent_them() {
    let site = Site::new();
    site.file("small", "kept in memory");
    site.sparse("large", 3 << 20);
    let usable = drover_mech::fileio::ALL.iter().filter(|backend| match backend.probe() {
        Ok(()) => true,
        Err(reason) => {
            drover_testing::skip!("{}: {reason}", backend.name);
            false
        }
    });
    let flags = usable.map(|backend| (backend.name, Some(*backend))).chain([("auto", None)]);
    for (files, backend) in flags {
        // Short pieces a worker reads by itself, if no backend was asked for.
        if files == "auto"
            && http2::leaves_out("no backend is asked for pieces that are in the page cache")
        {
            continue;
        }
        let (server, admin) = watched(&site, &["--files", files]);
        for path in ["/small", "/large"] {
            let mut client = server.connect();
            client.send(request("GET", path, &["Connection: close"]));
            client.response().is(200);
            client.expect_end();
        }
        server.connect().head("/large", &[]);
        // A backend that was asked for sends all files; auto keeps small ones in memory. A worker tells of it before its next wait.
        let expected = f64::from(3 << 20) + if backend.is_some() { 14.0 } else { 0.0 };
        let sent =
            |labels: &[_]| metrics_at_rest(admin).sum("drover_file_sent_bytes_total", labels);
        once(|| (sent(&[]) == expected).then_some(()));
        if let Some(backend) = backend {
            // What is to be encrypted has to be read.
            let is_read = backend.sends_unread && is_spoken(server.address());
            let name = if is_read { "writev" } else { backend.name };
            assert_eq!(sent(&[("backend", name)]), expected, "{}", backend.name);
        }
    }
}

/// A terminal sends some signals to all processes of a server, and `kill $(pidof drover)` any.
#[test]
fn signals_that_are_for_the_server_do_not_end_the_process_of_admin() {
    let (server, admin) = watched(&Site::new(), &[]);
    let process = server.admin_process();
    for name in ["INT", "QUIT", "HUP", "USR1", "USR2", "ALRM"] {
        signal(name, process);
        assert_eq!(get(admin, "/healthz").is(200).text(), "ok\n", "{name}");
    }
    assert_eq!(server.admin_process(), process);
}

/// The parts of the counters that each request is in once.
fn looked_up(admin: SocketAddr) -> [f64; 3] {
    let found = metrics_at_rest(admin);
    ["requests", "cache_hits", "cache_misses"]
        .map(|name| found.sum(&format!("drover_{name}_total"), &[]))
}

/// Also one that waits for its password, for a look where the root leads, or for a disk.
#[test]
fn a_request_is_one_hit_or_one_miss_on_every_mechanism() {
    let site = crate::authentication::site();
    let users = Users::new(&[ANN]);
    let slow = ["--attributes-for", "0s", "--metadata", "5ms", "--speed", "1"];
    let disk = Disk::mount(&site, &slow);
    on_every_mechanism(|mechanism| {
        let flags = ["--dispatch", mechanism.name, "--workers", "1", "--admin", "127.0.0.1:0"];
        let with_users = [&flags[..], &users.flags(), &["--revalidate", "0s"]].concat();
        let mut server = Server::on(&site, &with_users);
        let admin = server.admin_address();
        for _ in 0..2 {
            server.ask("/public", &[&ann()]).is(200);
        }
        let [requests, hits, misses] = looked_up(admin);
        assert_eq!((requests, hits + misses), (2.0, 2.0), "{hits} hits");
        let Some(disk) = &disk else { return };
        let mut command = drover();
        command.arg("serve").arg(disk.path()).args(flags);
        let mut server = Server::start(command, 1);
        let admin = server.admin_address();
        let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| client.send(request("GET", "/public", &[])));
        clients.iter_mut().for_each(|client| drop(client.response().is(200)));
        drop(clients);
        let [requests, hits, misses] = looked_up(admin);
        assert_eq!((requests, hits + misses), (8.0, 8.0), "{hits} hits");
    });
}

#[test]
fn the_metrics_of_processes_are_those_of_the_kernel() {
    let site = Site::new();
    for (workers, processes) in [(THREADS, 0), (PROCESSES, 2)] {
        let begin = seconds_since_1970();
        let (server, admin) = watched(&site, workers);
        let found = metrics(admin);
        let value = |name| found.sum(name, &[]);
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_cpu_seconds_total") > 0.0);
        assert_eq!(value("process_open_fds"), server.files_open() as f64);
        assert!(value("process_open_fds") < value("process_max_fds"));
        // The kernel tells it in hundredths of a second, and from another clock.
        let started = value("process_start_time_seconds");
        let meanwhile = begin - 1.0..seconds_since_1970() + 1.0;
        assert!(meanwhile.contains(&started), "{started} in {meanwhile:?}");
        assert_eq!(value("process_start_time_seconds"), {
            metrics(admin).sum("process_start_time_seconds", &[])
        });
        assert_eq!(found.samples("drover_worker_cpu_seconds_total"), 2);
        assert_eq!(found.samples("drover_worker_resident_memory_bytes"), processes);
        assert_eq!(found.samples("drover_worker_open_fds"), processes);
    }
}

#[test]
fn a_socket_that_is_full_is_counted_on_every_mechanism() {
    if http2::leaves_out("windows are full before the socket is") {
        return;
    }
    let site = Site::new();
    site.sparse("large", 64 << 20);
    on_every_mechanism(|mechanism| {
        let (server, admin) = watched(&site, &["--dispatch", mechanism.name]);
        let mut client = server.connect();
        client.send(request("GET", "/large", &[]));
        client.response_head().is(200);
        if is_spoken(server.address()) && mechanism.features.contains(Features::COMPLETION) {
            // A request with MSG_WAITALL waits by itself; only the sends of files are made by system calls.
            return drover_testing::skip!("{}: waits in the kernel over TLS", mechanism.name);
        }
        once(|| (metrics(admin).sum("drover_would_block_total", &[]) > 0.0).then_some(()));
        assert_eq!(metrics(admin).sum("drover_connections", &[]), 1.0);
        drop(client);
        metrics_at_rest(admin);
    });
}

#[test]
fn health_tells_of_the_stop_as_long_as_it_takes() {
    let site = Site::new();
    site.sparse("large", 64 << 20);
    for workers in [THREADS, PROCESSES] {
        let (mut server, admin) = watched(&site, &[workers, &["--grace", "10m"]].concat());
        let response = get(admin, "/healthz").is(200);
        assert_eq!(response.text(), "ok\n");
        let mut client = server.connect();
        client.send(request("GET", "/large", &["Connection: close"]));
        client.response_head().is(200);
        server.terminate();
        let response =
            once(|| Some(get(admin, "/healthz")).filter(|response| response.status != 200));
        assert_eq!(response.is(503).text(), "stopping\n");
        server.until_it_refuses();
        assert_eq!(metrics(admin).sum("drover_stopping", &[]), 1.0);
        assert_eq!(client.drain().0, 64 << 20);
        assert!(server.exit_status().success(), "{workers:?}");
    }
}

#[test]
fn four_paths_are_told_and_two_methods_allowed() {
    let (_server, admin) = watched(&Site::new(), &[]);
    let mut client = Client::connect(admin);
    for path in ["/", "/healthz/", "/metric", "/../a", "/%"] {
        let response = client.get(path);
        assert_eq!(response.status / 100, 4, "{path}");
        assert_eq!(response.field("X-Content-Type-Options"), Some("nosniff"), "{path}");
        if response.status == 400 {
            client = Client::connect(admin);
            continue;
        }
        for path in ["/healthz ", "/metrics ", "/status ", "/status.json "] {
            assert!(response.text().contains(path), "{}", response.text());
        }
    }
    assert_eq!(client.get("/healthz?a=b").is(200).text(), "ok\n");
    assert_eq!(client.head("/healthz", &[]).is(200).length(), 3);
    client.send(request("OPTIONS", "/metrics", &[]));
    let response = client.response().is(405);
    assert_eq!(response.field("Allow"), Some("GET, HEAD"));
    assert_eq!(get(admin, "/status").field("X-Content-Type-Options"), Some("nosniff"));
    client.send(request("POST", "/healthz", &["Content-Length: 3"]) + "abc");
    assert_eq!(client.response().is(405).field("Connection"), Some("close"));
    client.expect_end();
    // Pipelined, in order, and the last one ends the connection.
    let mut client = Client::connect(admin);
    client.send(request("GET", "/healthz", &[]) + &request("GET", "/", &["Connection: close"]));
    client.response().is(200);
    client.response().is(404);
    client.expect_end();
}

#[test]
fn what_nobody_can_read_is_refused_and_disturbs_nobody() {
    let site = Site::new();
    site.file("a", "hello");
    let (server, admin) = watched(&site, &[]);
    let refused = [
        ("NONSENSE\r\n\r\n".to_owned(), 400),
        ("\0\u{1}\r\n\r\n".to_owned(), 400),
        (request("GET", "/healthz", &["Content-Length: 1", "Content-Length: 2"]), 400),
        (request("GET", &"/a".repeat(1000), &[]), 414),
        (request("GET", "/healthz", &[&format!("X: {}", "x".repeat(10_000))]), 431),
    ];
    for (text, status) in refused {
        let mut client = Client::connect(admin);
        client.send(&text);
        assert_eq!(client.response().status, status, "{text:.100}");
        client.expect_end();
    }
    // A client that leaves in the middle of its head, and one that leaves before its response.
    Client::connect(admin).send("GET /met");
    Client::connect(admin).send(request("GET", "/metrics", &[]).repeat(50));
    // One that asks for far more than it takes: nothing.
    let mut stuck = Client::connect(admin);
    stuck.send(request("GET", "/metrics", &[]).repeat(2000));
    server.get("/a").is(200);
    get(admin, "/healthz").is(200);
}

#[test]
fn a_hundred_connections_at_once_keep_nobody_out() {
    let site = Site::new();
    site.file("a", "hello");
    for workers in [THREADS, PROCESSES] {
        let (server, admin) = watched(&site, workers);
        let mut kept = server.connect();
        for begin in ["", HALF_A_HEAD] {
            let mut clients: Vec<_> = (0..100).map(|_| Client::connect(admin)).collect();
            clients.iter_mut().for_each(|client| client.send(begin));
            for _ in 0..100 {
                kept.get("/a").is(200);
                server.get("/a").is(200);
            }
            // Room is made for those who ask: what is idle is closed, and what is slow runs out of time.
            assert_eq!(get(admin, "/healthz").is(200).text(), "ok\n");
        }
        let found = metrics(admin);
        assert_eq!(found.sum("drover_requests_total", &[]), 400.0);
        assert_eq!(found.sum("drover_responses_total", &[("status", "200")]), 400.0);
    }
}

/// What a server with these flags says that does not start.
fn refused(flags: &[&str]) -> String {
    let mut command = drover();
    command.args(["serve", "--response-size", "1", "--listen", "127.0.0.1:0"]).args(flags);
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{flags:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_address_that_other_machines_reach_needs_a_word() {
    for address in ["0.0.0.0:0", "[::]:0", ":0"] {
        for more in [&[][..], &["--processes"], &["--check"], &["--explain"]] {
            let told = refused(&[&["--admin", address], more].concat());
            let expected = format!("--admin {address}: other machines can reach ");
            assert!(told.contains(&expected) && told.contains("--admin-public"), "{told}");
            assert!(told.contains("--admin 127.0.0.1:"), "{told}");
        }
    }
    for workers in [THREADS, PROCESSES] {
        let flags = [&["--admin", "0.0.0.0:0", "--admin-public"], workers].concat();
        let mut server = Server::of_size(1, &flags);
        let admin = SocketAddr::from(([127, 0, 0, 1], server.admin_address().port()));
        note(admin, false);
        get(admin, "/healthz").is(200);
    }
    for local in ["127.0.0.1:0", "127.1.2.3:0", "localhost:0", "0"] {
        let flags =
            ["serve", "--response-size", "1", "--listen", "127.0.0.1:0", "--check", "--admin"];
        let output = drover().args(flags).arg(local).output().unwrap();
        assert!(output.status.success(), "{local}: {output:?}");
    }
}

const HALF_A_HEAD: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: ";

/// A head gets 5 seconds from its first byte on.
const LATE: Duration = Duration::from_secs(4);

/// Has `count` clients send half a head, more than there may be clients, and another one ask. It is answered before any head is
/// late: those that have waited longest are closed for it, and `going_on` of the others at least go on. `None`: the
/// machine stood still for so long that heads may have been late.
fn half_heads_give_way(admin: SocketAddr, count: usize, going_on: usize) -> Option<()> {
    let begin = Instant::now();
    let mut clients: Vec<_> = (0..count).map(|_| Client::connect(admin)).collect();
    // It fails for a client that was closed.
    clients.iter().for_each(|client| drop(client.stream().write_all(HALF_A_HEAD.as_bytes())));
    assert_eq!(get(admin, "/healthz").is(200).text(), "ok\n");
    let mut whole = 0;
    for client in &mut clients {
        let sent = client.stream().write_all(b"\r\n\r\n").and_then(|()| client.await_bytes());
        if matches!(sent, Ok(1..)) {
            client.response().is(200);
            whole += 1;
        }
    }
    if begin.elapsed() >= LATE {
        return None;
    }
    assert!(whole >= going_on, "{whole} of {count} go on");
    Some(())
}

#[test]
fn half_heads_keep_nobody_out() {
    for workers in [THREADS, PROCESSES] {
        let (_server, admin) = watched(&Site::new(), workers);
        once(|| half_heads_give_way(admin, 70, 50));
        once(|| half_heads_give_way(admin, 300, 20));
    }
}

/// A client that asks for much, by a socket that takes a few kilobytes, as the server's to it does.
struct GreedyClient {
    stream: TcpStream,
    sent: usize,
}

impl GreedyClient {
    fn connect(admin: SocketAddr) -> GreedyClient {
        let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(AddressFamily::INET, kind, flags, None).unwrap();
        setsockopt(&socket, TcpMaxSeg, &536).unwrap();
        set_receive_buffer(&socket, 4096).unwrap();
        rustix::net::connect(&socket, &admin).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(true).unwrap();
        GreedyClient { stream, sent: 0 }
    }

    /// Asks for more. Returns whether it could: neither is its connection closed, nor does the server leave what it has asked
    /// for until it reads.
    fn asks_on(&mut self) -> bool {
        let requests = request("GET", "/", &[]);
        let from = self.sent % requests.len();
        let sent = self.stream.write(&requests.repeat(100).as_bytes()[from..]);
        self.sent += sent.as_ref().unwrap_or(&0);
        sent.is_ok()
    }
}

/// Each takes a little from time to time, so that it is never late.
#[test]
fn clients_that_hardly_read_keep_nobody_out() {
    for workers in [THREADS, PROCESSES] {
        let (_server, admin) = watched(&Site::new(), workers);
        let mut clients: Vec<_> = (0..70).map(|_| GreedyClient::connect(admin)).collect();
        wait_until("all have asked for too much", || {
            clients.iter_mut().filter_map(|it| it.asks_on().then_some(())).count() == 0
        });
        std::thread::scope(|scope| {
            let other = scope.spawn(|| get(admin, "/healthz").is(200));
            wait_until("another client is answered", || {
                for client in &mut clients {
                    let _nothing_yet_or_closed = client.stream.read(&mut [0; 1024]);
                    client.asks_on();
                }
                other.is_finished()
            });
        });
    }
}

#[test]
fn half_heads_keep_nobody_out_where_descriptors_are_few() {
    let command = starved(40, &["--response-size", "1", "--admin", "127.0.0.1:0"]);
    let mut server = Server::start(command, 1);
    let admin = server.admin_address();
    once(|| half_heads_give_way(admin, 100, 10));
}

#[test]
fn an_address_that_is_taken_is_told_with_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for more in [&[][..], &["--processes"], &["--check"]] {
        let mut command = drover();
        command.args([
            "serve",
            "--response-size",
            "1",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            &address,
        ]);
        let mut child = command.args(more).stderr(Stdio::piped()).spawn().unwrap();
        let mut told = String::new();
        child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(told.contains(&format!("--admin {address}: port")), "{told}");
    }
}

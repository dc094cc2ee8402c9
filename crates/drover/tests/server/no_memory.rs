//! When the kernel gives a process no more memory: connections end, processes go on.
//!
//! The limit of a running process is set to what it has, so that from then on no heap can grow, and lifted again.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use drover_mech::mechanisms::Mechanism;
use drover_testing::side_by_side;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tempfile::TempDir;

use crate::admin::metrics;
use crate::harness::{
    Client, Server, Site, many_connections, request, signal, usable_mechanisms, wait_until,
};

const CLIENTS: usize = 300;

/// The length of the file that is asked for, which is kept in memory. Each of its bytes is this one.
const LEN: usize = 3000;
const BYTE: u8 = b'x';

/// How many requests a pipeline has.
const REQUESTS: usize = 40;

/// How many names a listed directory has.
const NAMES: usize = 1000;

/// A limit, and the line of /proc/PID/status that says how much of it is used.
#[derive(Clone, Copy, Debug)]
struct Limit {
    resource: Resource,
    used: &'static str,
}

/// `ulimit -v` and `ulimit -d`.
const LIMITS: [Limit; 2] = [
    Limit { resource: Resource::As, used: "VmSize:" },
    Limit { resource: Resource::Data, used: "VmData:" },
];

impl Limit {
    /// Allows the process no more than it has.
    fn tighten(self, process: u32) {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(self.used)).unwrap();
        let used: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        self.set(process, Some(used * 1024));
    }

    /// Allows the process what this one may have.
    fn lift(self, process: u32) {
        self.set(process, getrlimit(self.resource).current);
    }

    fn set(self, process: u32, current: Option<u64>) {
        let maximum = getrlimit(self.resource).maximum;
        let process = Pid::from_raw(process.cast_signed());
        prlimit(process, self.resource, Rlimit { current, maximum }).unwrap();
    }
}

/// A server with a log, and the address of its figures.
struct Watched {
    server: Server,
    admin: SocketAddr,
    log: PathBuf,
    _folder: TempDir,
}

impl Watched {
    /// Starts the server with a limit under which it has one heap for all threads (malloc(3): arenas): each of several
    /// would have addresses of its own, which `ulimit -v` does not count again.
    fn on(site: &Site, flags: &[&str]) -> Watched {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = Command::new("sh");
        let script = "ulimit -S -v 1000000 && exec \"$0\" \"$@\"";
        command.args(["-c", script, env!("CARGO_BIN_EXE_drover"), "serve"]).arg(site.path());
        command.args(["--tuned", "off", "--listing", "--admin", "127.0.0.1:0"]).args(flags);
        command.stderr(File::create(&log).unwrap());
        let mut server = Server::start(command, 1);
        Watched { admin: server.admin_address(), server, log, _folder: folder }
    }

    fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// A figure of all workers together.
    fn figure(&self, name: &str) -> u64 {
        metrics(self.admin).sum(&format!("drover_connections_{name}_total"), &[]) as u64
    }

    /// A client that has sent `bytes`, or as many as the server has let it.
    fn send(&self, bytes: &str) -> Client {
        let mut client = self.server.connect();
        let _ = client.try_send(bytes);
        client
    }

    /// Clients that want memory for large heads, of which they have sent a half, for many responses at once, and for lists.
    fn send_all(&self) -> Clients {
        let head = large_head();
        let (one, rest) = head.split_at(head.len() / 2);
        let (mut halves, mut pipelines, mut lists) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..CLIENTS {
            halves.push(self.send(one));
            pipelines.push(self.send(&pipeline(number)));
            if number % 30 == 0 {
                lists.push(self.send(&request("GET", "/many/", &["Connection: close"])));
            }
        }
        Clients { halves, rest: rest.to_owned(), pipelines, lists }
    }

    /// Waits until memory has run out, in the process `worker`.
    fn until_memory_runs_out(&self, worker: u32) {
        wait_until("memory runs out", || {
            assert_eq!(self.server.children(), [worker], "{}", self.logged());
            self.figure("out_of_memory") > 0
        });
    }
}

struct Clients {
    halves: Vec<Client>,
    rest: String,
    pipelines: Vec<Client>,
    lists: Vec<Client>,
}

/// All that comes until the connection is closed, in good order or not.
#[track_caller]
fn received(client: &mut Client) -> Vec<u8> {
    let mut received = Vec::new();
    loop {
        match client.take_bytes() {
            Ok(bytes) if bytes.is_empty() => return received,
            Ok(bytes) => received.extend(bytes),
            // Over TLS an end without close_notify is an error.
            Err(error) => {
                let kinds =
                    [ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof, ErrorKind::BrokenPipe];
                assert!(kinds.contains(&error.kind()), "{error}");
                return received;
            }
        }
    }
}

/// How many whole responses come until the connection is closed. Each has the file; the last may be cut, or say that there is
/// no memory.
#[track_caller]
fn right_responses(client: &mut Client) -> usize {
    let received = received(client);
    let (mut rest, mut whole) = (&received[..], 0);
    while let Some(end) = rest.windows(4).position(|it| it == b"\r\n\r\n") {
        if rest.starts_with(b"HTTP/1.1 503 ") {
            return whole;
        }
        assert!(rest.starts_with(b"HTTP/1.1 200 "), "{}", rest[..end].escape_ascii());
        let body = &rest[end + 4..];
        let body = &body[..LEN.min(body.len())];
        assert!(body.iter().all(|&byte| byte == BYTE), "{}", body.escape_ascii());
        if body.len() < LEN {
            return whole;
        }
        rest = &rest[end + 4 + LEN..];
        whole += 1;
    }
    assert!(rest.len() < 1000, "{}", rest.escape_ascii());
    whole
}

/// Whether a whole list comes before the connection is closed. It is a list of all names, or says that there is no memory.
#[track_caller]
fn is_right_list(client: &mut Client) -> bool {
    let received = received(client);
    let text = String::from_utf8(received).unwrap();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    if head.starts_with("HTTP/1.1 503 ") {
        return false;
    }
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let names = body.matches("<tr><td><a href=\"./").count();
    let is_whole = body.contains("</table>");
    assert!(!is_whole || names == NAMES, "{names} names");
    is_whole
}

/// A head for which the first buffer is not too small, and which takes most of it.
fn large_head() -> String {
    let fields = ["One", "Two", "Three"].map(|name| format!("{name}: {}", "y".repeat(7 << 10)));
    let [one, two, three] = fields.each_ref().map(String::as_str);
    request("GET", "/a", &[one, two, three, "Connection: close"])
}

/// Requests one after the other, each by a target that nobody else asks for.
fn pipeline(number: usize) -> String {
    let one = |it| request("GET", &format!("/a?{number}-{it}"), &[]);
    let last = request("GET", "/a", &["Connection: close"]);
    (1..REQUESTS).map(one).collect::<String>() + &last
}

fn site() -> Site {
    let site = Site::new();
    site.file("a", [BYTE; LEN]);
    fs::create_dir(site.path().join("many")).unwrap();
    for number in 0..NAMES {
        File::create(site.path().join(format!("many/{number}-{}", "n".repeat(100)))).unwrap();
    }
    site
}

fn clients_end_and_the_worker_goes_on(site: &Site, mechanism: &Mechanism, limit: Limit) {
    let watched = Watched::on(site, &["--dispatch", mechanism.name]);
    let server = &watched.server;
    let worker = server.worker_process();
    server.get("/a").is(200);
    let before = server.files_open();

    limit.tighten(worker);
    let mut clients = watched.send_all();
    watched.until_memory_runs_out(worker);
    for client in &mut clients.halves {
        // It may be closed by now.
        let _ = client.try_send(&clients.rest);
    }
    limit.lift(worker);
    let heads: usize = clients.halves.iter_mut().map(right_responses).sum();
    let responses: usize = clients.pipelines.iter_mut().map(right_responses).sum();
    let lists = clients.lists.iter_mut().map(is_right_list).filter(|is_right| *is_right).count();
    println!(
        "{}: {heads} of {CLIENTS} heads, {responses} of {} requests and {lists} of {} lists were answered",
        mechanism.name,
        CLIENTS * REQUESTS,
        CLIENTS / 30
    );
    drop(clients);

    // As before.
    for number in 0..CLIENTS / 30 {
        let mut asked = [large_head(), pipeline(number)].map(|bytes| watched.send(&bytes));
        assert_eq!(asked.each_mut().map(right_responses), [1, REQUESTS]);
        assert!(is_right_list(&mut watched.send(&request(
            "GET",
            "/many/",
            &["Connection: close"]
        ))));
    }
    assert_eq!(server.children(), [worker], "{}", watched.logged());
    wait_until("descriptors are free again", || server.files_open() <= before + 2);
    wait_until("no connection is left", || watched.figure("accepted") == watched.figure("closed"));
    let Watched { mut server, log, .. } = watched;
    server.terminate();
    assert!(server.exit_status().success());
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("memory has run out") && log.contains(" without memory"), "{log}");
}

#[test]
fn a_want_of_memory_ends_connections_and_no_worker() {
    let _alone = many_connections();
    let (site, mechanisms) = (site(), usable_mechanisms());
    let pairs = mechanisms.into_iter().flat_map(|it| LIMITS.map(|limit| (it, limit)));
    side_by_side(&pairs.collect::<Vec<_>>(), |&(mechanism, limit)| {
        clients_end_and_the_worker_goes_on(&site, mechanism, limit);
    });
}

/// Neither what the workers hear of the stop by, nor the stop itself, needs memory.
#[test]
fn a_server_without_memory_stops_when_it_is_told_to() {
    let _alone = many_connections();
    let (site, mechanisms) = (site(), usable_mechanisms());
    side_by_side(&mechanisms, |mechanism| {
        let flags = ["--dispatch", mechanism.name, "--grace", "1s"];
        let watched = Watched::on(&site, &flags);
        let worker = watched.server.worker_process();
        LIMITS.iter().for_each(|limit| limit.tighten(worker));
        LIMITS.iter().for_each(|limit| limit.tighten(watched.server.process()));
        let mut clients = watched.send_all();
        watched.until_memory_runs_out(worker);
        watched.server.terminate();
        let Watched { mut server, log, .. } = watched;
        let status = server.exit_status();
        let log = fs::read_to_string(log).unwrap();
        // Connections that the end of the grace cuts are told.
        assert!(status.code().is_some_and(|code| code <= 1), "{status}: {log}");
        assert!(!log.contains("did not stop") && !log.contains("has ended"), "{log}");
        for client in &mut clients.pipelines {
            right_responses(client);
        }
    });
}

/// A worker that dies then is not replaced until there is memory. The supervisor waits between its attempts.
#[test]
fn a_supervisor_without_memory_replaces_workers_when_there_is_some() {
    let site = site();
    let watched = Watched::on(&site, &[]);
    let server = &watched.server;
    let worker = server.worker_process();
    LIMITS.iter().for_each(|limit| limit.tighten(server.process()));
    signal("KILL", worker);
    wait_until("it says that it tries again", || {
        let log = watched.logged();
        log.contains("cannot start worker 0: ") && log.contains("trying again")
    });
    LIMITS.iter().for_each(|limit| limit.lift(server.process()));
    wait_until(
        "there is another worker",
        || matches!(server.children()[..], [other] if other != worker),
    );
    server.get("/a").is(200);
    server.terminate();
    let Watched { mut server, .. } = watched;
    assert!(server.exit_status().success());
}

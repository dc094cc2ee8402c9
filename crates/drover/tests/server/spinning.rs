//! `--spin-per-request`: a server that is slower by a known time.

use std::io::{BufRead, Read};
use std::process::Stdio;
use std::time::Duration;

use crate::harness::{Server, drover, on_every_mechanism};

/// How long a server spins for each request.
const SPIN: Duration = Duration::from_millis(4);

/// How many requests it gets.
const REQUESTS: u32 = 12;

/// The CPU time of a process in the units of /proc/PID/stat, 10 ms, of which the last one counts only when
/// it is full: proc_pid_stat(5).
fn cpu_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let words = &stat[stat.rfind(')').unwrap() + 2..];
    let ticks = words.split_ascii_whitespace().skip(11).take(2);
    ticks.map(|it| it.parse::<u32>().unwrap()).sum::<u32>() * Duration::from_millis(10)
}

/// What the requests cost at least: both of the kernel's figures, user and system, are rounded down.
const LEAST: Duration = Duration::from_millis(4 * REQUESTS as u64 - 20);

/// Half of the requests come one by one, the others are answered by one send.
fn ask(server: &Server) {
    let mut client = server.connect();
    for _ in 0..REQUESTS / 2 {
        client.get("/").is(200);
    }
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(REQUESTS as usize / 2));
    for _ in 0..REQUESTS / 2 {
        client.response().is(200);
    }
}

#[test]
fn each_request_costs_that_much_on_every_mechanism() {
    on_every_mechanism(|mechanism| {
        let flags = ["--spin-per-request", "4ms", "--dispatch", mechanism.name];
        let server = Server::of_size(16, &flags);
        let before = cpu_time(server.worker_process());
        ask(&server);
        let used = cpu_time(server.worker_process()) - before;
        assert!(used >= LEAST, "{}: {used:?} for {REQUESTS} requests", mechanism.name);
    });
}

#[test]
fn workers_that_are_processes_spin_too() {
    let server = Server::of_size(16, &["--spin-per-request", "4ms", "--processes"]);
    let [worker] = server.children().try_into().unwrap();
    let before = cpu_time(worker);
    ask(&server);
    let used = cpu_time(worker) - before;
    assert!(used >= LEAST, "{used:?} for {REQUESTS} requests of {SPIN:?}");
}

#[test]
fn files_and_traces_spin_too_and_the_server_says_so() {
    let site = crate::harness::Site::new();
    site.file("index.html", "hello");
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut command = drover();
    command.arg("serve").arg(site.path()).args(["--spin-per-request", "4ms", "--trace"]);
    command.arg(&trace).stderr(Stdio::piped());
    let mut server = Server::start(command, 1);
    let before = cpu_time(server.worker_process());
    ask(&server);
    assert!(cpu_time(server.worker_process()) - before >= LEAST);
    server.terminate();
    let mut log = String::new();
    server.stderr().read_to_string(&mut log).unwrap();
    assert!(log.contains("slower by 4ms per request"), "{log}");
    assert!(server.exit_status().success());
    let lines = std::io::BufReader::new(std::fs::File::open(trace).unwrap()).lines();
    assert_eq!(lines.count(), 2 + REQUESTS as usize);
}

//! What a server costs that has nothing to do: memory of its supervisor, and wake-ups.

use std::fs;
use std::time::Instant;

use crate::harness::{Server, Site, drover, private_memory_of, wait_until};
use crate::sandbox::of_each_thread;

/// Servers of one site in the shapes that differ in their processes.
fn servers(site: &Site) -> Vec<Server> {
    site.file("a", "hello");
    let shapes = [
        &["--workers", "2"][..],
        &["--workers", "2", "--processes"],
        &["--workers", "2", "--admin", "127.0.0.1:0"],
    ];
    shapes.into_iter().map(|flags| Server::on(site, flags)).collect()
}

/// How often all threads of a process have gone to sleep. Each wake-up ends with that.
fn sleeps(process: u32) -> u64 {
    let counts = of_each_thread(process, "voluntary_ctxt_switches");
    counts.iter().map(|count| count.parse::<u64>().unwrap()).sum()
}

/// How often the thread has gone to sleep that asks the workers of a process every two seconds whether they go on.
fn beats(process: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let name = |thread: &fs::DirEntry| fs::read_to_string(thread.path().join("comm")).unwrap();
    let heart = threads.into_iter().find(|it| name(it) == "heartbeat\n").unwrap();
    let status = fs::read_to_string(heart.path().join("status")).unwrap();
    let count = status.lines().find_map(|it| it.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

/// Waits until each of these processes has been asked so many times more.
#[track_caller]
fn until_beats(processes: &[u32], count: u64) {
    let due: Vec<u64> = processes.iter().map(|&it| beats(it) + count).collect();
    wait_until("their heartbeat", || {
        processes.iter().zip(&due).all(|(it, due)| beats(*it) >= *due)
    });
}

/// What is its own are its anonymous pages: heap, stacks, and what it has written of its program's data. Pages of the program
/// are the workers' too, and whether they count as private is chance.
#[test]
fn a_supervisor_takes_less_than_4_megabytes_of_its_own() {
    let site = Site::new();
    let mut by_default = drover();
    by_default.arg("serve").arg(site.path()).args(["--listen", "127.0.0.1:0"]);
    for server in servers(&site).into_iter().chain([Server::start_as_it_is(by_default, 1)]) {
        server.get("/a").is(200);
        let own = private_memory_of(server.process());
        assert!(own < 4_000_000, "{own} bytes");
    }
}

/// Neither requests nor the beats of its workers concern it.
#[test]
fn a_supervisor_sleeps_while_its_workers_serve_and_while_they_rest() {
    let site = Site::new();
    let servers = servers(&site);
    let workers: Vec<u32> = servers.iter().flat_map(Server::children).collect();
    let all_sleeps = || servers.iter().map(|server| sleeps(server.process())).collect::<Vec<u64>>();
    // It may still be busy with its start.
    wait_until("they rest", || {
        let before = all_sleeps();
        until_beats(&workers, 1);
        all_sleeps() == before
    });
    let before = all_sleeps();
    for server in &servers {
        (0..50).for_each(|_| drop(server.get("/a").is(200)));
    }
    until_beats(&workers, 3);
    assert_eq!(all_sleeps(), before, "of the supervisors");
}

/// A worker wakes up every two seconds by itself and every two seconds because it is asked, by a thread that wakes up for that.
/// A machine that pauses makes the time longer, and never the count.
#[test]
fn idle_workers_wake_up_once_a_second() {
    const PROCESSES: usize = 8;
    let site = Site::new();
    site.file("a", "hello");
    let server = Server::on(&site, &["--processes", "--workers", &PROCESSES.to_string()]);
    for _ in 0..3 * PROCESSES {
        server.get("/a").is(200);
    }
    let workers = server.children();
    assert_eq!(workers.len(), PROCESSES);
    // What is left to do after the start and the requests.
    until_beats(&workers, 1);
    let all_sleeps = || workers.iter().map(|&worker| sleeps(worker)).sum::<u64>();
    let (began, before) = (Instant::now(), all_sleeps());
    until_beats(&workers, 4);
    let count = all_sleeps() - before;
    // Of each of the three timers of a process, one more than its period says may come within the time.
    let most = PROCESSES as f64 * (1.5 * began.elapsed().as_secs_f64() + 3.0);
    assert!(count as f64 <= most, "{count} times in {:?}", began.elapsed());
}

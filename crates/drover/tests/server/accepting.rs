//! Accept strategies, each under every mechanism that it goes with, shared by threads and by processes.

use mech::accept::{self, Strategy};
use mech::dispatch::{self, Features, Mechanism};

use crate::connections::letters;
use crate::harness::{Client, PATIENCE, Server, Site, request};
use crate::limits::starved;

/// Serves `site` with three workers and the flags, for every strategy and every mechanism that go
/// together here, and prints why the others are left out.
pub(crate) fn on_every_pair(site: &Site, flags: &[&str], case: impl Fn(Server)) {
    on_every_choice(flags, |flags| case(Server::on(site, flags)));
}

/// The same, of the flags that choose.
fn on_every_choice(flags: &[&str], case: impl Fn(&[&str])) {
    let mut ran = 0;
    for strategy in accept::ALL {
        for mechanism in dispatch::ALL {
            match usable(strategy, mechanism) {
                Ok(()) => {
                    println!("{} on {}", strategy.name, mechanism.name);
                    let chosen = ["--workers", "3", "--accept", strategy.name];
                    let chosen = [&chosen, &["--dispatch", mechanism.name][..], flags].concat();
                    case(&chosen);
                    ran += 1;
                }
                Err(reason) => {
                    println!("skipped {} on {}: {reason}", strategy.name, mechanism.name);
                }
            }
        }
    }
    assert!(ran > 0, "no strategy goes with any mechanism");
}

fn usable(strategy: &Strategy, mechanism: &Mechanism) -> Result<(), String> {
    strategy.probe()?;
    mechanism.probe()?;
    strategy.goes_with(mechanism)
}

/// Threads, then processes.
fn on_every_pair_of_both(case: impl Fn(Server) + Copy) {
    let site = letters();
    for flags in [&[][..], &["--processes"]] {
        on_every_pair(&site, flags, case);
    }
}

#[test]
fn many_at_once_are_all_answered() {
    on_every_pair_of_both(|server| {
        let mut clients: Vec<_> = (0..60).map(|_| server.connect()).collect();
        for _ in 0..2 {
            for client in &mut clients {
                client.send(request("GET", "/a", &[]));
            }
            for client in &mut clients {
                client.reply().is(200);
            }
        }
    });
}

/// A worker that has no descriptor left keeps connections neither from the others nor for ever.
#[test]
fn connections_beyond_the_limit_of_descriptors_wait_their_turn() {
    for flags in [&[][..], &["--processes"]] {
        on_every_choice(flags, |flags| {
            let command = starved(48, &[&["--reply-size", "5"], flags].concat());
            let server = Server::start(command, 1);
            let mut clients: Vec<_> = (0..120).map(|_| server.connect()).collect();
            for client in &mut clients {
                client.send(request("GET", "/", &[]));
            }
            // Each that is answered goes, in whatever order, and makes room for one that waits.
            std::thread::scope(|scope| {
                for mut client in clients {
                    scope.spawn(move || drop(client.reply().is(200)));
                }
            });
            server.get("/").is(200);
        });
    }
}

/// One of two workers uses up its descriptors by the connections of one address, while it waits for
/// one at the other address. Each of those comes alone: no later one wakes somebody for it.
#[test]
fn a_worker_whose_descriptors_run_out_while_it_waits_has_another_one_woken() {
    for strategy in accept::ALL.iter().filter(|it| it.needs.contains(Features::EXCLUSIVE)) {
        for mechanism in dispatch::ALL.iter().filter(|it| usable(strategy, it).is_ok()) {
            println!("{} on {}", strategy.name, mechanism.name);
            let flags = ["--reply-size", "5", "--processes", "--workers", "2", "--accept"];
            let chosen = [strategy.name, "--dispatch", mechanism.name];
            let listen = ["--listen", "127.0.0.1:0"];
            let command = starved(MOST as u32, &[&flags[..], &chosen, &listen, &listen].concat());
            let server = Server::start(command, 2);
            let (first, second) = (server.addresses()[0], server.addresses()[1]);
            let [starving, other] = server.children()[..] else { panic!("two workers") };
            let (mut its, mut others) = (Vec::new(), Vec::new());
            while descriptors(starving) < MOST {
                let before = descriptors(starving);
                let mut client = Client::connect(second);
                client.get("/").is(200);
                let owned = if descriptors(starving) > before { &mut its } else { &mut others };
                owned.push(client);
            }
            let before = descriptors(other);
            drop(others);
            while descriptors(other) + 5 > before {}
            for _ in 0..4 {
                Client::connect(first).get("/").is(200);
            }
        }
    }
}

/// The limit of descriptors in the test above: all are below it, but for those that were inherited.
const MOST: usize = 40;

/// How many of them a process has.
fn descriptors(process: u32) -> usize {
    let all = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let number = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().to_str().unwrap().parse::<usize>().unwrap()
    };
    all.map(number).filter(|&number| number < MOST).count()
}

/// While nobody comes, the threads of workers and of their supervisor sleep in accept4(2) where the
/// strategy is to accept by threads, as many as it says, and nowhere else.
#[test]
fn idle_processes_wait_in_the_calls_of_their_strategy() {
    let site = letters();
    on_every_choice(&["--processes"], |flags| {
        let server = Server::on(&site, flags);
        for _ in 0..9 {
            server.get("/a").is(200);
        }
        let expected = match flags[3] {
            "shared" | "exclusive" | "reuseport" => (0, 0),
            "blocking" => (3, 0),
            "lock" => (1, 0),
            "handoff" => (0, 1),
            other => panic!("what does {other} do?"),
        };
        let of_workers = || server.children().into_iter().map(asleep_in_accept).sum();
        let Ok(_) = std::fs::read(format!("/proc/{}/syscall", server.process())) else {
            return println!("left out: the kernel does not tell the calls that threads are in");
        };
        let start = std::time::Instant::now();
        loop {
            let found: (usize, usize) = (of_workers(), asleep_in_accept(server.process()));
            if found == expected {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{found:?} instead of {expected:?}");
            std::thread::yield_now();
        }
    });
}

/// How many threads of a process sleep in accept4(2).
fn asleep_in_accept(process: u32) -> usize {
    let call = format!("{} ", nix::libc::SYS_accept4);
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let is_in_it = |thread: &std::io::Result<std::fs::DirEntry>| {
        let file = thread.as_ref().unwrap().path().join("syscall");
        std::fs::read_to_string(file).is_ok_and(|text| text.starts_with(&call))
    };
    threads.filter(is_in_it).count()
}

#[test]
fn a_stop_answers_what_is_queued() {
    on_every_pair_of_both(|mut server| {
        let mut clients: Vec<_> = (0..50).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send(request("GET", "/a", &[]));
        }
        server.terminate();
        for client in &mut clients {
            client.reply().is(200);
            client.expect_end();
        }
        assert!(server.exit_status().success());
    });
}

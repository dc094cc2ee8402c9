//! Accept strategies, each under every mechanism that it goes with, shared by threads and by processes.

use drover_mech::accept::{self, Strategy};
use drover_mech::mechanisms::{self, Features, Mechanism};

use crate::connections::letters;
use crate::harness::{Arrived, Client, Server, Site, request, wait_until};
use crate::limits::starved;

/// Serves `site` with three workers and the flags, for every strategy and every mechanism that go
/// together here, and prints why the others are left out.
pub(crate) fn on_every_pair(site: &Site, flags: &[&str], case: impl Fn(Server) + Sync) {
    on_every_choice(flags, |flags| case(Server::on(site, flags)));
}

/// The same, of the flags that choose.
fn on_every_choice(flags: &[&str], case: impl Fn(&[&str]) + Sync) {
    let mut choices = Vec::new();
    for strategy in accept::ALL {
        for mechanism in mechanisms::ALL.iter().filter(|it| strategy.goes_with(it).is_ok()) {
            match usable(strategy, mechanism) {
                Ok(()) => {
                    let chosen = ["--workers", "3", "--accept", strategy.name];
                    choices.push([&chosen, &["--dispatch", mechanism.name][..], flags].concat());
                }
                Err(reason) => {
                    drover_testing::skip!("{} on {}: {reason}", strategy.name, mechanism.name);
                }
            }
        }
    }
    assert!(!choices.is_empty(), "no strategy goes with any mechanism");
    drover_testing::side_by_side(&choices, |flags| case(flags));
}

fn usable(strategy: &Strategy, mechanism: &Mechanism) -> Result<(), String> {
    strategy.probe()?;
    mechanism.probe()?;
    strategy.goes_with(mechanism)
}

/// Threads, then processes.
fn on_every_pair_of_both(case: impl Fn(Server) + Copy + Sync) {
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
                client.response().is(200);
            }
        }
    });
}

/// A worker that has no descriptor left keeps connections neither from the others nor for ever.
#[test]
fn connections_beyond_the_limit_of_descriptors_wait_their_turn() {
    for flags in [&[][..], &["--processes"]] {
        on_every_choice(flags, |flags| {
            let command = starved(48, &[&["--response-size", "5"], flags].concat());
            let server = Server::start(command, 1);
            let clients = server.clients_that_have_asked(120, |_| "/".to_owned());
            // Each that is answered goes, in whatever order, and makes room for one that waits.
            std::thread::scope(|scope| {
                let take =
                    |mut client: Client| scope.spawn(move || drop(client.response().is(200)));
                // They are joined: glibc still reads the memory of a thread that it detaches, which the thread's end may
                // have taken away.
                let threads: Vec<_> = clients.into_iter().map(take).collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            });
            server.get("/").is(200);
        });
    }
}

/// Whichever worker they come to: each closes some of its own.
#[test]
fn idle_clients_give_way_to_new_ones() {
    for flags in [&[][..], &["--processes"]] {
        on_every_choice(flags, |flags| {
            let most = ["--max-connections", "12", "--idle-timeout", "3600s"];
            let server = Server::of_size(5, &[&most[..], flags].concat());
            let mut clients = Vec::new();
            for _ in 0..60 {
                let mut client = server.connect();
                client.get("/").is(200);
                clients.push(client);
            }
            wait_until("12 connections stay", || {
                let ends = clients.iter_mut().map(|client| client.arrived() == Arrived::End);
                ends.filter(|has_ended| *has_ended).count() >= 60 - 12
            });
        });
    }
}

/// One of two workers gets as many connections as it may have by one address, while it waits for one at
/// the other address. Each of those comes alone: no later one wakes somebody for it.
#[test]
fn a_worker_that_becomes_full_while_it_waits_has_another_one_woken() {
    for strategy in accept::ALL.iter().filter(|it| it.needs.contains(Features::EXCLUSIVE)) {
        for mechanism in mechanisms::ALL.iter().filter(|it| usable(strategy, it).is_ok()) {
            println!("{} on {}", strategy.name, mechanism.name);
            let flags = ["serve", "--response-size", "5", "--processes", "--workers", "2"];
            let chosen = ["--accept", strategy.name, "--dispatch", mechanism.name];
            let listen = ["--listen", "127.0.0.1:0"];
            let most = ["--max-connections", "8", "--header-timeout", "0", "--defer-accept", "off"];
            let mut command = crate::harness::drover();
            command.args([&flags[..], &chosen, &most, &listen, &listen].concat());
            let server = Server::start(command, 2);
            let (first, second) = (server.addresses()[0], server.addresses()[1]);
            let [starving, other] = server.children()[..] else { panic!("two workers") };
            let idle = [starving, other].map(descriptors);
            let (mut its, mut others) = (Vec::new(), Vec::new());
            while descriptors(starving) < idle[0] + 4 {
                let before = [starving, other].map(descriptors);
                let mut client = Client::connect(second);
                client.get("/").is(200);
                // A request that has begun: nobody closes this connection.
                client.send("GET");
                let after = [starving, other].map(descriptors);
                assert_ne!(before, after, "nobody has taken it");
                let owned = if after[0] > before[0] { &mut its } else { &mut others };
                owned.push(client);
                // The other one keeps room for more.
                if others.len() == 3 {
                    others.clear();
                    wait_until("all are closed", || descriptors(other) <= idle[1]);
                }
            }
            drop(others);
            wait_until("all are closed", || descriptors(other) <= idle[1]);
            for _ in 0..4 {
                Client::connect(first).get("/").is(200);
            }
        }
    }
}

/// How many descriptors a process has.
fn descriptors(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
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
            return drover_testing::skip!("the kernel does not tell the calls that threads are in");
        };
        wait_until(&format!("{expected:?} asleep in accept4"), || {
            (of_workers(), asleep_in_accept(server.process())) == expected
        });
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

fn a_stop_answers_what_is_queued(flags: &[&str]) {
    // A worker that stops waits a part of the grace for requests that are on their way.
    let flags = [&["--grace", "10m"], flags].concat();
    on_every_pair(&letters(), &flags, |mut server: Server| {
        let mut clients: Vec<_> = (0..50).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send(request("GET", "/a", &[]));
        }
        server.terminate();
        for mut client in clients {
            // A worker that has not heard of the stop yet waits for another request, as long as there is grace.
            if client.response().is(200).field("Connection") == Some("close") {
                client.expect_end();
            }
        }
        assert!(server.exit_status().success());
    });
}

#[test]
fn a_stop_of_threads_answers_what_is_queued() {
    a_stop_answers_what_is_queued(&[]);
}

#[test]
fn a_stop_of_processes_answers_what_is_queued() {
    a_stop_answers_what_is_queued(&["--processes"]);
}

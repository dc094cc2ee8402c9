//! Accept strategies, each under every mechanism that it goes with, shared by threads and by processes.

use mech::accept::{self, Strategy};
use mech::dispatch::{self, Mechanism};

use crate::connections::letters;
use crate::harness::{Server, Site, request};
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

//! Accept strategies, each under every mechanism that it goes with, shared by threads and by processes.

use mech::accept::{self, Strategy};
use mech::dispatch::{self, Mechanism};

use crate::connections::{self, letters};
use crate::harness::{Server, Site, request};

/// Serves `site` with three workers and the flags, for every strategy and every mechanism that go
/// together here, and prints why the others are left out.
pub(crate) fn on_every_pair(site: &Site, flags: &[&str], case: impl Fn(Server)) {
    let mut ran = 0;
    for strategy in accept::ALL {
        for mechanism in dispatch::ALL {
            match usable(strategy, mechanism) {
                Ok(()) => {
                    println!("{} on {}", strategy.name, mechanism.name);
                    let chosen = ["--workers", "3", "--accept", strategy.name];
                    let chosen = [&chosen, &["--dispatch", mechanism.name][..], flags].concat();
                    case(Server::on(site, &chosen));
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
fn hundreds_at_once_are_all_answered() {
    on_every_pair_of_both(|server| connections::hundreds_at_once_are_all_answered(&server));
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

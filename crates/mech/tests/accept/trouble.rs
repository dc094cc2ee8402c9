//! A worker that cannot take connections does not keep them from the others.

use mech::accept::{Door, Settings, Strategy};

use crate::crew::{Client, Crew, plan};
use crate::{on_every_pair, seccomp};

/// Whether each worker has a socket of its own, in which connections wait for it alone.
fn keeps_its_share(strategy: &Strategy) -> bool {
    let doors = strategy.open(&plan()).unwrap().doors;
    let file =
        |door: &Door| door.descriptors().next().map(|fd| rustix::fs::fstat(fd).unwrap().st_ino);
    file(&doors[0]) != file(&doors[1])
}

/// The first worker to register is told by accept4(2) that its table of descriptors is full.
#[test]
fn connections_go_to_workers_that_have_descriptors() {
    on_every_pair(|strategy, mechanism| {
        if keeps_its_share(strategy) {
            println!(
                "left out: each worker has a socket of its own, and its connections wait there"
            );
            return;
        }
        if strategy.settings.contains(Settings::WAKE_POLICY) {
            println!("left out: one thread accepts for all, and is nobody's");
            return;
        }
        let full = |number: usize| {
            if number == 0
                && let Err(error) = seccomp::refuse(&[libc::SYS_accept4], libc::EMFILE)
            {
                testing::skip!("no seccomp: {error}");
            }
        };
        let crew = Crew::with(strategy, mechanism, &plan(), full);
        for round in 0..10 {
            let mut client = crew.connect();
            client.send("alone");
            client.expect("alone");
            let mut clients: Vec<Client> = (0..5).map(|_| crew.connect()).collect();
            clients.iter_mut().for_each(|client| client.send(&format!("{round}")));
            for client in &mut clients {
                client.expect(&format!("{round}"));
            }
        }
    });
}

//! Connections come to a worker, one each.

use drover_mech::accept::wait_queue::Policy;
use drover_mech::accept::{self, ObeyedFields};

use crate::crew::{Client, Crew, WORKERS, plan};
use crate::on_every_pair;

#[test]
fn connections_one_after_the_other_are_all_answered() {
    on_every_pair(|strategy, mechanism| {
        let crew = Crew::start(strategy, mechanism);
        for round in 0..50 {
            let mut client = crew.connect();
            let text = format!("round {round}");
            client.send(&text);
            assert!(client.expect(&text) < WORKERS);
        }
    });
}

#[test]
fn connections_at_once_are_all_answered_and_stay() {
    on_every_pair(|strategy, mechanism| {
        let crew = Crew::start(strategy, mechanism);
        let mut clients: Vec<Client> = (0..100).map(|_| crew.connect()).collect();
        let mut owners = [WORKERS; 100];
        for round in 0..3 {
            for (number, client) in clients.iter_mut().enumerate() {
                client.send(&format!("{number} {round}"));
            }
            for (number, client) in clients.iter_mut().enumerate() {
                let owner = client.expect(&format!("{number} {round}"));
                assert!(round == 0 || owners[number] == owner, "{number} has moved");
                owners[number] = owner;
            }
        }
    });
}

#[test]
fn deferred_connections_are_all_answered() {
    on_every_pair(|strategy, mechanism| {
        let mut plan = plan();
        plan.listen.defer = true;
        let crew = Crew::with(strategy, mechanism, &plan, |_| {});
        let mut clients: Vec<Client> = (0..20).map(|_| crew.connect()).collect();
        clients.iter_mut().for_each(|client| client.send("first"));
        for client in &mut clients {
            client.expect("first");
        }
    });
}

/// The processor that this thread stays on names the worker, as long as there is one of that number.
#[test]
fn the_processor_chooses_the_worker() {
    for strategy in accept::ALL.iter().filter(|it| it.settings.contains(ObeyedFields::BY_CPU)) {
        let Some(mechanism) = drover_mech::mechanisms::auto(1) else { return };
        let mut plan = plan();
        plan.by_cpu = true;
        let crew = Crew::with(strategy, mechanism, &plan, |_| {});
        for cpu in
            drover_sys::process::usable_cpus().unwrap().into_iter().filter(|&cpu| cpu < WORKERS)
        {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    drover_sys::process::pin_current_thread(cpu).unwrap();
                    for _ in 0..20 {
                        let mut client = crew.connect();
                        client.send("?");
                        assert_eq!(client.expect("?"), cpu);
                    }
                });
            });
        }
    }
}

#[test]
fn every_wake_policy_answers_all() {
    for strategy in accept::ALL.iter().filter(|it| it.settings.contains(ObeyedFields::WAKE_POLICY))
    {
        let Some(mechanism) = drover_mech::mechanisms::auto(1) else { return };
        for policy in Policy::ALL {
            let plan = drover_mech::accept::ListenPlan { policy, ..plan() };
            let crew = Crew::with(strategy, mechanism, &plan, |_| {});
            for round in 0..20 {
                let mut clients: Vec<Client> = (0..5).map(|_| crew.connect()).collect();
                for client in &mut clients {
                    client.send(&format!("{round}"));
                }
                for client in &mut clients {
                    client.expect(&format!("{round}"));
                }
            }
        }
    }
}

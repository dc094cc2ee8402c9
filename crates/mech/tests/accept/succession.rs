//! Workers that others succeed, on the sockets that they have accepted from.

use std::num::NonZeroUsize;

use drover_mech::accept::{self, ListenPlan, Strategy};
use drover_mech::mechanisms::{self, Mechanism};

use crate::crew::{Client, Crew, WORKERS, plan};
use crate::on_every_pair;

/// Workers of another strategy, or another number of them, on the sockets of `crew`, whose workers retire.
fn succeed(
    crew: &Crew,
    (before, after): (&Strategy, &'static Strategy),
    mechanism: &'static Mechanism,
    workers: usize,
) -> Crew {
    let workers = NonZeroUsize::new(workers).unwrap();
    let plan = ListenPlan { passed: crew.sockets.clone(), workers, ..plan() };
    if !accept::can_share((mechanism, before), (mechanism, after)) {
        crew.retire();
        return Crew::with(after, mechanism, &plan, |_| {});
    }
    let next = Crew::with(after, mechanism, &plan, |_| {});
    crew.retire();
    next
}

/// Asks and is answered by each of `clients`.
fn exchange(clients: &mut [Client], text: &str) {
    clients.iter_mut().for_each(|client| client.send(text));
    clients.iter_mut().for_each(|client| assert!(client.expect(text) < 10));
}

#[test]
fn connections_go_on_and_none_is_lost_when_other_workers_take_the_sockets_over() {
    on_every_pair(|before, mechanism| {
        for &after in accept::ALL.iter().filter(|it| it.goes_with(mechanism).is_ok()) {
            if after.probe().is_err() {
                continue;
            }
            let first = Crew::start(before, mechanism);
            let mut kept: Vec<Client> = (0..6).map(|_| first.connect()).collect();
            exchange(&mut kept, "before");
            // They wait in the backlog, or were just accepted.
            let mut arriving: Vec<Client> = (0..6).map(|_| first.connect()).collect();
            let next = succeed(&first, (before, after), mechanism, WORKERS);
            exchange(&mut arriving, "meanwhile");
            exchange(&mut kept, "after");
            let mut new: Vec<Client> = (0..6).map(|_| next.connect()).collect();
            exchange(&mut new, "new");
            first.stop();
            kept.iter_mut().for_each(Client::expect_end);
            exchange(&mut new, "still");
        }
    });
}

/// A hash keeps choosing the sockets of workers that there are no more of.
#[test]
fn more_and_fewer_workers_take_all_sockets_over() {
    let mechanism = mechanisms::auto_of_readiness().unwrap();
    for &strategy in accept::ALL.iter().filter(|it| it.goes_with(mechanism).is_ok()) {
        for (fewer, more) in [(1, WORKERS), (2, WORKERS + 2)] {
            let workers = NonZeroUsize::new(fewer).unwrap();
            let first = Crew::with(strategy, mechanism, &ListenPlan { workers, ..plan() }, |_| {});
            let second = succeed(&first, (strategy, strategy), mechanism, more);
            drop(first);
            let third = succeed(&second, (strategy, strategy), mechanism, fewer);
            drop(second);
            let mut clients: Vec<Client> = (0..40).map(|_| third.connect()).collect();
            exchange(&mut clients, "all");
        }
    }
}

//! A stop loses no connection that was queued or accepted.

use crate::crew::{Client, Crew};
use crate::on_every_pair;

#[test]
fn a_stop_answers_what_had_arrived() {
    on_every_pair(|strategy, mechanism| {
        let crew = Crew::start(strategy, mechanism);
        let mut clients: Vec<Client> = (0..60).map(|_| crew.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(&format!("late {number}"));
        }
        crew.stop();
        for (number, client) in clients.iter_mut().enumerate() {
            client.expect(&format!("late {number}"));
            client.expect_end();
        }
    });
}

#[test]
fn a_crew_that_nobody_came_to_stops() {
    on_every_pair(|strategy, mechanism| drop(Crew::start(strategy, mechanism)));
}

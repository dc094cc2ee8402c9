//! What every accept strategy promises (`drover_mech::accept`): each case is written once and run with every
//! strategy under every dispatch mechanism that it goes with, on three workers.

mod calls;
#[path = "../conformance/child.rs"]
mod child;
mod crew;
mod proof;
#[path = "../conformance/seccomp.rs"]
#[expect(dead_code, reason = "it is for several suites")]
mod seccomp;
mod signals;
mod stopping;
mod succession;
mod taking;
mod trouble;

use std::time::Duration;

use drover_mech::accept::{self, Strategy};
use drover_mech::mechanisms::{self, Mechanism};

/// Long enough that only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `case` with every strategy and every mechanism that go together; what this kernel does not
/// offer is skipped.
fn on_every_pair(case: impl Fn(&'static Strategy, &'static Mechanism)) {
    let mut ran = 0;
    for &strategy in accept::ALL {
        if let Err(reason) = strategy.probe() {
            drover_testing::skip!("{}: {reason}", strategy.name);
            continue;
        }
        for &mechanism in mechanisms::ALL.iter().filter(|it| strategy.goes_with(it).is_ok()) {
            match mechanism.probe() {
                Ok(()) => {
                    println!("{} {}", strategy.name, mechanism.name);
                    case(strategy, mechanism);
                    ran += 1;
                }
                Err(reason) => {
                    drover_testing::skip!("{} {}: {reason}", strategy.name, mechanism.name);
                }
            }
        }
    }
    assert!(ran > 0, "no strategy goes with any mechanism");
}

//! A start that fails.

use std::num::NonZeroUsize;

use super::*;
use crate::ContentSource;
use crate::signals::Role;

/// Workers are this very program once more, which does not know the flag that makes it one.
#[test]
fn a_worker_that_ends_before_it_begins_is_the_end_and_says_how() {
    let mechanism = drover_mech::mechanisms::auto(1).unwrap();
    let workers = NonZeroUsize::new(2).unwrap();
    let config = Config { workers, ..Config::new(ContentSource::Fixed(1), mechanism) };
    let signals = StopSignals::catch(Role::Supervisor).unwrap();
    let started = Supervisor::start(config, Vec::new(), true, &signals);
    let error = format!("{:#}", started.unwrap_err());
    for part in ["worker ", "before accepting connections", "exit status: "] {
        assert!(error.contains(part), "{error}");
    }
}

//! A run of one worker, for tests.

use std::time::Duration;

use crate::plan::options::{LoadOptions, LoadPlan};
use crate::plan::shape::{Arrivals, LoadShare, Rate, Schedule, Starts, Unit};

/// The schedule of one worker alone.
pub(super) fn starts(plan: &LoadPlan) -> Starts {
    let schedule = plan.schedule.as_ref().unwrap();
    schedule.starts(plan.duration, LoadShare { worker: 0, workers: 1 }, plan.seed)
}

/// Two connections, for a thousand requests over a second.
pub(super) fn options() -> LoadOptions {
    LoadOptions {
        connections: 2,
        schedule: Some(Schedule {
            rate: Rate::Constant(1000.0),
            arrivals: Arrivals::Constant,
            unit: Unit::Request,
        }),
        duration: Some(Duration::from_secs(1)),
        timeout: Duration::from_secs(1),
        ..crate::testing::options()
    }
}

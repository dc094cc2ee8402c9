//! A run of one worker, for tests.

use std::time::Duration;

use crate::plan::options::{Options, Plan};
use crate::plan::request::Request;
use crate::plan::shape::{Arrivals, Rate, Schedule, Share, Starts, Unit};

/// The schedule of one worker alone.
pub(super) fn starts(plan: &Plan) -> Starts {
    let schedule = plan.schedule.as_ref().unwrap();
    schedule.starts(plan.duration, Share { worker: 0, workers: 1 }, plan.seed)
}

/// Two connections, for a thousand requests over a second.
pub(super) fn options() -> Options {
    let url = "http://127.0.0.1:9/".parse().unwrap();
    let asked = vec![Request { url, content: Default::default() }];
    Options {
        connections: 2,
        schedule: Some(Schedule {
            rate: Rate::Constant(1000.0),
            arrivals: Arrivals::Constant,
            unit: Unit::Request,
        }),
        duration: Some(Duration::from_secs(1)),
        timeout: Duration::from_secs(1),
        ..Options::new(asked, mech::mechanisms::auto_of_readiness().unwrap())
    }
}

//! What every dispatch mechanism promises (`drover_mech::readiness::Readiness`): each
//! case is written once and run under every mechanism of this kernel.
//!
//! `DROVER_MECHANISM=rtsig cargo test -p drover-mech --test conformance` runs one
//! of them alone.

mod child;
mod chosen;
mod events;
mod overflow;
mod refusal;
mod registration;
mod reuse;
mod scale;
#[expect(dead_code, reason = "it is for several suites")]
mod seccomp;
mod sockets;
mod stress;
mod subject;
mod syscalls;
mod waiting;
mod workers;

use std::cell::Cell;
use std::time::Duration;

use drover_mech::mechanisms::{DevPollModel, Features, Mechanism, MechanismOptions};

use subject::Subject;

/// Long enough that only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `case` under each usable mechanism.
#[track_caller]
fn on_every_mechanism(case: impl Fn(&mut Subject) + Sync) {
    on_mechanisms_with(Features::empty(), case);
}

/// Runs `case` under each usable mechanism that has all of `features`.
#[track_caller]
fn on_mechanisms_with(features: Features, case: impl Fn(&mut Subject) + Sync) {
    for_mechanisms_with(features, |mechanism| {
        case(&mut Subject::open(mechanism, &MechanismOptions::default()));
    });
}

/// Calls `case` for each usable mechanism that has all of `features`, on a thread
/// of its own, and then fails if any call failed. One that is
/// not usable is skipped with the reason.
#[track_caller]
fn for_mechanisms_with(features: Features, case: impl Fn(&'static Mechanism) + Sync) {
    let mut ran = 0;
    let mut failed = Vec::new();
    let chosen = chosen::mechanisms();
    let chosen = chosen.iter().filter(|mechanism| mechanism.features.contains(features));
    for &mechanism in chosen {
        if mechanism.features.difference(features).contains(Features::COMPLETION) {
            // A mechanism that reports no readiness has tests/net for its suite.
            continue;
        }
        if let Err(reason) = mechanism.probe() {
            drover_testing::skip!("{}: {reason}", mechanism.name);
            continue;
        }
        for model in models(mechanism) {
            println!("{}, {model:?}", mechanism.name);
            let run = || {
                MODEL.set(model);
                case(mechanism);
            };
            let outcome = std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().name(mechanism.name.to_owned());
                thread.spawn_scoped(scope, run).unwrap().join()
            });
            ran += 1;
            if outcome.is_err() {
                failed.push((mechanism.name, model));
            }
        }
    }
    assert!(failed.is_empty(), "failed under {failed:?}");
    // Only a ring completes, and a kernel or a container may have none.
    let may_be_none = features.contains(Features::COMPLETION) || chosen::filter().is_some();
    assert!(ran > 0 || may_be_none, "no mechanism is usable");
}

thread_local! {
    /// Which parts of /dev/poll the subjects of this thread's case have, if they are its model.
    static MODEL: Cell<DevPollModel> = const { Cell::new(DevPollModel::empty()) };
}

/// For /dev/poll and its model none of the parts, each part alone, and all parts of the patch; one for any other mechanism.
fn models(mechanism: &Mechanism) -> impl Iterator<Item = DevPollModel> {
    let patch = DevPollModel::HINTS | DevPollModel::WALK | DevPollModel::LOCK;
    let parts = DevPollModel::all().iter().chain([patch]);
    let parts = drover_mech::mechanisms::models_devpoll(mechanism).then_some(parts);
    std::iter::once(DevPollModel::empty()).chain(parts.into_iter().flatten())
}

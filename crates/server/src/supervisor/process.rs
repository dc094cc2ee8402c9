//! One worker as a process: what it is given by its supervisor, and what they say to each other.
//!
//! The supervisor starts its own program again, with its own configuration as flags and one more
//! ([`FLAG`]) that says which worker this is, and which of the descriptors that it has are its listener handles. They
//! talk in lines:
//!
//! | | |
//! |---|---|
//! | `ready`, on the worker's stdout | it accepts connections |
//! | `failed REASON` | it cannot accept connections, or could not go on |
//! | `ping`, on its stdin | look for events, and answer `alive` |
//! | `alive`, on its stdout | it has looked for events |
//! | `reopen`, on its stdin | open the access log anew |
//! | `retire`, on its stdin | accept no more connections, and go on with those that are there |
//! | `left`, on its stdout | it accepts no more connections |
//! | `stop`, on its stdin, or its end | stop in good order |

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use anyhow::Context;
use drover_mech::accept::{self, ListenerHandle, Strategy};
use drover_mech::mechanisms::{self, Mechanism};
use drover_sys::process;
use serde::{Deserialize, Serialize};

use crate::Config;
use crate::Role;
use crate::StopSignals;
use crate::crew::CrewPlan;
use crate::sandbox;
use crate::server::{Server, ServerReport};
use crate::status::statistics::CounterTable;
use crate::stopper::Stopper;

/// The flag that makes a process one worker of a server.
pub const FLAG: &str = "--as-worker";

/// What a supervisor asks, and what a worker answers once it has looked for events.
pub(crate) const PING: &str = "ping";
pub(crate) const ALIVE: &str = "alive";

/// What a supervisor says when the worker is to stop.
pub(crate) const STOP: &str = "stop";

/// What a supervisor says when the access log is to be opened anew.
pub(crate) const REOPEN: &str = "reopen";

/// What a supervisor says when others take the sockets over, and what the worker answers when it accepts no more.
pub(crate) const RETIRE: &str = "retire";
pub(crate) const LEFT: &str = "left";

/// How workers wait, and how connections come to them.
pub type MechanismAndStrategy = (&'static Mechanism, &'static Strategy);

/// What a worker process inherits: the value of [`FLAG`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Inheritance {
    /// The number of the worker.
    pub(crate) worker: usize,
    /// The name of the dispatch mechanism of all workers.
    dispatch: Cow<'static, str>,
    /// The name of the accept strategy that has made the listener handles.
    accept: Cow<'static, str>,
    /// The descriptors of the worker's listener handles: a list for each address.
    pub(crate) handles: Vec<Vec<RawFd>>,
    /// The descriptor of the counters.
    pub(crate) counter_table: RawFd,
    /// The descriptor of the access log, if there is one.
    log: Option<RawFd>,
}

impl Inheritance {
    pub(crate) fn of(
        worker: usize,
        (mechanism, strategy): MechanismAndStrategy,
        handles: &[ListenerHandle],
        counter_table: &CounterTable,
        log: Option<&File>,
    ) -> Inheritance {
        let numbers =
            |handle: &ListenerHandle| handle.descriptors().map(|fd| fd.as_raw_fd()).collect();
        let handles = handles.iter().map(numbers).collect();
        Inheritance {
            worker,
            dispatch: mechanism.name.into(),
            accept: strategy.name.into(),
            handles,
            counter_table: counter_table.file().as_raw_fd(),
            log: log.map(AsRawFd::as_raw_fd),
        }
    }

    /// What the supervisor has chosen.
    ///
    /// # Errors
    /// If no supervisor of this version has written it.
    pub fn mechanism_and_strategy(&self) -> anyhow::Result<MechanismAndStrategy> {
        let mechanism = mechanisms::by_name(&self.dispatch).context("no such mechanism")?;
        Ok((mechanism, accept::by_name(&self.accept).context("no such strategy")?))
    }

    fn take(&self, config: Config) -> io::Result<CrewPlan> {
        let handle = |numbers: &Vec<RawFd>| -> io::Result<ListenerHandle> {
            let descriptors = numbers.iter().map(|&number| process::inherited(number));
            Ok(ListenerHandle::of(config.accept, descriptors.collect::<io::Result<_>>()?))
        };
        let handles = self.handles.iter().map(handle).collect::<io::Result<_>>()?;
        let counter_table = CounterTable::attach(process::inherited(self.counter_table)?)?;
        let log = self.log.map(process::inherited).transpose()?.map(File::from);
        let (config, first) = (Arc::new(config), self.worker);
        Ok(CrewPlan { config, first, handles: vec![handles], counter_table, log })
    }
}

/// Is one worker of a server until its supervisor, or SIGTERM, tells it to stop. Returns the exit status.
#[must_use]
pub fn be_worker(set_up: anyhow::Result<(Config, StopSignals)>, inheritance: &Inheritance) -> i32 {
    match set_up.and_then(|(config, signals)| serve(config, inheritance, &signals)) {
        Ok(()) => 0,
        Err(reason) => {
            let reason = format!("{reason:#}").replace('\n', " ");
            // If the supervisor is gone, so is this process soon.
            let _ = say(&format!("failed {reason}"));
            1
        }
    }
}

fn serve(config: Config, inheritance: &Inheritance, signals: &StopSignals) -> anyhow::Result<()> {
    let sandbox = sandbox::give_up(&config, Role::Worker, &[])?;
    let plan = inheritance.take(config).context("what the supervisor passes on is not there")?;
    let mut server = Server::of_crew(plan, Vec::new(), sandbox, Stopper::default())?;
    // If the supervisor is gone, so is this process soon.
    server.on_leave(|| drop(say(LEFT)));
    let (by_signal, by_line, reports) = (server.stopper(), server.stopper(), server.reports());
    let listen = move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            match line.as_str() {
                PING => {
                    by_line.until_all_turn();
                    // If the supervisor is gone, so is this process soon.
                    let _ = say(ALIVE);
                }
                // The send fails when the server has ended already.
                REOPEN => drop(reports.send(ServerReport::Reload)),
                RETIRE => by_line.retire(),
                _ => break,
            }
        }
        by_line.stop();
    };
    signals.tell(move |_| by_signal.stop())?;
    process::start_thread("supervisor", listen)?;
    say("ready")?;
    server.wait()
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever they could have themselves by then.
    #[test]
    fn workers_wait_as_their_supervisor_has_chosen() {
        let counter_table = CounterTable::new(1).unwrap();
        for mechanism in mechanisms::ALL {
            for strategy in accept::ALL {
                let inheritance =
                    Inheritance::of(0, (mechanism, strategy), &[], &counter_table, None);
                let text = serde_json::to_string(&inheritance).unwrap();
                let read: Inheritance = serde_json::from_str(&text).unwrap();
                let (by, through) = read.mechanism_and_strategy().unwrap();
                assert_eq!((by.name, through.name), (mechanism.name, strategy.name));
            }
        }
    }
}

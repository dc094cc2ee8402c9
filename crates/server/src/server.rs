//! Workers that are threads of this process, from their start to their end.
//!
//! A program that serves files by itself uses [`Server`] as it is. `drover serve` has one in each of its worker
//! processes, which a [`Supervisor`](crate::Supervisor) keeps: reloads, other servers that take over, signals and files are the
//! supervisor's, so that a server has one crew for its life.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context, bail};
use drover_mech::accept::Among;
use drover_mech::net::Remote;
use drover_sys::process::on_own_thread;
use drover_sys::socket::Address;
use tracing::{error, warn};

use crate::admin::BoundAdmin;
use crate::config::{Config, SiteSettings};
use crate::crew::{Crew, CrewPlan, ThreadReport};
use crate::listen::bind::{BoundAddresses, bind, check_paths};
use crate::output_files::OutputFiles;
use crate::processors;
use crate::sandbox::{self, Sandbox};
use crate::signals::{Heard, StopSignals, exit_at_once};
use crate::status::statistics::{CounterTable, Statistics};
use crate::stopper::Stopper;
use crate::worker::limits::{ConnectionLimit, descriptors_open};

/// A server whose workers are threads of this process. Dropping it asks it to stop.
pub struct Server {
    addresses: Vec<Address>,
    counters: CounterTable,
    stopper: Stopper,
    reports: Receiver<ThreadReport>,
    crew: RefCell<Crew>,
    /// Called when no worker accepts connections any more, after they have been told to retire.
    on_leave: Option<Box<dyn Fn()>>,
}

impl Server {
    /// Binds every address, starts the workers, and returns when all of them accept. Reloads, other servers that
    /// take over, an address for health checks and a file of counters are what a [`Supervisor`](crate::Supervisor) adds.
    ///
    /// # Errors
    /// An address that cannot be bound, a mechanism that cannot be set up, too few descriptors, a setting that only a
    /// supervisor obeys: one chain with the remedy. Nothing keeps running then.
    pub fn start(config: Config) -> anyhow::Result<Server> {
        if config.pin {
            processors(config.workers)?;
        }
        if config.admin.is_some() || config.take_over.is_some() || config.counters.is_some() {
            bail!("--admin, --take-over and --counters need a supervisor: use Supervisor::start");
        }
        let BoundAddresses { addresses, handles, tls: tls_listeners, .. } =
            bind(&config, Among::Threads, &[])?;
        let files = OutputFiles::open(&config)?;
        let counter_table = CounterTable::new(handles.len()).context("cannot make the counters")?;
        sandbox::give_up(&config)?;
        let config = Arc::new(Config { passed: Vec::new(), tls_listeners, ..config });
        let mut server =
            Server::of_crew(CrewPlan { config, first: 0, handles, counter_table, files })?;
        server.addresses = addresses;
        Ok(server)
    }

    /// Starts the workers of `plan`, and returns when all of them accept.
    pub(crate) fn of_crew(plan: CrewPlan) -> anyhow::Result<Server> {
        let (sender, reports): (Sender<ThreadReport>, _) = channel();
        let counters = plan.counter_table.clone();
        let report = move |report| drop(sender.send(report));
        let crew = RefCell::new(Crew::start(plan, descriptors_open()?, &report)?);
        let (addresses, stopper) = (Vec::new(), Stopper::default());
        let server = Server { addresses, counters, stopper, reports, crew, on_leave: None };
        server.until_ready()?;
        server.stopper.admit(server.workers());
        Ok(server)
    }

    /// Finds what a supervisor of `config` would find wrong with it at the start, and starts nothing.
    ///
    /// # Errors
    /// An address that cannot be bound, too few descriptors, or another fault that is known without a
    /// worker.
    pub fn check(config: &Config) -> anyhow::Result<()> {
        if config.pin {
            processors(config.workers)?;
        }
        config.sites().try_for_each(SiteSettings::check_named_files)?;
        OutputFiles::check(config)?;
        // Another server may listen there, and hands the sockets over when this one starts.
        if config.take_over.as_ref().is_some_and(|path| path.exists()) {
            return Ok(());
        }
        check_paths(config)?;
        let at_addresses = config.listen.iter().filter(|listen| listen.unix.is_none()).cloned();
        let config = &Config { listen: at_addresses.collect(), ..config.clone() };
        let bound = bind(config, Among::Threads, &[])?;
        BoundAdmin::bind(config, false, &bound.addresses, &[]).map(drop)
    }

    /// What would be in force of the sandbox of a worker of `config`. Restricts nobody.
    ///
    /// # Errors
    /// The error of starting a thread.
    pub fn try_sandbox(config: &Config) -> io::Result<Sandbox> {
        on_own_thread(|| {
            let mut sandbox = Sandbox::enter(config);
            sandbox.close(config, false);
            sandbox
        })
    }

    /// How many connections all workers could have: as threads of one process, or as a process each. Listening
    /// sockets, which are not open yet, take a few of them.
    ///
    /// # Errors
    /// No descriptor is left for a connection.
    pub fn most_connections(config: &Config, processes: bool) -> anyhow::Result<u64> {
        let workers = config.workers.get();
        let sharers = if processes { 1 } else { workers };
        let limit = ConnectionLimit::new(config, sharers, descriptors_open()?);
        Ok((0..workers).map(|worker| limit.of_worker(worker) as u64).sum())
    }

    /// The addresses as they are bound, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Has a signal stop the server. A second one ends the process at once: with status 1 if connections
    /// are open. To be called before anybody is told that the server has started.
    ///
    /// # Errors
    /// The error of sigaction(2), or of starting a thread.
    pub fn stop_at(&self, signals: &StopSignals) -> anyhow::Result<()> {
        let (stopper, counters) = (self.stopper(), self.counters.clone());
        let mut stopping = false;
        signals.tell(move |heard| {
            if heard != Heard::Stop {
                return;
            }
            if std::mem::replace(&mut stopping, true) {
                let open: u64 = counters.rows().iter().map(|row| row.open()).sum();
                if open > 0 {
                    warn!("ended at once by a second signal: {open} connections were open");
                }
                exit_at_once(i32::from(open > 0));
            }
            stopper.stop();
        })
    }

    /// Has `tell` called when no worker accepts connections any more ([`Stopper::retire`]).
    pub(crate) fn on_leave(&mut self, tell: impl Fn() + 'static) {
        self.on_leave = Some(Box::new(tell));
    }

    /// The handle by which other threads stop this server.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// By which other threads reach the workers.
    pub(crate) fn workers(&self) -> Vec<Remote> {
        self.crew.borrow().workers.clone()
    }

    /// How the access log is changed for another file.
    pub(crate) fn change_log(&self) -> impl Fn(File) + Send + use<> {
        self.crew.borrow().change_log()
    }

    /// What the workers have done so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        crate::status::statistics::CounterRow::sum(&self.counters.rows()).statistics()
    }

    /// Waits until the server has stopped.
    ///
    /// # Errors
    /// The failure of a worker that could not go on. It is logged at once, and the other workers
    /// are asked to stop: no server goes on with some of its workers missing.
    pub fn wait(&self) -> anyhow::Result<()> {
        let mut failure = None;
        while !self.crew.borrow().has_ended() {
            let Err(reason) = self.hear() else { continue };
            if failure.is_none() {
                error!("{reason:#}; stopping all workers of this process");
                self.stopper.stop();
            }
            failure.get_or_insert(reason);
        }
        self.crew.borrow().finish();
        failure.map_or(Ok(()), Err)
    }

    /// Hears the workers until all of them accept. If one cannot, the others end too.
    fn until_ready(&self) -> anyhow::Result<()> {
        let mut failure = None;
        loop {
            let crew = self.crew.borrow();
            if crew.has_ended() {
                crew.finish();
                break;
            }
            if failure.is_none() && crew.is_ready() {
                return Ok(());
            }
            drop(crew);
            // Further errors follow from the first.
            if let Err(reason) = self.hear() {
                failure.get_or_insert(reason);
            }
            if failure.is_some() {
                self.crew.borrow().stop();
            }
        }
        match failure {
            Some(reason) => Err(reason),
            None => bail!("a worker ended before it began"),
        }
    }

    /// Hears the next report of a worker: what it has failed with, if it has ended so.
    fn hear(&self) -> anyhow::Result<()> {
        // It cannot fail: each worker reports its end.
        let Ok(report) = self.reports.recv() else { bail!("the workers are gone") };
        let mut crew = self.crew.borrow_mut();
        let had_left = crew.has_left();
        let heard = crew.hear(report);
        if crew.has_left() && !had_left {
            self.on_leave.iter().for_each(|tell| tell());
        }
        heard
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use drover_mech::Key;
    use drover_mech::mechanisms::{self, Features, Mechanism, MechanismKind};
    use drover_mech::readiness::{Batch, Event, Interest, Readiness};

    use super::*;
    use crate::ContentSource;

    /// A mechanism that reports nothing and breaks at its last wait, or panics if there is none.
    struct Breaks {
        left: u32,
    }

    impl Readiness for Breaks {
        fn attach(&mut self, _: BorrowedFd<'_>, _: Key, _: Interest) -> io::Result<()> {
            Ok(())
        }

        fn want(&mut self, _: BorrowedFd<'_>, _: Key, _: Interest) -> io::Result<()> {
            Ok(())
        }

        fn detach(&mut self, _: BorrowedFd<'_>, _: Key) -> io::Result<()> {
            Ok(())
        }

        fn wait(&mut self, _: Option<Duration>, _: &mut Vec<Event>) -> io::Result<Batch> {
            self.left = self.left.checked_sub(1).expect("one wait too many");
            if self.left == 0 {
                return Err(io::Error::other("the mechanism broke"));
            }
            Ok(Batch::default())
        }
    }

    fn mechanism(
        open: fn(&mechanisms::MechanismOptions) -> io::Result<Box<dyn Readiness>>,
    ) -> Mechanism {
        let features = Features::empty();
        let kind = MechanismKind::Readiness { open };
        Mechanism { name: "breaks", summary: "for this test", features, waits_with: &[], kind }
    }

    fn two_workers(mechanism: Mechanism) -> anyhow::Result<Server> {
        let workers = NonZeroUsize::new(2).unwrap();
        let mechanism = Box::leak(Box::new(mechanism));
        Server::start(Config { workers, ..Config::new(ContentSource::Fixed(1), mechanism) })
    }

    #[test]
    fn a_worker_that_cannot_start_keeps_the_server_from_starting() {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let second_fails = mechanism(|options| match OPENED.fetch_add(1, Ordering::Relaxed) {
            0 => mechanisms::ALL
                .iter()
                .find_map(|any| any.open(options).ok())
                .ok_or_else(|| io::Error::other("nothing works")),
            _ => Err(io::Error::other("no more of these")),
        });
        let error = two_workers(second_fails).unwrap_err();
        let chain = format!("{error:#}");
        assert!(chain.contains("no more of these") && chain.contains("--dispatch"), "{chain}");
    }

    #[test]
    fn a_worker_that_breaks_ends_the_server_with_its_reason() {
        let breaks = mechanism(|_| Ok(Box::new(Breaks { left: 1000 })));
        let error = two_workers(breaks).and_then(|server| server.wait()).unwrap_err();
        let chain = format!("{error:#}");
        assert!(chain.contains("worker") && chain.contains("the mechanism broke"), "{chain}");
    }

    #[test]
    fn a_worker_that_panics_ends_the_server() {
        let panics = mechanism(|_| Ok(Box::new(Breaks { left: 0 })));
        let error = two_workers(panics).and_then(|server| server.wait()).unwrap_err();
        assert!(format!("{error:#}").contains("panicked"), "{error:#}");
    }
}

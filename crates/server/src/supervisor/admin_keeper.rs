//! The supervisor's side of `--admin`: it keeps the process, and tells it what happens to the server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use tracing::warn;

use super::child::{ChildEvent, ChildProcess, describe};
use crate::acme::AcmeNameFacts;
use crate::admin::process::{AdminInheritance, FromAdmin, ToAdmin, WorkerProcessFacts};
use crate::admin::{BoundAdmin, ServerFacts};
use crate::config::Config;
use crate::status::history::CounterHistory;
use crate::status::statistics::CounterTable;

/// How long after the end of one process another one is started.
const PAUSE: Duration = Duration::from_secs(1);

/// Passes on what a process of a number does.
type Hear = Arc<dyn Fn(u32, ChildEvent<FromAdmin>) + Send + Sync>;

/// The process of `--admin`, and what another one would need.
pub(crate) struct AdminKeeper {
    addresses: Vec<SocketAddr>,
    /// What it listens with; also for another server.
    sockets: Vec<Arc<OwnedFd>>,
    facts: ServerFacts,
    /// The hosts that requests may name.
    hosts: Vec<String>,
    arguments: Vec<OsString>,
    /// The counters of workers that have not ended, by their numbers.
    tables: BTreeMap<usize, CounterTable>,
    hear: Hear,
    process: Option<ChildProcess>,
    /// How many processes there have been.
    number: u32,
    is_ready: bool,
    /// Why the process could not go on.
    failed: Option<String>,
    /// When another process is to be started.
    due: Option<Instant>,
}

impl std::fmt::Debug for AdminKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminKeeper").field("process", &self.process).finish_non_exhaustive()
    }
}

impl AdminKeeper {
    /// Starts the process, with `arguments` of this program, for a server whose workers of a number count in `table`. `hear` gets what
    /// the process of a number does, which is to be given to [`AdminKeeper::hear`].
    ///
    /// # Errors
    /// No more processes or descriptors.
    pub(crate) fn start(
        bound: BoundAdmin,
        arguments: Vec<OsString>,
        table: (usize, CounterTable),
        hear: impl Fn(u32, ChildEvent<FromAdmin>) + Send + Sync + 'static,
    ) -> io::Result<AdminKeeper> {
        let BoundAdmin { addresses, sockets, facts, hosts } = bound;
        let mut keeper = AdminKeeper {
            addresses,
            sockets,
            facts,
            hosts,
            arguments,
            tables: [table].into(),
            hear: Arc::new(hear),
            process: None,
            number: 0,
            is_ready: false,
            failed: None,
            due: None,
        };
        keeper.fill(None)?;
        Ok(keeper)
    }

    /// Whether the process accepts connections.
    ///
    /// # Errors
    /// It has ended before, for a reason.
    pub(crate) fn is_ready(&self) -> anyhow::Result<bool> {
        match (&self.failed, &self.process) {
            (Some(reason), None) => bail!("--admin: {reason}"),
            _ => Ok(self.is_ready),
        }
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What it listens with.
    pub(crate) fn sockets(&self) -> &[Arc<OwnedFd>] {
        &self.sockets
    }

    /// When [`AdminKeeper::fill_if_due`] has something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Hears what the process of a number does.
    pub(crate) fn hear(&mut self, number: u32, heard: ChildEvent<FromAdmin>) {
        if number != self.number {
            return;
        }
        let Some(process) = &mut self.process else { return };
        match heard {
            ChildEvent::Message(FromAdmin::Ready) => self.is_ready = true,
            // The supervisor answers.
            ChildEvent::Message(FromAdmin::Asks) => {}
            ChildEvent::Message(FromAdmin::Failed(reason)) => self.failed = Some(reason),
            // It fails for a process that has ended.
            ChildEvent::Garbage => drop(process.child.kill()),
            ChildEvent::Ended => {
                let status = process.child.wait();
                self.process = None;
                let reason = self.failed.get_or_insert_with(|| describe(&status));
                if self.is_ready {
                    warn!(
                        "the process of --admin has ended: {reason}; starting another in {PAUSE:?}"
                    );
                    self.due = Some(Instant::now() + PAUSE);
                }
            }
        }
    }

    /// Starts another process in place of one that has ended, when it is time for that.
    pub(crate) fn fill_if_due(&mut self, counters: &CounterHistory) {
        if self.due.is_none_or(|due| Instant::now() < due) {
            return;
        }
        self.due = None;
        let ended = counters.ended();
        let ended = (!ended.is_empty()).then(|| CounterTable::holding(&ended)).transpose();
        if let Err(reason) = ended.and_then(|ended| self.fill(ended)) {
            warn!("cannot start the process of --admin: {reason}; trying again");
            self.due = Some(Instant::now() + PAUSE);
        }
    }

    fn fill(&mut self, ended: Option<CounterTable>) -> io::Result<()> {
        let tables = self.tables.iter().map(|(crew, table)| (*crew, table.file().as_raw_fd()));
        let mut inheritance = AdminInheritance {
            control: -1,
            sockets: self.sockets.iter().map(|socket| socket.as_raw_fd()).collect(),
            facts: self.facts.clone(),
            hosts: self.hosts.clone(),
            ended: ended.as_ref().map(|table| table.file().as_raw_fd()),
            tables: tables.collect(),
        };
        let tables = self.tables.values().chain(&ended).map(CounterTable::file);
        let passed_on: Vec<_> = self.sockets.iter().map(|it| it.as_fd()).chain(tables).collect();
        let inherit = move |control| {
            inheritance.control = control;
            super::process::Inherited::Admin(inheritance).write()
        };
        let number = self.number + 1;
        let hear = Arc::clone(&self.hear);
        let hear = move |heard| hear(number, heard);
        let name = "of --admin".to_owned();
        let process = ChildProcess::start(&self.arguments, inherit, &passed_on, (name, hear))?;
        (self.number, self.process, self.failed) = (number, Some(process), None);
        Ok(())
    }

    /// Workers of this number serve, and count in `table`.
    pub(crate) fn succeeded(&mut self, number: usize, table: &CounterTable) {
        self.tables.insert(number, table.clone());
        self.tell(&ToAdmin::Succeeded(number), Some(table));
    }

    /// All workers of this number have ended.
    pub(crate) fn ended(&mut self, number: usize) {
        self.tables.remove(&number);
        self.tell(&ToAdmin::Ended(number), None);
    }

    /// The server has reloaded its configuration, and is one of `config` now.
    pub(crate) fn reloaded(&mut self, config: &Config) {
        self.facts.reload(config);
        self.tell(&ToAdmin::Facts(self.facts.clone()), None);
    }

    /// The server of `config` has renewed certificates.
    pub(crate) fn renewed(&mut self, config: &Config) {
        self.facts.renew(config);
        self.tell(&ToAdmin::Facts(self.facts.clone()), None);
    }

    /// The server is so far with certificates that it gets from a CA.
    pub(crate) fn renews(&mut self, facts: &[AcmeNameFacts]) {
        self.facts.tell_acme(facts);
        self.tell(&ToAdmin::Facts(self.facts.clone()), None);
    }

    /// The server could not reload its configuration.
    pub(crate) fn reload_refused(&mut self, reason: &anyhow::Error) {
        self.facts.refuse_reload(reason);
        self.tell(&ToAdmin::Facts(self.facts.clone()), None);
    }

    /// These processes have workers: the answer to [`FromAdmin::Asks`].
    pub(crate) fn answer(&self, processes: Vec<WorkerProcessFacts>) {
        self.tell(&ToAdmin::Processes(processes), None);
    }

    /// The server has begun to stop.
    pub(crate) fn is_stopping(&self) {
        self.tell(&ToAdmin::Stopping, None);
    }

    fn tell(&self, message: &ToAdmin, table: Option<&CounterTable>) {
        if let Some(process) = &self.process {
            // It fails for a process that has ended.
            let _ = process.tell(message, table.map(CounterTable::file).as_slice());
        }
    }

    /// Ends the process, and listens no more: the server has ended, or another one listens.
    pub(crate) fn end(&mut self) {
        (self.due, self.sockets) = (None, Vec::new());
        let Some(mut process) = self.process.take() else { return };
        process.stop();
        // Its grace, and as long again.
        if !process.ends_soon() && !process.ends_soon() {
            process.kill();
        }
    }
}

impl Drop for AdminKeeper {
    fn drop(&mut self) {
        self.end();
    }
}

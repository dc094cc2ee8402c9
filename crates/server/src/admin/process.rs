//! The process of `--admin`: what it is given, and what it is told of the server that it watches.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use drover_mech::mechanisms;
use drover_mech::net::Remote;
use drover_sys::message_socket::MessageSocket;
use drover_sys::process::{self, OrdinaryUser};
use serde::{Deserialize, Serialize};

use super::{ServerFacts, WatchedServer, run};
use crate::config::{Config, ContentSource};
use crate::hosts::AllowedHosts;
use crate::json_messages;
use crate::log;
use crate::sandbox;
use crate::signals;
use crate::status::history::CounterHistory;
use crate::status::statistics::CounterTable;

/// How long the supervisor may take to answer, while nobody else is answered here.
const PATIENCE: Duration = Duration::from_millis(100);

/// What the process inherits, by the numbers of its descriptors.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct AdminInheritance {
    /// The socket to the supervisor.
    pub(crate) control: RawFd,
    /// What it listens with.
    pub(crate) sockets: Vec<RawFd>,
    pub(crate) facts: ServerFacts,
    /// The hosts that requests may name.
    pub(crate) hosts: Vec<String>,
    /// Counters of workers that have ended, added up, if there are any.
    pub(crate) ended: Option<RawFd>,
    /// The counters of each set of workers by its number; the last ones serve.
    pub(crate) tables: Vec<(usize, RawFd)>,
}

/// What the process is told.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum ToAdmin {
    /// Workers of this number serve from now on; with the descriptor of their counters.
    Succeeded(usize),
    /// All workers of this number have ended.
    Ended(usize),
    /// What is known of the server is different.
    Facts(ServerFacts),
    /// The processes that have workers, as they are now.
    Processes(Vec<WorkerProcessFacts>),
    /// The server has begun to stop.
    Stopping,
}

/// What the supervisor knows of a process that has workers, and the process of `--admin`, which may look into no other
/// process, does not.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct WorkerProcessFacts {
    /// The number of its first worker.
    pub(crate) first: usize,
    pub(crate) pid: u32,
    /// How many descriptors it has open, if that can be told.
    pub(crate) open_descriptors: Option<u64>,
}

/// How the process of `--admin` asks its supervisor for the processes that have workers.
#[derive(Debug)]
pub(super) struct ProcessQuestions {
    control: Arc<MessageSocket>,
    /// How many answers have come, and the last one.
    answers: Mutex<(u64, Vec<WorkerProcessFacts>)>,
    answered: Condvar,
}

impl ProcessQuestions {
    pub(super) fn to(control: Arc<MessageSocket>) -> ProcessQuestions {
        ProcessQuestions { control, answers: Mutex::default(), answered: Condvar::new() }
    }

    /// The processes as they are now; as they were when the supervisor answered last, if it is busy.
    pub(super) fn ask(&self) -> Vec<WorkerProcessFacts> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let before = answers.0;
        if json_messages::send(&self.control, &FromAdmin::Asks, &[]).is_err() {
            return answers.1.clone();
        }
        let waited = self.answered.wait_timeout_while(answers, PATIENCE, |it| it.0 == before);
        waited.unwrap_or_else(PoisonError::into_inner).0.1.clone()
    }

    fn answer(&self, processes: Vec<WorkerProcessFacts>) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        *answers = (answers.0 + 1, processes);
        self.answered.notify_all();
    }
}

/// What the process tells.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum FromAdmin {
    /// It accepts connections.
    Ready,
    /// It wants to know the processes that have workers.
    Asks,
    /// It cannot go on.
    Failed(String),
}

/// Is the process until its supervisor ends it. `user` and `sandbox` are those of the workers. Returns the exit status.
pub(crate) fn be_admin(
    inheritance: &AdminInheritance,
    user: Option<OrdinaryUser>,
    sandbox: bool,
) -> i32 {
    let control = match process::inherited(inheritance.control) {
        Ok(control) => Arc::new(MessageSocket::from(control)),
        Err(reason) => {
            tracing::error!("the supervisor's socket is not there: {reason}");
            return 1;
        }
    };
    if let Err(reason) = signals::leave_to_supervisor() {
        tracing::error!("cannot catch signals: {reason}");
        return 1;
    }
    // Whoever lists processes can tell it from those with workers.
    let _ = rustix::thread::set_name(c"drover-admin");
    match watch(inheritance, user, sandbox, &control) {
        Ok(()) => 0,
        Err(reason) => {
            let reason = json_messages::short(&format!("{reason:#}"));
            // If the supervisor is gone, so is this process soon.
            let _gone = json_messages::send(&control, &FromAdmin::Failed(reason), &[]);
            1
        }
    }
}

fn watch(
    inheritance: &AdminInheritance,
    user: Option<OrdinaryUser>,
    sandbox: bool,
    control: &Arc<MessageSocket>,
) -> anyhow::Result<()> {
    log::start()?;
    let sockets = inheritance.sockets.iter().map(|&number| process::inherited(number));
    let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
    let table = |number| CounterTable::attach(process::inherited(number)?);
    let tables = inheritance.tables.iter().map(|&(crew, number)| Ok((crew, table(number)?)));
    let tables: BTreeMap<usize, CounterTable> = tables.collect::<io::Result<_>>()?;
    let ended = inheritance.ended.map(table).transpose()?;
    let counters = CounterHistory::of(ended.map(|table| table.rows()), tables.values().cloned())
        .context("there are no counters")?;
    let hosts = inheritance.hosts.iter().map(|host| host.parse());
    let hosts = hosts.collect::<Result<Vec<_>, String>>().map_err(anyhow::Error::msg)?;
    let hosts = AllowedHosts::new(&hosts);
    let facts = Arc::new(Mutex::new(inheritance.facts.clone()));
    let stopping = Arc::<AtomicBool>::default();
    let processes = Arc::new(ProcessQuestions::to(Arc::clone(control)));
    let mechanism = mechanisms::auto_of_readiness().context("no mechanism works here")?;
    let config = Config::new(ContentSource::Fixed(0), mechanism);
    let config = Config { user, sandbox, ..config };
    let mut sandbox = sandbox::give_up(&config)?;
    // A change of user has cleared that.
    process::go_on_dying_with_parent().context("the supervisor is gone")?;
    let server = WatchedServer {
        counters: counters.clone(),
        stopping: Arc::clone(&stopping),
        facts: Arc::clone(&facts),
        processes: Arc::clone(&processes),
    };
    let mut told = ToldOfServer { tables, counters, facts, processes, stopping };
    let (hears, tells) = (Arc::clone(control), Arc::clone(control));
    let ready = move |remote: Remote| {
        let listen = move || {
            while let Ok(Some((message, descriptors))) = json_messages::receive(&hears) {
                told.hear(message, descriptors);
            }
            // It fails for a thread that has ended.
            let _ended = remote.stop();
        };
        if let Err(reason) = process::start_thread("supervisor", listen) {
            tracing::error!("--admin: {reason}");
        }
        sandbox.close(&config, true);
        let _gone = json_messages::send(&tells, &FromAdmin::Ready, &[]);
    };
    run(mechanism, sockets, server, hosts, ready)
}

/// What is known of the server.
struct ToldOfServer {
    /// The counters of workers that have not ended, by their numbers.
    tables: BTreeMap<usize, CounterTable>,
    counters: CounterHistory,
    facts: Arc<Mutex<ServerFacts>>,
    processes: Arc<ProcessQuestions>,
    stopping: Arc<AtomicBool>,
}

impl ToldOfServer {
    fn hear(&mut self, message: ToAdmin, descriptors: Vec<std::os::fd::OwnedFd>) {
        match message {
            ToAdmin::Succeeded(number) => {
                let table = descriptors.into_iter().next().map(CounterTable::attach);
                if let Some(Ok(table)) = table {
                    self.counters.succeed(table.clone());
                    self.tables.insert(number, table);
                }
            }
            ToAdmin::Ended(number) => {
                if let Some(table) = self.tables.remove(&number) {
                    self.counters.end(&table);
                }
            }
            ToAdmin::Facts(facts) => {
                *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = facts;
            }
            ToAdmin::Processes(processes) => self.processes.answer(processes),
            ToAdmin::Stopping => self.stopping.store(true, Ordering::Relaxed),
        }
    }
}

//! A worker process: what it is given by its supervisor, and what it does until its end.
//!
//! The supervisor starts its own program again, with its own configuration as flags and one more
//! ([`FLAG`]), which names a descriptor. Behind it is the [`Inheritance`]: which workers this process has, and which of its
//! descriptors are their sockets, counters, files and roots. The process is one worker of several (`--processes`), or
//! has all workers as threads. It opens nothing by a path that its supervisor has opened for it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use drover_mech::accept::{self, Among, ListenerHandle, Strategy};
use drover_mech::mechanisms::{self, Mechanism};
use drover_sys::message_socket::MessageSocket;
use drover_sys::process::{self, OrdinaryUser};
use serde::{Deserialize, Serialize};

use super::heartbeat;
use super::messages::{FromWorker, ToWorker};
use crate::Config;
use crate::ContentSource;
use crate::StopSignals;
use crate::acme::ChallengeReader;
use crate::admin::process::{AdminInheritance, be_admin};
use crate::crew::CrewPlan;
use crate::json_messages::{self, short};
use crate::listen::bind::bind;
use crate::lookup::revalidate::RootWatch;
use crate::output_files::OutputFiles;
use crate::sandbox;
use crate::server::Server;
use crate::status::statistics::CounterTable;
use crate::tls::TlsListeners;

/// The flag that makes a process one with workers of a server.
pub const FLAG: &str = "--as-worker";

/// How workers wait, and how connections come to them.
pub type MechanismAndStrategy = (&'static Mechanism, &'static Strategy);

/// What a process inherits that a supervisor has started, behind the descriptor that [`FLAG`] names.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Inherited {
    /// It has workers.
    Workers(Inheritance),
    /// It is the one of `--admin`.
    Admin(AdminInheritance),
}

impl Inherited {
    /// Writes it to memory, behind a descriptor.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub(crate) fn write(&self) -> io::Result<File> {
        let memory = rustix::fs::memfd_create("drover-worker", rustix::fs::MemfdFlags::CLOEXEC)?;
        let mut memory = File::from(memory);
        serde_json::to_writer(&mut memory, self)?;
        memory.rewind()?;
        Ok(memory)
    }

    /// Reads it from behind the inherited descriptor with this number.
    ///
    /// # Errors
    /// If no supervisor of this version has written it.
    fn read(number: RawFd) -> anyhow::Result<Inherited> {
        let memory = process::inherited(number).context("no supervisor has started this worker")?;
        let mut text = String::new();
        File::from(memory).read_to_string(&mut text)?;
        serde_json::from_str(&text)
            .context("a supervisor of another version has started this worker")
    }
}

/// What a worker process inherits.
#[derive(Serialize, Deserialize)]
pub struct Inheritance {
    /// The number of the first worker.
    pub(super) first: usize,
    /// The name of the dispatch mechanism of all workers.
    pub(super) dispatch: Cow<'static, str>,
    /// The name of the accept strategy.
    pub(super) accept: Cow<'static, str>,
    pub(super) listeners: InheritedListeners,
    /// The descriptor of the counters.
    pub(super) counter_table: RawFd,
    /// The socket to the supervisor.
    pub(super) control: RawFd,
    /// The descriptors of the files that are written, if there are any.
    pub(super) log: Option<RawFd>,
    pub(super) trace: Option<RawFd>,
    pub(super) events: Option<RawFd>,
    /// The roots: their paths, and their descriptors.
    roots: Vec<(PathBuf, RawFd)>,
    /// Which addresses speak TLS.
    tls: TlsListeners,
    /// The descriptor of what is shown to a CA.
    challenges: Option<RawFd>,
    /// The files of users, certificates and keys: their paths, and what the supervisor has read.
    texts: Vec<(PathBuf, String)>,
}

/// How connections come to the workers of a process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum InheritedListeners {
    /// The workers are threads: the sockets that they share.
    Sockets(Vec<RawFd>),
    /// There is one worker: its listener handles, each the number of its address and its descriptors.
    Handles(Vec<(u16, Vec<RawFd>)>),
}

/// What a supervisor has opened and read for a configuration; nothing in the supervisor itself.
#[derive(Default)]
pub struct OpenedFiles {
    roots: BTreeMap<PathBuf, OwnedFd>,
    texts: BTreeMap<PathBuf, String>,
}

/// The texts are passwords' hashes and keys.
impl fmt::Debug for OpenedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedFiles").field("roots", &self.roots).finish_non_exhaustive()
    }
}

/// The texts are passwords' hashes and keys.
impl fmt::Debug for Inheritance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inheritance").field("first", &self.first).finish_non_exhaustive()
    }
}

impl OpenedFiles {
    /// The directory of this path, if the supervisor has opened it.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn root(&self, path: &Path) -> io::Result<Option<OwnedFd>> {
        self.roots.get(path).map(|directory| directory.try_clone()).transpose()
    }

    /// What the file of this path held, of users, a certificate or a key, when the supervisor has read it.
    #[must_use]
    pub fn text(&self, path: &Path) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }
}

impl OpenedFiles {
    /// Whether a supervisor has read files of users, certificates or keys.
    #[must_use]
    pub fn has_texts(&self) -> bool {
        !self.texts.is_empty()
    }
}

impl Inheritance {
    /// What workers of `config` inherit beside sockets, counters and files for writing: the roots, the users, the certificates.
    pub(super) fn of(config: &Config, first: usize, listeners: InheritedListeners) -> Inheritance {
        let roots =
            roots_of(config).map(|(path, directory)| (path.to_owned(), directory.as_raw_fd()));
        let users = config.users().map(|users| (users.path(), users.text()));
        let texts = users.chain(config.tls.iter().flat_map(|tls| tls.files()));
        let texts = texts.map(|(path, text)| (path.to_owned(), text.to_owned())).collect();
        Inheritance {
            first,
            dispatch: config.mechanism.name.into(),
            accept: config.accept.name.into(),
            listeners,
            counter_table: -1,
            control: -1,
            log: None,
            trace: None,
            events: None,
            roots: roots.collect(),
            tls: config.tls_listeners.clone(),
            challenges: config.challenges.as_ref().map(|it| it.file().as_raw_fd()),
            texts,
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

    /// Takes what the supervisor has opened and read for the configuration.
    ///
    /// # Errors
    /// A descriptor is not there.
    pub fn opened(&mut self) -> io::Result<OpenedFiles> {
        let roots = std::mem::take(&mut self.roots).into_iter();
        let roots = roots.map(|(path, number)| Ok((path, process::inherited(number)?)));
        let texts = std::mem::take(&mut self.texts).into_iter().collect();
        Ok(OpenedFiles { roots: roots.collect::<io::Result<_>>()?, texts })
    }

    fn take(&self, config: Arc<Config>) -> anyhow::Result<CrewPlan> {
        let file = |number: Option<RawFd>| -> io::Result<Option<File>> {
            Ok(number.map(process::inherited).transpose()?.map(File::from))
        };
        let handles = match &self.listeners {
            InheritedListeners::Sockets(numbers) => {
                let sockets =
                    numbers.iter().map(|&number| Ok(Arc::new(process::inherited(number)?)));
                let sockets = sockets.collect::<io::Result<_>>()?;
                bind(&config.on(sockets), Among::Threads, &[])?.handles
            }
            InheritedListeners::Handles(lists) => {
                let handle = |(address, numbers): &(u16, Vec<RawFd>)| -> io::Result<_> {
                    let descriptors = numbers.iter().map(|&number| process::inherited(number));
                    let descriptors = descriptors.collect::<io::Result<_>>()?;
                    Ok(ListenerHandle::of(config.accept, descriptors).at(*address))
                };
                vec![lists.iter().map(handle).collect::<io::Result<_>>()?]
            }
        };
        let counter_table = CounterTable::attach(process::inherited(self.counter_table)?)?;
        let (log, trace, events) = (file(self.log)?, file(self.trace)?, file(self.events)?);
        let files = OutputFiles { log, trace, events };
        Ok(CrewPlan { config, first: self.first, handles, counter_table, files })
    }
}

/// The roots of a configuration, each path once.
pub(super) fn roots_of(config: &Config) -> impl Iterator<Item = (&Path, BorrowedFd<'_>)> {
    let sources = config.sites().map(|site| &site.source);
    let roots = sources.filter_map(|source| match source {
        ContentSource::Directory(root) => Some((root.path(), root.directory())),
        ContentSource::Fixed(_) => None,
    });
    roots.collect::<BTreeMap<_, _>>().into_iter()
}

/// What a process that a supervisor has started gives up, whatever it does.
#[derive(Debug)]
pub struct ChildLimits {
    /// The user that it becomes.
    pub user: Option<OrdinaryUser>,
    /// Whether it enters the sandbox.
    pub sandbox: bool,
}

/// Does what a supervisor has started this process for until the supervisor, or SIGTERM, tells it to stop. `number` is the
/// value of [`FLAG`]; `set_up` makes the configuration of workers. Returns the exit status.
#[must_use]
pub fn be_child(
    number: RawFd,
    limits: ChildLimits,
    set_up: impl FnOnce(&mut Inheritance) -> anyhow::Result<(Config, StopSignals)>,
) -> i32 {
    // The kernel has named the process after /proc/self/exe. Without the name it is only harder to find.
    let _ = rustix::thread::set_name(c"drover");
    match Inherited::read(number) {
        Ok(Inherited::Workers(inheritance)) => be_worker(inheritance, set_up),
        Ok(Inherited::Admin(inheritance)) => be_admin(&inheritance, limits.user, limits.sandbox),
        Err(reason) => {
            tracing::error!("{reason:#}");
            1
        }
    }
}

fn be_worker(
    mut inheritance: Inheritance,
    set_up: impl FnOnce(&mut Inheritance) -> anyhow::Result<(Config, StopSignals)>,
) -> i32 {
    let control = match process::inherited(inheritance.control) {
        Ok(control) => Arc::new(MessageSocket::from(control)),
        Err(reason) => {
            tracing::error!("the supervisor's socket is not there: {reason}");
            return 1;
        }
    };
    let served = set_up(&mut inheritance)
        .and_then(|(config, signals)| serve(config, &inheritance, &signals, &control));
    match served {
        Ok(()) => {
            say(&control, &FromWorker::Done);
            0
        }
        Err(reason) => {
            say(&control, &FromWorker::Failed(short(&format!("{reason:#}").replace('\n', " "))));
            1
        }
    }
}

fn serve(
    mut config: Config,
    inheritance: &Inheritance,
    signals: &StopSignals,
    control: &Arc<MessageSocket>,
) -> anyhow::Result<()> {
    config.tls_listeners.clone_from(&inheritance.tls);
    let challenges = inheritance.challenges.map(process::inherited).transpose();
    let challenges = challenges.context("what is shown to the CA is not there")?;
    config.challenges = challenges.map(ChallengeReader::of);
    let asks = Arc::clone(control);
    config.root_watch = RootWatch::new(move || {
        let message = serde_json::to_vec(&FromWorker::RootReplaced).unwrap_or_default();
        // A worker does not wait for its supervisor: it asks again.
        let _full = asks.try_send(&message, &[]);
    });
    let plan =
        inheritance.take(Arc::new(config)).context("what the supervisor passes on is not there")?;
    let config = Arc::clone(&plan.config);
    let mut sandbox = sandbox::give_up(&config)?;
    // A change of user has cleared that.
    process::go_on_dying_with_parent().context("the supervisor is gone")?;
    let (first, mut server) = (plan.first, Server::of_crew(plan)?);
    let tells = Arc::clone(control);
    server.on_leave(move || say(&tells, &FromWorker::Left));
    let (by_signal, tells) = (server.stopper(), Arc::clone(control));
    signals.tell(move |_| by_signal.stop())?;
    heartbeat::watch(server.workers(), move |place, hangs| {
        let worker = first + place;
        say(&tells, &if hangs { FromWorker::Hangs(worker) } else { FromWorker::GoesOn(worker) });
    })?;
    let (stopper, hears, change_log) = (server.stopper(), Arc::clone(control), server.change_log());
    let listen = move || {
        while let Ok(Some((message, descriptors))) = json_messages::receive(&hears) {
            match message {
                ToWorker::Ping => {
                    stopper.until_all_turn();
                    say(&hears, &FromWorker::Alive);
                }
                ToWorker::ChangeLog => {
                    descriptors.into_iter().for_each(|file| change_log(file.into()));
                }
                ToWorker::Retire => stopper.retire(),
            }
        }
        stopper.stop();
    };
    process::start_thread("supervisor", listen)?;
    sandbox.close(&config, true);
    say(control, &FromWorker::Ready { sandbox: sandbox.in_words });
    server.wait()
}

/// Tells the supervisor something. If that is gone, so is this process soon.
fn say(control: &MessageSocket, message: &FromWorker) {
    let _gone = json_messages::send(control, message, &[]);
}

/// The descriptors that must be passed on to a process that gets `inheritance` of `config`.
pub(super) fn passed_on<'d>(
    config: &'d Config,
    others: impl IntoIterator<Item = BorrowedFd<'d>>,
) -> Vec<BorrowedFd<'d>> {
    let roots = roots_of(config).map(|(_, directory)| directory);
    roots.chain(config.challenges.as_ref().map(ChallengeReader::file)).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever they could have themselves by then.
    #[test]
    fn workers_wait_as_their_supervisor_has_chosen() {
        for mechanism in mechanisms::ALL {
            for strategy in accept::ALL {
                let mut config = Config::new(ContentSource::Fixed(1), mechanism);
                config.accept = strategy;
                let listeners = InheritedListeners::Sockets(vec![]);
                let inheritance = Inheritance::of(&config, 0, listeners);
                let mut file = Inherited::Workers(inheritance).write().unwrap();
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                let Inherited::Workers(read) = serde_json::from_str(&text).unwrap() else {
                    panic!()
                };
                let (by, through) = read.mechanism_and_strategy().unwrap();
                assert_eq!((by.name, through.name), (mechanism.name, strategy.name));
            }
        }
    }

    #[test]
    fn what_no_supervisor_has_passed_on_is_no_inheritance() {
        let file = tempfile::tempfile().unwrap();
        assert!(Inherited::read(file.as_raw_fd()).is_err());
    }
}

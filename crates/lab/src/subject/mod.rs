//! Subjects: how each is started, when it is ready, which processes and which address it has, and how it is stopped.

mod address;
mod command;
mod find;
pub mod guest;
mod pipes;
mod ready;
mod serve;
mod tls;
mod waiters;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use address::HttpAddress;
pub use command::Command;
pub use find::{find, on_path};
pub use guest::{GuestCommand, GuestMachine};
pub use pipes::PipeSet;
pub use ready::wait_until_ready;
pub use serve::Serve;
pub use tls::TlsFiles;
pub use waiters::WaiterSubject;

use crate::failure::Failure;
use crate::model::{Level, Mark};
use crate::placement::Placement;
use crate::process::{Child, Guard, Interrupt, Launch, command_line};
use crate::spec::load::SpokenProtocols;
use crate::spec::setting::fill;
use crate::spec::subject::{LimitSettings, SubjectKind};
use crate::spec::{self, Experiment};
use crate::wire::{Wire, WireEnd};

/// How long a subject may take to start, if its experiment sets no time.
pub const START: Duration = Duration::from_secs(10);

/// The surroundings of a run.
#[derive(Debug)]
pub struct Scene<'a> {
    /// Drover's own binary.
    pub drover: &'a Path,
    /// Ends processes if the lab is killed.
    pub guard: &'a Arc<Guard>,
    /// The flag that ends every wait.
    pub interrupt: &'a Interrupt,
    /// The wire between subject and load.
    pub wire: &'a Wire,
    /// The processors of subject and load.
    pub placement: &'a Placement,
    /// The levels of the cell.
    pub levels: &'a BTreeMap<String, Level>,
    /// The seed of the round.
    pub seed: u64,
    /// The certificate of the server, if the run speaks TLS.
    pub tls: Option<&'a TlsFiles>,
    /// Whether the run speaks HTTP/2.
    pub is_http2: bool,
    /// The folder of the files to serve, if there are any.
    pub root: Option<&'a Path>,
    /// An empty folder of this run.
    pub work: &'a Path,
    /// The file for the subject's trace, if it is to write one.
    pub trace: Option<&'a Path>,
    /// The file for the counters of Drover's own server.
    pub counters: &'a Path,
    /// Whether that server keeps its counts of events up to date, which costs it a little at each wait.
    pub counts_events: bool,
    /// Whether accesses to files are to be recorded on the disk.
    pub notes_access: bool,
    /// The most descriptors of each process of the run, if that is more than the lab's own limit.
    pub descriptors: Option<u64>,
    /// The socket of the virtual machine for subjects that run there, if there is one.
    pub guest: Option<&'a Path>,
}

/// A kind of subject.
pub trait Subject: std::fmt::Debug {
    /// Starts the subject at its end of the wire, and waits until it is ready.
    ///
    /// # Errors
    /// [`Failure::NotTestable`] if this machine lacks what the subject needs; [`Failure::Failed`] if it does not
    /// start; [`Failure::Interrupted`].
    fn start(&self, scene: &Scene<'_>) -> Result<Running, Failure>;
}

/// A subject that is ready. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    /// The processes of the subject.
    pub process: Child,
    /// The address of a server; `None` for other subjects.
    pub address: Option<HttpAddress>,
}

impl Running {
    /// Whether no process of the subject is left. A daemon's first process ends, and leaves others.
    pub fn has_ended(&mut self) -> bool {
        let first = self.process.ended();
        matches!(first, Ok(Some(_))) && !self.process.has_descendants()
    }
}

/// A subject that is driven and measured within one process of its own (waiters on a socket, a set of pipes, or a command
/// in the virtual machine), because its measurements are about system calls of that process.
///
/// The process gets the cell's settings as flags, prints one line of JSON with its measurements, and ends. The
/// implementation knows the names of its metrics.
pub trait SelfDriven: std::fmt::Debug {
    /// Starts, drives and measures the subject.
    ///
    /// # Errors
    /// The errors of [`Subject::start`].
    fn measure(&self, scene: &Scene<'_>, window: Duration) -> Result<SelfMeasurement, Failure>;
}

/// The measurements of a subject that drives itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SelfMeasurement {
    /// The metrics, by name.
    pub values: BTreeMap<String, f64>,
    /// Why to doubt them.
    pub marks: BTreeSet<Mark>,
    /// The subject's own result.
    pub result: serde_json::Value,
    /// Program and arguments.
    pub command: Vec<String>,
}

/// The server that a subject describes.
///
/// # Errors
/// [`Failure::NotTestable`] for a subject that is described as unavailable; [`Failure::Failed`] for a kind that is no
/// server.
pub fn server<'a>(
    experiment: &'a Experiment,
    subject: &'a spec::SubjectSpec,
) -> Result<Box<dyn Subject + 'a>, Failure> {
    if let Some(why) = &subject.unavailable {
        return Err(Failure::not_testable(why));
    }
    match subject.kind() {
        Some(SubjectKind::Serve(flags)) => Ok(Box::new(Serve { experiment, subject, flags })),
        Some(SubjectKind::Command(words)) => Ok(Box::new(Command { subject, words })),
        _ => Err(Failure::failed("the subject is no server")),
    }
}

impl<'a> Scene<'a> {
    /// The value of a placeholder that every text of a subject may have.
    fn value(&self, name: &str) -> Option<String> {
        match name {
            "host" => Some(self.wire.address().to_string()),
            "root" => Some(self.root.unwrap_or(self.work).display().to_string()),
            "work" => Some(self.work.display().to_string()),
            "drover" => Some(self.drover.display().to_string()),
            "cert" => self.tls.map(|tls| tls.certificate().display().to_string()),
            "key" => self.tls.map(|tls| tls.key().display().to_string()),
            _ => self.levels.get(name).map(Level::to_string),
        }
    }

    /// The values of a subject's placeholders: those of every text, the programs and folders that it looks for, and
    /// its files. Writes the files.
    fn prepare(
        &self,
        subject: &spec::SubjectSpec,
        port: Option<u16>,
    ) -> Result<Values<'_>, Failure> {
        let mut own: BTreeMap<String, String> = BTreeMap::new();
        own.extend(port.map(|port| ("port".to_string(), port.to_string())));
        for (name, candidates) in &subject.find {
            let found = find::find(name, candidates, subject.install.as_deref())?;
            own.insert(name.clone(), found.display().to_string());
        }
        let path = |name: &String| self.work.join(name);
        own.extend(
            subject.files.keys().map(|name| (name.clone(), path(name).display().to_string())),
        );
        let values = Values { scene: self, own };
        for (name, text) in &subject.files {
            let failed = |error| Failure::failed(format!("{}: {error}", path(name).display()));
            if let Some(folder) = path(name).parent() {
                fs::create_dir_all(folder).map_err(failed)?;
            }
            fs::write(path(name), values.fill(text)?).map_err(failed)?;
        }
        Ok(values)
    }

    /// A launch of the subject's process: its environment, limits and processors.
    fn launch(
        &self,
        subject: &spec::SubjectSpec,
        words: &[String],
        values: &Values<'_>,
    ) -> Result<Launch<'a>, Failure> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::failed("the command is empty"));
        };
        let mut command = std::process::Command::new(program);
        command.args(arguments);
        for (name, value) in &subject.env {
            command.env(name, values.fill(value)?);
        }
        let mut launch = Launch::new("server", command, self.guard, self.interrupt);
        launch.cpus = self.placement.subject.clone();
        launch.limits = self.limits();
        launch.limits.extend(limits(&subject.limits, self.levels)?);
        launch.billed = true;
        launch.notes_access = self.root.filter(|_| self.notes_access).map(Path::to_path_buf);
        Ok(launch)
    }

    /// The resource limits of every process of the run that differ from the lab's.
    #[must_use]
    pub fn limits(&self) -> crate::process::ResourceLimits {
        self.descriptors.iter().map(|count| ("nofile".to_string(), *count)).collect()
    }

    /// Runs a process that measures by itself, and returns its result: the line of JSON that it prints before it ends. It
    /// may take so long, and as long again to end.
    fn result_of(
        &self,
        name: &'static str,
        command: std::process::Command,
        limits: &LimitSettings,
        timeout: Duration,
    ) -> Result<SelfMeasurement, Failure> {
        let words = command_line(&command);
        let mut launch = Launch::new(name, command, self.guard, self.interrupt);
        launch.limits = self.limits();
        launch.limits.extend(self::limits(limits, self.levels)?);
        let there = self.wire.enter(WireEnd::Subject)?;
        let mut process = Child::start(launch)?;
        drop(there);
        let result = process.expect_line("its result", timeout, |line| {
            line.starts_with('{').then(|| serde_json::from_str(line).ok())?
        })?;
        process.expect_success(timeout)?;
        Ok(SelfMeasurement { result, command: words, ..SelfMeasurement::default() })
    }

    /// What the run speaks.
    #[must_use]
    pub fn spoken(&self) -> SpokenProtocols {
        SpokenProtocols { tls: self.tls.is_some(), http2: self.is_http2 }
    }

    /// The flags of `drover load` by which it trusts the server.
    #[must_use]
    pub fn trust(&self) -> Vec<String> {
        let of =
            |tls: &TlsFiles| vec!["--cacert".to_string(), tls.authority().display().to_string()];
        self.tls.map(of).unwrap_or_default()
    }

    /// A port at the subject's end of the wire that no socket uses at this moment.
    fn free_port(&self) -> Result<u16, Failure> {
        let _there = self.wire.enter(WireEnd::Subject)?;
        address::free_port().map_err(|error| Failure::failed(format!("a free port: {error}")))
    }
}

/// The values of a subject's placeholders.
struct Values<'a> {
    scene: &'a Scene<'a>,
    own: BTreeMap<String, String>,
}

impl Values<'_> {
    fn fill(&self, text: &str) -> Result<String, Failure> {
        let value = |name: &str| self.own.get(name).cloned().or_else(|| self.scene.value(name));
        fill(text, value).map_err(Failure::failed)
    }

    fn fill_all(&self, texts: &[String]) -> Result<Vec<String>, Failure> {
        texts.iter().map(|text| self.fill(text)).collect()
    }
}

fn limits(
    limits: &LimitSettings,
    levels: &BTreeMap<String, Level>,
) -> Result<crate::process::ResourceLimits, Failure> {
    let resolve = |(name, count): (&str, &spec::setting::CountSetting)| {
        let value = count.resolve(levels).map_err(Failure::failed)?;
        Ok((name.to_string(), value))
    };
    limits.set().into_iter().map(resolve).collect()
}

/// An empty folder of a run. Dropping the value removes the folder with its content.
#[derive(Debug)]
pub struct WorkFolder(PathBuf);

impl WorkFolder {
    /// Creates the folder.
    ///
    /// # Errors
    /// [`Failure::Failed`] with what the file system says.
    pub fn create(folder: &Path) -> Result<WorkFolder, Failure> {
        let made = match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => fs::create_dir_all(folder).and_then(|()| folder.canonicalize()),
        };
        made.map(WorkFolder)
            .map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests;

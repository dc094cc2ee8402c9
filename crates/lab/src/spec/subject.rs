//! Subjects: what an experiment measures.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::claim::Levels;
use super::setting::{Count, Time};

/// What is measured: exactly one of `serve`, `command`, `peer`, `waiters` and `pipes` says which kind it is.
///
/// In the texts of a subject, `{factor}` is the level of that factor, `{port}` the port to listen on (of
/// 127.0.0.1, or of the address `{host}` where the wire is no loopback), `{root}` the folder of the files to
/// serve, `{work}` an empty folder of this run, `{drover}` the program of the lab itself, `{NAME}` the path of the file NAME of `files` and of the
/// program or folder NAME of `find`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {"required": ["serve"]}, {"required": ["command"]}, {"required": ["peer"]},
    {"required": ["waiters"]}, {"required": ["pipes"]}
]))]
pub struct Subject {
    /// In place of one subject, one for each mechanism of this kind that no other subject of the experiment is
    /// named after: `{each}` is its name in the subject's texts. In lists of subjects the name of this one
    /// stands for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<Each>,
    /// Drover's own server with these flags, behind those of the experiment's key `serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve: Option<Vec<String>>,
    /// Any server: a program and its arguments. It stays in the foreground, or has children that do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// A server that is known by name: nginx, lighttpd, h2o, apache2, caddy. The other keys of the subject
    /// replace those of the known one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// A crowd of waiters on one listening socket, in place of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiters: Option<Waiters>,
    /// A set of pipes that one thread waits on, in place of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipes: Option<Pipes>,
    /// Environment variables beside those of the lab itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Files that are written into `{work}` before the start, by name, with their text.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub files: IndexMap<String, String>,
    /// Programs and folders by name; the first of each list that exists is taken. Without a slash it is
    /// looked for in PATH. If none exists the subject is not testable here.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub find: IndexMap<String, Vec<String>>,
    /// What to do if nothing of `find` exists: `apt-get install nginx-light`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// Resource limits, soft and hard.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// How many processors it may use; 1 unless given. The load has the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Count>,
    /// When it counts as started; once it accepts connections, unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Ready>,
    /// Whether it is a model of something that this kernel does not have. Tables and figures say so.
    #[serde(default)]
    pub model: bool,
    /// The levels at which it is measured, by factor; all unless given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<String, Levels>,
    /// Why it cannot be measured, here or anywhere. Its cells are not testable for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// What it is, in a line, for the legend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// A kind of mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Each {
    /// Dispatch mechanisms.
    Dispatch,
    /// Accept strategies.
    Accept,
    /// File backends.
    Files,
}

/// The kind of a subject, with what only this kind has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind<'a> {
    /// Drover's own server with flags.
    Serve(&'a [String]),
    /// A program and its arguments.
    Command(&'a [String]),
    /// A crowd of waiters.
    Waiters(&'a Waiters),
    /// A set of pipes.
    Pipes(&'a Pipes),
}

impl Subject {
    /// Its kind; `None` for a subject without any, which the reader of experiment files refuses. A known
    /// server (`peer`) is a command once the file is read.
    pub fn kind(&self) -> Option<Kind<'_>> {
        let serve = self.serve.as_deref().map(Kind::Serve);
        let command = self.command.as_deref().map(Kind::Command);
        let waiters = self.waiters.as_ref().map(Kind::Waiters);
        serve.or(command).or(waiters).or(self.pipes.as_ref().map(Kind::Pipes))
    }

    /// Whether it serves HTTP.
    pub fn is_server(&self) -> bool {
        self.serve.is_some() || self.command.is_some() || self.peer.is_some()
    }
}

/// Waiters on one listening socket: each takes a connection when it gets one, closes it, and waits again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Waiters {
    /// How they wait: select, poll, epoll-shared, epoll, exclusive, blocking, lock, reuseport, uring,
    /// select+blocking, or a model: wake-all, wake-all-3, task-exclusive, wake-one, always-wake.
    pub by: String,
    /// How many.
    pub count: Count,
    /// Threads of one process, or processes.
    #[serde(default)]
    pub r#as: WaitersAs,
    /// How many descriptors of the socket each of them waits on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptors: Option<Count>,
    /// Whether every waiter is busy elsewhere while connections come, and none is in its wait.
    #[serde(default)]
    pub busy: bool,
}

/// What waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WaitersAs {
    /// Threads of one process.
    #[default]
    Threads,
    /// Processes that have inherited the socket.
    Processes,
}

/// Pipes that one thread waits on, and passes tokens through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pipes {
    /// How it waits: a dispatch mechanism (`drover mechanisms` lists them), or `busy`: it reads from every
    /// pipe in turn without waiting.
    pub by: String,
    /// How many pipes are registered.
    pub count: Count,
}

/// Resource limits (getrlimit(2)).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Open descriptors per process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nofile: Option<Count>,
    /// Queued signals of the user: the length of the queue of real-time signals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sigpending: Option<Count>,
    /// Locked memory, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memlock: Option<Count>,
    /// Processes and threads of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nproc: Option<Count>,
    /// Address space, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#as: Option<Count>,
    /// The stack of the first thread, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<Count>,
}

impl Limits {
    /// Whether no limit is set.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }

    /// The limits that are set, by their names in getrlimit(2) without `RLIMIT_`, in lower case.
    pub fn set(&self) -> Vec<(&'static str, &Count)> {
        let all = [
            ("nofile", &self.nofile),
            ("sigpending", &self.sigpending),
            ("memlock", &self.memlock),
            ("nproc", &self.nproc),
            ("as", &self.r#as),
            ("stack", &self.stack),
        ];
        all.into_iter().filter_map(|(name, limit)| Some((name, limit.as_ref()?))).collect()
    }
}

/// When a server counts as started: it answers a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// The path that is asked for.
    #[serde(default = "root_path")]
    pub path: String,
    /// The status that the answer has; any below 500 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the start may take; 10 s unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Time>,
}

fn root_path() -> String {
    "/".to_owned()
}

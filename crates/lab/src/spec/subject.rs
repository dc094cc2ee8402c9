//! Subjects: what an experiment measures.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::claim::Levels;
use super::setting::{CountSetting, TimeSetting, placeholders};

/// A subject: a server, a crowd of waiters, a set of pipes or a command in a virtual machine that is measured.
/// Exactly one of `serve`, `command`, `peer`, `waiters`, `pipes` and `guest` is given; this key is the subject's
/// kind.
///
/// The texts of a subject may contain placeholders. `{factor}` is the level of the factor of this name.
/// `{port}` is the port to listen on, of 127.0.0.1 (of the address `{host}` if the wire is not loopback).
/// `{root}` is the folder of the files to serve, `{work}` an empty folder for the run, `{drover}` the program
/// of the lab itself. In cells with TLS, `{cert}` and `{key}` are the files of the server's certificate and of its
/// private key (PEM). `{NAME}` is the path of the file NAME of `files`, or of the program or folder NAME of
/// `find`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {"required": ["serve"]}, {"required": ["command"]}, {"required": ["peer"]},
    {"required": ["waiters"]}, {"required": ["pipes"]}, {"required": ["guest"]}
]))]
pub struct SubjectSpec {
    /// Makes several subjects of this one: a subject for each mechanism of the kind, except mechanisms whose
    /// name another subject of the experiment has. `{each}` in the subject's texts is the name of the
    /// mechanism. In lists of subjects, the name of this table stands for all these subjects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<Each>,
    /// Drover's own server: the flags of `drover serve`. The flags of the experiment's key `serve` come first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve: Option<Vec<String>>,
    /// Any server: a program and its arguments. The program, or a child of the program, has to stay in the
    /// foreground.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// A server that the lab knows by name: nginx, lighttpd, h2o, apache2, caddy. The lab knows all keys of
    /// such a subject; a key given here replaces the known key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// A crowd of waiters on one listening socket, in place of a server. For the load `connects`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiters: Option<Waiters>,
    /// A set of pipes that one thread waits on, in place of a server. For the load `tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipes: Option<Pipes>,
    /// A command of Drover that measures by itself in a virtual machine (`drover lab run --vm`): its arguments. It
    /// prints one line of JSON, from which the experiment's own metrics are taken (`from = "subject:/key"`); its key
    /// `marks` has the marks of the run, and `values` metrics of the lab, of which `cpu-percent`, `error-percent`,
    /// `hung-percent` and `response-rate` are taken. There is no load, and `env`, `limits` and `cpus` do not reach the
    /// machine. Without a virtual machine the subject is not testable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<Vec<String>>,
    /// Environment variables of the subject, in addition to the variables of the lab itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Files that the lab writes into the folder `{work}` before the subject starts: the name and the text of
    /// each file.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub files: IndexMap<String, String>,
    /// What differs where the server speaks TLS, for subjects with `command` or `peer`. A server with neither this key
    /// nor the placeholder `{cert}` is not testable there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ProtocolKeys>,
    /// What differs further where the server speaks HTTP/2, for subjects with `command` or `peer`: an empty table if nothing does. A
    /// server without this key is not testable there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<ProtocolKeys>,
    /// Programs and folders, by name. Each name has a list of paths; the first path that exists is taken. A
    /// path without a slash is searched for in PATH. If no path of a list exists, the subject is not testable
    /// on this machine.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub find: IndexMap<String, Vec<String>>,
    /// How to install the programs of `find` if they are missing: `apt-get install nginx-light`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// Resource limits of the subject. The soft and the hard limit are set to the same value.
    #[serde(default, skip_serializing_if = "LimitSettings::is_empty")]
    pub limits: LimitSettings,
    /// How many processors the subject may use; 1 if the key is missing. The load runs on the other processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CountSetting>,
    /// The request that the server has to answer before the server counts as started. If the key is missing, and in
    /// cells with TLS, the server counts as started when it accepts connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyRequest>,
    /// Whether the subject is a model of something that this kernel does not have. Tables and figures mark such
    /// a subject.
    #[serde(default)]
    pub model: bool,
    /// The levels at which the subject is measured, by factor. A factor that is missing here has all its
    /// levels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<String, Levels>,
    /// Why the subject cannot be measured, on this machine or anywhere. The report gives this reason for the
    /// subject's cells, which are not testable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// The subject's description in the legend, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// The keys of a subject that have other values where the server speaks TLS, or HTTP/2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtocolKeys {
    /// The program and its arguments, in place of the subject's own key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Files that replace files of the same name, and further files.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub files: IndexMap<String, String>,
}

/// A kind of mechanism: dispatch mechanisms, accept strategies or file backends.
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
pub enum SubjectKind<'a> {
    /// Drover's own server with flags.
    Serve(&'a [String]),
    /// A program and its arguments.
    Command(&'a [String]),
    /// A crowd of waiters.
    Waiters(&'a Waiters),
    /// A set of pipes.
    Pipes(&'a Pipes),
    /// A command of Drover in the virtual machine.
    Guest(&'a [String]),
}

impl SubjectSpec {
    /// Its kind; `None` for a subject without any, which the reader of experiment files refuses. A known
    /// server (`peer`) is a command once the file is read.
    pub fn kind(&self) -> Option<SubjectKind<'_>> {
        let serve = self.serve.as_deref().map(SubjectKind::Serve);
        let command = self.command.as_deref().map(SubjectKind::Command);
        let waiters = self.waiters.as_ref().map(SubjectKind::Waiters);
        let pipes = self.pipes.as_ref().map(SubjectKind::Pipes);
        let guest = self.guest.as_deref().map(SubjectKind::Guest);
        serve.or(command).or(waiters).or(pipes).or(guest)
    }

    /// Whether it is measured in a virtual machine (`drover lab run --vm`).
    pub fn is_in_guest(&self) -> bool {
        self.guest.is_some() || self.pipes.as_ref().is_some_and(|pipes| pipes.guest)
    }

    /// The subject as it is where the server speaks these protocols.
    #[must_use]
    pub fn over(&self, is_tls: bool, is_http2: bool) -> SubjectSpec {
        let mut subject = self.clone();
        let (tls, http2) = (subject.tls.take(), subject.http2.take());
        for keys in [tls.filter(|_| is_tls), http2.filter(|_| is_http2)].into_iter().flatten() {
            subject.command = keys.command.or(subject.command);
            subject.files.extend(keys.files);
        }
        subject
    }

    /// Whether it can speak HTTP/2: Drover's own server can; of another one the file says it.
    pub fn can_speak_http2(&self) -> bool {
        self.serve.is_some() || self.http2.is_some()
    }

    /// Whether it can speak TLS: Drover's own server can; another one has to be told the certificate.
    pub fn can_speak_tls(&self) -> bool {
        let command = self.command.iter().flatten();
        let mut texts = command.chain(self.files.values()).chain(self.env.values());
        let is_told = |text: &String| placeholders(text).contains(&"cert");
        self.serve.is_some() || self.tls.is_some() || texts.any(is_told)
    }

    /// Whether it serves HTTP.
    pub fn is_server(&self) -> bool {
        self.serve.is_some() || self.command.is_some() || self.peer.is_some()
    }
}

/// A crowd of waiters on one listening socket. A waiter that is woken accepts a connection, closes the
/// connection, and waits again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Waiters {
    /// How the waiters wait: `select`, `poll`, `epoll-shared`, `epoll`, `exclusive`, `blocking`, `lock`,
    /// `reuseport`, `uring`, `select+blocking`, or a model: `wake-all`, `wake-all-3`, `task-exclusive`,
    /// `wake-one`, `always-wake`.
    pub by: String,
    /// How many waiters there are.
    pub count: CountSetting,
    /// Whether the waiters are threads of one process, or processes; `"threads"` if the key is missing.
    #[serde(default)]
    pub r#as: WaitersAs,
    /// How many descriptors of the socket each waiter waits on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptors: Option<CountSetting>,
    /// Whether every waiter is busy with something else while connections come, so that no waiter is waiting.
    #[serde(default)]
    pub busy: bool,
}

/// What the waiters are: threads or processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WaitersAs {
    /// Threads of one process.
    #[default]
    Threads,
    /// Processes that have inherited the socket.
    Processes,
}

/// A set of pipes. One thread waits on the pipes and passes tokens from pipe to pipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pipes {
    /// How the thread waits: a dispatch mechanism (`drover mechanisms` lists them), or `busy`: the thread reads
    /// from every pipe in turn without waiting.
    pub by: String,
    /// How many pipes are registered.
    pub count: CountSetting,
    /// The parts of /dev/poll, for `by = "devpoll"`: some of `hints`, `walk`, `lock`, `apart`, `ready-list`, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<String>,
    /// Whether the thread runs in a virtual machine (`drover lab run --vm`), with the real devices, on one processor whose clock
    /// counts instructions: a nanosecond of the result is a guest's instruction, and each wait is timed. Without a virtual
    /// machine the subject is not testable.
    #[serde(default)]
    pub guest: bool,
}

/// Resource limits of the subject (getrlimit(2)). A limit that is missing here is not changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitSettings {
    /// The number of open descriptors per process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nofile: Option<CountSetting>,
    /// The number of queued signals of the user, which is the length of the queue of real-time signals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sigpending: Option<CountSetting>,
    /// The locked memory, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memlock: Option<CountSetting>,
    /// The number of processes and threads of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nproc: Option<CountSetting>,
    /// The address space, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#as: Option<CountSetting>,
    /// The stack of the first thread, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<CountSetting>,
}

impl LimitSettings {
    /// Whether no limit is set.
    pub fn is_empty(&self) -> bool {
        *self == LimitSettings::default()
    }

    /// The limits that are set, by their names in getrlimit(2) without `RLIMIT_`, in lower case.
    pub fn set(&self) -> Vec<(&'static str, &CountSetting)> {
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

/// The request that a server has to answer before the server counts as started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadyRequest {
    /// The path of the request; `/` if the key is missing.
    #[serde(default = "root_path")]
    pub path: String,
    /// The status that the response must have; any status below 500 if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the start may take; 10 s if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<TimeSetting>,
}

fn root_path() -> String {
    "/".to_owned()
}

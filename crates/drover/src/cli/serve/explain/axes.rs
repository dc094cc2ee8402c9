//! The axes on which a server chooses: what was looked at, what was chosen and why, and what would be better.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::SystemTime;

use anyhow::Context;
use drover_mech::accept::{self, Strategy};
use drover_mech::fileio;
use drover_mech::mechanisms::Features;
use drover_sys::process::{Limit, locked_memory_limit, open_files_limit, usable_cpus};
use drover_sys::socket::{self, ListenOptions};

use super::Explanation;
use super::kernel::{number, setting, told};
use crate::cli::auto_or::names;
use crate::cli::serve::ROOM;
use crate::cli::serve::config::FlagValues;
use crate::cli::serve::flags;
use crate::cli::serve::flags::memory::{ServerMemory, amount as memory};
use drover_server::{Config, Listen, MemoryUse, Sandbox, SandboxState, Server};
use drover_tls::server::OldestVersion;

/// How many rings are opened at most to find out whether all workers can have one.
const RINGS_TRIED: usize = 256;

/// What was chosen, and from what.
pub(super) struct ServerSelection<'c> {
    pub(super) config: &'c Config,
    pub(super) flags: &'c FlagValues,
    /// Why no rings can be had, if they are better and cannot.
    pub(super) why_no_rings: Option<&'c str>,
    pub(super) processes: bool,
    pub(super) memory: &'c ServerMemory,
}

impl ServerSelection<'_> {
    /// Who has chosen, unless `auto` has.
    fn asked(&self, flag: &str) -> Option<String> {
        (!self.flags.is_auto(flag)).then(|| self.flags.set_by(flag))
    }

    pub(super) fn dispatch(&self) -> Explanation {
        let mechanism = self.config.mechanism;
        let rings = self.config.workers.get().min(RINGS_TRIED);
        let asked = self.asked("dispatch");
        let mut probed = Vec::new();
        let tried = "with deferred completions (Linux 6.1)";
        let tried = match rings {
            1 => format!("a ring {tried}"),
            rings => format!("{rings} rings at once, one per worker, {tried}"),
        };
        let is_completion = mechanism.features.contains(Features::COMPLETION);
        let why = match (&asked, self.why_no_rings) {
            (None, None) => {
                probed.push(format!("{tried}: could be had"));
                format!("auto takes {} where that works (docs/performance.md)", mechanism.name)
            }
            (None, Some(reason)) => {
                probed.push(format!("{tried}: {reason}"));
                probed.push(format!("{}: works", mechanism.name));
                "the first that works of those that auto takes without rings (docs/performance.md)"
                    .to_owned()
            }
            (Some(asked), _) => {
                probed.push(format!("{}: works", mechanism.name));
                asked.clone()
            }
        };
        if is_completion || self.why_no_rings.is_some() {
            probed.push(told("kernel/io_uring_disabled"));
            let locked = locked_memory_limit().soft.map_or("unlimited".to_owned(), memory);
            probed.push(format!("locked memory (ulimit -l): {locked}"));
        }
        let change = self.why_no_rings.map(|reason| format!("uring would be better: {reason}"));
        let (chosen, change) = (mechanism.name.to_owned(), change.into_iter().collect());
        Explanation { axis: "dispatch", chosen, probed, why, change }
    }

    pub(super) fn accept(&self) -> Explanation {
        let (mechanism, workers) = (self.config.mechanism, self.config.workers.get());
        let obstacle = |it: &Strategy| it.goes_with(mechanism).err().map(|it| it.to_string());
        let obstacle = |it: &Strategy| obstacle(it).or(it.probe().err());
        let usable = accept::ALL.iter().filter(|it| obstacle(it).is_none()).map(|it| it.name);
        let mut probed = vec![format!("usable with {}: {}", mechanism.name, names(usable))];
        let unusable = accept::ALL.iter().filter_map(|it| Some((it.name, obstacle(it)?)));
        probed.extend(unusable.map(|(name, reason)| format!("not {name}: {reason}")));
        let is_completion = mechanism.features.contains(Features::COMPLETION);
        let has_unix = self.config.listen.iter().any(|listen| listen.unix.is_some());
        let why = self.asked("accept").unwrap_or_else(|| {
            match (workers, self.config.accept.name) {
                (1, _) => "auto: a single worker shares its socket with no other",
                _ if has_unix => {
                    "auto: a unix socket cannot be bound twice, so that workers share each socket"
                }
                _ if is_completion => {
                    "auto: under rings, sharing one socket costs an accept request per connection \
                     (docs/accept.md)"
                }
                (_, "reuseport") => "auto: no exclusive waiting with this mechanism",
                _ => "auto: no connection waits behind a worker that is stuck (docs/accept.md)",
            }
            .to_owned()
        });
        let chosen = self.config.accept.name.to_owned();
        Explanation { axis: "accept", chosen, probed, why, change: Vec::new() }
    }

    pub(super) fn listen(&self) -> Explanation {
        const SOMAXCONN: &str = "net/core/somaxconn";
        let asked = u64::from(ListenOptions::default().backlog.unsigned_abs());
        let most = number(SOMAXCONN).unwrap_or(asked);
        let backlog = asked.min(most);
        let handshakes = number("net/ipv4/tcp_max_syn_backlog");
        let mut change = Vec::new();
        if most < asked {
            change.push(format!(
                "sysctl net.core.somaxconn={asked}: the kernel drops connections beyond {most} that \
                 no worker has accepted yet"
            ));
        }
        // tcp_conn_request in net/ipv4/tcp_input.c heeds it only then.
        let has_cookies = setting("net/ipv4/tcp_syncookies").is_none_or(|it| it != "0");
        if let Some(handshakes) = handshakes.filter(|it| *it < backlog && !has_cookies) {
            change.push(format!(
                "sysctl net.ipv4.tcp_syncookies=1, or net.ipv4.tcp_max_syn_backlog={backlog}: the \
                 kernel drops handshakes when some {handshakes} are under way"
            ));
        }
        Explanation {
            axis: "listen",
            chosen: format!("a backlog of {backlog} connections per socket"),
            probed: [
                "net/core/somaxconn",
                "net/ipv4/tcp_max_syn_backlog",
                "net/ipv4/tcp_syncookies",
            ]
            .map(told)
            .to_vec(),
            why: format!("the server asks for {asked}; the kernel caps that at net.core.somaxconn"),
            change,
        }
    }

    /// Where HTTPS is spoken and with which certificates; `None`: nowhere.
    pub(super) fn tls(&self) -> Option<Explanation> {
        let tls = self.config.tls.as_deref()?;
        let now = SystemTime::now();
        let listeners = self.config.tls_to_be();
        let addresses = self.config.listen.iter().flat_map(Listen::all).enumerate();
        let spoken = addresses.filter(|(number, _)| listeners.is_tls(*number));
        let spoken: Vec<_> = spoken.map(|(_, address)| address.url(true)).collect();
        let probed = tls.certificates().iter().map(|certificate| {
            let names = certificate.names().join(", ");
            let file = certificate.files().certificate.display();
            format!("{file}: {names}; {} days left", certificate.days_left(now))
        });
        let acme = self.config.acme.iter().flat_map(|acme| flags::acme::described(acme));
        let problems = tls.certificates().iter().filter_map(|certificate| {
            let problem = certificate.problem(now)?;
            Some(format!("{}: {problem}", certificate.files().certificate.display()))
        });
        let oldest = match tls.options().oldest {
            OldestVersion::Tls12 => "TLS 1.2 and 1.3",
            OldestVersion::Tls13 => "TLS 1.3",
        };
        Some(Explanation {
            axis: "https",
            chosen: format!("{oldest} at {}", spoken.join(", ")),
            probed: probed.chain(acme).collect(),
            why: "every address speaks HTTPS if there is a certificate, except port 80, unless ',tls' or ',plain' behind it \
                  says otherwise"
                .to_owned(),
            change: problems.collect(),
        })
    }

    pub(super) fn defer_accept(&self) -> Explanation {
        let options = ListenOptions { defer: self.config.defer_accept, ..ListenOptions::default() };
        let probed = match socket::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options) {
            Ok(socket) if socket::defers(socket.as_fd()) => {
                "a listening socket: the kernel defers (TCP_DEFER_ACCEPT)".to_owned()
            }
            Ok(_) => "a listening socket: the kernel does not defer".to_owned(),
            Err(error) => format!("no listening socket of 127.0.0.1 can be had: {error}"),
        };
        let on = "accept(2) returns a connection with its first bytes, so that no wait is needed for them";
        Explanation {
            axis: "defer-accept",
            chosen: if self.config.defer_accept { "on" } else { "off" }.to_owned(),
            probed: vec![probed],
            why: match (self.flags.is_default("defer-accept"), self.config.defer_accept) {
                (true, _) => on.to_owned(),
                (false, true) => format!("{}; {on}", self.flags.set_by("defer-accept")),
                (false, false) => self.flags.set_by("defer-accept"),
            },
            change: Vec::new(),
        }
    }

    pub(super) fn files(&self) -> Explanation {
        let axis = "files";
        if !self.config.has_files() {
            let chosen = "none: --response-size".to_owned();
            return Explanation { axis, chosen, ..Explanation::default() };
        }
        let result = |backend: &&fileio::Backend| match backend.probe() {
            Ok(()) => format!("{}: works", backend.name),
            Err(reason) => format!("{}: {reason}", backend.name),
        };
        let (chosen, probed, why) = match self.config.files {
            Some(backend) => {
                let asked = self.asked("files").unwrap_or_default();
                (backend.name.to_owned(), vec![result(&backend)], asked)
            }
            None => (
                "auto: short files from memory, others by their size and by where they are"
                    .to_owned(),
                fileio::AUTO_TAKES.iter().map(result).collect(),
                "sendfile, for large parts splice, sends what is in the page cache, and threads \
                 read the rest, so that no worker waits for a disk (docs/files.md)"
                    .to_owned(),
            ),
        };
        Explanation { axis, chosen, probed, why, change: Vec::new() }
    }

    pub(super) fn cache(&self) -> Explanation {
        let (each, workers) = (self.config.cache as u64, self.config.workers.get() as u64);
        let all = each.saturating_mul(workers);
        let limit = self.memory.budget.all().map_or("no limit is known".to_owned(), memory);
        let mut probed = vec![format!("memory of the server: {limit}")];
        if self.config.revalidate.watched_after.is_some() {
            probed.push(told("fs/inotify/max_user_watches"));
            probed.push(told("fs/inotify/max_user_instances"));
        }
        Explanation {
            axis: "cache",
            chosen: match each {
                0 => "off".to_owned(),
                each => format!("{} per worker, {} in all", memory(each), memory(all)),
            },
            probed,
            why: match self.memory.is_share(MemoryUse::Cache) {
                true => "auto: a quarter of the memory, and at most 64 MiB per worker".to_owned(),
                false => self.flags.set_by("cache"),
            },
            change: Vec::new(),
        }
    }

    /// What the server may use, and who gets how much of it.
    pub(super) fn memory(&self) -> Explanation {
        let ServerMemory { limits, budget, .. } = self.memory;
        let known = |limit: Option<u64>| limit.map_or("no limit is known".to_owned(), memory);
        let shares = budget.shares().map(|(of, name, each, holders)| {
            let each = match of {
                MemoryUse::Cache => self.config.cache as u64,
                MemoryUse::Reads => self.memory.reads,
                _ => each,
            };
            let times = if holders > 1 { format!("{holders} x ") } else { String::new() };
            format!("{name} {times}{}", memory(each))
        });
        let shares = names(shares.collect::<Vec<_>>().iter().map(String::as_str));
        Explanation {
            axis: "memory",
            chosen: format!("{}: {shares}", known(budget.all())),
            probed: vec![
                format!("machine: {}", known(limits.machine)),
                format!("cgroup, with those above it: {}", known(limits.cgroup)),
                format!("addresses that RLIMIT_AS leaves: {}", known(limits.addresses)),
            ],
            why: match self.memory.is_given() {
                true => self.flags.set_by("memory"),
                false => {
                    "auto: the least of these; what has no flag of its own gets a share".to_owned()
                }
            },
            change: self.memory.excess().into_iter().collect(),
        }
    }

    pub(super) fn workers(&self) -> anyhow::Result<Explanation> {
        let workers = self.config.workers.get();
        let by_affinity = usable_cpus().context("cannot ask for the usable processors")?.len();
        let usable = std::thread::available_parallelism().map_or(1, usize::from);
        let mut change = Vec::new();
        if usable < by_affinity {
            change.push(format!(
                "the quota of the cgroup leaves {usable} of {by_affinity} processors: raise cpu.max \
                 (systemd: CPUQuota=) for more workers"
            ));
        }
        if workers > usable {
            change
                .push(format!("--workers {usable}: more workers than processors only take turns"));
        }
        let auto = "auto: one for each processor that affinity and quota leave";
        let limited = ", and no more than --max-connections";
        Ok(Explanation {
            axis: "workers",
            chosen: match self.processes {
                true => format!("{workers}, as processes"),
                false => format!("{workers}, as threads of one process"),
            },
            probed: vec![
                format!("processors by the CPU affinity: {by_affinity}"),
                format!("processors with the quota of the cgroup too: {usable}"),
            ],
            why: match self.asked("workers") {
                Some(asked) => asked,
                None if workers < usable => format!("{auto}{limited}"),
                None => auto.to_owned(),
            },
            change,
        })
    }

    /// `before`: the limit with which the process was started.
    pub(super) fn descriptors(&self, before: Limit) -> anyhow::Result<Explanation> {
        let told = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |it| it.to_string());
        let now = open_files_limit();
        let (connections, per) =
            (Server::most_connections(self.config, self.processes)?, self.config.workers);
        let mut change = Vec::new();
        if let Some(hard) = now.hard.filter(|hard| *hard < ROOM) {
            change.push(format!(
                "ulimit -Hn {ROOM} (systemd: LimitNOFILE={ROOM}): more connections than {hard} \
                 descriptors allow"
            ));
        }
        Ok(Explanation {
            axis: "descriptors",
            chosen: format!(
                "{}, for about {connections} connections in {per} workers",
                told(now.soft)
            ),
            probed: vec![
                format!("ulimit -Sn: {}, ulimit -Hn: {}", told(before.soft), told(before.hard)),
                super::kernel::told("fs/nr_open"),
            ],
            why: match self.config.max_connections {
                Some(most) => format!(
                    "the server raises the first to the second; --max-connections {most}, {}",
                    self.flags.set_by("max-connections")
                ),
                None => {
                    "the server raises the first to the second, and keeps some for files".to_owned()
                }
            },
            change,
        })
    }

    /// `no_result`: why no result of `drover tune` is used, and whether a new one would help.
    pub(super) fn tuned(&self, no_result: Option<(String, bool)>) -> Explanation {
        let axis = "tuned";
        if let Some((names, on)) = self.flags.tuned() {
            return Explanation {
                axis,
                chosen: format!("{}, as drover tune found on {on}", names.join(", ")),
                probed: vec!["a result for this folder, kernel, processor and program".to_owned()],
                ..Explanation::default()
            };
        }
        let (probed, is_tunable) = no_result.unwrap_or_else(|| {
            ("a result for this folder: it chooses nothing that is left to auto".to_owned(), false)
        });
        let change = "drover tune ROOT measures which flags serve these files best on this machine";
        Explanation {
            axis,
            chosen: "nothing".to_owned(),
            probed: vec![probed],
            change: is_tunable.then(|| change.to_owned()).into_iter().collect(),
            ..Explanation::default()
        }
    }
}

/// What is in force of the sandbox; `is_root`: the server would serve as root.
pub(super) fn sandbox(sandbox: Sandbox, is_root: bool) -> Explanation {
    let mut change = Vec::new();
    match sandbox.state {
        SandboxState::Off => change.push("leave --no-sandbox out".to_owned()),
        SandboxState::Unavailable | SandboxState::Failed => change.push(
            "a kernel with Landlock among the modules of /sys/kernel/security/lsm".to_owned(),
        ),
        SandboxState::InForce => {}
    }
    if is_root {
        change.push("--user USER: nothing but ports below 1024 needs root".to_owned());
    }
    Explanation {
        axis: "sandbox",
        chosen: sandbox.in_words,
        probed: vec![
            "it was entered, on a thread of its own".to_owned(),
            format!("the process runs {}", if is_root { "as root" } else { "without root" }),
        ],
        why: String::new(),
        change,
    }
}

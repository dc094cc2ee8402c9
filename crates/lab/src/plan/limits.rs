//! Obstacles of a cell on this machine, as far as they are known before the run.

use std::collections::BTreeMap;
use std::fs;

use drover_waiters::pipes::Waiting;
use rustix::thread::CapabilitySet;

use super::room::Room;
use crate::failure::Failure;
use crate::model::{Cell, Level};
use crate::placement::{Placement, Processor};
use crate::spec::load::{Http, ResolvedWire};
use crate::spec::setting::{CountSetting, level_of};
use crate::spec::subject::{SubjectKind, WaitersAs};
use crate::spec::{Experiment, SubjectSpec};
use crate::subject::find;

/// Descriptors that a process needs in addition to its connections.
const OTHER_DESCRIPTORS: u64 = 200;

/// The machine's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineLimits {
    /// The processors that can be used.
    pub processors: Vec<Processor>,
    /// The most descriptors that a process of this user may have.
    pub descriptors: u64,
    /// The number of local ports from which connections may start.
    pub ports: u64,
    /// The room for waiters.
    pub room: Room,
}

impl MachineLimits {
    /// The limits of this machine.
    ///
    /// # Errors
    /// The errors of [`crate::placement::processors`].
    pub fn look() -> Result<MachineLimits, Failure> {
        let hard = drover_sys::process::open_files_limit().hard.unwrap_or(u64::MAX);
        let system = read_number("/proc/sys/fs/nr_open").unwrap_or(1 << 20);
        // A user who may raise the hard limit may raise it to the system's limit.
        let sets = rustix::thread::capabilities(None);
        let may_raise = sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE));
        let descriptors = if may_raise { system } else { hard.min(system) };
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok();
        let ports = range.and_then(|text| {
            let mut ends = text.split_whitespace().map(|end| end.parse::<u64>());
            let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
            Some(last.saturating_sub(first) + 1)
        });
        Ok(MachineLimits {
            processors: crate::placement::processors()?,
            descriptors,
            ports: ports.unwrap_or(28_232),
            room: Room::look(),
        })
    }

    /// Why a cell cannot be measured here; `None`: no obstacle is known.
    #[must_use]
    pub fn obstacle(&self, experiment: &Experiment, cell: &Cell) -> Option<String> {
        let subject = experiment.subject.get(&cell.subject)?;
        let checks = [
            subject.unavailable.clone(),
            programs(subject),
            speaks_no_tls(experiment, subject, &cell.levels),
            speaks_no_http2(experiment, subject, &cell.levels),
            mechanisms(experiment, subject, &cell.levels),
            self.processors_for(subject, &cell.levels),
            self.connections_for(experiment, &cell.levels),
            self.pipes_for(subject, &cell.levels),
            waiting(subject),
            self.waiters_for(subject, &cell.levels),
        ];
        checks.into_iter().flatten().next()
    }

    fn processors_for(
        &self,
        subject: &SubjectSpec,
        levels: &BTreeMap<String, Level>,
    ) -> Option<String> {
        let wanted = wanted_processors(subject, levels).ok()?;
        match Placement::choose(&self.processors, wanted) {
            Err(Failure::NotTestable(why)) => Some(why),
            _ => None,
        }
    }

    fn connections_for(
        &self,
        experiment: &Experiment,
        levels: &BTreeMap<String, Level>,
    ) -> Option<String> {
        let http = experiment.load.http.as_ref()?;
        let connections = connections(http, levels)?;
        let needed = descriptors(connections);
        if needed > self.descriptors {
            return Some(format!(
                "{connections} connections need {needed} descriptors per process, and {} are allowed \
                 (ulimit -Hn)",
                self.descriptors
            ));
        }
        let wire = experiment.wire.as_ref().map(|wire| wire.resolve(level_of(levels)));
        let is_loopback = matches!(wire, None | Some(Ok(ResolvedWire::Loopback)));
        if is_loopback && http.source.is_none() && connections > self.ports {
            return Some(format!(
                "{connections} connections to one address need as many local ports, and there are {} \
                 (net.ipv4.ip_local_port_range, or a `source` with several addresses)",
                self.ports
            ));
        }
        None
    }

    fn waiters_for(
        &self,
        subject: &SubjectSpec,
        levels: &BTreeMap<String, Level>,
    ) -> Option<String> {
        let Some(SubjectKind::Waiters(crowd)) = subject.kind() else { return None };
        let count = crowd.count.resolve(levels).ok()?;
        let descriptors = crowd.descriptors.as_ref().map(|it| it.resolve(levels).ok());
        let descriptors = descriptors.unwrap_or(Some(1))?;
        self.room.obstacle(count, crowd.r#as == WaitersAs::Processes, descriptors)
    }

    fn pipes_for(&self, subject: &SubjectSpec, levels: &BTreeMap<String, Level>) -> Option<String> {
        let needed = pipe_descriptors(subject, levels)?;
        (needed > self.descriptors).then(|| {
            format!(
                "the pipes need {needed} descriptors, and {} are allowed (ulimit -Hn)",
                self.descriptors
            )
        })
    }
}

/// How many descriptors the process of a set of pipes needs; `None` for other subjects.
#[must_use]
pub fn pipe_descriptors(subject: &SubjectSpec, levels: &BTreeMap<String, Level>) -> Option<u64> {
    let Some(SubjectKind::Pipes(pipes)) = subject.kind() else { return None };
    if pipes.guest {
        return None;
    }
    Some(2 * pipes.count.resolve(levels).ok()? + OTHER_DESCRIPTORS)
}

/// How many processors a subject wants.
///
/// # Errors
/// What is wrong with the setting.
pub fn wanted_processors(
    subject: &SubjectSpec,
    levels: &BTreeMap<String, Level>,
) -> Result<usize, Failure> {
    let wanted = match &subject.cpus {
        Some(cpus) => cpus.resolve(levels).map_err(Failure::failed)?,
        None => 1,
    };
    usize::try_from(wanted.max(1)).map_err(Failure::failed)
}

/// How many connections a load has open at a time, including idle ones.
#[must_use]
pub fn connections(http: &Http, levels: &BTreeMap<String, Level>) -> Option<u64> {
    let count = |it: &Option<CountSetting>, default| match it {
        Some(it) => it.resolve(levels).ok(),
        None => Some(default),
    };
    let default = if http.connection_rate.is_some() { 4000 } else { 64 };
    Some(count(&http.connections, default)? + count(&http.idle, 0)?)
}

/// How many descriptors a process with a number of connections needs.
#[must_use]
pub fn descriptors(connections: u64) -> u64 {
    connections + OTHER_DESCRIPTORS
}

fn programs(subject: &SubjectSpec) -> Option<String> {
    let mut names = subject.find.iter();
    names.find_map(|(name, candidates)| match find(name, candidates, subject.install.as_deref()) {
        Err(Failure::NotTestable(why)) => Some(why),
        _ => None,
    })
}

/// That a cell is over TLS, and its server is not told how to speak it.
fn speaks_no_tls(
    experiment: &Experiment,
    subject: &SubjectSpec,
    levels: &BTreeMap<String, Level>,
) -> Option<String> {
    let lacks_tls = experiment.is_tls(levels) == Ok(true) && !subject.can_speak_tls();
    lacks_tls.then(|| {
        "it is not set up for TLS: write {cert} and {key} where it takes them, or what differs in its key 'tls'"
            .to_owned()
    })
}

/// That a cell is over HTTP/2, and nothing says that its server speaks it.
fn speaks_no_http2(
    experiment: &Experiment,
    subject: &SubjectSpec,
    levels: &BTreeMap<String, Level>,
) -> Option<String> {
    let spoken = experiment.spoken(levels).ok().filter(|spoken| spoken.http2)?;
    if !subject.can_speak_http2() {
        let why = "it is not set up for HTTP/2: write what differs in its key 'http2' ({} if nothing does)";
        return Some(why.to_owned());
    }
    let is_plain = subject.peer.is_some() && !spoken.tls;
    is_plain.then(|| "it is set up for HTTP/2 over TLS, and not without: add tls = true".to_owned())
}

/// The dispatch mechanism, or file backend, of a subject that this kernel lacks.
fn mechanisms(
    experiment: &Experiment,
    subject: &SubjectSpec,
    levels: &BTreeMap<String, Level>,
) -> Option<String> {
    let Some(SubjectKind::Serve(own)) = subject.kind() else { return None };
    let words: Vec<String> = experiment
        .serve
        .iter()
        .chain(own)
        .filter_map(|word| crate::spec::setting::fill(word, level_of(levels)).ok())
        .collect();
    let value = |flag: &str| -> Option<String> {
        let with_value = format!("{flag}=");
        let joined = words.iter().rev().find_map(|word| word.strip_prefix(&with_value));
        let apart = words.iter().rposition(|word| word == flag).and_then(|at| words.get(at + 1));
        joined.map(str::to_string).or_else(|| apart.cloned())
    };
    let dispatch = value("--dispatch").and_then(|name| {
        let probe = drover_mech::mechanisms::by_name(&name)?.probe();
        probe.err().map(|why| format!("--dispatch {name}: {why}"))
    });
    let files = || {
        let name = value("--files")?;
        let probe = drover_mech::fileio::by_name(&name)?.probe();
        probe.err().map(|why| format!("--files {name}: {why}"))
    };
    dispatch.or_else(files)
}

/// The way of waiting of a subject that this kernel lacks, or that is unknown.
fn waiting(subject: &SubjectSpec) -> Option<String> {
    match subject.kind()? {
        // The guest's kernel is another one.
        SubjectKind::Pipes(pipes) if pipes.guest => None,
        SubjectKind::Pipes(pipes) => match Waiting::by_name(&pipes.by) {
            Some(waiting) => waiting.probe().err().map(|why| format!("{}: {why}", pipes.by)),
            None => Some(format!("no mechanism is called {:?} that could watch pipes", pipes.by)),
        },
        SubjectKind::Waiters(crowd) => match drover_waiters::kind::by_name(&crowd.by) {
            Some(kind) if crowd.busy && !kind.may_be_busy() => {
                Some(format!("{} is a model, whose waiters cannot be busy", kind.name))
            }
            Some(kind) if crowd.r#as == WaitersAs::Processes && !kind.may_be_processes() => {
                Some(format!("{} is a model, whose waiters cannot be processes", kind.name))
            }
            Some(kind) => kind.probe().err().map(|why| format!("{}: {why}", kind.name)),
            None => Some(format!("no kind of waiters is called {:?}", crowd.by)),
        },
        _ => None,
    }
}

fn read_number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> MachineLimits {
        let processor = |number| Processor { number, siblings: [number].into() };
        MachineLimits {
            processors: vec![processor(0), processor(1)],
            descriptors: 1024,
            ports: 500,
            room: Room { ids: Some(1000), ..Room::default() },
        }
    }

    fn obstacle(subject: &str, load: &str, level: f64) -> Option<String> {
        let text = format!(
            "schema = 'drover.experiment/2'\nid = 'x'\n[subject.a]\n{subject}\n[factor.n]\n\
             levels = [1]\n[load.http]\n{load}\n"
        );
        let experiment: Experiment = toml::from_str(&text).unwrap();
        let levels = BTreeMap::from([("n".to_string(), Level::Number(level))]);
        limits().obstacle(&experiment, &Cell { subject: "a".to_string(), levels })
    }

    #[test]
    fn each_cell_has_its_own_obstacle() {
        assert_eq!(obstacle("serve = []", "connections = '{n}'", 100.0), None);
        let why = obstacle("serve = []", "connections = '{n}'", 600.0).unwrap();
        assert!(why.contains("local ports"), "{why}");
        let why = obstacle("serve = []", "idle = '{n}'", 6000.0).unwrap();
        assert!(why.contains("ulimit -Hn"), "{why}");
        let why = obstacle("serve = []\ncpus = '{n}'", "", 2.0).unwrap();
        assert!(why.contains("processors"), "{why}");
    }

    #[test]
    fn programs_mechanisms_and_kinds_that_are_missing_are_named() {
        let find = "command = ['{it}']\nfind = { it = ['no-such-server'] }\ninstall = 'apt-get it'";
        let why = obstacle(find, "", 1.0).unwrap();
        assert!(why.contains("no-such-server") && why.contains("apt-get it"), "{why}");
        assert_eq!(obstacle("serve = ['--dispatch', 'epoll']", "", 1.0), None);
        assert_eq!(obstacle("serve = []\nunavailable = 'gone'", "", 1.0).unwrap(), "gone");
        let over_tls = |subject: &str| {
            let text = format!(
                "schema = 'drover.experiment/2'\nid = 'x'\ntls = true\n[subject.a]\n{subject}\n[load.http]\n"
            );
            let cell = Cell { subject: "a".to_string(), levels: BTreeMap::new() };
            limits().obstacle(&toml::from_str(&text).unwrap(), &cell)
        };
        assert!(over_tls("command = ['true']").unwrap().contains("{cert}"));
        assert_eq!(over_tls("command = ['true', '{cert}', '{key}']"), None);
        assert_eq!(over_tls("command = ['true']\ntls = { command = ['false'] }"), None);
        assert_eq!(over_tls("serve = []"), None);
        assert_eq!(obstacle("pipes = { by = 'epoll', count = 3 }", "", 1.0), None);
        let why = obstacle("pipes = { by = 'epoll', count = '{n}' }", "", 600.0).unwrap();
        assert!(why.contains("1400 descriptors"), "{why}");
        let why = obstacle("pipes = { by = 'kqueue', count = 3 }", "", 1.0).unwrap();
        assert!(why.contains("kqueue"), "{why}");
        let why =
            obstacle("waiters = { by = 'wake-one', count = 3, busy = true }", "", 1.0).unwrap();
        assert!(why.contains("cannot be busy"), "{why}");
        assert_eq!(
            obstacle("waiters = { by = 'exclusive', count = 3, busy = true }", "", 1.0),
            None
        );
        let why = obstacle("waiters = { by = 'select', count = '{n}' }", "", 16_384.0).unwrap();
        assert!(why.contains("16384 waiters") && why.contains("there may be 900"), "{why}");
    }
}

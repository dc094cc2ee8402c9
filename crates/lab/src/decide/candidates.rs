//! The candidates on this machine: dispatch mechanisms, accept strategies, file backends, the simpler ones first.

use std::cmp::Reverse;
use std::num::NonZeroUsize;

use drover_mech::accept;
use drover_mech::fileio;
use drover_mech::mechanisms::{self, Features, Mechanism};

use super::question::{Question, ResponseKind};
use crate::spec::built_in;

/// Features of a mechanism that give its user duties beyond waiting and doing what was reported.
const DUTIES: Features = Features::EDGE
    .union(Features::REARM)
    .union(Features::MISSES_EARLIER)
    .union(Features::CAN_OVERFLOW)
    .union(Features::PER_EVENT_SYSCALL)
    .union(Features::THREAD_BOUND)
    .union(Features::COMPLETION)
    .union(Features::ONE_OWNER);

/// An axis: something to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// How a worker learns which connections need it.
    Dispatch,
    /// How new connections come to several workers.
    Accept,
    /// How a file's bytes reach the socket.
    Files,
}

impl Axis {
    /// Every axis.
    pub const ALL: [Axis; 3] = [Axis::Dispatch, Axis::Accept, Axis::Files];

    /// The id of its experiment.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Axis::Dispatch => "decide-dispatch",
            Axis::Accept => "decide-accept",
            Axis::Files => "decide-files",
        }
    }

    /// The flag of `drover serve` that chooses.
    #[must_use]
    pub fn flag(self) -> &'static str {
        match self {
            Axis::Dispatch => "--dispatch",
            Axis::Accept => "--accept",
            Axis::Files => "--files",
        }
    }

    /// The question that a user has.
    #[must_use]
    pub fn question(self) -> &'static str {
        match self {
            Axis::Dispatch => "Which dispatch mechanism?",
            Axis::Accept => "Which accept strategy?",
            Axis::Files => "Which file backend?",
        }
    }
}

/// The candidates of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates {
    /// What is to be chosen.
    pub axis: Axis,
    /// Flags that all candidates have.
    pub flags: Vec<String>,
    /// The names of the candidates, the simpler ones first.
    pub names: Vec<String>,
    /// The candidate that `auto` takes, if it is one of the candidates.
    pub auto: Option<String>,
}

impl Candidates {
    /// Whether there is something to choose.
    #[must_use]
    pub fn is_choice(&self) -> bool {
        self.names.len() > 1
    }

    /// The axis with its candidates, in a line.
    #[must_use]
    pub fn in_words(&self) -> String {
        let auto = match &self.auto {
            Some(auto) if auto != "auto" => format!(" (auto takes {auto})"),
            _ => String::new(),
        };
        let under = match self.flags.as_slice() {
            [.., flag, name] if flag == Axis::Dispatch.flag() => format!(" under {name}"),
            _ => String::new(),
        };
        format!("{}{under}: {}{auto}", self.axis.flag(), self.names.join(", "))
    }
}

/// The candidates for a question on this machine: what its kernel offers, without models (nobody can use a model).
/// For files: the file backends. Otherwise: the dispatch mechanisms and, for several workers, the accept strategies
/// under the mechanism that `auto` takes.
///
/// # Errors
/// The text says that no mechanism works here.
pub fn candidates(question: &Question) -> Result<Vec<Candidates>, String> {
    let workers = usize::try_from(question.workers).ok().and_then(NonZeroUsize::new);
    let workers = workers.unwrap_or(NonZeroUsize::MIN);
    let auto = mechanisms::auto(workers.get());
    let auto = auto.ok_or("no dispatch mechanism works here: 'drover mechanisms' tells why")?;
    let all = match question.response {
        ResponseKind::Files(_) => vec![of_files(auto)],
        ResponseKind::Bytes(_) if workers.get() == 1 => vec![of_dispatch(auto)],
        ResponseKind::Bytes(_) => vec![of_dispatch(auto), of_accept(auto, workers)],
    };
    Ok(all)
}

/// The dispatch mechanisms. `auto` is the mechanism that is used without a flag.
pub(crate) fn of_dispatch(auto: &Mechanism) -> Candidates {
    let known = built_in::dispatch_mechanisms();
    let is_model = |name: &str| known.get(name).is_some_and(|subject| subject.model);
    let usable = mechanisms::ALL.iter().filter(|it| {
        !it.features.contains(Features::MODEL) && !is_model(it.name) && it.probe().is_ok()
    });
    let mut usable: Vec<&Mechanism> = usable.copied().collect();
    usable.sort_by_key(|it| simplicity(it));
    Candidates {
        axis: Axis::Dispatch,
        flags: Vec::new(),
        names: usable.iter().map(|it| it.name.to_owned()).collect(),
        auto: Some(auto.name.to_owned()),
    }
}

/// A key that sorts mechanisms: fewer duties are simpler; with as many duties, more features are simpler.
fn simplicity(mechanism: &Mechanism) -> (u32, Reverse<u32>) {
    let (duties, all) = (mechanism.features & DUTIES, mechanism.features - Features::COALESCES);
    (duties.bits().count_ones(), Reverse((all - duties).bits().count_ones()))
}

/// The accept strategies for a number of workers under a mechanism.
pub(crate) fn of_accept(mechanism: &Mechanism, workers: NonZeroUsize) -> Candidates {
    let usable =
        accept::ALL.iter().filter(|it| it.goes_with(mechanism).is_ok() && it.probe().is_ok());
    Candidates {
        axis: Axis::Accept,
        flags: vec![Axis::Dispatch.flag().to_owned(), mechanism.name.to_owned()],
        names: usable.map(|it| it.name.to_owned()).collect(),
        auto: Some(accept::auto(workers, mechanism).name.to_owned()),
    }
}

/// The file backends, under a mechanism.
pub(crate) fn of_files(mechanism: &Mechanism) -> Candidates {
    let usable = fileio::ALL.iter().filter(|it| it.probe().is_ok());
    let usable = usable.map(|it| it.name.to_owned());
    // The server's own cache would hide the differences between backends.
    let flags = ["--cache", "off", Axis::Dispatch.flag(), mechanism.name];
    Candidates {
        axis: Axis::Files,
        flags: flags.map(str::to_owned).to_vec(),
        names: ["auto".to_owned()].into_iter().chain(usable).collect(),
        auto: Some("auto".to_owned()),
    }
}

/// The names of all candidates of an axis, the simplest first, including those that this machine lacks.
#[must_use]
pub(super) fn by_simplicity(axis: Axis) -> Vec<&'static str> {
    match axis {
        Axis::Dispatch => {
            let mut all: Vec<&Mechanism> = mechanisms::ALL.to_vec();
            all.sort_by_key(|it| simplicity(it));
            all.iter().map(|it| it.name).collect()
        }
        Axis::Accept => accept::ALL.iter().map(|it| it.name).collect(),
        Axis::Files => ["auto"].into_iter().chain(fileio::ALL.iter().map(|it| it.name)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::question::Lifetime;

    fn question(workers: u64) -> Question {
        Question {
            connections: 10,
            active: 1.0,
            response: ResponseKind::Bytes(1),
            workers,
            lifetime: Lifetime::Long,
        }
    }

    #[test]
    fn the_simpler_ones_ask_less_of_their_user() {
        let order = by_simplicity(Axis::Dispatch);
        let place = |name: &str| order.iter().position(|it| *it == name).unwrap();
        for (simpler, other) in [
            ("epoll", "epoll-et"),
            ("epoll", "poll"),
            ("poll", "select"),
            ("select", "epoll-et"),
            ("epoll-et", "uring"),
            ("uring", "rtsig"),
        ] {
            assert!(place(simpler) < place(other), "{simpler}, {other}: {order:?}");
        }
    }

    #[test]
    fn models_are_no_candidates_and_strategies_need_several_workers() {
        let one = candidates(&question(1)).unwrap();
        assert_eq!(one.len(), 1);
        let names = &one[0].names;
        assert!(names.contains(&"poll".to_owned()), "{names:?}");
        for model in ["devpoll", "rtsig-per-fd", "rtsig-batch"] {
            assert!(!names.iter().any(|name| name == model), "{names:?}");
        }
        assert!(names.contains(one[0].auto.as_ref().unwrap()), "{one:?}");
        let several = candidates(&question(2)).unwrap();
        assert_eq!(several[1].axis, Axis::Accept);
        assert!(several[1].names.contains(several[1].auto.as_ref().unwrap()), "{several:?}");
        let words = several[1].in_words();
        assert!(words.starts_with("--accept under ") && words.contains("(auto takes "), "{words}");
    }
}

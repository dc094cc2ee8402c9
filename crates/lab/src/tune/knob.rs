//! The flags that are tuned, and their candidates.

use std::num::NonZeroUsize;

use drover_mech::accept;
use drover_mech::mechanisms;
use serde::Serialize;

use crate::decide::{of_accept, of_dispatch, of_files};
use crate::report::model::words::counted;

/// The default of `--cache`, in megabytes of 1024 × 1024 bytes.
const CACHE_MB: u64 = 64;

/// A flag that is tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knob {
    /// `--dispatch`.
    Dispatch,
    /// `--files`.
    Files,
    /// `--workers`.
    Workers,
    /// `--accept`.
    Accept,
    /// `--cache`.
    Cache,
}

impl Knob {
    /// All flags, in the order in which they are tuned. Each is measured with the values that were chosen for earlier
    /// flags.
    pub const ALL: [Knob; 5] =
        [Knob::Dispatch, Knob::Files, Knob::Workers, Knob::Accept, Knob::Cache];

    /// The name of the flag, which is the key of a configuration file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Knob::Dispatch => "dispatch",
            Knob::Files => "files",
            Knob::Workers => "workers",
            Knob::Accept => "accept",
            Knob::Cache => "cache",
        }
    }

    /// The flag of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Knob> {
        Knob::ALL.into_iter().find(|knob| knob.name() == name)
    }
}

/// The machine and the files, as far as the candidates depend on them.
#[derive(Clone, Debug)]
pub struct TuneContext {
    /// How many processors can be used.
    pub processors: usize,
    /// The folder that is served.
    pub root: String,
    /// A file with the requested paths, a line each.
    pub urls: String,
    /// The order of the requests; `None`: the order of the list.
    pub order: Option<&'static str>,
    /// The number of connections that send requests.
    pub connections: u64,
    /// The size of all requested files, in bytes, if these are all files of the folder.
    pub bytes: Option<u64>,
}

impl TuneContext {
    /// The processors of a server with several workers: half of them, because a load that brings a server to its
    /// limit needs about as many.
    #[must_use]
    pub fn half(&self) -> usize {
        (self.processors / 2).max(1)
    }
}

/// The flags that are decided, with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenFlags(Vec<(Knob, String)>);

impl TakenFlags {
    /// Adds a flag with its chosen value.
    pub fn take(&mut self, knob: Knob, name: &str) {
        self.0.push((knob, name.to_owned()));
    }

    /// The chosen value of a flag.
    #[must_use]
    pub fn of(&self, knob: Knob) -> Option<&str> {
        self.0.iter().find(|(it, _)| *it == knob).map(|(_, name)| name.as_str())
    }

    /// The command-line flags of a server with the chosen values, without those about several workers.
    fn flags(&self) -> Vec<String> {
        let kept = self.0.iter().filter(|(knob, _)| !matches!(knob, Knob::Workers | Knob::Accept));
        kept.map(|(knob, name)| format!("--{}={name}", knob.name())).collect()
    }
}

/// A flag with its candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contest {
    /// The flag.
    pub knob: Knob,
    /// The candidates in the order of preference, which decides ties: what `auto` takes, or the default, then the
    /// simpler ones.
    pub names: Vec<String>,
    /// The candidate that `auto` takes.
    pub auto: Option<String>,
    /// The other flags of the server.
    pub flags: Vec<String>,
    /// How many processors the server has.
    pub processors: usize,
    /// How many requests a connection carries; `None`: any number.
    pub calls: Option<u32>,
}

/// How many requests a connection carries where the strategy distributes connections.
const CALLS: u32 = 8;

/// The candidates for a flag, with the values that were chosen for earlier flags.
///
/// # Errors
/// The text says why there is nothing to choose.
pub fn contest(knob: Knob, scene: &TuneContext, chosen: &TakenFlags) -> Result<Contest, String> {
    Ok(match knob {
        Knob::Dispatch => {
            let auto = mechanisms::auto(1).ok_or("no dispatch mechanism works here")?;
            let found = of_dispatch(auto);
            of_one_worker(knob, found.names, found.auto, chosen)
        }
        Knob::Files => {
            let auto = mechanisms::auto(1).ok_or("no dispatch mechanism works here")?;
            let found = of_files(auto);
            of_one_worker(knob, found.names, found.auto, chosen)
        }
        Knob::Workers => of_workers(scene, chosen)?,
        Knob::Accept => accept_strategies(scene, chosen)?,
        Knob::Cache => cache_sizes(scene, chosen)?,
    })
}

impl Contest {
    /// The contest with only the named candidates; with all of them if no name is given.
    ///
    /// # Errors
    /// The text says why there is nothing to choose.
    pub fn among(mut self, names: &[String]) -> Result<Contest, String> {
        self.names.retain(|name| names.is_empty() || names.contains(name));
        match self.names.as_slice() {
            [] => Err("no candidate for it is named".to_owned()),
            [one] => Err(format!("there is nothing but {one} to choose")),
            _ => Ok(self),
        }
    }
}

fn of_one_worker(
    knob: Knob,
    mut names: Vec<String>,
    auto: Option<String>,
    chosen: &TakenFlags,
) -> Contest {
    // The sort is stable: the others keep their order, the simpler ones first.
    names.sort_by_key(|name| Some(name) != auto.as_ref());
    let mut flags = chosen.flags();
    flags.push("--workers=1".to_owned());
    Contest { knob, names, auto, flags, processors: 1, calls: None }
}

fn of_workers(scene: &TuneContext, chosen: &TakenFlags) -> Result<Contest, String> {
    let most = scene.half();
    if most < 2 {
        return Err(format!(
            "to tell how many workers are best takes 4 processors: half of them for the load; here is {}",
            counted(scene.processors, "processor")
        ));
    }
    let fewer = std::iter::successors(Some(1), |number| Some(number * 2));
    let fewer = fewer.take_while(|number| *number < most);
    let names = [most].into_iter().chain(fewer).map(|number| number.to_string()).collect();
    Ok(Contest {
        knob: Knob::Workers,
        names,
        auto: Some(most.to_string()),
        flags: chosen.flags(),
        processors: most,
        calls: None,
    })
}

/// The number of workers of a server with several processors: the chosen number, or one for each processor.
fn workers(scene: &TuneContext, chosen: &TakenFlags) -> usize {
    chosen.of(Knob::Workers).and_then(|text| text.parse().ok()).unwrap_or(scene.half())
}

fn accept_strategies(scene: &TuneContext, chosen: &TakenFlags) -> Result<Contest, String> {
    let workers = workers(scene, chosen);
    if workers < 2 {
        return Err("one worker has nobody to share connections with".to_owned());
    }
    let mechanism = chosen.of(Knob::Dispatch).and_then(mechanisms::by_name);
    let mechanism = mechanism.or_else(|| mechanisms::auto(workers));
    let mechanism = mechanism.ok_or("no dispatch mechanism works here")?;
    let count = NonZeroUsize::new(workers).unwrap_or(NonZeroUsize::MIN);
    let mut names = of_accept(mechanism, count).names;
    let auto = accept::auto(count, mechanism).name.to_owned();
    names.sort_by_key(|name| *name != auto);
    let mut flags = chosen.flags();
    flags.push(format!("--workers={workers}"));
    Ok(Contest {
        knob: Knob::Accept,
        names,
        auto: Some(auto),
        flags,
        processors: workers.min(scene.half()),
        calls: Some(CALLS),
    })
}

fn cache_sizes(scene: &TuneContext, chosen: &TakenFlags) -> Result<Contest, String> {
    let bytes = scene.bytes.ok_or("only a sample of the files is asked for")?;
    let megabytes = bytes.div_ceil(1 << 20);
    if megabytes <= CACHE_MB {
        return Err(format!(
            "the default of {CACHE_MB}M holds all files, which have {megabytes}M together"
        ));
    }
    let auto = format!("{CACHE_MB}M");
    let all = format!("{}M", megabytes.next_power_of_two());
    Ok(of_one_worker(Knob::Cache, vec![auto.clone(), all], Some(auto), chosen))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(processors: usize) -> TuneContext {
        TuneContext {
            processors,
            root: "/srv".to_owned(),
            urls: "/tmp/urls".to_owned(),
            order: None,
            connections: 8,
            bytes: Some(1 << 20),
        }
    }

    #[test]
    fn what_auto_takes_comes_first_and_then_the_simpler_ones() {
        let contest = contest(Knob::Dispatch, &scene(4), &TakenFlags::default()).unwrap();
        assert_eq!(contest.names.first(), contest.auto.as_ref());
        assert_eq!((contest.processors, &contest.flags[..]), (1, &["--workers=1".to_owned()][..]));
        assert!(!contest.names.contains(&"devpoll".to_owned()), "a model: {:?}", contest.names);
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            contest.clone().among(&names).map(|contest| contest.names)
        };
        assert_eq!(named(&["poll", "select", "splice"]).unwrap(), ["poll", "select"]);
        assert!(named(&["poll"]).unwrap_err().contains("nothing but poll"));
        assert_eq!(named(&[]).unwrap(), contest.names);
        let files = super::contest(Knob::Files, &scene(4), &TakenFlags::default()).unwrap();
        assert_eq!(files.names[..2], ["auto", "writev"]);
    }

    #[test]
    fn each_flag_is_measured_with_what_was_taken_before() {
        let mut chosen = TakenFlags::default();
        chosen.take(Knob::Dispatch, "epoll");
        chosen.take(Knob::Files, "sendfile");
        let workers = contest(Knob::Workers, &scene(9), &chosen).unwrap();
        assert_eq!(workers.names, ["4", "1", "2"]);
        assert_eq!(workers.flags, ["--dispatch=epoll", "--files=sendfile"]);
        chosen.take(Knob::Workers, "2");
        let accept = contest(Knob::Accept, &scene(9), &chosen).unwrap();
        assert_eq!((accept.names[0].as_str(), accept.processors), ("exclusive", 2));
        assert_eq!(accept.flags[2], "--workers=2");
    }

    #[test]
    fn what_cannot_be_chosen_here_says_why() {
        let why = |knob, scene: &TuneContext, chosen: &TakenFlags| {
            contest(knob, scene, chosen).unwrap_err()
        };
        let mut one = TakenFlags::default();
        one.take(Knob::Workers, "1");
        assert!(why(Knob::Workers, &scene(3), &TakenFlags::default()).contains("4 processors"));
        assert!(why(Knob::Accept, &scene(8), &one).contains("nobody to share"));
        assert!(why(Knob::Cache, &scene(8), &one).contains("64M holds all files"));
        let large = TuneContext { bytes: Some(100 << 20), ..scene(8) };
        assert_eq!(contest(Knob::Cache, &large, &one).unwrap().names, ["64M", "128M"]);
        let sampled = TuneContext { bytes: None, ..scene(8) };
        assert!(why(Knob::Cache, &sampled, &one).contains("a sample"));
    }
}

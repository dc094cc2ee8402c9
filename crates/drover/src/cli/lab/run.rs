//! `drover lab run`, and `drover lab` itself: experiments as one session.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_lab::model::Level;
use drover_lab::plan::Overrides;
use drover_lab::plan::limits::MachineLimits;
use drover_lab::session::{Planned, Session, SessionRequest};
use drover_lab::spec::experiment::QUICK;

use super::OUT;
use super::guest;
use super::session::live::Live;
use super::session::{conclude, conduct, expect_utf8, settings, tell_hurried, verdict};
use crate::cli::auto_or::OnOff;
use crate::cli::count;
use drover_usage::UsageError;
use drover_usage::duration;

/// Flags of `drover lab run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Names of built-in experiments, or TOML files [default: every built-in experiment]
    #[arg(value_name = "ID|FILE")]
    experiments: Vec<String>,

    #[command(flatten)]
    selection: SelectionArgs,

    /// How often each cell is run; a verdict needs 6
    #[arg(long, value_name = "N")]
    repeats: Option<NonZeroU32>,

    /// How long the whole session may take; the experiments share this time
    #[arg(long, value_name = "T", value_parser = duration::parse_above_zero)]
    budget: Option<Duration>,

    /// The folder for the folders of all sessions and for the newest report [default: drover-lab]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// The folder for the files that servers serve [default: pools, beside the sessions]
    ///
    /// The files are kept for later sessions
    #[arg(long, value_name = "DIR")]
    pools: Option<PathBuf>,

    /// Show the growing report at this address while the session runs [without ADDR: 127.0.0.1:0]
    ///
    /// Drover's own server shows the report; port 0 is a free port. A browser on this machine takes
    /// processor time from the measurement
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "127.0.0.1:0")]
    live: Option<SocketAddr>,

    /// Boot a virtual machine for the subjects that are described with 'guest'
    ///
    /// The machine is emulated, has one processor, runs Linux 6.12 with the modules of kernel/, and counts
    /// instructions: see kernel/scans.toml and the files beside it. Needs Drover's sources and Debian's packages; see docs/kernel.md
    #[arg(long)]
    vm: bool,

    /// Continue an interrupted session: the session in FOLDER, or the newest session
    #[arg(long, value_name = "FOLDER", num_args = 0..=1)]
    #[arg(conflicts_with_all = ["experiments", "SelectionArgs"])]
    resume: Option<Option<PathBuf>>,

    /// Continue even if the kernel, the processors or the program have changed
    #[arg(long, requires = "resume")]
    force: bool,
}

/// The flags that say what of the experiments is run.
#[derive(Debug, Default, clap::Args)]
#[group(id = "SelectionArgs", multiple = true)]
struct SelectionArgs {
    /// How much to run: quick, standard, paper, or a preset of the experiment's file [default: quick]
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,

    /// Run only these subjects
    #[arg(long, visible_alias = "mechanisms", value_name = "NAME,…", value_delimiter = ',')]
    subjects: Option<Vec<String>>,

    /// Run only these levels of a factor; the factor 'case' has the cases as levels
    ///
    /// 'drover lab list' shows factors and levels. The flag may be given several times
    #[arg(long, value_name = "FACTOR=LEVEL,…", value_parser = levels)]
    levels: Vec<(String, Vec<Level>)>,

    /// Short for --levels connections=N,…
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = number())]
    connections: Vec<u64>,

    /// Short for --levels waiters=N,…
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = number())]
    waiters: Vec<u64>,

    /// The length of each measured window, as 2s or 500ms
    #[arg(long, value_name = "T", value_parser = duration::parse_above_zero)]
    window: Option<Duration>,

    /// Multiply all request rates by X
    #[arg(long, value_name = "X", value_parser = positive)]
    rate_scale: Option<f64>,

    /// Whether to keep all processors awake with spinning threads [default: as the experiment says]
    ///
    /// The threads are of the lowest scheduling class. A processor that goes idle wakes late
    #[arg(long, value_name = "WHETHER")]
    keep_awake: Option<OnOff>,

    /// The seed of an earlier session, to repeat its order of cells and its loads
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Runs `drover lab` without a subcommand: the quick preset of every built-in experiment.
pub(super) fn quick() -> anyhow::Result<()> {
    run(Args {
        experiments: Vec::new(),
        selection: SelectionArgs::default(),
        repeats: None,
        budget: None,
        out: None,
        pools: None,
        live: None,
        vm: false,
        resume: None,
        force: false,
    })
}

/// Runs `drover lab run`.
pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let limits = MachineLimits::look()?;
    let (session, out) = match &args.resume {
        Some(folder) => resumed(&args, folder.as_deref(), &limits)?,
        None => {
            let out = args.out.clone().unwrap_or_else(|| PathBuf::from(OUT));
            (planned(&args, &limits)?, out)
        }
    };
    if args.vm && !session.planned().iter().any(needs_guest) {
        return Err(UsageError::new(
            "--vm: no subject of these experiments is measured in a virtual machine; those of kernel/*.toml are",
        )
        .into());
    }
    let mut settings = settings(out, args.pools, args.force)?;
    let live = args.live.map(|listen| Live::start(&settings.out, listen)).transpose()?;
    // It is ended when the session has.
    let guest = args.vm.then(|| guest::boot(&settings.out)).transpose()?;
    settings.guest = guest.as_ref().map(guest::described).transpose()?;
    tell_hurried(&session)?;
    let outcome = conduct(session, &settings, live.as_ref())?;
    conclude(&outcome)?;
    if let Some(live) = live {
        live.end(&settings.interrupt)?;
    }
    verdict(&outcome)
}

/// Whether a subject of the experiment is measured in a virtual machine.
fn needs_guest(planned: &Planned) -> bool {
    let subjects = planned.experiment.subjects(&planned.selection.preset);
    subjects.iter().any(|(_, subject)| subject.is_in_guest())
}

/// The session that the flags ask for.
fn planned(args: &Args, limits: &MachineLimits) -> anyhow::Result<Session> {
    let chosen = &args.selection;
    let request = SessionRequest {
        experiments: super::experiments(&args.experiments)?,
        are_named: !args.experiments.is_empty(),
        preset: chosen.preset.clone().unwrap_or_else(|| QUICK.to_owned()),
        overrides: Overrides {
            rounds: args.repeats.map(NonZeroU32::get),
            window: chosen.window,
            events: None,
            subjects: chosen.subjects.clone(),
            levels: chosen.all_levels(),
            rate_scale: chosen.rate_scale,
            keeps_awake: chosen.keep_awake.map(bool::from),
            budget: args.budget,
        },
        seed: chosen.seed.unwrap_or_else(rand::random),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: super::command_line(),
    };
    Session::plan(request, limits).map_err(|why| UsageError::new(why).into())
}

/// The session that is resumed, and the folder of all sessions.
fn resumed(
    args: &Args,
    folder: Option<&Path>,
    limits: &MachineLimits,
) -> anyhow::Result<(Session, PathBuf)> {
    let place = folder.or(args.out.as_deref()).unwrap_or(Path::new(OUT));
    let folder = super::newest_session(place)?;
    expect_utf8("--resume", &folder)?;
    let rounds = args.repeats.map(NonZeroU32::get);
    let session = Session::resume(&folder, rounds, args.budget, limits)
        .map_err(|why| UsageError::new(format!("{}: {why}", folder.display())))?;
    let out = match (&args.out, folder.parent()) {
        (Some(out), _) => out.clone(),
        (None, Some(parent)) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    Ok((session, out))
}

impl SelectionArgs {
    /// The levels that flags select, by factor.
    fn all_levels(&self) -> BTreeMap<String, Vec<Level>> {
        let numbers =
            |numbers: &[u64]| numbers.iter().map(|it| Level::Number(*it as f64)).collect();
        let short = [("connections", &self.connections), ("waiters", &self.waiters)];
        let short = short.into_iter().filter(|(_, given)| !given.is_empty());
        let short = short.map(|(factor, given)| (factor.to_owned(), numbers(given)));
        let mut all: BTreeMap<String, Vec<Level>> = BTreeMap::new();
        for (factor, levels) in self.levels.iter().cloned().chain(short) {
            all.entry(factor).or_default().extend(levels);
        }
        all
    }
}

/// Reads `FACTOR=LEVEL,LEVEL…`.
pub(super) fn levels(text: &str) -> Result<(String, Vec<Level>), String> {
    let refused = || "write FACTOR=LEVEL,LEVEL as in connections=250,3000".to_owned();
    let (factor, levels) = text.split_once('=').ok_or_else(refused)?;
    let level = |word: &str| match word.parse::<f64>() {
        Ok(number) if number.is_finite() => Level::Number(number),
        _ => Level::Name(word.to_owned()),
    };
    let words = words(levels).ok_or_else(refused)?;
    if factor.trim().is_empty() || words.iter().any(|word| word.is_empty()) {
        return Err(refused());
    }
    Ok((factor.trim().to_owned(), words.iter().map(|word| level(word)).collect()))
}

/// The words between commas. A comma within double quotes separates nothing (names of cases may have commas). `None`:
/// a quote is not closed.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for character in text.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => words.push(String::new()),
            other => words.last_mut()?.push(other),
        }
    }
    let trimmed = words.iter().map(|word| word.trim().to_owned()).collect();
    (!is_quoted).then_some(trimmed)
}

/// Reads a number of connections, or of waiters.
fn number() -> impl clap::builder::TypedValueParser<Value = u64> {
    count::within(1..=u64::from(u32::MAX))
}

/// Reads a number above zero.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("write a number above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_numbers_and_names() {
        let (factor, read) = levels("wire=loopback, 1e3").unwrap();
        assert_eq!(factor, "wire");
        assert_eq!(read, [Level::Name("loopback".to_owned()), Level::Number(1000.0)]);
        let (_, read) = levels("case=\"6000 idle, 1 B\",128 B").unwrap();
        assert_eq!(read, ["6000 idle, 1 B", "128 B"].map(|name| Level::Name(name.to_owned())));
        for wrong in ["", "wire", "wire=", "=1", "wire=1,,2", "case=\"1"] {
            assert!(levels(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn short_flags_add_levels() {
        let chosen = SelectionArgs {
            levels: vec![("connections".to_owned(), vec![Level::Number(1.0)])],
            connections: vec![2, 3],
            ..SelectionArgs::default()
        };
        let levels = chosen.all_levels();
        assert_eq!(levels["connections"], [1.0, 2.0, 3.0].map(Level::Number));
        assert_eq!(levels.len(), 1);
    }
}

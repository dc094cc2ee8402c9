//! `drover tune ROOT`: which flags serve the files of a directory best on this machine.

mod file;
mod progress;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use drover_lab::decide::fit::Wanted;
use drover_lab::journal::Environment;
use drover_lab::path_text::{escaped, utf8};
use drover_lab::plan::limits::MachineLimits;
use drover_lab::report::terminal::wrapped;
use drover_lab::site::{Bounds, SampledFiles};
use drover_lab::tune::{
    self, Knob, Ruling, TakenFlags, TuneBench, TuneContext, TuneEvent, TuneRequest,
};

use super::count;
use super::lab::session::settings;
use super::serve::Tuned;
use super::stdout::stdout;
use drover_usage::UsageError;
use drover_usage::duration;
use file::FileHeader;
use progress::TuneProgress;

/// The width of the output, in columns.
const WIDTH: usize = 80;

/// Which files of ROOT are requested. There are so few files that each is requested several times before the window.
/// No file is so large that sending it takes longer than a run.
const SAMPLE: Bounds = Bounds { files: 300, bytes: 1 << 30, largest: 16 << 20 };

/// Flags of `drover tune`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory whose files are to be served
    root: PathBuf,

    /// How long tuning may take; flags that are not decided by then stay 'auto'
    #[arg(long, value_name = "T", default_value = "3m", value_parser = duration::parse_above_zero)]
    budget: Duration,

    /// Request the URLs or paths in FILE [default: random files of ROOT, all equally likely]
    ///
    /// FILE has one URL or path per line; a weight may follow. An access log can be the source of such
    /// a file
    #[arg(long, value_name = "FILE")]
    urls: Option<PathBuf>,

    /// How many connections send requests
    #[arg(long, value_name = "N", default_value = "64", value_parser = count::within(1..=10_000_u64))]
    connections: u64,

    /// Tune only these flags of 'drover serve': dispatch, files, workers, accept, cache
    #[arg(long, value_name = "FLAG,…", value_delimiter = ',', value_parser = knob)]
    only: Vec<Knob>,

    /// Try only these mechanisms, backends, strategies, numbers and sizes
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    subjects: Vec<String>,

    /// The length of each measured window [default: as time allows, 500ms at most]
    #[arg(long, value_name = "T", value_parser = duration::parse_above_zero)]
    window: Option<Duration>,

    /// How often each of the last candidates is run; a choice needs 6 [default: as time allows, 10 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(6..))]
    repeats: Option<u32>,

    /// Where the configuration is written, for 'drover serve --config'
    #[arg(long, value_name = "FILE", default_value = "drover.toml")]
    output: PathBuf,

    /// Write FILE even if FILE exists already
    #[arg(long)]
    force: bool,

    /// The seed of an earlier run, to repeat its files and its order
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

fn knob(text: &str) -> Result<Knob, String> {
    Knob::by_name(text).ok_or_else(|| {
        let names: Vec<&str> = Knob::ALL.iter().map(|knob| knob.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

/// Runs `drover tune`.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let begun = Instant::now();
    check_output(args)?;
    let seed = args.seed.unwrap_or_else(rand::random);
    let folder = Folder::create()?;
    let (scene, load) = scene(args, seed, &folder.0)?;
    let plan = format!("{load}; for {} at most", duration::in_words(args.budget));
    write!(stdout(), "{}", wrapped("", 2, &plan, WIDTH))?;
    let settings = settings(folder.0.clone(), None, false)?;
    let knobs: Vec<Knob> = match args.only.is_empty() {
        true => Knob::ALL.to_vec(),
        false => Knob::ALL.into_iter().filter(|knob| args.only.contains(knob)).collect(),
    };
    let progress = TuneProgress::begin(begun + args.budget);
    let told = |event: TuneEvent<'_>| progress.take(event);
    let bench = TuneBench::begin(TuneRequest {
        scene: &scene,
        settings: &settings,
        seed,
        end: begun + args.budget,
        subjects: &args.subjects,
        wanted: Wanted {
            rounds: args.repeats,
            window_s: args.window.map(|window| window.as_secs_f64()),
        },
        told: &told,
    })
    .map_err(anyhow::Error::msg)?;
    let mut rulings = Vec::new();
    let mut chosen = TakenFlags::default();
    for (at, knob) in knobs.iter().enumerate() {
        let ruling = bench.ruling(*knob, &knobs[at + 1..], &chosen).map_err(anyhow::Error::msg)?;
        progress.print(&tune::table(&ruling, WIDTH))?;
        if let Some(taken) = &ruling.taken {
            chosen.take(*knob, taken);
        }
        rulings.push(ruling);
    }
    progress.end();
    let (rate, evidence) = bench.finish();
    ensure!(
        rulings.iter().any(|ruling| ruling.taken.is_some()),
        "nothing was found out, for the reasons above: nothing is written"
    );
    let head = FileHeader {
        root: scene.root.clone(),
        on: humantime::format_rfc3339_seconds(SystemTime::now()).to_string()[..10].to_owned(),
        took: begun.elapsed(),
        environment: Environment::look(&settings.drover)?,
        load,
        rate,
    };
    conclude(args, &head, &rulings, evidence)
}

/// Refuses, before anything is measured, an output that exists (without --force) or that has no folder.
fn check_output(args: &Args) -> anyhow::Result<()> {
    let output = args.output.display();
    let folder = args.output.parent().filter(|folder| !folder.as_os_str().is_empty());
    if !folder.unwrap_or(Path::new(".")).is_dir() {
        return Err(UsageError::new(format!("--output {output}: there is no such folder")).into());
    }
    if args.output.exists() && !args.force {
        let message = format!(
            "--output {output}: it is there already; --force writes it anew, --output names another"
        );
        return Err(UsageError::new(message).into());
    }
    Ok(())
}

/// The files and connections of the measurement, and a description of them.
fn scene(args: &Args, seed: u64, folder: &Path) -> anyhow::Result<(TuneContext, String)> {
    let processors = MachineLimits::look()?.processors.len();
    let refused = |why: String| UsageError::new(format!("ROOT {why}"));
    let connections = args.connections;
    let root = args.root.canonicalize();
    let root = root.map_err(|error| refused(format!("{}: {error}", escaped(&args.root))))?;
    let root = utf8(&root).map_err(refused)?.to_owned();
    if let Some(list) = &args.urls {
        let told = escaped(list);
        let wrong = |why: String| UsageError::new(format!("--urls {told}: {why}"));
        let urls = list.canonicalize().map_err(|error| wrong(error.to_string()))?;
        let urls = utf8(&urls).map_err(wrong)?.to_owned();
        let load = format!("{connections} connections ask {root} for what {told} lists");
        return Ok((
            TuneContext { processors, root, urls, order: None, connections, bytes: None },
            load,
        ));
    }
    let files = SampledFiles::within(Path::new(&root), seed, SAMPLE);
    let mut files =
        files.map_err(|why| refused(format!("{why}; --urls FILE names what to ask for")))?;
    files.take_into_memory().map_err(refused)?;
    let urls = folder.join("urls");
    fs::write(&urls, files.urls()).with_context(|| format!("cannot write {}", urls.display()))?;
    let is_all = files.found == files.files.len() && files.larger == 0 && !files.is_cut;
    let load = format!(
        "{connections} connections ask for {}, each as likely{}",
        files.in_words(),
        left_out(&files)
    );
    let scene = TuneContext {
        processors,
        root,
        urls: urls.display().to_string(),
        order: Some("random"),
        connections,
        bytes: is_all.then(|| files.bytes()),
    };
    Ok((scene, load))
}

/// Which files are not requested, in words.
fn left_out(files: &SampledFiles) -> String {
    let mut text = String::new();
    if files.found > files.files.len() {
        text += &format!(", of {} that there are", files.found);
    }
    if files.larger > 0 {
        text += &format!(", without {} larger than {}M", files.larger, SAMPLE.largest >> 20);
    }
    if files.is_cut {
        text += ", in as many folders as there was time to look at";
    }
    text
}

/// Writes the configuration, keeps the result for servers, and prints how to use both.
fn conclude(
    args: &Args,
    head: &FileHeader,
    rulings: &[Ruling],
    evidence: serde_json::Value,
) -> anyhow::Result<()> {
    let text = file::text(head, rulings, &args.output);
    let output = args.output.display();
    let written = match args.force {
        true => fs::write(&args.output, &text),
        false => {
            fs::File::create_new(&args.output).and_then(|mut it| it.write_all(text.as_bytes()))
        }
    };
    written.with_context(|| format!("--output {output}"))?;
    let mut out = stdout();
    writeln!(out, "\nWritten to {output}. To use it: drover serve --config {output}")?;
    let taken = rulings.iter().filter(|it| it.knob != Knob::Cache).filter_map(|it| {
        let taken = if it.knob == Knob::Workers { it.change() } else { it.taken.as_deref() };
        Some((it.knob.name().to_owned(), taken.filter(|name| *name != "auto")?.to_owned()))
    });
    let taken: BTreeMap<String, String> = taken.collect();
    let kept = Tuned::here(&head.on, Path::new(&head.root), taken, evidence)?.keep();
    let line = match kept {
        Ok(Some(file)) => format!(
            "Kept in {} with what was measured. 'drover serve {}' takes it where it is left to auto, with this \
             kernel, processor and program; --tuned off does not.",
            file.display(),
            head.root
        ),
        Ok(None) => "Neither HOME nor XDG_CACHE_HOME is set: servers do not take it by themselves."
            .to_owned(),
        Err(error) => format!("Cannot be kept for servers to take it by themselves: {error}."),
    };
    Ok(write!(out, "{}", wrapped("", 2, &line, WIDTH))?)
}

/// A folder for temporary files of this process. Dropping the value removes the folder.
struct Folder(PathBuf);

impl Folder {
    fn create() -> anyhow::Result<Folder> {
        let name = format!("drover-tune-{}-{:x}", std::process::id(), rand::random::<u64>());
        let path = std::env::temp_dir().join(name);
        utf8(&path).map_err(|why| UsageError::new(format!("{why}; TMPDIR names another place")))?;
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| {
            format!("cannot make {}; TMPDIR names another place", path.display())
        })?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

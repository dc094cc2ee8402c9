//! `drover compress DIR`: compressed siblings of a site's files, for servers that send them.
//!
//! The run has three steps: [`walk`] finds files by name; [`siblings::inspect`] opens each and removes siblings that hold
//! old content; [`siblings::write`] writes those that are missing, the largest files first. Every file is opened beneath
//! DIR by the rule of the server, and written under a hidden name first. Others may write to the site meanwhile, and root may
//! run this: names are looked up in open folders ([`folder`]), and what they stand for is compared before it is changed.

mod encode;
mod folder;
mod levels;
mod original;
mod report;
mod select;
mod siblings;
mod temporary;
mod threads;
mod walk;

use std::cmp::Reverse;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, bail};
use drover_http1::coding::ContentCoding;
use drover_lab::site::size_words;
use drover_mech::files::root::Root;
use drover_usage::{UsageError, size};
use globset::Glob;
use rustix::fs::{FileType, FlockOperation};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

use super::count;
use super::stdout::stdout;
use folder::{Folder, FolderEntry, split};
use levels::{CompressionLevels, parse_coding};
use report::CompressReport;
use select::{FileSelection, parse_pattern};
use siblings::{CompressContext, SiblingOutcome, sibling_path};
use walk::CompressibleFiles;

const EXAMPLES: &str = "\
Examples:
  drover compress public                     as small as possible, where something has changed
  drover compress public --level fast        in a thirtieth of the time, a tenth larger
  drover compress public --formats br,gz --exclude '*.map'
  drover compress public --prune --dry-run   what would be written and removed
  drover serve public --precompressed        send what was written";

/// Flags of `drover compress`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The directory whose files get siblings
    dir: PathBuf,

    /// What to write beside FILE: FILE.gz, FILE.br, FILE.zst
    #[arg(long, value_name = "FORMAT,…", value_delimiter = ',', default_value = "gz,br,zst")]
    #[arg(value_parser = parse_coding)]
    formats: Vec<ContentCoding>,

    /// How hard to compress: best, fast, or levels as in br=9,gz=6
    ///
    /// best is gz=9,br=11,zst=19, and fast is gz=6,br=5,zst=9. Both can be changed: fast,br=7
    #[arg(long, value_name = "LEVEL", default_value = "best")]
    #[arg(value_parser = CompressionLevels::parse)]
    level: CompressionLevels,

    /// Leave out files with fewer bytes
    #[arg(long, value_name = "BYTES", default_value = "256", value_parser = size::parse_or_none)]
    min_size: usize,

    /// Compress these files too, whatever their type, as in '*.dump'
    ///
    /// By default, types are compressed that are stored uncompressed: text, HTML, CSS, JavaScript, JSON, XML, SVG,
    /// WebAssembly, TTF and OTF fonts and the like, by the ending of the name. A pattern without a slash
    /// means names in any folder, one with a slash begins at DIR
    #[arg(long, value_name = "GLOB", value_parser = parse_pattern)]
    include: Vec<Glob>,

    /// Leave these files and folders alone, as in '*.map' or 'drafts'; wins over --include
    #[arg(long, value_name = "GLOB", value_parser = parse_pattern)]
    exclude: Vec<Glob>,

    /// Also remove siblings of files that are gone, and in formats not asked for
    ///
    /// FILE.gz without FILE is taken for a sibling if FILE would be compressed, and the programs gzip and zstd have left no
    /// mark in it. Look first with --dry-run; --exclude keeps what is a download of its own
    #[arg(long)]
    prune: bool,

    /// Write siblings anew that are up to date, as for another --level
    #[arg(long)]
    force: bool,

    /// How many threads compress [default: one for each processor that this process may use]
    #[arg(short, long, value_name = "N", value_parser = count::within(1..=1024_usize))]
    jobs: Option<usize>,

    /// Change nothing, and list what would be written, refreshed and removed
    #[arg(long)]
    dry_run: bool,
}

/// Runs `drover compress`.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let refused = |error| UsageError::new(format!("DIR {}: {error}", args.dir.display()));
    let root = Root::open(&args.dir).map_err(refused)?;
    let selection = FileSelection::new(&args.include, &args.exclude)
        .map_err(|error| UsageError::new(format!("--include, --exclude: {error}")))?;
    let context = CompressContext {
        root,
        codings: args.formats.clone(),
        levels: args.level,
        min_size: args.min_size as u64,
        force: args.force,
        prune: args.prune,
        dry_run: args.dry_run,
        stop: stop_at_signals().context("cannot catch signals")?,
        bytes_read: AtomicU64::new(0),
        #[cfg(test)]
        at_step: Box::new(|_| {}),
    };
    let _lock = if args.dry_run { None } else { lock(&context.root)? };
    let jobs = args
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).get());
    let mut report = CompressReport::begin(args.dry_run);
    let site = CompressibleFiles::find(&context.root, &selection);
    for (path, error) in &site.unreadable {
        report.fail(path, format!("cannot be read: {}", siblings::with_remedy(error)));
    }
    remove_leftovers(&context, &site, &mut report);
    let tasks = inspect(&context, &site, jobs, &mut report)?;
    write(&context, &tasks, jobs, &mut report)?;
    report.end_progress();
    report.is_interrupted = context.is_stopped();
    report.print(&mut stdout(), &args.formats, &site)?;
    let failures = report.tell_failures(super::complain);
    if report.is_interrupted {
        bail!("interrupted: what is done stays, and a further run does the rest");
    }
    if failures > 0 {
        let noun = if failures == 1 { "failure" } else { "failures" };
        bail!("{failures} {noun}, see above; everything else is done");
    }
    Ok(())
}

/// A flag that SIGINT, SIGTERM and SIGHUP set. A write past the limit of a file's size fails from now on instead of
/// ending the process (SIGXFSZ).
fn stop_at_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&stop))?;
    }
    flag::register(SIGXFSZ, Arc::default())?;
    Ok(stop)
}

/// Keeps other runs out of DIR until the descriptor is closed. `None`: the file system has no locks.
fn lock(root: &Root) -> anyhow::Result<Option<OwnedFd>> {
    let dir = root.path().display();
    let folder = root.open_file(b"").with_context(|| format!("DIR {dir} cannot be read"))?.fd;
    match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(folder.into())),
        Err(Errno::WOULDBLOCK) => {
            bail!("another 'drover compress' works on {dir}: run it again when that has ended")
        }
        Err(_) => Ok(None),
    }
}

/// Removes what killed runs have left, and with --prune siblings whose files are gone.
fn remove_leftovers(
    context: &CompressContext,
    site: &CompressibleFiles,
    report: &mut CompressReport,
) {
    type Find = fn(&Root, &Folder, &[u8]) -> Option<FolderEntry>;
    let mut remove = |path: &[u8], find: Find| {
        let remove = || siblings::remove(&context.root, path, find);
        let removed = if context.dry_run { Ok(()) } else { remove() };
        let failed = |error| format!("cannot be removed: {}", siblings::with_remedy(&error));
        removed.map_err(|error| report.fail(path, failed(error))).is_ok()
    };
    for path in &site.leftovers {
        remove(path, |_, folder, path| {
            let entry = folder.entry(split(path).1).ok().flatten();
            entry.filter(|entry| entry.kind() == FileType::RegularFile)
        });
    }
    if !context.prune {
        report.orphans_left = site.orphans.len() as u64;
        return;
    }
    let removed: Vec<_> =
        site.orphans.iter().filter(|path| remove(path, walk::sibling_by_mark)).collect();
    removed.into_iter().for_each(|path| report.remove_orphan(path));
}

/// A sibling that is to be written.
struct SiblingTask<'s> {
    path: &'s [u8],
    coding: ContentCoding,
    /// The length of the file when it was inspected.
    len: u64,
}

/// Inspects all files, and returns what is to be written: large files first, so that no thread begins one at the end, and
/// the slowest coding first.
fn inspect<'s>(
    context: &CompressContext,
    site: &'s CompressibleFiles,
    jobs: usize,
    report: &mut CompressReport,
) -> anyhow::Result<Vec<SiblingTask<'s>>> {
    let mut tasks = Vec::new();
    let of = site.candidates.len() as u64;
    let mut done = 0;
    let work = |candidate: &_| match context.is_stopped() {
        true => Default::default(),
        false => siblings::inspect(context, candidate),
    };
    threads::share_out(jobs, &site.candidates, work, |result| {
        let Some((candidate, found)) = result else { return };
        done += 1;
        report.progress(done, of, || format!("{done} of {of} files looked at"));
        let path = &*candidate.path;
        if let Some(why) = found.failure {
            return report.fail(path, why);
        }
        let Some(len) = found.len else { return };
        report.files += u64::from(!found.is_small);
        report.small += u64::from(found.is_small);
        for (coding, outcome) in found.outcomes {
            report.add(&sibling_path(path, coding), coding, outcome);
        }
        tasks.extend(found.missing.into_iter().map(|coding| SiblingTask { path, coding, len }));
    })?;
    tasks.sort_by_key(|task| {
        let is_fast = task.coding != ContentCoding::Brotli;
        (Reverse(task.len), is_fast, task.path)
    });
    Ok(tasks)
}

/// Writes the siblings that are missing.
fn write(
    context: &CompressContext,
    tasks: &[SiblingTask<'_>],
    jobs: usize,
    report: &mut CompressReport,
) -> anyhow::Result<()> {
    let bytes: u64 = tasks.iter().map(|task| task.len).sum();
    let work = |task: &SiblingTask<'_>| match context.dry_run {
        true => SiblingOutcome::Written { before: task.len, after: 0 },
        false => siblings::write(context, task.path, task.coding),
    };
    let mut done = 0;
    threads::share_out(jobs, tasks, work, |result| {
        if let Some((task, outcome)) = result {
            done += 1;
            report.add(&sibling_path(task.path, task.coding), task.coding, outcome);
        }
        let read = context.bytes_read.load(Ordering::Relaxed);
        report.progress(read, bytes, || {
            let (read, bytes) = (size_words(read.min(bytes)), size_words(bytes));
            format!("{done} of {} siblings, {read} of {bytes}", tasks.len())
        });
    })
}

#[cfg(test)]
mod swaps;

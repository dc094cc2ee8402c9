//! `drover compress DIR`: flags and signals of a run that the crate `drover-compress` makes.

mod report;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use drover_compress::{
    CompressOptions, CompressionLevels, FileSelection, compress, parse_coding, parse_pattern,
};
use drover_http1::coding::ContentCoding;
use drover_mech::files::root::Root;
use drover_usage::{UsageError, size};
use globset::Glob;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

use super::count;
use super::stdout::stdout;
use report::CompressReport;

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
    let stop = stop_at_signals().context("cannot catch signals")?;
    let options = CompressOptions {
        codings: args.formats.clone(),
        levels: args.level,
        min_size: args.min_size as u64,
        force: args.force,
        prune: args.prune,
        dry_run: args.dry_run,
        jobs: args.jobs.unwrap_or_else(|| {
            std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).get()
        }),
    };
    let mut report = CompressReport::begin(args.dry_run);
    let left_out = compress(root, &selection, &options, &stop, &mut |event| report.take(event))?;
    report.end_progress();
    report.is_interrupted = stop.load(Ordering::Relaxed);
    report.print(&mut stdout(), &args.formats, left_out)?;
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

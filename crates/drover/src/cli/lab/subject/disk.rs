//! `drover lab disk`: a directory seen through a modelled slow disk.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::builder::ValueParser;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::auto_or::OnOff;
use crate::cli::stdout::stdout;
use drover_disk::model::{DiskAccount, Model};
use drover_disk::{DiskOptions, Mounted};
use drover_usage::{duration, size};

/// Flags of `drover lab disk`.
#[derive(Debug, clap::Args)]
pub(in crate::cli::lab) struct Args {
    /// The directory whose files are on the modelled disk
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// The directory where the files are mounted, read-only
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,

    /// How many spindles the disk has; each spindle seeks on its own and has a copy of all files
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    spindles: u16,

    /// How long a seek takes while no other request is queued
    #[arg(long, value_name = "T", default_value = "13.3ms", value_parser = duration::parse)]
    seek: Duration,

    /// How long the look-up of a name, or of a file's attributes, takes [default: as --seek]
    #[arg(long, value_name = "T", value_parser = duration::parse)]
    metadata: Option<Duration>,

    /// How many bytes per second a spindle reads when its head is in place
    #[arg(long, value_name = "SIZE", default_value = "60000000", value_parser = size::parse)]
    bandwidth: usize,

    /// How much faster seeks become each time the length of the queue doubles; 0.02: by 2 %
    #[arg(long, value_name = "PART", default_value = "0.02", value_parser = part())]
    gain: f64,

    /// The share of reads that only one spindle can do, even if that spindle is busy
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = part())]
    bound: f64,

    /// Make seeks, look-ups and transfers X times as fast
    #[arg(long, value_name = "X", default_value = "1", value_parser = speed())]
    speed: f64,

    /// How many bytes the kernel may read ahead at most; the kernel may grant less
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = size::parse)]
    read_ahead: usize,

    /// How long the kernel may cache names and attributes; 0: the kernel asks every time
    #[arg(long, value_name = "T", default_value = "1h", value_parser = duration::parse)]
    attributes_for: Duration,

    /// Whether a file's pages stay in the page cache when the file is opened again
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    keep_cache: OnOff,

    /// Reads fail from this byte of a file on, as on a disk with bad blocks
    #[arg(long, value_name = "BYTE", hide = true)]
    fails_from: Option<u64>,
}

impl Args {
    fn model(&self) -> Model {
        let model = Model {
            spindles: usize::from(self.spindles),
            seek: self.seek,
            metadata: self.metadata.unwrap_or(self.seek),
            bandwidth: self.bandwidth as f64,
            gain: self.gain,
            bound: self.bound,
        };
        model.faster(self.speed)
    }

    fn options(&self) -> DiskOptions {
        DiskOptions {
            read_ahead: u32::try_from(self.read_ahead).unwrap_or(u32::MAX),
            attributes_for: self.attributes_for,
            keep_cache: self.keep_cache.into(),
            fails_from: self.fails_from,
        }
    }
}

/// A message to the mounted disk.
enum Told {
    /// A line on stdin: report.
    Report,
    /// A signal, or the end of stdin: unmount.
    Stop,
}

/// Runs `drover lab disk` until stdin ends or a signal comes. Prints an account for each line on stdin.
pub(in crate::cli::lab) fn run(args: &Args) -> anyhow::Result<()> {
    let model = args.model();
    let (sender, told) = mpsc::channel();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch signals")?;
    let mounted = Mounted::new(&args.directory, &args.mountpoint, &model, &args.options())?;
    let from_signals = sender.clone();
    thread::spawn(move || {
        for _ in signals.forever() {
            // The receiver is gone only when the process is about to end.
            let _ = from_signals.send(Told::Stop);
        }
    });
    thread::spawn(move || listen(&sender));
    let mut out = stdout();
    writeln!(out, "mounted {}: {}", args.mountpoint.display(), model.in_words())?;
    out.flush()?;
    let mut before = mounted.account();
    while let Ok(Told::Report) = told.recv() {
        let now = mounted.account();
        writeln!(out, "{}", report(&now.since(&before), &model))?;
        out.flush()?;
        before = now;
    }
    let all = mounted.account();
    drop(mounted);
    writeln!(out, "{}", report(&all, &model))?;
    Ok(())
}

fn listen(sender: &Sender<Told>) {
    for line in io::stdin().lock().lines() {
        if line.is_err() || sender.send(Told::Report).is_err() {
            break;
        }
    }
    let _ = sender.send(Told::Stop);
}

/// What the disk did since the last report. The last report of all covers the whole time since the mount.
fn report(account: &DiskAccount, model: &Model) -> serde_json::Value {
    json!({
        "elapsed_s": account.elapsed.as_secs_f64(),
        "requests": account.requests,
        "bytes": account.bytes,
        "iops": account.iops(),
        "utilisation_percent": account.utilisation(model.spindles),
        "mean_queue": account.mean_queue(),
    })
}

/// Reads a number from 0 to 1.
fn part() -> ValueParser {
    ValueParser::from(|text: &str| match text.parse::<f64>() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err("write a number from 0 to 1"),
    })
}

/// Reads a factor.
fn speed() -> ValueParser {
    ValueParser::from(|text: &str| match text.parse::<f64>() {
        Ok(factor) if (0.001..=1000.0).contains(&factor) => Ok(factor),
        _ => Err("write a number from 0.001 to 1000"),
    })
}

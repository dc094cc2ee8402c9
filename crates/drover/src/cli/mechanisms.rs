//! `drover mechanisms`: everything that a user can choose, and whether this kernel offers it.

use std::io::{self, Write};
use std::num::NonZeroUsize;

use drover_mech::accept;
use drover_mech::fileio;
use drover_mech::files::preparation::{PREPARATIONS, Preparation};
use drover_mech::mechanisms::{self, Features};
use serde::Serialize;

use super::auto_or::names;
use super::stdout::stdout;

/// Flags of `drover mechanisms`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print JSON (schema drover.mechanisms/1)
    #[arg(long)]
    json: bool,
}

/// Everything that a user can choose: the JSON result. Its schema is `schemas/drover.mechanisms-1.schema.json`.
#[derive(Debug, Serialize)]
struct List {
    schema: &'static str,
    dispatch: Vec<Mechanism>,
    accept: Vec<Entry>,
    files: Vec<Entry>,
    before_reads: Vec<Entry>,
}

/// A row of one axis.
#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    summary: &'static str,
    usable: bool,
    /// Why it is not usable.
    reason: Option<String>,
    /// Whether `auto` takes it.
    auto: bool,
}

#[derive(Debug, Serialize)]
struct Mechanism {
    #[serde(flatten)]
    entry: Entry,
    model: bool,
    features: Vec<String>,
    waits_with: &'static [&'static str],
    /// The device that it uses, where a kernel has that.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'static str>,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let list = List::new();
    let mut out = stdout();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&list)?)?;
    } else {
        list.print(&mut out)?;
    }
    Ok(())
}

impl List {
    fn new() -> List {
        let best = mechanisms::auto(1);
        let mechanism = |mechanism: &&'static mechanisms::Mechanism| {
            let reason = mechanism.probe().err();
            let auto = best.is_some_and(|best| best.name == mechanism.name);
            let features = mechanism.features;
            Mechanism {
                entry: Entry::new(mechanism.name, mechanisms::summary(mechanism), reason, auto),
                model: mechanisms::is_model(mechanism),
                features: (features - Features::MODEL)
                    .iter_names()
                    .map(|(name, _)| name.to_lowercase().replace('_', "-"))
                    .collect(),
                waits_with: mechanisms::waits_with(mechanism),
                device: mechanisms::device_of(mechanism),
            }
        };
        let several = NonZeroUsize::MIN.saturating_add(1);
        let best_accept = best.map(|mechanism| accept::auto(several, mechanism).name);
        let strategy = |strategy: &&'static accept::Strategy| {
            let auto = best_accept == Some(strategy.name);
            Entry::new(strategy.name, strategy.summary, strategy.probe().err(), auto)
        };
        let backend = |backend: &&'static fileio::Backend| {
            let auto = fileio::AUTO_TAKES.iter().any(|taken| taken.name == backend.name);
            Entry::new(backend.name, backend.summary, backend.probe().err(), auto)
        };
        let preparation = |one: &&'static Preparation| {
            Entry::new(one.name, one.summary, one.probe().err(), one.auto)
        };
        List {
            schema: "drover.mechanisms/1",
            dispatch: mechanisms::ALL.iter().map(mechanism).collect(),
            accept: accept::ALL.iter().map(strategy).collect(),
            files: fileio::ALL.iter().map(backend).collect(),
            before_reads: PREPARATIONS.iter().map(preparation).collect(),
        }
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "Dispatch mechanisms (--dispatch)")?;
        for mechanism in &self.dispatch {
            mechanism.entry.print(out)?;
            let model = mechanism.model.then_some("model").map(str::to_owned);
            let real = mechanism.device.map(|device| format!("real: {device}"));
            let features = mechanism.features.iter().cloned();
            let notes: Vec<String> = model.into_iter().chain(real).chain(features).collect();
            writeln!(out, "{:18}[{}]", "", notes.join(", "))?;
        }
        for (title, entries) in [
            ("Accept strategies (--accept)", &self.accept),
            ("File backends (--files)", &self.files),
            (
                "Before reads (--stat-threads N, --noatime, --advise A, --cached-reads W)",
                &self.before_reads,
            ),
        ] {
            writeln!(out, "\n{title}")?;
            entries.iter().try_for_each(|entry| entry.print(out))?;
        }
        let unread = fileio::ALL.iter().filter(|backend| backend.sends_unread);
        writeln!(
            out,
            "\nOver TLS, {} read files as writev does: bytes are encrypted in memory.",
            names(unread.map(|backend| backend.name))
        )?;
        writeln!(out, "\n+ usable here, − not; * is what auto takes")
    }
}

impl Entry {
    fn new(name: &'static str, summary: &'static str, reason: Option<String>, auto: bool) -> Entry {
        Entry { name, summary, usable: reason.is_none(), reason, auto }
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let sign = if self.usable { '+' } else { '−' };
        let star = if self.auto { '*' } else { ' ' };
        writeln!(out, "{sign} {:14}{star} {}", self.name, self.summary)?;
        let reason = self.reason.iter();
        reason.into_iter().try_for_each(|reason| writeln!(out, "{:18}not here: {reason}", ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minus_has_its_reason_below_it() {
        let entry = Entry::new("telepathy", "no wires", Some("no medium".to_owned()), false);
        let mut out = Vec::new();
        entry.print(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(lines, ["− telepathy       no wires", "not here: no medium"]);
        assert!(!entry.usable);
    }
}

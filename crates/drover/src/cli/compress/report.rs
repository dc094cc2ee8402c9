//! What a run of `drover compress` tells: a line on a terminal while it works, a summary, and what went wrong.

use std::io::{self, IsTerminal, Write};

use drover_compress::{CompressEvent, LeftOut, SiblingOutcome, short_name};
use drover_http1::coding::ContentCoding;
use drover_lab::report::model::words::counted;
use drover_lab::site::size_words;
use drover_usage::printable;
use indicatif::{ProgressBar, ProgressStyle};
use tracing::info;

/// How many failures are told one by one.
const FAILURES_TOLD: usize = 20;

/// What became of the siblings in one coding.
#[derive(Clone, Copy, Debug, Default)]
struct CodingTally {
    written: u64,
    before: u64,
    after: u64,
    current: u64,
    refreshed: u64,
    removed: u64,
    not_smaller: u64,
}

/// What became of all siblings so far.
#[derive(Debug)]
pub(super) struct CompressReport {
    by_coding: [(ContentCoding, CodingTally); ContentCoding::ALL.len()],
    /// Files that are to have siblings, and those that are too small for any.
    files: u64,
    small: u64,
    /// Siblings of files that are gone: those that were removed, and those that were not to be.
    orphans_removed: u64,
    orphans_left: u64,
    /// A signal has ended the run before everything was looked at.
    pub(super) is_interrupted: bool,
    failures: Vec<(String, String)>,
    dry_run: bool,
    bar: Option<ProgressBar>,
}

/// A path as it is shown: what is no text, or would change a terminal, is escaped.
pub(super) fn shown(path: &[u8]) -> String {
    printable(&String::from_utf8_lossy(path)).into_owned()
}

impl CompressReport {
    pub(super) fn begin(dry_run: bool) -> CompressReport {
        let is_shown = io::stderr().is_terminal() && !tracing::enabled!(tracing::Level::INFO);
        let bar = is_shown.then(|| {
            let style = ProgressStyle::with_template("{bar:20} {wide_msg}");
            ProgressBar::new(1).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        CompressReport {
            by_coding: ContentCoding::ALL.map(|coding| (coding, CodingTally::default())),
            files: 0,
            small: 0,
            orphans_removed: 0,
            orphans_left: 0,
            is_interrupted: false,
            failures: Vec::new(),
            dry_run,
            bar,
        }
    }

    /// Counts and shows what a run tells.
    pub(super) fn take(&mut self, event: CompressEvent<'_>) {
        match event {
            CompressEvent::Failed(path, why) => self.fail(path, why),
            CompressEvent::LookedAt { done, of } => {
                self.progress(done, of, || format!("{done} of {of} files looked at"));
            }
            CompressEvent::File { is_small: false } => self.files += 1,
            CompressEvent::File { is_small: true } => self.small += 1,
            CompressEvent::Sibling(path, coding, outcome) => self.add(path, coding, outcome),
            CompressEvent::OrphanRemoved(path) => self.remove_orphan(path),
            CompressEvent::OrphansLeft(count) => self.orphans_left = count,
            CompressEvent::Written { siblings, of, bytes, of_bytes } => {
                self.progress(bytes, of_bytes, || {
                    let (bytes, of_bytes) = (size_words(bytes), size_words(of_bytes));
                    format!("{siblings} of {of} siblings, {bytes} of {of_bytes}")
                });
            }
        }
    }

    /// Shows how much of the work is done. Both numbers are of one unit, which `text` names.
    fn progress(&self, done: u64, of: u64, text: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            bar.set_length(of.max(1));
            bar.set_position(done.min(of));
            bar.set_message(text());
        }
    }

    /// Takes the progress off the terminal.
    pub(super) fn end_progress(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Counts what became of the sibling at `path`.
    fn add(&mut self, path: &[u8], coding: ContentCoding, outcome: SiblingOutcome) {
        let Some((_, tally)) = self.by_coding.iter_mut().find(|(it, _)| *it == coding) else {
            return;
        };
        match outcome {
            SiblingOutcome::None => {}
            SiblingOutcome::Current => tally.current += 1,
            SiblingOutcome::Refreshed => {
                tally.refreshed += 1;
                self.tell("refresh", path);
            }
            SiblingOutcome::Removed => {
                tally.removed += 1;
                self.tell("remove", path);
            }
            SiblingOutcome::Written { before, after } => {
                tally.written += 1;
                tally.before += before;
                tally.after += after;
                self.tell("write", path);
            }
            SiblingOutcome::NotSmaller => {
                tally.not_smaller += 1;
                self.tell("not small enough:", path);
            }
            SiblingOutcome::Failed(why) => self.fail(path, why),
        }
    }

    /// Counts a sibling that has no file any more as removed.
    fn remove_orphan(&mut self, path: &[u8]) {
        self.orphans_removed += 1;
        self.tell("remove", path);
    }

    /// Notes what went wrong with a file or folder, and what helps.
    fn fail(&mut self, path: &[u8], why: String) {
        let path = if path.is_empty() { "DIR".to_owned() } else { shown(path) };
        self.failures.push((path, why));
    }

    fn tell(&self, verb: &str, path: &[u8]) {
        match self.dry_run {
            // The summary tells errors of stdout, too.
            true => drop(writeln!(crate::cli::stdout::stdout(), "{verb} {}", shown(path))),
            false => info!("{verb} {}", shown(path)),
        }
    }

    /// Prints the summary. `asked` are the codings that were to be written.
    pub(super) fn print(
        &self,
        out: &mut impl Write,
        asked: &[ContentCoding],
        left_out: LeftOut,
    ) -> io::Result<()> {
        let sum = |of: fn(&CodingTally) -> u64| -> u64 {
            self.by_coding.iter().map(|(_, tally)| of(tally)).sum()
        };
        let changed = sum(|it| it.written + it.refreshed + it.removed) + self.orphans_removed;
        if self.files == 0 && !self.is_interrupted {
            writeln!(out, "No file to compress: --include names files of other types")?;
        } else if changed == 0 && self.failures.is_empty() && !self.is_interrupted {
            let (siblings, files) = (sum(|it| it.current), self.files);
            let (siblings, files) = (many(siblings, "sibling"), many(files, "file"));
            writeln!(out, "Nothing to do: {siblings} of {files} up to date")?;
        }
        for (coding, tally) in &self.by_coding {
            let line = tally.in_words(self.dry_run);
            let is_told = asked.contains(coding) || tally.removed + tally.refreshed > 0;
            if !line.is_empty() && is_told && changed + tally.not_smaller > 0 {
                writeln!(out, "{:<4}{line}", short_name(*coding))?;
            }
        }
        self.print_files(out, left_out)
    }

    /// Prints what was done about files as a whole, and which were left out.
    fn print_files(&self, out: &mut impl Write, files: LeftOut) -> io::Result<()> {
        let orphans = |number| format!("{} of files that are gone", many(number, "sibling"));
        if self.orphans_left > 0 {
            writeln!(out, "{}: --prune removes them", orphans(self.orphans_left))?;
        }
        if self.orphans_removed > 0 {
            let verb = if self.dry_run { "to be removed" } else { "removed" };
            writeln!(out, "{} {verb}", orphans(self.orphans_removed))?;
        }
        let left_out = [
            (self.small, "too small"),
            (files.other_types, "of types that hardly compress, or unknown"),
            (files.excluded, "excluded"),
            (files.hidden, "hidden"),
        ];
        let left_out = left_out.iter().filter(|(number, _)| *number > 0);
        let left_out: Vec<String> =
            left_out.map(|(number, why)| format!("{number} {why}")).collect();
        if !left_out.is_empty() {
            writeln!(out, "Left out: {}", left_out.join(", "))?;
        }
        Ok(())
    }

    /// Writes the failures to stderr, a line each, and returns how many there are.
    pub(super) fn tell_failures(&mut self, complain: impl Fn(&str)) -> usize {
        self.failures.sort();
        for (path, why) in self.failures.iter().take(FAILURES_TOLD) {
            complain(&format!("{path}: {why}"));
        }
        if self.failures.len() > FAILURES_TOLD {
            complain(&format!("and {} more", self.failures.len() - FAILURES_TOLD));
        }
        self.failures.len()
    }
}

impl CodingTally {
    /// What happened, in words: `3 written: 12.0 KB → 3.00 KB (25 %), 2 up to date`.
    fn in_words(&self, dry_run: bool) -> String {
        let mut parts = Vec::new();
        if self.written > 0 && dry_run {
            parts.push(format!("{} to be written, of {}", self.written, size_words(self.before)));
        } else if self.written > 0 {
            let percent = self.after as f64 / self.before.max(1) as f64 * 100.0;
            let (before, after) = (size_words(self.before), size_words(self.after));
            parts.push(format!("{} written: {before} → {after} ({percent:.0} %)", self.written));
        }
        for (number, what) in [
            (self.current, "up to date"),
            (self.refreshed, "with the right bytes given their file's time and permissions"),
            (self.removed, "outdated or not asked for, removed"),
            (self.not_smaller, "not 5 % smaller than their file"),
        ] {
            if number > 0 {
                parts.push(format!("{number} {what}"));
            }
        }
        parts.join(", ")
    }
}

fn many(number: u64, noun: &str) -> String {
    counted(usize::try_from(number).unwrap_or(usize::MAX), noun)
}

//! A run: all files of a site, and what it tells meanwhile.

use std::cmp::Reverse;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, bail};
use drover_http1::coding::ContentCoding;
use drover_mech::files::root::Root;
use rustix::fs::{FileType, FlockOperation};
use rustix::io::Errno;

use crate::folder::{Folder, FolderEntry, split};
use crate::options::CompressOptions;
use crate::select::FileSelection;
use crate::siblings::{self, CompressContext, SiblingOutcome, sibling_path};
use crate::threads;
use crate::walk::{self, CompressibleFiles, LeftOut};

/// What a run tells. Paths begin at the root.
#[derive(Debug)]
pub enum CompressEvent<'e> {
    /// What went wrong with a file or folder, and what helps.
    Failed(&'e [u8], String),
    /// So many of all files were looked at.
    LookedAt {
        /// How many were.
        done: u64,
        /// How many there are.
        of: u64,
    },
    /// A file that is to have siblings, or is too small for any.
    File {
        /// Whether it is.
        is_small: bool,
    },
    /// What became of the sibling at a path.
    Sibling(&'e [u8], ContentCoding, SiblingOutcome),
    /// The sibling of a file that is gone was removed.
    OrphanRemoved(&'e [u8]),
    /// So many siblings of files that are gone were left, as `prune` was not asked for.
    OrphansLeft(u64),
    /// How far the writing has come.
    Written {
        /// How many siblings are done.
        siblings: usize,
        /// How many there are to write.
        of: usize,
        /// How many bytes of files were read.
        bytes: u64,
        /// How many there are to read.
        of_bytes: u64,
    },
}

/// Who is told of a run, on the thread that called [`compress`].
type Told<'t> = &'t mut dyn FnMut(CompressEvent<'_>);

/// Writes the siblings of the files beneath `root` that are missing, and removes those that hold old content. When `stop` becomes true,
/// nothing more is begun, and what is half done is removed. Returns which files were left out.
///
/// # Errors
/// Another run works on the same root; the root cannot be read; no thread can be started. What goes wrong with one file is told, and
/// does not end the run.
pub fn compress(
    root: Root,
    selection: &FileSelection,
    options: &CompressOptions,
    stop: &Arc<AtomicBool>,
    told: Told<'_>,
) -> anyhow::Result<LeftOut> {
    let context = CompressContext {
        root,
        options: options.clone(),
        stop: Arc::clone(stop),
        bytes_read: AtomicU64::new(0),
        #[cfg(test)]
        at_step: Box::new(|_| {}),
    };
    let _lock = if options.dry_run { None } else { lock(&context.root)? };
    let site = CompressibleFiles::find(&context.root, selection);
    for (path, error) in &site.unreadable {
        let why = format!("cannot be read: {}", siblings::with_remedy(error));
        told(CompressEvent::Failed(path, why));
    }
    remove_leftovers(&context, &site, told);
    let tasks = inspect(&context, &site, told)?;
    write(&context, &tasks, told)?;
    Ok(site.left_out)
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
fn remove_leftovers(context: &CompressContext, site: &CompressibleFiles, told: Told<'_>) {
    type Find = fn(&Root, &Folder, &[u8]) -> Option<FolderEntry>;
    let mut remove = |path: &[u8], find: Find| {
        let remove = || siblings::remove(&context.root, path, find);
        let removed = if context.options.dry_run { Ok(()) } else { remove() };
        let failed = |error| format!("cannot be removed: {}", siblings::with_remedy(&error));
        removed.map_err(|error| told(CompressEvent::Failed(path, failed(error)))).is_ok()
    };
    for path in &site.leftovers {
        remove(path, |_, folder, path| {
            let entry = folder.entry(split(path).1).ok().flatten();
            entry.filter(|entry| entry.kind() == FileType::RegularFile)
        });
    }
    if !context.options.prune {
        told(CompressEvent::OrphansLeft(site.orphans.len() as u64));
        return;
    }
    let removed: Vec<_> =
        site.orphans.iter().filter(|path| remove(path, walk::sibling_by_mark)).collect();
    removed.into_iter().for_each(|path| told(CompressEvent::OrphanRemoved(path)));
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
    told: Told<'_>,
) -> anyhow::Result<Vec<SiblingTask<'s>>> {
    let mut tasks = Vec::new();
    let of = site.candidates.len() as u64;
    let mut done = 0;
    let work = |candidate: &_| match context.is_stopped() {
        true => Default::default(),
        false => siblings::inspect(context, candidate),
    };
    threads::share_out(context.options.jobs, &site.candidates, work, |result| {
        let Some((candidate, found)) = result else { return };
        done += 1;
        told(CompressEvent::LookedAt { done, of });
        let path = &*candidate.path;
        if let Some(why) = found.failure {
            return told(CompressEvent::Failed(path, why));
        }
        let Some(len) = found.len else { return };
        told(CompressEvent::File { is_small: found.is_small });
        for (coding, outcome) in found.outcomes {
            told(CompressEvent::Sibling(&sibling_path(path, coding), coding, outcome));
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
    told: Told<'_>,
) -> anyhow::Result<()> {
    let bytes: u64 = tasks.iter().map(|task| task.len).sum();
    let work = |task: &SiblingTask<'_>| match context.options.dry_run {
        true => SiblingOutcome::Written { before: task.len, after: 0 },
        false => siblings::write(context, task.path, task.coding),
    };
    let mut done = 0;
    threads::share_out(context.options.jobs, tasks, work, |result| {
        if let Some((task, outcome)) = result {
            done += 1;
            let path = sibling_path(task.path, task.coding);
            told(CompressEvent::Sibling(&path, task.coding, outcome));
        }
        let read = context.bytes_read.load(Ordering::Relaxed);
        told(CompressEvent::Written {
            siblings: done,
            of: tasks.len(),
            bytes: read.min(bytes),
            of_bytes: bytes,
        });
    })
}

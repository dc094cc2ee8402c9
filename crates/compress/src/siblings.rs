//! What is done about the siblings of one file: those that hold old content go first, then missing ones are written.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use drover_http1::coding::ContentCoding;
use drover_mech::files::root::{Cause, Root, Stamp};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::encode;
use crate::folder::{FileId, Folder, FolderEntry, split};
use crate::options::CompressOptions;
use crate::original::OriginalFile;
use crate::temporary::TemporaryFile;
use crate::walk::CompressCandidate;

/// How often a file is read that changes meanwhile.
const ATTEMPTS: u32 = 3;

/// The most that a sibling may have of its file's length, in percent. Choosing, opening and keeping a form costs a server
/// something, and decoding costs the client: a few bytes are not worth it.
const WORTH_PERCENT: u64 = 95;

/// What a run of `drover compress` is asked to do, and what all its threads share.
pub(crate) struct CompressContext {
    pub(crate) root: Root,
    pub(crate) options: CompressOptions,
    /// Set by a signal: nothing more is begun, and what is half done is removed.
    pub(crate) stop: std::sync::Arc<AtomicBool>,
    /// The bytes of files that were read for [`write()`].
    pub(crate) bytes_read: AtomicU64,
    /// Called at each [`EncodingStep`]. Tests change the site there, as somebody else may at any time.
    #[cfg(test)]
    pub(crate) at_step: Box<dyn Fn(EncodingStep) + Send + Sync>,
}

/// The moments between which the work on one file looks at names or changes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EncodingStep {
    FolderOpened,
    OriginalOpened,
    SiblingFound,
    SiblingJudged,
    TemporaryMade,
    Encoded,
    AttributesGiven,
}

impl EncodingStep {
    #[cfg(test)]
    pub(crate) const ALL: [EncodingStep; 7] = [
        EncodingStep::FolderOpened,
        EncodingStep::OriginalOpened,
        EncodingStep::SiblingFound,
        EncodingStep::SiblingJudged,
        EncodingStep::TemporaryMade,
        EncodingStep::Encoded,
        EncodingStep::AttributesGiven,
    ];
}

impl CompressContext {
    /// Marks a step, for tests.
    fn at(&self, _step: EncodingStep) {
        #[cfg(test)]
        (self.at_step)(_step);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What became of a sibling.
#[derive(Debug)]
pub enum SiblingOutcome {
    /// It is up to date.
    Current,
    /// It has the bytes of its file, but had another time, owner or permissions.
    Refreshed,
    /// It did not have the bytes of its file, or was not asked for: it is gone.
    Removed,
    /// It was written: the bytes of the file, and its own.
    Written {
        /// The length of the file.
        before: u64,
        /// The length of the sibling; of a dry run 0.
        after: u64,
    },
    /// It would not be shorter than its file by enough.
    NotSmaller,
    /// The run was stopped before, or its file is gone.
    None,
    /// It could not be written, or not be removed: why, and what helps.
    Failed(String),
}

/// What [`inspect`] finds out of a file.
#[derive(Debug, Default)]
pub(crate) struct InspectedFile {
    /// The length of the file; `None`: there is none that a server would send.
    pub(crate) len: Option<u64>,
    /// The file has fewer bytes than are asked for.
    pub(crate) is_small: bool,
    pub(crate) outcomes: Vec<(ContentCoding, SiblingOutcome)>,
    /// The siblings that are to be written.
    pub(crate) missing: Vec<ContentCoding>,
    /// Why the file cannot be read.
    pub(crate) failure: Option<String>,
}

/// The path of a sibling.
pub(crate) fn sibling_path(path: &[u8], coding: ContentCoding) -> Vec<u8> {
    [path, coding.suffix().as_bytes()].concat()
}

/// An error with what helps against it.
pub(crate) fn with_remedy(error: &io::Error) -> String {
    let remedy = match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => {
            "run it as a user who may, or leave the file out with --exclude"
        }
        Some(Errno::NOSPC | Errno::DQUOT) => "free some space and run it again: what is done stays",
        Some(Errno::FBIG) => "raise the limit of a file's size (ulimit -f)",
        Some(Errno::ROFS) => {
            "the file system is read-only: mount it for writing, or compress a copy"
        }
        Some(Errno::MFILE | Errno::NFILE) => "lower --jobs, or raise 'ulimit -n'",
        Some(Errno::ISDIR) => "a folder has the name of the sibling: rename one of them",
        Some(Errno::NAMETOOLONG) => "shorten the file's name, or leave it out with --exclude",
        _ => return error.to_string(),
    };
    format!("{error}; {remedy}")
}

/// Removes the file at `path` beneath the root if it is the entry that `find` returns for it; one that is gone already is no
/// error.
///
/// # Errors
/// Those of openat2(2) and [`Folder::remove`].
pub(crate) fn remove(
    root: &Root,
    path: &[u8],
    find: impl Fn(&Root, &Folder, &[u8]) -> Option<FolderEntry>,
) -> io::Result<()> {
    let (folder, name) = split(path);
    let folder = Folder::open(root, folder)?;
    find(root, &folder, path).map_or(Ok(()), |entry| folder.remove(name, entry.id()))
}

/// Opens a file of the site, and its folder. `None`: there is none that a server would send.
///
/// # Errors
/// `EACCES`, `EMFILE`, `EIO`.
fn open(context: &CompressContext, path: &[u8]) -> io::Result<Option<(Folder, OriginalFile)>> {
    let folder = match Folder::open(&context.root, split(path).0) {
        Ok(folder) => folder,
        Err(error) if Cause::of(&error) == Cause::Missing => return Ok(None),
        Err(error) => return Err(error),
    };
    context.at(EncodingStep::FolderOpened);
    let original = OriginalFile::open(&context.root, &folder, path)?;
    context.at(EncodingStep::OriginalOpened);
    Ok(original.map(|original| (folder, original)))
}

/// Looks at a file and its siblings, and removes siblings that a server would send with bytes that the file does not have
/// any more.
pub(crate) fn inspect(context: &CompressContext, candidate: &CompressCandidate) -> InspectedFile {
    let (folder, original) = match open(context, &candidate.path) {
        Ok(Some(opened)) => opened,
        Ok(None) => return InspectedFile::default(),
        Err(error) => {
            let failure = Some(format!("cannot be read: {}", with_remedy(&error)));
            return InspectedFile { failure, ..InspectedFile::default() };
        }
    };
    let len = original.stamp.len;
    let mut found = InspectedFile {
        len: Some(len),
        is_small: len < context.options.min_size,
        ..Default::default()
    };
    for coding in ContentCoding::ALL {
        let is_wanted = context.options.codings.contains(&coding) && !found.is_small;
        let outcome = match candidate.siblings.contains(&coding) {
            true => {
                let path = sibling_path(&candidate.path, coding);
                settle(context, &folder, &path, &original, coding)
            }
            false => SiblingOutcome::None,
        };
        let is_there = match &outcome {
            SiblingOutcome::Failed(_) => true,
            SiblingOutcome::Current | SiblingOutcome::Refreshed => {
                !(context.options.force && is_wanted)
            }
            _ => false,
        };
        if is_wanted && !is_there {
            found.missing.push(coding);
        }
        if matches!(outcome, SiblingOutcome::Current) && !is_there {
            continue;
        }
        found.outcomes.push((coding, outcome));
    }
    found
}

/// Refreshes or removes the sibling at `path`, whose folder is `folder`, unless it is up to date.
fn settle(
    context: &CompressContext,
    folder: &Folder,
    path: &[u8],
    original: &OriginalFile,
    coding: ContentCoding,
) -> SiblingOutcome {
    let settle = || {
        let Some(entry) = folder.entry(split(path).1)? else { return Ok(SiblingOutcome::None) };
        context.at(EncodingStep::SiblingFound);
        let state = match context.options.prune && !context.options.codings.contains(&coding) {
            true => SiblingState::Outdated,
            false => state(context, folder, path, &entry, original, coding)?,
        };
        context.at(EncodingStep::SiblingJudged);
        match state {
            SiblingState::Unknown => return Ok(SiblingOutcome::None),
            SiblingState::Current => return Ok(SiblingOutcome::Current),
            SiblingState::SameBytes(_) if context.options.dry_run => {
                return Ok(SiblingOutcome::Refreshed);
            }
            SiblingState::SameBytes(file) if original.refresh(file.as_fd()).unwrap_or(false) => {
                return Ok(SiblingOutcome::Refreshed);
            }
            SiblingState::SameBytes(_) | SiblingState::Outdated => {}
        }
        if !context.options.dry_run {
            folder.may_replace(&entry, original.owner())?;
            folder.remove(split(path).1, entry.id())?;
        }
        Ok(SiblingOutcome::Removed)
    };
    settle().unwrap_or_else(|error: io::Error| {
        let why = with_remedy(&error);
        SiblingOutcome::Failed(format!("cannot be checked or removed: {why}"))
    })
}

/// What a sibling is worth.
enum SiblingState {
    /// It has its file's time, and nothing has happened to the file since it was written.
    Current,
    /// It has its file's bytes, and is no link.
    SameBytes(File),
    /// It has other bytes, or cannot be read, or is a link and not [`SiblingState::Current`].
    Outdated,
    /// The run was stopped before that was known.
    Unknown,
}

/// The state of the sibling at `path`, which is `entry` of `folder`.
///
/// An equal time alone does not prove equal bytes: a file may be replaced by one of the same time, as reproducible builds
/// make them. `st_ctime`, which nobody can set, tells: everything that happens to a file makes it later than that of its
/// sibling. Then the bytes decide.
///
/// A link counts for what it leads to, as for the server: the sibling of a link may be a link to the sibling.
fn state(
    context: &CompressContext,
    folder: &Folder,
    path: &[u8],
    entry: &FolderEntry,
    original: &OriginalFile,
    coding: ContentCoding,
) -> io::Result<SiblingState> {
    if entry.kind() == FileType::Directory {
        return Err(Errno::ISDIR.into());
    }
    let file = match folder.open_file(&context.root, path) {
        Ok(file) => File::from(file),
        Err(error) => {
            return match Cause::of(&error) {
                Cause::Missing | Cause::Forbidden => Ok(SiblingState::Outdated),
                _ => Err(error),
            };
        }
    };
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(SiblingState::Outdated);
    }
    let (sibling, stamp) = (Stamp::new(&stat), &original.stamp);
    let time = |stamp: &Stamp| (stamp.modified, stamp.modified_nanos);
    if time(&sibling) == time(stamp) && sibling.changed >= stamp.changed {
        return Ok(SiblingState::Current);
    }
    if FileId::new(&stat) != entry.id() {
        return Ok(SiblingState::Outdated);
    }
    let is_same = {
        let (sibling, unread) = (io::BufReader::new(&file), AtomicU64::new(0));
        encode::holds(coding, sibling, original.read(&context.stop, &unread))
    };
    match is_same {
        _ if context.is_stopped() => Ok(SiblingState::Unknown),
        true if original.is_as_it_was() => Ok(SiblingState::SameBytes(file)),
        _ => Ok(SiblingState::Outdated),
    }
}

/// Writes a sibling of the file at `path`.
pub(crate) fn write(
    context: &CompressContext,
    path: &[u8],
    coding: ContentCoding,
) -> SiblingOutcome {
    let done = (0..ATTEMPTS).find_map(|_| attempt(context, path, coding).transpose());
    match done {
        Some(Ok(outcome)) => outcome,
        Some(Err(error)) => {
            SiblingOutcome::Failed(format!("cannot be written: {}", with_remedy(&error)))
        }
        None => SiblingOutcome::Failed(
            "its file changes while it is read: run it again when nobody writes to it".to_owned(),
        ),
    }
}

/// `None`: the file has changed meanwhile.
fn attempt(
    context: &CompressContext,
    path: &[u8],
    coding: ContentCoding,
) -> io::Result<Option<SiblingOutcome>> {
    if context.is_stopped() {
        return Ok(Some(SiblingOutcome::None));
    }
    let Some((folder, original)) = open(context, path)? else {
        return Ok(Some(SiblingOutcome::None));
    };
    let before = original.stamp.len;
    let most = before.saturating_mul(WORTH_PERCENT) / 100;
    let mut file = TemporaryFile::create(&folder, most)?;
    context.at(EncodingStep::TemporaryMade);
    let mut input = original.read(&context.stop, &context.bytes_read);
    let encoded = {
        let mut output = BufWriter::with_capacity(1 << 16, &mut file);
        let level = context.options.levels.of(coding);
        let encoded = encode::encode(coding, level, before, &mut input, &mut output);
        let flushed = encoded.and_then(|()| output.flush());
        // What an error has left in the buffer is not written.
        let _ = output.into_parts();
        flushed
    };
    if context.is_stopped() {
        return Ok(Some(SiblingOutcome::None));
    }
    if !original.is_as_it_was() {
        return Ok(None);
    }
    if file.is_too_long() {
        return Ok(Some(SiblingOutcome::NotSmaller));
    }
    encoded?;
    let after = file.len();
    context.at(EncodingStep::Encoded);
    original.give_attributes(file.as_fd())?;
    context.at(EncodingStep::AttributesGiven);
    file.publish(&sibling_path(split(path).1, coding), original.owner())?;
    Ok(Some(SiblingOutcome::Written { before, after }))
}

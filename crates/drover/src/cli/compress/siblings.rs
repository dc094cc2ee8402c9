//! What is done about the siblings of one file: those that hold old content go first, then missing ones are written.

use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use drover_http1::coding::ContentCoding;
use drover_mech::files::root::{Cause, FileKind, Root};
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::encode;
use super::levels::CompressionLevels;
use super::original::OriginalFile;
use super::temporary::TemporaryFile;
use super::walk::CompressCandidate;

/// How often a file is read that changes meanwhile.
const ATTEMPTS: u32 = 3;

/// The most that a sibling may have of its file's length, in percent. Choosing, opening and keeping a form costs a server
/// something, and decoding costs the client: a few bytes are not worth it.
const WORTH_PERCENT: u64 = 95;

/// What a run of `drover compress` is asked to do, and what all its threads share.
pub(super) struct CompressContext {
    pub(super) root: Root,
    pub(super) codings: Vec<ContentCoding>,
    pub(super) levels: CompressionLevels,
    /// Files with fewer bytes get no siblings.
    pub(super) min_size: u64,
    /// Whether siblings that are up to date are written anew.
    pub(super) force: bool,
    /// Whether siblings in codings that are not asked for are removed.
    pub(super) prune: bool,
    pub(super) dry_run: bool,
    /// Set by a signal: nothing more is begun, and what is half done is removed.
    pub(super) stop: std::sync::Arc<AtomicBool>,
    /// The bytes of files that were read for [`write`].
    pub(super) bytes_read: AtomicU64,
}

impl CompressContext {
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What became of a sibling.
#[derive(Debug)]
pub(super) enum SiblingOutcome {
    /// It is up to date.
    Current,
    /// It has the bytes of its file, but had another time, owner or permissions.
    Refreshed,
    /// It did not have the bytes of its file, or was not asked for: it is gone.
    Removed,
    /// It was written: the bytes of the file, and its own.
    Written { before: u64, after: u64 },
    /// It would not be shorter than its file by enough.
    NotSmaller,
    /// The run was stopped before, or its file is gone.
    None,
    /// It could not be written, or not be removed: why, and what helps.
    Failed(String),
}

/// What [`inspect`] finds out of a file.
#[derive(Debug, Default)]
pub(super) struct InspectedFile {
    /// The length of the file; `None`: there is none that a server would send.
    pub(super) len: Option<u64>,
    /// The file has fewer bytes than are asked for.
    pub(super) is_small: bool,
    pub(super) outcomes: Vec<(ContentCoding, SiblingOutcome)>,
    /// The siblings that are to be written.
    pub(super) missing: Vec<ContentCoding>,
    /// Why the file cannot be read.
    pub(super) failure: Option<String>,
}

/// The path of a sibling.
pub(super) fn sibling_path(path: &[u8], coding: ContentCoding) -> Vec<u8> {
    [path, coding.suffix().as_bytes()].concat()
}

/// The folder of a path, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// An error with what helps against it.
pub(super) fn with_remedy(error: &io::Error) -> String {
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

/// Removes a file beneath the root by its path; one that is gone already is no error.
///
/// # Errors
/// Those of openat2(2) and unlink(2).
pub(super) fn remove(root: &Root, path: &[u8]) -> io::Result<()> {
    let (folder, name) = split(path);
    let folder = root.open_directory(folder)?;
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Looks at a file and its siblings, and removes siblings that a server would send with bytes that the file does not have
/// any more.
pub(super) fn inspect(context: &CompressContext, candidate: &CompressCandidate) -> InspectedFile {
    let original = match OriginalFile::open(&context.root, &candidate.path) {
        Ok(Some(original)) => original,
        Ok(None) => return InspectedFile::default(),
        Err(error) => {
            let failure = Some(format!("cannot be read: {}", with_remedy(&error)));
            return InspectedFile { failure, ..InspectedFile::default() };
        }
    };
    let len = original.stamp.len;
    let mut found =
        InspectedFile { len: Some(len), is_small: len < context.min_size, ..Default::default() };
    for coding in ContentCoding::ALL {
        let is_wanted = context.codings.contains(&coding) && !found.is_small;
        let outcome = match candidate.siblings.contains(&coding) {
            true => settle(context, candidate, &original, coding),
            false => SiblingOutcome::None,
        };
        let is_there = match &outcome {
            SiblingOutcome::Failed(_) => true,
            SiblingOutcome::Current | SiblingOutcome::Refreshed => !(context.force && is_wanted),
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

/// Refreshes or removes a sibling that there is, unless it is up to date.
fn settle(
    context: &CompressContext,
    candidate: &CompressCandidate,
    original: &OriginalFile,
    coding: ContentCoding,
) -> SiblingOutcome {
    let path = sibling_path(&candidate.path, coding);
    let settled = match context.prune && !context.codings.contains(&coding) {
        true => Ok(SiblingState::Outdated),
        false => state(context, &path, original, coding),
    };
    let done = settled.and_then(|state| match state {
        SiblingState::Unknown => Ok(SiblingOutcome::None),
        SiblingState::Current => Ok(SiblingOutcome::Current),
        SiblingState::SameBytes(_) if context.dry_run => Ok(SiblingOutcome::Refreshed),
        SiblingState::SameBytes(file) if refresh(context, &path, &file, original).is_ok() => {
            Ok(SiblingOutcome::Refreshed)
        }
        SiblingState::SameBytes(_) | SiblingState::Outdated => {
            if !context.dry_run {
                remove(&context.root, &path)?;
            }
            Ok(SiblingOutcome::Removed)
        }
    });
    done.unwrap_or_else(|error| {
        let why = with_remedy(&error);
        SiblingOutcome::Failed(format!("cannot be checked or removed: {why}"))
    })
}

/// What a sibling is worth.
enum SiblingState {
    /// It has its file's time, and nothing has happened to the file since it was written.
    Current,
    /// It has its file's bytes.
    SameBytes(OwnedFd),
    /// It has other bytes, or cannot be read.
    Outdated,
    /// The run was stopped before that was known.
    Unknown,
}

/// The state of the sibling at `path`.
///
/// An equal time alone does not prove equal bytes: a file may be replaced by one of the same time, as reproducible builds
/// make them. `st_ctime`, which nobody can set, tells: everything that happens to a file makes it later than that of its
/// sibling. Then the bytes decide.
fn state(
    context: &CompressContext,
    path: &[u8],
    original: &OriginalFile,
    coding: ContentCoding,
) -> io::Result<SiblingState> {
    let open = match context.root.open_file(path) {
        Ok(open) if open.kind == FileKind::Regular => open,
        Ok(open) if open.kind == FileKind::Directory => return Err(Errno::ISDIR.into()),
        Ok(_) => return Ok(SiblingState::Outdated),
        Err(error) => {
            return match Cause::of(&error) {
                Cause::Missing | Cause::Forbidden => Ok(SiblingState::Outdated),
                _ => Err(error),
            };
        }
    };
    let (sibling, stamp) = (open.stamp, &original.stamp);
    let time = |stamp: &drover_mech::files::root::Stamp| (stamp.modified, stamp.modified_nanos);
    if time(&sibling) == time(stamp) && sibling.changed >= stamp.changed {
        return Ok(SiblingState::Current);
    }
    let file = std::fs::File::from(open.fd);
    let is_same = {
        let (sibling, unread) = (io::BufReader::new(&file), AtomicU64::new(0));
        encode::holds(coding, sibling, original.read(&context.stop, &unread))
    };
    match is_same {
        _ if context.is_stopped() => Ok(SiblingState::Unknown),
        true if original.is_as_it_was() => Ok(SiblingState::SameBytes(file.into())),
        _ => Ok(SiblingState::Outdated),
    }
}

/// Gives a sibling with the right bytes the attributes of its file.
///
/// # Errors
/// `EPERM`; also if the sibling is a link, or has further names, so that it may be meant for something else.
fn refresh(
    context: &CompressContext,
    path: &[u8],
    file: &OwnedFd,
    original: &OriginalFile,
) -> io::Result<()> {
    let (folder, name) = split(path);
    let folder = context.root.open_directory(folder)?;
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink != 1 {
        return Err(Errno::PERM.into());
    }
    original.give_attributes(file.as_fd())
}

/// Writes a sibling of the file at `path`.
pub(super) fn write(
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
    let Some(original) = OriginalFile::open(&context.root, path)? else {
        return Ok(Some(SiblingOutcome::None));
    };
    let (folder, name) = split(path);
    let folder = context.root.open_directory(folder)?;
    let before = original.stamp.len;
    let most = before.saturating_mul(WORTH_PERCENT) / 100;
    let mut file = TemporaryFile::create(folder.as_fd(), most)?;
    let mut input = original.read(&context.stop, &context.bytes_read);
    let encoded = {
        let mut output = BufWriter::with_capacity(1 << 16, &mut file);
        let level = context.levels.of(coding);
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
    original.give_attributes(file.as_fd())?;
    file.publish(&sibling_path(name, coding))?;
    Ok(Some(SiblingOutcome::Written { before, after }))
}

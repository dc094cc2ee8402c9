//! An entry of a worker's cache: one open file with everything that a response says of it.

use std::cell::{Cell, Ref, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use http1::conditional::Validators;
use http1::mime;
use mech::files::root::{OpenFile, Stamp};

use crate::lookup::watch::WatchedPath;
use crate::worker::clock::DateClock;

/// One open file with everything a response says of it.
pub(crate) struct FileEntry {
    pub(crate) source: EntrySource,
    pub(crate) len: u64,
    pub(crate) validators: Validators,
    pub(crate) content_type: &'static str,
    /// The name under which the file was opened.
    pub(crate) name: Box<[u8]>,
    pub(crate) stamp: Stamp,
    /// The watched path to the file, if the file is watched.
    pub(crate) watched: Option<WatchedPath>,
    /// The turn in which the open file was last asked for, and seen to be as it was.
    pub(crate) looked: Cell<Instant>,
    /// The bytes that it costs to keep the entry, without the descriptor.
    pub(crate) cost: usize,
    /// The bytes of a short file, until the response is prepared.
    pub(crate) content: Option<Vec<u8>>,
}

/// Where an entry's bytes are, and the head of its usual response if one was prepared.
pub(crate) enum EntrySource {
    /// Behind the usual head.
    Memory(UsualHead),
    /// In the file.
    File(Rc<OwnedFd>, Option<UsualHead>),
}

impl FileEntry {
    pub(crate) fn new(open: OpenFile, name: &[u8], now: Instant) -> FileEntry {
        let OpenFile { fd, stamp, content, .. } = open;
        let Stamp { len, modified, modified_nanos, inode, .. } = stamp;
        FileEntry {
            source: EntrySource::File(Rc::new(fd), None),
            len,
            validators: Validators::new(modified, modified_nanos, len, Some(inode)),
            content_type: mime::of(name),
            name: name.into(),
            stamp,
            watched: None,
            looked: Cell::new(now),
            cost: size_of::<FileEntry>() + name.len(),
            content,
        }
    }

    /// Whether the entry keeps a descriptor.
    pub(crate) fn keeps_descriptor(&self) -> bool {
        matches!(self.source, EntrySource::File(..))
    }

    /// Whether the open file is still as it was when it was opened: neither written to nor removed.
    pub(crate) fn file_is_as_it_was(&self) -> bool {
        match &self.source {
            EntrySource::Memory(_) => true,
            EntrySource::File(file, _) => {
                Stamp::of(file.as_fd()).is_ok_and(|stamp| stamp == self.stamp)
            }
        }
    }

    /// The head of the usual response, and the body behind it if that is in memory.
    pub(crate) fn usual(&self) -> Option<&UsualHead> {
        match &self.source {
            EntrySource::Memory(usual) => Some(usual),
            EntrySource::File(_, usual) => usual.as_ref(),
        }
    }
}

/// The head of the usual response to a request for a file: to a plain GET over HTTP/1.1, on a connection
/// that persists. Only the date changes from response to response.
pub(crate) struct UsualHead {
    /// The head, and the body behind it if that is in memory.
    pub(crate) bytes: RefCell<Rc<[u8]>>,
    pub(crate) head_len: usize,
    /// Where the date's text begins.
    pub(crate) date: usize,
    /// The second of the date in the head.
    pub(crate) second: Cell<u64>,
}

impl UsualHead {
    /// The head with the date of `clock`'s second. Bytes that are still being sent keep their date.
    pub(crate) fn dated(&self, clock: &DateClock) -> Ref<'_, Rc<[u8]>> {
        if self.second.replace(clock.seconds()) != clock.seconds() {
            let date = clock.date();
            let mut bytes = self.bytes.borrow_mut();
            Rc::make_mut(&mut bytes)[self.date..][..date.len()].copy_from_slice(date);
        }
        self.bytes.borrow()
    }

    /// The body, if that is in memory.
    pub(crate) fn body(&self) -> Ref<'_, [u8]> {
        Ref::map(self.bytes.borrow(), |bytes| &bytes[self.head_len..])
    }

    /// Bytes of head and body.
    pub(crate) fn len(&self) -> usize {
        self.bytes.borrow().len()
    }
}

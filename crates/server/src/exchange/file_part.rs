//! A part of a file, as what a response sends.

use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;

use drover_http1::range::ByteRange;
use drover_mech::files::bytes;
use drover_mech::net::Body;

use crate::lookup::entry::{EntrySource, FileEntry};

/// A part of a file. The worker reads all of it itself if it is short and in the page cache; otherwise all of it is left to the file
/// backend.
pub(crate) struct FilePart {
    pub(crate) entry: Rc<FileEntry>,
    pub(crate) part: ByteRange,
    /// The most bytes that the worker reads itself.
    pub(crate) in_memory: u64,
}

impl FilePart {
    /// All of a file.
    pub(crate) fn whole(entry: &Rc<FileEntry>, in_memory: u64) -> FilePart {
        let part = ByteRange { start: 0, end: entry.len };
        FilePart { entry: Rc::clone(entry), part, in_memory }
    }

    /// Puts the part behind what is in `out`, or returns it as what is to be sent behind that.
    ///
    /// # Errors
    /// What the kernel says of the file.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) -> io::Result<Body> {
        let part = self.part;
        let file = match &self.entry.source {
            EntrySource::Memory(usual) => {
                out.extend_from_slice(&usual.body()[part.start as usize..part.end as usize]);
                return Ok(Body::None);
            }
            EntrySource::File(_, _) if part.len() == 0 => return Ok(Body::None),
            EntrySource::File(file, _) => file,
        };
        if part.len() <= self.in_memory {
            match bytes::try_append_cached(file.as_fd(), part.start, part.len() as usize, out) {
                Ok(()) => return Ok(Body::None),
                // The backend may wait for it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.left_to_backend())
    }

    /// The part as what the file backend sends; nothing if it is empty or in memory.
    pub(crate) fn left_to_backend(&self) -> Body {
        left_to_backend(&self.entry, self.part)
    }
}

/// All of a file as what the file backend sends; nothing if it is empty or in memory.
pub(crate) fn whole_left_to_backend(entry: &FileEntry) -> Body {
    left_to_backend(entry, ByteRange { start: 0, end: entry.len })
}

fn left_to_backend(entry: &FileEntry, part: ByteRange) -> Body {
    match &entry.source {
        EntrySource::File(file, _) if part.len() > 0 => {
            Body::File { file: Rc::clone(file), offset: part.start, len: part.len() }
        }
        _ => Body::None,
    }
}

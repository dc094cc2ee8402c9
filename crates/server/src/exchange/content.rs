//! What follows the fields of a response.

use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use drover_http1::range::ByteRange;
use drover_http1::response::PreparedResponse;
use drover_http1::{FieldList, mime};
use drover_mech::files::bytes;
use drover_mech::net::{Body, SharedBytes};

use super::parts::RemainingParts;
use crate::SERVER;
use crate::lookup::entry::{EntrySource, FileEntry};
use crate::worker::clock::DateClock;

/// What follows the fields of a response.
#[derive(Default)]
pub(crate) enum Content {
    /// Nothing.
    #[default]
    None,
    /// A line of text for people: the status, and this if it is not empty.
    Text(&'static str),
    /// All of a file whose usual response is prepared: its fields come before those of the exchange.
    Prepared(Rc<FileEntry>),
    /// A part of a file.
    File(FilePart),
    /// Several parts of a file.
    Parts(Box<RemainingParts>),
    /// Bytes that all workers of the process send.
    ProcessWide(Arc<SharedBytes>),
    /// The same bytes for all requests; its fields come before those of the exchange.
    Fixed(Rc<FixedBody>),
}

/// A part of a file, at most `in_memory` bytes of which are read by the worker itself.
pub(crate) struct FilePart {
    pub(crate) entry: Rc<FileEntry>,
    pub(crate) part: ByteRange,
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
        match &self.entry.source {
            EntrySource::File(file, _) if self.part.len() > 0 => {
                Body::File { file: Rc::clone(file), offset: self.part.start, len: self.part.len() }
            }
            _ => Body::None,
        }
    }
}

/// One body for every request: `--reply-size`, the micro-server of the papers.
pub(crate) struct FixedBody {
    pub(crate) bytes: Rc<[u8]>,
    pub(crate) usual: PreparedResponse,
}

/// A body in memory up to this length is copied behind its head. A longer one is cheaper to send from
/// where it is.
const COPIED_MOST: usize = 4 * 1024;

impl FixedBody {
    /// A body of so many bytes; `always`: the fields that all responses of the site have.
    pub(crate) fn new(size: usize, clock: &DateClock, always: Option<&FieldList>) -> FixedBody {
        let bytes: Rc<[u8]> = vec![b'x'; size].into();
        let mut fields = always.cloned().unwrap_or_default();
        fields.content_type(mime::DEFAULT).content_length(size as u64);
        let now = (clock.date(), clock.seconds());
        let usual = PreparedResponse::new(SERVER, now, &fields, |out| {
            out.extend_from_slice(&bytes);
            size <= COPIED_MOST
        });
        FixedBody { bytes, usual }
    }
}

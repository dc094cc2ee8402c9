//! What follows the fields of a response.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use drover_http1::response::PreparedResponse;
use drover_http1::{FieldList, mime};
use drover_mech::net::SharedBytes;

use super::file_part::FilePart;
use super::parts::RemainingParts;
use crate::SERVER;
use crate::clock::DateClock;
use crate::lookup::entry::FileEntry;
use crate::lookup::packed_head::PackedHead;

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
    /// A file, or one range of it.
    File(FilePart),
    /// Several parts of a file.
    Parts(Box<RemainingParts>),
    /// Bytes that all workers of the process send.
    ProcessWide(Arc<SharedBytes>),
    /// The same bytes for all requests; its fields come before those of the exchange.
    Fixed(Rc<FixedBody>),
}

/// One body for every request: `--response-size`, the micro-server of the papers.
pub(crate) struct FixedBody {
    pub(crate) bytes: Rc<[u8]>,
    pub(crate) usual: PreparedResponse,
    packed: OnceCell<PackedHead>,
}

/// A body in memory up to this length is copied behind its head. A longer one is cheaper to send from
/// where it is.
const COPIED_MOST: usize = 4 * 1024;

impl Content {
    /// The fields that stand before those of the exchange: those that are prepared, or else `Server` and `Date`.
    pub(crate) fn leading_fields(&self, clock: &DateClock) -> FieldList {
        let prepared = match self {
            Content::Prepared(entry) => entry.usual(),
            Content::Fixed(fixed) => Some(&fixed.usual),
            _ => None,
        };
        prepared.map(PreparedResponse::fields).unwrap_or_else(|| {
            let server_and_date = [("Server", SERVER.as_bytes()), ("Date", clock.date())];
            server_and_date.into_iter().collect()
        })
    }
}

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
        FixedBody { bytes, usual, packed: OnceCell::new() }
    }

    /// The head as HTTP/2 has it.
    pub(crate) fn packed_head(&self) -> &PackedHead {
        self.packed.get_or_init(|| PackedHead::new(&self.usual))
    }
}

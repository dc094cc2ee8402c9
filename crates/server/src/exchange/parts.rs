//! The response to a request for several ranges, part after part.
//!
//! Parts that may be read into memory stand in the output one behind the other. Any other part is left to the
//! file backend: the connection sends it, and then asks for what follows.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;

use drover_http1::range::ByteRange;
use drover_http1::response::Multipart;
use drover_mech::net::Body;

use super::file_part::FilePart;
use crate::lookup::entry::FileEntry;

/// What is left of a response in parts.
pub(crate) struct RemainingParts {
    around: Multipart,
    entry: Rc<FileEntry>,
    /// Parts of at most so many bytes are read into memory.
    in_memory: u64,
    left: std::vec::IntoIter<ByteRange>,
    /// The length of the whole body in bytes: the value of `Content-Length`.
    pub(crate) length: u64,
}

impl RemainingParts {
    /// The parts of an entry.
    pub(crate) fn new(
        entry: &Rc<FileEntry>,
        ranges: Vec<ByteRange>,
        in_memory: u64,
    ) -> RemainingParts {
        let around = Multipart::new(&entry.content_type, entry.len, random());
        let length = around.content_length(&ranges);
        let (entry, left) = (Rc::clone(entry), ranges.into_iter());
        RemainingParts { around, entry, in_memory, left, length }
    }

    /// The value of `Content-Type`.
    pub(crate) fn content_type(&self) -> String {
        self.around.content_type()
    }

    /// Writes as many parts as may stand in the output. The body that is returned belongs to the last of them, whose head
    /// stands in the output: it is to be sent before this is called again. `Body::None`: the response ends here.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>) -> Body {
        for part in self.left.by_ref() {
            self.around.push_head(part, out);
            let (entry, in_memory) = (Rc::clone(&self.entry), self.in_memory);
            let part = FilePart { entry, part, in_memory };
            // What cannot be read here, the backend finds out, and the connection ends by it.
            match part.append_to(out).unwrap_or_else(|_| part.left_to_backend()) {
                Body::None => {}
                body => return body,
            }
        }
        self.around.push_end(out);
        Body::None
    }
}

/// A number that nobody outside can guess, so that no content can hold the boundary between parts: the keys of the standard
/// library's hash maps are random.
fn random() -> u128 {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}

//! The response to a request for several ranges, part after part.
//!
//! Parts that may be read into memory stand in the output one behind the other. Any other part is left to the
//! file backend: the connection sends it, and then asks for what follows.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::AsFd;
use std::rc::Rc;

use drover_http1::range::ByteRange;
use drover_http1::response::Multipart;
use drover_mech::files::bytes;
use drover_mech::files::served::ServedFile;
use drover_mech::net::Body;

use crate::lookup::entry::{EntrySource, FileEntry};

/// What is left of a response in parts.
pub(crate) struct RemainingParts {
    around: Multipart,
    bytes: Bytes,
    /// Parts of at most so many bytes are read into memory.
    in_memory: u64,
    left: std::vec::IntoIter<ByteRange>,
    /// The length of the whole body in bytes: the value of `Content-Length`.
    pub(crate) length: u64,
}

/// Where the bytes of all parts are.
enum Bytes {
    /// Behind a head in memory of this length.
    Memory(Rc<[u8]>, usize),
    /// In a file.
    File(Rc<ServedFile>),
}

impl RemainingParts {
    /// The parts of an entry.
    pub(crate) fn new(entry: &FileEntry, ranges: Vec<ByteRange>, in_memory: u64) -> RemainingParts {
        let bytes = match &entry.source {
            EntrySource::Memory(usual) => {
                Bytes::Memory(Rc::clone(&usual.bytes()), usual.head_len())
            }
            EntrySource::File(file, _) => Bytes::File(Rc::clone(file)),
        };
        let around = Multipart::new(&entry.content_type, entry.len, random());
        let length = around.content_length(&ranges);
        RemainingParts { around, bytes, in_memory, left: ranges.into_iter(), length }
    }

    /// The value of `Content-Type`.
    pub(crate) fn content_type(&self) -> String {
        self.around.content_type()
    }

    /// Writes as many parts as may stand in the output. A body: it is the rest of the last of them, and
    /// is sent before more is written. `Body::None`: the response ends here.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>) -> Body {
        for part in self.left.by_ref() {
            self.around.push_head(part, out);
            let body = match &self.bytes {
                Bytes::Memory(bytes, head) => {
                    let body = &bytes[*head..];
                    out.extend_from_slice(&body[part.start as usize..part.end as usize]);
                    continue;
                }
                Bytes::File(file) => {
                    let is_read = part.len() <= self.in_memory
                        && bytes::try_append_cached(
                            file.as_fd(),
                            part.start,
                            part.len() as usize,
                            out,
                        )
                        .is_ok();
                    if is_read {
                        continue;
                    }
                    Body::File { file: Rc::clone(file), offset: part.start, len: part.len() }
                }
            };
            return body;
        }
        self.around.push_end(out);
        Body::None
    }
}

/// A number that nobody outside can guess: the keys of the standard library's hash maps are random.
fn random() -> u128 {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}

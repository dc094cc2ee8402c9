//! The last plain request of a turn. A request with equal bytes in one turn gets an equal response,
//! without being parsed and looked up again.
//!
//! A worker that is busy finds many requests per wait, and where few files are wanted by many alike
//! clients (proxies, feed readers, load generators) most of them are equal byte for byte. Elsewhere
//! the comparison ends at the first byte of the path that differs.

use std::rc::Rc;
use std::time::Instant;

use crate::lookup::entry::FileEntry;

/// Longer heads are not worth a copy per turn.
const HEAD_MOST: usize = 1024;

/// One request head, and the entry that it led to.
#[derive(Default)]
pub(crate) struct RepeatedRequest {
    head: Vec<u8>,
    entry: Option<(Rc<FileEntry>, Instant)>,
}

impl RepeatedRequest {
    /// The length of the head at the beginning of `input`, and the entry that it leads to; `None`: it is
    /// not the head that was noted in this turn.
    pub(crate) fn recall(&self, input: &[u8], turn: Instant) -> Option<(usize, &Rc<FileEntry>)> {
        let (entry, noted) = self.entry.as_ref()?;
        (*noted == turn && input.starts_with(&self.head)).then_some((self.head.len(), entry))
    }

    /// Notes the first request of a turn: one with this head, no body, and the entry's usual response.
    pub(crate) fn note(&mut self, head: &[u8], entry: &Rc<FileEntry>, turn: Instant) {
        let noted = self.entry.as_ref().is_some_and(|(_, noted)| *noted == turn);
        if noted || head.len() > HEAD_MOST {
            return;
        }
        if self.head != head {
            self.head.clear();
            self.head.extend_from_slice(head);
        }
        self.entry = Some((Rc::clone(entry), turn));
    }
}

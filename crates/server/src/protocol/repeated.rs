//! The last plain request of a turn. A request with equal bytes in one turn gets an equal response,
//! without being parsed and looked up again.
//!
//! A worker that is busy finds many requests per wait, and where few files are wanted by many alike
//! clients (proxies, feed readers, load generators) most of them are equal byte for byte. Elsewhere
//! the comparison ends at the first byte of the path that differs.

use std::rc::Rc;
use std::time::Instant;

use crate::exchange::{Content, Exchange, RequestFacts};
use crate::lookup::entry::FileEntry;

/// Longer heads are not worth a copy per turn.
const HEAD_MOST: usize = 1024;

/// One request head, and what it led to.
#[derive(Default)]
pub(super) struct RepeatedRequest {
    head: Vec<u8>,
    entry: Option<(Rc<FileEntry>, Instant)>,
    /// What was taken down of the request, if somebody observes.
    asked: Option<Rc<RequestFacts>>,
}

impl RepeatedRequest {
    /// Decides the exchange of a request that begins `input`, if its head was noted in this turn. Returns the length of the head.
    #[inline(always)]
    pub(super) fn answer(
        &self,
        input: &[u8],
        turn: Instant,
        exchange: &mut Exchange,
    ) -> Option<usize> {
        let (entry, noted) = self.entry.as_ref()?;
        if *noted != turn || !input.starts_with(&self.head) {
            return None;
        }
        exchange.asked.clone_from(&self.asked);
        exchange.answer(drover_http1::Status::Ok);
        exchange.content = Content::Prepared(Rc::clone(entry));
        Some(self.head.len())
    }

    /// Notes the first request of a turn, one with this head and no body, if its response is a file's usual one.
    #[inline(always)]
    pub(super) fn note(&mut self, head: &[u8], exchange: &Exchange, turn: Instant) {
        let Content::Prepared(entry) = &exchange.content else { return };
        let noted = self.entry.as_ref().is_some_and(|(_, noted)| *noted == turn);
        if noted || head.len() > HEAD_MOST {
            return;
        }
        if self.head != head {
            self.head.clear();
            self.head.extend_from_slice(head);
        }
        self.asked.clone_from(&exchange.asked);
        self.entry = Some((Rc::clone(entry), turn));
    }
}

//! The streams of a connection that wait for something to be found out: a file that is opened, a password that is verified.

use std::rc::Rc;

use drover_http2::StreamId;

use crate::lookup::pending::{PendingAnswer, RequestKey};

/// A stream that waits.
pub(super) struct WaitingStream {
    pub(super) stream: StreamId,
    /// The request, in the form of HTTP/1.1: it is answered anew.
    pub(super) head: Box<[u8]>,
    /// What it waits for.
    pub(super) open: Rc<PendingAnswer>,
    /// Since when, in nanoseconds.
    pub(super) since: u64,
    /// Whether the client still wants it.
    pub(super) is_wanted: bool,
}

impl WaitingStream {
    /// Whether nothing is found out for it any more.
    fn is_done(&self) -> bool {
        self.open.is_done() || !self.is_wanted && Rc::strong_count(&self.open) == 1
    }
}

/// The streams that wait, in the order in which they have begun to.
#[derive(Default)]
pub(super) struct WaitingStreams(Vec<WaitingStream>);

impl WaitingStreams {
    pub(super) fn push(&mut self, waiting: WaitingStream) {
        self.0.push(waiting);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all is found out for one of them.
    pub(super) fn any_is_done(&self) -> bool {
        self.0.iter().any(WaitingStream::is_done)
    }

    /// Takes the first for which all is found out.
    pub(super) fn take_done(&mut self) -> Option<WaitingStream> {
        let number = self.0.iter().position(WaitingStream::is_done)?;
        Some(self.0.remove(number))
    }

    /// Takes the first that has waited since `until`, in nanoseconds, or longer.
    pub(super) fn take_late(&mut self, until: u64) -> Option<WaitingStream> {
        let number = self.0.iter().position(|it| it.is_wanted && it.since <= until)?;
        Some(self.0.remove(number))
    }

    /// Since when the first of them waits that is wanted.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.0.iter().filter(|it| it.is_wanted).map(|it| it.since).min()
    }

    /// The client does not want a stream any more, whose request is `key`. The stream stays in the list until its work has ended: who
    /// asks and takes back is not to have more work under way than others.
    pub(super) fn abandon(&mut self, stream: StreamId, key: RequestKey) {
        if let Some(waiting) = self.0.iter_mut().find(|it| it.stream == stream) {
            waiting.is_wanted = false;
            waiting.open.leave(key);
        }
    }

    /// Takes all.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = WaitingStream> {
        self.0.drain(..)
    }
}

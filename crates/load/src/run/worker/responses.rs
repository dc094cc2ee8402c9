//! The counting of a response that is whole, whatever protocol has carried it.

use std::time::Instant;

use crate::account::counts::{Account, RequestFailure, record};
use crate::run::worker::Worker;

/// What is known of a response that is whole.
pub(crate) struct WholeResponse {
    /// Its status.
    pub(crate) status: u16,
    /// The length of its body, in bytes.
    pub(crate) body_len: u64,
    /// The hash of its body; `None`: not wanted.
    pub(crate) body_hash: Option<u64>,
    /// The number of its request among those of the origin.
    pub(crate) request: usize,
    /// The intended start of the request; `None`: the moment of sending.
    pub(crate) due: Option<Instant>,
    /// When the request was sent.
    pub(crate) sent: Instant,
    /// When the first bytes of the response came.
    pub(crate) first_byte: Instant,
    /// When the last bytes of the response came.
    pub(crate) end: Instant,
}

impl Worker<'_> {
    /// Counts a response from an origin, as a response or as the error that it is.
    #[inline]
    pub(crate) fn count_response(
        &self,
        account: &mut Account,
        origin: usize,
        response: &WholeResponse,
    ) {
        let WholeResponse { due, sent, first_byte, end, .. } = *response;
        if self.plan.expect_size.is_some_and(|size| size != response.body_len) {
            return account.errors.add(RequestFailure::BadLength);
        }
        if let Some(hash) = response.body_hash.filter(|_| response.status / 100 == 2) {
            let expected = &self.requests.get(origin, response.request).body;
            if *expected.get_or_init(|| hash) != hash {
                return account.errors.add(RequestFailure::BadBody);
            }
        }
        account.responses += 1;
        account.statuses[usize::from(response.status)] += 1;
        account.served(first_byte - sent, end - sent);
        account.record_read_delay(end.saturating_duration_since(self.net.now()));
        if self.open_loop {
            record(&mut account.latency, end.saturating_duration_since(due.unwrap_or(sent)));
        }
        // A turn of several lasts until its last response.
        if self.window.end().is_none_or(|at| end <= at) || self.plan.turns > 1 {
            account.response_in_window(end.saturating_duration_since(self.window.start()));
        }
    }
}

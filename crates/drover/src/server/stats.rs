//! Counters of what a server has done: written by one worker each, read by anyone.

use std::sync::atomic::{AtomicU64, Ordering};

use http1::Status;
use serde::Serialize;

/// A number that only its worker writes, so that adding needs no locked instruction.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One worker's counters. The alignment keeps two workers' apart by two cache lines, which is what
/// today's processors fetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) connections: Counter,
    pub(super) closed: Counter,
    pub(super) requests: Counter,
    /// By the first digit of the status, 2 to 5.
    replies: [Counter; 4],
    pub(super) bytes_sent: Counter,
    pub(super) errors: Counter,
    pub(super) time_outs: Counter,
    pub(super) accept_errors: Counter,
    pub(super) accepts_lost: Counter,
}

impl Counters {
    pub(super) fn reply(&self, status: Status) {
        self.replies[usize::from(status.code() / 100) - 2].add(1);
    }
}

/// What a server has done since it started, all workers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Connections accepted.
    pub connections: u64,
    /// Of these, how many have ended.
    pub closed: u64,
    /// Request heads read without fault.
    pub requests: u64,
    /// Replies with a status of 200 to 299.
    pub replies_2xx: u64,
    /// Replies with a status of 300 to 399.
    pub replies_3xx: u64,
    /// Replies with a status of 400 to 499.
    pub replies_4xx: u64,
    /// Replies with a status of 500 to 599.
    pub replies_5xx: u64,
    /// Bytes of the replies that the kernel took to their end, heads included.
    pub bytes_sent: u64,
    /// Connections that an error ended: reset by the peer, or a file cut short.
    pub errors: u64,
    /// Connections that a time-out ended.
    pub time_outs: u64,
    /// Attempts to accept that failed.
    pub accept_errors: u64,
    /// Wake-ups for a connection that another worker had taken already.
    pub accepts_lost: u64,
}

impl Statistics {
    /// The sum of the workers' counters. Each is exact; they are not read at one instant.
    pub(super) fn sum<'c>(workers: impl IntoIterator<Item = &'c Counters>) -> Statistics {
        workers.into_iter().fold(Statistics::default(), |sum, worker| Statistics {
            connections: sum.connections + worker.connections.get(),
            closed: sum.closed + worker.closed.get(),
            requests: sum.requests + worker.requests.get(),
            replies_2xx: sum.replies_2xx + worker.replies[0].get(),
            replies_3xx: sum.replies_3xx + worker.replies[1].get(),
            replies_4xx: sum.replies_4xx + worker.replies[2].get(),
            replies_5xx: sum.replies_5xx + worker.replies[3].get(),
            bytes_sent: sum.bytes_sent + worker.bytes_sent.get(),
            errors: sum.errors + worker.errors.get(),
            time_outs: sum.time_outs + worker.time_outs.get(),
            accept_errors: sum.accept_errors + worker.accept_errors.get(),
            accepts_lost: sum.accepts_lost + worker.accepts_lost.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_over_all_workers_and_by_class_of_status() {
        let workers = [Counters::default(), Counters::default()];
        workers[0].requests.add(2);
        workers[1].requests.add(3);
        for status in [Status::Ok, Status::PartialContent, Status::NotFound] {
            workers[0].reply(status);
        }
        workers[1].reply(Status::ServiceUnavailable);
        let expected = Statistics {
            requests: 5,
            replies_2xx: 2,
            replies_4xx: 1,
            replies_5xx: 1,
            ..Statistics::default()
        };
        assert_eq!(Statistics::sum(&workers), expected);
    }
}

//! How many connections a worker may have, so that descriptors are left for files.

use anyhow::Context;
use tracing::warn;

use crate::Config;

/// Descriptors that a worker needs for itself: for its mechanism, its waker, and its file backend.
const OF_A_WORKER: u64 = 4;

/// The most descriptors that are kept for files. Up to this number, half of all descriptors is kept,
/// because each connection may need a file. Most connections send the same few files.
const FOR_FILES_MOST: u64 = 1024;

/// How many descriptors the process has open. To be called when its listening sockets are open, and no connection is:
/// those that workers have at a reload are no reason to allow the workers that succeed them fewer.
///
/// # Errors
/// No descriptor is left for a connection.
pub(crate) fn descriptors_open() -> anyhow::Result<u64> {
    drover_sys::process::lowest_free_descriptor()
        .context("cannot open another descriptor; raise the limit of open files (ulimit -n)")
}

/// How many connections the workers of a process may have at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimit {
    /// The limit per worker that follows from the process's descriptors.
    by_descriptors: u64,
    /// The limit of the configuration, for all workers of the server.
    configured: u64,
    /// How many workers the server has.
    workers: u64,
}

impl ConnectionLimit {
    /// The limits in a process with `sharers` workers, and `open` descriptors ([`descriptors_open`]).
    pub(crate) fn new(config: &Config, sharers: usize, open: u64) -> ConnectionLimit {
        let limit = drover_sys::process::open_files_limit().soft.unwrap_or(u64::MAX);
        let sharers = sharers as u64;
        // Each further site may have files watched.
        let watchers = config.hosts.len() as u64;
        let free = limit.saturating_sub(open + (OF_A_WORKER + watchers) * sharers);
        let for_files = match config.sites().any(|site| site.root().is_some()) {
            true => (free / 2).min(FOR_FILES_MOST),
            false => 0,
        };
        let connections = ConnectionLimit {
            by_descriptors: (free - for_files) / sharers,
            configured: config.max_connections.map_or(u64::MAX, |most| most.get() as u64),
            workers: config.workers.get() as u64,
        };
        let most = connections.by_descriptors.saturating_mul(connections.workers);
        if config.max_connections.is_some() && connections.configured > most {
            warn!(
                "--max-connections {}: the limit of open files (ulimit -n), which is {limit}, allows \
                 {most}",
                connections.configured,
            );
        }
        connections
    }

    /// How many connections worker number `worker`, among all of the server, may have: at least one.
    pub(crate) fn of_worker(&self, worker: usize) -> usize {
        let more = (worker as u64) < self.configured % self.workers;
        let configured = self.configured / self.workers + u64::from(more);
        usize::try_from(configured.min(self.by_descriptors)).unwrap_or(usize::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_all_workers_are_what_was_configured() {
        let shares = |configured, by_descriptors| {
            let connections = ConnectionLimit { by_descriptors, configured, workers: 3 };
            [0, 1, 2].map(|worker| connections.of_worker(worker))
        };
        assert_eq!(shares(11, 100), [4, 4, 3]);
        assert_eq!(shares(3, 100), [1, 1, 1]);
        assert_eq!(shares(1000, 100), [100; 3]);
        assert_eq!(shares(u64::MAX, 100), [100; 3]);
        assert_eq!(shares(u64::MAX, 0), [1; 3]);
    }
}

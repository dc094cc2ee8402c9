//! The text of the files that are part of the program.

/// The folder that built-in files are in, as faults name them.
pub(super) const FOLDER: &str = "built-in";

/// A built-in file: its path, and its text.
macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../experiments/", $path)))),*]
    };
}

/// The experiments, in the order of their documents.
pub(super) static EXPERIMENTS: &[(&str, &str)] = files![
    "dispatch-overhead.toml",
    "dispatch-throughput.toml",
    "signal-queue.toml",
    "dead-connections.toml",
    "connection-bursts.toml",
    "pipes.toml",
    "raw-file-io.toml",
    "stat-threads.toml",
    "read-threads.toml",
    "access-times.toml",
    "buffered-file-io.toml",
    "thread-starvation.toml",
    "herd-at-connect.toml",
    "four-options.toml",
    "settle-time.toml",
    "many-acceptors.toml",
    "serialized-accept.toml",
    "table-growth.toml",
    "cold-readers.toml",
    "in-flight.toml",
    "completion-or-readiness.toml",
    "threads-or-processes.toml",
    "tls-cost.toml",
    "http2-cost.toml",
];

/// What they include, the known servers and the dispatch mechanisms first.
pub(super) static SHARED: &[(&str, &str)] = files![
    "subjects/peers.toml",
    "subjects/dispatch.toml",
    "papers/buffered-cpu.csv",
    "papers/buffered-requests.csv",
    "papers/buffered-throughput.csv",
    "papers/raw-cpu.csv",
    "papers/raw-disk.csv",
    "papers/raw-requests.csv",
    "papers/raw-throughput.csv",
    "papers/settle-time.csv",
];

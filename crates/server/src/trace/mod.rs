//! `--trace`: one line per response that says where its time went.
//!
//! A worker notes what a line is to tell; one thread of the process makes lines of what is full, or a
//! second old (`line.rs`), and writes them to the file (`file.rs`). A request costs its worker one look
//! at the clock and a note. docs/trace.md describes the format.

use std::cell::RefCell;
use std::io;
use std::time::{Duration, Instant};

use drover_http1::Status;
use drover_mech::Key;
use drover_mech::fileio::ReadTimes;
use drover_mech::net::Body;

mod file;
mod line;

pub(crate) use file::begin;
pub(crate) use line::TraceLine;

use crate::line_writer;

/// Where a worker's lines go.
pub(crate) type TraceSink = line_writer::Sink<Vec<TraceLine>>;
pub use line::{COLUMNS, FORMAT};

/// How long a worker that is not busy may keep its lines.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(1);

/// The times of a response without a read of its file.
const NO_READS: ReadTimes = ReadTimes {
    backend: None,
    reads: 0,
    queue: Duration::ZERO,
    read: Duration::ZERO,
    back: Duration::ZERO,
    longest: Duration::ZERO,
};

/// So many lines a worker has before it hands them over. With four times less, the thread that writes
/// takes half as long again for each.
const FULL: usize = 4096;

/// The trace of one worker.
pub(crate) struct Tracer {
    state: RefCell<State>,
}

struct State {
    sink: Option<TraceSink>,
    worker: usize,
    /// The name of the backend that sends what needs no reading.
    sends: &'static str,
    lines: Vec<TraceLine>,
    connections: u64,
    /// By slot.
    traced: Vec<Traced>,
}

/// The trace's state of one connection.
#[derive(Default)]
struct Traced {
    number: u64,
    /// The responses that have not left yet.
    responses: Vec<Noted>,
}

/// A response that stands in the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    start: Instant,
    stat: Duration,
    status: Status,
    bytes: u64,
    /// Whether the file backend moves the response's body.
    file: bool,
}

impl Tracer {
    /// The trace of the worker with this number; `sends` is the name of its file backend.
    pub(crate) fn new(sink: TraceSink, worker: usize, sends: &'static str) -> Tracer {
        let state = State {
            sink: Some(sink),
            worker,
            sends,
            lines: Vec::with_capacity(FULL),
            connections: 0,
            traced: Vec::new(),
        };
        Tracer { state: RefCell::new(state) }
    }

    /// A connection begins.
    pub(crate) fn begin(&self, key: Key) {
        let state = &mut *self.state.borrow_mut();
        state.connections += 1;
        let slot = key.slot as usize;
        if state.traced.len() <= slot {
            state.traced.resize_with(slot + 1, Traced::default);
        }
        let traced = &mut state.traced[slot];
        traced.number = state.connections;
        traced.responses.clear();
    }

    /// The `bytes` of a response's head (and small body) stand in the output, and `body` is to follow.
    /// `start`: when the request was here, and how long it then waited for its file to be opened.
    pub(crate) fn note(
        &self,
        key: Key,
        (start, stat): (Instant, Duration),
        status: Status,
        bytes: usize,
        body: &Body,
    ) {
        let state = &mut *self.state.borrow_mut();
        let Some(traced) = state.traced.get_mut(key.slot as usize) else { return };
        let file = matches!(body, Body::File { .. });
        let bytes = bytes as u64 + body.size();
        traced.responses.push(Noted { start, stat, status, bytes, file });
    }

    /// The bytes in the output have been sent, or never will be.
    pub(crate) fn done(&self, key: Key, times: &ReadTimes, sent: &io::Result<()>) {
        self.state.borrow_mut().write(key.slot as usize, times, end_of(sent));
    }

    /// Hands over what is written.
    pub(crate) fn flush(&self) {
        self.state.borrow_mut().hand_over();
    }

    /// The worker has ended: bytes in the output will not be sent any more.
    pub(crate) fn finish(&self) {
        let state = &mut *self.state.borrow_mut();
        for slot in 0..state.traced.len() {
            state.write(slot, &NO_READS, "dropped");
        }
        state.hand_over();
    }
}

/// A word for how a response ended.
pub(crate) fn end_of(sent: &io::Result<()>) -> &'static str {
    match sent {
        Ok(_) => "sent",
        Err(error) => match error.kind() {
            io::ErrorKind::TimedOut => "late",
            io::ErrorKind::UnexpectedEof => "short",
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => "gone",
            _ => "failed",
        },
    }
}

impl State {
    /// Notes the lines of a connection's responses, of which the last may be a file's.
    fn write(&mut self, slot: usize, times: &ReadTimes, end: &'static str) {
        let Some(traced) = self.traced.get_mut(slot) else { return };
        if self.sink.is_none() || traced.responses.is_empty() {
            return;
        }
        let done = Instant::now();
        for noted in traced.responses.drain(..) {
            let times = if noted.file { *times } else { NO_READS };
            let backend = match times.backend {
                Some(name) => name,
                None if noted.file => self.sends,
                None => "memory",
            };
            let (worker, connection) = (self.worker, traced.number);
            self.lines.push(TraceLine { noted, done, times, end, worker, connection, backend });
        }
        if self.lines.len() >= FULL {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let count = self.lines.len() as u64;
        if let Some(sink) = &self.sink
            && count > 0
            && !sink.take(std::mem::replace(&mut self.lines, Vec::with_capacity(FULL)), count)
        {
            // The file cannot be written to any more; the log says so.
            self.sink = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_tell_each_response_of_a_connection_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let trace = begin(std::fs::File::create(&path).unwrap(), &path, "of=this-test").unwrap();
        let tracer = Tracer::new(trace.sink(), 3, "this");
        let (key, other) = (Key { slot: 1, generation: 0 }, Key { slot: 0, generation: 0 });
        tracer.begin(other);
        tracer.begin(key);
        let now = (Instant::now(), Duration::ZERO);
        tracer.note(key, now, Status::Ok, 100, &Body::None);
        tracer.note(key, now, Status::NotFound, 50, &Body::Shared([1; 7].into()));
        let times = ReadTimes {
            backend: Some("reader"),
            reads: 2,
            read: Duration::from_micros(30),
            longest: Duration::from_micros(25),
            ..ReadTimes::default()
        };
        tracer.state.borrow_mut().write(1, &times, "sent");
        tracer.state.borrow_mut().write(1, &times, "sent");
        // A connection that has the slot next has left nothing behind yet.
        tracer.note(key, now, Status::Ok, 1, &Body::None);
        tracer.begin(key);
        tracer.finish();
        drop(tracer);
        trace.finish();
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("# drover.trace/1 started=") && lines[0].ends_with("of=this-test")
        );
        assert_eq!(lines[1], COLUMNS);
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[2].contains(",0,0,0,0,") && lines[2].ends_with(",200,100,sent,3,2,memory"));
        assert!(lines[3].ends_with(",404,57,sent,3,2,memory"), "{}", lines[3]);
    }
}

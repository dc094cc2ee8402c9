//! `--trace`: one line per response that says where its time went.
//!
//! A worker notes what a line is to tell; one thread of the process makes lines of what is full, or a
//! second old (`line.rs`), and writes them to the file (`file.rs`). A request costs its worker one look
//! at the clock and a note. docs/trace.md describes the format.

use std::cell::RefCell;
use std::time::{Duration, Instant};

mod file;
mod line;

pub(crate) use file::begin;
pub(crate) use line::TraceLine;

use crate::exchange::Exchange;
use crate::line_writer;

/// Where a worker's lines go.
pub(crate) type TraceSink = line_writer::Sink<Vec<TraceLine>>;
pub use line::{COLUMNS, FORMAT};

/// How long a worker that is not busy may keep its lines.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(1);

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
}

impl Tracer {
    /// The trace of the worker with this number; `sends` is the name of its file backend.
    pub(crate) fn new(sink: TraceSink, worker: usize, sends: &'static str) -> Tracer {
        let (sink, lines) = (Some(sink), Vec::with_capacity(FULL));
        let state = State { sink, worker, sends, lines, connections: 0 };
        Tracer { state: RefCell::new(state) }
    }

    /// A connection begins. Returns its number.
    pub(crate) fn begin(&self) -> u64 {
        let state = &mut *self.state.borrow_mut();
        state.connections += 1;
        state.connections
    }

    /// Notes the line of an exchange that has ended on the connection with this number. `done`: when its last byte had left, or
    /// never would; `end` is a word for how.
    pub(crate) fn ended(
        &self,
        connection: u64,
        exchange: &Exchange,
        done: Instant,
        end: &'static str,
    ) {
        let state = &mut *self.state.borrow_mut();
        if state.sink.is_none() {
            return;
        }
        let way = &exchange.way;
        let backend = match way.reads.backend {
            Some(name) => name,
            None if way.is_file => state.sends,
            None => "memory",
        };
        state.lines.push(TraceLine {
            start: way.start.unwrap_or(done),
            stat: way.lookup,
            status: exchange.status,
            bytes: way.head_len + way.content_len,
            done,
            times: way.reads,
            end,
            worker: state.worker,
            connection,
            backend,
        });
        if state.lines.len() >= FULL {
            state.hand_over();
        }
    }

    /// Hands over what is written.
    pub(crate) fn flush(&self) {
        self.state.borrow_mut().hand_over();
    }
}

impl State {
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

    use drover_http1::Status;
    use drover_mech::fileio::ReadTimes;

    use super::*;
    use crate::exchange::ResponseWay;

    #[test]
    fn lines_tell_each_response_of_a_connection_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let trace = begin(std::fs::File::create(&path).unwrap(), &path, "of=this-test").unwrap();
        let tracer = Tracer::new(trace.sink(), 3, "this");
        tracer.begin();
        let number = tracer.begin();
        let start = Some(Instant::now());
        let exchange = |status, content_len, is_file, reads| Exchange {
            status,
            way: ResponseWay {
                start,
                head_len: 50,
                content_len,
                is_file,
                reads,
                ..ResponseWay::default()
            },
            ..Exchange::default()
        };
        let times = ReadTimes {
            backend: Some("reader"),
            reads: 2,
            read: Duration::from_micros(30),
            longest: Duration::from_micros(25),
            ..ReadTimes::default()
        };
        for it in [
            exchange(Status::Ok, 50, false, ReadTimes::default()),
            exchange(Status::NotFound, 7, true, ReadTimes::default()),
            exchange(Status::Ok, 9, true, times),
        ] {
            tracer.ended(number, &it, Instant::now(), "sent");
        }
        tracer.flush();
        drop(tracer);
        trace.finish();
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("# drover.trace/1 started=") && lines[0].ends_with("of=this-test")
        );
        assert_eq!(lines[1], COLUMNS);
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[2].contains(",0,0,0,0,") && lines[2].ends_with(",200,100,sent,3,2,memory"));
        assert!(lines[3].ends_with(",404,57,sent,3,2,this"), "{}", lines[3]);
        assert!(lines[4].ends_with(",25,2,200,59,sent,3,2,reader"), "{}", lines[4]);
    }
}

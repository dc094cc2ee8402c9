//! The log: lines on stderr, which a server has written by a thread of their own.
//!
//! stderr may be a file on a full disk, or a pipe that nobody reads. Whoever logs must neither fail nor wait because of
//! that, so a server's lines go through a bounded queue ([`start`]), and a line that finds the queue full, or that
//! stderr refuses, is lost. Lost lines are counted, and their number is the next line that stderr takes. Commands that end
//! by themselves write directly, and ignore errors.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use drover_sys::process::start_thread;
use drover_usage::{escaped, is_command};
use tracing::error;

pub(crate) mod json_text;

/// How many bytes of lines may wait for stderr: some 2000 lines.
const QUEUED_MOST: usize = 256 * 1024;

/// How long the end of the process may wait for stderr to take what is queued.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The queue of this process, once it has a thread.
static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();

/// Starts the thread that writes the log of this process from now on. Panics are logged from now on
/// too: the standard hook would write to stderr itself.
///
/// # Errors
/// The thread cannot be started.
pub fn start() -> io::Result<()> {
    let queue = Arc::new(Queue::default());
    start_writer(&queue, io::stderr())?;
    if QUEUE.set(queue).is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let backtrace = Backtrace::capture();
            let thread = thread::current();
            let name = thread.name().unwrap_or("without a name").to_owned();
            error!("thread '{name}' {}: a defect", panic.to_string().replace('\n', " "));
            if backtrace.status() == BacktraceStatus::Captured {
                backtrace.to_string().lines().for_each(|line| error!("{line}"));
            }
        }));
    }
    Ok(())
}

/// Writes a line, which ends with a newline: at once, or by the thread.
pub fn write_line(line: &[u8]) {
    match QUEUE.get() {
        Some(queue) => queue.put(line),
        // An error of stderr has nowhere to be reported.
        None => drop(io::stderr().lock().write_all(line)),
    }
}

/// Has the thread of the log do something before it writes its next lines; nobody waits for that. Does nothing if there
/// is no thread.
pub(crate) fn on_thread(errand: impl FnOnce() + Send + 'static) {
    if let Some(queue) = QUEUE.get() {
        queue.lock().errand = Some(Box::new(errand));
        queue.changed.notify_all();
    }
}

/// Waits until everything is written, but not for long: to be called before the process ends.
pub fn finish() {
    if let Some(queue) = QUEUE.get() {
        queue.wait_until_written(LAST_WAIT);
    }
}

/// What `tracing` writes its messages to, each by one call. A message stays one line, and nothing that it quotes steers a
/// terminal. Writing never fails.
#[derive(Clone, Copy, Debug)]
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        write_line(&as_one_line(message));
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The message with what a terminal would obey written out, but for its own end and for the ESC of colours: `tracing` adds these
/// itself, and writes out those of messages.
fn as_one_line(message: &[u8]) -> Cow<'_, [u8]> {
    const ESC: char = '\u{1b}';
    let obeyed = |letter: char| letter != ESC && is_command(letter);
    let text = String::from_utf8_lossy(message);
    let line = text.strip_suffix('\n').unwrap_or(&text);
    match escaped(line, obeyed) {
        Cow::Borrowed(_) => Cow::Borrowed(message),
        Cow::Owned(shown) => Cow::Owned((shown + "\n").into_bytes()),
    }
}

/// Lines on their way to the thread.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    /// Notified when lines have come, and when lines have been written.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    /// How many lines have found the queue full since the thread last took the others.
    refused: u64,
    /// Whether the thread is writing what it took.
    writing: bool,
    /// What the thread is to do before it writes.
    errand: Option<Box<dyn FnOnce() + Send>>,
}

impl State {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.refused == 0
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.lines.len() + line.len() > QUEUED_MOST {
            state.refused += count_lines(line);
        } else {
            state.lines.extend_from_slice(line);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for lines and takes all of them, with the number of lines refused after them. Called when
    /// the lines taken before are written.
    fn take(&self) -> (Vec<u8>, u64) {
        let mut state = self.lock();
        state.writing = false;
        self.changed.notify_all();
        loop {
            if let Some(errand) = state.errand.take() {
                drop(state);
                errand();
                state = self.lock();
            }
            if !state.is_empty() {
                break;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.writing = true;
        (std::mem::take(&mut state.lines), std::mem::take(&mut state.refused))
    }

    /// Waits until all lines are written or lost, at most for `most`.
    fn wait_until_written(&self, most: Duration) {
        let is_under_way = |state: &mut State| state.writing || !state.is_empty();
        drop(self.changed.wait_timeout_while(self.lock(), most, is_under_way));
    }
}

/// Starts the thread that writes to `out` what is put into `queue`.
fn start_writer(queue: &Arc<Queue>, out: impl Write + Send + 'static) -> io::Result<()> {
    let queue = Arc::clone(queue);
    let mut writer = Writer { out, lost: 0, in_line: false };
    let work = move || {
        loop {
            let (lines, refused) = queue.take();
            writer.write(&lines, refused);
        }
    };
    start_thread("log", work).map(drop)
}

/// The thread's side of the log.
struct Writer<W> {
    out: W,
    /// The number of lost lines that the log has not reported yet.
    lost: u64,
    /// Whether the last line that was written has no end yet.
    in_line: bool,
}

impl<W: Write> Writer<W> {
    /// Writes `lines`, behind which `refused` more are lost.
    fn write(&mut self, lines: &[u8], refused: u64) {
        // The lines lost earlier are reported before these lines.
        self.tell_lost();
        let taken = self.write_some(lines);
        self.lost += count_lines(&lines[taken..]) + refused;
        if taken == lines.len() {
            self.tell_lost();
        }
    }

    fn tell_lost(&mut self) {
        if self.lost == 0 {
            return;
        }
        let end_of_line = if self.in_line { "\n" } else { "" };
        let lost = self.lost;
        let line = format!(
            "{end_of_line}drover: {lost} lines of the log are missing here: stderr did not take them\n"
        );
        if self.write_some(line.as_bytes()) == line.len() {
            self.lost = 0;
        }
    }

    /// Writes until there is an error, and says how many bytes were written.
    fn write_some(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            match self.out.write(&bytes[written..]) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if let Some(&last) = bytes[..written].last() {
            self.in_line = last != b'\n';
        }
        written
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    #[test]
    fn a_message_is_one_line_that_steers_no_terminal() {
        for plain in ["INFO gr\u{fc}n\n", "\x1b[33m WARN\x1b[0m a\n", "no end", "\n"] {
            assert!(matches!(as_one_line(plain.as_bytes()), Cow::Borrowed(_)), "{plain}");
        }
        let line = as_one_line("a\nb\r\u{9b}2J \u{202e}c\u{2028}\t\n".as_bytes()).into_owned();
        let expected = r"a\nb\r\u{9b}2J \u{202e}c\u{2028}\t".to_owned() + "\n";
        assert_eq!(String::from_utf8(line).unwrap(), expected);
    }

    /// Takes so many bytes, then fails.
    #[derive(Default)]
    struct Disk {
        room: usize,
        content: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let count = bytes.len().min(self.room);
            self.room -= count;
            self.content.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_errand_is_done_before_lines_and_without_any() {
        let queue = Arc::new(Queue::default());
        let (done, seen) = std::sync::mpsc::channel();
        queue.lock().errand = Some(Box::new(move || done.send(()).unwrap()));
        queue.put(b"line\n");
        assert_eq!(queue.take(), (b"line\n".to_vec(), 0));
        seen.try_recv().unwrap();
        let (done, seen) = std::sync::mpsc::channel();
        start_writer(&queue, io::sink()).unwrap();
        queue.lock().errand = Some(Box::new(move || done.send(thread::current().id()).unwrap()));
        queue.changed.notify_all();
        assert_ne!(seen.recv().unwrap(), thread::current().id());
    }

    #[test]
    fn lines_that_are_not_taken_are_counted_and_told_when_writing_works_again() {
        let mut writer = Writer { out: Disk::default(), lost: 0, in_line: false };
        writer.out.room = 6;
        writer.write(b"one\ntwo\nthree\n", 0);
        writer.write(b"four\n", 2);
        assert_eq!(writer.out.content, b"one\ntw");
        writer.out.room = usize::MAX;
        writer.write(b"five\n", 0);
        let text = String::from_utf8(writer.out.content).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[1], lines[3]), ("one", "tw", "five"), "{lines:?}");
        assert!(
            lines.len() == 4 && lines[2].contains("5 lines of the log are missing"),
            "{lines:?}"
        );
    }

    /// Says that it was asked to write, and does so only when it is allowed to.
    struct Pipe {
        asked: Sender<Vec<u8>>,
        allowed: Receiver<()>,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.asked.send(bytes.to_vec()).map_err(io::Error::other)?;
            self.allowed.recv().map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn whoever_logs_does_not_wait_for_what_is_written() {
        let (asked, was_asked) = channel();
        let (allow, allowed) = channel();
        let queue = Arc::new(Queue::default());
        start_writer(&queue, Pipe { asked, allowed }).unwrap();
        queue.put(b"first\n");
        assert_eq!(was_asked.recv().unwrap(), b"first\n");
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        for _ in 0..1000 {
            queue.put(&line);
        }
        // Nothing is written meanwhile, and that is waited for only so long.
        queue.wait_until_written(Duration::from_millis(1));
        for _ in 0..3 {
            allow.send(()).unwrap();
        }
        assert_eq!(was_asked.recv().unwrap().len(), QUEUED_MOST);
        let notice = String::from_utf8(was_asked.recv().unwrap()).unwrap();
        assert!(notice.contains(" 744 lines of the log are missing"), "{notice}");
        queue.wait_until_written(Duration::MAX);
    }
}

//! Tests of [`Reads`] with a reader that each test controls.

use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::*;

/// The state of a reader that has room for one read at a time. [`end`] ends this read.
#[derive(Default)]
struct OneByOne {
    current: Option<Read>,
    ended: Vec<Ended>,
    /// The offsets of all reads that have begun, in order.
    begun: Vec<u64>,
    /// Whether the next [`Reader::finished`] fails after it has named the ended reads.
    fails: bool,
}

struct Reader1(Rc<RefCell<OneByOne>>);

impl Reader for Reader1 {
    unsafe fn begin(&mut self, read: Read) -> io::Result<()> {
        let mut reader = self.0.borrow_mut();
        if read.offset == 13 {
            return Err(io::Error::other("unlucky"));
        }
        if reader.current.is_some() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        reader.begun.push(read.offset);
        reader.current = Some(read);
        Ok(())
    }

    fn finished(&mut self, ended: &mut Vec<Ended>) -> io::Result<()> {
        let mut reader = self.0.borrow_mut();
        ended.append(&mut reader.ended);
        match mem::take(&mut reader.fails) {
            true => Err(io::Error::other("broken")),
            false => Ok(()),
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        end(&self.0, b"late");
        Ok(())
    }
}

/// Ends the current read: these bytes were read.
fn end(reader: &RefCell<OneByOne>, bytes: &[u8]) {
    let mut reader = reader.borrow_mut();
    let read = reader.current.take().unwrap();
    assert!(bytes.len() <= read.len);
    // SAFETY: only the reader uses the buffer until `finished` names the read.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), read.buffer, bytes.len()) };
    reader.ended.push(Ended { id: read.id, result: Ok(bytes.len()), span: None });
}

struct Case {
    reader: Rc<RefCell<OneByOne>>,
    reads: Reads<Reader1>,
    socket: UnixStream,
    peer: UnixStream,
    file: Rc<ServedFile>,
}

/// The backend of these reads.
static ONE_BY_ONE: Backend = Backend {
    place: 0,
    name: "one by one",
    summary: "",
    past_cache: false,
    sends_unread: false,
    reads_apart: true,
    calls: &[],
    open: |_, _| Err(io::ErrorKind::Unsupported.into()),
};

/// Reads of 16 bytes, on one thread.
fn short_steps() -> FileIoOptions {
    FileIoOptions { read_ahead: 16, read_threads: 1, ..FileIoOptions::default() }
}

fn case() -> Case {
    case_with(FileIoOptions { timed: true, cached_at_once: false, ..short_steps() })
}

fn case_with(options: FileIoOptions) -> Case {
    let reader: Rc<RefCell<OneByOne>> = Rc::default();
    let (socket, peer) = UnixStream::pair().unwrap();
    let file = Rc::new(ServedFile::from(std::fs::File::open("/dev/null").unwrap()));
    Case {
        reads: Reads::new(
            Reader1(Rc::clone(&reader)),
            &options,
            &ONE_BY_ONE,
            &Arc::new(Waker::eventfd().unwrap()),
        ),
        reader,
        socket,
        peer,
        file,
    }
}

fn key(slot: u32) -> Key {
    Key { slot, generation: 1 }
}

impl Case {
    fn send(&mut self, slot: u32, offset: u64) -> io::Result<Sent> {
        let (socket, file) = (self.socket.as_fd(), &self.file);
        let transfer =
            Transfer { key: key(slot), socket, head: b"", file, offset, len: 4, at_once: 4 };
        self.reads.send(transfer)
    }

    fn reap(&mut self) -> Vec<u32> {
        let mut ready = Vec::new();
        self.reads.reap(&mut ready).unwrap();
        ready.into_iter().map(|key| key.slot).collect()
    }

    fn received(&mut self) -> Vec<u8> {
        let mut bytes = [0; 4];
        self.peer.read_exact(&mut bytes).unwrap();
        bytes.to_vec()
    }
}

#[test]
fn reads_that_find_no_room_follow_in_their_order() {
    let mut case = case();
    for slot in 0..3 {
        assert_eq!(case.send(slot, u64::from(slot)).unwrap(), Sent::Later);
    }
    for slot in 0..3 {
        end(&case.reader, &[b'a' + slot as u8; 4]);
        assert_eq!(case.reap(), [slot]);
        assert_eq!(case.send(slot, u64::from(slot)).unwrap(), Sent::Bytes(4));
        assert_eq!(case.received(), [b'a' + slot as u8; 4]);
    }
    assert_eq!(case.reader.borrow().begun, [0, 1, 2]);
    assert!((0..3).all(|slot| !case.reads.has(key(slot))));
}

#[test]
fn an_error_reaches_its_connection_and_no_other() {
    let mut case = case();
    assert_eq!(case.send(5, 13).unwrap_err().to_string(), "unlucky");
    // The failing read waits behind another read, and then fails in `reap`.
    assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
    assert_eq!(case.send(6, 6).unwrap(), Sent::Later);
    assert_eq!(case.send(5, 13).unwrap(), Sent::Later);
    end(&case.reader, b"good");
    assert_eq!(case.reap(), [0, 5]);
    end(&case.reader, b"next");
    assert_eq!(case.reap(), [6]);
    assert_eq!(case.send(5, 13).unwrap_err().to_string(), "unlucky");
    assert_eq!(case.send(6, 6).unwrap(), Sent::Bytes(4));
}

#[test]
fn what_ended_before_the_reader_failed_has_ended() {
    let mut case = case();
    assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
    end(&case.reader, b"done");
    case.reader.borrow_mut().fails = true;
    assert_eq!(case.reads.reap(&mut Vec::new()).unwrap_err().to_string(), "broken");
    assert_eq!(case.reap(), [0]);
    assert_eq!(case.send(0, 0).unwrap(), Sent::Bytes(4));
    assert_eq!(case.received(), b"done");
}

#[test]
fn a_connection_that_is_gone_is_not_named_and_its_buffer_stays_until_the_end() {
    let mut case = case();
    assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
    assert_eq!(case.send(1, 1).unwrap(), Sent::Later);
    case.reads.forget(key(0));
    case.reads.forget(key(1));
    // Another connection has the slot now.
    assert_eq!(case.send(0, 7).unwrap(), Sent::Later);
    end(&case.reader, b"gone");
    assert_eq!(case.reap(), [0; 0]);
    assert_eq!(case.reader.borrow().begun, [0, 7]);
    end(&case.reader, b"mine");
    assert_eq!(case.reap(), [0]);
    assert_eq!(case.send(0, 7).unwrap(), Sent::Bytes(4));
    assert_eq!(case.received(), b"mine");
}

#[test]
fn the_end_of_the_file_before_the_transfer_s_is_an_error() {
    let mut case = case();
    assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
    end(&case.reader, b"");
    assert_eq!(case.reap(), [0]);
    assert_eq!(case.send(0, 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn times_are_those_of_the_connection_and_told_once() {
    let mut case = case();
    assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
    assert_eq!(case.send(1, 1).unwrap(), Sent::Later);
    end(&case.reader, b"zero");
    assert_eq!(case.reap(), [0]);
    assert_eq!(case.reads.take_times(key(0)).reads, 0);
    assert_eq!(case.send(0, 0).unwrap(), Sent::Bytes(4));
    let times = case.reads.take_times(key(0));
    assert_eq!((times.backend, times.reads), (Some("one by one"), 1));
    assert_eq!(times.longest, times.queue + times.read + times.back);
    assert_eq!(case.reads.take_times(key(0)), ReadTimes::default());
    // The second read waited until the first had ended.
    end(&case.reader, b"ones");
    assert_eq!(case.reap(), [1]);
    assert_eq!(case.send(1, 1).unwrap(), Sent::Bytes(4));
    assert!(!case.reads.take_times(key(1)).queue.is_zero());
    // The times of a closed connection do not go to the next connection in its slot.
    assert_eq!(case.send(2, 2).unwrap(), Sent::Later);
    end(&case.reader, b"twos");
    assert_eq!(case.reap(), [2]);
    assert_eq!(case.send(2, 2).unwrap(), Sent::Bytes(4));
    case.reads.forget(key(2));
    assert_eq!(case.reads.take_times(key(2)), ReadTimes::default());
}

#[test]
fn what_is_in_the_page_cache_is_read_at_once_behind_what_is_not() {
    // Not in /tmp, which may be a tmpfs.
    let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.write_all(b"0123456789").unwrap();
    file.sync_all().unwrap();
    let options = FileIoOptions { timed: true, ..short_steps() };
    let counts = Arc::clone(&options.counts);
    let counted = || (counts.reads.load(Ordering::Relaxed), counts.at_once.load(Ordering::Relaxed));
    let mut case = case_with(options);
    // /dev/null cannot tell what is cached, so the read goes to the reader.
    assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
    assert_eq!(counted(), (1, 0));
    case.file = Rc::new(ServedFile::from(file));
    assert_eq!(case.send(1, 2).unwrap(), Sent::Bytes(4));
    assert_eq!(case.received(), b"2345");
    // The file ends before the transfer: the bytes that exist are sent.
    assert_eq!(case.send(1, 7).unwrap(), Sent::Bytes(3));
    assert_eq!(counted(), (3, 2));
    assert_eq!(case.reads.take_times(key(1)).reads, 2);
    assert!(!case.reads.has(key(1)) && case.reader.borrow().begun == [0]);
    // An offset at the file's end: the read goes to the reader, which finds the end.
    assert_eq!(case.send(1, 10).unwrap(), Sent::Later);
    rustix::fs::fadvise(&case.file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    if page_cache::has_pages(case.file.as_fd(), 0, 10) {
        return drover_testing::skip!("the file system keeps the pages, or the kernel cannot say");
    }
    assert_eq!(case.send(2, 0).unwrap(), Sent::Later);
    assert_eq!(counted(), (5, 2));
}

#[test]
fn dropping_waits_for_what_is_under_way() {
    let mut case = case();
    assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
    drop(case.reads);
    assert!(case.reader.borrow().current.is_none());
}

/// The peer receives nothing until all three reads have ended: the pages of each read wait in the socket
/// while the next read is done.
#[test]
fn memory_that_is_lent_is_not_read_into_again() {
    let mut case = case();
    case.reads.lends = true;
    for letter in *b"abc" {
        assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
        end(&case.reader, &[letter; 4]);
        assert_eq!(case.reap(), [0]);
        assert_eq!(case.send(0, 0).unwrap(), Sent::Bytes(4));
    }
    for letter in *b"abc" {
        assert_eq!(case.received(), [letter; 4]);
    }
}

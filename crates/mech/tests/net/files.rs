//! What every file backend has to do, on every mechanism: any part of a file, to many at once, and to
//! clients that leave; whatever is left behind must not reach anybody else.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use drover_mech::fileio::{self, Backend};
use drover_mech::files::served::ServedFile;
use drover_mech::net::{AcceptBatch, Body, Conn, Executor, Listener, Net, NetOptions, Remote};
use drover_sys::socket::{ListenOptions, listen, local_address};

use crate::{PATIENCE, on_every_mechanism, seccomp};

/// The file's length: a few steps of [`STEP`], and a tail that is aligned to nothing.
const LEN: usize = 3 * 65_536 + 4_097 + 13;

/// What is read at a time, so that files take many steps.
const STEP: usize = 16 * 1024;

/// A request: what to do, and which part of the file.
const REQUEST: usize = 17;

/// The part is sent.
const SEND: u8 = 0;
/// Sending begins, and the coroutine ends at once.
const GIVE_UP: u8 = 1;
/// The part is sent after more than a second.
const LATE: u8 = 2;

fn content() -> Vec<u8> {
    pattern(LEN)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

/// The file of a test; not in /tmp, which may have no disk behind it.
fn file(content: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.write_all(content).unwrap();
    file.as_file().sync_all().unwrap();
    file
}

/// A worker that sends parts of a file.
struct Worker {
    address: SocketAddr,
    remote: Remote,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(options: NetOptions, path: &Path) -> Worker {
        let socket = listen(([127, 0, 0, 1], 0).into(), ListenOptions::default()).unwrap();
        let address = local_address(socket.as_fd()).unwrap();
        let (send, receive) = mpsc::channel();
        let path = path.to_owned();
        let thread = thread::spawn(move || {
            let net = Net::open(&options).unwrap();
            send.send(net.remote()).unwrap();
            let file = Rc::new(ServedFile::from(std::fs::File::open(path).unwrap()));
            let mut executor = Executor::new(&net, PATIENCE);
            let listener = Listener::open(&net, socket).unwrap();
            executor.listen(listener, |listener| async move {
                let fatal = |error: &_| panic!("accept: {error}");
                listener.run(AcceptBatch::All, fatal).await.unwrap();
            });
            executor.run(|conn| serve(conn, Rc::clone(&file))).unwrap();
        });
        Worker { address, remote: receive.recv().unwrap(), thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It fails only for a worker that has ended already.
        let _ = self.remote.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

async fn serve(conn: Conn<'_>, file: Rc<ServedFile>) {
    loop {
        while conn.input_len() < REQUEST {
            if !matches!(conn.fill_idle().await, Ok(1..)) {
                return;
            }
        }
        let (what, offset, len) = conn.io(|io| {
            let number = |at: usize| u64::from_le_bytes(io.input[at..at + 8].try_into().unwrap());
            (REQUEST, (io.input[0], number(1), number(9)))
        });
        let body = Body::File { file: Rc::clone(&file), offset, len };
        if what == LATE {
            conn.sleep_until(conn.net().now() + Duration::from_millis(1_100)).await;
        }
        if what == GIVE_UP {
            conn.queue(body);
            // Whatever comes of it.
            let _begun = poll_fn(|_| Poll::Ready(conn.poll_send())).await;
            return;
        }
        if conn.send(body, None).await.is_err() {
            return;
        }
    }
}

fn ask(stream: &mut TcpStream, what: u8, offset: u64, len: u64) {
    stream.write_all(&request(what, offset, len)).unwrap();
}

fn request(what: u8, offset: u64, len: u64) -> Vec<u8> {
    [&[what][..], &offset.to_le_bytes(), &len.to_le_bytes()].concat()
}

fn receive(stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Runs `case` for each backend on each mechanism, with a worker of its own. Those that read apart do
/// it with all, and with what is not in the page cache.
fn on_each(case: impl Fn(&Worker, &str)) {
    let file = file(&content());
    // Rings and pools for a hundred pairs at a time need more than the usual limit.
    drover_sys::process::raise_open_files_limit().unwrap();
    on_every_mechanism(|mechanism| {
        let backends = fileio::ALL.iter().copied().chain([fileio::auto()]);
        for backend in backends.filter(|backend| is_usable(backend)) {
            let at_once: &[bool] = if backend.reads_apart { &[false, true] } else { &[true] };
            for &cached_at_once in at_once {
                let file_options = fileio::FileIoOptions {
                    read_ahead: STEP,
                    read_threads: 2,
                    cached_at_once,
                    ..Default::default()
                };
                let options =
                    NetOptions { files: backend, file_options, ..NetOptions::new(mechanism) };
                case(&Worker::start(options, file.path()), backend.name);
            }
        }
    });
}

pub(crate) fn is_usable(backend: &Backend) -> bool {
    match backend.probe() {
        Ok(()) => true,
        Err(reason) => {
            drover_testing::skip!("{}: {reason}", backend.name);
            false
        }
    }
}

#[test]
fn any_part_of_a_file_arrives_as_it_is() {
    let content = content();
    on_each(|worker, backend| {
        let mut stream = worker.connect();
        for start in [0, 1, 4_095, 4_096, 4_097, STEP - 1, STEP, 65_537, LEN - 1] {
            for len in [1, 511, 4_096, STEP + 1, LEN] {
                let len = len.min(LEN - start);
                ask(&mut stream, SEND, start as u64, len as u64);
                let part = receive(&mut stream, len);
                assert!(part == content[start..start + len], "{backend}: {len} from {start} on");
            }
        }
    });
}

#[test]
fn many_connections_get_each_its_own_part_in_its_own_order() {
    let content = content();
    on_each(|worker, backend| {
        let mut streams: Vec<_> = (0..30).map(|_| worker.connect()).collect();
        let parts =
            |number: usize| [(number * 4_001, 60_000), (number * 17, 1), (number, LEN - 40)];
        for (number, stream) in streams.iter_mut().enumerate() {
            for (start, len) in parts(number) {
                ask(stream, SEND, start as u64, len as u64);
            }
        }
        for (number, stream) in streams.iter_mut().enumerate() {
            for (start, len) in parts(number) {
                let part = receive(stream, len);
                assert!(part == content[start..start + len], "{backend}: {len} from {start} on");
            }
        }
    });
}

#[test]
fn what_was_read_for_one_that_left_reaches_nobody_else() {
    let content = content();
    on_each(|worker, backend| {
        for round in 0..15 {
            // The coroutine ends while its file is read; then a client, while it is sent.
            let mut gone = worker.connect();
            ask(&mut gone, GIVE_UP, 0, LEN as u64);
            let mut leaves = worker.connect();
            (0..20).for_each(|_| ask(&mut leaves, SEND, 7, LEN as u64 - 7));
            drop(leaves);
            // Their slots are taken by others, which ask for other parts.
            let mut stream = worker.connect();
            let start = 100 + round;
            ask(&mut stream, SEND, start as u64, 50_000);
            let part = receive(&mut stream, 50_000);
            assert!(part == content[start..start + 50_000], "{backend}: from {start} on");
        }
    });
}

#[test]
fn a_stop_lets_a_file_that_is_being_sent_come_to_its_end() {
    let content = content();
    on_each(|worker, backend| {
        let mut stream = worker.connect();
        // In one segment: a stream that is closed with requests unread ends with a reset, which has
        // the kernel drop what was not received yet.
        stream.write_all(&request(SEND, 0, LEN as u64).repeat(20)).unwrap();
        let first = receive(&mut stream, 1000);
        worker.remote.stop().unwrap();
        // What was asked for and heard of before the stop is sent whole, and nothing in part.
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        let all = [first, rest].concat();
        assert!(!all.is_empty() && all.len().is_multiple_of(LEN), "{backend}: {}", all.len());
        assert!(all.chunks(LEN).all(|file| file == content), "{backend}");
    });
}

/// More than a MiB at a time, where `auto` splices: to more connections than it has pipes, none of
/// which reads until all have asked, and some of which leave.
#[test]
fn large_parts_reach_many_that_are_slow_as_they_are() {
    let content = pattern(5_000_000);
    let file = file(&content);
    on_every_mechanism(|mechanism| {
        for backend in fileio::AUTO_TAKES.iter().copied().chain([fileio::auto()]) {
            let options = NetOptions { files: backend, ..NetOptions::new(mechanism) };
            let worker = Worker::start(options, file.path());
            let mut streams: Vec<_> = (0..8).map(|_| worker.connect()).collect();
            for (start, stream) in streams.iter_mut().enumerate() {
                ask(stream, SEND, start as u64, (content.len() - start) as u64);
                assert_eq!(receive(stream, 1)[0], content[start]);
            }
            streams.drain(..3);
            for (start, stream) in (3..).zip(&mut streams) {
                let rest = receive(stream, content.len() - start - 1);
                assert!(rest == content[start + 1..], "{}: from {start} on", backend.name);
            }
        }
    });
}

/// The bytes of a file may not be at hand, and a backend that does not wait for them says `EAGAIN`,
/// as it does when the socket is full.
#[test]
fn a_head_is_sent_once_though_the_file_cannot_be_read() {
    let file = file(&content());
    on_every_mechanism(|mechanism| {
        let backend = fileio::by_name("splice").unwrap();
        let options = NetOptions { files: backend, ..NetOptions::new(mechanism) };
        let path = file.path().to_owned();
        let worker =
            crate::Worker::start(options, AcceptBatch::All, async move |conn: Conn<'_>| {
                let file: Rc<ServedFile> = Rc::new(std::fs::File::open(&path).unwrap().into());
                conn.fill().await.unwrap();
                let refused = seccomp::refuse(&[libc::SYS_splice], libc::EAGAIN);
                let head = if refused.is_ok() { "head" } else { "" };
                conn.io(|io| (io.input.len(), io.output.extend_from_slice(head.as_bytes())));
                // It cannot be sent.
                let _ = conn.send(Body::File { file, offset: 0, len: 1000 }, None).await;
            });
        let mut stream = worker.connect();
        stream.write_all(b"?").unwrap();
        let mut received = Vec::new();
        stream.take(1000).read_to_end(&mut received).unwrap();
        if received.len() == 1000 {
            return drover_testing::skip!("no seccomp");
        }
        assert!(received.is_empty() || received == b"head", "{}", received.escape_ascii());
    });
}

/// What was in the page cache a second ago may have gone: the worker must not wait for the disk.
#[test]
fn what_was_cached_a_while_ago_is_not_taken_to_be_there() {
    let served = RefCell::new(Vec::new());
    on_every_mechanism(|mechanism| {
        let file = file(&content());
        let file_options = fileio::FileIoOptions::default();
        let counts = Arc::clone(&file_options.counts);
        let files = fileio::auto();
        let options = NetOptions { files, file_options, ..NetOptions::new(mechanism) };
        let worker = Worker::start(options, file.path());
        let mut stream = worker.connect();
        ask(&mut stream, SEND, 0, LEN as u64);
        assert!(receive(&mut stream, LEN) == content());
        served.borrow_mut().push((mechanism.name, worker, stream, file, counts));
    });
    let mut served = served.into_inner();
    served.retain_mut(|(name, _, stream, file, _)| {
        let file = file.as_file().as_fd();
        drover_mech::files::bytes::drop_cached_pages(file).unwrap();
        let gone = drover_mech::files::bytes::cached_pages(file, 0, LEN as u64)
            .is_ok_and(|pages| pages == 0);
        if gone {
            ask(stream, LATE, 0, LEN as u64);
        } else {
            drover_testing::skip!(
                "{name}: the file system keeps the pages, or the kernel cannot say"
            );
        }
        gone
    });
    for (name, _, stream, _, counts) in &mut served {
        assert!(receive(stream, LEN) == content());
        assert!(counts.reads.load(Ordering::Relaxed) > 0, "{name} did not look");
    }
}

//! Clients that do not read cost a bounded amount of memory, and keep nobody else waiting.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use drover_mech::fileio::{self, Backend, ReadMemory};
use drover_mech::files::served::ServedFile;
use drover_mech::mechanisms::Mechanism;
use drover_mech::net::{AcceptBatch, Body, Conn, NetOptions};

use crate::files::is_usable;
use crate::{Worker, on_every_mechanism};

/// Larger than what a socket takes whose peer does not read.
const LEN: usize = 6 << 20;
/// More than all of the memory, if each kept a buffer.
const CLIENTS: usize = 12;
const STEP: usize = 64 * 1024;

/// What the file begins with, over and over; of an odd length, so that a piece that has moved shows.
fn piece() -> Vec<u8> {
    (0..65_521).map(|at: usize| (at * 31 % 251) as u8).collect()
}

/// A file, not in the page cache as far as the file system lets it go.
fn cold_file() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let content = piece().repeat(LEN.div_ceil(piece().len()));
    file.write_all(&content[..LEN]).unwrap();
    file.as_file().sync_all().unwrap();
    drover_mech::files::bytes::drop_cached_pages(file.as_file().as_fd()).unwrap();
    file
}

/// A worker that sends as much of the file as it is asked for, from its beginning.
fn serve(options: NetOptions, path: &std::path::Path) -> Worker {
    let path = path.to_owned();
    Worker::start(options, AcceptBatch::All, async move |conn: Conn<'_>| {
        let file: Rc<ServedFile> = Rc::new(std::fs::File::open(&path).unwrap().into());
        loop {
            while conn.input_len() < 8 {
                if !matches!(conn.fill_idle().await, Ok(1..)) {
                    return;
                }
            }
            let len = conn.io(|io| (8, u64::from_le_bytes(io.input[..8].try_into().unwrap())));
            let body = Body::File { file: Rc::clone(&file), offset: 0, len };
            if conn.send(body, None).await.is_err() {
                return;
            }
        }
    })
}

fn ask(worker: &Worker, len: usize) -> TcpStream {
    let mut stream = worker.connect();
    stream.write_all(&(len as u64).to_le_bytes()).unwrap();
    stream
}

/// Asserts that the first `len` bytes come.
#[track_caller]
fn receive(stream: &mut TcpStream, len: usize, backend: &Backend) {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).unwrap_or_else(|error| panic!("{}: {error}", backend.name));
    let piece = piece();
    let right = bytes.chunks(piece.len()).all(|chunk| *chunk == piece[..chunk.len()]);
    assert!(right, "{}", backend.name);
}

/// Backends that read into memory, and what is taken by itself.
fn reading() -> impl Iterator<Item = &'static Backend> {
    let apart = fileio::ALL.iter().copied().filter(|backend| backend.reads_apart);
    apart.chain([fileio::auto()]).filter(|backend| is_usable(backend))
}

fn options(mechanism: &'static Mechanism, backend: &'static Backend) -> NetOptions {
    let file_options = fileio::FileIoOptions {
        read_ahead: STEP,
        read_threads: 2,
        // Whatever is in the page cache: all is read elsewhere.
        cached_at_once: false,
        read_memory: ReadMemory::of(ReadMemory::LEAST),
        ..Default::default()
    };
    NetOptions { files: backend, file_options, ..NetOptions::new(mechanism) }
}

#[test]
fn clients_that_do_not_read_have_a_bounded_share_and_others_are_served() {
    on_every_mechanism(|mechanism| {
        for backend in reading() {
            let file = cold_file();
            let options = options(mechanism, backend);
            let memory = Arc::clone(&options.file_options.read_memory);
            // The memory is that of all workers.
            let workers = [serve(options.clone(), file.path()), serve(options, file.path())];
            let mut silent: Vec<_> =
                (0..CLIENTS).map(|number| ask(&workers[number % 2], LEN)).collect();
            for worker in &workers {
                for len in [1, 3 * STEP + 5] {
                    receive(&mut ask(worker, len), len, backend);
                }
            }
            assert!(memory.most_held() <= memory.limit(), "{}", backend.name);
            // Who reads after all gets all of it.
            receive(&mut silent[0], LEN, backend);
            drop(silent);
            drop(workers);
            assert!(memory.most_held() > 0 || backend.name == "auto", "{}", backend.name);
            assert_eq!(memory.held(), 0, "{}: all was given back", backend.name);
        }
    });
}

/// A file that has come into the page cache is sent from there.
#[test]
fn clients_that_do_not_read_keep_no_memory_of_what_is_cached() {
    on_every_mechanism(|mechanism| {
        let file = cold_file();
        if !matches!(
            drover_mech::files::bytes::cached_pages(file.as_file().as_fd(), 0, LEN as u64),
            Ok(0)
        ) {
            return drover_testing::skip!(
                "the file system keeps the pages, or the kernel cannot say"
            );
        }
        let mut options = options(mechanism, fileio::auto());
        let memory = ReadMemory::of(64 << 20);
        options.file_options.read_memory = Arc::clone(&memory);
        let worker = serve(options, file.path());
        // A worker keeps some buffers for the next reads.
        const CLIENTS: usize = 64;
        let silent: Vec<_> = (0..CLIENTS).map(|_| ask(&worker, LEN)).collect();
        for mut stream in &silent {
            stream.read_exact(&mut [0]).unwrap();
        }
        receive(&mut ask(&worker, LEN), LEN, fileio::auto());
        let most = (CLIENTS * STEP) as u64;
        assert!(memory.held() < most, "{} of {most}", memory.held());
        drop(silent);
    });
}

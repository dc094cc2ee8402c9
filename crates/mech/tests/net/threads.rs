//! Workers on threads of their own.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use drover_mech::net::{Conn, NetOptions, WorkerThread};

use crate::{PATIENCE, echo, on_every_mechanism};

fn connect(listener: &TcpListener) -> TcpStream {
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_worker_thread_serves_and_stops() {
    on_every_mechanism(|mechanism| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = connect(&listener);
        let served = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&served);
        let serve = async move |conn: Conn<'_>| {
            echo(conn).await;
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let worker = WorkerThread::start(NetOptions::new(mechanism), listener, serve).unwrap();
        stream.write_all(b"to and fro").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = String::new();
        stream.read_to_string(&mut back).unwrap();
        assert_eq!(back, "to and fro");
        worker.stop().unwrap();
        assert_eq!(served.load(Ordering::Relaxed), 1, "{}", mechanism.name);
    });
}

#[test]
fn a_worker_thread_ends_by_its_remote_or_when_it_is_dropped() {
    on_every_mechanism(|mechanism| {
        for dropped in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut stream = connect(&listener);
            let worker = WorkerThread::start(NetOptions::new(mechanism), listener, echo).unwrap();
            if dropped {
                drop(worker);
            } else {
                worker.remote().stop().unwrap();
                worker.join().unwrap();
            }
            // The idle connection ends with its worker.
            assert_eq!(drover_testing::uninterrupted(|| stream.read(&mut [0])).unwrap(), 0);
        }
    });
}

#[test]
fn a_panic_of_a_coroutine_comes_out_of_stop() {
    on_every_mechanism(|mechanism| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = connect(&listener);
        let serve = async |_conn: Conn<'_>| panic!("a panic that is part of this test");
        let worker = WorkerThread::start(NetOptions::new(mechanism), listener, serve).unwrap();
        // The socket is closed when the panic has unwound the thread.
        assert_eq!(drover_testing::uninterrupted(|| stream.read(&mut [0])).unwrap(), 0);
        let stopped = std::thread::spawn(move || worker.stop()).join();
        let panic = stopped.unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"a panic that is part of this test"));
    });
}

#[test]
fn what_a_worker_cannot_wait_for_is_told_at_the_start() {
    on_every_mechanism(|mechanism| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = NetOptions { budget: 0, ..NetOptions::new(mechanism) };
        let error = WorkerThread::start(options, listener, echo).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

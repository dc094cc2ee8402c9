//! Deadlines, sleeps and wake-ups.

use std::cell::Cell;
use std::io::{ErrorKind, Read};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use drover_mech::net::{AcceptBatch, Body, Conn, Executor, Net, NetOptions};

use crate::{PATIENCE, Worker, on_every_mechanism};

fn fine(mechanism: &'static drover_mech::mechanisms::Mechanism) -> NetOptions {
    NetOptions { timer_resolution: Duration::from_millis(1), ..NetOptions::new(mechanism) }
}

/// Tells the peer how its wait for input ended.
async fn wait_for_input(conn: Conn<'_>) {
    conn.set_deadline(Some(Duration::from_millis(30)));
    let verdict = match conn.fill().await {
        Ok(_) => b"input",
        Err(error) if error.kind() == ErrorKind::TimedOut => b"timed",
        Err(_) => b"error",
    };
    conn.set_deadline(None);
    conn.io(|io| (io.input.len(), io.output.extend_from_slice(verdict)));
    let _ = conn.send(Body::None, None).await;
}

#[test]
fn a_deadline_ends_a_wait_for_input() {
    on_every_mechanism(|mechanism| {
        let worker = Worker::start(fine(mechanism), AcceptBatch::All, wait_for_input);
        let mut silent = worker.connect();
        let mut verdict = [0; 5];
        silent.read_exact(&mut verdict).unwrap();
        assert_eq!(&verdict, b"timed");
    });
}

/// Only the deadline resumes the coroutine, and what it waits for is done then.
#[test]
fn what_is_done_at_the_deadline_has_come_in_time() {
    on_every_mechanism(|mechanism| {
        let worker =
            Worker::start(fine(mechanism), AcceptBatch::All, async move |conn: Conn<'_>| {
                conn.set_deadline(Some(Duration::from_millis(1)));
                let mut asked = 0;
                let is_second = || {
                    asked += 1;
                    asked > 1
                };
                let answer = if conn.until(is_second).await.is_ok() { b"done" } else { b"late" };
                conn.io(|io| (0, io.output.extend_from_slice(answer)));
                let _ = conn.send(Body::None, None).await;
            });
        let mut answer = String::new();
        worker.connect().read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "done", "{}", mechanism.name);
    });
}

/// Sends more than the socket buffers hold and tells how that ended.
fn send_much(
    mechanism: &'static drover_mech::mechanisms::Mechanism,
    patience: Duration,
) -> (Worker, mpsc::Receiver<Result<u64, ErrorKind>>) {
    let (tell, told) = mpsc::channel();
    let worker = Worker::start(fine(mechanism), AcceptBatch::All, async move |conn: Conn<'_>| {
        let body: Rc<[u8]> = vec![7; 64 << 20].into();
        conn.set_deadline(Some(patience));
        let sent = conn.send(Body::Shared(body), Some(patience)).await;
        tell.send(sent.map_err(|error| error.kind())).unwrap();
    });
    (worker, told)
}

#[test]
fn a_peer_that_takes_nothing_is_given_up() {
    on_every_mechanism(|mechanism| {
        let (worker, told) = send_much(mechanism, Duration::from_millis(50));
        let _stalled = worker.connect();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Err(ErrorKind::TimedOut));
    });
}

#[test]
fn a_peer_that_reads_gets_everything() {
    on_every_mechanism(|mechanism| {
        let (worker, told) = send_much(mechanism, PATIENCE);
        let mut reader = worker.connect();
        assert_eq!(std::io::copy(&mut reader, &mut std::io::sink()).unwrap(), 64 << 20);
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Ok(64 << 20));
    });
}

#[test]
fn a_sleep_ends_neither_early_nor_never() {
    on_every_mechanism(|mechanism| {
        let net = Net::open(&NetOptions::new(mechanism)).unwrap();
        let begin = Instant::now();
        let woke = Cell::new(None);
        let mut executor = Executor::new(&net, PATIENCE);
        let woke_at = &woke;
        executor.service(|conn| async move {
            conn.sleep_until(begin + Duration::from_millis(20)).await;
            woke_at.set(Some(Instant::now()));
        });
        executor.run(|_| std::future::ready(())).unwrap();
        assert!(woke.get().unwrap() >= begin + Duration::from_millis(20));
    });
}

#[test]
fn another_thread_resumes_a_coroutine() {
    on_every_mechanism(|mechanism| {
        let (give_key, take_key) = mpsc::channel();
        let (give, take) = mpsc::channel();
        let take = std::sync::Arc::new(std::sync::Mutex::new(take));
        let worker = Worker::start(
            NetOptions::new(mechanism),
            AcceptBatch::All,
            async move |conn: Conn<'_>| {
                give_key.send(conn.key()).unwrap();
                let number: u8 = std::future::poll_fn(|_| match take.lock().unwrap().try_recv() {
                    Ok(number) => std::task::Poll::Ready(number),
                    Err(_) => std::task::Poll::Pending,
                })
                .await;
                conn.io(|io| (0, io.output.push(number)));
                conn.send(Body::None, None).await.unwrap();
            },
        );
        let mut stream = worker.connect();
        let key = take_key.recv_timeout(PATIENCE).unwrap();
        give.send(42).unwrap();
        worker.remote.wake(key).unwrap();
        let mut number = [0];
        stream.read_exact(&mut number).unwrap();
        assert_eq!(number, [42]);
    });
}

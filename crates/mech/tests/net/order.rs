//! What is written while something is being sent comes behind it, and takes nothing of it away.

use std::io::{Read, Write};
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::task::Poll;

use drover_mech::net::{AcceptBatch, Answer, Body, Conn, NetOptions};

use crate::{PATIENCE, Worker, on_every_mechanism};

/// More than a socket takes while its peer does not read.
const LARGE: usize = 24 << 20;

fn large(byte: u8) -> Body {
    Body::Shared(Rc::from(vec![byte; LARGE]))
}

/// Sends until the socket takes no more: some of what is to be sent is not.
async fn send_some(conn: &Conn<'_>) {
    std::future::poll_fn(|_| {
        while let Poll::Ready(sent) = conn.poll_send() {
            assert_ne!(sent.unwrap(), 0, "the peer does not read");
        }
        Poll::Ready(())
    })
    .await;
}

/// What a peer that reads nothing before it is told to receives of `serve`.
fn received(
    options: NetOptions,
    serve: impl AsyncFn(Conn<'_>, Sender<()>) + Send + 'static,
) -> Vec<u8> {
    let (read, may_read) = channel();
    let serve = async move |conn: Conn<'_>| serve(conn, read.clone()).await;
    let worker = Worker::start(options, AcceptBatch::All, serve);
    let mut stream = worker.connect();
    stream.write_all(b"?").unwrap();
    may_read.recv_timeout(PATIENCE).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    received
}

/// Asserts that `received` is made of these runs of one byte each.
#[track_caller]
fn assert_runs(received: &[u8], runs: &[(u8, usize)]) {
    // Without optimisation a loop over so many bytes takes a second, and to compare slices takes none.
    let expected = runs.iter().map(|&(byte, len)| vec![byte; len]).collect::<Vec<_>>().concat();
    if received == expected {
        return;
    }
    let found: Vec<_> =
        received.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).take(10).collect();
    assert_eq!(found, runs);
}

#[test]
fn a_look_at_the_input_takes_nothing_from_what_is_being_sent() {
    on_every_mechanism(|mechanism| {
        let received = received(NetOptions::new(mechanism), async move |conn: Conn<'_>, read| {
            conn.fill().await.unwrap();
            conn.queue(large(b'a'));
            send_some(&conn).await;
            conn.io(|io| (io.input.len(), ()));
            read.send(()).unwrap();
            conn.flush(None).await.unwrap();
        });
        assert_runs(&received, &[(b'a', LARGE)]);
    });
}

#[test]
fn what_is_written_behind_a_body_that_is_partly_sent_comes_after_it() {
    on_every_mechanism(|mechanism| {
        let received = received(NetOptions::new(mechanism), async move |conn: Conn<'_>, read| {
            conn.fill().await.unwrap();
            conn.io(|io| (io.input.len(), io.output.extend_from_slice(b"h")));
            conn.queue(large(b'a'));
            send_some(&conn).await;
            conn.io(|io| (0, io.output.extend_from_slice(b"bb")));
            send_some(&conn).await;
            conn.io(|io| (0, io.output.extend_from_slice(b"b")));
            conn.queue(large(b'c'));
            read.send(()).unwrap();
            conn.flush(None).await.unwrap();
            conn.io(|io| (0, io.output.extend_from_slice(b"dd")));
            conn.flush(None).await.unwrap();
        });
        let expected = [(b'h', 1), (b'a', LARGE), (b'b', 3), (b'c', LARGE), (b'd', 2)];
        assert_runs(&received, &expected);
    });
}

#[test]
fn an_answer_behind_one_that_is_partly_sent_comes_after_it() {
    on_every_mechanism(|mechanism| {
        for expects_input in [false, true] {
            let received =
                received(NetOptions::new(mechanism), async move |conn: Conn<'_>, read| {
                    conn.fill().await.unwrap();
                    for byte in [b'a', b'c'] {
                        let answer = conn.respond(|io| {
                            io.output.push(byte);
                            (
                                Answer {
                                    consumed: io.input.len(),
                                    body: large(byte + 1),
                                    expects_input,
                                },
                                (),
                            )
                        });
                        let progress = answer.1;
                        assert!(
                            matches!(progress.done, Ok(false)) && progress.sent < LARGE as u64,
                            "{progress:?}"
                        );
                    }
                    read.send(()).unwrap();
                    conn.flush(None).await.unwrap();
                });
            let expected = [(b'a', 1), (b'b', LARGE), (b'c', 1), (b'd', LARGE)];
            assert_runs(&received, &expected);
        }
    });
}

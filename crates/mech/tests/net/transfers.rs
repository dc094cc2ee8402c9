//! Bytes arrive whole and in order, however they are cut and whoever is slow.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use drover_mech::fileio;
use drover_mech::files::served::ServedFile;
use drover_mech::mechanisms::MechanismKind;
use drover_mech::net::{AcceptBatch, Body, Conn, Net, NetOptions};
use drover_sys::socket::{ListenOptions, local_address};
use rustix::net::{AddressFamily, SocketType, bind, socket};

use crate::files::is_usable;
use crate::{Worker, echo, on_every_mechanism};

/// Bytes in which a lost, doubled or moved piece shows.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).take(len).collect()
}

fn exchange(worker: &Worker, message: &[u8]) {
    let mut stream = worker.connect();
    let mut back = vec![0; message.len()];
    stream.write_all(message).unwrap();
    stream.read_exact(&mut back).unwrap();
    assert!(back == message);
}

#[test]
fn echoes_to_many_connections_at_once() {
    on_every_mechanism(|mechanism| {
        let one = AcceptBatch::Most(NonZeroU32::MIN);
        for batch in [AcceptBatch::All, one] {
            let worker = Worker::start(NetOptions::new(mechanism), batch, echo);
            let mut streams: Vec<_> = (0..200).map(|_| worker.connect()).collect();
            for round in 0..3u8 {
                for (number, stream) in streams.iter_mut().enumerate() {
                    stream.write_all(&[round, number as u8]).unwrap();
                }
                for (number, stream) in streams.iter_mut().enumerate() {
                    let mut back = [0; 2];
                    stream.read_exact(&mut back).unwrap();
                    assert_eq!(back, [round, number as u8]);
                }
            }
        }
    });
}

#[test]
fn a_message_cut_into_single_bytes_comes_back_whole() {
    on_every_mechanism(|mechanism| {
        let worker = Worker::start(NetOptions::new(mechanism), AcceptBatch::All, echo);
        let mut stream = worker.connect();
        stream.set_nodelay(true).unwrap();
        for byte in pattern(300) {
            stream.write_all(&[byte]).unwrap();
            let mut back = [0];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(back, [byte]);
        }
    });
}

#[test]
fn a_half_closed_peer_still_gets_its_answer() {
    on_every_mechanism(|mechanism| {
        let worker = Worker::start(NetOptions::new(mechanism), AcceptBatch::All, echo);
        for _ in 0..50 {
            let mut stream = worker.connect();
            stream.write_all(b"last words").unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            assert_eq!(back, b"last words");
        }
    });
}

/// More than both socket buffers hold, to a peer that reads only afterwards:
/// every partial write happens.
#[test]
fn a_body_larger_than_the_socket_buffers_arrives_whole() {
    let expected = Arc::new(pattern(24 << 20));
    on_every_mechanism(|mechanism| {
        let body = Arc::clone(&expected);
        let worker = Worker::start(
            NetOptions::new(mechanism),
            AcceptBatch::All,
            async move |conn: Conn<'_>| {
                let body: Rc<[u8]> = Rc::from(&body[..]);
                send_after_one_byte(conn, Body::Shared(body)).await;
            },
        );
        let mut stream = worker.connect();
        stream.write_all(b"?").unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert!(back.starts_with(b"head") && back[4..] == expected[..]);
    });
}

/// The mechanism hears of such a connection only when it has to wait: here for room to send, then
/// for more to receive.
#[test]
fn a_connection_that_was_deferred_waits_in_both_directions() {
    let message = pattern(16 << 20);
    on_every_mechanism(|mechanism| {
        let how = ListenOptions { defer: true, ..ListenOptions::default() };
        let options = NetOptions::new(mechanism);
        let worker = Worker::start_on(how, options, AcceptBatch::All, echo);
        let mut stream = worker.connect();
        let mut sender = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.write_all(&message).unwrap());
            let mut back = vec![0; message.len()];
            stream.read_exact(&mut back).unwrap();
            assert!(back == message);
        });
        stream.write_all(b"more").unwrap();
        let mut back = [0; 4];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"more");
    });
}

#[test]
fn every_file_backend_sends_exactly_the_range_it_was_given() {
    let content = pattern(5 << 20);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &content).unwrap();
    let path = Arc::new(file.path().to_owned());
    on_every_mechanism(|mechanism| {
        for backend in fileio::ALL.iter().filter(|backend| is_usable(backend)) {
            let path = Arc::clone(&path);
            let options = NetOptions { files: backend, ..NetOptions::new(mechanism) };
            let worker = Worker::start(options, AcceptBatch::All, async move |conn: Conn<'_>| {
                let file: ServedFile = std::fs::File::open(&*path).unwrap().into();
                let body = Body::File { file: Rc::new(file), offset: 7, len: (5 << 20) - 9 };
                send_after_one_byte(conn, body).await;
            });
            let mut stream = worker.connect();
            stream.write_all(b"?").unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            assert!(back.starts_with(b"head"), "{}", backend.name);
            assert!(back[4..] == content[7..content.len() - 2], "{}", backend.name);
        }
    });
}

#[test]
fn a_file_shorter_than_promised_ends_the_connection() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"short").unwrap();
    let path = Arc::new(file.path().to_owned());
    on_every_mechanism(|mechanism| {
        for backend in fileio::ALL.iter().filter(|backend| is_usable(backend)) {
            let path = Arc::clone(&path);
            let options = NetOptions { files: backend, ..NetOptions::new(mechanism) };
            let worker = Worker::start(options, AcceptBatch::All, async move |conn: Conn<'_>| {
                let file: ServedFile = std::fs::File::open(&*path).unwrap().into();
                let body = Body::File { file: Rc::new(file), offset: 0, len: 100 };
                send_after_one_byte(conn, body).await;
            });
            let mut stream = worker.connect();
            stream.write_all(b"?").unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            assert_eq!(back, b"headshort", "{}", backend.name);
        }
    });
}

/// One coroutine that always has input must not keep the others waiting, nor
/// itself be forgotten when its budget ends.
#[test]
fn a_flood_on_one_connection_leaves_room_for_the_others() {
    on_every_mechanism(|mechanism| {
        let options = NetOptions { budget: 2, input_capacity: 512, ..NetOptions::new(mechanism) };
        let worker = Worker::start(options, AcceptBatch::All, swallow_and_count);
        let mut flood = worker.connect();
        let flooded = flood.try_clone().unwrap();
        let writer = std::thread::spawn(move || {
            let mut flooded = flooded;
            flooded.write_all(&pattern(2 << 20)).unwrap();
            flooded.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut other = worker.connect();
        other.write_all(b"12345").unwrap();
        other.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(count_told(&mut other), 5);
        assert_eq!(count_told(&mut flood), 2 << 20);
        writer.join().unwrap();
    });
}

#[test]
fn connects_and_reconnects_from_a_coroutine() {
    on_every_mechanism(|mechanism| {
        let worker = Worker::start(NetOptions::new(mechanism), AcceptBatch::All, echo);
        let address = worker.address;
        let net = Net::open(&NetOptions::new(mechanism)).unwrap();
        let executor = drover_mech::net::Executor::new(&net, crate::PATIENCE);
        for _ in 0..20 {
            net.spawn();
        }
        executor
            .run(|mut conn| async move {
                for _ in 0..3 {
                    let socket = drover_sys::socket::for_connect(address, None).unwrap();
                    conn.connect(socket, address).await.unwrap();
                    conn.io(|io| (0, io.output.extend_from_slice(b"ping")));
                    conn.send(Body::None, None).await.unwrap();
                    while conn.input_len() < 4 {
                        assert_ne!(conn.fill().await.unwrap(), 0);
                    }
                    conn.io(|io| (4, assert_eq!(io.input, b"ping")));
                }
            })
            .unwrap();
        exchange(&worker, b"the server is alive");
    });
}

#[test]
fn a_refused_connect_says_so() {
    on_every_mechanism(|mechanism| {
        // Bound, and nobody listens: one that was let go may be the next test's.
        let taken = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&taken, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let closed = local_address(taken.as_fd()).unwrap();
        let net = Net::open(&NetOptions::new(mechanism)).unwrap();
        let executor = drover_mech::net::Executor::new(&net, crate::PATIENCE);
        net.spawn();
        executor
            .run(|mut conn| async move {
                let socket = drover_sys::socket::for_connect(closed, None).unwrap();
                let error = conn.connect(socket, closed).await.unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
            })
            .unwrap();
    });
}

async fn send_after_one_byte(conn: Conn<'_>, body: Body) {
    if let Ok(1..) = conn.fill_idle().await {
        conn.io(|io| {
            io.output.extend_from_slice(b"head");
            (1, ())
        });
        let _ = conn.send(body, None).await;
    }
}

async fn swallow_and_count(conn: Conn<'_>) {
    let mut count = 0u64;
    while let Ok(received @ 1..) = conn.fill().await {
        count += received as u64;
        conn.io(|io| (io.input.len(), ()));
    }
    conn.io(|io| (0, io.output.extend_from_slice(&count.to_le_bytes())));
    conn.send(Body::None, None).await.unwrap();
}

fn count_told(stream: &mut std::net::TcpStream) -> u64 {
    let mut told = [0; 8];
    stream.read_exact(&mut told).unwrap();
    u64::from_le_bytes(told)
}

/// A message of which the middle is skipped: none of the rest is lost, wherever the cuts come.
#[test]
fn skipped_bytes_are_gone_and_those_behind_them_are_not() {
    const HEAD: usize = 10;
    const SKIPPED: usize = 3_000_000;
    on_every_mechanism(|mechanism| {
        let completes = matches!(mechanism.kind, MechanismKind::Completion { .. });
        let worker = Worker::start(
            NetOptions::new(mechanism),
            AcceptBatch::All,
            async move |conn: Conn<'_>| {
                while conn.input_len() < HEAD {
                    let received = conn.fill_some(7).await.unwrap();
                    assert!(completes || (1..=7).contains(&received), "{received}");
                }
                conn.io(|io| {
                    io.output.extend_from_slice(&io.input[..HEAD]);
                    (HEAD, ())
                });
                // The first bytes of what is skipped came with the head.
                let mut left = SKIPPED - conn.input_len();
                conn.io(|io| (io.input.len(), ()));
                while left > 0 {
                    let skipped = conn.skip(left).await.unwrap();
                    assert!((1..=left).contains(&skipped), "{skipped} of {left}");
                    left -= skipped;
                }
                while conn.input_len() < HEAD {
                    conn.fill().await.unwrap();
                }
                conn.io(|io| {
                    io.output.extend_from_slice(io.input);
                    (io.input.len(), ())
                });
                conn.send(Body::None, None).await.unwrap();
                assert_eq!(conn.skip(1).await.unwrap(), 0);
            },
        );
        let message = pattern(HEAD + SKIPPED + HEAD);
        let mut stream = worker.connect();
        stream.write_all(&message).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert_eq!(back, [&message[..HEAD], &message[HEAD + SKIPPED..]].concat());
    });
}

/// Up to so many bytes at a time, behind those that are there already; what is left is the next one's.
#[test]
fn a_fill_with_a_limit_keeps_to_it_and_leaves_the_rest() {
    const LEN: usize = 1_000;
    on_every_mechanism(|mechanism| {
        let completes = matches!(mechanism.kind, MechanismKind::Completion { .. });
        let worker = Worker::start(
            NetOptions::new(mechanism),
            AcceptBatch::All,
            async move |conn: Conn<'_>| {
                for most in [1, 3, 64, 1, 200] {
                    let before = conn.input_len();
                    if before == LEN {
                        break;
                    }
                    let received = conn.fill_some(most).await.unwrap();
                    assert!(completes || (1..=most).contains(&received), "{received} of {most}");
                    assert_eq!(conn.input_len(), before + received);
                }
                assert!(completes || conn.input_len() <= 269, "{}", conn.input_len());
                while conn.input_len() < LEN {
                    assert!(conn.fill().await.unwrap() > 0);
                }
                conn.io(|io| {
                    io.output.extend_from_slice(io.input);
                    (io.input.len(), ())
                });
                conn.send(Body::None, None).await.unwrap();
            },
        );
        let message = pattern(LEN);
        let mut stream = worker.connect();
        stream.write_all(&message).unwrap();
        let mut back = vec![0; LEN];
        stream.read_exact(&mut back).unwrap();
        assert!(back == message);
    });
}

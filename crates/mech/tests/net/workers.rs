//! A worker as a whole: stopping, full tables, what an idle connection costs.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use drover_mech::mechanisms::MechanismOptions;
use drover_mech::net::{AcceptBatch, Body, Conn, NetOptions};

use crate::{PATIENCE, Worker, cramped, echo, on_every_mechanism};

#[test]
fn a_stop_closes_idle_connections_and_refuses_new_ones() {
    on_every_mechanism(|mechanism| {
        let worker = Worker::start(NetOptions::new(mechanism), AcceptBatch::All, echo);
        let mut idle: Vec<_> = (0..20).map(|_| worker.connect()).collect();
        for stream in &mut idle {
            stream.write_all(b"a").unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
        let address = worker.address;
        drop(worker);
        for stream in &mut idle {
            assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
        }
        let refused = std::net::TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_stop_lets_a_transfer_under_way_finish() {
    on_every_mechanism(|mechanism| {
        let (tell, started) = mpsc::channel();
        let worker = Worker::start(
            NetOptions::new(mechanism),
            AcceptBatch::All,
            async move |conn: Conn<'_>| {
                assert_eq!(conn.fill().await.unwrap(), 1);
                tell.send(()).unwrap();
                conn.send(Body::Shared(vec![1; 32 << 20].into()), None).await.unwrap();
            },
        );
        let mut stream = worker.connect();
        stream.write_all(b"?").unwrap();
        started.recv_timeout(PATIENCE).unwrap();
        worker.remote.stop().unwrap();
        assert_eq!(std::io::copy(&mut stream, &mut std::io::sink()).unwrap(), 32 << 20);
    });
}

/// What was sent before the stop is answered, even on connections that the
/// worker has not accepted yet, and however many they are.
#[test]
fn a_stop_serves_what_had_arrived() {
    on_every_mechanism(|mechanism| {
        for dispatch in [MechanismOptions::default(), cramped()] {
            let options = NetOptions { dispatch, ..NetOptions::new(mechanism) };
            let held = Paused::start(options);
            let mut streams: Vec<_> = (0..40).map(|_| held.worker.connect()).collect();
            for stream in &mut streams {
                stream.write_all(b"early").unwrap();
                stream.read_exact(&mut [0; 5]).unwrap();
            }
            let release = held.hold();
            streams.extend((0..60).map(|_| held.worker.connect()));
            for (number, stream) in streams.iter_mut().enumerate() {
                stream.write_all(format!("late {number}").as_bytes()).unwrap();
            }
            held.worker.remote.stop().unwrap();
            release.send(()).unwrap();
            for (number, stream) in streams.iter_mut().enumerate() {
                let mut back = String::new();
                stream.read_to_string(&mut back).unwrap();
                assert_eq!(back, format!("late {number}"));
            }
        }
    });
}

/// Everything arrives at once, where there is next to no room for it.
#[test]
fn full_queues_lose_no_connection_and_no_byte() {
    on_every_mechanism(|mechanism| {
        let options = NetOptions { dispatch: cramped(), ..NetOptions::new(mechanism) };
        let held = Paused::start(options);
        let mut streams: Vec<_> = (0..50).map(|_| held.worker.connect()).collect();
        for round in 0..3u8 {
            let release = held.hold();
            if round == 1 {
                streams.extend((0..50).map(|_| held.worker.connect()));
            }
            let message = |number: usize| -> Vec<u8> {
                (0..5_000).map(|at: usize| (at / 7 + number) as u8 ^ round).collect()
            };
            for (number, stream) in streams.iter_mut().enumerate() {
                stream.write_all(&message(number)).unwrap();
            }
            release.send(()).unwrap();
            for (number, stream) in streams.iter_mut().enumerate() {
                let mut back = vec![0; 5_000];
                stream.read_exact(&mut back).unwrap();
                assert!(back == message(number), "round {round}, connection {number}");
            }
        }
    });
}

/// A peer that has sent a part of a message keeps nobody out where that counts as idle, and goes on while there is room.
#[test]
fn connections_that_wait_for_the_rest_of_a_message_can_give_way() {
    on_every_mechanism(|mechanism| {
        let options =
            NetOptions { connections: 4, waiting_is_idle: true, ..NetOptions::new(mechanism) };
        let worker = Worker::start(options, AcceptBatch::All, async move |conn: Conn<'_>| {
            conn.set_deadline(Some(Duration::from_secs(3600)));
            while let Ok(1..) = conn.fill_idle().await {
                conn.io(|io| match io.input.last() {
                    Some(b'\n') => {
                        io.output.extend_from_slice(io.input);
                        (io.input.len(), ())
                    }
                    _ => (0, ()),
                });
                conn.send(Body::None, None).await.unwrap();
            }
        });
        let mut partial: Vec<_> = (0..20).map(|_| worker.connect()).collect();
        // One that was closed already takes no bytes.
        partial.iter_mut().for_each(|stream| drop(stream.write_all(b"pa")));
        let mut whole = worker.connect();
        whole.write_all(b"whole\n").unwrap();
        let mut back = [0; 6];
        whole.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"whole\n");
        drop(whole);
        let finished = partial.iter_mut().filter_map(|stream| {
            stream.write_all(b"rt\n").ok()?;
            stream.read_exact(&mut [0; 5]).ok()
        });
        assert!((1..=5).contains(&finished.count()), "some go on, and one too many at most");
    });
}

/// A peer that takes nothing of what it has asked for keeps nobody out where that counts as idle.
#[test]
fn connections_that_wait_for_room_to_send_can_give_way() {
    const MORE_THAN_SOCKETS_TAKE: usize = 6 << 20;
    on_every_mechanism(|mechanism| {
        let options =
            NetOptions { connections: 4, waiting_is_idle: true, ..NetOptions::new(mechanism) };
        let worker = Worker::start(options, AcceptBatch::All, async move |conn: Conn<'_>| {
            conn.set_deadline(Some(Duration::from_secs(3600)));
            while let Ok(1..) = conn.fill_idle().await {
                let len = conn.io(|io| match io.input {
                    b"much\n" => (5, MORE_THAN_SOCKETS_TAKE),
                    _ => (io.input.len(), 1),
                });
                conn.io(|io| (0, io.output.resize(len, b'x')));
                if conn.send(Body::None, None).await.is_err() {
                    return;
                }
            }
        });
        let mut greedy: Vec<_> = (0..20).map(|_| worker.connect()).collect();
        // One that was closed already takes no bytes.
        greedy.iter_mut().for_each(|stream| drop(stream.write_all(b"much\n")));
        let mut modest = worker.connect();
        modest.write_all(b"little\n").unwrap();
        modest.read_exact(&mut [0; 1]).unwrap();
        drop(modest);
        let whole = greedy
            .iter_mut()
            .filter_map(|stream| stream.read_exact(&mut vec![0; MORE_THAN_SOCKETS_TAKE]).ok());
        assert!((1..=5).contains(&whole.count()), "some go on, and one too many at most");
    });
}

/// A worker that echoes, and that a connection can make stand still.
struct Paused {
    worker: Worker,
    standing: mpsc::Receiver<mpsc::Sender<()>>,
}

/// What [`Paused::hold`] sends.
const HOLD: &[u8] = b"hold the worker";

impl Paused {
    fn start(options: NetOptions) -> Paused {
        let (tell, standing) = mpsc::channel();
        let worker = Worker::start(options, AcceptBatch::All, async move |conn: Conn<'_>| {
            while let Ok(1..) = conn.fill_idle().await {
                if conn.io(|io| (0, io.input == HOLD)) {
                    let (release, released) = mpsc::channel();
                    tell.send(release).unwrap();
                    released.recv().unwrap();
                    return;
                }
                conn.io(|io| {
                    io.output.extend_from_slice(io.input);
                    (io.input.len(), ())
                });
                conn.send(Body::None, None).await.unwrap();
            }
        });
        Paused { worker, standing }
    }

    /// Makes the worker do nothing until the sender is used or dropped.
    fn hold(&self) -> mpsc::Sender<()> {
        self.worker.connect().write_all(HOLD).unwrap();
        self.standing.recv_timeout(PATIENCE).unwrap()
    }
}

/// A closed connection's slot goes to the next one; the next must get its own
/// events, and none of the last owner's.
#[test]
fn slots_and_descriptors_are_reused_without_confusion() {
    on_every_mechanism(|mechanism| {
        let worker = Worker::start(NetOptions::new(mechanism), AcceptBatch::All, echo);
        for round in 0..300u32 {
            let mut stream = worker.connect();
            stream.write_all(&round.to_le_bytes()).unwrap();
            if round % 3 == 0 {
                continue;
            }
            let mut back = [0; 4];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(u32::from_le_bytes(back), round);
        }
    });
}

/// Senders that nobody reads from must not use up what the others receive with.
#[test]
fn floods_that_are_not_read_leave_the_others_alone() {
    on_every_mechanism(|mechanism| {
        let worker = Worker::start(
            NetOptions::new(mechanism),
            AcceptBatch::All,
            async move |conn: Conn<'_>| {
                assert_ne!(conn.fill().await.unwrap(), 0);
                if conn.io(|io| (0, io.input[0] == b'e')) {
                    conn.io(|io| (0, io.output.extend_from_slice(io.input)));
                    conn.io(|io| (io.input.len(), ()));
                    conn.send(Body::None, None).await.unwrap();
                    return echo(conn).await;
                }
                let net = conn.net();
                std::future::poll_fn(|_| match net.phase().takes_connections() {
                    true => std::task::Poll::Pending,
                    false => std::task::Poll::Ready(()),
                })
                .await;
            },
        );
        let floods: Vec<_> = (0..40)
            .map(|_| {
                let mut stream = worker.connect();
                stream.set_nonblocking(true).unwrap();
                while stream.write(&[b'f'; 64 * 1024]).is_ok() {}
                stream
            })
            .collect();
        let mut other = worker.connect();
        for _ in 0..20 {
            other.write_all(b"echo").unwrap();
            let mut back = [0; 4];
            other.read_exact(&mut back).unwrap();
            assert_eq!(&back, b"echo");
        }
        drop(floods);
    });
}

/// What was held back of a sender that was faster than its reader is not lost.
#[test]
fn a_sender_that_was_held_back_is_read_to_its_end() {
    on_every_mechanism(|mechanism| {
        let (go, gone) = mpsc::channel::<()>();
        let gone = std::sync::Arc::new(std::sync::Mutex::new(gone));
        let worker = Worker::start(
            NetOptions::new(mechanism),
            AcceptBatch::All,
            async move |conn: Conn<'_>| {
                let mut sum = conn.fill().await.unwrap() as u64;
                // Not until the peer cannot send any more does it read on.
                while gone.lock().unwrap().try_recv().is_err() {
                    conn.yield_now().await;
                }
                let mut check = 0u64;
                loop {
                    check = conn.io(|io| {
                        let add =
                            |sum: u64, &byte: &u8| sum.wrapping_mul(31).wrapping_add(byte.into());
                        (io.input.len(), io.input.iter().fold(check, add))
                    });
                    match conn.fill().await.unwrap() {
                        0 => break,
                        count => sum += count as u64,
                    }
                }
                conn.io(|io| (0, io.output.extend_from_slice(&sum.to_le_bytes())));
                conn.io(|io| (0, io.output.extend_from_slice(&check.to_le_bytes())));
                conn.send(Body::None, None).await.unwrap();
            },
        );
        let mut stream = worker.connect();
        stream.set_nonblocking(true).unwrap();
        let (mut sum, mut check, mut next) = (0u64, 0u64, 0u8);
        loop {
            let piece: Vec<u8> =
                (0..50_000u32).map(|at| next.wrapping_add((at % 251) as u8)).collect();
            let Ok(count) = stream.write(&piece) else { break };
            sum += count as u64;
            for &byte in &piece[..count] {
                check = check.wrapping_mul(31).wrapping_add(byte.into());
            }
            next = next.wrapping_add(1);
        }
        go.send(()).unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut told = [0; 16];
        stream.read_exact(&mut told).unwrap();
        assert_eq!(told[..8], sum.to_le_bytes());
        assert_eq!(told[8..], check.to_le_bytes());
    });
}

/// Sends back what it receives, and is never late. Who idles first is due first: each deadline is a second further off than the
/// one before, however many fall into a tick of the worker's clock.
async fn patient_echo(conn: Conn<'_>) {
    static DEADLINES: AtomicU64 = AtomicU64::new(1000);
    loop {
        let seconds = DEADLINES.fetch_add(1, Ordering::Relaxed);
        conn.set_deadline(Some(Duration::from_secs(seconds)));
        let Ok(1..) = conn.fill_idle().await else { return };
        conn.io(|io| {
            io.output.extend_from_slice(io.input);
            (io.input.len(), ())
        });
        if conn.send(Body::None, None).await.is_err() {
            return;
        }
    }
}

/// A connection for which there is no room takes the place of the one that has been idle longest.
#[test]
fn who_has_been_idle_longest_gives_way() {
    on_every_mechanism(|mechanism| {
        let options = NetOptions { connections: 3, ..NetOptions::new(mechanism) };
        let worker = Worker::start(options, AcceptBatch::All, patient_echo);
        let use_it = |stream: &mut TcpStream| {
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
        };
        let come = || {
            let mut stream = worker.connect();
            use_it(&mut stream);
            stream
        };
        let [mut first, mut second, mut third] = [(); 3].map(|()| come());
        use_it(&mut second);
        use_it(&mut first);
        let mut fourth = come();
        assert_eq!(drover_testing::uninterrupted(|| third.read(&mut [0])).unwrap(), 0);
        let mut fifth = come();
        assert_eq!(drover_testing::uninterrupted(|| second.read(&mut [0])).unwrap(), 0);
        for stream in [&mut first, &mut fourth, &mut fifth] {
            use_it(stream);
        }
    });
}

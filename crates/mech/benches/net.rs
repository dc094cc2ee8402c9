//! What coroutines pay: a switch, a wake, a deadline, and a round trip over the loopback under every
//! mechanism.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use divan::Bencher;
use divan::counter::ItemsCount;
use drover_mech::Key;
use drover_mech::mechanisms::{self, Mechanism};
use drover_mech::net::{AcceptBatch, Body, Conn, Executor, Listener, Net, NetOptions};
use drover_sys::socket::{ListenOptions, listen, local_address};

fn main() {
    divan::main();
}

/// What `auto` takes: the benches below wait without blocking, once per turn.
fn net() -> Net {
    let mechanism = mechanisms::auto(1).expect("a mechanism works here");
    Net::open(&NetOptions::new(mechanism)).expect("it was probed")
}

fn run<F: Future<Output = ()>>(executor: Executor<'_, F>, spawn: impl Fn() -> F) {
    executor.run(|_| spawn()).expect("it can wait");
}

/// Coroutines that only yield, a hundred times each: a turn resumes all of them, and waits once.
#[divan::bench(args = [1, 64, 1000])]
fn yield_now(bencher: Bencher<'_, '_>, coroutines: usize) {
    let net = net();
    bencher.counter(ItemsCount::new(coroutines * 100)).bench_local(|| {
        let mut executor = Executor::new(&net, Duration::ZERO);
        for _ in 0..coroutines {
            executor.service(|conn| async move {
                for _ in 0..100 {
                    conn.yield_now().await;
                }
            });
        }
        run(executor, || async {});
    });
}

/// Two coroutines that wake one another: each wake takes a turn with its wait.
#[divan::bench]
fn wake(bencher: Bencher<'_, '_>) {
    const WAKES: u32 = 100;
    let net = net();
    bencher.counter(ItemsCount::new(WAKES)).bench_local(|| {
        let wakes = Cell::new(0);
        let keys = [const { Cell::new(Key::WAKER) }; 2];
        let (net, wakes, keys) = (&net, &wakes, &keys);
        let mut executor = Executor::new(net, Duration::ZERO);
        for own in 0..2 {
            executor.service(|conn| {
                keys[own].set(conn.key());
                poll_fn(move |_| {
                    let _kept = &conn;
                    if wakes.get() % 2 == own as u32 {
                        wakes.set(wakes.get() + 1);
                    }
                    net.wake(keys[1 - own].get());
                    if wakes.get() >= WAKES { Poll::Ready(()) } else { Poll::Pending }
                })
            });
        }
        run(executor, || async {});
    });
}

/// Moves the deadline of a connection, as each request does.
#[divan::bench]
fn set_deadline(bencher: Bencher<'_, '_>) {
    const MOVES: u32 = 1000;
    let net = net();
    bencher.counter(ItemsCount::new(MOVES)).bench_local(|| {
        let mut executor = Executor::new(&net, Duration::ZERO);
        executor.service(|conn| async move {
            for step in 0..MOVES {
                conn.set_deadline(Some(Duration::from_millis(u64::from(1000 + step))));
            }
        });
        run(executor, || async {});
    });
}

/// Sets an alarm that is due, and is resumed by it in the next turn.
#[divan::bench]
fn alarm(bencher: Bencher<'_, '_>) {
    const ALARMS: u32 = 100;
    let net = net();
    bencher.counter(ItemsCount::new(ALARMS)).bench_local(|| {
        let mut executor = Executor::new(&net, Duration::ZERO);
        executor.service(|conn| async move {
            for _ in 0..ALARMS {
                let mut set = false;
                let at = Instant::now();
                poll_fn(|_| {
                    if std::mem::replace(&mut set, true) {
                        return Poll::Ready(());
                    }
                    conn.set_alarm(at);
                    Poll::Pending
                })
                .await;
            }
        });
        run(executor, || async {});
    });
}

/// The mechanisms that work here.
fn mechanisms() -> impl Iterator<Item = &'static str> {
    let works = |mechanism: &&&'static Mechanism| match mechanism.probe() {
        Ok(()) => true,
        Err(reason) => {
            eprintln!("skipped {}: {reason}", mechanism.name);
            false
        }
    };
    mechanisms::ALL.iter().filter(works).map(|mechanism| mechanism.name)
}

/// 64 bytes to a worker and back.
#[divan::bench(args = mechanisms())]
fn echo(bencher: Bencher<'_, '_>, name: &str) {
    let mechanism = mechanisms::by_name(name).expect("a name from the table");
    let socket = listen(([127, 0, 0, 1], 0).into(), ListenOptions::default()).expect("a port");
    let address = local_address(socket.as_fd()).expect("a socket has an address");
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let net = Net::open(&NetOptions::new(mechanism)).expect("it was probed");
            let mut executor = Executor::new(&net, Duration::ZERO);
            let listener = Listener::open(&net, socket).expect("a socket can be attached");
            executor.listen(listener, |listener| async {
                listener.run(AcceptBatch::All, |_| false).await.expect("it is a listening socket");
            });
            tell.send(net.remote()).expect("somebody waits");
            executor.run(send_back).expect("it can wait");
        });
        let remote = told.recv().expect("the worker starts");
        let mut stream = TcpStream::connect(address).expect("the worker listens");
        stream.set_nodelay(true).expect("a TCP socket");
        let mut bytes = [7; 64];
        bencher.bench_local(|| {
            stream.write_all(&bytes).expect("the worker is there");
            stream.read_exact(&mut bytes).expect("the worker is there");
        });
        drop(stream);
        remote.stop().expect("the worker is there");
    });
}

async fn send_back(conn: Conn<'_>) {
    while let Ok(1..) = conn.fill_idle().await {
        conn.io(|io| {
            io.output.extend_from_slice(io.input);
            (io.input.len(), ())
        });
        if conn.send(Body::None, None).await.is_err() {
            return;
        }
    }
}

//! What a worker counts of its mechanism and its listeners.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use drover_mech::mechanisms::{Features, Mechanism};
use drover_mech::net::{AcceptBatch, DispatchCounts, Executor, Listener, Net, NetOptions};
use drover_sys::socket::{ListenOptions, listen, local_address};

use crate::{PATIENCE, echo, on_every_mechanism};

/// How many connections wait before the worker begins.
const CONNECTIONS: usize = 3;

/// How many batches a worker accepts the connections in, and what it has told before each wait, then at the end.
fn counted(mechanism: &'static Mechanism, batch: AcceptBatch) -> (usize, Vec<DispatchCounts>) {
    let socket = listen(([127, 0, 0, 1], 0).into(), ListenOptions::default()).unwrap();
    let address = local_address(socket.as_fd()).unwrap();
    let clients: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(b"x").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            client
        })
        .collect();
    let work = move || {
        let net = Net::open(&NetOptions::new(mechanism)).unwrap();
        let told = Rc::new(RefCell::new(Vec::new()));
        let tell = Rc::clone(&told);
        net.on_wait(move |counts| tell.borrow_mut().push(counts));
        let (batches, ended) = (Cell::new(0), Cell::new(0));
        let mut executor = Executor::new(&net, PATIENCE);
        let mut listener = Listener::open(&net, socket).unwrap();
        listener.on_batch(|| batches.set(batches.get() + 1));
        executor.listen(listener, |listener| async {
            listener.run(batch, |error| panic!("accept: {error}")).await.unwrap();
        });
        let serve = async |conn| {
            echo(conn).await;
            ended.set(ended.get() + 1);
            if ended.get() == CONNECTIONS {
                net.stop();
            }
        };
        executor.run(serve).unwrap();
        let mut told = told.take();
        told.push(net.counts());
        (batches.get(), told)
    };
    let counted = thread::spawn(work).join().unwrap();
    drop(clients);
    counted
}

#[test]
fn waits_and_events_are_told_before_each_wait_and_batches_as_they_come() {
    on_every_mechanism(|mechanism| {
        for most in [Some(NonZeroU32::MIN), None] {
            let batch = most.map_or(AcceptBatch::All, AcceptBatch::Most);
            let (batches, told) = counted(mechanism, batch);
            match most {
                Some(_) => assert_eq!(batches, CONNECTIONS),
                None => assert!((1..=CONNECTIONS).contains(&batches), "{batches}"),
            }
            assert_eq!(told[0].events, 0);
            for (wait, counts) in told[..told.len() - 1].iter().enumerate() {
                assert_eq!(counts.waits, wait as u64);
            }
            let last = told.last().unwrap();
            assert_eq!(last.waits, told.len() as u64 - 1);
            // All that there was came before: such a mechanism is never told of it.
            let needs_none = mechanism.features.contains(Features::MISSES_EARLIER);
            assert!(last.events >= 1 || needs_none, "{last:?}");
            assert_eq!(last.short_sends, 0, "{last:?}");
            assert!(told.is_sorted_by_key(|counts| counts.events));
            assert!(told.is_sorted_by_key(|counts| counts.would_block));
        }
    });
}

/// While it has something to do, a worker with [`NetOptions::min_wait`] finds what has come in that time by one wait. A client
/// that is stopped for longer than that tries again.
#[test]
fn a_worker_that_lets_events_gather_finds_many_by_one_wait() {
    const CLIENTS: usize = 12;
    const LONG: Duration = Duration::from_millis(100);
    on_every_mechanism(|mechanism| {
        let socket = listen(([127, 0, 0, 1], 0).into(), ListenOptions::default()).unwrap();
        let address = local_address(socket.as_fd()).unwrap();
        let most = Arc::new(AtomicU64::new(0));
        let (told, (to_client, remote)) = (Arc::clone(&most), channel());
        let worker = thread::spawn(move || {
            let net =
                Net::open(&NetOptions { min_wait: LONG, ..NetOptions::new(mechanism) }).unwrap();
            let before = Cell::new(0);
            net.on_wait(move |counts| {
                told.fetch_max(counts.events - before.replace(counts.events), Ordering::Relaxed);
            });
            let mut executor = Executor::new(&net, PATIENCE);
            executor.listen(Listener::open(&net, socket).unwrap(), |listener| async {
                listener.run(AcceptBatch::All, |error| panic!("accept: {error}")).await.unwrap();
            });
            to_client.send(net.remote()).unwrap();
            executor.run(echo).unwrap();
        });
        let mut clients: Vec<_> =
            (0..CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut byte = [0];
        clients.iter_mut().for_each(|client| client.write_all(b"x").unwrap());
        clients.iter_mut().for_each(|client| client.read_exact(&mut byte).unwrap());
        for _ in 0..20 {
            // The first has made the worker busy; it finds the others together.
            for client in &mut clients {
                client.write_all(b"x").unwrap();
            }
            clients.iter_mut().for_each(|client| client.read_exact(&mut byte).unwrap());
            if most.load(Ordering::Relaxed) >= CLIENTS as u64 - 1 {
                break;
            }
        }
        drop(clients);
        remote.recv().unwrap().stop().unwrap();
        worker.join().unwrap();
        assert!(most.load(Ordering::Relaxed) >= CLIENTS as u64 - 1, "{most:?}");
    });
}

//! What coroutines are promised by `drover_mech::net`, over every mechanism.
//!
//! Each case is written once and run by [`on_every_mechanism`]; the peers are
//! plain blocking sockets on other threads.

mod accepting;
#[path = "../conformance/child.rs"]
mod child;
#[path = "../conformance/chosen.rs"]
mod chosen;
mod counts;
mod deadlines;
mod files;
mod layers;
mod memory;
mod order;
mod readable;
mod responses;
#[path = "../conformance/seccomp.rs"]
#[expect(dead_code, reason = "it is for several suites")]
mod seccomp;
mod sockets;
mod starving;
mod threads;
mod transfers;
mod unix;
mod workers;

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use drover_mech::mechanisms::{self, Mechanism};
use drover_mech::net::{AcceptBatch, Conn, Executor, Listener, Net, NetOptions, Remote};
use drover_sys::socket::{ListenOptions, listen, local_address};

#[global_allocator]
static ALLOCATOR: drover_sys::reserve::ReserveAllocator = drover_sys::reserve::ReserveAllocator;

/// Long enough that only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Queues so short that they overflow all the time.
fn cramped() -> mechanisms::MechanismOptions {
    mechanisms::MechanismOptions {
        events_per_wait: 2,
        completions: 4,
        receive_buffers: 2,
        ..mechanisms::MechanismOptions::default()
    }
}

/// Runs `case` under each usable mechanism, or the one that `DROVER_MECHANISM` names; those that are not usable are printed
/// with the kernel's reason.
fn on_every_mechanism(case: impl Fn(&'static Mechanism)) {
    let mut ran = 0;
    for mechanism in chosen::mechanisms() {
        match mechanism.probe() {
            Ok(()) => {
                println!("{}", mechanism.name);
                case(mechanism);
                ran += 1;
            }
            Err(reason) => drover_testing::skip!("{}: {reason}", mechanism.name),
        }
    }
    assert!(ran > 0 || chosen::filter().is_some(), "no mechanism is usable");
}

/// A worker on its own thread, stopped and joined when dropped.
struct Worker {
    address: SocketAddr,
    remote: Remote,
    thread: Option<thread::JoinHandle<()>>,
}

impl Worker {
    /// Serves every connection with `serve`.
    fn start<S>(options: NetOptions, batch: AcceptBatch, serve: S) -> Worker
    where
        S: AsyncFn(Conn<'_>) + Send + 'static,
    {
        Worker::start_on(ListenOptions::default(), options, batch, serve)
    }

    fn start_on<S>(how: ListenOptions, options: NetOptions, batch: AcceptBatch, serve: S) -> Worker
    where
        S: AsyncFn(Conn<'_>) + Send + 'static,
    {
        let socket = listen(([127, 0, 0, 1], 0).into(), how).unwrap();
        Worker::start_at(socket, options, batch, serve)
    }

    fn start_at<S>(socket: OwnedFd, options: NetOptions, batch: AcceptBatch, serve: S) -> Worker
    where
        S: AsyncFn(Conn<'_>) + Send + 'static,
    {
        let address = local_address(socket.as_fd()).unwrap();
        let (send, receive) = mpsc::channel();
        let thread = thread::spawn(move || {
            let net = Net::open(&options).unwrap();
            send.send(net.remote()).unwrap();
            let mut executor = Executor::new(&net, PATIENCE);
            let listener = Listener::open(&net, socket).unwrap();
            executor.listen(listener, |listener| async move {
                listener.run(batch, |error| panic!("accept: {error}")).await.unwrap();
            });
            executor.run(|conn| serve(conn)).unwrap();
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
        let ended = self.thread.take().map(thread::JoinHandle::join);
        if !thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

/// Sends back what it receives until the peer ends or the worker stops.
async fn echo(conn: Conn<'_>) {
    while let Ok(1..) = conn.fill_idle().await {
        conn.io(|io| {
            io.output.extend_from_slice(io.input);
            (io.input.len(), ())
        });
        if conn.send(drover_mech::net::Body::None, None).await.is_err() {
            return;
        }
    }
}

//! Workers that share an address, and clients of theirs.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::thread;

use mech::accept::wait_queue::Policy;
use mech::accept::{Among, ListenPlan, ListenerHandle, Strategy};
use mech::mechanisms::Mechanism;
use mech::net::{AcceptBatch, Body, Conn, Executor, Listener, Net, NetOptions, Remote};
use sys::socket::ListenOptions;

use crate::PATIENCE;

/// How many workers a crew has.
pub(crate) const WORKERS: usize = 3;

/// Three workers, each of which answers what it receives with its number before it. They are stopped
/// and joined when this is dropped.
pub(crate) struct Crew {
    pub(crate) address: SocketAddr,
    workers: Vec<(Remote, thread::JoinHandle<()>)>,
}

/// How a strategy is put to work, by default.
pub(crate) fn plan() -> ListenPlan {
    ListenPlan {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        passed: None,
        workers: NonZeroUsize::new(WORKERS).unwrap(),
        listen: ListenOptions::default(),
        among: Among::Threads,
        by_cpu: false,
        policy: Policy::TaskExclusive,
    }
}

impl Crew {
    pub(crate) fn start(strategy: &'static Strategy, mechanism: &'static Mechanism) -> Crew {
        Crew::with(strategy, mechanism, &plan(), |_| {})
    }

    /// Each worker calls `first` with its number before it does anything else.
    pub(crate) fn with(
        strategy: &'static Strategy,
        mechanism: &'static Mechanism,
        plan: &ListenPlan,
        first: impl Fn(usize) + Clone + Send + 'static,
    ) -> Crew {
        let made = strategy.open(plan).unwrap();
        assert_eq!(made.handles.len(), WORKERS);
        // One after the other, so that they register in this order.
        let start = |(number, handle)| {
            let (send, receive) = mpsc::channel();
            let first = first.clone();
            let work = move || {
                first(number);
                work(number as u8, mechanism, handle, |remote| send.send(remote).unwrap());
            };
            let thread = thread::spawn(work);
            (receive.recv().unwrap(), thread)
        };
        let workers = made.handles.into_iter().enumerate().map(start).collect();
        Crew { address: made.address, workers }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::of(self.address)
    }

    /// Asks all workers to stop, and waits for none.
    pub(crate) fn stop(&self) {
        for (remote, _) in &self.workers {
            // It fails only for a worker that has ended already.
            let _ = remote.stop();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop();
        for (_, thread) in self.workers.drain(..) {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap();
            }
        }
    }
}

/// Is a worker that answers with its number, until `ready`'s remote stops it.
pub(crate) fn work(
    number: u8,
    mechanism: &'static Mechanism,
    handle: ListenerHandle,
    ready: impl FnOnce(Remote),
) {
    let net = Net::open(&NetOptions::new(mechanism)).unwrap();
    let mut executor = Executor::new(&net, PATIENCE);
    let listener = Listener::enter(&net, handle).unwrap();
    executor.listen(listener, |listener| async move {
        listener.run(AcceptBatch::All, |_| false).await.unwrap();
    });
    ready(net.remote());
    executor.run(|conn| serve(conn, number)).unwrap();
}

async fn serve(conn: Conn<'_>, number: u8) {
    while let Ok(1..) = conn.fill_idle().await {
        conn.io(|io| {
            io.output.push(number);
            io.output.extend_from_slice(io.input);
            (io.input.len(), ())
        });
        if conn.send(Body::None, None).await.is_err() {
            return;
        }
    }
}

/// A client of a crew.
pub(crate) struct Client {
    stream: TcpStream,
}

impl Client {
    pub(crate) fn of(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream }
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// Asserts that `text` comes back, and says whose answer it is.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) -> usize {
        let mut back = vec![0; 1 + text.len()];
        if let Err(error) = self.stream.read_exact(&mut back) {
            assert_ne!(error.kind(), ErrorKind::WouldBlock, "{text} is not answered");
            panic!("{text}: {error}");
        }
        assert_eq!(&back[1..], text.as_bytes());
        back[0].into()
    }

    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        assert_eq!(self.stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
}

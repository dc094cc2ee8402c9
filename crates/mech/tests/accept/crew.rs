//! Workers that share an address, and clients of theirs.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use drover_mech::accept::wait_queue::Policy;
use drover_mech::accept::{Among, ListenPlan, ListenerHandle, Strategy};
use drover_mech::mechanisms::Mechanism;
use drover_mech::net::{AcceptBatch, Body, Conn, Executor, Listener, Net, NetOptions, Remote};
use drover_sys::socket::{Address, ListenOptions};
use drover_sys::unix_listener::UnixListener;

use crate::PATIENCE;

/// How many workers a crew has.
pub(crate) const WORKERS: usize = 3;

/// Three workers, each of which answers what it receives with its number before it. They are stopped
/// and joined when this is dropped.
pub(crate) struct Crew {
    address: Address,
    workers: Vec<(Remote, thread::JoinHandle<()>)>,
    /// What the workers accept from, for others that succeed them.
    pub(crate) sockets: Vec<Arc<OwnedFd>>,
    /// How many listeners the workers have together, and a message for each that has ended.
    listeners: (usize, Mutex<mpsc::Receiver<()>>),
}

/// How a strategy is put to work, by default.
pub(crate) fn plan() -> ListenPlan {
    ListenPlan {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into(),
        passed: Vec::new(),
        workers: NonZeroUsize::new(WORKERS).unwrap(),
        listen: ListenOptions::default(),
        among: Among::Threads,
        by_cpu: false,
        policy: Policy::TaskExclusive,
    }
}

/// The same at a path in `folder`.
pub(crate) fn unix_plan(folder: &Path) -> ListenPlan {
    let unix = UnixListener { path: folder.join("socket"), mode: 0o600 };
    let socket = unix.listen(ListenOptions::default().backlog, None).unwrap();
    ListenPlan { address: Address::Unix(unix.path), passed: vec![Arc::new(socket)], ..plan() }
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
        let workers = plan.workers.get();
        assert!(made.handles.len() >= workers);
        let mut handles: Vec<Vec<ListenerHandle>> = (0..workers).map(|_| Vec::new()).collect();
        let (count, all) = (made.handles.len(), made.handles.into_iter().enumerate());
        all.for_each(|(number, handle)| handles[number % workers].push(handle));
        let (end, ended) = mpsc::channel();
        // One after the other, so that they register in this order.
        let start = |(number, handles)| {
            let (send, receive) = mpsc::channel();
            let (first, end) = (first.clone(), end.clone());
            let work = move || {
                first(number);
                let ready = |remote| send.send(remote).unwrap();
                accept_from(handles, number as u8, mechanism, ready, &end);
            };
            let thread = thread::spawn(work);
            (receive.recv().unwrap(), thread)
        };
        let workers = handles.into_iter().enumerate().map(start).collect();
        let sockets = made.sockets.into_iter().map(Arc::new).collect();
        Crew { address: made.address, workers, sockets, listeners: (count, Mutex::new(ended)) }
    }

    /// Has the workers leave new connections to others, and waits until their listeners have ended.
    pub(crate) fn retire(&self) {
        self.workers.iter().for_each(|(remote, _)| remote.retire().unwrap());
        let (count, ended) = &self.listeners;
        (0..*count).for_each(|_| ended.lock().unwrap().recv_timeout(PATIENCE).unwrap());
    }

    pub(crate) fn connect(&self) -> Client {
        Client::of(self.address.clone())
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
    accept_from(vec![handle], number, mechanism, ready, &mpsc::channel().0);
}

/// [`work`] for several listeners. `end` gets a message for each that has ended.
fn accept_from(
    handles: Vec<ListenerHandle>,
    number: u8,
    mechanism: &'static Mechanism,
    ready: impl FnOnce(Remote),
    end: &mpsc::Sender<()>,
) {
    let net = Net::open(&NetOptions::new(mechanism)).unwrap();
    let mut executor = Executor::new(&net, PATIENCE);
    for handle in handles {
        let listener = Listener::enter(&net, handle).unwrap();
        executor.listen(listener, |listener| async move {
            listener.run(AcceptBatch::All, |_| false).await.unwrap();
            // Nobody waits for it at the end of a test.
            let _ = end.send(());
        });
    }
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
    pub(crate) fn of(address: impl Into<Address>) -> Client {
        let stream = match address.into() {
            Address::Ip(address) => TcpStream::connect(address).unwrap(),
            // What is used of the type is the same for both kinds of sockets.
            Address::Unix(path) => OwnedFd::from(UnixStream::connect(path).unwrap()).into(),
        };
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

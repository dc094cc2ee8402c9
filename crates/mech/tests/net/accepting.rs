//! A listener that cannot accept leaves its worker to the others, and one that nobody wakes looks by itself.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread;

use drover_mech::accept::ListenerHandle;
use drover_mech::net::{AcceptBatch, Executor, Listener, Net, NetOptions};
use drover_sys::socket::{ListenOptions, listen};
use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::{PATIENCE, Worker, echo, on_every_mechanism};

/// accept(2) of a socket that is not for connections fails with `EOPNOTSUPP`, as often as it is called.
#[test]
fn an_error_that_lasts_does_not_keep_the_worker_from_stopping() {
    on_every_mechanism(|mechanism| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .send_to(b"?", socket.local_addr().unwrap())
            .unwrap();
        let (ready, worker) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            let net = Net::open(&NetOptions::new(mechanism)).unwrap();
            ready.send(net.remote()).unwrap();
            let mut executor = Executor::new(&net, PATIENCE);
            let listener = Listener::open(&net, socket.into()).unwrap();
            executor.listen(listener, |listener| async move {
                let trouble = |error: &std::io::Error| {
                    // Nobody listens any more once the worker has been stopped.
                    let _ = tell.send(error.raw_os_error());
                    false
                };
                listener.run(AcceptBatch::All, trouble).await.unwrap();
            });
            executor.run(echo).unwrap();
            end.send(()).unwrap();
        });
        let remote = worker.recv_timeout(PATIENCE).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Some(libc::EOPNOTSUPP));
        remote.stop().unwrap();
        ended.recv_timeout(PATIENCE).expect("the worker hears that it is to stop");
        thread.join().unwrap();
    });
}

/// A waiter that the kernel wakes for the next connection, before all others of whom it wakes only one, and that does not
/// accept: as the ring of a worker process that was killed, until the kernel has taken it apart.
struct Sleeper {
    epoll: OwnedFd,
    /// Readable when the waiter is to end.
    end: Arc<OwnedFd>,
}

impl Sleeper {
    fn on(socket: &OwnedFd) -> Sleeper {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let none = epoll::EventData::new_u64(0);
        let exclusively = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        epoll::add(&epoll, socket, none, exclusively).unwrap();
        epoll::add(&epoll, &end, none, epoll::EventFlags::IN).unwrap();
        Sleeper { epoll, end }
    }

    /// Waits on a thread of its own, and returns when that thread sleeps.
    fn sleep(self) -> (thread::JoinHandle<()>, Arc<OwnedFd>) {
        let end = Arc::clone(&self.end);
        let (send, number) = mpsc::channel();
        let thread = thread::spawn(move || {
            let none = epoll::EventData::new_u64(0);
            let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: none }];
            send.send(rustix::thread::gettid()).unwrap();
            epoll::wait(&self.epoll, &mut events, None).unwrap();
        });
        let stat = format!("/proc/self/task/{}/stat", number.recv().unwrap());
        while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") S ")) {
            thread::yield_now();
        }
        (thread, end)
    }
}

#[test]
fn a_connection_whose_wake_up_somebody_else_got_is_accepted() {
    on_every_mechanism(|mechanism| {
        let socket = listen(([127, 0, 0, 1], 0).into(), ListenOptions::default()).unwrap();
        let sleeper = Sleeper::on(&socket);
        let worker = Worker::start_at(socket, NetOptions::new(mechanism), AcceptBatch::All, echo);
        let is_answered = || {
            let mut client = worker.connect();
            client.write_all(b"?").unwrap();
            client.read_exact(&mut [0]).unwrap();
        };
        // Now the worker waits for the next one.
        is_answered();
        let (thread, end) = sleeper.sleep();
        is_answered();
        rustix::io::write(&*end, &1_u64.to_ne_bytes()).unwrap();
        thread.join().unwrap();
    });
}

/// Whoever has several addresses may treat their connections differently: a port that speaks TLS, another one of proxies.
#[test]
fn a_connection_knows_the_number_of_the_address_that_it_came_in_at() {
    on_every_mechanism(|mechanism| {
        let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
        let (ready, worker) = mpsc::channel();
        let thread = thread::spawn(move || {
            let net = Net::open(&NetOptions::new(mechanism)).unwrap();
            let mut executor = Executor::new(&net, PATIENCE);
            for (number, socket) in (0..).zip(sockets) {
                socket.set_nonblocking(true).unwrap();
                let handle = ListenerHandle::from(OwnedFd::from(socket)).at(number);
                let listener = Listener::enter(&net, handle).unwrap();
                executor.listen(listener, |listener| async move {
                    listener.run(AcceptBatch::All, |_| false).await.unwrap();
                });
            }
            ready.send(net.remote()).unwrap();
            executor.run(|conn| async move {
                let number = conn.listener().map_or(b'-', |number| b'0' + number as u8);
                conn.io(|io| (0, io.output.push(number)));
                let _ = conn.flush(None).await;
            })
        });
        let remote = worker.recv_timeout(PATIENCE).unwrap();
        for (number, address) in [(0, 0), (1, 1), (1, 1), (0, 0)].map(|(n, at)| (n, addresses[at]))
        {
            let mut said = String::new();
            TcpStream::connect(address).unwrap().read_to_string(&mut said).unwrap();
            assert_eq!(said, number.to_string());
        }
        remote.stop().unwrap();
        thread.join().unwrap().unwrap();
    });
}

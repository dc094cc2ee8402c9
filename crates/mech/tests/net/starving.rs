//! When the kernel has no memory for a worker's wait.
//!
//! select(2) and poll(2) need memory for each call, in proportion to what they are asked; a filter of system calls refuses it
//! to those that ask for much. Descriptors have the least free numbers, so that each case has a process of its own.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::mpsc;

use drover_mech::mechanisms::Mechanism;
use drover_mech::net::{
    AcceptBatch, Body, Executor, Listener, Net, NetOptions, OutOfMemory, Remote,
};
use drover_sys::reserve;
use drover_sys::socket::{ListenOptions, listen, local_address};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{PATIENCE, child, echo, on_every_mechanism, seccomp};

/// How many clients there are: each takes two descriptors here.
const CLIENTS: usize = 250;

/// How much these calls may ask: so much that the kernel has on its stack (`FRONTEND_STACK_ALLOC` in its fs/select.c).
const ON_STACK: [(libc::c_long, usize, u32); 2] =
    [(libc::SYS_pselect6, 0, 336), (libc::SYS_ppoll, 1, 30)];

/// What a worker says when it starts: how to stop it, and how to reach it.
type Started = (Remote, std::net::SocketAddr);

/// Runs a worker that echoes, by waits that get no memory: none that is more than `ON_STACK`, or none at all. Returns its result.
fn starve(
    mechanism: &'static Mechanism,
    wholly: bool,
    started: &mpsc::Sender<Started>,
) -> io::Result<()> {
    let socket = listen(([127, 0, 0, 1], 0).into(), ListenOptions::default())?;
    let address = local_address(socket.as_fd())?;
    let net = Net::open(&NetOptions::new(mechanism))?;
    let mut executor = Executor::new(&net, PATIENCE);
    executor.listen(Listener::open(&net, socket)?, |listener| async move {
        listener.run(AcceptBatch::All, |_| false).await.unwrap();
    });
    executor.on_out_of_memory(|user| {
        if user == OutOfMemory::Wait {
            net.expire_idle().unwrap();
        }
    });
    for (call, argument, most) in ON_STACK {
        let most = if wholly { 0 } else { most };
        seccomp::refuse_above(call, argument, most, libc::ENOMEM)?;
    }
    started.send((net.remote(), address)).unwrap();
    executor.run(|conn| echo(conn))
}

/// Whether the worker sends back what it gets.
fn is_answered(mut stream: &TcpStream) -> bool {
    let mut back = [0; 4];
    stream
        .write_all(b"echo")
        .and_then(|()| stream.read_exact(&mut back))
        .is_ok_and(|()| &back == b"echo")
}

fn connect(address: std::net::SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn serves_without_memory(mechanism: &'static Mechanism) {
    let (tell, started) = mpsc::channel();
    let worker = std::thread::spawn(move || starve(mechanism, false, &tell));
    let Ok((remote, address)) = started.recv_timeout(PATIENCE) else {
        return drover_testing::skip!("no seccomp: {:?}", worker.join().unwrap());
    };
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let client = connect(address);
        is_answered(&client);
        clients.push(client);
    }
    let answered = clients.iter().filter(|client| is_answered(client)).count();
    // select(2) can be asked of few at a time only if these have low numbers.
    match mechanism.waits_with.contains(&"pselect6") {
        true => assert!(answered < CLIENTS, "{answered} of {CLIENTS}"),
        false => assert_eq!(answered, CLIENTS),
    }
    drop(clients);
    assert!(is_answered(&connect(address)));
    remote.stop().unwrap();
    worker.join().unwrap().unwrap();
}

#[test]
fn a_worker_goes_on_without_memory_for_its_waits() {
    if child::role().is_some() {
        drover_sys::process::raise_open_files_limit().unwrap();
        return on_every_mechanism(serves_without_memory);
    }
    let test = "starving::a_worker_goes_on_without_memory_for_its_waits";
    child::check(&child::run(test, "starves"));
}

/// Whoever has started it starts another one, with all the memory that the first one has given back.
#[test]
fn a_worker_that_can_never_wait_ends() {
    on_every_mechanism(|mechanism| {
        if !mechanism.waits_with.contains(&"pselect6") {
            return;
        }
        let (tell, started) = mpsc::channel();
        let ended = std::thread::spawn(move || starve(mechanism, true, &tell)).join().unwrap();
        match started.try_recv() {
            Ok(_) => assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::OutOfMemory),
            Err(_) => drover_testing::skip!("no seccomp: {ended:?}"),
        }
    });
}

/// More than the allocator has at hand, and not more than the reserve gives.
const MUCH: usize = reserve::LARGEST;

/// Serves connections that may ask for memory, which they give back at once, when the process gets no more.
fn ends_nobody_else() {
    let (tell, started) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        let called = RefCell::new(Vec::new());
        let socket = listen(([127, 0, 0, 1], 0).into(), ListenOptions::default()).unwrap();
        let address = local_address(socket.as_fd()).unwrap();
        let net =
            Net::open(&NetOptions::new(drover_mech::mechanisms::auto_of_readiness().unwrap()));
        let net = net.unwrap();
        let mut executor = Executor::new(&net, PATIENCE);
        executor.listen(Listener::open(&net, socket).unwrap(), |listener| async move {
            listener.run(AcceptBatch::All, |_| false).await.unwrap();
        });
        executor.on_out_of_memory(|user| called.borrow_mut().push(user));
        tell.send((net.remote(), address)).unwrap();
        let ran = executor.run(async |conn| {
            while let Ok(1..) = conn.fill_idle().await {
                if conn.io(|io| (0, io.input == b"much")) {
                    let room = std::hint::black_box(Vec::<u8>::with_capacity(MUCH));
                    assert!(reserve::holds(&room), "there is memory");
                    drop(room);
                }
                conn.io(|io| (io.input.len(), io.output.extend_from_slice(io.input)));
                conn.send(Body::None, None).await.unwrap();
            }
        });
        ran.unwrap();
        called.take()
    });
    let (remote, address): Started = started.recv().unwrap();
    let [one, other] = [connect(address), connect(address)];
    assert!(is_answered(&one) && is_answered(&other));
    let limit = getrlimit(Resource::Data);
    setrlimit(Resource::Data, Rlimit { current: Some(1 << 20), ..limit }).unwrap();
    (&one).write_all(b"much").unwrap();
    (&one).read_exact(&mut [0; 4]).unwrap();
    // The reserve is in use now, and neither of them has to do with it.
    let held = std::hint::black_box(Vec::<u8>::with_capacity(MUCH));
    let answered = [is_answered(&other), is_answered(&one)];
    drop(held);
    setrlimit(Resource::Data, limit).unwrap();
    assert_eq!(answered, [true, true]);
    remote.stop().unwrap();
    assert_eq!(worker.join().unwrap(), []);
}

/// What a coroutine has needed for a moment is not held against the one that runs when others use the reserve.
#[test]
fn a_coroutine_that_gave_memory_back_ends_nobody_else() {
    if child::role().is_some() {
        return ends_nobody_else();
    }
    let test = "starving::a_coroutine_that_gave_memory_back_ends_nobody_else";
    child::check(&child::run(test, "needs memory"));
}

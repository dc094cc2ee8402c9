//! Signals of the process' own: they end no helper, and those that helpers are sent are not taken from
//! others.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use drover_mech::accept::{self, Among, ListenPlan};
use drover_mech::mechanisms;

use crate::calls::{call_of, threads_called};
use crate::crew::{Client, Crew, WORKERS, plan, work};
use crate::{PATIENCE, child};

static SEEN: AtomicUsize = AtomicUsize::new(0);

/// Counts `signal` in [`SEEN`]; calls that it interrupts are not restarted.
fn count(signal: libc::c_int) {
    extern "C" fn seen(_: libc::c_int) {
        SEEN.fetch_add(1, Ordering::SeqCst);
    }
    // SAFETY: the handler adds to an atomic; a sigaction of zeroes has no flags and an empty mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = seen as extern "C" fn(libc::c_int) as libc::sighandler_t;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// The helpers of a strategy are stopped by a signal.
fn on_strategies_with_helpers(case: impl Fn(&'static accept::Strategy)) {
    for name in ["blocking", "lock", "handoff"] {
        let strategy = accept::by_name(name).unwrap();
        match strategy.probe() {
            Ok(()) => case(strategy),
            Err(reason) => drover_testing::skip!("{name}: {reason}"),
        }
    }
}

/// Starts and stops a crew whose threads are as `first` makes them.
fn come_and_go(
    strategy: &'static accept::Strategy,
    first: impl Fn(usize) + Clone + Send + 'static,
) {
    let (end, ended) = mpsc::channel();
    thread::spawn(move || {
        let mechanism = mechanisms::auto_of_readiness().unwrap();
        let crew = Crew::with(strategy, mechanism, &plan(), first);
        let mut client = crew.connect();
        client.send("?");
        client.expect("?");
        drop(crew);
        end.send(()).unwrap();
    });
    let stopped = ended.recv_timeout(PATIENCE);
    assert!(stopped.is_ok(), "{} does not stop", strategy.name);
}

#[test]
fn a_handler_that_was_there_before_a_stop_is_there_after_it() {
    if child::role().is_some() {
        count(libc::SIGURG);
        on_strategies_with_helpers(|strategy| {
            come_and_go(strategy, |_| {});
            let before = SEEN.load(Ordering::SeqCst);
            // As the kernel tells of out-of-band data.
            // SAFETY: the signal has a handler, that of `count`.
            assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGURG) }, 0);
            let start = Instant::now();
            while SEEN.load(Ordering::SeqCst) == before {
                assert!(start.elapsed() < PATIENCE, "{}: it is not called", strategy.name);
                thread::yield_now();
            }
        });
        return;
    }
    let test = "signals::a_handler_that_was_there_before_a_stop_is_there_after_it";
    child::check(&child::run(test, "signal"));
}

#[test]
fn helpers_stop_though_their_worker_has_blocked_all_signals() {
    on_strategies_with_helpers(|strategy| {
        come_and_go(strategy, |_| {
            let mut set = MaybeUninit::uninit();
            // SAFETY: sigfillset initialises the set; the mask before is not asked for.
            unsafe {
                libc::sigfillset(set.as_mut_ptr());
                libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            }
        });
    });
}

/// Waits until each of the agents sleeps in `call`.
fn agents_in(call: libc::c_long) -> Option<Vec<u32>> {
    let _told = call_of(drover_sys::process::thread_number())?;
    let start = Instant::now();
    loop {
        let agents: Vec<_> =
            (0..WORKERS).flat_map(|number| threads_called(&format!("agent {number}"))).collect();
        if agents.len() == WORKERS
            && agents.iter().all(|agent| call_of(*agent).is_some_and(|its| its == Ok(call)))
        {
            return Some(agents);
        }
        assert!(start.elapsed() < PATIENCE, "{agents:?}");
        thread::yield_now();
    }
}

/// Interrupts each of the agents in `call`.
fn interrupt_agents(call: libc::c_long) {
    let Some(agents) = agents_in(call) else {
        return drover_testing::skip!("the kernel does not tell the calls that threads are in");
    };
    for agent in agents {
        let before = SEEN.load(Ordering::SeqCst);
        // SAFETY: three integers; the signal has a handler, that of `count`.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), agent, libc::SIGUSR1) };
        assert_eq!(sent, 0);
        while SEEN.load(Ordering::SeqCst) == before {
            thread::yield_now();
        }
    }
}

#[test]
fn an_agent_that_is_interrupted_goes_on() {
    if child::role().is_none() {
        let test = "signals::an_agent_that_is_interrupted_goes_on";
        return child::check(&child::run(test, "agent"));
    }
    count(libc::SIGUSR1);
    let strategy = accept::by_name("handoff").unwrap();
    let mechanism = mechanisms::auto_of_readiness().unwrap();
    let made = strategy.open(&ListenPlan { among: Among::Processes, ..plan() }).unwrap();
    let [acceptor] = <[_; 1]>::try_from(made.acceptors).unwrap();
    acceptor.start().unwrap();
    interrupt_agents(libc::SYS_recvfrom);
    let (send, receive) = mpsc::channel();
    let mut workers = Vec::new();
    for (number, handle) in (0..).zip(made.handles) {
        let send = send.clone();
        let ready = move |remote| send.send(remote).unwrap();
        workers.push(thread::spawn(move || work(number, mechanism, handle, ready)));
    }
    interrupt_agents(libc::SYS_futex);
    for _ in 0..20 {
        let mut clients: Vec<_> =
            (0..WORKERS).map(|_| Client::of(made.address.ip().unwrap())).collect();
        clients.iter_mut().for_each(|client| client.send("?"));
        for client in &mut clients {
            client.expect("?");
        }
    }
    acceptor.finish();
    receive
        .iter()
        .take(WORKERS)
        .for_each(|remote: drover_mech::net::Remote| remote.stop().unwrap());
    workers.into_iter().for_each(|worker| worker.join().unwrap());
}

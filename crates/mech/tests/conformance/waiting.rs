//! Time-outs, wakes and signal handlers: how a wait ends without an event.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use drover_mech::readiness::{Interest, Ready};
use rustix::thread::gettid;

use crate::sockets::local_pair;
use crate::subject::{Subject, key};
use crate::{PATIENCE, on_every_mechanism};

#[test]
fn a_wait_lasts_as_long_as_its_time_out_and_not_a_moment_less() {
    on_every_mechanism(|subject| {
        let (ours, _peer) = local_pair();
        subject.attach(&ours, key(1), Interest::READABLE);
        subject.settle();
        let timeouts = [50, 300, 1_000, 1_300, 2_700, 10_000, 33_333].map(Duration::from_micros);
        for timeout in timeouts {
            wait_in_vain(subject, timeout);
        }
    });
}

/// Waits for as long as that or longer, and not for ever.
fn wait_in_vain(subject: &mut Subject, timeout: Duration) {
    // A debugger or the freezer of a control group interrupts a wait as a signal handler does.
    for _ in 0..3 {
        let begin = Instant::now();
        let batch = subject.wait(Some(timeout));
        let took = begin.elapsed();
        assert!(subject.events.is_empty() && !batch.woken, "{:?} {batch:?}", subject.events);
        assert!(took < timeout + PATIENCE, "{timeout:?} took {took:?}");
        if took >= timeout {
            return;
        }
    }
    panic!("three waits of {timeout:?} were too short");
}

#[test]
fn a_wait_on_nothing_times_out_too() {
    on_every_mechanism(|subject| {
        wait_in_vain(subject, Duration::from_millis(3));
        subject.wait(Some(Duration::ZERO));
    });
}

#[test]
fn a_time_out_of_centuries_is_no_error() {
    on_every_mechanism(|subject| {
        let (ours, mut peer) = local_pair();
        subject.attach(&ours, key(1), Interest::READABLE);
        subject.settle();
        peer.write_all(b"x").unwrap();
        subject.wait(Some(Duration::MAX));
        assert!(subject.events.iter().any(|event| event.ready.contains(Ready::READABLE)));
    });
}

#[test]
fn an_event_from_another_thread_ends_an_endless_wait() {
    on_every_mechanism(|subject| {
        let (ours, mut peer) = local_pair();
        subject.attach(&ours, key(1), Interest::READABLE);
        subject.settle();
        let writer = thread::spawn(move || peer.write_all(b"x").map(|()| peer));
        subject.wait(None);
        assert!(subject.events.iter().any(|event| event.ready.contains(Ready::READABLE)));
        writer.join().unwrap().unwrap();
    });
}

#[test]
fn a_wake_from_another_thread_ends_the_wait_each_time() {
    on_every_mechanism(|subject| {
        let waker = subject.dispatcher.waker();
        let (ask, asked) = mpsc::channel::<()>();
        let other = thread::spawn(move || {
            while asked.recv().is_ok() {
                waker.wake().unwrap();
            }
        });
        for _ in 0..200 {
            ask.send(()).unwrap();
            let batch = subject.wait(Some(PATIENCE));
            assert!(batch.woken);
            assert_eq!(subject.events, []);
        }
        drop(ask);
        other.join().unwrap();
    });
}

#[test]
fn a_wake_before_the_wait_ends_it_once() {
    on_every_mechanism(|subject| {
        assert!(!subject.wait(Some(Duration::ZERO)).woken);
        for _ in 0..3 {
            subject.dispatcher.waker().wake().unwrap();
            assert!(subject.wait(Some(PATIENCE)).woken);
            assert!(!subject.wait(Some(Duration::ZERO)).woken);
        }
    });
}

#[test]
fn many_wakes_are_one() {
    on_every_mechanism(|subject| {
        let wakers: Vec<_> = (0..4)
            .map(|_| {
                let waker = subject.dispatcher.waker();
                thread::spawn(move || (0..250).for_each(|_| waker.wake().unwrap()))
            })
            .collect();
        wakers.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(subject.wait(Some(PATIENCE)).woken);
        assert!(!subject.wait(Some(Duration::ZERO)).woken);
    });
}

#[test]
fn a_wake_takes_no_event_with_it() {
    on_every_mechanism(|subject| {
        let (ours, mut peer) = local_pair();
        subject.attach(&ours, key(1), Interest::READABLE);
        subject.settle();
        subject.dispatcher.waker().wake().unwrap();
        peer.write_all(b"x").unwrap();
        let mut woken = subject.wait(Some(PATIENCE)).woken;
        woken |= subject.wait(Some(Duration::ZERO)).woken;
        assert!(woken);
        subject.expect(key(1), Ready::READABLE);
    });
}

#[test]
fn a_waker_may_outlive_its_dispatcher() {
    let wakers = std::sync::Mutex::new(Vec::new());
    on_every_mechanism(|subject| wakers.lock().unwrap().push(subject.dispatcher.waker()));
    let wakers = wakers.into_inner().unwrap();
    wakers.iter().for_each(|waker| waker.wake().unwrap());
}

/// The handler is installed without `SA_RESTART`, but the waits are not among
/// the calls that would be restarted anyway (signal(7)).
#[test]
fn a_signal_handler_ends_the_wait_early_and_empty() {
    install_handler(libc::SIGUSR1);
    on_every_mechanism(|subject| {
        let waiting = gettid();
        let returned = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // Again and again: a signal before the wait begins ends nothing.
                while !returned.load(Ordering::Acquire) {
                    send_signal(waiting, libc::SIGUSR1);
                    thread::yield_now();
                }
            });
            let begin = Instant::now();
            let batch = subject.wait(Some(PATIENCE));
            returned.store(true, Ordering::Release);
            assert!(begin.elapsed() < PATIENCE, "the handler did not end it");
            assert_eq!(subject.events, []);
            assert!(!batch.woken);
        });
    });
}

extern "C" fn do_nothing(_: libc::c_int) {}

fn install_handler(signal: libc::c_int) {
    // SAFETY: a zeroed sigaction is one without flags and with an empty mask; the
    // handler does nothing, which is safe at any time.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = do_nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

fn send_signal(thread: rustix::thread::Pid, signal: libc::c_int) {
    let process = std::process::id() as libc::pid_t;
    // SAFETY: tgkill takes three integers. The thread waits for our return.
    let sent =
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread.as_raw_nonzero().get(), signal) };
    assert_eq!(sent, 0);
}

//! The signal that ends a thread's blocking call: SIGURG, which is ignored by default, should it come
//! late.
//!
//! It needs a handler (one that is ignored ends no call) without `SA_RESTART`. Somebody else in the
//! process may have one, for out-of-band data: it is still called, for all but the signals from here,
//! and is put behind this one anew if it was set later.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use sys::syscall;

const SIGNAL: libc::c_int = libc::SIGURG;

/// The handler that was there before, or `SIG_DFL` or `SIG_IGN`.
static BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
/// Whether it takes three arguments (`SA_SIGINFO`).
static BEFORE_TAKES_INFO: AtomicBool = AtomicBool::new(false);

/// Lets the calling thread be interrupted, whatever signals it has inherited as blocked.
pub(crate) fn allow() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set, which outlives the calls; the mask before is not asked
    // for.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), SIGNAL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
    }
}

/// Ends the call that `thread` of this process is in, if it is one that waits.
pub(crate) fn interrupt(thread: libc::pid_t) {
    install();
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: tgkill takes three integers and touches no memory of ours. It fails when
    // the thread has just ended.
    let _ = syscall!(syscall(libc::SYS_tgkill, process, thread, SIGNAL));
}

/// Sets the handler, unless it is set.
fn install() {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _held = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let ours = handle as extern "C" fn(_, _, _) as libc::sighandler_t;
    // SAFETY: a sigaction of zeroes has an empty mask and no flags; not SA_RESTART above all.
    let [mut now, mut action]: [libc::sigaction; 2] = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call, which only writes to it.
    let known = syscall!(sigaction(SIGNAL, ptr::null(), &raw mut now));
    if known.is_err() || now.sa_sigaction == ours {
        return;
    }
    // A handler that runs meanwhile finds nobody rather than one who takes other arguments.
    BEFORE.store(libc::SIG_DFL, Ordering::SeqCst);
    BEFORE_TAKES_INFO.store(now.sa_flags & libc::SA_SIGINFO != 0, Ordering::SeqCst);
    BEFORE.store(now.sa_sigaction, Ordering::SeqCst);
    (action.sa_sigaction, action.sa_mask) = (ours, now.sa_mask);
    action.sa_flags = libc::SA_SIGINFO | (now.sa_flags & libc::SA_ONSTACK);
    // SAFETY: the handler does nothing that a handler must not do, but for what the one before does.
    // Setting one for a signal that exists does not fail.
    let _ = syscall!(sigaction(SIGNAL, &raw const action, ptr::null_mut()));
}

/// Ends calls by having run; passes on what does not come from here (`SI_TKILL` of this process).
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over a siginfo, in which a signal of tgkill(2) has a sender.
    let is_ours =
        unsafe { (*info).si_code == libc::SI_TKILL && (*info).si_pid() == libc::getpid() };
    let before = BEFORE.load(Ordering::SeqCst);
    if is_ours || before == libc::SIG_DFL || before == libc::SIG_IGN {
        return;
    }
    // SAFETY: it was the handler of this signal, with these arguments.
    unsafe {
        if BEFORE_TAKES_INFO.load(Ordering::SeqCst) {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            std::mem::transmute::<usize, Handler>(before)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(before)(signal);
        }
    }
}

//! Interrupting a thread's blocking system call by the signal SIGURG.
//!
//! SIGURG is ignored by default, so a late signal does no harm. An ignored signal interrupts no system
//! call: this file installs a handler without `SA_RESTART`, and the call returns `EINTR`.
//!
//! Other code in the process may have a SIGURG handler, for out-of-band data. This file's handler calls
//! that handler for every SIGURG that this file did not send. If other code installs a handler later,
//! the next [`interrupt`] installs this file's handler in front of it.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use drover_sys::syscall;

const SIGNAL: libc::c_int = libc::SIGURG;

/// The other code's handler, or `SIG_DFL` or `SIG_IGN`.
static BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
/// Whether the handler in [`BEFORE`] takes three arguments (`SA_SIGINFO`).
static BEFORE_TAKES_INFO: AtomicBool = AtomicBool::new(false);

/// Unblocks SIGURG in the calling thread, which may have inherited a mask that blocks the signal.
pub(crate) fn allow() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set, and the set outlives the calls; a null pointer means
    // that the old mask is not wanted.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), SIGNAL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
    }
}

/// Interrupts the blocking system call of `thread` in this process, if it is in one. `thread` is a
/// thread number (gettid(2)).
pub(crate) fn interrupt(thread: libc::pid_t) {
    install();
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: tgkill takes three integers and touches no memory of ours. ESRCH means that the thread
    // has ended, and needs no interruption.
    let _ = syscall!(syscall(libc::SYS_tgkill, process, thread, SIGNAL));
}

/// Installs this file's handler, unless it is the current one.
fn install() {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let ours = handle as extern "C" fn(_, _, _) as libc::sighandler_t;
    // SAFETY: a sigaction of zeroes is valid: an empty mask and no flags, in particular no SA_RESTART.
    let [mut now, mut action]: [libc::sigaction; 2] = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call, which only writes to it.
    let known = syscall!(sigaction(SIGNAL, ptr::null(), &raw mut now));
    if known.is_err() || now.sa_sigaction == ours {
        return;
    }
    // A signal may arrive between these stores. It then finds SIG_DFL, never a handler with the wrong
    // number of arguments.
    BEFORE.store(libc::SIG_DFL, Ordering::SeqCst);
    BEFORE_TAKES_INFO.store(now.sa_flags & libc::SA_SIGINFO != 0, Ordering::SeqCst);
    BEFORE.store(now.sa_sigaction, Ordering::SeqCst);
    (action.sa_sigaction, action.sa_mask) = (ours, now.sa_mask);
    action.sa_flags = libc::SA_SIGINFO | (now.sa_flags & libc::SA_ONSTACK);
    // SAFETY: the handler calls only async-signal-safe functions (signal-safety(7)) and the other code's
    // handler. sigaction(2) does not fail: the signal number is valid.
    let _ = syscall!(sigaction(SIGNAL, &raw const action, ptr::null_mut()));
}

/// The handler of SIGURG. The kernel ends the blocking call with `EINTR` because a handler ran. A signal
/// that this process did not send by tgkill(2) goes to the other code's handler.
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo; si_pid is set if si_code is SI_TKILL.
    let is_ours =
        unsafe { (*info).si_code == libc::SI_TKILL && (*info).si_pid() == libc::getpid() };
    let before = BEFORE.load(Ordering::SeqCst);
    if is_ours || before == libc::SIG_DFL || before == libc::SIG_IGN {
        return;
    }
    // SAFETY: `before` is a handler that was installed for this signal, and SA_SIGINFO told how many
    // arguments it takes.
    unsafe {
        if BEFORE_TAKES_INFO.load(Ordering::SeqCst) {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            std::mem::transmute::<usize, Handler>(before)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(before)(signal);
        }
    }
}

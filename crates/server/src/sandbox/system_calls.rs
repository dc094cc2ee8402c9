//! Which system calls a worker process may make while it serves: seccomp(2).
//!
//! The filter is a list of what is allowed. Everything else fails with `ENOSYS`, as on a kernel that does not have the call,
//! because C libraries then fall back to an older call. The filter comes into force when all workers accept connections: what
//! only a start needs, such as making sockets and rings, is not on the list. io_uring_enter(2) is on it for a ring that is
//! there, and such a ring takes no requests but those of its parts ([`drover_sys::ring`]).
//!
//! The kernel does not run the filter for calls that it allows with any arguments (Linux 5.11). That is why the
//! calls of a request have no conditions.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use drover_mech::{fileio, mechanisms};
use drover_sys::process;
use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::Config;

/// What every worker needs: memory, threads, time, files, sockets.
const ALWAYS: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_membarrier,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_faccessat,
    FACCESSAT2,
    libc::SYS_fadvise64,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
    CACHESTAT,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    libc::SYS_accept4,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    // A thread of the C library, and one that accepts (`--accept blocking`), wait for a descriptor with it.
    libc::SYS_ppoll,
    // Of the file of a trace, when the disk is full.
    libc::SYS_ftruncate,
    // The thread of the log restricts itself when it comes to it.
    LANDLOCK_RESTRICT_SELF,
];

// Newer calls have one number everywhere.
/// faccessat2(2), Linux 5.8.
const FACCESSAT2: c_long = 439;
/// landlock_restrict_self(2), Linux 5.13.
const LANDLOCK_RESTRICT_SELF: c_long = 446;
/// cachestat(2), Linux 6.5.
const CACHESTAT: c_long = 451;

/// What C libraries make of some calls where the architecture has older ones.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_epoll_wait,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

const EPOLL: &[c_long] = &[libc::SYS_epoll_ctl, libc::SYS_epoll_pwait2, libc::SYS_epoll_pwait];

/// What a dispatch mechanism needs that waits with the call of this name.
fn of_wait(name: &str) -> &'static [c_long] {
    match name {
        "pselect6" => &[libc::SYS_pselect6],
        "epoll_pwait2" => EPOLL,
        "rt_sigtimedwait" => &[libc::SYS_rt_sigtimedwait],
        "io_uring_enter" => &[libc::SYS_io_uring_enter],
        // ppoll is allowed always; ioctl has a condition.
        _ => &[],
    }
}

/// An argument of a system call: its place, its lower half or all of it, and what that must be. The kernel itself looks at
/// the lower half of an `int`.
struct Argument(u8, SeccompCmpArgLen, SeccompCmpOp, u64);

/// The calls that are allowed with some arguments, each with its alternatives.
fn with_arguments(config: &Config) -> Vec<(c_long, Vec<Argument>)> {
    use SeccompCmpArgLen::{Dword as Int, Qword as Pointer};
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let own = u64::from(std::process::id());
    let is_thread = libc::CLONE_THREAD as u64;
    let mut calls = vec![
        // Threads, no processes. clone3(2) has its flags in memory, where no filter can look: the C library
        // falls back to clone(2).
        (libc::SYS_clone, vec![Argument(0, Int, MaskedEq(is_thread), is_thread)]),
        (libc::SYS_tgkill, vec![Argument(0, Int, Eq, own)]),
        // Nothing that is written becomes a program.
        (libc::SYS_mmap, vec![Argument(2, Int, MaskedEq(libc::PROT_EXEC as u64), 0)]),
        (libc::SYS_mprotect, vec![Argument(2, Int, MaskedEq(libc::PROT_EXEC as u64), 0)]),
        (libc::SYS_prctl, vec![Argument(0, Int, Eq, libc::PR_SET_NAME as u64)]),
        (libc::SYS_prctl, vec![Argument(0, Int, Eq, libc::PR_SET_TIMERSLACK as u64)]),
        (libc::SYS_prctl, vec![Argument(0, Int, Eq, libc::PR_SET_NO_NEW_PRIVS as u64)]),
        // Threads that verify passwords stand back.
        (libc::SYS_setpriority, vec![Argument(0, Int, Eq, 0), Argument(1, Int, Eq, 0)]),
        // Limits are read.
        (libc::SYS_prlimit64, vec![Argument(0, Int, Eq, 0), Argument(2, Pointer, Eq, 0)]),
        (libc::SYS_ioctl, vec![Argument(1, Int, Eq, u64::from(libc::FIONBIO as u32))]),
        (libc::SYS_ioctl, vec![Argument(1, Int, Eq, u64::from(libc::FIONREAD as u32))]),
    ];
    let mut commands = vec![
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
        libc::F_GET_SEALS,
        libc::F_GETPIPE_SZ,
        libc::F_SETPIPE_SZ,
    ];
    // Also where a device takes the signals: the kernel sends them as ever.
    if config.mechanism.waits_with.contains(&"rt_sigtimedwait") {
        commands.extend([F_SETSIG, F_SETOWN_EX, F_GETOWN_EX]);
    }
    let commands = commands.into_iter();
    calls.extend(commands.map(|it| (libc::SYS_fcntl, vec![Argument(1, Int, Eq, it as u64)])));
    if mechanisms::device_of(config.mechanism).is_some() {
        // The device's own requests; none that types at the terminal.
        let others = [libc::TIOCSTI as u32, libc::TIOCLINUX as u32]
            .map(|it| Argument(1, Int, Ne, it.into()));
        calls.push((libc::SYS_ioctl, others.into()));
    }
    calls
}

/// fcntl(2), which the libc crate lacks on some C libraries.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
const F_GETOWN_EX: i32 = 16;

/// Enters the filter, with all threads of the process or with the calling one. Returns what is in force, in words.
pub(super) fn enter(config: &Config, all_threads: bool) -> String {
    let entered = program(config).and_then(|(allowed, program)| {
        let instruction = |it: &seccompiler::sock_filter| libc::sock_filter {
            code: it.code,
            jt: it.jt,
            jf: it.jf,
            k: it.k,
        };
        let program: Vec<libc::sock_filter> = program.iter().map(instruction).collect();
        process::filter_system_calls(&program, all_threads).map_err(|error| error.to_string())?;
        Ok(allowed)
    });
    match entered {
        Ok(allowed) => format!("seccomp: {allowed} system calls"),
        Err(error) => format!("seccomp: none: {error}"),
    }
}

/// How many calls are allowed, and the program that decides.
fn program(config: &Config) -> Result<(usize, BpfProgram), String> {
    let waits = mechanisms::waits_with(config.mechanism).iter().flat_map(|name| of_wait(name));
    // The model of the patch's hints has them from an epoll set.
    let hints = if mechanisms::models_devpoll(config.mechanism) { EPOLL } else { &[] };
    let files = config.files.unwrap_or(fileio::auto()).calls;
    let calls = ALWAYS.iter().chain(OLDER).chain(waits).chain(hints).chain(files);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        calls.map(|&call| (call, Vec::new())).collect();
    for (call, arguments) in with_arguments(config) {
        let condition =
            |Argument(place, part, is, value)| SeccompCondition::new(place, part, is, value);
        let conditions = arguments.into_iter().map(condition).collect::<Result<_, _>>();
        let rule = conditions.and_then(SeccompRule::new).map_err(|error| error.to_string())?;
        rules.entry(call).or_default().push(rule);
    }
    let allowed = rules.len();
    let others = SeccompAction::Errno(libc::ENOSYS as u32);
    let architecture = ARCH.try_into().map_err(|_| format!("not for {ARCH}"))?;
    let filter = SeccompFilter::new(rules, others, SeccompAction::Allow, architecture);
    let program = filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())?;
    Ok((allowed, program))
}

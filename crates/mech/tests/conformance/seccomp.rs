//! Forbidding system calls to this thread, with seccomp(2) in filter mode.

use std::io;

use libc::c_ulong;

// Instructions of classic BPF (linux/bpf_common.h) and offsets into seccomp_data.
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const SYSCALL_NUMBER: u32 = 0;
const ARGUMENTS: u32 = 16;

/// Every system call that waits for descriptors or signals, or just waits.
pub(crate) const WAITING: &[(&str, libc::c_long)] = &[
    #[cfg(target_arch = "x86_64")]
    ("select", libc::SYS_select),
    ("pselect6", libc::SYS_pselect6),
    #[cfg(target_arch = "x86_64")]
    ("poll", libc::SYS_poll),
    ("ppoll", libc::SYS_ppoll),
    #[cfg(target_arch = "x86_64")]
    ("epoll_wait", libc::SYS_epoll_wait),
    ("epoll_pwait", libc::SYS_epoll_pwait),
    ("epoll_pwait2", libc::SYS_epoll_pwait2),
    ("rt_sigtimedwait", libc::SYS_rt_sigtimedwait),
    ("rt_sigsuspend", libc::SYS_rt_sigsuspend),
    #[cfg(target_arch = "x86_64")]
    ("pause", libc::SYS_pause),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_getevents", libc::SYS_io_getevents),
    ("nanosleep", libc::SYS_nanosleep),
    ("clock_nanosleep", libc::SYS_clock_nanosleep),
];

/// What a device is waited on with. Whoever has no device makes this call for other reasons.
const OF_DEVICES: (&str, libc::c_long) = ("ioctl", libc::SYS_ioctl);

/// The number of the call that has that name in [`WAITING`], or [`OF_DEVICES`].
#[track_caller]
pub(crate) fn number(name: &str) -> libc::c_long {
    let mut known = WAITING.iter().chain([&OF_DEVICES]);
    let found = known.find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("{name} is not in the table")).1
}

/// From now on each of `calls` kills the process, if this thread makes it.
///
/// # Errors
/// What prctl(2) says where seccomp is not to be had.
pub(crate) fn forbid(calls: &[libc::c_long]) -> io::Result<()> {
    filter(calls, libc::SECCOMP_RET_KILL_PROCESS)
}

/// From now on each of `calls` fails with `errno`, if this thread makes it or one
/// that it starts: what a container's profile does.
///
/// # Errors
/// What prctl(2) says where seccomp is not to be had.
pub(crate) fn refuse(calls: &[libc::c_long], errno: i32) -> io::Result<()> {
    filter(calls, libc::SECCOMP_RET_ERRNO | errno as u32)
}

/// From now on `call` fails with `errno` where its argument of this index, of which 32 bits count, is more than `most`.
///
/// # Errors
/// What prctl(2) says where seccomp is not to be had.
pub(crate) fn refuse_above(
    call: libc::c_long,
    argument: usize,
    most: u32,
    errno: i32,
) -> io::Result<()> {
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let low_word = if cfg!(target_endian = "little") { 0 } else { 4 };
    let argument = ARGUMENTS + 8 * argument as u32 + low_word;
    install(&mut [
        op(LOAD_WORD, 0, 0, SYSCALL_NUMBER),
        op(JUMP_IF_EQUAL, 0, 3, call as u32),
        op(LOAD_WORD, 0, 0, argument),
        op(JUMP_IF_GREATER, 0, 1, most),
        op(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        op(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ])
}

fn filter(calls: &[libc::c_long], verdict: u32) -> io::Result<()> {
    let op = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mut program = vec![op(LOAD_WORD, 0, SYSCALL_NUMBER)];
    for (at, &call) in calls.iter().enumerate() {
        let to_the_end = u8::try_from(calls.len() - at).unwrap();
        program.push(op(JUMP_IF_EQUAL, to_the_end, call as u32));
    }
    program.push(op(RETURN, 0, libc::SECCOMP_RET_ALLOW));
    program.push(op(RETURN, 0, verdict));
    install(&mut program)
}

/// The program does not look at the architecture: the tests make native calls.
fn install(program: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // prctl(2) takes unsigned longs, and wants those that it does not use to be 0.
    let (yes, no, mode): (c_ulong, c_ulong, c_ulong) = (1, 0, libc::SECCOMP_MODE_FILTER.into());
    // SAFETY: the kernel copies the program, which lives over the calls.
    let forbidden = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, yes, no, no, no) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) == 0
    };
    if forbidden { Ok(()) } else { Err(io::Error::last_os_error()) }
}

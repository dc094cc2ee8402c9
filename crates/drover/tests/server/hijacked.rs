//! What a worker can do that was broken into. A debugger makes system calls in its place (ptrace(2)).

use std::fs;

use nix::errno::Errno;
use nix::libc::{self, c_long, user_regs_struct};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::hanging::thread_of;
use crate::harness::{Server, Site, on_every_mechanism};
use crate::sandbox::{serve, told};

/// What the kernel answers in place of a call that the filter does not allow.
const FILTERED: i64 = -(libc::ENOSYS as i64);

/// The machine code of `syscall`.
const SYSCALL: u16 = 0x050f;

/// A thread that is stopped in a system call of its own.
struct Hijacked {
    thread: Pid,
    /// Its registers, behind the instruction that made the call.
    before: user_regs_struct,
}

impl Hijacked {
    /// Stops a thread when it is in a system call. `None`: nobody may do that here, which is noted.
    fn stop(thread: Pid) -> Option<Hijacked> {
        loop {
            match ptrace::attach(thread) {
                Err(Errno::EPERM) => {
                    drover_testing::skip!("ptrace(2) is forbidden");
                    return None;
                }
                attached => attached.unwrap(),
            }
            wait(thread);
            let before = ptrace::getregs(thread).unwrap();
            let code = ptrace::read(thread, (before.rip - 2) as ptrace::AddressType).unwrap();
            if code as u16 == SYSCALL {
                return Some(Hijacked { thread, before });
            }
            ptrace::detach(thread, None).unwrap();
            std::thread::yield_now();
        }
    }

    /// Has the thread make a system call. Returns what the kernel returns: a negative error number, or a result.
    fn call(&self, number: c_long, arguments: &[u64]) -> i64 {
        let argument = |place: usize| arguments.get(place).copied().unwrap_or(0);
        let registers = user_regs_struct {
            rip: self.before.rip - 2,
            rax: number as u64,
            // Nothing of the call that was interrupted is restarted.
            orig_rax: u64::MAX,
            rdi: argument(0),
            rsi: argument(1),
            rdx: argument(2),
            r10: argument(3),
            r8: argument(4),
            r9: argument(5),
            ..self.before
        };
        ptrace::setregs(self.thread, registers).unwrap();
        // Signals of the mechanism may come in between.
        loop {
            ptrace::step(self.thread, None).unwrap();
            if wait(self.thread) == Signal::SIGTRAP {
                return ptrace::getregs(self.thread).unwrap().rax as i64;
            }
        }
    }

    fn is_filtered(&self, number: c_long, arguments: &[u64]) -> bool {
        self.call(number, arguments) == FILTERED
    }

    /// Lets the thread go on with its own call.
    fn let_go(self) {
        ptrace::setregs(self.thread, self.before).unwrap();
        ptrace::detach(self.thread, None).unwrap();
    }
}

fn wait(thread: Pid) -> Signal {
    match waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap() {
        WaitStatus::Stopped(_, signal) => signal,
        other => panic!("{other:?}"),
    }
}

/// Calls that serve an attacker, whatever their arguments are.
const NEVER: &[c_long] = &[
    // Programs and processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_clone3,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    // Sockets.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    // What the kernel offers beyond: keys, rings, page faults, programs in the kernel, events of processors.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_setup,
    libc::SYS_fanotify_init,
    libc::SYS_inotify_init1,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_lookup_dcookie,
    libc::SYS_personality,
    libc::SYS_modify_ldt,
    libc::SYS_pkey_mprotect,
    libc::SYS_remap_file_pages,
    libc::SYS_shmat,
    libc::SYS_mq_open,
    // Rights, and what they are looked up in.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_capset,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    // Files: Landlock does not keep modes, owners, times and attributes.
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_chown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_truncate,
    libc::SYS_fallocate,
    libc::SYS_flock,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_swapon,
    libc::SYS_acct,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_setrlimit,
];

/// Calls that are allowed with other arguments than these.
const NOT_SO: &[(&str, c_long, &[u64])] = &[
    ("a process", libc::SYS_clone, &[libc::SIGCHLD as u64]),
    ("memory to run", libc::SYS_mmap, &[0, 4096, 7, 0x22, u64::MAX, 0]),
    ("memory to run", libc::SYS_mprotect, &[0, 4096, 5]),
    ("a signal for process 1", libc::SYS_tgkill, &[1, 1, 0]),
    ("an owner of signals", libc::SYS_fcntl, &[0, libc::F_SETOWN as u64, 1]),
    ("typing at the terminal", libc::SYS_ioctl, &[0, libc::TIOCSTI, 0]),
    ("typing, by a request with more bits", libc::SYS_ioctl, &[0, libc::TIOCSTI | 1 << 32, 0]),
    ("a debugger", libc::SYS_prctl, &[libc::PR_SET_PTRACER as u64, u64::MAX]),
    ("a limit", libc::SYS_prlimit64, &[0, 7, 1, 0]),
    ("a limit, with a pointer of which half is zero", libc::SYS_prlimit64, &[0, 7, 1 << 32, 0]),
    ("the limits of others", libc::SYS_prlimit64, &[1, 7, 0, 0]),
    ("the priority of others", libc::SYS_setpriority, &[0, 1, 0]),
];

/// Calls that end the thread or leave it without its registers, whatever their arguments are.
const NOT_TRIED: &[c_long] = &[libc::SYS_exit, libc::SYS_exit_group, libc::SYS_rt_sigreturn];

/// The highest number that Linux 7.0 gives a call, and some beyond.
const LAST: c_long = 512;

/// How many calls are allowed, as the log says. `None`: this kernel filters none, which is noted.
fn allowed(server: &mut Server) -> Option<usize> {
    let line = told(server);
    let (_, told) = line.split_once("; seccomp: ").unwrap();
    let count = told.strip_suffix(" system calls").and_then(|count| count.parse().ok());
    if count.is_none() {
        drover_testing::skip!("seccomp: {told}");
    }
    count
}

/// Walks every call with arguments that mean nothing, and those that serve an attacker.
fn walk(thread: Pid, allowed: usize) {
    let Some(hijacked) = Hijacked::stop(thread) else { return };
    let known = (0..LAST).filter(|number| !NOT_TRIED.contains(number));
    let passed: Vec<c_long> =
        known.filter(|&number| !hijacked.is_filtered(number, &[u64::MAX; 6])).collect();
    assert!(passed.len() + NOT_TRIED.len() <= allowed, "{allowed} are allowed: {passed:?}");
    for number in NEVER {
        assert!(!passed.contains(number), "{number}");
    }
    for (what, number, arguments) in NOT_SO {
        assert!(hijacked.is_filtered(*number, arguments), "{what}");
    }
    hijacked.let_go();
}

#[test]
fn a_hijacked_worker_makes_the_calls_of_serving_and_no_others_on_every_mechanism() {
    on_every_mechanism(|mechanism| {
        let site = Site::new();
        site.file("a", "still here");
        let mut server = serve(site.path(), &["--dispatch", mechanism.name, "--workers", "1"]);
        let Some(allowed) = allowed(&mut server) else { return };
        assert_eq!(server.get("/a").is(200).text(), "still here");
        walk(thread_of(server.worker_process()), allowed);
        assert_eq!(server.get("/a").is(200).text(), "still here");
    });
}

#[test]
fn a_hijacked_process_of_admin_makes_no_other_calls_either() {
    let site = Site::new();
    let mut server = serve(site.path(), &["--admin", "127.0.0.1:0"]);
    let Some(allowed) = allowed(&mut server) else { return };
    let process = server.admin_process();
    let filters = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    assert!(filters.contains("Seccomp:\t2"), "{filters}");
    // It needs fewer than a worker.
    walk(Pid::from_raw(process as i32), allowed);
}

/// So that the walk proves something: without the sandbox these calls are made.
#[test]
fn without_the_sandbox_a_hijacked_worker_makes_sockets_and_runs_programs() {
    let site = Site::new();
    let server = serve(site.path(), &["--no-sandbox", "--workers", "1"]);
    let Some(hijacked) = Hijacked::stop(thread_of(server.worker_process())) else { return };
    let domain = libc::AF_INET as u64;
    let socket = hijacked.call(libc::SYS_socket, &[domain, libc::SOCK_STREAM as u64, 0]);
    assert!(socket >= 0, "{socket}");
    let run = hijacked.call(libc::SYS_execve, &[u64::MAX; 3]);
    assert_eq!(run, -i64::from(libc::EFAULT));
}

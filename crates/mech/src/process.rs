//! Processes as a laboratory needs them: CPU clocks, pinning, limits, and
//! children that never outlive their parent.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::mount::{
    FsOpenFlags, MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount,
};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CpuSet};

use crate::sys::syscall;

/// The CPU time that process `pid` has used, user and system, in the kernel's
/// nanosecond accounting: all its threads, those that have ended and
/// io_uring's workers included; its child processes not.
///
/// A thread that is running on another processor at this moment is accounted
/// up to its last tick or switch.
///
/// # Errors
/// `ESRCH` if there is no such process, or it has been waited for.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable and outlives the call.
    syscall!(clock_gettime(cpu_clock(pid), &mut time)).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::EINVAL) => io::Error::from_raw_os_error(libc::ESRCH),
            _ => error,
        }
    })?;
    Ok(Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// The clock that clock_getcpuclockid(3) returns for `pid`: the kernel's
/// `MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)`, which the libc crate lacks.
fn cpu_clock(pid: u32) -> libc::clockid_t {
    const CPUCLOCK_SCHED: libc::clockid_t = 2;
    (!pid.cast_signed() << 3) | CPUCLOCK_SCHED
}

/// The CPU time that the calling thread has used, user and system.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// How often the threads of this process have given up their processor to wait for something: each
/// time one was woken it does so once more (`ru_nvcsw`, getrusage(2)).
#[must_use]
pub fn voluntary_switches() -> u64 {
    // SAFETY: a structure of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable and outlives the call.
    let told = syscall!(getrusage(libc::RUSAGE_SELF, &raw mut usage));
    told.map_or(0, |_| usage.ru_nvcsw.unsigned_abs())
}

/// Lets others run that wait for this thread's processor (sched_yield(2)).
pub fn give_way() {
    rustix::thread::sched_yield();
}

/// How long the calling thread could have run and was not given a processor: the second number of
/// `/proc/thread-self/schedstat` (Documentation/scheduler/sched-stats.rst). `None` if the kernel
/// does not count it.
#[must_use]
pub fn thread_run_delay() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// The time on `CLOCK_MONOTONIC`, which [`std::time::Instant`] reads too, since a moment that is the
/// same for all processes (clock_gettime(2)).
#[must_use]
pub fn monotonic_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Makes the calling thread's waits end when they should: by default the kernel
/// may add up to 50 µs to each (PR_SET_TIMERSLACK(2const)), to wake for several
/// at once.
///
/// # Errors
/// What prctl(2) says; the waits are then late, and nothing else is wrong.
pub fn sharpen_timers() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?)
}

/// The processors that the calling thread may run on, in ascending order.
///
/// # Errors
/// What sched_getaffinity(2) says.
pub fn usable_cpus() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Keeps the calling thread, and threads that it starts from now on, on one
/// processor.
///
/// # Errors
/// `EINVAL` if the process may not use that processor.
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    Ok(rustix::thread::sched_setaffinity(None, &cpu_set(&[cpu])?)?)
}

/// Keeps the calling thread, and threads and processes that it starts from now on, on some
/// processors.
///
/// # Errors
/// `EINVAL` if the process may use none of them.
pub fn keep_current_thread_on(cpus: &[usize]) -> io::Result<()> {
    Ok(rustix::thread::sched_setaffinity(None, &cpu_set(cpus)?)?)
}

/// Makes `command`'s process run on `cpus` only (an empty list: anywhere).
///
/// # Errors
/// `EINVAL` for a processor number beyond what the kernel's set can name.
pub fn pin(command: &mut Command, cpus: &[usize]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let set = cpu_set(cpus)?;
    // SAFETY: the closure makes one system call on a copied value; it neither
    // allocates nor takes a lock, so it may run between fork and exec.
    unsafe {
        command.pre_exec(move || Ok(rustix::thread::sched_setaffinity(None, &set)?));
    }
    Ok(())
}

/// Makes `command`'s process stand back where others want the same processor: `SCHED_IDLE`. A process
/// that is merely nice runs to the end of its slice, some milliseconds, before it gives way (sched(7),
/// and what the kernel calls `RUN_TO_PARITY`).
pub fn stand_back(command: &mut Command) {
    // SAFETY: it makes one system call; no allocation, no lock.
    unsafe {
        command.pre_exec(stand_back_here);
    }
}

/// Makes the calling thread, and threads that it starts from now on, stand back likewise.
///
/// # Errors
/// What sched_setscheduler(2) says.
pub fn stand_back_here() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure outlives the call, which keeps no pointer to it.
    syscall!(sched_setscheduler(0, libc::SCHED_IDLE, &raw const priority)).map(drop)
}

/// Gives `command`'s process a mount of `folder` in its place on which every access is noted
/// (`strictatime`), in a mount namespace that ends with it. To be started by root, whose mounts have
/// changeable options.
///
/// # Errors
/// `InvalidInput` if the path has a zero byte.
pub fn note_access_times(command: &mut Command, folder: &Path) -> io::Result<()> {
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: four system calls on strings made before; no allocation, no lock.
    unsafe {
        command.pre_exec(move || {
            let changed = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            syscall!(unshare(libc::CLONE_NEWNS))?;
            mount_change(c"/", changed)?;
            mount_bind(&*folder, &*folder)?;
            Ok(mount_remount(&*folder, MountFlags::BIND | MountFlags::STRICTATIME, c"")?)
        });
    }
    Ok(())
}

/// Why [`note_access_times`] does not work here; `None`: it does.
pub fn cannot_note_access_times() -> Option<String> {
    let mut trial = Command::new("true");
    let run = note_access_times(&mut trial, &std::env::temp_dir()).and_then(|()| trial.status());
    let error = run.err()?;
    Some(format!(
        "a mount that notes every access (strictatime) cannot be made ({error}): run as root"
    ))
}

/// Makes `command`'s process an ordinary user, as far as it can see, who owns what this process' user
/// owns: it gets a user namespace without any user in it. A server that is started by root gives up
/// its rights, or refuses to serve, and then may not read what root alone may read.
pub fn hide_root(command: &mut Command) {
    // SAFETY: one system call without arguments that point anywhere; no allocation, no lock.
    unsafe {
        command.pre_exec(|| {
            crate::sys::syscall!(unshare(libc::CLONE_NEWUSER))?;
            Ok(())
        });
    }
}

/// Makes the kernel kill `command`'s process when the *thread* that spawns it
/// ends, however it ends: also by SIGKILL.
///
/// So spawn from a thread that lives as long as the child is needed. The
/// setting survives exec, but is not inherited by the child's own children.
pub fn die_with_parent(command: &mut Command) {
    let parent = Pid::from_raw(std::process::id().cast_signed());
    // SAFETY: two system calls on copied values; no allocation, no lock.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // A parent that died before the line above sends no signal any
            // more; its orphan has another parent by then.
            if rustix::process::getppid() == parent {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(libc::ESRCH))
            }
        });
    }
}

/// Lets `command`'s process have `descriptors` under their numbers of here, as long as they are open
/// here when it is started. It takes them by [`inherited`].
pub fn pass_on<'d>(command: &mut Command, descriptors: impl IntoIterator<Item = BorrowedFd<'d>>) {
    let numbers: Vec<RawFd> = descriptors.into_iter().map(|fd| fd.as_raw_fd()).collect();
    // SAFETY: a system call per number on values made before; no allocation, no lock.
    unsafe {
        command.pre_exec(move || {
            for &number in &numbers {
                syscall!(fcntl(number, libc::F_SETFD, 0))?;
            }
            Ok(())
        });
    }
}

/// Takes a descriptor that the parent has passed on ([`pass_on`]). Call it before other threads run
/// programs.
///
/// # Errors
/// `EBADF` if it is not open; `InvalidInput` if it was taken already, or is one of this process' own.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    let flags = syscall!(fcntl(number, libc::F_GETFD))?;
    if number <= libc::STDERR_FILENO || flags & libc::FD_CLOEXEC != 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    syscall!(fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC))?;
    // SAFETY: all that this process opens by itself has FD_CLOEXEC; one that had not came with the
    // exec and nobody has taken it, since that sets the flag.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// How often the calling thread has given its processor up to wait for something.
///
/// # Errors
/// What getrusage(2) says.
pub fn thread_waits() -> io::Result<u64> {
    // SAFETY: a rusage of zeroes is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable and outlives the call.
    syscall!(getrusage(libc::RUSAGE_THREAD, &mut usage))?;
    Ok(usage.ru_nvcsw.cast_unsigned())
}

/// As [`thread_waits`], of the thread with number `thread` in any process; `None` if there is none.
#[must_use]
pub fn waits_of(thread: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    count.trim().parse().ok()
}

/// The number of the calling thread, the same for all processes.
#[must_use]
pub fn thread_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// Whether this process has the rights of root in its user namespace.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this process may mount file systems itself. Root of a container often may not, and root of
/// a user namespace only in a mount namespace of that (mount_namespaces(7)).
#[must_use]
pub fn may_mount() -> bool {
    // It begins what would become a file system (Linux 5.2), and asks for the right to mount one.
    match rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC) {
        Err(Errno::NOSYS) => {
            let sets = rustix::thread::capabilities(None);
            sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
        }
        begun => !matches!(begun, Err(Errno::PERM)),
    }
}

/// Whether a program that is given the rights of its owner (set-user-id) would get that of mounting:
/// it does not in a container without it, nor where no program gets new rights (capabilities(7),
/// `PR_SET_NO_NEW_PRIVS`).
#[must_use]
pub fn may_be_helped_to_mount() -> bool {
    let is_within = rustix::thread::capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN);
    is_within.unwrap_or(false) && !rustix::thread::no_new_privs().unwrap_or(false)
}

/// Asks a child to stop in good order (SIGTERM). [`Child::kill`] is the other way.
///
/// # Errors
/// `ESRCH` if the child has been waited for.
pub fn ask_to_stop(child: &Child) -> io::Result<()> {
    let pid = Pid::from_child(child);
    Ok(rustix::process::kill_process(pid, Signal::TERM)?)
}

/// Kills the process group that `child` leads (SIGKILL), whether or not `child` itself has ended.
/// Only for a child that was started as the leader of its own group.
///
/// # Errors
/// `ESRCH` if nobody is left in it.
pub fn kill_group(child: &Child) -> io::Result<()> {
    let group = Pid::from_child(child);
    Ok(rustix::process::kill_process_group(group, Signal::KILL)?)
}

/// A resource limit of this process; `None` means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What holds now.
    pub soft: Option<u64>,
    /// How far the process may raise it by itself.
    pub hard: Option<u64>,
}

/// `RLIMIT_NOFILE`: one more than the highest descriptor number.
#[must_use]
pub fn open_files_limit() -> Limit {
    limit(Resource::Nofile)
}

/// Raises the soft limit on descriptors to the hard one and returns the limit
/// that holds then.
///
/// # Errors
/// What prlimit(2) says.
pub fn raise_open_files_limit() -> io::Result<Limit> {
    let Limit { hard, .. } = open_files_limit();
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })?;
    Ok(open_files_limit())
}

/// Makes room in this process' table of descriptors for `count` of them, which takes 8 bytes each, or
/// for as many as the limit allows.
///
/// The kernel makes a full table larger, by a power of two, for whoever opens the next descriptor.
/// Where threads share it, that one sleeps until no processor can be reading the old table any more
/// (`expand_files` in fs/file.c waits for an RCU grace period): for 5 to 16 ms, at 64 descriptors, at
/// 256, and so on. An event loop must not, so this is done beforehand. A child made by fork(2) has no
/// more room than it needs.
///
/// # Errors
/// `EMFILE` if there is no descriptor left, `ENOMEM`.
pub fn make_room_for_descriptors(count: u64) -> io::Result<()> {
    let count = open_files_limit().soft.map_or(count, |limit| limit.min(count));
    let Some(last) = count.checked_sub(1).and_then(|last| RawFd::try_from(last).ok()) else {
        return Ok(());
    };
    let any = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
    // The lowest one that is free from there on.
    match rustix::io::fcntl_dupfd_cloexec(&any, last) {
        // All from there on are in use: there is room.
        Ok(_) | Err(Errno::MFILE) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// `RLIMIT_SIGPENDING`: how many signals may be queued for all processes of
/// this real user together.
#[must_use]
pub fn pending_signals_limit() -> Limit {
    limit(Resource::Sigpending)
}

/// `RLIMIT_NPROC`: how many threads this real user may have, over all processes.
#[must_use]
pub fn processes_limit() -> Limit {
    limit(Resource::Nproc)
}

fn limit(resource: Resource) -> Limit {
    let Rlimit { current, maximum } = rustix::process::getrlimit(resource);
    Limit { soft: current, hard: maximum }
}

fn cpu_set(cpus: &[usize]) -> io::Result<CpuSet> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        set.set(cpu);
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::FileTimes;
    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;
    use std::time::SystemTime;

    /// A shell that runs `script` and inherits nothing to write to but a pipe.
    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    #[test]
    fn an_access_is_noted_where_that_is_asked_for() {
        if let Some(obstacle) = cannot_note_access_times() {
            return println!("skipped: {obstacle}");
        }
        // Not in /tmp, which may be memory.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "content").unwrap();
        // Younger than the last change, and than a day: relatime leaves it.
        let hours_ago = |hours: u64| SystemTime::now() - Duration::from_secs(3600 * hours);
        let accessed = hours_ago(1);
        let times = FileTimes::new().set_accessed(accessed).set_modified(hours_ago(2));
        std::fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        let mut reader = Command::new("cat");
        reader.arg(&path).stdout(Stdio::null());
        note_access_times(&mut reader, folder.path()).unwrap();
        assert!(reader.status().unwrap().success());
        assert!(path.metadata().unwrap().accessed().unwrap() > accessed);
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(folder.path().to_str().unwrap()), "it is mounted here, too");
    }

    #[test]
    fn cpu_time_of_a_child_contains_its_work() {
        let work = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; read wait";
        let mut child = shell(work).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let used = cpu_time(child.id()).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(used > Duration::from_micros(500), "{used:?}");
    }

    #[test]
    fn cpu_time_of_this_process_contains_ended_threads() {
        let before = cpu_time(std::process::id()).unwrap();
        let spin = || {
            let clock = rustix::time::ClockId::ThreadCPUTime;
            while rustix::time::clock_gettime(clock).tv_nsec < 20_000_000 {}
        };
        std::thread::spawn(spin).join().unwrap();
        let used = cpu_time(std::process::id()).unwrap() - before;
        assert!(used >= Duration::from_millis(15), "{used:?}");
    }

    #[test]
    fn a_thread_has_its_own_cpu_time_and_timer_slack() {
        let before = thread_cpu_time();
        while thread_cpu_time() - before < Duration::from_millis(1) {}
        std::thread::spawn(|| {
            assert!(thread_cpu_time() < Duration::from_millis(1));
            sharpen_timers().unwrap();
            assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn two_threads_on_one_processor_wait_for_each_other() {
        if thread_run_delay().is_none() {
            println!("skip: the kernel does not count how long threads wait for a processor");
            return;
        }
        let cpu = usable_cpus().unwrap()[0];
        let both_are_here = std::sync::Barrier::new(2);
        let work = || {
            pin_current_thread(cpu).unwrap();
            both_are_here.wait();
            while thread_cpu_time() < Duration::from_millis(30) {}
            thread_run_delay().unwrap()
        };
        let (first, second) = std::thread::scope(|scope| {
            let other = scope.spawn(work);
            let first = scope.spawn(work).join().unwrap();
            (first, other.join().unwrap())
        });
        assert!(first + second >= Duration::from_millis(20), "{first:?} {second:?}");
    }

    /// In a process of its own too, which says so in nanoseconds.
    #[test]
    fn the_clock_of_all_processes_never_goes_back() {
        const ROLE: &str = "DROVER_TEST_CLOCK";
        if std::env::var_os(ROLE).is_some() {
            return println!("\nnow: {}", monotonic_time().as_nanos());
        }
        let here = monotonic_time();
        let mut again = Command::new(std::env::current_exe().unwrap());
        let test = "process::tests::the_clock_of_all_processes_never_goes_back";
        let output = again.args([test, "--exact", "--nocapture"]).env(ROLE, "").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let there = said.lines().find_map(|line| line.strip_prefix("now: ")?.parse().ok()).unwrap();
        let there = Duration::from_nanos(there);
        assert!(here > Duration::ZERO && here <= there && there <= monotonic_time(), "{said}");
    }

    #[test]
    fn cpu_time_of_no_process_is_no_such_process() {
        let mut child = shell("exit 0").spawn().unwrap();
        child.wait().unwrap();
        let error = cpu_time(child.id()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn a_pinned_child_has_the_processor_and_no_other() {
        let cpu = *usable_cpus().unwrap().last().unwrap();
        let mut command = shell("grep Cpus_allowed_list /proc/self/status");
        pin(&mut command, &[cpu]).unwrap();
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.split_whitespace().last(), Some(cpu.to_string().as_str()));
    }

    #[test]
    fn a_pinned_thread_has_the_processor_and_no_other() {
        let cpu = usable_cpus().unwrap()[0];
        let seen = std::thread::spawn(move || {
            pin_current_thread(cpu).unwrap();
            usable_cpus().unwrap()
        });
        assert_eq!(seen.join().unwrap(), [cpu]);
    }

    #[test]
    fn pinning_to_a_processor_that_cannot_exist_fails() {
        assert!(pin_current_thread(CpuSet::MAX_CPU).is_err());
    }

    #[test]
    fn a_child_dies_with_the_thread_that_started_it() {
        let (reader, writer) = io::pipe().unwrap();
        let start = move || {
            let mut command = Command::new("sleep");
            command.arg("600").stdout(writer);
            die_with_parent(&mut command);
            command.spawn().unwrap()
        };
        let mut child = std::thread::spawn(start).join().unwrap();
        // The pipe ends when its last writer, the child, is gone.
        BufReader::new(reader).read_to_end(&mut Vec::new()).unwrap();
        let status = child.wait().unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_child_has_what_is_passed_on_and_nothing_else() {
        use std::os::fd::AsFd;
        let (reader, writer) = io::pipe().unwrap();
        let (_other, kept) = io::pipe().unwrap();
        let numbers = [writer.as_raw_fd(), kept.as_raw_fd()];
        let script = format!(
            "echo hello >&{}; [ -e /proc/self/fd/{} ] && echo seen",
            numbers[0], numbers[1]
        );
        let mut command = shell(&script);
        pass_on(&mut command, [writer.as_fd()]);
        let output = command.output().unwrap();
        assert_eq!(output.stdout, b"");
        drop(writer);
        let mut said = String::new();
        BufReader::new(reader).read_to_string(&mut said).unwrap();
        assert_eq!(said, "hello\n");
    }

    #[test]
    fn what_was_opened_here_is_not_inherited() {
        let (reader, _writer) = io::pipe().unwrap();
        assert_eq!(inherited(reader.as_raw_fd()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(inherited(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_thread_that_waits_is_seen_to() {
        std::thread::spawn(|| {
            let before = thread_waits().unwrap();
            let (sender, receiver) = std::sync::mpsc::channel::<()>();
            let waited = receiver.recv_timeout(Duration::from_millis(1));
            assert!(waited.is_err());
            assert!(thread_waits().unwrap() > before);
            assert!(waits_of(thread_number()).unwrap() > before);
            drop(sender);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_child_that_is_asked_to_stop_stops() {
        let mut child = shell("trap 'exit 7' TERM; echo ready; read wait").spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        ask_to_stop(&child).unwrap();
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }

    #[test]
    fn a_group_is_killed_after_its_leader_has_ended() {
        let mut command = shell("sleep 600 & echo started");
        let mut leader = command.process_group(0).spawn().unwrap();
        leader.wait().unwrap();
        kill_group(&leader).unwrap();
        // The pipe ends when its last writer, the sleeper, is gone.
        leader.stdout.unwrap().read_to_end(&mut Vec::new()).unwrap();
    }

    #[test]
    fn the_descriptor_limit_can_be_raised_to_the_hard_one() {
        let raised = raise_open_files_limit().unwrap();
        assert_eq!(raised.soft, raised.hard);
        assert!(pending_signals_limit().hard.is_none_or(|hard| hard > 0));
    }

    #[test]
    fn the_table_of_descriptors_has_the_room_that_was_made() {
        let room = || -> u64 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
            size.trim().parse().unwrap()
        };
        let limit = raise_open_files_limit().unwrap().soft.unwrap_or(u64::MAX);
        let wanted = limit.min(2 * room());
        make_room_for_descriptors(wanted).unwrap();
        assert!(room() >= wanted);
        make_room_for_descriptors(0).unwrap();
        // More than the process may open is no error. (A limit of a milliard would take 8 GB.)
        if limit <= 1 << 20 {
            make_room_for_descriptors(u64::MAX).unwrap();
        }
    }
}

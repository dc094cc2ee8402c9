//! Processes and threads as a laboratory needs them: CPU clocks, pinning, limits, and
//! children that end with their parent.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::mount::{
    FsOpenFlags, MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use rustix::thread::{CapabilitySet, CpuSet};

use crate::syscall;

pub mod activation;
mod caches;
mod limits;
mod memory;
mod memory_limits;
mod system_calls;
mod usage;
mod user;

pub use caches::second_level_cache;
pub use limits::{
    Limit, locked_memory_limit, lowest_free_descriptor, make_room_for_descriptors,
    open_descriptors, open_files_limit, pending_signals_limit, processes_limit,
    raise_open_files_limit, room_for_descriptors, write_no_core_dumps,
};
pub use memory::{give_back_memory, mapped_memory, resident_memory, spare_addresses};
pub use memory_limits::MemoryLimits;
pub use system_calls::filter_system_calls;
pub use usage::{
    age, cpu_time, monotonic_nanos, monotonic_time, thread_cpu_time, thread_cpu_time_of,
    thread_run_delay, thread_switches, thread_waits, voluntary_switches, waits_of,
};
pub use user::{OrdinaryUser, with_rights_of};

/// Starts a thread, and returns when it has begun. [`std::thread::spawn`] panics if the kernel refuses a new thread; this
/// function fails.
///
/// A thread that has begun has the memory that it begins with. If it gets none, it ends the process: the standard library wants
/// a stack for its signal handlers, glibc a list of what to drop at its end. So a process that starts its threads before it
/// serves anybody does not end later because of them.
///
/// # Errors
/// `WouldBlock` if the user or the container has too many threads, or memory has run out. The message has the remedy.
pub fn start_thread<R: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    memory::has_room_for_thread().map_err(no_thread)?;
    let (begins, begun) = mpsc::channel::<()>();
    let work = move || {
        drop(begins);
        work()
    };
    let thread = thread::Builder::new().name(name.into()).spawn(work).map_err(no_thread)?;
    // Nothing is sent: it fails once the thread has dropped the other end.
    let _begun = begun.recv();
    Ok(thread)
}

/// Runs `work` on a new thread and waits for it. For work that opens and closes a ring: the kernel interrupts
/// a ring's thread once more some time after the ring was closed, and the new thread has ended by then.
///
/// # Errors
/// Fails if [`start_thread`] fails.
pub fn on_own_thread<R: Send>(work: impl FnOnce() -> R + Send) -> io::Result<R> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work).map_err(no_thread)?;
        thread.join().map_err(|_| io::Error::other("the thread panicked"))
    })
}

fn no_thread(error: io::Error) -> io::Error {
    let remedy = match error.kind() {
        io::ErrorKind::OutOfMemory => "raise the limit of memory ('ulimit -v', 'ulimit -d')",
        _ => "raise 'ulimit -u', or what the container may have (pids.max)",
    };
    // Always `WouldBlock`: callers try again later, whatever the cause.
    io::Error::new(io::ErrorKind::WouldBlock, format!("cannot start a thread: {error}; {remedy}"))
}

/// Lets other threads run that wait for this thread's processor (sched_yield(2)).
pub fn give_way() {
    rustix::thread::sched_yield();
}

/// Makes the calling thread's time-outs exact: by default the kernel may add up
/// to 50 µs to each (PR_SET_TIMERSLACK(2const)), to let several end at once.
///
/// # Errors
/// Errors of prctl(2). The time-outs then stay late; nothing else is wrong.
pub fn sharpen_timers() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?)
}

/// Keeps the calling thread, and what it starts from now on, from gaining rights by programs that are run:
/// set-user-id bits and file capabilities mean nothing to it (PR_SET_NO_NEW_PRIVS(2const)).
///
/// # Errors
/// Errors of prctl(2).
pub fn forbid_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// The processors that the calling thread may run on, in ascending order.
///
/// # Errors
/// What sched_getaffinity(2) says.
pub fn usable_cpus() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// How many processors the machine has that are in use, whether or not this process may run on them; `None`: the system
/// does not say (sysconf(3), `_SC_NPROCESSORS_ONLN`).
#[must_use]
pub fn online_cpus() -> Option<usize> {
    // SAFETY: sysconf(3) takes an integer.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).ok().filter(|count| *count > 0)
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

/// Gives `command`'s process the scheduling policy `SCHED_IDLE`: any other process that wants its
/// processor gets it at once. A high nice value is not enough: such a process still runs to the end of
/// its slice, some milliseconds (sched(7); the scheduler feature `RUN_TO_PARITY`).
pub fn stand_back(command: &mut Command) {
    // SAFETY: the closure makes one system call; no allocation, no lock.
    unsafe {
        command.pre_exec(stand_back_here);
    }
}

/// Gives the calling thread, and threads that it starts from now on, the policy `SCHED_IDLE`: any other
/// thread that wants their processor gets it at once.
///
/// # Errors
/// Errors of sched_setscheduler(2).
pub fn stand_back_here() -> io::Result<()> {
    set_scheduler(libc::SCHED_IDLE, 0)
}

/// Has `command`'s process run before every process that is in no real-time class (`SCHED_FIFO`, sched(7)). The kernel keeps a
/// twentieth of each second for the others (`sched_rt_runtime_us`). Without the right to that class (`CAP_SYS_NICE`, or
/// `RLIMIT_RTPRIO`) the process takes its turn as usual.
pub fn go_first(command: &mut Command) {
    // SAFETY: the closure makes one system call; no allocation, no lock.
    unsafe {
        command.pre_exec(|| {
            // The right may be missing.
            let _ = set_scheduler(libc::SCHED_FIFO, 1);
            Ok(())
        });
    }
}

fn set_scheduler(policy: libc::c_int, sched_priority: libc::c_int) -> io::Result<()> {
    let priority = libc::sched_param { sched_priority };
    // SAFETY: `priority` outlives the call, and the kernel keeps no pointer to it.
    syscall!(sched_setscheduler(0, policy, &raw const priority)).map(drop)
}

/// Makes `command`'s process see `folder` through a mount that records every access time (`strictatime`).
/// The mount is in a mount namespace that ends with the process. Only root may start such a command, and
/// only where the options of its mounts may be changed.
///
/// # Errors
/// `InvalidInput` if the path has a zero byte.
pub fn note_access_times(command: &mut Command, folder: &Path) -> io::Result<()> {
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: the closure makes four system calls on strings made before; no allocation, no lock.
    unsafe {
        command.pre_exec(move || {
            let changed = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            // SAFETY: unshare takes an integer.
            syscall!(unshare(libc::CLONE_NEWNS))?;
            mount_change(c"/", changed)?;
            mount_bind(&*folder, &*folder)?;
            Ok(mount_remount(&*folder, MountFlags::BIND | MountFlags::STRICTATIME, c"")?)
        });
    }
    Ok(())
}

/// Why [`note_access_times`] does not work here; `None` if it works.
pub fn cannot_note_access_times() -> Option<String> {
    let mut trial = Command::new("true");
    let run = note_access_times(&mut trial, &std::env::temp_dir()).and_then(|()| trial.status());
    let error = run.err()?;
    Some(format!(
        "a mount that notes every access (strictatime) cannot be made ({error}): run as root"
    ))
}

/// Makes `command`'s process see itself as an ordinary user: it gets a user namespace that maps no user.
/// The process still owns the files of this process' user. Without this a server that is started by root
/// gives up its rights, or refuses to serve, and then cannot read files that only root may read.
pub fn hide_root(command: &mut Command) {
    // SAFETY: the closure makes one system call without pointers; no allocation, no lock.
    unsafe {
        command.pre_exec(|| {
            crate::syscall!(unshare(libc::CLONE_NEWUSER))?;
            Ok(())
        });
    }
}

/// Makes the kernel kill `command`'s process when the *thread* that spawns it
/// ends, for any reason, also by SIGKILL (PR_SET_PDEATHSIG(2const)).
///
/// Spawn the child from a thread that lives as long as the child is needed. The
/// setting survives exec, but the child's own children do not inherit it.
pub fn die_with_parent(command: &mut Command) {
    let parent = Pid::from_raw(std::process::id().cast_signed());
    // SAFETY: the closure makes two system calls on copied values; no allocation, no lock.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // A parent that died before the prctl(2) call sends no signal. Its
            // orphan has another parent by then.
            if rustix::process::getppid() == parent {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(libc::ESRCH))
            }
        });
    }
}

/// Has the kernel kill this process when its parent ends, as [`die_with_parent`] has it, also after this process has become
/// another user: a change of user clears the setting (`commit_creds` in the kernel). To be called by the child.
///
/// # Errors
/// `ESRCH`: the parent has ended already. Errors of prctl(2).
pub fn go_on_dying_with_parent() -> io::Result<()> {
    let parent = rustix::process::getppid();
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that ended before the prctl(2) call sends no signal. The child has another parent by then.
    match was_started_by(parent) {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// Whether `parent` is this process' parent, and the one that has passed descriptors on to it, if one has ([`pass_on`]).
fn was_started_by(parent: Option<Pid>) -> bool {
    let number = parent.map(|parent| parent.as_raw_nonzero().get().to_string());
    let said = std::env::var(PASSED_ON).ok();
    let said = said.as_deref().and_then(|said| said.split_once(':')).map(|(parent, _)| parent);
    rustix::process::getppid() == parent && said.is_none_or(|said| number.as_deref() == Some(said))
}

/// The environment variable that tells a process what its parent has passed on: the parent's process
/// number, a colon, and the numbers of the descriptors.
const PASSED_ON: &str = "DROVER_PASSED_ON";

/// Passes `descriptors` on to `command`'s process under the numbers that they have in this process. They
/// must be open when the process is started. The process takes them by [`inherited`]. Call this function
/// once for a command.
pub fn pass_on<'d>(command: &mut Command, descriptors: impl IntoIterator<Item = BorrowedFd<'d>>) {
    let numbers: Vec<RawFd> = descriptors.into_iter().map(|fd| fd.as_raw_fd()).collect();
    let named: Vec<_> = numbers.iter().map(RawFd::to_string).collect();
    command.env(PASSED_ON, format!("{}:{}", std::process::id(), named.join(",")));
    // SAFETY: the closure makes a system call per number on values made before; no allocation, no lock.
    unsafe {
        command.pre_exec(move || {
            for &number in &numbers {
                // SAFETY: F_SETFD takes an integer.
                syscall!(fcntl(number, libc::F_SETFD, 0))?;
            }
            Ok(())
        });
    }
}

/// Takes a descriptor that the parent has passed on ([`pass_on`]). Each descriptor can be taken once. Call
/// this function before other threads start programs, which would inherit the descriptor.
///
/// # Errors
/// `EBADF` if the descriptor is not open; `InvalidInput` if the parent, which must be alive, has not
/// passed it on, or if it was taken before.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    static TAKEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: fcntl with F_GETFD takes integers and touches no memory.
    let flags = syscall!(fcntl(number, libc::F_GETFD))?;
    if flags & libc::FD_CLOEXEC != 0 || taken.contains(&number) || !was_passed_on(number) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: fcntl with F_SETFD takes integers and touches no memory. The parent has passed the
    // descriptor on for this purpose, so nobody else in this process owns it.
    syscall!(fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC))?;
    taken.push(number);
    // SAFETY: the descriptor came with the exec: the parent said so in the environment, which safe code
    // cannot change. So nobody in this process owns the descriptor unless it was taken before, and a
    // descriptor that was taken is in `taken`.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Whether this process' parent says in [`PASSED_ON`] that it has passed the descriptor on. The variable
/// names the parent, because a child's own children inherit the variable too, but not the descriptors.
fn was_passed_on(number: RawFd) -> bool {
    let said = std::env::var(PASSED_ON).unwrap_or_default();
    let Some((parent, numbers)) = said.split_once(':') else { return false };
    let ours = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get().to_string());
    ours.as_deref() == Some(parent) && numbers.split(',').any(|it| it.parse() == Ok(number))
}

/// The kernel's number of the calling thread (gettid(2)), which is valid in all processes.
#[must_use]
pub fn thread_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// Whether this process has the rights of root in its user namespace.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this process may mount file systems itself. Root in a container often may not, and root in a
/// user namespace may only in a mount namespace that belongs to it (mount_namespaces(7)).
#[must_use]
pub fn may_mount() -> bool {
    // fsopen(2) (Linux 5.2) checks for the right to mount, and mounts nothing.
    match rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC) {
        Err(Errno::NOSYS) => {
            let sets = rustix::thread::capabilities(None);
            sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
        }
        begun => !matches!(begun, Err(Errno::PERM)),
    }
}

/// Whether a set-user-id program of root would get the right to mount. It would not get that right in a
/// container that lacks it, or where no program gets new rights (capabilities(7),
/// PR_SET_NO_NEW_PRIVS(2const)).
#[must_use]
pub fn may_be_helped_to_mount() -> bool {
    let is_within = rustix::thread::capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN);
    is_within.unwrap_or(false) && !rustix::thread::no_new_privs().unwrap_or(false)
}

/// Asks a child to stop in good order (SIGTERM). [`Child::kill`] stops a child at once (SIGKILL).
///
/// # Errors
/// `ESRCH` if the child has been waited for.
pub fn ask_to_stop(child: &Child) -> io::Result<()> {
    let pid = Pid::from_child(child);
    Ok(rustix::process::kill_process(pid, Signal::TERM)?)
}

/// What has become of a child that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildChange {
    /// A signal has stopped the child: SIGSTOP, or one of a terminal.
    Stopped,
    /// The child runs again, after SIGCONT.
    GoesOn,
}

/// The last change of a child since the last call, if there was one. The kernel sends SIGCHLD when a child is
/// stopped, when it continues, and when it ends.
///
/// # Errors
/// `ECHILD` if the child has been waited for.
pub fn change_of(child: &Child) -> io::Result<Option<ChildChange>> {
    let which = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
    let status = rustix::process::waitid(WaitId::Pid(Pid::from_child(child)), which)?;
    Ok(status
        .map(|status| if status.continued() { ChildChange::GoesOn } else { ChildChange::Stopped }))
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

/// The number behind `field` in the status file of a process or a thread (proc_pid_status(5)).
fn status_of(process: u32, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(field))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::FileTimes;
    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;
    use std::time::{Duration, SystemTime};

    /// A shell that runs `script`. Its only output is a pipe.
    pub(super) fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    #[test]
    fn a_command_goes_first_where_that_is_allowed() {
        // The policy is the 41st field of proc_pid_stat(5); FIFO is 1. The name of this process has no space.
        let mut command = Command::new("cut");
        command.args(["-d", " ", "-f", "41", "/proc/self/stat"]);
        go_first(&mut command);
        let policy = String::from_utf8(command.output().unwrap().stdout).unwrap();
        // A thread of its own finds out, since it keeps the policy.
        match on_own_thread(|| set_scheduler(libc::SCHED_FIFO, 1)).unwrap() {
            Ok(()) => assert_eq!(policy, "1\n"),
            Err(_) => assert_eq!(policy, "0\n"),
        }
    }

    #[test]
    fn an_access_is_noted_where_that_is_asked_for() {
        if let Some(obstacle) = cannot_note_access_times() {
            return drover_testing::skip!("{obstacle}");
        }
        // Not in /tmp, which may be a tmpfs.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "content").unwrap();
        // An access time later than the last change and less than a day old: relatime does not update it.
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
    fn a_child_that_is_stopped_and_goes_on_is_seen_to() {
        let mut child = shell("echo ready; read wait").spawn().unwrap();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        assert_eq!(change_of(&child).unwrap(), None);
        let pid = Pid::from_child(&child);
        let becomes = |change| while change_of(&child).unwrap() != Some(change) {};
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        becomes(ChildChange::Stopped);
        assert_eq!(change_of(&child).unwrap(), None);
        rustix::process::kill_process(pid, Signal::CONT).unwrap();
        becomes(ChildChange::GoesOn);
        drop(child.stdin.take());
        child.wait().unwrap();
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
        // By a path: some shells take no descriptor number of two digits.
        let script = format!(
            "echo hello >/proc/self/fd/{}; [ -e /proc/self/fd/{} ] && echo seen",
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
        let (reader, writer) = io::pipe().unwrap();
        // Without close-on-exec, as programs open a file that do not know of exec.
        let open_across_exec = rustix::io::fcntl_dupfd_cloexec(&writer, 0).unwrap();
        rustix::io::fcntl_setfd(&open_across_exec, rustix::io::FdFlags::empty()).unwrap();
        for number in [reader.as_raw_fd(), open_across_exec.as_raw_fd(), 0] {
            assert_eq!(inherited(number).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    const NUMBER: &str = "DROVER_TEST_INHERITED";

    /// Not a test: the child process of another test runs this function.
    #[test]
    fn take_what_the_parent_has_passed_on() {
        let Ok(number) = std::env::var(NUMBER) else { return };
        let number = number.parse().unwrap();
        let taken = inherited(number).unwrap();
        assert_eq!(inherited(number).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        rustix::io::fcntl_setfd(&taken, rustix::io::FdFlags::empty()).unwrap();
        assert_eq!(inherited(number).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        rustix::io::write(&taken, b"taken").unwrap();
    }

    #[test]
    fn what_is_passed_on_can_be_taken_once() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["process::tests::take_what_the_parent_has_passed_on", "--exact"]);
        command.env(NUMBER, writer.as_raw_fd().to_string());
        pass_on(&mut command, [std::os::fd::AsFd::as_fd(&writer)]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        drop(writer);
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "taken");
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
}

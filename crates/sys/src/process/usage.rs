//! What processes and threads have used of the machine, as the kernel counts it: time on
//! processors, waits, context switches.

use std::io;
use std::time::Duration;

use super::status_of;
use crate::syscall;

/// The CPU time that process `pid` has used, user and system, in the kernel's
/// nanosecond accounting. Counts all threads of the process, also threads that have
/// ended and io_uring's workers. Does not count child processes.
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

/// The CPU time that a thread of any process has used, as the kernel had it at the thread's last tick or switch: the
/// first number of `/proc/THREAD/schedstat` (Documentation/scheduler/sched-stats.rst). `None` if there is no such
/// thread, or the kernel keeps no such numbers (`CONFIG_SCHED_INFO`).
#[must_use]
pub fn thread_cpu_time_of(thread: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}

/// How long ago this process was started, to a clock tick, time in which the machine was suspended included: field 22
/// of `/proc/self/stat` (proc_pid_stat(5)). `None` if procfs is not mounted.
#[must_use]
pub fn age() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in brackets may hold spaces and brackets; the state behind it is field 3.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let started = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or(0));
    Some(now.saturating_sub(Duration::from_secs_f64(started)))
}

/// How often the threads of this process have given up their processor to wait for something
/// (`ru_nvcsw`, getrusage(2)). Each wake-up of a thread adds one, when the thread waits again.
#[must_use]
pub fn voluntary_switches() -> u64 {
    usage_of(libc::RUSAGE_SELF).map_or(0, |usage| usage.ru_nvcsw.cast_unsigned())
}

/// How long the calling thread was ready to run but had no processor: the second number of
/// `/proc/thread-self/schedstat` (Documentation/scheduler/sched-stats.rst). `None` if the kernel
/// does not count it.
#[must_use]
pub fn thread_run_delay() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// The time on `CLOCK_MONOTONIC` (clock_gettime(2)), which [`std::time::Instant`] reads too. Times of
/// different processes of one machine can be compared.
#[must_use]
pub fn monotonic_time() -> Duration {
    Duration::from_nanos(monotonic_nanos())
}

/// The same time in nanoseconds, for what is measured at every request.
#[inline]
#[must_use]
pub fn monotonic_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// How often the calling thread has given up its processor to wait for something (`ru_nvcsw`).
///
/// # Errors
/// What getrusage(2) says.
pub fn thread_waits() -> io::Result<u64> {
    Ok(usage_of(libc::RUSAGE_THREAD)?.ru_nvcsw.cast_unsigned())
}

/// How often the calling thread has lost its processor to another thread since it started: because it
/// waited (`ru_nvcsw`), or because the scheduler preempted it (`ru_nivcsw`).
///
/// # Errors
/// What getrusage(2) says.
pub fn thread_switches() -> io::Result<u64> {
    let usage = usage_of(libc::RUSAGE_THREAD)?;
    Ok((usage.ru_nvcsw + usage.ru_nivcsw).cast_unsigned())
}

fn usage_of(whose: libc::c_int) -> io::Result<libc::rusage> {
    // SAFETY: a structure of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable and outlives the call.
    syscall!(getrusage(whose, &raw mut usage))?;
    Ok(usage)
}

/// How often thread number `thread` of any process has given up its processor to wait for something;
/// `None` if there is no such thread. [`thread_waits`] counts for the calling thread.
#[must_use]
pub fn waits_of(thread: u32) -> Option<u64> {
    status_of(thread, "voluntary_ctxt_switches:")
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::Command;
    use std::time::Instant;

    use super::super::tests::shell;
    use super::super::{pin_current_thread, sharpen_timers, thread_number, usable_cpus};
    use super::*;

    #[test]
    fn a_process_is_as_old_as_its_clock_says_and_a_thread_has_used_time() {
        let begun = Instant::now();
        let age_before = age().unwrap();
        while thread_cpu_time() < Duration::from_millis(50) {}
        assert!(age().unwrap() >= age_before + begun.elapsed() / 2);
        assert!(thread_cpu_time_of(thread_number()).unwrap() > Duration::ZERO);
        assert_eq!(thread_cpu_time_of(u32::MAX), None);
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
            drover_testing::skip!(
                "the kernel does not count how long threads wait for a processor"
            );
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

    /// The test starts itself as a second process too, which prints its time in nanoseconds.
    #[test]
    fn the_clock_of_all_processes_never_goes_back() {
        const ROLE: &str = "DROVER_TEST_CLOCK";
        if std::env::var_os(ROLE).is_some() {
            return println!("\nnow: {}", monotonic_time().as_nanos());
        }
        let here = monotonic_time();
        let mut again = Command::new(std::env::current_exe().unwrap());
        let test = "process::usage::tests::the_clock_of_all_processes_never_goes_back";
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
    fn a_thread_that_waits_is_seen_to() {
        let (told, who) = std::sync::mpsc::channel();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || {
            let before = thread_waits().unwrap();
            told.send((thread_number(), before)).unwrap();
            // Nothing comes before it has been seen to wait.
            gone.recv().unwrap();
            assert!(thread_waits().unwrap() > before);
            assert!(thread_switches().unwrap() >= thread_waits().unwrap());
        });
        let (thread, before) = who.recv().unwrap();
        while waits_of(thread).unwrap() <= before {
            std::thread::yield_now();
        }
        go.send(()).unwrap();
        waiting.join().unwrap();
    }
}

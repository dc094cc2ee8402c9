//! Worker processes that do not go on: the supervisor says so.

use std::io::BufRead;
use std::process::Stdio;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::harness::{Server, drover, signal, usable_mechanisms};

/// Two workers, and what their supervisor logs.
fn start(flags: &[&str]) -> (Server, impl Iterator<Item = String> + use<>) {
    let mut command = drover();
    command.args(["serve", "--response-size", "1", "--processes", "--workers", "2"]).args(flags);
    command.stderr(Stdio::piped());
    let mut server = Server::start(command, 1);
    let log = server.stderr().lines().map(Result::unwrap);
    (server, log)
}

/// Reads on to the line about `worker` with these words.
#[track_caller]
fn expect(log: &mut impl Iterator<Item = String>, worker: u32, words: &str) {
    let process = format!("(pid {worker})");
    let mut read = Vec::new();
    for line in log {
        if line.contains(&process) && line.contains(words) {
            return;
        }
        read.push(line);
    }
    panic!("nothing {words:?} of {worker}: {read:?}");
}

#[test]
fn a_worker_that_is_stopped_and_goes_on_is_told_of() {
    let (server, mut log) = start(&[]);
    for worker in server.children() {
        signal("STOP", worker);
        expect(&mut log, worker, "was stopped");
        signal("CONT", worker);
        expect(&mut log, worker, "goes on");
    }
}

/// A debugger stops the thread that serves, and no other: the process looks as ever.
#[test]
fn a_worker_that_hangs_and_goes_on_is_told_of() {
    let mut all = Vec::new();
    // One after the other: only the thread that has attached can detach (ptrace(2)). They hang at the same time.
    for mechanism in usable_mechanisms() {
        let (server, log) = start(&["--dispatch", mechanism.name]);
        let worker = server.children()[1];
        let thread = thread_of(worker);
        ptrace::attach(thread).unwrap();
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        all.push((server, log, worker, thread));
    }
    for (server, mut log, worker, thread) in all {
        expect(&mut log, worker, "hangs");
        ptrace::detach(thread, None).unwrap();
        expect(&mut log, worker, "is responsive again");
        server.get("/").is(200);
    }
}

/// The thread of a process that serves.
pub(crate) fn thread_of(process: u32) -> Pid {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let serves = |task: &std::path::Path| {
        std::fs::read_to_string(task.join("comm")).unwrap().starts_with("worker ")
    };
    let task = tasks.map(|task| task.unwrap().path()).find(|task| serves(task)).unwrap();
    Pid::from_raw(task.file_name().unwrap().to_str().unwrap().parse().unwrap())
}

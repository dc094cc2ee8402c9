//! Measures every mechanism in every case, and prints what came out.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use drover_mech::mechanisms::{self, Mechanism};

use anyhow::{Context, ensure};

use crate::budget::{Budget, Cost};
use crate::costs;
use crate::exchange::{Case, Client, Server};
use crate::tracer::{Count, Tracer};

/// Requests before the first that counts: caches, pools and windows have their size then.
const WARM_UP: usize = 20;

/// Requests of which the cheapest counts: the clock's work is in the others.
const COUNTED: usize = 9;

/// As many as may follow while none is within the budget: where steps are slow, the work of a new second
/// comes to most requests.
const MOST_COUNTED: usize = 60;

pub(crate) const KEPT: Case =
    Case { name: "kept-128", file: "f128.html", len: 128, connects: false, flags: &[] };
const SENT: Case =
    Case { name: "sent-100k", file: "f100k.html", len: 100 << 10, connects: false, flags: &[] };

const TRACED: &[&str] = &["--trace", "/dev/null"];

pub(crate) const CONNECTION: Case = Case { name: "connection", connects: true, ..KEPT };

const CASES: [Case; 6] = [
    KEPT,
    Case { name: "kept-4k", file: "f4k.html", len: 4 << 10, ..KEPT },
    SENT,
    CONNECTION,
    Case { name: "kept-128-traced", flags: TRACED, ..KEPT },
    Case { name: "sent-100k-traced", flags: TRACED, ..SENT },
];

const ACCEPT: &str = "cargo bench -p drover --bench instructions -- --accept";

pub(crate) fn main() -> ExitCode {
    let has = |flag| std::env::args().any(|argument| argument == flag);
    match run(has("--accept"), has("--flags")) {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            for fault in faults {
                eprintln!("over budget: {fault}");
            }
            eprintln!("if that is the price of something worth it, accept it: {ACCEPT}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns what exceeds the budget; with `flags`, prints what they cost instead.
fn run(accept: bool, flags: bool) -> anyhow::Result<Vec<String>> {
    // The two take turns, thousands of times per request: on one processor neither has to wake
    // another up, and a request is over before the next second begins.
    if let Some(cpu) = drover_sys::process::usable_cpus()?.first() {
        drover_sys::process::pin_current_thread(*cpu)?;
    }
    let root = tempfile::tempdir()?;
    for case in &CASES {
        fs::write(root.path().join(case.file), vec![b'x'; case.len])?;
    }
    if flags {
        let mechanism = mechanisms::auto_of_readiness().context("no mechanism is usable here")?;
        costs::print(root.path(), mechanism)?;
        return Ok(Vec::new());
    }
    let (recorded, mut new) = (Budget::recorded()?, Budget::here()?);
    let tolerance = recorded.tolerance(&new);
    println!("{:<14} {:<16} {:>12}  system calls", "mechanism", "case", "instructions");
    for mechanism in mechanisms::ALL {
        if let Err(reason) = mechanism.probe() {
            println!("{:<14} skipped: {reason}", mechanism.name);
            continue;
        }
        for case in &CASES {
            let within = |cost: &Cost| recorded.allows(case.name, mechanism.name, cost, tolerance);
            let cost = match measure(root.path(), mechanism, case, within)? {
                Measured::Cost(cost) => cost,
                Measured::NotPermitted => return Ok(Vec::new()),
                Measured::NeverSleeps => {
                    println!("{:<14} {:<16} skipped: it never sleeps", mechanism.name, case.name);
                    continue;
                }
            };
            println!(
                "{:<14} {:<16} {:>12}  {}",
                mechanism.name, case.name, cost.instructions, cost.calls
            );
            new.costs.entry(case.name.into()).or_default().insert(mechanism.name.into(), cost);
        }
    }
    if accept {
        new.accept()?;
        return Ok(Vec::new());
    }
    Ok(recorded.exceeded_by(&new, tolerance))
}

/// What came of measuring a mechanism in a case.
pub(crate) enum Measured {
    Cost(Cost),
    /// This process may not trace another.
    NotPermitted,
    /// The worker polls without a pause: where its work for a request ends cannot be told.
    NeverSleeps,
}

/// Measures until a request is `within` the budget, or none is.
pub(crate) fn measure(
    root: &Path,
    mechanism: &Mechanism,
    case: &Case,
    within: impl Fn(&Cost) -> bool,
) -> anyhow::Result<Measured> {
    let server = Server::start(root, mechanism.name, case)?;
    let mut client = Client::new(server.address, case);
    for _ in 0..WARM_UP {
        client.exchange(|| {
            thread::yield_now();
            Ok(())
        })?;
    }
    let mut tracer = match Tracer::attach(server.worker_process()?, "worker 0") {
        Ok(tracer) => tracer,
        Err(error) => {
            println!("skipped: ptrace(2) is not permitted here: {error:#}");
            return Ok(Measured::NotPermitted);
        }
    };
    if !tracer.until_it_sleeps()? {
        return Ok(Measured::NeverSleeps);
    }
    let mut counts: Vec<Cost> = Vec::new();
    while counts.len() < COUNTED || counts.len() < MOST_COUNTED && !counts.iter().any(&within) {
        tracer.take();
        client.exchange(|| {
            ensure!(tracer.until_it_sleeps()?, "the worker of {} never sleeps", mechanism.name);
            Ok(())
        })?;
        counts.push(cost(&tracer.take()));
    }
    // A request of few instructions that makes a call of the clock's work is not the cheapest.
    let cheapest =
        counts.into_iter().min_by_key(|cost| (cost.number_of_calls(), cost.instructions));
    Ok(Measured::Cost(cheapest.context("a request was counted")?))
}

fn cost(count: &Count) -> Cost {
    let mut calls: Vec<String> = count.calls.iter().copied().map(name_of).collect();
    calls.sort();
    Cost { instructions: count.instructions, calls: calls.join(" ") }
}

/// The name of a system call that a worker makes, by its number in `asm/unistd_64.h`.
fn name_of(number: i64) -> String {
    match number {
        0 => "read",
        1 => "write",
        3 => "close",
        5 => "fstat",
        7 => "poll",
        8 => "lseek",
        14 => "rt_sigprocmask",
        17 => "pread64",
        20 => "writev",
        23 => "select",
        40 => "sendfile",
        44 => "sendto",
        45 => "recvfrom",
        46 => "sendmsg",
        48 => "shutdown",
        54 => "setsockopt",
        72 => "fcntl",
        128 => "rt_sigtimedwait",
        186 => "gettid",
        228 => "clock_gettime",
        232 => "epoll_wait",
        233 => "epoll_ctl",
        257 => "openat",
        262 => "newfstatat",
        270 => "pselect6",
        271 => "ppoll",
        281 => "epoll_pwait",
        288 => "accept4",
        327 => "preadv2",
        332 => "statx",
        426 => "io_uring_enter",
        437 => "openat2",
        441 => "epoll_pwait2",
        451 => "cachestat",
        other => return format!("call-{other}"),
    }
    .to_owned()
}

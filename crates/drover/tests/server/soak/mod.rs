//! A soak: mixed traffic, with a reload again and again, in rounds. In between the server is at rest, and must be what it was.
//!
//! It lasts 20 seconds, or as many as `DROVER_SOAK` says (`just soak 600`). Time decides how much happens, and never what passes:
//!
//! - No well-formed request fails. A server may close a connection between two requests at any time, and a client must be
//!   prepared for that (RFC 9112 section 9.3.1). Drover is held to more: a request that was sent on an open connection is
//!   answered, also by workers whose place others take. So nothing is asked twice here; what is closed without an answer is a failure.
//! - At rest there are as many descriptors and threads as at the start.
//! - At rest the memory is what it was after the first two rounds, which have been through every choice of mechanism,
//!   strategy and backend ([`GROWTH_MOST`]).

mod hostile;
mod load;
mod well_formed;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use drover_testing::Finally;

use rustix::process::{Resource, getrlimit};

use crate::harness::PATIENCE;
use crate::reloading::{Configured, choices};
use well_formed::Page;

/// By how much resident memory may grow in all rounds after the second.
///
/// What varies without a leak is how much of the program itself has been used, and what the heaps have between
/// blocks: 0.3 MiB in the short soak. The short soak has some 10,000 connections and 90,000 requests in these rounds, so that 1 KiB lost
/// for each connection shows; in the one of ten minutes some bytes do.
const GROWTH_MOST: u64 = 8 << 20;

/// Beside the file with the settings.
const LOG: &str = "access.log";

fn log() -> String {
    format!("access-log = '{LOG}'\n")
}

/// Settings of a server at rest, which differ from round to round, so that other workers take over.
fn rested(round: u32) -> String {
    format!("workers = 2\nheader = ['* X-Round: {round}']\n{}", log())
}

/// How much happens.
struct SoakPlan {
    rounds: u32,
    round: Duration,
    /// The time between two reloads.
    between_reloads: Duration,
    idle: u64,
    /// Connections of clients that ask again and again.
    busy: u32,
}

impl SoakPlan {
    fn of_environment() -> SoakPlan {
        let seconds = std::env::var("DROVER_SOAK").map_or(20, |it| it.parse().unwrap());
        let is_long = seconds >= 120;
        let rounds = if is_long { (seconds / 100).max(4) } else { 5 };
        // The clients are in other processes, so that each has descriptors of its own. 2,000 of the server's are for others.
        drover_sys::process::raise_open_files_limit().unwrap();
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        SoakPlan {
            rounds,
            round: Duration::from_secs(seconds.into()) / rounds,
            between_reloads: Duration::from_secs(if is_long { 10 } else { 1 }),
            idle: if is_long { 15_000 } else { 500 }.min(descriptors.saturating_sub(2_000)),
            busy: if is_long { 48 } else { 12 },
        }
    }
}

/// What a server takes while it is at rest.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Footprint {
    descriptors: usize,
    threads: usize,
}

impl Footprint {
    fn of(configured: &Configured) -> Footprint {
        // A process from before may end meanwhile.
        let tasks = |process| fs::read_dir(format!("/proc/{process}/task"));
        let of = |process| tasks(process).map_or(0, |tasks| tasks.count());
        let threads = configured.server.children().into_iter().map(of).sum();
        Footprint { descriptors: configured.server.files_open(), threads }
    }
}

/// Resident memory in bytes: all of it, and what is no page of a file.
fn memory(process: u32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    };
    (value("VmRSS:"), value("RssAnon:"))
}

/// What the descriptors of a process are.
fn descriptors(process: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let mut all: Vec<_> =
        entries.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok()).collect();
    all.sort();
    all
}

/// How long a server may take to come to rest: more than it keeps idle connections.
///
/// Where its queue of handshakes is full, Linux answers by SYN cookies (tcp(7)). An ACK that is late can then make a second connection
/// of one that is closed already. The client knows nothing of it and never ends it, so that the server has it until it
/// has been idle for too long.
const REST_MOST: Duration = Duration::from_secs(60 + PATIENCE.as_secs());

/// Has workers that have served nothing take over, and waits until nothing is left of those before.
#[track_caller]
fn rest(configured: &mut Configured, round: u32, at_start: Footprint) {
    configured.set(&rested(round));
    let since = Instant::now();
    loop {
        let now = Footprint::of(configured);
        if now == at_start {
            return;
        }
        assert!(
            since.elapsed() < REST_MOST,
            "at the start {at_start:?}, after round {round} {now:?}: {:?}",
            configured.server.children().into_iter().map(descriptors).collect::<Vec<_>>()
        );
        thread::yield_now();
    }
}

/// All of the traffic for the time of a round, while the configuration changes. Returns what there was of it, in words.
#[expect(clippy::print_stdout)]
fn round(
    plan: &SoakPlan,
    configured: &mut Configured,
    pages: &[Page],
    choices: &mut impl Iterator<Item = String>,
) -> String {
    let (address, folder) = (configured.server.address(), configured.folder.path().to_owned());
    let over = AtomicBool::new(false);
    let (idle, loads) = load::start(address, plan, pages, &folder);
    let mut reloads = 0;
    thread::scope(|scope| {
        let ends = Finally(|| over.store(true, Ordering::Relaxed));
        let asking = [
            scope.spawn(|| well_formed::keep_asking(address, pages, &over)),
            scope.spawn(|| well_formed::ask_anew(address, pages, &over)),
        ];
        let hostile = [1, 2].map(|seed| {
            let over = &over;
            scope.spawn(move || hostile::bother(address, seed, over))
        });
        let end = Instant::now() + plan.round;
        while Instant::now() < end {
            // The server makes a new one, as after logrotate.
            let _ = fs::remove_file(folder.join(LOG));
            print!("{}", configured.set(&(choices.next().unwrap() + &log())));
            reloads += 1;
            thread::park_timeout(plan.between_reloads);
        }
        let answers: u64 = loads.into_iter().map(load::finish).sum();
        drop(ends);
        let answers = asking.into_iter().fold(answers, |sum, it| sum + it.join().unwrap());
        let hostile: u64 = hostile.into_iter().map(|it| it.join().unwrap()).sum();
        drop(idle);
        format!("{answers} answers, {hostile} hostile clients, {reloads} reloads")
    })
}

#[test]
#[expect(clippy::print_stdout)]
fn a_soak_loses_no_request_and_leaves_nothing_behind() {
    let plan = SoakPlan::of_environment();
    let (site, pages) = well_formed::site();
    let mut configured = Configured::start(&site, &[], &rested(0));
    let at_start = Footprint::of(&configured);
    println!("at the start: {at_start:?}");
    let mut choices = choices().into_iter().cycle();
    let mut resident = Vec::new();
    for number in 1..=plan.rounds {
        let traffic = round(&plan, &mut configured, &pages, &mut choices);
        rest(&mut configured, number, at_start);
        let (all, anonymous) = memory(configured.server.worker_process());
        println!(
            "round {number}: {traffic}; at rest {} kB resident, {} kB anonymous",
            all >> 10,
            anonymous >> 10
        );
        resident.push(all);
    }
    let (warm, last) = (resident[1], resident[plan.rounds as usize - 2..].iter().min().unwrap());
    assert!(*last <= warm + GROWTH_MOST, "resident memory at rest, round by round: {resident:?}");
    configured.stops_in_good_order();
}

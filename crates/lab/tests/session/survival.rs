//! What remains of a session that is killed, interrupted, or out of time.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use drover_lab::journal;
use drover_lab::plan::limits::MachineLimits;
use drover_lab::plan::{Overrides, Plan, Selection};
use drover_lab::process::Interrupt;
use drover_lab::run::{self, RunEnd, RunEvent, RunOptions};
use drover_lab::spec::Experiment;

use super::{drover, experiment, run_in, samples, two_by_two};

/// The variables by which a test runs itself as a lab that is to be killed.
const FOLDER: &str = "LAB_TEST_FOLDER";
const KIND: &str = "LAB_TEST_KIND";

/// Files behind the modelled disk, and a server whose processes leave their group.
fn on_a_modelled_disk() -> Experiment {
    experiment(
        r#"
        schema = "drover.experiment/2"
        id = "disk"
        [subject.epoll]
        serve = ["--cache", "off"]
        [pool.files]
        bytes = "64K"
        total = "1M"
        disk = "model"
        speed = 50
        [load.http]
        connections = 2
        requests = 8
        [phases]
        warmup = { until = "nothing" }
        [presets.quick]
        rounds = 8
        "#,
    )
}

/// The lab that other tests kill, and nothing when it is run as a test.
#[test]
fn a_lab_to_be_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let drover = drover().unwrap();
    let experiment = match std::env::var(KIND).as_deref() {
        Ok("disk") => on_a_modelled_disk(),
        _ => two_by_two(),
    };
    run_in(&experiment, &drover, &folder, false, Interrupt::on_signals().unwrap());
}

/// A lab in a process of its own.
struct Other {
    process: std::process::Child,
    folder: tempfile::TempDir,
}

impl Other {
    fn start(kind: &str) -> Other {
        let folder = tempfile::tempdir().unwrap();
        let mut lab = Command::new(std::env::current_exe().unwrap());
        lab.args(["survival::a_lab_to_be_killed", "--exact", "--nocapture"]);
        lab.env(FOLDER, folder.path()).env(KIND, kind).process_group(0);
        let process = lab.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Other { process, folder }
    }

    /// How many runs its journal has.
    fn lines(&self) -> usize {
        let runs = std::fs::read(self.folder.path().join("session").join(journal::RUNS));
        runs.unwrap_or_default().iter().filter(|byte| **byte == b'\n').count()
    }

    /// How many processes there are of its subjects and loads.
    fn marked(&self) -> usize {
        let mark = format!("DROVER_LAB={}-", self.process.id());
        let is_marked = |variable: &[u8]| variable.starts_with(mark.as_bytes());
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let environments = processes.map(|it| std::fs::read(it.path().join("environ")));
        let environments = environments.filter_map(Result::ok);
        environments.filter(|it| it.split(|byte| *byte == 0).any(is_marked)).count()
    }

    /// Whether something is mounted below its folder.
    fn has_mounts(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.contains(self.folder.path().to_str().unwrap())
    }

    /// Waits for `state`, which must come while the lab runs.
    fn wait_for(&mut self, state: impl Fn(&Other) -> bool) {
        while !state(self) {
            assert!(self.process.try_wait().unwrap().is_none(), "the lab has ended");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_lab_that_is_killed_leaves_a_journal_and_nothing_else_and_is_resumed() {
    if drover().is_none() {
        return;
    }
    let mut lab = Other::start("servers");
    // In the middle of a run: its server is there, and so may be its load.
    lab.wait_for(|lab| lab.lines() >= 3 && lab.marked() > 0);
    lab.process.kill().unwrap();
    lab.process.wait().unwrap();
    while lab.marked() > 0 {
        std::thread::yield_now();
    }
    let folder = lab.folder.path();
    let before = samples(folder);
    assert!((3..8).contains(&before.len()), "{}", before.len());
    // As a power cut would leave it.
    let path = folder.join("session").join(journal::RUNS);
    let mut text = std::fs::read(&path).unwrap();
    text.extend(b"{\"cell\": 2, \"sam");
    std::fs::write(&path, text).unwrap();
    let drover = drover().unwrap();
    let (end, events) = run_in(&two_by_two(), &drover, folder, true, Interrupt::default());
    assert_eq!(end, RunEnd::Complete);
    assert_eq!(events[0], format!("resumed {}", before.len()));
    let ended = events.iter().filter(|event| event.starts_with("ended")).count();
    assert_eq!(ended, 8 - before.len());
    let after = samples(folder);
    assert_eq!((after.len(), &after[..before.len()]), (8, &before[..]));
    let left = std::fs::read_dir(folder.join("session")).unwrap().count();
    assert_eq!(left, 2);
}

#[test]
fn a_lab_that_is_killed_leaves_no_mount() {
    if drover().is_none() {
        return;
    }
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        return drover_testing::skip!("only root may mount a modelled disk, and needs /dev/fuse");
    }
    let mut lab = Other::start("disk");
    lab.wait_for(|lab| lab.has_mounts() && lab.marked() > 0);
    lab.process.kill().unwrap();
    lab.process.wait().unwrap();
    while lab.has_mounts() || lab.marked() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_signal_ends_a_session_readably() {
    if drover().is_none() {
        return;
    }
    let mut lab = Other::start("servers");
    lab.wait_for(|lab| lab.lines() >= 1 && lab.marked() > 0);
    let pid = rustix::process::Pid::from_child(&lab.process);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(lab.process.wait().unwrap().success());
    assert_eq!(lab.marked(), 0);
    let samples = samples(lab.folder.path());
    assert!((1..8).contains(&samples.len()), "{}", samples.len());
    assert!(samples.iter().all(|sample| sample.failure.is_none()), "{samples:?}");
}

#[test]
fn an_interrupted_session_ends_readably() {
    let Some(drover) = drover() else { return };
    let folder = tempfile::tempdir().unwrap();
    let experiment = two_by_two();
    let selection = Selection::new(&experiment, "quick", &Overrides::default()).unwrap();
    let plan = Plan::new(&experiment, &selection, 7, &MachineLimits::look().unwrap()).unwrap();
    let interrupt = Interrupt::default();
    let options = RunOptions {
        guest: None,
        drover,
        folder: folder.path().join("session"),
        pools: folder.path().join("pools"),
        resumes: false,
        is_forced: false,
        interrupt: interrupt.clone(),
    };
    let end = run::run(&experiment, &selection, &plan, &options, &mut |event| {
        if let RunEvent::Ended { done: 2, .. } = event {
            interrupt.set();
        }
    });
    assert_eq!(end.unwrap(), RunEnd::Interrupted);
    assert_eq!(samples(folder.path()).len(), 2);
}

#[test]
fn a_session_whose_time_is_over_has_whole_rounds() {
    let Some(drover) = drover() else { return };
    let folder = tempfile::tempdir().unwrap();
    let experiment = two_by_two();
    let budget = Some(Duration::from_micros(1));
    let overrides = Overrides { budget, ..Overrides::default() };
    let selection = Selection::new(&experiment, "quick", &overrides).unwrap();
    let plan = Plan::new(&experiment, &selection, 7, &MachineLimits::look().unwrap()).unwrap();
    let options = RunOptions {
        guest: None,
        drover,
        folder: folder.path().join("session"),
        pools: folder.path().join("pools"),
        resumes: false,
        is_forced: false,
        interrupt: Interrupt::default(),
    };
    let mut notes = Vec::new();
    let end = run::run(&experiment, &selection, &plan, &options, &mut |event| {
        if let RunEvent::Note(note) = event {
            notes.push(note.to_string());
        }
    });
    assert_eq!(end.unwrap(), RunEnd::BudgetSpent { rounds: 1 });
    assert_eq!(samples(folder.path()).len(), 4);
    assert!(notes.iter().any(|note| note.contains("--budget")), "{notes:?}");
}

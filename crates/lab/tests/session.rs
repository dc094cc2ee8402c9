//! A session as a whole: an experiment of version 2 is planned, run against Drover's own server by its
//! own generator, killed in the middle, resumed, and read back from its journal.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lab::journal;
use lab::model::{Mark, Sample};
use lab::plan::limits::Limits;
use lab::plan::{Overrides, Plan, Selection};
use lab::process::Interrupt;
use lab::run::{self, End, Event, Options};
use lab::spec::Experiment;

/// The variables by which a test runs itself as a lab that is to be killed.
const FOLDER: &str = "LAB_TEST_FOLDER";
const KIND: &str = "LAB_TEST_KIND";

/// Drover's binary: named by `DROVER`, or built beside the tests.
fn drover() -> Option<PathBuf> {
    let named = std::env::var_os("DROVER").map(PathBuf::from);
    let beside = || {
        let test = std::env::current_exe().ok()?;
        Some(test.parent()?.parent()?.join("drover"))
    };
    let found = named.or_else(beside).filter(|path| path.is_file());
    if found.is_none() {
        testing::skip!(
            "Drover's binary was not built (cargo build -p drover, or name it by DROVER)"
        );
    }
    found
}

fn experiment(text: &str) -> Experiment {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("example.toml");
    std::fs::write(&path, text).unwrap();
    lab::spec::read(&path).unwrap_or_else(|faults| panic!("{faults}"))
}

fn two_by_two() -> Experiment {
    experiment(
        r#"
        schema = "drover.experiment/2"
        id = "example"
        serve = ["--reply-size", "{body}"]

        [subject.epoll]
        serve = ["--dispatch", "epoll"]
        [subject.poll]
        serve = ["--dispatch", "poll"]

        [factor.body]
        levels = [92, 4096]

        [load.http]
        connections = 4
        idle = 10

        [phases]
        warmup = { until = "steady", at_most = "400ms" }
        measure = { at_least = "200ms", events = 50 }

        [presets.quick]
        rounds = 2
        "#,
    )
}

/// Runs an experiment in a folder; returns how it ended and the events as words.
fn run_in(
    experiment: &Experiment,
    drover: &Path,
    folder: &Path,
    resumes: bool,
    interrupt: Interrupt,
) -> (End, Vec<String>) {
    let selection = Selection::new(experiment, "quick", &Overrides::default()).unwrap();
    let plan = Plan::new(experiment, &selection, 7, &Limits::look().unwrap()).unwrap();
    let options = Options {
        drover: drover.to_owned(),
        folder: folder.join("session"),
        pools: folder.join("pools"),
        resumes,
        is_forced: false,
        interrupt,
    };
    let mut events = Vec::new();
    let end = run::run(experiment, &selection, &plan, &options, &mut |event| {
        events.push(match event {
            Event::Ended { run, .. } => format!("ended {} {}", run.cell, run.sample.round),
            Event::Resumed { runs } => format!("resumed {runs}"),
            other => format!("{other:?}"),
        });
    });
    (end.unwrap(), events)
}

fn samples(folder: &Path) -> Vec<Sample> {
    let (_, runs) = journal::read(&folder.join("session")).unwrap();
    runs.into_iter().map(|run| run.sample).collect()
}

#[test]
fn two_subjects_at_two_levels_in_two_rounds_make_eight_samples() {
    let Some(drover) = drover() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (end, events) = run_in(&two_by_two(), &drover, folder.path(), false, Interrupt::default());
    assert_eq!(end, End::Complete);
    assert_eq!(events.iter().filter(|event| event.starts_with("ended")).count(), 8);
    let samples = samples(folder.path());
    let keys: BTreeSet<String> = samples
        .iter()
        .map(|it| format!("{} {} {}", it.cell.subject, it.cell.levels["body"], it.round))
        .collect();
    assert_eq!(keys.len(), 8, "{keys:?}");
    for sample in &samples {
        assert_eq!(sample.failure, None, "{sample:?}");
        assert!(!sample.validity.contains(&Mark::Errors), "{sample:?}");
        for metric in ["reply-rate", "cpu-per-reply", "latency-p99", "cpu-percent", "memory"] {
            assert!(sample.values.get(metric).is_some_and(|it| *it > 0.0), "{metric}: {sample:?}");
        }
    }
    let (_, runs) = journal::read(&folder.path().join("session")).unwrap();
    let artefacts = &runs[0].artefacts;
    assert!(artefacts["instruments"]["cpu"]["by"].is_string(), "{artefacts}");
    assert_eq!(artefacts["load"]["result"]["schema"], "drover.load/1");
    // Both runs of a round have its seed, and rounds have seeds of their own.
    let seed = |run: &journal::Run| {
        let words = run.artefacts["load"]["command"].as_array().unwrap().clone();
        let at = words.iter().position(|word| word == "--seed").unwrap();
        (run.sample.round, words[at + 1].as_str().unwrap().to_owned())
    };
    assert_eq!(runs.iter().map(seed).collect::<BTreeSet<_>>().len(), 2);
    let left: Vec<_> =
        std::fs::read_dir(folder.path().join("session")).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

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
        lab.args(["a_lab_to_be_killed", "--exact", "--nocapture"]);
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
    assert_eq!(end, End::Complete);
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
        return testing::skip!("only root may mount a modelled disk, and needs /dev/fuse");
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
fn a_cell_that_fails_or_cannot_be_measured_is_a_result_and_the_others_go_on() {
    let Some(drover) = drover() else { return };
    let folder = tempfile::tempdir().unwrap();
    let experiment = experiment(
        r#"
        schema = "drover.experiment/2"
        id = "failures"
        [subject.good]
        serve = ["--reply-size", "1"]
        [subject.refuses]
        serve = ["--no-such-flag"]
        [subject.missing]
        command = ["{it}", "{port}"]
        find = { it = ["no-such-server"] }
        install = "apt-get install it"
        [subject.ends]
        command = ["sh", "-c", "echo no configuration >&2; exit 4"]
        [subject.not-found]
        serve = []
        [load.http]
        path = "/missing"
        connections = 1
        [phases]
        warmup = { until = "nothing" }
        measure = { at_least = "100ms" }
        [presets.quick]
        rounds = 1
        "#,
    );
    let (end, _) = run_in(&experiment, &drover, folder.path(), false, Interrupt::default());
    assert_eq!(end, End::Complete);
    let (header, _) = journal::read(&folder.path().join("session")).unwrap();
    let missing = header.plan.cells.iter().find(|it| it.cell.subject == "missing").unwrap();
    let why = missing.not_testable.as_deref().unwrap();
    assert!(why.contains("no-such-server") && why.contains("apt-get install it"), "{why}");
    let samples = samples(folder.path());
    let of = |subject: &str| samples.iter().find(|it| it.cell.subject == subject).unwrap();
    assert_eq!(of("good").failure, None);
    let why = of("refuses").failure.as_deref().unwrap();
    assert!(why.contains("--no-such-flag"), "{why}");
    let why = of("ends").failure.as_deref().unwrap();
    assert!(why.contains("no configuration"), "{why}");
    // Statuses that were not expected are errors, and no replies.
    let not_found = of("not-found");
    assert_eq!(not_found.failure, None);
    assert_eq!(not_found.values["reply-rate"], 0.0, "{not_found:?}");
    assert!(not_found.validity.contains(&Mark::Errors));
    assert_eq!(samples.len(), 4);
}

#[test]
fn an_interrupted_session_ends_readably() {
    let Some(drover) = drover() else { return };
    let folder = tempfile::tempdir().unwrap();
    let experiment = two_by_two();
    let selection = Selection::new(&experiment, "quick", &Overrides::default()).unwrap();
    let plan = Plan::new(&experiment, &selection, 7, &Limits::look().unwrap()).unwrap();
    let interrupt = Interrupt::default();
    let options = Options {
        drover,
        folder: folder.path().join("session"),
        pools: folder.path().join("pools"),
        resumes: false,
        is_forced: false,
        interrupt: interrupt.clone(),
    };
    let end = run::run(&experiment, &selection, &plan, &options, &mut |event| {
        if let Event::Ended { done: 2, .. } = event {
            interrupt.set();
        }
    });
    assert_eq!(end.unwrap(), End::Interrupted);
    assert_eq!(samples(folder.path()).len(), 2);
}

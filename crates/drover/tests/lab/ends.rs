//! Sessions that are interrupted or killed: what they leave, and how they go on.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::thread;

use drover_testing::make_program;
use rustix::process::{Pid, Signal, kill_process};

use super::{
    DROVER, assert_usage_error, lab, lab_as, output, report, runs, session, text, write_experiment,
};

/// How many rounds a session has that is not left to its end.
const ROUNDS: &str = "40";

/// A session that would run for a while.
struct LongSession {
    lab: Child,
    stderr: BufReader<ChildStderr>,
}

impl LongSession {
    /// Starts it, and returns when its first run is complete.
    fn start(folder: &Path) -> LongSession {
        write_experiment(folder, "long", "");
        let args = ["run", "long.toml", "--repeats", ROUNDS];
        let mut command = lab(folder, &args);
        let mut lab = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(lab.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("1/80 long: ") {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "the lab has ended");
        }
        LongSession { lab, stderr }
    }

    /// How many processes there are of its subjects and loads.
    fn marked(&self) -> usize {
        let mark = format!("DROVER_LAB={}-", self.lab.id());
        let is_marked = |variable: &[u8]| variable.starts_with(mark.as_bytes());
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let environments = processes.filter_map(|it| fs::read(it.path().join("environ")).ok());
        environments.filter(|it| it.split(|byte| *byte == 0).any(is_marked)).count()
    }

    /// Returns while a run is under way.
    fn wait_for_a_run(&self) {
        while self.marked() == 0 {
            thread::yield_now();
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.lab), signal).unwrap();
    }

    /// Its exit status, and what it said.
    fn end(&mut self) -> (Option<i32>, String, String) {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.lab.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut stderr).unwrap();
        (self.lab.wait().unwrap().code(), stdout, stderr)
    }
}

#[test]
fn an_interrupted_session_leaves_a_report_and_no_process_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut long = LongSession::start(folder.path());
    long.wait_for_a_run();
    long.signal(Signal::TERM);
    let (status, stdout, stderr) = long.end();
    assert_eq!(status, Some(1), "{stderr}");
    assert_eq!(long.marked(), 0);
    assert_eq!(stdout.lines().last(), Some("Report: drover-lab/report.html"));
    let last = stderr.lines().last().unwrap();
    assert!(
        last.starts_with("drover: interrupted") && last.contains("lab run --resume"),
        "{stderr}"
    );
    assert!(report(folder.path()).contains("The experiment long"));
    let session = session(folder.path());
    let before = runs(&session, "long");
    assert!((1..80).contains(&before.len()), "{}", before.len());

    // As few rounds as were begun, so that the end is near.
    let rounds = before.iter().filter_map(|run| run["sample"]["round"].as_u64()).max().unwrap() + 1;
    let to_round = |round: u64| ["--repeats".to_owned(), round.to_string()];
    let refused = resume_by_another(folder.path(), &to_round(rounds));
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("--force"), "{}", text(&refused.stderr));
    let mut command = lab(folder.path(), &["run", "--resume"]);
    let resumed = command.args(to_round(rounds)).output().unwrap();
    let stderr = text(&resumed.stderr);
    assert!(resumed.status.success(), "{stderr}");
    assert!(stderr.contains(&format!("long: resumed after {} run", before.len())), "{stderr}");
    let after = runs(&session, "long");
    assert_eq!(&after[..before.len()], &before[..]);
    assert_eq!(after.len() as u64, 2 * rounds, "each cell has a run in each round");
    assert!(report(folder.path()).contains("The experiment long"));

    let forced = [&to_round(rounds + 1)[..], &["--force".to_owned()]].concat();
    let forced = resume_by_another(folder.path(), &forced);
    assert!(forced.status.success(), "{}", text(&forced.stderr));
    assert_eq!(runs(&session, "long").len() as u64, 2 * rounds + 2);
}

/// Resumes the session by another program, which tells the same.
fn resume_by_another(folder: &Path, more: &[String]) -> Output {
    let program = folder.join("another");
    make_program(&program, "cat \"$1\"; echo more", &[DROVER]);
    lab_as(&program, folder, &["run", "--resume"]).args(more).output().unwrap()
}

#[test]
fn a_killed_lab_takes_its_children_along_and_leaves_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let mut long = LongSession::start(folder.path());
    long.wait_for_a_run();
    long.lab.kill().unwrap();
    long.lab.wait().unwrap();
    // Each is being killed by now; that takes as long as it takes.
    while long.marked() > 0 {
        thread::yield_now();
    }
    // The first round may have had no end, and no report then: there is one of what was planned.
    assert!(report(folder.path()).contains("</h1>"));
    assert!(!runs(&session(folder.path()), "long").is_empty());
    let anew = output(folder.path(), &["report"]);
    assert!(anew.status.success(), "{}", text(&anew.stderr));
    let page = fs::read_to_string(session(folder.path()).join("report.html")).unwrap();
    assert!(page.contains("The experiment long"));
}

#[test]
fn a_session_that_runs_is_not_resumed_beside() {
    let folder = tempfile::tempdir().unwrap();
    let mut long = LongSession::start(folder.path());
    let beside = output(folder.path(), &["run", "--resume"]);
    let stderr = text(&beside.stderr);
    assert_eq!(beside.status.code(), Some(1), "{stderr}");
    assert!(stderr.lines().last().unwrap().contains("another lab writes"), "{stderr}");
    long.signal(Signal::TERM);
    assert_eq!(long.end().0, Some(1));
    let gone = output(folder.path(), &["run", "--resume", "no-such-folder"]);
    assert_usage_error(&gone, &["no-such-folder"]);
}

/// A small file system in memory, which is unmounted at the end.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None`, and a note: it cannot be mounted.
    fn mount() -> Option<SmallDisk> {
        let disk = SmallDisk(tempfile::tempdir().unwrap());
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=16M", "tmpfs"]).arg(disk.0.path());
        let output = command.output();
        if output.is_ok_and(|output| output.status.success()) {
            return Some(disk);
        }
        drover_testing::skip!("no tmpfs can be mounted, which only root may do");
        None
    }

    /// Takes all of its room, until the file is removed.
    fn fill(&self) -> PathBuf {
        let path = self.0.path().join("filler");
        let mut file = fs::File::create(&path).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[test]
fn a_full_disk_ends_a_session_with_its_journal_and_it_goes_on_when_there_is_room() {
    let Some(disk) = SmallDisk::mount() else { return };
    let folder = disk.0.path();
    let mut long = LongSession::start(folder);
    let before = runs(&session(folder), "long");
    let filler = disk.fill();
    let (status, _, stderr) = long.end();
    assert_eq!(status, Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap();
    assert!(last.starts_with("drover: ") && last.contains("No space left"), "{stderr}");
    assert_eq!(long.marked(), 0);
    let session = session(folder);
    let left = runs(&session, "long");
    assert_eq!(left[..before.len()], before);
    fs::remove_file(filler).unwrap();
    let rounds = left.iter().filter_map(|run| run["sample"]["round"].as_u64()).max().unwrap() + 1;
    let resumed = output(folder, &["run", "--resume", "--repeats", &rounds.to_string()]);
    let after = runs(&session, "long");
    assert_eq!(after[..left.len()], left, "{}", text(&resumed.stderr));
    assert_eq!(after.len() as u64, 2 * rounds, "{}", text(&resumed.stderr));
    // What failed by the lab's own disk is not on the servers' bill.
    assert!(after.iter().all(|run| run["sample"]["failure"].is_null()), "{after:?}");
    assert!(report(folder).contains("The experiment long"));
}

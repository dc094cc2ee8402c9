//! The processes of a subject where control groups are not allowed: the descendants of the process that
//! the lab has started, and the orphans that the kernel gives to the lab.
//!
//! A daemon leaves its parent, its process group and its session. The lab is a *subreaper*
//! (`PR_SET_CHILD_SUBREAPER`, Linux 3.4): processes whose parent has ended become its children, and are
//! found as such.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::process;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};

/// The variable that tells to which child of which lab a process belongs.
pub(super) const MARK: &str = "DROVER_LAB";

/// The processes that the lab has started itself, and that are no orphans.
static OWN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Notes that the lab has started a process itself.
pub(super) fn note_own(pid: u32) {
    OWN.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
}

/// Forgets a process that the lab has waited for.
pub(super) fn forget_own(pid: u32) {
    OWN.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
}

/// Makes this process the parent of orphans among its descendants.
///
/// # Errors
/// What prctl(2) says.
pub(super) fn become_subreaper() -> io::Result<()> {
    // Any process id stands for "on" (PR_SET_CHILD_SUBREAPER(2const)).
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// The processes of a subject, by kinship.
#[derive(Debug)]
pub struct Tree {
    root: u32,
    /// The value of [`MARK`] in the environment of the root and, unless they clear it, its descendants.
    mark: String,
    /// The root's start, in ticks since the machine's: orphans that are older are not the subject's.
    started: u64,
    /// What orphans had used that have ended.
    ended: Duration,
    /// What was found so far, by process id and start: a process that ends shows no mark.
    seen: RefCell<BTreeSet<(u32, u64)>>,
}

/// What the lab reads of a process in proc_pid_stat(5).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    is_zombie: bool,
    /// CPU time of children that were waited for, in clock ticks.
    of_children: u64,
    started: u64,
}

impl Tree {
    /// The tree of a running process that the lab has started with `mark` in its environment.
    ///
    /// # Errors
    /// `NotFound` if there is no such process.
    pub(super) fn of(root: u32, mark: &str) -> io::Result<Tree> {
        let stat = Stat::read(root).ok_or(io::ErrorKind::NotFound)?;
        Ok(Tree {
            root,
            mark: mark.to_string(),
            started: stat.started,
            ended: Duration::ZERO,
            seen: RefCell::default(),
        })
    }

    /// The processes of the tree that run.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        self.find().into_keys().collect()
    }

    /// CPU time, user and system, of all processes of the tree: of those that run and have threads that
    /// ended, to the nanosecond, and of those that were waited for, to the clock tick.
    pub fn cpu_time(&mut self) -> Duration {
        let tick = 1.0 / rustix::param::clock_ticks_per_second().max(1) as f64;
        let mut total = Duration::ZERO;
        for (pid, stat) in self.find() {
            let own = sys::process::cpu_time(pid).unwrap_or_default();
            let children = Duration::from_secs_f64(stat.of_children as f64 * tick);
            total += own + children;
            if stat.is_zombie && pid != self.root && stat.parent == process::id() {
                // An orphan has ended, and only the lab can wait for it.
                let id = Pid::from_raw(pid.cast_signed());
                if waitpid(id, WaitOptions::NOHANG).is_ok_and(|status| status.is_some()) {
                    self.ended += own + children;
                    total -= own + children;
                }
            }
        }
        total + self.ended
    }

    /// Kills every process of the tree but its root, until none is left that kill(2) reaches.
    pub fn kill_descendants(&mut self) {
        for _ in 0..100 {
            let others: Vec<(u32, Stat)> =
                self.find().into_iter().filter(|(pid, _)| *pid != self.root).collect();
            if others.is_empty() {
                return;
            }
            for (pid, stat) in others {
                let Some(id) = Pid::from_raw(pid.cast_signed()) else { continue };
                let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
                if stat.parent == process::id() {
                    let _ = waitpid(Some(id), WaitOptions::NOHANG);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn find(&self) -> BTreeMap<u32, Stat> {
        let all = processes();
        let lab = process::id();
        let own = OWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_orphan = |pid: &u32, stat: &Stat| {
            stat.parent == lab
                && !own.contains(pid)
                && stat.started >= self.started
                // A process that is ending gives its memory, and with it its environment, back before it is
                // a zombie: who was seen once belongs to the tree until it is gone.
                && (self.seen.borrow().contains(&(*pid, stat.started))
                    || (!stat.is_zombie && is_marked(*pid, &self.mark)))
        };
        let mut found: BTreeMap<u32, Stat> = BTreeMap::new();
        let mut fresh: Vec<u32> = all
            .iter()
            .filter(|(pid, stat)| **pid == self.root || is_orphan(pid, stat))
            .map(|(pid, _)| *pid)
            .collect();
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (pid, stat) in &all {
            children.entry(stat.parent).or_default().push(*pid);
        }
        while let Some(pid) = fresh.pop() {
            if let Some(stat) = all.get(&pid)
                && found.insert(pid, stat.clone()).is_none()
            {
                fresh.extend(children.get(&pid).into_iter().flatten());
            }
        }
        self.seen.borrow_mut().extend(found.iter().map(|(pid, stat)| (*pid, stat.started)));
        found
    }
}

impl Stat {
    fn read(pid: u32) -> Option<Stat> {
        Stat::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The fields behind the name, which may itself contain anything: the state is the first of them.
    fn parse(text: &str) -> Option<Stat> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| -> Option<u64> { fields.get(at)?.parse().ok() };
        Some(Stat {
            is_zombie: *fields.first()? == "Z",
            parent: fields.get(1)?.parse().ok()?,
            of_children: number(13)? + number(14)?,
            started: number(19)?,
        })
    }
}

/// Whether a process may be of the child with that mark. A process that has overwritten its environment, as
/// nginx does to show a title, or has cleared it, shows no mark; any other without it is somebody else's.
fn is_marked(pid: u32, mark: &str) -> bool {
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|it| may_be_of(&it, mark))
}

fn may_be_of(environment: &[u8], mark: &str) -> bool {
    let variables = environment.split(|byte| *byte == 0).filter(|it| it.contains(&b'='));
    let mut marks = variables.clone().filter_map(|variable| {
        std::str::from_utf8(variable).ok()?.strip_prefix(MARK)?.strip_prefix('=')
    });
    match marks.next() {
        Some(found) => found == mark,
        None => variables.count() == 0,
    }
}

fn processes() -> BTreeMap<u32, Stat> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    let pid =
        |entry: std::fs::DirEntry| -> Option<u32> { entry.file_name().to_str()?.parse().ok() };
    let pids = entries.filter_map(|entry| pid(entry.ok()?));
    pids.filter_map(|pid| Some((pid, Stat::read(pid)?))).collect()
}

/// How long the threads of a process could have run and were not given a processor: the second number
/// of their schedstat (Documentation/scheduler/sched-stats.rst). `None` if the kernel does not count it.
#[must_use]
pub(crate) fn waited(pid: u32) -> Option<Duration> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_thread = |folder: PathBuf| -> Option<u64> {
        let text = std::fs::read_to_string(folder.join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
    };
    // A thread that ends meanwhile has no file any more.
    let times: Vec<u64> = threads.filter_map(|thread| of_thread(thread.ok()?.path())).collect();
    (!times.is_empty()).then(|| Duration::from_nanos(times.iter().sum()))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_confuse_the_fields() {
        let text = "42 (a) b (c) Z 7 42 42 0 -1 4194304 1 2 3 4 5 6 11 12 20 0 1 0 99 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(stat, Stat { parent: 7, is_zombie: true, of_children: 23, started: 99 });
    }

    #[test]
    fn a_process_of_somebody_else_is_not_taken_for_an_orphan() {
        assert!(may_be_of(b"A=b\0DROVER_LAB=x.1\0", "x.1"));
        assert!(!may_be_of(b"A=b\0DROVER_LAB=x.2\0", "x.1"));
        assert!(!may_be_of(b"A=b\0", "x.1"));
        assert!(may_be_of(b"", "x.1") && may_be_of(b"\0\0process\0\0", "x.1"));
    }

    #[test]
    fn children_that_ended_and_daemons_are_on_the_bill() {
        become_subreaper().unwrap();
        let work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        // A child that works and is waited for, then one that leaves for a session of its own.
        let script = format!(
            "sh -c '{work}'; (setsid sh -c '{work}; echo $$; exec sleep 1000' &); read -r _; :"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.env(MARK, "tree-test").spawn().unwrap();
        note_own(child.id());
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let daemon: u32 = line.trim().parse().unwrap();
        let mut tree = Tree::of(child.id(), "tree-test").unwrap();
        assert!(tree.members().contains(&daemon), "{:?} lacks {daemon}", tree.members());
        let alone = sys::process::cpu_time(child.id()).unwrap();
        let all = tree.cpu_time();
        assert!(all >= alone + sys::process::cpu_time(daemon).unwrap(), "{all:?}, {alone:?}");
        tree.kill_descendants();
        assert!(!tree.members().contains(&daemon));
        drop(child.stdin.take());
        child.wait().unwrap();
        forget_own(child.id());
    }
}

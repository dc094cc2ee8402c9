//! The processes of a subject if control groups are not allowed: the descendants of the process that the lab has
//! started, and the orphans that the kernel gives to the lab.
//!
//! A daemon leaves its parent, its process group and its session. The lab is a *subreaper* (`PR_SET_CHILD_SUBREAPER`,
//! Linux 3.4): a process whose parent has ended becomes a child of the lab, and the lab finds it there.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::process;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};

/// The environment variable that says to which child of which lab a process belongs.
pub(super) const MARK: &str = "DROVER_LAB";

/// The processes that the lab has started itself. They are no orphans.
static OWN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Records a process that the lab has started itself.
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

/// The processes of a subject, found by descent.
#[derive(Debug)]
pub struct Tree {
    root: u32,
    /// The value of [`MARK`] in the environment of the root. Descendants inherit it unless they clear it.
    mark: String,
    /// The start of the root, in clock ticks since the machine's start. Older orphans do not belong to the subject.
    started: u64,
    /// The CPU time of orphans that have ended.
    ended: Duration,
    /// The processes found so far, by process id and start. A process that is ending shows no mark.
    seen: RefCell<BTreeSet<(u32, u64)>>,
}

/// The fields of proc_pid_stat(5) that the lab uses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// The process group.
    group: u32,
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

    /// The running processes of the tree.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        self.find().into_keys().collect()
    }

    /// CPU time, user and system, of all processes of the tree: to the nanosecond for running processes with their
    /// ended threads, and to the clock tick for processes that were waited for.
    pub fn cpu_time(&mut self) -> Duration {
        let tick = 1.0 / rustix::param::clock_ticks_per_second().max(1) as f64;
        let mut total = Duration::ZERO;
        for (pid, stat) in self.find() {
            let own = drover_sys::process::cpu_time(pid).unwrap_or_default();
            let children = Duration::from_secs_f64(stat.of_children as f64 * tick);
            total += own + children;
            if stat.is_zombie && pid != self.root && stat.parent == process::id() {
                // An orphan has ended. Only the lab can wait for it.
                let id = Pid::from_raw(pid.cast_signed());
                if waitpid(id, WaitOptions::NOHANG).is_ok_and(|status| status.is_some()) {
                    self.ended += own + children;
                    total -= own + children;
                }
            }
        }
        total + self.ended
    }

    /// Kills every process of the tree but the root, until no process is left that kill(2) can reach.
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
        // 0: the group of who has started the first process of this process's namespace (pid_namespaces(7)).
        let group = all.get(&lab).map_or(0, |own| own.group);
        let own = OWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_orphan = |pid: &u32, stat: &Stat| {
            stat.parent == lab
                && !own.contains(pid)
                && stat.started >= self.started
                // An ending process releases its memory, and its environment with it, before it is a zombie. A
                // process that was seen once therefore belongs to the tree until it is gone.
                && (self.seen.borrow().contains(&(*pid, stat.started))
                    || (!stat.is_zombie && is_marked(*pid, &self.mark, stat.group != group)))
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

    /// Parses the fields behind the process's name. The name may contain any character; the first field behind it is
    /// the state.
    fn parse(text: &str) -> Option<Stat> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| -> Option<u64> { fields.get(at)?.parse().ok() };
        Some(Stat {
            is_zombie: *fields.first()? == "Z",
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            of_children: number(13)? + number(14)?,
            started: number(19)?,
        })
    }
}

/// Whether a process may belong to the child with the mark. A process with environment variables belongs only if one of
/// them is the mark. A process without any may belong if it is in another process group than the lab (`is_apart`):
/// nginx overwrites its environment to show a title, and a process may clear it. In the lab's own group it is a
/// process that the lab is just starting: during execve(2) the kernel shows no environment.
fn is_marked(pid: u32, mark: &str, is_apart: bool) -> bool {
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|it| may_be_of(&it, mark, is_apart))
}

fn may_be_of(environment: &[u8], mark: &str, is_apart: bool) -> bool {
    let variables = environment.split(|byte| *byte == 0).filter(|it| it.contains(&b'='));
    let mut marks = variables.clone().filter_map(|variable| {
        std::str::from_utf8(variable).ok()?.strip_prefix(MARK)?.strip_prefix('=')
    });
    match marks.next() {
        Some(found) => found == mark,
        None => is_apart && variables.count() == 0,
    }
}

fn processes() -> BTreeMap<u32, Stat> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    let pid =
        |entry: std::fs::DirEntry| -> Option<u32> { entry.file_name().to_str()?.parse().ok() };
    let pids = entries.filter_map(|entry| pid(entry.ok()?));
    pids.filter_map(|pid| Some((pid, Stat::read(pid)?))).collect()
}

/// How long the threads of a process were ready to run and had no processor: the second number of their schedstat
/// (Documentation/scheduler/sched-stats.rst). `None` if the kernel does not count it.
#[must_use]
pub(crate) fn waited(pid: u32) -> Option<Duration> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_thread = |folder: PathBuf| -> Option<u64> {
        let text = std::fs::read_to_string(folder.join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
    };
    // The file of a thread that has ended meanwhile is missing.
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
        assert_eq!(
            stat,
            Stat { parent: 7, group: 42, is_zombie: true, of_children: 23, started: 99 }
        );
    }

    #[test]
    fn a_process_of_somebody_else_is_not_taken_for_an_orphan() {
        for is_apart in [true, false] {
            assert!(may_be_of(b"A=b\0DROVER_LAB=x.1\0", "x.1", is_apart));
            assert!(!may_be_of(b"A=b\0DROVER_LAB=x.2\0", "x.1", is_apart));
            assert!(!may_be_of(b"A=b\0", "x.1", is_apart));
            // Nothing is known of who has no variables, and what the lab starts has none for a moment.
            for nothing in [&b""[..], b"\0\0process\0\0"] {
                assert_eq!(may_be_of(nothing, "x.1", is_apart), is_apart);
            }
        }
    }

    #[test]
    fn children_that_ended_and_daemons_are_on_the_bill() {
        become_subreaper().unwrap();
        let work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        // One child works and is waited for; another one leaves for a session of its own.
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
        let alone = drover_sys::process::cpu_time(child.id()).unwrap();
        let all = tree.cpu_time();
        assert!(
            all >= alone + drover_sys::process::cpu_time(daemon).unwrap(),
            "{all:?}, {alone:?}"
        );
        tree.kill_descendants();
        assert!(!tree.members().contains(&daemon));
        drop(child.stdin.take());
        child.wait().unwrap();
        forget_own(child.id());
    }
}

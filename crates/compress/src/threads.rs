//! Work shared out among threads, its results told on the calling thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Context;

/// How often `told` is called while there are no results.
const LOOKS: Duration = Duration::from_millis(100);

/// Does `work` for each of `tasks`, in their order, on `jobs` threads. `told` gets each task with its result as soon as
/// there is one, and `None` ten times a second meanwhile.
///
/// # Errors
/// Not one thread can be started.
pub(crate) fn share_out<'t, T: Sync, R: Send>(
    jobs: usize,
    tasks: &'t [T],
    work: impl Fn(&T) -> R + Sync,
    mut told: impl FnMut(Option<(&'t T, R)>),
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for at in 0..jobs.min(tasks.len()) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            let take = move || {
                while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if sender.send((task, work(task))).is_err() {
                        break;
                    }
                }
            };
            let started = thread::Builder::new().name("compress".to_owned());
            match started.spawn_scoped(scope, take) {
                Ok(_) => {}
                // Fewer threads take longer, and do the same.
                Err(_) if at > 0 => break,
                Err(error) => {
                    return Err(error).context("cannot start a thread; raise 'ulimit -u'");
                }
            }
        }
        drop(sender);
        loop {
            match results.recv_timeout(LOOKS) {
                Ok(result) => told(Some(result)),
                Err(RecvTimeoutError::Timeout) => told(None),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_is_done_once_by_any_number_of_threads() {
        let tasks: Vec<u32> = (0..1000).collect();
        for jobs in [1, 3, 2000] {
            let mut seen = Vec::new();
            let told = |done: Option<(&u32, u32)>| {
                seen.extend(done.map(|(task, result)| (*task, result)));
            };
            share_out(jobs, &tasks, |task| task * 2, told).unwrap();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(tasks.iter().map(|task| (*task, task * 2))));
        }
    }
}

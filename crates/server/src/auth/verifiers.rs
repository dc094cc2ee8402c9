//! Threads that verify passwords: that takes tens of milliseconds on purpose, and no worker waits for it.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use drover_mech::Key;
use drover_mech::net::Remote;
use drover_sys::process::start_thread;

use crate::auth::credentials::{Credentials, CredentialsTag, TagKey};
use crate::auth::users::Users;

/// How many passwords are verified at a time in a process.
const THREADS: usize = 2;

/// How many wait for that; at a few ten milliseconds each, those at the end wait a second or two.
const QUEUED_MOST: usize = 64;

/// The nice value of the threads (setpriority(2)): where processors are short, files come first.
const NICE: i32 = 10;

/// The threads of a process, and their queue. They end when it is dropped.
pub(crate) struct VerifierPool(Arc<VerifierQueue>);

struct VerifierQueue {
    users: Users,
    key: TagKey,
    state: Mutex<QueueState>,
    not_empty: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<VerifierJob>,
    closed: bool,
}

/// Credentials to be verified for a worker.
pub(crate) struct VerifierJob {
    pub(crate) credentials: Credentials,
    pub(crate) tag: CredentialsTag,
    pub(crate) results: Arc<VerifiedTags>,
}

/// The results for one worker that it has not taken yet.
pub(crate) struct VerifiedTags {
    tags: Mutex<Vec<(CredentialsTag, bool)>>,
    remote: Remote,
    key: Key,
}

impl VerifierPool {
    /// A pool without threads.
    pub(crate) fn new(users: Users, key: TagKey) -> VerifierPool {
        let (state, not_empty) = (Mutex::default(), Condvar::new());
        VerifierPool(Arc::new(VerifierQueue { users, key, state, not_empty }))
    }

    pub(crate) fn users(&self) -> &Users {
        &self.0.users
    }

    pub(crate) fn key(&self) -> &TagKey {
        &self.0.key
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// `EAGAIN` if the process or the user has too many threads.
    pub(crate) fn start(&self) -> io::Result<()> {
        for number in 0..THREADS {
            let queue = Arc::clone(&self.0);
            start_thread(format!("verifier {number}"), move || {
                // On Linux the nice value is the thread's own. If it cannot be set, the thread works as others do.
                let _ = rustix::process::setpriority_process(None, NICE);
                while let Some(job) = queue.take() {
                    let is_right = queue.users.verify(&job.credentials, &queue.key);
                    job.results.post(job.tag, is_right);
                }
            })?;
        }
        Ok(())
    }

    /// Has a thread verify credentials. `false`: too many wait already.
    pub(crate) fn push(&self, job: VerifierJob) -> bool {
        let mut state = lock(&self.0.state);
        if state.jobs.len() >= QUEUED_MOST {
            return false;
        }
        state.jobs.push_back(job);
        drop(state);
        self.0.not_empty.notify_one();
        true
    }
}

impl Drop for VerifierPool {
    /// Does not wait for the threads: each ends after the password that it is at.
    fn drop(&mut self) {
        lock(&self.0.state).closed = true;
        self.0.not_empty.notify_all();
    }
}

impl fmt::Debug for VerifierPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerifierPool")
    }
}

impl VerifierQueue {
    fn take(&self) -> Option<VerifierJob> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            state = self.not_empty.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl VerifiedTags {
    /// Results for the worker that `remote` reaches. Its coroutine `key` takes them.
    pub(crate) fn new(remote: Remote, key: Key) -> Arc<VerifiedTags> {
        Arc::new(VerifiedTags { tags: Mutex::default(), remote, key })
    }

    /// Whether there is nothing to take.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.tags).is_empty()
    }

    /// Takes all results that have come since the last call, each with whether the password is right.
    pub(crate) fn take(&self) -> Vec<(CredentialsTag, bool)> {
        std::mem::take(&mut lock(&self.tags))
    }

    fn post(&self, tag: CredentialsTag, is_right: bool) {
        lock(&self.tags).push((tag, is_right));
        // It fails only when the worker has ended.
        let _ = self.remote.wake(self.key);
    }
}

/// Locks a mutex, also after a panic: every change behind it is one push or pop.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

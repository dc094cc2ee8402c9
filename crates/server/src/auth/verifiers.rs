//! Threads that verify passwords: that takes tens of milliseconds on purpose, and no worker waits for it.
//!
//! All workers of a process ask one pool. It remembers users whose passwords were right, verifies what several ask for once, and
//! takes those who ask in turn, so that who tries many passwords waits behind others.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use drover_mech::Key;
use drover_mech::net::Remote;
use drover_sys::process::start_thread;
use tracing::warn;

use crate::auth::credentials::{Credentials, CredentialsTag, TagKey};
use crate::auth::fair_queue::{FairQueue, QueueClient};
use crate::auth::remembered::RememberedUsers;
use crate::auth::users::Users;

/// How many passwords are verified at a time in a process.
pub(super) const THREADS: usize = 2;

/// How many wait for that; at a few ten milliseconds each, those at the end wait a second or two.
const QUEUED_MOST: usize = 64;

/// For how long credentials count as verified after their last use.
const REMEMBERED_FOR: Duration = Duration::from_secs(5 * 60);

/// How many verified credentials are remembered.
pub(super) const REMEMBERED_MOST: usize = 1024;

/// The nice value of the threads (setpriority(2)): where processors are short, files come first.
const NICE: i32 = 10;

/// The threads of a process, and their queue. They end when it is dropped.
pub(crate) struct VerifierPool(Arc<VerifierQueue>);

struct VerifierQueue {
    users: Users,
    key: TagKey,
    state: Mutex<QueueState>,
    not_empty: Condvar,
    /// Whether it was told that a password was too long for bcrypt.
    has_told_of_cut: AtomicBool,
}

struct QueueState {
    waiting: FairQueue<VerifierJob>,
    /// What the threads are at.
    running: Vec<(CredentialsTag, Askers)>,
    remembered: RememberedUsers<Box<[u8]>>,
    closed: bool,
}

/// Credentials to be verified, and the workers that have asked for it.
struct VerifierJob {
    credentials: Credentials,
    tag: CredentialsTag,
    askers: Askers,
}

type Askers = Vec<Arc<VerifiedTags>>;

/// What has become of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PasswordVerdict {
    Right,
    Wrong,
    /// They were not verified: others had to have their turn, or memory is short.
    Unverified,
}

/// What a worker is told that asks for credentials to be verified.
pub(super) enum AskOutcome {
    /// They are right: somebody has found that out already.
    Right(Rc<[u8]>),
    /// The result comes in the worker's [`VerifiedTags`].
    Pending,
    /// Too many wait already.
    TooMany,
}

/// The results for one worker that it has not taken yet.
pub(crate) struct VerifiedTags {
    tags: Mutex<Vec<(CredentialsTag, PasswordVerdict)>>,
    remote: Remote,
    key: Key,
}

impl VerifierPool {
    /// A pool without threads.
    pub(crate) fn new(users: Users, key: TagKey) -> VerifierPool {
        let state = QueueState {
            waiting: FairQueue::new(QUEUED_MOST),
            running: Vec::new(),
            remembered: RememberedUsers::new(REMEMBERED_MOST, REMEMBERED_FOR),
            closed: false,
        };
        let (state, not_empty) = (Mutex::new(state), Condvar::new());
        let has_told_of_cut = AtomicBool::new(false);
        VerifierPool(Arc::new(VerifierQueue { users, key, state, not_empty, has_told_of_cut }))
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
                while let Some((credentials, tag)) = queue.take() {
                    let verdict = queue.verify(&credentials);
                    queue.finish(&credentials, &tag, verdict);
                }
            })?;
        }
        Ok(())
    }

    /// The user with these credentials, if they are remembered as right. Whoever asks uses them.
    pub(super) fn recall(&self, tag: &CredentialsTag, now: Instant) -> Option<Rc<[u8]>> {
        lock(&self.0.state).remembered.use_of(tag, now).map(|name| Rc::from(&**name))
    }

    /// Has a thread verify credentials that a client has sent, and post the result to the worker that asks.
    pub(super) fn ask(
        &self,
        client: QueueClient,
        (credentials, tag): (Credentials, CredentialsTag),
        asker: &Arc<VerifiedTags>,
        now: Instant,
    ) -> AskOutcome {
        let name = self.key().tag(credentials.name()).prefix();
        let state = &mut *lock(&self.0.state);
        if let Some(name) = state.remembered.use_of(&tag, now) {
            return AskOutcome::Right(Rc::from(&**name));
        }
        if let Some(askers) = state.askers_of(&tag) {
            askers.push(Arc::clone(asker));
            return AskOutcome::Pending;
        }
        let job = VerifierJob { credentials, tag, askers: vec![Arc::clone(asker)] };
        match state.waiting.push(client, name, job) {
            Err(_) => return AskOutcome::TooMany,
            Ok(displaced) => displaced.iter().for_each(|job| job.tell(PasswordVerdict::Unverified)),
        }
        self.0.not_empty.notify_one();
        AskOutcome::Pending
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

impl QueueState {
    /// The workers that wait for credentials which are verified now, or are going to be.
    fn askers_of(&mut self, tag: &CredentialsTag) -> Option<&mut Askers> {
        let running = self.running.iter_mut().map(|(other, askers)| (&*other, askers));
        let waiting = self.waiting.iter_mut().map(|job| (&job.tag, &mut job.askers));
        running.chain(waiting).find(|(other, _)| other.is(tag)).map(|(_, askers)| askers)
    }
}

impl VerifierJob {
    fn tell(&self, verdict: PasswordVerdict) {
        self.askers.iter().for_each(|asker| asker.post(self.tag, verdict));
    }
}

impl VerifierQueue {
    /// Waits for the credentials that are next; `None`: the pool is gone.
    fn take(&self) -> Option<(Credentials, CredentialsTag)> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if let Some(VerifierJob { credentials, tag, askers }) = state.waiting.pop() {
                state.running.push((tag, askers));
                return Some((credentials, tag));
            }
            state = self.not_empty.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn verify(&self, credentials: &Credentials) -> PasswordVerdict {
        if self.users.would_cut(credentials) && !self.has_told_of_cut.swap(true, Ordering::Relaxed)
        {
            warn!(
                "a user has sent a password that has more than 72 bytes, or a NUL: bcrypt cannot take it, so it is wrong; \
                 store it with argon2 (further ones are not logged)"
            );
        }
        match self.users.verify(credentials) {
            Ok(true) => PasswordVerdict::Right,
            Ok(false) => PasswordVerdict::Wrong,
            Err(_) => PasswordVerdict::Unverified,
        }
    }

    /// Remembers credentials that are right, and posts the verdict to those who have asked.
    fn finish(&self, credentials: &Credentials, tag: &CredentialsTag, verdict: PasswordVerdict) {
        let mut state = lock(&self.state);
        if verdict == PasswordVerdict::Right {
            state.remembered.remember(*tag, credentials.name().into(), Instant::now());
        }
        let place = state.running.iter().position(|(other, _)| other.is(tag));
        let askers = place.map(|place| state.running.swap_remove(place).1);
        drop(state);
        askers.iter().flatten().for_each(|asker| asker.post(*tag, verdict));
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

    /// Takes all results that have come since the last call.
    pub(super) fn take(&self) -> Vec<(CredentialsTag, PasswordVerdict)> {
        std::mem::take(&mut lock(&self.tags))
    }

    fn post(&self, tag: CredentialsTag, verdict: PasswordVerdict) {
        lock(&self.tags).push((tag, verdict));
        // It fails only when the worker has ended.
        let _ = self.remote.wake(self.key);
    }
}

/// Locks a mutex, also after a panic: every change behind it leaves a state that is one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Threads that take jobs from one queue, in the order in which the jobs came.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use drover_sys::process::start_thread;

/// Threads and their queue of jobs. The queue itself has no limit; each user of the pool limits how many
/// jobs it has in the queue.
pub(crate) struct ThreadPool<J> {
    queue: Arc<Queue<J>>,
    threads: Vec<JoinHandle<()>>,
}

struct Queue<J> {
    state: Mutex<State<J>>,
    not_empty: Condvar,
}

struct State<J> {
    jobs: VecDeque<J>,
    closed: bool,
}

impl<J: Send + 'static> ThreadPool<J> {
    /// Starts `threads` threads (at least one) that call `work` with each job. A thread's name is `name`
    /// and a number.
    ///
    /// # Errors
    /// `EAGAIN` if the process or the user has too many threads.
    pub(crate) fn start(threads: usize, name: &str, work: fn(J)) -> io::Result<Arc<ThreadPool<J>>> {
        let state = Mutex::new(State { jobs: VecDeque::new(), closed: false });
        let queue = Arc::new(Queue { state, not_empty: Condvar::new() });
        let mut pool = ThreadPool { queue, threads: Vec::new() };
        for number in 0..threads.max(1) {
            let queue = Arc::clone(&pool.queue);
            pool.threads.push(start_thread(format!("{name} {number}"), move || {
                while let Some(job) = queue.take() {
                    work(job);
                }
            })?);
        }
        Ok(Arc::new(pool))
    }

    /// Puts `job` into the queue.
    pub(crate) fn push(&self, job: J) {
        lock(&self.queue.state).jobs.push_back(job);
        self.queue.not_empty.notify_one();
    }
}

impl<J> ThreadPool<J> {
    /// How many threads there are.
    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }
}

impl<J> Drop for ThreadPool<J> {
    fn drop(&mut self) {
        lock(&self.queue.state).closed = true;
        self.queue.not_empty.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message; the pool ends in any case.
            let _ = thread.join();
        }
    }
}

impl<J> Queue<J> {
    fn take(&self) -> Option<J> {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.not_empty.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Locks a mutex, also after a panic: every change behind it is one push or pop, so the data is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A thread of the process that writes what workers note, so that no worker waits for a disk: for the trace and
//! the access log.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use drover_sys::process::start_thread;
use tracing::warn;

/// The thread, and how workers reach it. `T` is a batch of what one worker has noted.
#[derive(Debug)]
pub(crate) struct LineWriter<T> {
    /// The flag and its file, for messages.
    name: String,
    /// `None`: the thread has ended.
    running: Mutex<Option<(Sink<T>, JoinHandle<()>)>>,
}

/// Where a worker's batches go.
#[derive(Debug)]
pub(crate) struct Sink<T> {
    sender: SyncSender<T>,
    lost: Arc<AtomicU64>,
}

impl<T> Clone for Sink<T> {
    fn clone(&self) -> Sink<T> {
        Sink { sender: self.sender.clone(), lost: Arc::clone(&self.lost) }
    }
}

impl<T: Send + 'static> LineWriter<T> {
    /// Starts the thread, which calls `write_all`. That returns when the last sink is gone, or when the file takes
    /// no more. At most `waiting_most` batches wait for the disk; further ones are lost, and counted.
    ///
    /// # Errors
    /// `EAGAIN` when the process or the user has too many threads.
    pub(crate) fn start(
        thread: &str,
        name: String,
        waiting_most: usize,
        write_all: impl FnOnce(&Receiver<T>) + Send + 'static,
    ) -> io::Result<LineWriter<T>> {
        let (sender, batches) = sync_channel(waiting_most);
        let thread = start_thread(thread, move || write_all(&batches))?;
        let sink = Sink { sender, lost: Arc::default() };
        Ok(LineWriter { name, running: Mutex::new(Some((sink, thread))) })
    }

    /// A sink for one more worker.
    ///
    /// # Panics
    /// When the thread has ended.
    pub(crate) fn sink(&self) -> Sink<T> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().expect("no worker begins after the last has ended").0.clone()
    }

    /// Gives the thread a batch of no lines, so that it looks around; nothing if it has ended or has batches to write.
    pub(crate) fn wake(&self, batch: T) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().inspect(|(sink, _)| drop(sink.sender.try_send(batch)));
    }

    /// Waits until all is written. To be called when every worker has ended.
    pub(crate) fn finish(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((sink, thread)) = running else { return };
        let lost = Arc::clone(&sink.lost);
        drop(sink);
        // A thread that panicked has said so.
        let _ = thread.join();
        match lost.load(Ordering::Relaxed) {
            0 => {}
            lost => {
                warn!("{}: {lost} lines are missing, the disk was too slow for them", self.name)
            }
        }
    }
}

impl<T> Sink<T> {
    /// Takes a batch of so many lines; `false`: nobody writes them any more.
    pub(crate) fn take(&self, batch: T, lines: u64) -> bool {
        match self.sender.try_send(batch) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.lost.fetch_add(lines, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

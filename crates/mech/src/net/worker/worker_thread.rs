//! A worker on a thread of its own, for users that need no more than one coroutine per connection.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::net::{AcceptBatch, Conn, Executor, Listener, Net, NetOptions, Remote};

/// A worker on a thread of its own: it accepts connections, and runs one coroutine for each.
///
/// A worker that needs more than that (services, several listeners, an accept strategy, a word about errors of
/// accept(2)) is made of its parts: [`Net::open`], [`Listener::enter`], [`Executor::run`].
///
/// Dropping the `WorkerThread` stops the worker as [`WorkerThread::stop`] does, but the result is lost.
pub struct WorkerThread {
    remote: Remote,
    /// `None` when the thread has been joined.
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl WorkerThread {
    /// How long connections may take to finish their work after a stop, before they are closed.
    pub const GRACE: Duration = Duration::from_secs(30);

    /// Starts a worker that accepts from `listener`, a listening TCP or unix socket, and runs `serve` for each connection.
    /// `serve` is an `async fn` or a closure `async |conn: Conn<'_>| …`; what the closure has captured is shared by all
    /// connections of the worker. A connection is closed when its coroutine ends.
    ///
    /// When the call returns, the worker accepts. An accept that fails for want of descriptors or memory is tried again
    /// every 50 ms.
    ///
    /// # Errors
    /// Errors of [`Net::open`] and of [`Listener::open`]; `EAGAIN` if there can be no more threads.
    pub fn start<S>(
        options: NetOptions,
        listener: impl Into<OwnedFd>,
        serve: S,
    ) -> io::Result<WorkerThread>
    where
        S: AsyncFn(Conn<'_>) + Send + 'static,
    {
        let socket: OwnedFd = listener.into();
        rustix::io::ioctl_fionbio(&socket, true)?;
        let (ready, started) = sync_channel(1);
        let name = format!("worker {}", options.mechanism.name);
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || run(&options, socket, &serve, ready))?;
        match started.recv() {
            Ok(remote) => Ok(WorkerThread { remote, thread: Some(thread) }),
            // The worker could not start: its thread has the reason.
            Err(_) => Err(joined(thread).err().unwrap_or_else(|| io::ErrorKind::Other.into())),
        }
    }

    /// The handle by which any thread can stop the worker or resume one of its coroutines.
    #[must_use]
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// Stops the worker gracefully ([`Net::stop`]), and waits for its end: until all connections have ended, or
    /// [`WorkerThread::GRACE`] is over.
    ///
    /// # Errors
    /// The error that has ended the worker before the stop: of the mechanism's wait, or of the listening socket.
    ///
    /// # Panics
    /// If a coroutine has panicked, with its panic.
    pub fn stop(self) -> io::Result<()> {
        // It fails only for a worker that has ended; then the result of its thread says why.
        let _ended = self.remote.stop();
        self.join()
    }

    /// Waits for the end of the worker, which somebody else asks for by [`WorkerThread::remote`].
    ///
    /// # Errors
    /// Errors of [`WorkerThread::stop`].
    ///
    /// # Panics
    /// If a coroutine has panicked, with its panic.
    pub fn join(mut self) -> io::Result<()> {
        self.thread.take().map_or(Ok(()), joined)
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ended = self.remote.stop();
            let _lost = thread.join();
        }
    }
}

impl fmt::Debug for WorkerThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerThread").field("thread", &self.thread).finish_non_exhaustive()
    }
}

/// The result of a worker's thread.
fn joined(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs a worker on the calling thread. `ready` gets the worker's handle when the worker accepts.
fn run<S: AsyncFn(Conn<'_>)>(
    options: &NetOptions,
    socket: OwnedFd,
    serve: &S,
    ready: SyncSender<Remote>,
) -> io::Result<()> {
    let net = Net::open(options)?;
    let failure = Cell::new(None);
    let mut executor = Executor::new(&net, WorkerThread::GRACE);
    executor.listen(Listener::open(&net, socket)?, |listener| async {
        if let Err(error) = listener.run(AcceptBatch::All, |_| false).await {
            // A worker that accepts nothing any more must not go on in silence.
            failure.set(Some(error));
            net.stop();
        }
    });
    // The receiver waits until this handle comes.
    let _sent = ready.send(net.remote());
    executor.run(|conn| serve(conn))?;
    failure.take().map_or(Ok(()), Err)
}

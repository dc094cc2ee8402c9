//! The server that hands over: it waits for the next one, and tells the thread that keeps its workers what to do.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Context, bail};
use drover_sys::message_socket::MessageSocket;
use drover_sys::process::start_thread;
use drover_sys::waker::Waker;
use rustix::event::{PollFd, PollFlags, poll};
use tracing::{info, warn};

use super::PATIENCE;
use super::messages::{PROTOCOL, TakeOverMessage, send_sockets};
use crate::config::Config;

/// How long to wait before a connection is accepted again that could not be, for want of descriptors.
const PAUSE: Duration = Duration::from_secs(1);

/// What the thread that keeps the workers is to do.
#[derive(Debug)]
pub(crate) enum HandOverStep {
    /// To offer its sockets, and to change nothing until a later step. If the sender is dropped, the server refuses.
    Offer(Sender<Offer>),
    /// To have its workers accept no more connections, and to say when they do not.
    Leave(Sender<()>),
    /// To leave new connections to the server of this process, and to end with the last connection.
    Finish(u32),
    /// To go on as before.
    Resume,
}

/// What a server offers to the next one.
#[derive(Debug)]
pub(crate) struct Offer {
    dispatch: &'static str,
    accept: &'static str,
    sockets: Vec<Arc<OwnedFd>>,
}

impl Offer {
    /// The `sockets` of a server whose workers are of `config`.
    pub(crate) fn of(config: &Config, sockets: Vec<Arc<OwnedFd>>) -> Offer {
        Offer { dispatch: config.mechanism.name, accept: config.accept.name, sockets }
    }
}

/// How far a server is with handing over.
#[derive(Debug)]
pub(crate) enum HandOverState<C> {
    /// No other server asks.
    Not,
    /// Another server has been offered the sockets. With what workers to go on with are made of, if the workers have left
    /// them.
    UnderWay(Option<C>),
    /// Another server has the sockets.
    Done,
}

impl<C> HandOverState<C> {
    /// Ends it without another server: what workers to go on with are made of, if there are to be others.
    pub(crate) fn resume(&mut self) -> Option<C> {
        match std::mem::replace(self, HandOverState::Not) {
            HandOverState::UnderWay(left) => left,
            HandOverState::Not | HandOverState::Done => None,
        }
    }

    /// Whether the server may neither reload its configuration nor end.
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self, HandOverState::UnderWay(_))
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self, HandOverState::Done)
    }
}

/// The thread that waits for the next server. Dropping this ends the thread, unless another server is just asking.
#[derive(Debug)]
pub(crate) struct HandOverListener {
    waker: Arc<Waker>,
}

impl HandOverListener {
    /// Starts the thread. `tell` passes a step on; it returns `false` if the server has ended.
    ///
    /// # Errors
    /// No more descriptors or threads.
    pub(crate) fn start(
        control: MessageSocket,
        tell: impl Fn(HandOverStep) -> bool + Send + 'static,
    ) -> anyhow::Result<HandOverListener> {
        let waker = Arc::new(Waker::eventfd().context("--take-over")?);
        let end = Arc::clone(&waker);
        let work = move || {
            while let Some(connection) = next(&control, &end) {
                match hand_over(&control, &connection, &tell) {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(reason) => warn!("--take-over: {reason:#}; serving as before"),
                }
            }
        };
        start_thread("take-over", work).context("--take-over")?;
        Ok(HandOverListener { waker })
    }
}

impl Drop for HandOverListener {
    fn drop(&mut self) {
        // A write to an eventfd does not fail.
        let _woken = self.waker.wake();
    }
}

/// The next connection to `control`; `None`: there is to be an end.
fn next(control: &MessageSocket, end: &Waker) -> Option<MessageSocket> {
    loop {
        let mut ready = vec![PollFd::new(control, PollFlags::IN)];
        ready.extend(end.as_eventfd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match poll(&mut ready, None) {
            Ok(_) if ready.iter().skip(1).any(|end| !end.revents().is_empty()) => return None,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                warn!("--take-over waits no longer: {error}");
                return None;
            }
        }
        if ready[0].revents().is_empty() {
            continue;
        }
        match control.accept() {
            Ok(connection) => return Some(connection),
            Err(error) => {
                warn!("--take-over: {error}");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Speaks with the server that has connected. Returns whether it has taken over.
fn hand_over(
    control: &MessageSocket,
    connection: &MessageSocket,
    tell: &impl Fn(HandOverStep) -> bool,
) -> anyhow::Result<bool> {
    let user = connection.peer_user()?;
    if !may_take_over(user) {
        let reason = "only root and the user of the server that runs may take over from it";
        TakeOverMessage::refused(reason).send(connection, None)?;
        bail!("a process of user {user} was refused");
    }
    connection.set_patience(PATIENCE)?;
    let (offer, offered) = channel();
    tell(HandOverStep::Offer(offer));
    let Ok(Offer { dispatch, accept, sockets }) = offered.recv() else {
        TakeOverMessage::refused("it stops").send(connection, None)?;
        return Ok(false);
    };
    let taken = (|| {
        let offer = TakeOverMessage::Offer {
            protocol: PROTOCOL,
            process: std::process::id(),
            dispatch: dispatch.to_owned(),
            accept: accept.to_owned(),
            sockets: sockets.len(),
        };
        offer.send(connection, Some(control.as_fd()))?;
        send_sockets(connection, &sockets)?;
        until_serving(connection, tell)
    })();
    match taken {
        Ok(process) => tell(HandOverStep::Finish(process)),
        Err(_) => tell(HandOverStep::Resume),
    };
    taken.context("another server could not take over").map(|_| true)
}

/// Does what the successor asks for, until it serves. Returns its process.
fn until_serving(
    connection: &MessageSocket,
    tell: &impl Fn(HandOverStep) -> bool,
) -> anyhow::Result<u32> {
    loop {
        match TakeOverMessage::receive(connection)? {
            Some((TakeOverMessage::Serving { process }, _)) => return Ok(process),
            Some((TakeOverMessage::Leave, _)) => {
                let (left, has_left) = channel();
                tell(HandOverStep::Leave(left));
                has_left.recv().context("this server stops")?;
                TakeOverMessage::Left.send(connection, None)?;
            }
            Some((other, _)) => bail!("it has sent {other:?}"),
            None => bail!("it has ended before it served"),
        }
    }
}

/// Whether a process of this user may take over from one of ours, or we from it.
pub(super) fn may_take_over(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Logs that process `successor` has the sockets now.
pub(crate) fn tell_handed_over(successor: u32) {
    info!("process {successor} has taken over; this one ends with its last connection");
}

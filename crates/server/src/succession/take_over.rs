//! The server that takes over: what it gets from the one that runs, and when it tells that it serves.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use drover_mech::accept::{self, Strategy};
use drover_mech::mechanisms::{self, Mechanism};
use drover_sys::message_socket::MessageSocket;
use tracing::info;

use super::PATIENCE;
use super::hand_over::may_take_over;
use super::messages::{PROTOCOL, TakeOverMessage, receive_sockets};
use crate::config::Config;

/// What a server has at the path of `--take-over` before it serves; nothing without that flag.
pub(crate) struct TakeOver {
    path: PathBuf,
    /// Where the next server will ask.
    control: Option<MessageSocket>,
    /// The server that runs.
    predecessor: Option<Predecessor>,
}

struct Predecessor {
    connection: MessageSocket,
    process: u32,
    sockets: Vec<Arc<OwnedFd>>,
    /// `None`: this program does not know them.
    mechanism_and_strategy: Option<(&'static Mechanism, &'static Strategy)>,
}

impl TakeOver {
    /// For a server of `config`: connects to the server that listens at the path of `--take-over`, or listens there if
    /// there is none.
    ///
    /// # Errors
    /// The path cannot be used, or the server there does not hand over.
    pub(crate) fn of(config: &Config) -> anyhow::Result<TakeOver> {
        match &config.take_over {
            Some(path) => {
                TakeOver::at(path).with_context(|| format!("--take-over {}", path.display()))
            }
            None => Ok(TakeOver { path: PathBuf::new(), control: None, predecessor: None }),
        }
    }

    fn at(path: &Path) -> anyhow::Result<TakeOver> {
        let path = path.to_owned();
        let Some(connection) = MessageSocket::connect(&path)? else {
            let control = MessageSocket::listen(&path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    anyhow!("there is a file of that name that is no socket; name another path")
                }
                _ => error.into(),
            })?;
            return Ok(TakeOver { path, control: Some(control), predecessor: None });
        };
        let (predecessor, control) = Predecessor::greet(connection)?;
        let from = predecessor.process;
        info!("taking over from process {from}: {} sockets", predecessor.sockets.len());
        Ok(TakeOver { path, control: Some(control), predecessor: Some(predecessor) })
    }

    /// The sockets that the server before listens with. It has left them if its workers and those of `config` cannot
    /// accept from the same socket at a time.
    ///
    /// # Errors
    /// That server does not answer.
    pub(crate) fn sockets(&self, config: &Config) -> anyhow::Result<Vec<Arc<OwnedFd>>> {
        let Some(predecessor) = &self.predecessor else { return Ok(Vec::new()) };
        let own = (config.mechanism, config.accept);
        let can_share = |theirs| accept::can_share(theirs, own);
        if !predecessor.mechanism_and_strategy.is_some_and(can_share) {
            predecessor.leave().with_context(|| self.of_process(predecessor))?;
        }
        Ok(predecessor.sockets.clone())
    }

    /// Tells the server before that this one accepts connections. Returns the socket for the next server.
    ///
    /// # Errors
    /// The server before has lost patience, and goes on itself.
    pub(crate) fn finish(self) -> anyhow::Result<Option<MessageSocket>> {
        if let Some(predecessor) = &self.predecessor {
            let serving = TakeOverMessage::Serving { process: std::process::id() };
            serving.send(&predecessor.connection, None).with_context(|| {
                let of_process = self.of_process(predecessor);
                format!(
                    "{of_process}: it serves on, since this server was not ready in {PATIENCE:?}"
                )
            })?;
        }
        Ok(self.control)
    }

    fn of_process(&self, predecessor: &Predecessor) -> String {
        format!("--take-over {}, from process {}", self.path.display(), predecessor.process)
    }
}

impl Predecessor {
    /// What the server at the other end of `connection` offers, and the socket that it listens at for successors.
    fn greet(connection: MessageSocket) -> anyhow::Result<(Predecessor, MessageSocket)> {
        let user = connection.peer_user()?;
        if !may_take_over(user) {
            bail!("the server there is another user's, with id {user}; name another path");
        }
        connection.set_patience(PATIENCE)?;
        let Some((offer, descriptors)) = TakeOverMessage::receive(&connection)? else {
            bail!("the server there has ended meanwhile; start again");
        };
        let (process, dispatch, accept, count) = match offer {
            TakeOverMessage::Refused(reason) => bail!("the server there refuses: {reason}"),
            TakeOverMessage::Offer { protocol, process, dispatch, accept, sockets }
                if protocol == PROTOCOL =>
            {
                (process, dispatch, accept, sockets)
            }
            _ => bail!("the server there is of another version; stop it, then start this one"),
        };
        let control = descriptors.into_iter().next().context("it has sent no socket")?;
        let sockets = receive_sockets(&connection, count)?;
        let known = mechanisms::by_name(&dispatch).zip(accept::by_name(&accept));
        let predecessor =
            Predecessor { connection, process, sockets, mechanism_and_strategy: known };
        Ok((predecessor, control.into()))
    }

    /// Has it accept no more connections.
    fn leave(&self) -> anyhow::Result<()> {
        TakeOverMessage::Leave.send(&self.connection, None)?;
        match TakeOverMessage::receive(&self.connection)? {
            Some((TakeOverMessage::Left, _)) => Ok(()),
            _ => bail!("it has ended meanwhile; start again"),
        }
    }
}

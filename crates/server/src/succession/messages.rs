//! What two servers tell each other when one takes over from the other.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use anyhow::bail;
use drover_sys::message_socket::{DESCRIPTORS_MOST, MessageSocket};
use serde::{Deserialize, Serialize};

use crate::json_messages::{self, short};

/// Servers of different numbers do not understand each other.
pub(super) const PROTOCOL: u32 = 1;

/// A message, as JSON. Some carry descriptors.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(super) enum TakeOverMessage {
    /// The predecessor tells what it is and how many sockets it has; with the socket at which it listens for successors.
    Offer { protocol: u32, process: u32, dispatch: String, accept: String, sockets: usize },
    /// The predecessor sends some of its sockets.
    Sockets,
    /// The predecessor serves on, for a reason.
    Refused(String),
    /// The successor asks the predecessor to accept no more connections.
    Leave,
    /// The predecessor accepts no more connections.
    Left,
    /// The successor accepts connections.
    Serving { process: u32 },
}

impl TakeOverMessage {
    /// The message for a reason that may be long.
    pub(super) fn refused(reason: &str) -> TakeOverMessage {
        TakeOverMessage::Refused(short(reason))
    }

    /// Sends the message with one descriptor, or none.
    pub(super) fn send(
        &self,
        to: &MessageSocket,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        json_messages::send(to, self, descriptor.as_slice())
    }

    /// The next message with its descriptors; `None`: the other end is closed.
    ///
    /// # Errors
    /// Nothing comes in time, or it is no message of this protocol.
    pub(super) fn receive(
        from: &MessageSocket,
    ) -> anyhow::Result<Option<(TakeOverMessage, Vec<OwnedFd>)>> {
        json_messages::receive(from)
    }
}

/// Sends sockets, in as many messages as they need.
pub(super) fn send_sockets(to: &MessageSocket, sockets: &[Arc<OwnedFd>]) -> io::Result<()> {
    let message = serde_json::to_vec(&TakeOverMessage::Sockets)?;
    for some in sockets.chunks(DESCRIPTORS_MOST) {
        let descriptors: Vec<_> = some.iter().map(|socket| socket.as_fd()).collect();
        to.send(&message, &descriptors)?;
    }
    Ok(())
}

/// The next `count` sockets.
pub(super) fn receive_sockets(
    from: &MessageSocket,
    count: usize,
) -> anyhow::Result<Vec<Arc<OwnedFd>>> {
    let mut sockets = Vec::new();
    while sockets.len() < count {
        match TakeOverMessage::receive(from)? {
            Some((TakeOverMessage::Sockets, some)) if !some.is_empty() => {
                sockets.extend(some.into_iter().map(Arc::new));
            }
            _ => bail!("it has sent {} sockets of {count}", sockets.len()),
        }
    }
    Ok(sockets)
}

/// What a message says, sent once more; `None`: it is no message of this protocol.
#[cfg(fuzzing)]
pub(crate) fn sent_again(message: &[u8]) -> Option<Vec<u8>> {
    let (one, other) = MessageSocket::pair().expect("there are descriptors");
    one.send(message, &[]).ok()?;
    drop(one);
    let (message, _) = TakeOverMessage::receive(&other).ok()??;
    serde_json::to_vec(&message).ok()
}

/// The message for a reason that may be long.
#[cfg(fuzzing)]
pub(crate) fn refusal(reason: &str) -> Vec<u8> {
    serde_json::to_vec(&TakeOverMessage::refused(reason)).expect("a message is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_reason_fits_a_message() {
        for character in ['a', '"', '\u{1}', '😀'] {
            let refused = TakeOverMessage::refused(&character.to_string().repeat(10_000));
            assert!(serde_json::to_vec(&refused).unwrap().len() <= json_messages::LONGEST);
        }
    }

    #[test]
    fn more_sockets_than_a_message_takes_arrive_in_several() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listening = MessageSocket::listen(&path).unwrap();
        let one = MessageSocket::connect(&path).unwrap().unwrap();
        let other = listening.accept().unwrap();
        let socket = Arc::new(std::net::TcpListener::bind("127.0.0.1:0").unwrap().into());
        send_sockets(&one, &vec![socket; DESCRIPTORS_MOST + 1]).unwrap();
        drop(one);
        let all = receive_sockets(&other, DESCRIPTORS_MOST + 1).unwrap();
        assert_eq!(all.len(), DESCRIPTORS_MOST + 1);
        let error = format!("{:#}", receive_sockets(&other, 1).unwrap_err());
        assert!(error.contains("0 sockets of 1"), "{error}");
    }
}

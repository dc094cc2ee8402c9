//! Messages between processes of servers: JSON over a [`MessageSocket`], with descriptors.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use anyhow::Context;
use drover_sys::message_socket::MessageSocket;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Room for a message, in bytes.
pub(crate) const LONGEST: usize = 16 * 1024;

/// How much of a reason is sent, in characters; as UTF-8 in JSON it fits a message.
const REASON_MOST: usize = 500;

/// As much of a reason as a message takes.
pub(crate) fn short(reason: &str) -> String {
    reason.chars().take(REASON_MOST).collect()
}

/// Sends a message.
///
/// # Errors
/// Those of [`MessageSocket::send`].
pub(crate) fn send(
    to: &MessageSocket,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    to.send(&serde_json::to_vec(message)?, descriptors)
}

/// The next message with its descriptors; `None`: the other end is closed.
///
/// # Errors
/// Nothing comes in time, or it is no message of this protocol.
pub(crate) fn receive<M: DeserializeOwned>(
    from: &MessageSocket,
) -> anyhow::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut room = [0; LONGEST];
    let (len, descriptors) = match from.receive(&mut room) {
        // The other process was killed with messages unread.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        received => received?,
    };
    if len == 0 {
        return Ok(None);
    }
    let message = read(&room[..len]).context("it speaks another protocol")?;
    Ok(Some((message, descriptors)))
}

/// The message that these bytes are. JSON is text (RFC 8259 section 8.1): serde_json would look at no more than the fields that
/// are read, so that the bytes of another field could be anything.
fn read<M: DeserializeOwned>(bytes: &[u8]) -> anyhow::Result<M> {
    Ok(serde_json::from_str(std::str::from_utf8(bytes)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Message {
        process: u32,
    }

    #[test]
    fn a_message_is_text_also_where_nothing_is_read() {
        let text = "{\"process\":42,\"later\":\"a\u{e9}\"}".as_bytes();
        assert_eq!(read::<Message>(text).unwrap().process, 42);
        let bytes: Vec<u8> = text.iter().copied().filter(|byte| *byte != 0xc3).collect();
        read::<Message>(&bytes).unwrap_err();
    }
}

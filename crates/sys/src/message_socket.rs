//! Unix sockets whose messages keep their bounds and carry descriptors: unix(7), `SOCK_SEQPACKET`.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::unix_listener::UnixListener;

/// The most descriptors of one message: `SCM_MAX_FD` (unix(7)).
pub const DESCRIPTORS_MOST: usize = 253;

/// One end of a connection, or a socket that waits for connections.
#[derive(Debug)]
pub struct MessageSocket(OwnedFd);

impl MessageSocket {
    /// A socket that listens at `path`, in place of one at which nobody listens any more. Only the user of this process
    /// and root can connect.
    ///
    /// # Errors
    /// Those of [`UnixListener::listen`].
    pub fn listen(path: &Path) -> io::Result<MessageSocket> {
        let listener = UnixListener { path: path.to_owned(), mode: 0o600 };
        let socket = listener.listen_by(SocketType::SEQPACKET, 4, None)?;
        rustix::io::ioctl_fionbio(&socket, false)?;
        Ok(MessageSocket(socket))
    }

    /// A connection to the socket that listens at `path`; `None`: nobody listens there.
    ///
    /// # Errors
    /// `EACCES`, `EPROTOTYPE` for another kind of socket, and others of connect(2).
    pub fn connect(path: &Path) -> io::Result<Option<MessageSocket>> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
            Ok(()) => Ok(Some(MessageSocket(socket))),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The two ends of a connection, for a process and one that it starts.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub fn pair() -> io::Result<(MessageSocket, MessageSocket)> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((MessageSocket(one), MessageSocket(other)))
    }

    /// Waits for the next connection to a socket that listens.
    ///
    /// # Errors
    /// `EMFILE`, and others of accept(2).
    pub fn accept(&self) -> io::Result<MessageSocket> {
        loop {
            match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC) {
                Ok(socket) => return Ok(MessageSocket(socket)),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The user of the process at the other end, as it was when it connected or began to listen (`SO_PEERCRED`).
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn peer_user(&self) -> io::Result<u32> {
        Ok(getsockopt(&self.0, PeerCredentials)?.uid())
    }

    /// Has [`MessageSocket::receive`] wait no longer than this.
    ///
    /// # Errors
    /// `EDOM` for centuries.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.0, Timeout::Recv, Some(patience))?)
    }

    /// Sends a message with at most [`DESCRIPTORS_MOST`] descriptors.
    ///
    /// # Errors
    /// `EPIPE` if the other end is closed; `ETOOMANYREFS` if this user has more descriptors under way than a process may
    /// have open; `InvalidInput` for too many.
    pub fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_as(message, descriptors, SendFlags::NOSIGNAL)
    }

    /// As [`MessageSocket::send`], and fails in place of waiting until the other end has read earlier messages.
    ///
    /// # Errors
    /// `WouldBlock`, and those of [`MessageSocket::send`].
    pub fn try_send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_as(message, descriptors, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn send_as(
        &self,
        message: &[u8],
        descriptors: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MOST))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        rustix::net::sendmsg(&self.0, &[IoSlice::new(message)], &mut control, flags)?;
        Ok(())
    }

    /// Sends nothing more: the other end receives what was sent before, and then the end.
    pub fn end_sending(&self) {
        // It fails if the other end is closed.
        let _closed = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write);
    }

    /// Waits for the next message, which is written to the beginning of `room`: its length and its descriptors. A length
    /// of 0: the other end is closed.
    ///
    /// # Errors
    /// `EAGAIN` after [`MessageSocket::set_patience`]; `InvalidData` if the message is longer than `room`, or this process
    /// may have no more descriptors.
    pub fn receive(&self, room: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MOST))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut *room)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            match rustix::net::recvmsg(&self.0, &mut parts, &mut control, flags) {
                Err(Errno::INTR) => {}
                received => break received?,
            }
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(all) = message {
                descriptors.extend(all);
            }
        }
        let cut = rustix::net::ReturnFlags::TRUNC | rustix::net::ReturnFlags::CTRUNC;
        match received.flags.intersects(cut) {
            true => Err(io::ErrorKind::InvalidData.into()),
            false => Ok((received.bytes, descriptors)),
        }
    }
}

impl AsFd for MessageSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for MessageSocket {
    fn from(socket: OwnedFd) -> MessageSocket {
        MessageSocket(socket)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn messages_arrive_whole_with_their_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listening = MessageSocket::listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let one = MessageSocket::connect(&path).unwrap().unwrap();
        let other = listening.accept().unwrap();
        assert_eq!(other.peer_user().unwrap(), rustix::process::geteuid().as_raw());

        let file = tempfile::tempfile().unwrap();
        let all = vec![file.as_fd(); DESCRIPTORS_MOST];
        one.send(b"first", &all).unwrap();
        one.send(b"second", &[]).unwrap();
        assert!(one.send(b"third", &[all, vec![file.as_fd()]].concat()).is_err());
        drop(one);
        let mut room = [0; 6];
        let (len, descriptors) = other.receive(&mut room).unwrap();
        assert_eq!((&room[..len], descriptors.len()), (&b"first"[..], DESCRIPTORS_MOST));
        let same = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        assert!(descriptors.iter().all(|it| same(it) == file.metadata().unwrap().ino()));
        let (len, descriptors) = other.receive(&mut room).unwrap();
        assert_eq!((&room[..len], descriptors.len()), (&b"second"[..], 0));
        assert_eq!(other.receive(&mut room).unwrap().0, 0);
    }

    #[test]
    fn the_ends_of_a_pair_hear_each_other_and_of_an_end() {
        let (one, other) = MessageSocket::pair().unwrap();
        one.send(b"there", &[]).unwrap();
        other.send(b"and back", &[]).unwrap();
        let mut room = [0; 16];
        assert_eq!(other.receive(&mut room).unwrap().0, 5);
        assert_eq!(one.receive(&mut room).unwrap().0, 8);
        drop(other);
        assert_eq!(one.receive(&mut room).unwrap().0, 0);
    }

    #[test]
    fn a_message_that_does_not_come_or_does_not_fit_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listening = MessageSocket::listen(&path).unwrap();
        let one = MessageSocket::connect(&path).unwrap().unwrap();
        let other = listening.accept().unwrap();
        other.set_patience(Duration::from_millis(1)).unwrap();
        assert_eq!(other.receive(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        one.send(b"longer than that", &[]).unwrap();
        assert_eq!(other.receive(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(other);
        assert_eq!(one.send(b"more", &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_socket_that_nobody_listens_at_is_replaced_and_a_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(MessageSocket::connect(&path).unwrap().is_none());
        drop(MessageSocket::listen(&path).unwrap());
        assert!(MessageSocket::connect(&path).unwrap().is_none());
        let _listening = MessageSocket::listen(&path).unwrap();
        assert!(MessageSocket::connect(&path).unwrap().is_some());
        let file = folder.path().join("file");
        fs::write(&file, "precious").unwrap();
        assert!(MessageSocket::listen(&file).is_err());
        assert_eq!(fs::read(&file).unwrap(), b"precious");
    }
}

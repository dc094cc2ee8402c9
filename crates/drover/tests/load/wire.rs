//! A connection of the scripted server: plain, or with TLS.

use std::io::{self, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::time::TimeSpec;
use rustls::{ServerConfig, ServerConnection};

/// Reads, and notes when the kernel received what was read last (socket(7), SO_TIMESTAMPNS).
struct Stamped<'s> {
    stream: &'s TcpStream,
    reached: Instant,
}

impl Read for Stamped<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut control = nix::cmsg_space!(TimeSpec);
        let mut parts = [IoSliceMut::new(buffer)];
        let (fd, none) = (self.stream.as_raw_fd(), MsgFlags::empty());
        let message = recvmsg::<()>(fd, &mut parts, Some(&mut control), none)?;
        let (now, time) = (Instant::now(), SystemTime::now());
        self.reached = now;
        for part in message.cmsgs()? {
            if let ControlMessageOwned::ScmTimestampns(stamp) = part {
                let stamp = SystemTime::UNIX_EPOCH + Duration::from(stamp);
                self.reached = now - time.duration_since(stamp).unwrap_or_default();
            }
        }
        Ok(message.bytes)
    }
}

impl Write for Stamped<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&mut &*self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection, as the server reads and writes it.
pub(crate) struct Wire<'s> {
    plain: Stamped<'s>,
    tls: Option<Box<ServerConnection>>,
}

impl<'s> Wire<'s> {
    pub(crate) fn new(stream: &'s TcpStream, tls: Option<&Arc<ServerConfig>>) -> Wire<'s> {
        let tls = tls.map(|tls| Box::new(ServerConnection::new(Arc::clone(tls)).unwrap()));
        Wire { plain: Stamped { stream, reached: Instant::now() }, tls }
    }

    /// When the kernel received what was read last.
    pub(crate) fn reached(&self) -> Instant {
        self.plain.reached
    }

    pub(crate) fn stream(&self) -> &'s TcpStream {
        self.plain.stream
    }

    /// Says that nothing more is sent, where TLS can.
    pub(crate) fn say_the_end(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        tls.send_close_notify();
        while tls.wants_write() {
            tls.write_tls(&mut self.plain)?;
        }
        Ok(())
    }
}

impl Read for Wire<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.plain.read(into),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.plain).read(into),
        }
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.plain.write(bytes),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.plain).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.plain).flush(),
        }
    }
}

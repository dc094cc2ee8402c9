//! The same for both sides: records that have come are opened in the connection's input, and plain bytes become records behind
//! what is to be sent.

use std::collections::TryReserveError;
use std::io;

use drover_mech::net::OpenedBytes;
use rustls::Error;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic,
};

/// The longest record that may arrive (RFC 8446 section 5.2, and section 6.2.3 of RFC 5246, which allows longer ones): an input
/// buffer needs as much room behind its plain bytes.
pub const RECORD_MOST: usize = 5 + (16 << 10) + 2048;

/// The most plain bytes of a record.
const PLAIN_MOST: usize = 16 << 10;

/// What a record has beside its plain bytes, at most: header, explicit nonce, content type, authentication tag.
const OVERHEAD_MOST: usize = 5 + 8 + 1 + 16;

/// A server's or a client's connection of rustls.
pub(crate) trait RustlsSide {
    /// What rustls keeps for this side.
    type Data;

    fn is_handshaking(&self) -> bool;

    fn process<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl RustlsSide for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn is_handshaking(&self) -> bool {
        (**self).is_handshaking()
    }

    fn process<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(wire)
    }
}

impl RustlsSide for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn is_handshaking(&self) -> bool {
        (**self).is_handshaking()
    }

    fn process<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(wire)
    }
}

/// One side of a connection, and what it refers to of the bytes that have come.
pub(crate) struct Records<E> {
    pub(crate) end: E,
    /// A copy of records that rustls has opened and still needs: of a message of which a part is missing, behind the handshake. It looks
    /// there at every call, also at one that is to write.
    held: Vec<u8>,
    /// The peer has done something wrong. rustls must not be asked for anything any more: it may look for records that are gone.
    has_failed: bool,
}

impl<E: RustlsSide> Records<E> {
    pub(crate) fn new(end: E) -> Records<E> {
        Records { end, held: Vec::new(), has_failed: false }
    }

    /// Opens the records of `wire`; the plain bytes are left at its front. What the peer is to be sent, of a handshake or an alert, is
    /// appended to `answer`. `scratch` is memory to use again: rustls lends the bytes of a record as long as it has `wire`.
    ///
    /// # Errors
    /// What the peer has done wrong. The alert that names it is in `answer`.
    pub(crate) fn open(
        &mut self,
        wire: &mut [u8],
        answer: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<OpenedBytes, Error> {
        if self.has_failed {
            return Err(Error::General("the connection has failed before".into()));
        }
        // Whatever it is, rustls must not be asked again.
        self.open_records(wire, answer, scratch).inspect_err(|_| self.has_failed = true)
    }

    fn open_records(
        &mut self,
        wire: &mut [u8],
        answer: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<OpenedBytes, Error> {
        let mut opened = OpenedBytes::default();
        loop {
            scratch.clear();
            let UnbufferedStatus { mut discard, state } =
                self.end.process(&mut wire[opened.used..]);
            let has_more = match state {
                Ok(ConnectionState::ReadTraffic(mut records)) => {
                    while let Some(record) = records.next_record() {
                        let record = record?;
                        discard += record.discard;
                        scratch.extend_from_slice(record.payload);
                    }
                    true
                }
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    append(answer, |room| message.encode(room), encoded_size)?;
                    true
                }
                Ok(ConnectionState::TransmitTlsData(sent)) => {
                    sent.done();
                    true
                }
                Ok(ConnectionState::PeerClosed) => {
                    opened.is_end = true;
                    true
                }
                Ok(ConnectionState::Closed) => {
                    opened.is_end = true;
                    false
                }
                // The handshake needs more, or application data may be written.
                Ok(_) => false,
                Err(error) => {
                    self.append_alert(&mut wire[opened.used + discard..], answer);
                    return Err(error);
                }
            };
            opened.used += discard;
            // A record is longer than its plain bytes, so that these never reach into what is not opened yet.
            wire[opened.plain..][..scratch.len()].copy_from_slice(scratch);
            opened.plain += scratch.len();
            if !has_more {
                self.hold(&wire[opened.used..]);
                return Ok(opened);
            }
        }
    }

    /// Keeps a copy of what is left if it begins with a whole record, which rustls has opened then.
    fn hold(&mut self, left: &[u8]) {
        // Given back, since hardly any connection ever holds something.
        self.held = Vec::new();
        let is_whole = match left {
            [_, _, _, high, low, rest @ ..] => {
                rest.len() >= usize::from(u16::from_be_bytes([*high, *low]))
            }
            _ => false,
        };
        if is_whole {
            self.held.extend_from_slice(left);
        }
    }

    /// Appends the alert that rustls has ready after an error; `rest` is what it has not used. It is called once and not again: another
    /// call would go on with what follows the fault.
    fn append_alert(&mut self, rest: &mut [u8], answer: &mut Vec<u8>) {
        if let Ok(ConnectionState::EncodeTlsData(mut message)) = self.end.process(rest).state {
            // Without memory the client learns nothing of the fault.
            let _none = append(answer, |room| message.encode(room), encoded_size);
        }
    }

    /// Appends `plain` to `wire`, in records as long as they may be.
    ///
    /// # Errors
    /// The handshake is not over, or a close_notify was sent; `ENOMEM`; a key has sealed as much as it may.
    pub(crate) fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<()> {
        self.write(wire, |traffic, wire| {
            let most = plain.len() + plain.len().div_ceil(PLAIN_MOST) * OVERHEAD_MOST;
            append_sized(wire, most, |room| traffic.encrypt(plain, room))
        })
    }

    /// Appends a close_notify alert, if nothing forbids one.
    pub(crate) fn close(&mut self, wire: &mut Vec<u8>) {
        // Before the end of the handshake there is nobody to tell; without memory the end of the stream has to do.
        let _none_said = self.write(wire, |traffic, wire| {
            append_sized(wire, 64, |room| traffic.queue_close_notify(room))
        });
    }

    /// Brings rustls to where application data may be written, and writes some.
    fn write(
        &mut self,
        wire: &mut Vec<u8>,
        write: impl FnOnce(&mut WriteTraffic<'_, E::Data>, &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.has_failed || self.end.is_handshaking() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        loop {
            match self.end.process(&mut self.held).state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    return write(&mut traffic, wire);
                }
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    append(wire, |room| message.encode(room), encoded_size)
                        .map_err(io::Error::other)?;
                }
                Ok(ConnectionState::TransmitTlsData(sent)) => sent.done(),
                Ok(ConnectionState::PeerClosed) => {}
                Ok(_) => return Err(io::ErrorKind::NotConnected.into()),
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
    }
}

/// How much room a message needs that did not fit.
fn encoded_size(error: &EncodeError) -> Option<usize> {
    match error {
        EncodeError::InsufficientSize(needs) => Some(needs.required_size),
        EncodeError::AlreadyEncoded => None,
    }
}

/// Appends what `write` writes, whose size only a first try tells.
fn append<E>(
    out: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, E>,
    size: impl Fn(&E) -> Option<usize>,
) -> Result<(), Error> {
    let needed = match write(&mut []) {
        Ok(_) => return Ok(()),
        Err(error) => size(&error).ok_or_else(|| Error::General("nothing to encode".into()))?,
    };
    let before = out.len();
    grow(out, needed).map_err(|_| Error::General("out of memory".into()))?;
    let written = write(&mut out[before..]).unwrap_or(0);
    out.truncate(before + written);
    Ok(())
}

/// Appends what `write` writes, `most` bytes unless something else goes ahead of it: an update of keys.
fn append_sized(
    out: &mut Vec<u8>,
    most: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> io::Result<()> {
    let (before, mut room) = (out.len(), most);
    loop {
        grow(out, room).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let written = write(&mut out[before..]);
        out.truncate(before + written.as_ref().copied().unwrap_or(0));
        match written {
            Err(EncryptError::InsufficientSize(needs)) if needs.required_size > room => {
                room = needs.required_size;
            }
            written => {
                return written.map(drop).map_err(|error| io::Error::other(error.to_string()));
            }
        }
    }
}

/// Makes `out` longer by so many bytes.
fn grow(out: &mut Vec<u8>, by: usize) -> Result<(), TryReserveError> {
    out.try_reserve(by)?;
    out.resize(out.len() + by, 0);
    Ok(())
}

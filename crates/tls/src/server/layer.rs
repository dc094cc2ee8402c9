//! The layer of one of the server's connections.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_mech::net::{Layer, OpenedBytes};
use rustls::server::UnbufferedServerConnection;
use rustls::{AlertDescription, Error, HandshakeKind, ProtocolVersion};

use super::ServerTls;
use super::by_name::{CertifiedHosts, take_found};
use super::hello::prefers_chacha;
use crate::algorithms::suite_name;
use crate::records::Records;

/// What was agreed upon in a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeFacts {
    /// Whether an earlier session was resumed: no certificate was shown.
    pub is_resumed: bool,
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite, by its name in the RFC.
    pub suite: &'static str,
}

/// Why a handshake has not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// There is no version, cipher suite or group that both sides have.
    NothingInCommon,
    /// The client does not trust the server's certificate, or has another reason not to go on.
    RefusedByClient,
    /// The client names no host, or one that there is no certificate for.
    UnknownHost,
    /// The client shows no certificate, or none that is trusted.
    ClientCertificate,
    /// The client breaks the protocol.
    Malformed,
    /// The client has closed the connection.
    Ended,
    /// The client was too slow.
    TimedOut,
}

impl HandshakeFailure {
    /// All of them.
    pub const ALL: [HandshakeFailure; 7] = [
        HandshakeFailure::NothingInCommon,
        HandshakeFailure::RefusedByClient,
        HandshakeFailure::UnknownHost,
        HandshakeFailure::ClientCertificate,
        HandshakeFailure::Malformed,
        HandshakeFailure::Ended,
        HandshakeFailure::TimedOut,
    ];

    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            HandshakeFailure::NothingInCommon => "nothing_in_common",
            HandshakeFailure::RefusedByClient => "refused_by_client",
            HandshakeFailure::UnknownHost => "unknown_host",
            HandshakeFailure::ClientCertificate => "client_certificate",
            HandshakeFailure::Malformed => "malformed",
            HandshakeFailure::Ended => "ended",
            HandshakeFailure::TimedOut => "timed_out",
        }
    }

    fn of(error: &Error) -> HandshakeFailure {
        match error {
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => {
                HandshakeFailure::NothingInCommon
            }
            // What a client sends that finds nothing in common with the server.
            Error::AlertReceived(
                AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity,
            ) => HandshakeFailure::NothingInCommon,
            Error::AlertReceived(_) => HandshakeFailure::RefusedByClient,
            Error::NoCertificatesPresented | Error::InvalidCertificate(_) => {
                HandshakeFailure::ClientCertificate
            }
            // The error of a resolver that has found nothing (rustls/src/server/hs.rs).
            Error::General(text) if text.contains("no server certificate") => {
                HandshakeFailure::UnknownHost
            }
            _ => HandshakeFailure::Malformed,
        }
    }
}

/// How a handshake has ended.
pub type HandshakeEnd = Result<HandshakeFacts, HandshakeFailure>;

/// Makes the layers of a worker's connections.
#[derive(Clone)]
pub struct ServerLayers(Rc<LayerMaker>);

struct LayerMaker {
    tls: ServerTls,
    /// Memory that the layers use one after the other.
    scratch: RefCell<Vec<u8>>,
    /// Hears how handshakes end.
    tell: Box<dyn Fn(HandshakeEnd)>,
}

impl fmt::Debug for ServerLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerLayers").finish_non_exhaustive()
    }
}

impl ServerLayers {
    /// For connections of the calling thread. `tell` hears how handshakes end.
    ///
    /// The thread's source of random bytes is set up here: AWS-LC aborts the process if there is no memory for it when a handshake
    /// first needs some (`tree_jitter_initialize`).
    pub fn new(tls: ServerTls, tell: impl Fn(HandshakeEnd) + 'static) -> ServerLayers {
        // Without random bytes, handshakes fail and say so.
        let _ = aws_lc_rs::rand::fill(&mut [0]);
        ServerLayers(Rc::new(LayerMaker { tls, scratch: RefCell::default(), tell: Box::new(tell) }))
    }

    /// The layer of a connection that begins with `first`.
    ///
    /// # Errors
    /// The operating system has no random bytes.
    pub fn layer(&self, first: &[u8]) -> io::Result<ServerLayer> {
        let tls = &self.0.tls;
        let config = if prefers_chacha(first) { &tls.as_client_prefers } else { &tls.usual };
        let end = UnbufferedServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        Ok(ServerLayer {
            records: Records::new(end),
            maker: Rc::clone(&self.0),
            is_open: false,
            certificate: None,
            sizes: RecordSizes::default(),
        })
    }

    /// Counts a handshake that has ended without its layer.
    pub fn failed(&self, failure: HandshakeFailure) {
        (self.0.tell)(Err(failure));
    }
}

/// The layer of one of the server's connections.
pub struct ServerLayer {
    records: Records<UnbufferedServerConnection>,
    maker: Rc<LayerMaker>,
    is_open: bool,
    /// The number of the certificate that the client has found by the host it names.
    certificate: Option<u32>,
    sizes: RecordSizes,
}

impl fmt::Debug for ServerLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerLayer").field("is_open", &self.is_open).finish_non_exhaustive()
    }
}

impl ServerLayer {
    /// The protocol that was agreed upon (ALPN, RFC 7301); `None`: the client has offered none.
    #[must_use]
    pub fn protocol(&self) -> Option<&[u8]> {
        self.records.end.alpn_protocol()
    }

    /// The hosts that the client may ask for on the connection (RFC 9113 section 9.1.1): those of the certificate by which it has made
    /// sure whom it speaks to. `None`: all. A client that has named no host, or one that no certificate is for, was not refused then,
    /// and is not later.
    #[must_use]
    pub fn certified_hosts(&self) -> Option<CertifiedHosts> {
        let certificates = Arc::clone(&self.maker.tls.certificates);
        self.certificate.map(|number| CertifiedHosts { certificates, number: number as usize })
    }

    /// What was agreed upon. Before the end of the handshake, names are empty.
    #[must_use]
    pub fn facts(&self) -> HandshakeFacts {
        HandshakeFacts {
            is_resumed: self.records.end.handshake_kind() == Some(HandshakeKind::Resumed),
            version: version_name(self.records.end.protocol_version()),
            suite: self
                .records
                .end
                .negotiated_cipher_suite()
                .map_or("", |it| suite_name(it.suite())),
        }
    }
}

/// The name of a version as other servers log it.
pub(crate) fn version_name(version: Option<ProtocolVersion>) -> &'static str {
    match version {
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        _ => "",
    }
}

impl Layer for ServerLayer {
    fn open(&mut self, wire: &mut [u8], answer: &mut Vec<u8>) -> io::Result<OpenedBytes> {
        let opened = self.records.open(wire, answer, &mut self.maker.scratch.borrow_mut());
        if !self.is_open {
            self.certificate = take_found().map(|it| it as u32).or(self.certificate);
        }
        match &opened {
            Ok(_) if !self.is_open && !self.records.end.is_handshaking() => {
                self.is_open = true;
                (self.maker.tell)(Ok(self.facts()));
            }
            Err(error) if !self.is_open => (self.maker.tell)(Err(HandshakeFailure::of(error))),
            _ => {}
        }
        opened.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    fn is_open(&self) -> bool {
        self.is_open
    }

    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<()> {
        let mut rest = plain;
        while rest.len() > RecordSizes::FIRST
            && let Some(size) = self.sizes.next()
        {
            let (record, behind) = rest.split_at(size.min(rest.len()));
            self.records.seal(record, wire)?;
            rest = behind;
        }
        self.records.seal(rest, wire)
    }

    fn close(&mut self, wire: &mut Vec<u8>) {
        self.records.close(wire);
    }
}

/// How long records are. A record can be opened only when all of it is there, and a connection that begins or was idle sends
/// little at first (slow start: 10 segments per round trip, RFC 6928): the first records are short and then grow to 16 KiB.
#[derive(Debug)]
struct RecordSizes {
    next: usize,
    at: Option<Instant>,
}

impl Default for RecordSizes {
    fn default() -> RecordSizes {
        RecordSizes { next: RecordSizes::FIRST, at: None }
    }
}

impl RecordSizes {
    /// What fits a segment with its record's header.
    const FIRST: usize = 1400;

    /// No longer ones are wanted than these.
    const MOST: usize = 16 << 10;

    /// The kernel begins with few segments again after about as long (`tcp_slow_start_after_idle`).
    const IDLE: Duration = Duration::from_secs(1);

    /// How long the next record is; `None`: as long as it may be, and so are those behind it.
    fn next(&mut self) -> Option<usize> {
        let now = Instant::now();
        if self.at.replace(now).is_some_and(|at| now - at >= RecordSizes::IDLE) {
            self.next = RecordSizes::FIRST;
        }
        let size = self.next;
        self.next = (size * 2).min(RecordSizes::MOST);
        (size < RecordSizes::MOST).then_some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::print_stdout)]
    fn a_connection_s_layer_is_small() {
        let size = size_of::<ServerLayer>();
        println!("the layer of a connection has {size} bytes");
        assert!(size <= 2048);
    }
}

//! TLS of a worker with one server: which connections resume a session, and the handshake of each.

use std::cell::Cell;
use std::io;
use std::time::Instant;

use drover_mech::net::{Conn, Layer};
use drover_tls::client::{AgreedTls, ClientLayer, ClientLayers, ClientTls};

use crate::plan::options::LoadPlan;
use crate::plan::tls::SessionResumption;

/// TLS of a worker with one server.
pub(crate) struct OriginTls {
    layers: ClientLayers,
    resumption: SessionResumption,
    /// Handshakes since the last one that was to be a full one.
    since_full: Cell<u32>,
}

/// A handshake that is over.
pub(crate) struct Handshake {
    pub(crate) agreed: AgreedTls,
    pub(crate) end: Instant,
}

impl OriginTls {
    /// What a worker needs for each origin; `None`: the origin is spoken to in plain HTTP. Call this on the worker's thread.
    pub(crate) fn of(plan: &LoadPlan) -> Vec<Option<OriginTls>> {
        let clients = plan.origins.list.iter().map(|origin| origin.tls.as_ref());
        let of = |tls: &ClientTls| {
            let (layers, resumption) = (tls.layers(), plan.tls.resumption);
            prepare(&layers);
            OriginTls { layers, resumption, since_full: Cell::new(0) }
        };
        clients.map(|tls| tls.map(of)).collect()
    }

    /// Makes the handshake on a connection that was opened just now, and says when it began. The connection's deadline is at `end`.
    pub(crate) async fn shake_hands(
        &self,
        conn: &Conn<'_>,
        end: Instant,
    ) -> io::Result<(Instant, Box<Handshake>)> {
        let begun = Instant::now();
        conn.set_layer(Box::new(self.layers.layer(self.resumes())?));
        let mut is_late = false;
        loop {
            match conn.open_layer().await {
                Err(error) if error.kind() == io::ErrorKind::TimedOut && !is_late => is_late = true,
                Err(error) => return Err(in_handshake(error)),
                Ok(()) => {
                    let agreed = conn.with_layer(ClientLayer::agreed);
                    let agreed = agreed.ok_or(io::ErrorKind::NotConnected)?;
                    return Ok((begun, Box::new(Handshake { agreed, end: Instant::now() })));
                }
            }
            // A generator that stood still finds what came meanwhile: the time of its pause is added to the deadline.
            conn.set_deadline(Some(Instant::now().saturating_duration_since(end)));
        }
    }

    /// Whether the next connection resumes a session.
    fn resumes(&self) -> bool {
        match self.resumption {
            SessionResumption::On => true,
            SessionResumption::Off => false,
            SessionResumption::Times(times) => {
                let since_full = self.since_full.get();
                self.since_full.set(if since_full < times { since_full + 1 } else { 0 });
                since_full > 0
            }
        }
    }
}

/// Writes a first message for nobody. The first use of random numbers and of key exchange takes many times as long as the next
/// ones, which no connection is to be charged for.
fn prepare(layers: &ClientLayers) {
    // A connection that fails in the same way says why.
    let _ = layers.layer(false).and_then(|mut layer| layer.open(&mut [], &mut Vec::new()));
}

/// An error of a handshake, which says so.
fn in_handshake(error: io::Error) -> io::Error {
    let what = match error.kind() {
        io::ErrorKind::TimedOut => "did not finish the TLS handshake in time",
        io::ErrorKind::UnexpectedEof => "closed the connection in the TLS handshake",
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "reset the connection in the TLS handshake"
        }
        // What breaks TLS has a text of its own.
        _ => return error,
    };
    io::Error::new(error.kind(), format!("the server {what}"))
}

//! The beginning of a connection over TLS: the handshake, before anything is spoken.

use std::io;
use std::sync::Arc;

use drover_mech::net::{Conn, Layer};
use drover_tls::server::{
    CHALLENGE_PROTOCOL, HandshakeEnd, HandshakeFailure, ServerLayer, ServerLayers, is_client_hello,
};

use super::connection::ServedConnection;
use crate::config::Config;
use crate::status::statistics::{Counter, WorkerCounters};
use crate::tls::TlsListeners;

/// What a client gets that speaks HTTP where TLS is spoken.
const PLAIN_AT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 60\r\n\
    Connection: close\r\n\r\n\
    400 Bad Request: this port speaks HTTPS; use an https:// URL";

/// TLS as a worker speaks it.
pub(crate) struct WorkerTls {
    layers: ServerLayers,
    /// Where it is spoken.
    listeners: TlsListeners,
    /// The port that clients are sent to who connect where it is not spoken; `None`: they are served.
    redirect: Option<u16>,
}

impl WorkerTls {
    /// That of a worker of `config`; `None`: it speaks none.
    pub(crate) fn of(config: &Config, counters: &WorkerCounters) -> Option<WorkerTls> {
        let settings = config.tls.as_ref()?;
        let counters = counters.clone();
        let server = match &config.challenges {
            None => settings.server(),
            Some(challenges) => settings.server().answering(Arc::new(challenges.clone())),
        };
        let layers = ServerLayers::new(server, move |end| count(&counters, end));
        let listeners = config.tls_listeners.clone();
        let redirect = config.https_redirect.map(|port| port.among(&listeners));
        Some(WorkerTls { layers, listeners, redirect })
    }

    /// Whether a connection is over TLS.
    pub(super) fn is_for(&self, conn: &Conn<'_>) -> bool {
        conn.listener().is_some_and(|number| self.listeners.is_tls(number.into()))
    }

    /// The port of HTTPS that the requests of connections without TLS are sent to.
    pub(super) fn redirect(&self) -> Option<u16> {
        self.redirect
    }
}

fn count(counters: &WorkerCounters, end: HandshakeEnd) {
    match end {
        Ok(facts) if facts.is_resumed => counters.add(Counter::TlsResumed, 1),
        Ok(_) => counters.add(Counter::TlsFull, 1),
        Err(failure) => counters.tls_failure(failure),
    }
}

/// Waits for the first bytes of a connection and makes the handshake. `false`: there will be no request.
///
/// # Errors
/// Those of the handshake, and of receiving.
pub(super) async fn begin(connection: &ServedConnection<'_>, tls: &WorkerTls) -> io::Result<bool> {
    let conn = &connection.conn;
    let time_outs = connection.service.limits.time_outs;
    // A PROXY header may have brought more than itself.
    if conn.input_len() == 0 {
        conn.set_deadline(time_outs.idle);
        if conn.fill_idle().await? == 0 {
            return Ok(false);
        }
    }
    let layer = conn.io(|io| {
        let is_tls = is_client_hello(io.input);
        (0, is_tls.then(|| tls.layers.layer(io.input)))
    });
    let Some(layer) = layer.transpose()? else {
        refuse_plain(connection).await?;
        return Ok(false);
    };
    conn.set_layer(Box::new(layer));
    conn.set_deadline(time_outs.header);
    let Err(error) = conn.open_layer().await else {
        connection.observe(|observers, known| observers.encrypted(known, conn));
        let speaks = |layer: &ServerLayer| layer.protocol() == Some(CHALLENGE_PROTOCOL);
        let is_challenge = conn.with_layer(speaks) == Some(true);
        if is_challenge {
            // Nothing is said after the handshake of a CA.
            connection.linger().await?;
        }
        return Ok(!is_challenge);
    };
    match error.kind() {
        io::ErrorKind::TimedOut => tls.layers.failed(HandshakeFailure::TimedOut),
        // The layer has told the reason; the alert for the client may not have left yet.
        io::ErrorKind::InvalidData => {
            connection.flush_soon().await?;
            conn.remove_layer();
            connection.linger().await?;
        }
        // A message that is longer than what is kept of one.
        io::ErrorKind::StorageFull => tls.layers.failed(HandshakeFailure::Malformed),
        // It may have come to its end just before, and was counted.
        _ if conn.with_layer(|layer: &ServerLayer| layer.is_open()) == Some(true) => {}
        _ => tls.layers.failed(HandshakeFailure::Ended),
    }
    Err(error)
}

/// Whether client and server have agreed on HTTP/2 (ALPN, RFC 9113 section 3.2).
pub(super) fn has_agreed_on_http2(conn: &Conn<'_>) -> bool {
    conn.with_layer(|layer: &ServerLayer| layer.protocol() == Some(b"h2")) == Some(true)
}

/// Answers a client that does not speak TLS.
async fn refuse_plain(connection: &ServedConnection<'_>) -> io::Result<()> {
    let conn = &connection.conn;
    conn.io(|io| (io.input.len(), io.output.extend_from_slice(PLAIN_AT_TLS)));
    connection.flush_soon().await?;
    connection.service.counters.response(drover_http1::Status::BadRequest);
    connection.linger().await
}

/// Tells the client that nothing more comes, as far as its socket takes that soon.
pub(super) async fn close(connection: &ServedConnection<'_>) {
    connection.conn.close_layer();
    // Whoever has gone already misses nothing.
    let _gone = connection.flush_soon().await;
}

#[cfg(test)]
mod tests {
    use super::PLAIN_AT_TLS;

    #[test]
    fn the_refusal_has_the_length_that_it_names() {
        let text = std::str::from_utf8(PLAIN_AT_TLS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    }
}

//! `--proxy-protocol`: the header with which each connection begins.

use std::io;
use std::time::Duration;

use drover_http1::proxy_protocol::{self, ProxySource};
use drover_mech::net::Conn;

use super::client::ClientAddress;

/// Receives the header, and leaves what follows in the input. Returns the client, which is `peer` if the header names
/// nobody; `None`: the connection has ended before its first byte. The time-out is for the whole header.
///
/// # Errors
/// `InvalidData`: it is malformed; `UnexpectedEof`; `TimedOut`; and errors of the connection.
pub(crate) async fn receive(
    conn: &Conn<'_>,
    peer: ClientAddress,
    time_out: Option<Duration>,
) -> io::Result<Option<ClientAddress>> {
    conn.set_deadline(time_out);
    let header = loop {
        match conn.io(|io| (0, proxy_protocol::parse(io.input))) {
            Ok(Some(header)) => break header,
            Ok(None) => match fill(conn).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return if conn.input_len() == 0 { Ok(None) } else { Err(error) };
                }
                filled => filled?,
            },
            Err(malformed) => return Err(io::Error::new(io::ErrorKind::InvalidData, malformed)),
        }
    };
    let mut left = header.len;
    loop {
        left -= conn.io(|io| {
            let count = left.min(io.input.len());
            (count, count)
        });
        match left {
            0 => break,
            _ => fill(conn).await?,
        }
    }
    Ok(Some(match header.source {
        ProxySource::Peer => peer,
        ProxySource::Ip(client) => ClientAddress::Ip(client.ip().to_canonical()),
        ProxySource::Unix => ClientAddress::Unix,
    }))
}

async fn fill(conn: &Conn<'_>) -> io::Result<()> {
    match conn.fill_idle().await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

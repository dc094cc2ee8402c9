//! The coroutine of a connection, from its first byte to its last: who the client is, whether it may have the connection, and what
//! is spoken. One coroutine serves every dispatch mechanism.

use std::io;

use drover_mech::net::Conn;
use tracing::warn;

use super::connection::ServedConnection;
use super::{WorkerService, http1, http2, tls};
use crate::proxies::client::ClientAddress;
use crate::proxies::header;
use crate::status::statistics::Counter;

/// Serves one connection from its first byte to its last.
///
/// An idle connection costs the size of this future. Functions here return `async` blocks, because an
/// `async fn` would keep its arguments twice.
pub(crate) fn serve<'w>(
    conn: Conn<'w>,
    service: &'w WorkerService<'w>,
) -> impl Future<Output = ()> + use<'w> {
    service.counters.add(Counter::Connections, 1);
    let mut connection = ServedConnection::new(conn, service);
    async move {
        let has_begun = match connection.service.begins_specially() {
            // In a box that is gone when there is a request, so that every connection is smaller.
            true => Box::pin(begin_specially(&mut connection)).await,
            false => begin(&mut connection, None),
        };
        if has_begun {
            let ended = match connection.is_http2 {
                // In a box, so that connections without it are smaller.
                true => Box::pin(http2::converse(&connection)).await,
                false => http1::converse(&connection).await,
            };
            let is_well = connection.ended_well(ended);
            if connection.conn.has_layer() {
                Box::pin(end_with_tls(&connection, is_well)).await;
            }
        }
        connection.finished.set(true);
    }
}

/// Begins a connection whose client is `client`, or else the peer; `false`: it may not have one.
fn begin(connection: &mut ServedConnection<'_>, client: Option<ClientAddress>) -> bool {
    let may_begin = may_begin(&connection.conn, connection.service, client);
    if may_begin {
        connection.start_tracking(client);
    }
    may_begin
}

/// Begins a connection that a proxy may announce, or that may be over TLS. `false`: there will be no request.
async fn begin_specially(connection: &mut ServedConnection<'_>) -> bool {
    let service = connection.service;
    let mut client = None;
    if service.limits.proxies.is_some() {
        match begin_by_proxy(&connection.conn, service).await {
            Ok(Some(named)) => client = Some(named),
            Ok(None) => return false,
            Err(error) => {
                connection.count_end(&error);
                return false;
            }
        }
    }
    if !begin(connection, client) {
        return false;
    }
    let begun = choose_protocol(connection).await;
    begun.unwrap_or_else(|error| {
        connection.count_end(&error);
        false
    })
}

/// Makes the handshake, on an address that speaks TLS, and finds out which version of HTTP is spoken. `false`: there will be no request.
async fn choose_protocol(connection: &mut ServedConnection<'_>) -> io::Result<bool> {
    let service = connection.service;
    if let Some(tls) = service.tls.as_deref() {
        if tls.is_for(&connection.conn) {
            let has_begun = tls::begin(connection, tls).await?;
            connection.is_http2 = tls::has_agreed_on_http2(&connection.conn);
            return Ok(has_begun);
        }
        connection.is_redirected = tls.redirect().is_some();
    }
    if service.http2.is_spoken_plain {
        connection.is_http2 = http2::is_spoken(connection).await?;
    }
    Ok(true)
}

/// Ends a connection over TLS.
async fn end_with_tls(connection: &ServedConnection<'_>, is_well: bool) {
    // A response that could not be sent to its end must not look complete.
    if is_well || !connection.conn.is_under_way() {
        tls::close(connection).await;
    }
}

/// Receives the header of the PROXY protocol, if a proxy that is trusted has connected. `None`: it has sent nothing.
async fn begin_by_proxy(
    conn: &Conn<'_>,
    service: &WorkerService<'_>,
) -> io::Result<Option<ClientAddress>> {
    let peer = ClientAddress::of_peer(conn);
    let is_trusted = service.limits.proxies.as_ref().is_some_and(|it| it.contains(peer));
    let client = match is_trusted {
        true => header::receive(conn, peer, service.limits.time_outs.header).await,
        false => Err(io::ErrorKind::PermissionDenied.into()),
    };
    let reason = match client.as_ref().map_err(io::Error::kind) {
        Err(io::ErrorKind::PermissionDenied) => "is none of --trusted-proxies",
        Err(io::ErrorKind::InvalidData) => {
            "has sent no header of the PROXY protocol (--proxy-protocol)"
        }
        _ => return client,
    };
    if let Some(others) = service.site.may_complain(conn.net().now()) {
        warn!("{peer} {reason}: its connection is closed ({others} like this not logged)");
    }
    client
}

/// Whether the client may have one more connection. If not, it is closed at once: whoever has too many gets no response for
/// each of them.
fn may_begin(conn: &Conn<'_>, service: &WorkerService<'_>, client: Option<ClientAddress>) -> bool {
    let Some(addresses) = &service.limits.addresses else { return true };
    let client = client.unwrap_or_else(|| ClientAddress::of_peer(conn));
    let may_begin = addresses.begin(conn.key(), client);
    if !may_begin {
        service.counters.add(Counter::RefusedByAddress, 1);
        if let Some(others) = service.site.may_complain(conn.net().now()) {
            warn!(
                "{client} has --max-per-address connections already: another is closed ({others} like this not logged)"
            );
        }
    }
    may_begin
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_coroutine<'a, F>(_: impl Fn(Conn<'a>, &'a WorkerService<'a>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    #[expect(clippy::print_stdout)]
    fn a_connection_s_coroutine_is_small() {
        let size = size_of_coroutine(serve);
        println!("the coroutine of a connection, its Conn included, has {size} bytes");
        assert!(size <= 160);
    }
}

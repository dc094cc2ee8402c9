//! The coroutine of a connection. One coroutine serves every dispatch mechanism.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use drover_http1::{Refusal, Status};
use drover_mech::net::{Answer, Body, Conn, Net, Progress};
use tracing::warn;

use crate::lookup::pending::PendingAnswer;
use crate::proxies::client::ClientAddress;
use crate::proxies::header;
use crate::respond::parts::RemainingParts;
use crate::respond::response::Then;
use crate::respond::site::{ResponseBatch, Site};
use crate::status::statistics::Counter;

/// How long a connection that is closed for a fault is read on, so that the client finds the response.
const LINGER: Duration = Duration::from_secs(2);

/// The response to a head that did not come in time.
static LATE: Refusal = Refusal { status: Status::RequestTimeout, reason: "" };

/// The response when a file could not be opened in time, because its disk or its network hangs, or a password not verified.
static TOOK_TOO_LONG: Refusal =
    Refusal { status: Status::ServiceUnavailable, reason: "this takes too long now" };

/// Serves one connection from its first byte to its last.
///
/// An idle connection costs the size of this future. Functions here return `async` blocks, because an
/// `async fn` would keep its arguments twice.
pub(crate) fn serve<'w>(conn: Conn<'w>, site: &'w Site<'w>) -> impl Future<Output = ()> + use<'w> {
    site.counters.add(Counter::Connections, 1);
    let counted = Counted { conn, site, finished: false };
    async move {
        let mut client = None;
        if counted.site.limits.proxies.is_some() {
            // In a box, so that connections without a proxy are smaller.
            match Box::pin(begin_by_proxy(&counted.conn, counted.site)).await {
                Ok(Some(named)) => client = Some(named),
                Ok(None) => return counted.finish(),
                Err(error) => {
                    count_end(&counted.conn, counted.site, &error);
                    return counted.finish();
                }
            }
        }
        if !may_begin(&counted.conn, counted.site, client) {
            return counted.finish();
        }
        counted.site.begin(&counted.conn, client);
        if let Err(error) = converse(&counted.conn, counted.site).await {
            count_end(&counted.conn, counted.site, &error);
        }
        counted.finish();
    }
}

/// Counts what has ended a connection.
fn count_end(conn: &Conn<'_>, site: &Site<'_>, error: &io::Error) {
    match error.kind() {
        io::ErrorKind::TimedOut => site.counters.add(Counter::TimeOuts, 1),
        io::ErrorKind::OutOfMemory => out_of_memory(conn.net(), site),
        _ => site.counters.add(Counter::Errors, 1),
    }
}

/// Counts a connection that ends for want of memory, and frees some.
pub(crate) fn out_of_memory(net: &Net, site: &Site<'_>) {
    site.counters.add(Counter::OutOfMemory, 1);
    site.free_memory(net);
}

/// Receives the header of the PROXY protocol, if a proxy that is trusted has connected. `None`: it has sent nothing.
async fn begin_by_proxy(conn: &Conn<'_>, site: &Site<'_>) -> io::Result<Option<ClientAddress>> {
    let peer = ClientAddress::of_peer(conn);
    let is_trusted = site.limits.proxies.as_ref().is_some_and(|it| it.contains(peer));
    let client = match is_trusted {
        true => header::receive(conn, peer, site.limits.time_outs.header).await,
        false => Err(io::ErrorKind::PermissionDenied.into()),
    };
    let reason = match client.as_ref().map_err(io::Error::kind) {
        Err(io::ErrorKind::PermissionDenied) => "is none of --trusted-proxies",
        Err(io::ErrorKind::InvalidData) => {
            "has sent no header of the PROXY protocol (--proxy-protocol)"
        }
        _ => return client,
    };
    if let Some(others) = site.may_complain(conn.net().now()) {
        warn!("{peer} {reason}: its connection is closed ({others} like this not logged)");
    }
    client
}

/// Whether the client may have one more connection. If not, it is closed at once: whoever has too many gets no response for
/// each of them.
fn may_begin(conn: &Conn<'_>, site: &Site<'_>, client: Option<ClientAddress>) -> bool {
    let Some(addresses) = &site.limits.addresses else { return true };
    let client = client.unwrap_or_else(|| ClientAddress::of_peer(conn));
    let may_begin = addresses.begin(conn.key(), client);
    if !may_begin {
        site.counters.add(Counter::RefusedByAddress, 1);
        if let Some(others) = site.may_complain(conn.net().now()) {
            warn!(
                "{client} has --max-per-address connections already: another is closed ({others} like this not logged)"
            );
        }
    }
    may_begin
}

/// Responds, sends and receives, until one side ends the connection.
#[expect(clippy::manual_async_fn)]
fn converse(conn: &Conn<'_>, site: &Site<'_>) -> impl Future<Output = io::Result<()>> {
    async move {
        // Whether the deadline belongs to a request that has begun: more bytes do not extend it.
        let mut begun = false;
        // What the first request in the input waits for.
        let mut awaited: Option<Rc<PendingAnswer>> = None;
        let refusal = loop {
            let (ResponseBatch { answered, then }, progress) =
                conn.respond(|io| site.respond(conn.key(), io, conn.net(), awaited.take()));
            begun &= !answered;
            let input = match over(conn, site, progress)? {
                Some(input) => input,
                None => {
                    // The deadline of a request ends with its head.
                    conn.set_deadline(site.limits.time_outs.idle);
                    let sent = flush(conn, site).await;
                    ended(conn, site, sent)?;
                    conn.input_len()
                }
            };
            match then {
                Then::Receive => {}
                Then::Again => continue,
                Then::Identify => {
                    site.identify(conn);
                    continue;
                }
                Then::Wait(open) => {
                    conn.set_deadline(site.limits.time_outs.open);
                    let open = awaited.insert(open);
                    match conn.until(|| open.is_done()).await {
                        Ok(()) => continue,
                        Err(_) => {
                            open.leave(conn.key());
                            break &TOOK_TOO_LONG;
                        }
                    }
                }
                // Few responses have parts: what these need is apart, so that every connection is smaller.
                Then::Parts(rest) => match Box::pin(send(conn, site, rest)).await? {
                    true => continue,
                    false => return Ok(()),
                },
                Then::Skip(len) => {
                    skip(conn, site, len).await?;
                    continue;
                }
                Then::Close => return Ok(()),
                Then::Linger => return linger(conn).await,
            }
            let partial = input > 0;
            if let (true, Some(extras)) = (partial, &site.extras) {
                extras.begun(conn.key(), conn.net().now());
            }
            if !(begun && partial) {
                let time_outs = &site.limits.time_outs;
                conn.set_deadline(if partial { time_outs.header } else { time_outs.idle });
            }
            begun = partial;
            match conn.fill_idle().await {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if begun && error.kind() == io::ErrorKind::TimedOut => {
                    break &LATE;
                }
                Err(error) => return Err(error),
            }
        };
        refuse(conn, site, refusal).await
    }
}

/// Sends what follows behind the first body of a response in parts, and does what is to be done then. Returns
/// whether the connection goes on.
async fn send(
    conn: &Conn<'_>,
    site: &Site<'_>,
    rest: Box<(RemainingParts, Then)>,
) -> io::Result<bool> {
    let (mut parts, then) = *rest;
    let mut is_over = false;
    while !is_over {
        let progress;
        (is_over, progress) = conn.respond(|io| site.go_on(conn.key(), &mut parts, io, conn.net()));
        if over(conn, site, progress)?.is_none() {
            conn.set_deadline(site.limits.time_outs.idle);
            let sent = flush(conn, site).await;
            ended(conn, site, sent)?;
        }
    }
    match then {
        Then::Skip(len) => skip(conn, site, len).await?,
        Then::Close => return Ok(false),
        Then::Linger => {
            linger(conn).await?;
            return Ok(false);
        }
        Then::Receive | Then::Again | Then::Identify | Then::Wait(_) | Then::Parts(_) => {}
    }
    Ok(true)
}

/// Records how far a response came in one step. `Some`: it is complete, and this many bytes lie in the
/// input.
fn over(conn: &Conn<'_>, site: &Site<'_>, progress: Progress) -> io::Result<Option<usize>> {
    let Progress { sent, done, input } = progress;
    site.counters.add(Counter::BytesSent, sent);
    if matches!(done, Ok(false)) {
        if let (1.., Some(extras)) = (sent, &site.extras) {
            extras.took_some(conn.key());
        }
        return Ok(None);
    }
    ended(conn, site, done.map(drop))?;
    Ok(Some(input))
}

/// Sends the rest of a response, and counts its bytes as they leave.
fn flush(conn: &Conn<'_>, site: &Site<'_>) -> impl Future<Output = io::Result<()>> {
    conn.flush_with(site.limits.time_outs.idle, |conn, count| {
        site.counters.add(Counter::BytesSent, count);
        if let Some(extras) = &site.extras {
            extras.took_some(conn.key());
        }
    })
}

/// Records how the sending of a response has ended.
#[inline]
fn ended(conn: &Conn<'_>, site: &Site<'_>, sent: io::Result<()>) -> io::Result<()> {
    if sent.is_err() || site.extras.is_some() { take_down(conn, site, sent) } else { Ok(()) }
}

/// Traces and logs the end of a response; the server's own log has a failure that is not the client's.
#[cold]
fn take_down(conn: &Conn<'_>, site: &Site<'_>, sent: io::Result<()>) -> io::Result<()> {
    if let Some(extras) = &site.extras {
        extras.done(conn, &sent);
    }
    if let Err(error) = &sent {
        complain(conn, site, error);
    }
    sent
}

/// Logs why a file could not be sent to its end, if the file is the cause. Nothing is logged when
/// the client or the network is the cause: a closed connection, or one that took nothing for too long.
fn complain(conn: &Conn<'_>, site: &Site<'_>, error: &io::Error) {
    let is_our_time_out = error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none();
    // The peer of a unix(7) socket has its address also when it has closed.
    let is_gone =
        [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset].contains(&error.kind());
    if is_our_time_out || is_gone || !conn.is_connected() {
        return;
    }
    let Some(name) = conn.sends_from() else { return };
    let Some(others) = site.may_complain(conn.net().now()) else { return };
    let what = match error.kind() {
        io::ErrorKind::UnexpectedEof => format!("{name:?} shrank while it was sent"),
        _ => format!("cannot read {name:?}: {error}"),
    };
    warn!("{what}: connection cut ({others} like this not logged)");
}

/// Receives and drops `left` bytes.
fn skip(conn: &Conn<'_>, site: &Site<'_>, mut left: u64) -> impl Future<Output = io::Result<()>> {
    conn.set_deadline(site.limits.time_outs.header);
    async move {
        while left > 0 {
            if conn.fill().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= conn.io(|io| {
                let count = left.min(io.input.len() as u64);
                (count as usize, count)
            });
        }
        Ok(())
    }
}

/// Responds to a request for which time has run out, and closes.
#[expect(clippy::manual_async_fn)]
fn refuse(
    conn: &Conn<'_>,
    site: &Site<'_>,
    refusal: &'static Refusal,
) -> impl Future<Output = io::Result<()>> {
    async move {
        site.counters.add(Counter::TimeOuts, 1);
        conn.set_deadline(Some(LINGER));
        let ((), progress) = conn.respond(|mut io| {
            site.refuse(conn.key(), *refusal, &mut io, conn.net());
            (Answer { consumed: io.input.len(), body: Body::None, expects_input: false }, ())
        });
        if over(conn, site, progress)?.is_none() {
            let sent = flush(conn, site).await;
            ended(conn, site, sent)?;
        }
        linger(conn).await
    }
}

/// Ends the sending side, and reads on for a while.
#[expect(clippy::manual_async_fn)]
fn linger(conn: &Conn<'_>) -> impl Future<Output = io::Result<()>> {
    async move {
        conn.shutdown()?;
        conn.set_deadline(Some(LINGER));
        loop {
            conn.io(|io| (io.input.len(), ()));
            // The end of the stream and the end of the time mean one thing here: close now.
            if !matches!(conn.fill().await, Ok(1..)) {
                return Ok(());
            }
        }
    }
}

/// Counts the end of a connection, also when its coroutine is dropped because the grace is over.
struct Counted<'w> {
    conn: Conn<'w>,
    site: &'w Site<'w>,
    /// Whether the coroutine has ended by itself. Otherwise the end of the grace, or a want of memory, has cut what is left
    /// in the buffers.
    finished: bool,
}

impl Counted<'_> {
    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.site.counters.add(Counter::Closed, 1);
        if let Some(addresses) = &self.site.limits.addresses {
            addresses.end(self.conn.key());
        }
        if !self.finished && self.conn.net().ending() && self.conn.is_under_way() {
            self.site.counters.add(Counter::Cut, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_coroutine<'a, F>(_: impl Fn(Conn<'a>, &'a Site<'a>) -> F) -> usize {
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

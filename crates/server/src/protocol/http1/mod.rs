//! HTTP/1: requests one after the other, and their responses in the same order.

mod respond;
mod write;

use std::io;
use std::rc::Rc;

use drover_http1::{Refusal, Status};

pub(crate) use respond::Http1;
use respond::{AfterResponse, ConnectionStep};

use super::TOOK_TOO_LONG;
use super::connection::{LINGER, ServedConnection};
use crate::exchange::RemainingParts;
use crate::lookup::pending::PendingAnswer;
use crate::status::statistics::Counter;

/// The response to a head that did not come in time.
static LATE: Refusal = Refusal { status: Status::RequestTimeout, reason: "" };

/// Responds, sends and receives, until one side ends the connection.
#[expect(clippy::manual_async_fn)]
pub(super) fn converse(connection: &ServedConnection<'_>) -> impl Future<Output = io::Result<()>> {
    async move {
        // Whether the deadline belongs to a request that has begun: more bytes do not extend it.
        let mut begun = false;
        // What the first request in the input waits for.
        let mut awaited: Option<Rc<PendingAnswer>> = None;
        let refusal = loop {
            let ((responses, step), progress) =
                connection.conn.respond(|io| respond::respond(connection, io, awaited.take()));
            begun &= responses == 0;
            let (before, last) = step.responses(responses);
            let is_response = responses > 0;
            let input = match connection.record_progress(progress, before, last)? {
                Some(input) => input,
                None => {
                    // The deadline of a request ends with its head.
                    connection.conn.set_deadline(connection.service.limits.time_outs.idle);
                    let sent = connection.flush().await;
                    // Without a response it may have been the end of a handshake.
                    connection.ended(sent, if is_response { step.responses(1).1 } else { 0 })?;
                    connection.conn.input_len()
                }
            };
            let after = match step {
                ConnectionStep::Send(after) => after,
                ConnectionStep::LookAgain => continue,
                ConnectionStep::Wait(open) => {
                    connection.keep_start();
                    connection.conn.set_deadline(connection.service.limits.time_outs.open);
                    let open = awaited.insert(open);
                    match connection.conn.until(|| open.is_done()).await {
                        Ok(()) => continue,
                        Err(_) => {
                            open.leave(connection.requester(None).key);
                            break &TOOK_TOO_LONG;
                        }
                    }
                }
                // Few responses have parts: what these need is apart, so that every connection is smaller.
                ConnectionStep::SendParts(parts, after) => {
                    connection.keep_start();
                    match Box::pin(send_parts(connection, parts, after)).await? {
                        true => continue,
                        false => return Ok(()),
                    }
                }
            };
            match after {
                AfterResponse::Receive => {}
                AfterResponse::Skip(len) => {
                    connection.skip(len.into()).await?;
                    continue;
                }
                AfterResponse::Close if !connection.conn.has_layer() => return Ok(()),
                // The peer of a layer may say that it ends, and bytes that nobody reads have the kernel drop the response.
                AfterResponse::Close | AfterResponse::Linger => return connection.linger().await,
            }
            begun = await_input(connection, input > 0, begun);
            match connection.conn.fill_idle().await {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if begun && error.kind() == io::ErrorKind::TimedOut => break &LATE,
                Err(error) => return Err(error),
            }
        };
        refuse(connection, refusal).await
    }
}

/// Sets the deadline for what the client sends next: the rest of a head of which there is a part, or another request. Returns
/// whether a head has begun.
fn await_input(connection: &ServedConnection<'_>, is_partial: bool, begun: bool) -> bool {
    if is_partial {
        connection.observe(|_, known| known.begun(connection.conn.net().now()));
    }
    if !(begun && is_partial) {
        let time_outs = &connection.service.limits.time_outs;
        connection.conn.set_deadline(if is_partial { time_outs.header } else { time_outs.idle });
    }
    is_partial
}

/// Sends what follows behind the first body of a response in parts, and does what is to be done then. Returns whether the
/// connection goes on.
async fn send_parts(
    connection: &ServedConnection<'_>,
    mut parts: Box<RemainingParts>,
    after: AfterResponse,
) -> io::Result<bool> {
    let mut is_over = false;
    while !is_over {
        let progress;
        (is_over, progress) =
            connection.conn.respond(|io| respond::go_on(connection, &mut parts, io));
        if connection.record_progress(progress, 0, u32::from(is_over))?.is_none() {
            connection.conn.set_deadline(connection.service.limits.time_outs.idle);
            let sent = connection.flush().await;
            connection.ended(sent, u32::from(is_over))?;
        }
    }
    match after {
        AfterResponse::Receive => return Ok(true),
        AfterResponse::Skip(len) => {
            connection.skip(len.into()).await?;
            return Ok(true);
        }
        AfterResponse::Close if !connection.conn.has_layer() => {}
        AfterResponse::Close | AfterResponse::Linger => connection.linger().await?,
    }
    Ok(false)
}

/// Responds to a request for which time has run out, and closes.
#[expect(clippy::manual_async_fn)]
fn refuse(
    connection: &ServedConnection<'_>,
    refusal: &'static Refusal,
) -> impl Future<Output = io::Result<()>> {
    async move {
        connection.service.counters.add(Counter::TimeOuts, 1);
        connection.conn.set_deadline(Some(LINGER));
        let ((), progress) =
            connection.conn.respond(|io| (respond::refuse(connection, *refusal, io), ()));
        if connection.record_progress(progress, 0, 1)?.is_none() {
            let sent = connection.flush().await;
            connection.ended(sent, 1)?;
        }
        connection.linger().await
    }
}

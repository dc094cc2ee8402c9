//! The coroutine of a connection: one for all mechanisms.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use http1::{Refusal, Status};
use mech::net::{Body, Conn, Progress};
use mech::opening::Opening;
use tracing::warn;

use super::site::{Next, Site, Step};
use super::stats::{Counters, Tally};

/// How long a connection that is closed for a fault is read on, so that the client finds the reply.
const LINGER: Duration = Duration::from_secs(2);

/// Serves one connection from its first byte to its last.
///
/// Functions here return `async` blocks where an `async fn` would keep its arguments twice: an idle
/// connection costs the size of this future.
#[expect(clippy::manual_async_fn)]
pub(super) fn serve<'w>(conn: Conn<'w>, site: &'w Site<'w>) -> impl Future<Output = ()> + use<'w> {
    async move {
        site.counters.add(Tally::Connections, 1);
        if let Some(tracer) = &site.tracer {
            tracer.begin(conn.key());
        }
        let _count = Count(site.counters);
        if let Err(error) = converse(&conn, site).await {
            match error.kind() {
                io::ErrorKind::TimedOut => site.counters.add(Tally::TimeOuts, 1),
                _ => site.counters.add(Tally::Errors, 1),
            }
        }
    }
}

/// Answers, sends, receives, until one side has had enough.
#[expect(clippy::manual_async_fn)]
fn converse(conn: &Conn<'_>, site: &Site<'_>) -> impl Future<Output = io::Result<()>> {
    async move {
        // Whether the deadline is that of a request which has begun: more bytes do not move it.
        let mut begun = false;
        // The file that the request in front has to wait for, or has waited for.
        let mut opening: Option<Opening> = None;
        loop {
            let (step, progress) =
                conn.respond(|io| site.answer(conn.key(), io, conn.net(), &mut opening));
            let Step { answered, file, next } = step;
            begun &= !answered;
            let input = match progress {
                Ok(Progress { sent, done: true, input }) => {
                    // Not to be kept open while the connection waits.
                    drop(file);
                    site.counters.add(Tally::BytesSent, sent);
                    if let Some(tracer) = &site.tracer {
                        tracer.done(conn, &Ok(sent));
                    }
                    input
                }
                progress => {
                    finish(conn, site, progress, file).await?;
                    conn.input_len()
                }
            };
            match next {
                Next::Receive => {}
                Next::Again => continue,
                Next::Open => {
                    conn.set_deadline(site.time_outs.idle);
                    conn.until(|| opening.as_ref().is_none_or(Opening::is_done)).await?;
                    continue;
                }
                Next::Skip(len) => {
                    skip(conn, site, len).await?;
                    continue;
                }
                Next::Close => return Ok(()),
                Next::Linger => return linger(conn).await,
            }
            let partial = input > 0;
            if !(begun && partial) {
                let time_outs = &site.time_outs;
                conn.set_deadline(if partial { time_outs.header } else { time_outs.idle });
            }
            begun = partial;
            let late = match conn.fill_idle().await {
                Ok(0) => return Ok(()),
                Ok(_) => false,
                Err(error) if begun && error.kind() == io::ErrorKind::TimedOut => true,
                Err(error) => return Err(error),
            };
            if late {
                return tell_late(conn, site).await;
            }
        }
    }
}

/// Sends what is left of a reply; `file` is what its body is in.
#[expect(clippy::manual_async_fn)]
fn finish(
    conn: &Conn<'_>,
    site: &Site<'_>,
    begun: io::Result<Progress>,
    file: Option<Rc<OwnedFd>>,
) -> impl Future<Output = io::Result<()>> {
    async move {
        let sent = match begun {
            Ok(begun) => {
                site.counters.add(Tally::BytesSent, begun.sent);
                conn.flush(site.time_outs.idle).await
            }
            Err(error) => Err(error),
        };
        if let Some(tracer) = &site.tracer {
            tracer.done(conn, &sent);
        }
        if let (Some(file), Err(error)) = (file, &sent)
            && error.kind() == io::ErrorKind::UnexpectedEof
        {
            let name = mech::fs::name_of(file.as_fd());
            warn!("{} shrank while it was sent: connection cut", name.display());
        }
        site.counters.add(Tally::BytesSent, sent?);
        Ok(())
    }
}

/// Receives and drops `left` bytes.
async fn skip(conn: &Conn<'_>, site: &Site<'_>, mut left: u64) -> io::Result<()> {
    conn.set_deadline(site.time_outs.header);
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

/// Answers a request whose head did not come in time, and closes.
async fn tell_late(conn: &Conn<'_>, site: &Site<'_>) -> io::Result<()> {
    site.counters.add(Tally::TimeOuts, 1);
    conn.set_deadline(Some(LINGER));
    let ((), progress) = conn.respond(|io| {
        let refusal = Refusal { status: Status::RequestTimeout, reason: "" };
        site.refuse(conn.key(), refusal, io.output, conn.net());
        (io.input.len(), Body::None, ())
    });
    finish(conn, site, progress, None).await?;
    linger(conn).await
}

/// Ends the sending side, and reads on for a while.
async fn linger(conn: &Conn<'_>) -> io::Result<()> {
    conn.shutdown()?;
    conn.set_deadline(Some(LINGER));
    loop {
        conn.io(|io| (io.input.len(), ()));
        // Whether the client has seen the end or just goes on, it has had its time.
        if !matches!(conn.fill().await, Ok(1..)) {
            return Ok(());
        }
    }
}

/// Counts the end of a connection, also when its coroutine is dropped.
struct Count<'w>(&'w Counters);

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.add(Tally::Closed, 1);
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
        assert!(size <= 512);
    }
}

//! HTTP/2 (RFC 9113): a connection's requests come over streams, and their responses take turns.
//!
//! [`session`] is a connection: what it receives, whose turn it is to send, and what it waits for. [`respond`] decides what a stream is
//! answered, [`write`](mod@write) puts that into frames, [`body`] has the rest of a response that the client's windows leave room for
//! piece by piece.

mod body;
mod pace;
mod respond;
mod session;
mod waiting;
mod write;

use std::cell::RefCell;
use std::io;

use drover_http2::{Http2Limits, PREFACE};

use respond::Http2State;
use session::{Http2Session, NextStep};

use super::connection::ServedConnection;
use crate::config::Config;

/// HTTP/2 as a worker speaks it.
pub(crate) struct WorkerHttp2 {
    state: RefCell<Http2State>,
    limits: Http2Limits,
    /// Whether clients may begin with it where TLS is not spoken.
    pub(super) is_spoken_plain: bool,
    /// Whether the worker reads what is in the page cache by itself: no file backend is asked for by name.
    reads_cached: bool,
}

impl WorkerHttp2 {
    /// That of a worker of `config`.
    pub(crate) fn of(config: &Config) -> WorkerHttp2 {
        WorkerHttp2 {
            state: RefCell::default(),
            limits: config.http2.limits,
            is_spoken_plain: config.http2.on_plain_ports,
            reads_cached: config.files.is_none(),
        }
    }

    /// Forgets what is remembered of requests for those to come.
    pub(super) fn forget(&self) {
        self.state.borrow_mut().forget();
    }
}

/// Receives, responds and sends, until one side ends the connection.
pub(super) async fn converse(connection: &ServedConnection<'_>) -> io::Result<()> {
    let mut session = Http2Session::new(connection);
    loop {
        let (next, progress) = connection.conn.respond(|io| session.turn(io));
        if connection.record_progress(progress, 0, 0)?.is_none() {
            session.tell_first_bytes();
            connection.conn.set_deadline(connection.service.limits.time_outs.idle);
            let sent = connection.flush().await;
            connection.ended(sent, 0)?;
        }
        session.has_sent();
        match next {
            NextStep::LookAgain => {}
            NextStep::End => return connection.linger().await,
            NextStep::Wait => {
                if !session.wait().await? {
                    return Ok(());
                }
            }
        }
    }
}

/// Waits for the first bytes of a client without TLS, and says whether it begins as HTTP/2 does (RFC 9113 section 3.4). What has come
/// stays in the input.
///
/// # Errors
/// Those of receiving.
pub(super) async fn is_spoken(connection: &ServedConnection<'_>) -> io::Result<bool> {
    let (conn, time_outs) = (&connection.conn, &connection.service.limits.time_outs);
    conn.set_deadline(time_outs.idle);
    loop {
        let (may_be, has_all) = conn.io(|io| {
            let seen = &io.input[..io.input.len().min(PREFACE.len())];
            (0, (PREFACE.starts_with(seen), seen.len() == PREFACE.len()))
        });
        if !may_be || has_all {
            return Ok(may_be);
        }
        if conn.input_len() > 0 {
            conn.set_deadline(time_outs.header);
        }
        if conn.fill_idle().await? == 0 {
            return Ok(false);
        }
    }
}

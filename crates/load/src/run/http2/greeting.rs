//! The beginning of a connection of HTTP/2, and a connection on which nothing is asked.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Instant;

use drover_http2::{ClientConnection, ClientEvent, ErrorCode};

use crate::account::counts::RequestFailure;
use crate::run::connection::link::Link;

/// What came on a connection on which nothing was asked.
enum Quiet {
    /// Nothing that ends the connection.
    Nothing,
    /// The server ends the connection (GOAWAY).
    Leaves(ErrorCode),
    /// The server has broken the protocol.
    Violates(&'static str),
}

impl Link<'_, '_> {
    /// Begins HTTP/2 on a connection that was opened just now, and has until `end` for it. `chosen` is the protocol that the server has
    /// chosen by ALPN; `None`: there is no TLS.
    ///
    /// A connection that was opened before a request needs it waits for the server's SETTINGS. Requests need not wait for them (RFC
    /// 9113 section 3.4): what begins the connection then goes with the first of them.
    pub(crate) async fn greet(
        &mut self,
        chosen: Option<&str>,
        end: Instant,
    ) -> Result<(), (RequestFailure, io::Error)> {
        if chosen.is_some_and(|chosen| chosen != "h2") {
            let text = "the server does not choose HTTP/2 (ALPN): leave --http2 out";
            return Err((RequestFailure::TlsFailed, io::Error::other(text)));
        }
        let plan = self.worker.plan;
        let http2 = self.conn.io(|io| {
            let http2 = match plan.read_at_once() {
                None => ClientConnection::new(io.output),
                Some(window) => ClientConnection::slow(window as u32, io.output),
            };
            (0, Box::new(http2))
        });
        self.http2 = Some(http2);
        let is_idle = self.number < plan.idle;
        if !is_idle && !plan.opens_early() {
            return Ok(());
        }
        let left = end.saturating_duration_since(Instant::now());
        self.conn.set_deadline(Some(left));
        while !self.http2.as_ref().is_some_and(|http2| http2.is_greeted()) {
            let received = self.send_and_fill().await.map_err(before_settings)?;
            if received == 0 {
                return Err(before_settings(io::ErrorKind::UnexpectedEof.into()));
            }
            let is_http1 = self.conn.io(|io| (0, io.input.starts_with(b"HTTP/")));
            match self.hear() {
                Quiet::Nothing => {}
                Quiet::Violates(_) if is_http1 => {
                    let text = "the server answers in HTTP/1.1: leave --h2c out";
                    return Err((RequestFailure::HttpVersion, io::Error::other(text)));
                }
                Quiet::Violates(reason) => {
                    let text = format!("the server does not begin HTTP/2: {reason}");
                    return Err((RequestFailure::Http2, io::Error::other(text)));
                }
                Quiet::Leaves(code) => {
                    let text =
                        format!("the server ends the connection with GOAWAY ({})", code.name());
                    return Err((RequestFailure::Reset, io::Error::other(text)));
                }
            }
        }
        self.conn.flush(None).await.map(drop).map_err(before_settings)
    }

    /// Sends what is to be sent, and waits for more bytes meanwhile; returns how many came.
    async fn send_and_fill(&self) -> io::Result<usize> {
        poll_fn(|_| {
            while let Poll::Ready(sent) = self.conn.poll_send() {
                if sent? == 0 {
                    break;
                }
            }
            self.conn.poll_fill()
        })
        .await
    }

    /// Takes what was received on a connection on which nothing was asked.
    fn hear(&mut self) -> Quiet {
        let Some(http2) = &mut self.http2 else { return Quiet::Nothing };
        let mut account = self.worker.account.borrow_mut();
        self.conn.io(|io| {
            let mut at = 0;
            loop {
                let (used, event) = http2.receive(&io.input[at..], io.output);
                at += used;
                match event {
                    ClientEvent::Incomplete => return (at, Quiet::Nothing),
                    ClientEvent::GoAway { code, .. } => {
                        *account.http2.go_aways.entry(code.name()).or_default() += 1;
                        return (at, Quiet::Leaves(code));
                    }
                    ClientEvent::Failed { code, reason } => {
                        account.http2.violated(code, reason);
                        return (at, Quiet::Violates(reason));
                    }
                    // There are no streams.
                    _ => {}
                }
            }
        })
    }

    /// Keeps a connection open on which nothing is asked. Returns when the server ends it, or sends what nobody has asked for: how many
    /// bytes came then.
    pub(crate) async fn stay(&mut self) -> io::Result<usize> {
        match self.http2 {
            None => self.conn.fill().await,
            Some(_) => Box::pin(self.stay_quiet()).await,
        }
    }

    async fn stay_quiet(&mut self) -> io::Result<usize> {
        loop {
            let received = self.send_and_fill().await?;
            match self.hear() {
                Quiet::Nothing if received > 0 => {}
                Quiet::Nothing | Quiet::Leaves(_) => return Ok(0),
                Quiet::Violates(_) => return Ok(received),
            }
        }
    }
}

/// An error before the server's SETTINGS, which says so.
fn before_settings(error: io::Error) -> (RequestFailure, io::Error) {
    let (class, what) = match error.kind() {
        io::ErrorKind::TimedOut => {
            (RequestFailure::ConnectTimeout, "did not send its SETTINGS (HTTP/2) in time")
        }
        io::ErrorKind::UnexpectedEof => (
            RequestFailure::Truncated,
            "closed the connection in place of SETTINGS: does it speak HTTP/2?",
        ),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => (
            RequestFailure::Reset,
            "reset the connection in place of SETTINGS: does it speak HTTP/2?",
        ),
        // What breaks TLS has a text of its own.
        _ => return (RequestFailure::of_transfer(&error), error),
    };
    (class, io::Error::new(error.kind(), format!("the server {what}")))
}

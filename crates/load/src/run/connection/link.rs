//! A connection to a server, whatever is spoken on it: open or not, and how often it is tried to be opened.

use std::io;
use std::time::{Duration, Instant};

use drover_http2::ClientConnection;
use drover_mech::net::Conn;

use crate::account::counts::RequestFailure;
use crate::run::worker::{Phase, Worker};

/// The shortest and the longest rest of [`Attempts`].
const FIRST_REST: Duration = Duration::from_millis(10);
pub(super) const LONGEST_REST: Duration = Duration::from_secs(1);

/// The attempts to open a connection, and the rests between them.
pub(crate) struct Attempts {
    /// The next rest. It doubles after each failed attempt, so that a server that refuses or closes at once gets few attempts.
    rest: Duration,
    /// Since when every attempt has failed.
    failing_since: Option<Instant>,
}

impl Attempts {
    pub(crate) fn new() -> Attempts {
        Attempts { rest: FIRST_REST, failing_since: None }
    }

    /// Notes whether an attempt has succeeded.
    pub(crate) fn note(&mut self, opened: bool) {
        if opened {
            self.failing_since = None;
        }
    }

    /// The connection was of use: the next rest is the shortest.
    pub(crate) fn reset(&mut self) {
        self.rest = FIRST_REST;
    }

    /// Whether attempts have failed for too long. In a run without an end, a connection that has failed for the length of the time-out
    /// gives up. Without that, the run would never end.
    pub(crate) fn give_up(&mut self, worker: &Worker<'_>) -> bool {
        let now = worker.net.now();
        let since = *self.failing_since.get_or_insert(now);
        worker.plan.ends_with_requests() && now - since >= worker.plan.timeout
    }

    /// Rests before another attempt.
    pub(crate) async fn sleep(&mut self, link: &Link<'_, '_>) {
        let until = link.worker.net.now() + self.rest;
        self.rest = (self.rest * 2).min(LONGEST_REST);
        link.conn.sleep_until(until).await;
    }
}

/// A connection that may be open or not.
pub(crate) struct Link<'c, 'n> {
    pub(crate) conn: Conn<'n>,
    pub(crate) worker: &'c Worker<'n>,
    pub(crate) origin: usize,
    /// The number among the connections of all workers.
    pub(crate) number: u32,
    pub(crate) open: bool,
    /// What the open connection is in HTTP/2, whose streams carry the numbers of slots; `None`: HTTP/1.1 is spoken.
    pub(crate) http2: Option<Box<ClientConnection<u32>>>,
    /// The connection was closed because of an unsolicited response.
    unsolicited: bool,
}

impl<'c, 'n> Link<'c, 'n> {
    pub(super) fn new(conn: Conn<'n>, worker: &'c Worker<'n>, number: u32) -> Link<'c, 'n> {
        let (number, origin) = worker.place(number);
        Link { conn, worker, origin, number, open: false, http2: None, unsolicited: false }
    }

    pub(crate) fn close(&mut self) {
        self.end_tls();
        self.forget();
    }

    /// Closes what is left of a connection that the server has ended.
    pub(crate) fn forget(&mut self) {
        self.conn.close();
        self.open = false;
        self.http2 = None;
    }

    /// Chooses the server that the next connection is opened to, where connections change servers.
    pub(crate) fn choose_origin(&mut self) {
        if let Some(origin) = self.worker.requests.pick_origin() {
            self.origin = origin;
        }
    }

    /// Whether the connection is not to be opened again. A server that sends a response before the first request cannot be measured:
    /// its responses do not belong to requests.
    pub(crate) fn stays_closed(&self) -> bool {
        let is_first = self.unsolicited && self.worker.window.phase() == Phase::Opening;
        !self.worker.plan.reopen || is_first
    }

    /// The class of an error on the open connection.
    pub(crate) fn failure_of(&self, error: &io::Error) -> RequestFailure {
        let failure = RequestFailure::of_transfer(error);
        if failure == RequestFailure::TlsFailed {
            self.note_tls_failure(error);
        }
        failure
    }

    /// Lets the connections whose responses are here receive them first. Requests then leave one
    /// right behind the other, and a sleeping server is woken once for many. Waking the server is the
    /// most expensive part of a send over loopback. Over io_uring requests leave together anyway.
    /// Returns whether that has taken time.
    pub(crate) async fn let_others_receive(&self) -> bool {
        let yields = !self.worker.sends_together && self.worker.net.others_are_ready();
        if yields {
            self.conn.yield_now().await;
        }
        yields
    }

    /// Tells the server of an open TLS connection that nothing more comes (close_notify), if its socket takes that at once.
    fn end_tls(&self) {
        if self.open && self.worker.tls[self.origin].is_some() && !self.conn.is_under_way() {
            self.conn.close_layer();
            let _ = self.conn.poll_send();
        }
    }

    /// Notes what has broken TLS on the open connection, unless another failure has been noted.
    pub(crate) fn note_tls_failure(&self, error: &io::Error) {
        let mut account = self.worker.account.borrow_mut();
        if account.connect_error.is_none() {
            let endpoints = &self.worker.plan.origins.list[self.origin].endpoints;
            let mut text = String::new();
            endpoints.tell_failure(&mut text, endpoints.first().place, error);
            account.connect_error = Some(text);
        }
    }

    /// Something came while no response was expected: the end of the stream, or an unsolicited response.
    /// A server that gives up an idle connection may send a 408 before it closes (RFC 9110 section
    /// 15.5.9).
    pub(crate) fn closed_by_peer(&mut self, heard: io::Result<usize>) {
        if let Err(error) = heard.as_ref()
            && RequestFailure::of_transfer(error) == RequestFailure::TlsFailed
        {
            self.note_tls_failure(error);
        }
        let gives_up = || self.conn.io(|io| (0, io.input.starts_with(b"HTTP/1.1 408")));
        self.unsolicited = heard.is_ok_and(|count| count > 0) && !gives_up();
        let worker = self.worker;
        let account = &mut worker.account.borrow_mut();
        if self.unsolicited {
            account.connections.unsolicited += 1;
            account.errors.add(match self.http2 {
                None => RequestFailure::Unsolicited,
                Some(_) => RequestFailure::Http2,
            });
        } else {
            account.connections.closed_by_peer += 1;
        }
        self.forget();
    }
}

impl Drop for Link<'_, '_> {
    /// The end of the run closes the connections that are open.
    fn drop(&mut self) {
        self.end_tls();
    }
}

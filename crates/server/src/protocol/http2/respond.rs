//! What a stream is answered: from a request to a decided exchange, to a head and a body.

use std::rc::Rc;

use drover_http1::{FieldList, Method, Refusal, Status, request};
use drover_tls::server::CertifiedHosts;

use super::body::StreamBody;
use super::write::{tell_all_fields, write};
use crate::exchange::Exchange;
use crate::hosts::without_port;
use crate::lookup::pending::{PendingAnswer, RequestKey, Requester};
use crate::protocol::connection::ServedConnection;
use crate::protocol::repeated::RepeatedRequest;
use crate::respond::answer::{Answered, SiteState};
use crate::status::statistics::Counter;

/// The certificate that the client has made sure of is not for the host that it asks for (RFC 9110 section 15.5.20).
const OTHER_CERTIFICATE: Refusal = Refusal {
    status: Status::MisdirectedRequest,
    reason: "the certificate of this connection is not for this host",
};

/// What the connections of a worker share that speak HTTP/2.
#[derive(Default)]
pub(super) struct Http2State {
    /// The exchange that is being answered: used again for its memory.
    exchange: Box<Exchange>,
    repeated: RepeatedRequest,
    /// The number of the certificate with whose host the repeated request was asked for.
    repeated_with: Option<usize>,
    /// The head that was written last.
    pub(super) block: Vec<u8>,
}

/// What a request is answered.
pub(super) enum StreamAnswer {
    /// A response, whose head is [`Http2State::block`].
    Response(StreamBody, Option<Box<Exchange>>),
    /// Nothing before something is found out. These fields may go ahead.
    Wait(Rc<PendingAnswer>, FieldList),
}

/// A request, or why there is none.
#[derive(Clone, Copy)]
pub(super) enum Asked<'a> {
    /// A head in the form of HTTP/1.1.
    Head(&'a [u8]),
    /// A head that is refused.
    Refused(&'a [u8], Refusal),
}

impl Http2State {
    /// Forgets what is remembered of requests for those to come.
    pub(super) fn forget(&mut self) {
        self.repeated = RepeatedRequest::default();
    }
}

/// Decides what the request of a stream is answered, and writes the head of it. The request may have waited for something, `awaited`.
pub(super) fn respond(
    connection: &ServedConnection<'_>,
    (stream, hosts): (u32, Option<&CertifiedHosts>),
    asked: Asked<'_>,
    awaited: Option<Rc<PendingAnswer>>,
) -> StreamAnswer {
    let service = connection.service;
    let http2 = &mut *service.http2.state.borrow_mut();
    let site = &mut *service.site.state.borrow_mut();
    site.clock.tick(connection.conn.net().now());
    let key = RequestKey { connection: connection.conn.key(), stream };
    http2.exchange.begin(Requester { key, awaited }, connection.client());
    let with_body = match http2.decide(connection, hosts, asked, site) {
        Ok(with_body) => with_body,
        Err((open, hints)) => {
            http2.exchange.let_go();
            return StreamAnswer::Wait(open, hints);
        }
    };
    service.counters.add(Counter::Requests, 1);
    service.counters.add(Counter::Http2Requests, 1);
    let (body, exchange) = http2.finish(with_body, connection, site);
    StreamAnswer::Response(body, exchange)
}

impl Http2State {
    /// Decides the exchange; the value is whether its content is sent.
    ///
    /// # Errors
    /// What the request has to wait for, and the fields that may go ahead.
    fn decide(
        &mut self,
        connection: &ServedConnection<'_>,
        hosts: Option<&CertifiedHosts>,
        asked: Asked<'_>,
        site: &mut SiteState<'_>,
    ) -> Result<bool, (Rc<PendingAnswer>, FieldList)> {
        let (service, net) = (connection.service, connection.conn.net());
        let certificate = hosts.map(CertifiedHosts::number);
        let exchange = &mut self.exchange;
        let (head, refusal) = match asked {
            Asked::Head(head) => (head, None),
            Asked::Refused(head, refusal) => (head, Some(refusal)),
        };
        let https_port = connection.https_port();
        if refusal.is_none()
            && https_port.is_none()
            && self.repeated_with == certificate
            && self.repeated.answer(head, net.now(), exchange).is_some()
        {
            if !exchange.requester.was_looked_up() {
                service.counters.add(Counter::CacheHits, 1);
            }
            return Ok(true);
        }
        let request = match request::parse_translated(head, &service.limits.head) {
            Ok(request) => request,
            Err(fault) => {
                exchange.refuse(refusal.unwrap_or(fault));
                if let Some(observers) = &service.observers {
                    observers.asked_unreadable(head, exchange);
                }
                return Ok(true);
            }
        };
        if let Some(observers) = &service.observers {
            observers.asked(&request, exchange);
        }
        let with_body = request.method != Method::Head;
        if let Some(refusal) = refusal {
            exchange.refuse(refusal);
            return Ok(with_body);
        }
        if hosts.is_some_and(|hosts| !contain(hosts, request.host)) {
            exchange.refuse(OTHER_CERTIFICATE);
            return Ok(with_body);
        }
        if let Answered::Wait(open, hints) = connection.answer(&request, https_port, exchange, site)
        {
            return Err((open, hints));
        }
        if https_port.is_none() && connection.may_repeat(&request, exchange) {
            if self.repeated_with != certificate {
                (self.repeated, self.repeated_with) = (RepeatedRequest::default(), certificate);
            }
            self.repeated.note(request.head, exchange, net.now());
        }
        Ok(with_body)
    }

    /// Writes the head of the decided exchange, counts the response, and shows it to those who observe. The exchange is returned if
    /// somebody reads it at its end.
    fn finish(
        &mut self,
        with_body: bool,
        connection: &ServedConnection<'_>,
        site: &SiteState<'_>,
    ) -> (StreamBody, Option<Box<Exchange>>) {
        let exchange = &mut self.exchange;
        let turn = connection.conn.net().now();
        connection.observe(|observers, known| observers.decided(known, exchange, turn));
        self.block.clear();
        let body = write(exchange, with_body, &site.clock, &mut self.block);
        connection.service.counters.response(exchange.status);
        let mut observed = None;
        connection.observe(|observers, _| {
            exchange.way.earlier = connection.responses();
            exchange.way.head_len = self.block.len() as u64;
            exchange.way.content_len = body.len();
            exchange.way.is_file = body.is_file();
            exchange.way.persists = true;
            if observers.reads_fields() {
                tell_all_fields(exchange, &site.clock);
            }
            if observers.reads_ends() {
                observed = Some(std::mem::replace(exchange, observers.spare_exchange()));
            }
        });
        connection.count_response();
        exchange.let_go();
        (body, observed)
    }
}

/// Whether the host of an authority is one of those that a certificate is for.
fn contain(hosts: &CertifiedHosts, authority: Option<&[u8]>) -> bool {
    let host = authority.and_then(|authority| str::from_utf8(without_port(authority)).ok());
    host.is_none_or(|host| hosts.contain(host.trim_start_matches('[').trim_end_matches(']')))
}

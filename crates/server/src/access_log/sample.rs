//! A line for one request, for tests and for the targets of `fuzz/`: all but what was asked and answered is fixed.

use std::time::{Duration, Instant, SystemTime};

use drover_http1::{FieldList, HeadLimits, request};
use drover_mech::fileio::ReadTimes;
use drover_tls::server::HandshakeFacts;

use super::LoggedConnection;
use super::format::Form;
use super::line::{Ending, LogLine, LoggedBy};
use super::wanted_by;
use crate::exchange::{Exchange, RequestFacts, ResponseWay};
use crate::proxies::client::ClientAddress;

/// What is taken down of what a client has sent.
pub(super) fn facts_of(input: &[u8], form: &Form) -> RequestFacts {
    match request::parse(input, &HeadLimits::default()) {
        Ok(Some(request)) => RequestFacts::of(&request, &wanted_by(form)),
        _ => RequestFacts::unreadable(input),
    }
}

/// The line of a request of `user` whose response has these fields.
pub(super) fn line_of(
    asked: RequestFacts,
    user: Option<&[u8]>,
    form: &Form,
    fields: FieldList,
    is_whole: bool,
) -> String {
    let us = Duration::from_micros;
    let start = Instant::now();
    let exchange = Exchange {
        client: ClientAddress::Ip("192.0.2.7".parse().unwrap()),
        asked: Some(asked.into()),
        user: user.map(Into::into),
        fields,
        way: ResponseWay {
            receive: us(70),
            start: Some(start),
            first_byte: is_whole.then_some(start + us(500)),
            lookup: us(100),
            head_len: 100,
            content_len: 1234,
            is_file: true,
            reads: ReadTimes {
                backend: None,
                reads: 2,
                queue: us(20),
                read: us(300),
                back: us(4),
                longest: us(280),
            },
            is_open: false,
            persists: true,
            earlier: 7,
        },
        ..Exchange::default()
    };
    let ending = Ending {
        at: start + us(1500),
        time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_433_400_250),
        end: "sent",
        is_whole,
        connection: LoggedConnection {
            local: Some("[2001:db8::1]:8080".parse().unwrap()),
            tls: Some(HandshakeFacts {
                is_resumed: true,
                version: "TLSv1.3",
                suite: "TLS_AES_128_GCM_SHA256",
            }),
        },
        by: &LoggedBy {
            mechanism: "any",
            accept: "shared",
            files: "auto",
            sends: "some",
            worker: 3,
            sites: None,
        },
    };
    let mut out = Vec::new();
    LogLine::new(&exchange, &ending).append_to(&mut out, form);
    String::from_utf8(out).unwrap()
}

/// The line of what a client has sent, and of the fields of the response.
#[cfg(fuzzing)]
pub(crate) fn log_line(
    form: &Form,
    input: &[u8],
    user: Option<&[u8]>,
    fields: FieldList,
) -> String {
    line_of(facts_of(input, form), user, form, fields, true)
}

//! A line of the access log.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use http1::{Request, Status};
use serde::Serialize;

/// The longest first line of an unreadable request that the log repeats.
const REPEATED_MOST: usize = 1024;

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// The combined log format of Apache's httpd, which nginx writes too and most tools read.
    #[default]
    Combined,
    /// An object of JSON.
    Json,
}

/// A response that has not left yet.
pub(super) struct LogLine {
    pub(super) asked: LoggedRequest,
    /// When the request was here.
    pub(super) turn: Instant,
    pub(super) status: Status,
    /// The bytes of the body.
    pub(super) bytes: u64,
    /// Whether parts of the body follow that are not in the output yet.
    pub(super) is_open: bool,
}

/// What the client has sent, as far as the log repeats it.
#[derive(Default)]
pub(super) struct LoggedRequest {
    method: String,
    target: Vec<u8>,
    version: &'static str,
    referer: Vec<u8>,
    agent: Vec<u8>,
}

impl LoggedRequest {
    pub(super) fn of(request: &Request<'_>) -> LoggedRequest {
        let field = |name: &str| {
            let is_it = |found: &&[u8]| found.eq_ignore_ascii_case(name.as_bytes());
            let mut fields = request.fields();
            let found = fields.find(|(found, _)| is_it(&found.as_bytes()));
            found.map(|(_, value)| value.to_vec()).unwrap_or_default()
        };
        LoggedRequest {
            method: request.method_text().to_owned(),
            target: request.target.to_vec(),
            version: match request.version {
                http1::Version::Http10 => "HTTP/1.0",
                http1::Version::Http11 => "HTTP/1.1",
            },
            referer: field("Referer"),
            agent: field("User-Agent"),
        }
    }

    /// A request that is none: its first line, as far as it came.
    pub(super) fn unreadable(input: &[u8]) -> LoggedRequest {
        let end = input.iter().position(|byte| b"\r\n".contains(byte)).unwrap_or(input.len());
        LoggedRequest {
            target: input[..end.min(REPEATED_MOST)].to_vec(),
            ..LoggedRequest::default()
        }
    }

    /// The request line, or what came in its place.
    fn line(&self) -> Vec<u8> {
        match self.method.is_empty() {
            true => self.target.clone(),
            false => {
                [self.method.as_bytes(), b" ", &self.target, b" ", self.version.as_bytes()].concat()
            }
        }
    }
}

/// The fields of a line in JSON.
#[derive(Serialize)]
struct Json<'l> {
    time: String,
    client: Option<String>,
    method: &'l str,
    target: std::borrow::Cow<'l, str>,
    version: &'l str,
    status: u16,
    bytes: u64,
    whole: bool,
    ms: f64,
    referer: std::borrow::Cow<'l, str>,
    agent: std::borrow::Cow<'l, str>,
    dispatch: &'l str,
    worker: usize,
}

impl LogLine {
    /// Appends the line. `time`: when the response had left, and how long after its request; `is_whole`: all of it
    /// has left.
    pub(super) fn append_to(
        &self,
        out: &mut Vec<u8>,
        form: Form,
        client: Option<SocketAddr>,
        (time, took): (SystemTime, Duration),
        is_whole: bool,
        (dispatch, worker): (&'static str, usize),
    ) {
        match form {
            Form::Combined => self.append_combined(out, client, time, is_whole),
            Form::Json => {
                let asked = &self.asked;
                let line = Json {
                    time: humantime::format_rfc3339_millis(time).to_string(),
                    client: client.map(|client| client.ip().to_string()),
                    method: &asked.method,
                    target: String::from_utf8_lossy(&asked.target),
                    version: asked.version,
                    status: self.status.code(),
                    bytes: self.bytes,
                    whole: is_whole,
                    ms: (took.as_secs_f64() * 1e6).round() / 1e3,
                    referer: String::from_utf8_lossy(&asked.referer),
                    agent: String::from_utf8_lossy(&asked.agent),
                    dispatch,
                    worker,
                };
                // Memory takes everything.
                let _ = serde_json::to_writer(&mut *out, &line);
                out.push(b'\n');
            }
        }
    }

    fn append_combined(
        &self,
        out: &mut Vec<u8>,
        client: Option<SocketAddr>,
        time: SystemTime,
        is_whole: bool,
    ) {
        match client {
            Some(client) => _ = write!(out, "{}", client.ip()),
            None => out.push(b'-'),
        }
        out.extend_from_slice(b" - - [");
        out.extend_from_slice(clock(time).as_bytes());
        out.extend_from_slice(b"] \"");
        push_escaped(out, &self.asked.line());
        // How many bytes of a response that was cut have arrived is not known.
        let _ = match is_whole {
            true => write!(out, "\" {} {} \"", self.status.code(), self.bytes),
            false => write!(out, "\" {} - \"", self.status.code()),
        };
        for (text, end) in [(&self.asked.referer, "\" \""), (&self.asked.agent, "\"\n")] {
            match text.is_empty() {
                true => out.push(b'-'),
                false => push_escaped(out, text),
            }
            out.extend_from_slice(end.as_bytes());
        }
    }
}

/// The time as the combined format has it, in UTC: `23/Nov/2026:11:30:00 +0000`.
fn clock(time: SystemTime) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = humantime::format_rfc3339_seconds(time).to_string();
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let month = part(5, 7).parse::<usize>().unwrap_or(1).clamp(1, 12);
    format!("{}/{}/{}:{} +0000", part(8, 10), MONTHS[month - 1], part(0, 4), part(11, 19))
}

/// Appends text that a client has chosen: nothing in it can end the line or a field, or steer a terminal.
fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'"' | b'\\' | 0..0x20 | 0x7f.. => _ = write!(out, "\\x{byte:02X}"),
            byte => out.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http1::{HeadLimits, request};

    fn written(input: &str, form: Form, is_whole: bool) -> String {
        let asked = match request::parse(input.as_bytes(), &HeadLimits::default()) {
            Ok(Some(request)) => LoggedRequest::of(&request),
            _ => LoggedRequest::unreadable(input.as_bytes()),
        };
        let line = LogLine {
            asked,
            turn: Instant::now(),
            status: Status::Ok,
            bytes: 1234,
            is_open: false,
        };
        let mut out = Vec::new();
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_433_400_250);
        let client = Some("192.0.2.7:4711".parse().unwrap());
        let times = (time, Duration::from_micros(1500));
        line.append_to(&mut out, form, client, times, is_whole, ("any", 3));
        String::from_utf8(out).unwrap()
    }

    const REQUEST: &str =
        "GET /a?b HTTP/1.1\r\nHost: x\r\nReferer: http://e/\r\nUser-Agent: w\"o\\\r\n\r\n";

    #[test]
    fn the_combined_form_is_apache_s() {
        assert_eq!(
            written(REQUEST, Form::Combined, true),
            "192.0.2.7 - - [23/Nov/2026:11:30:00 +0000] \"GET /a?b HTTP/1.1\" 200 1234 \"http://e/\" \
             \"w\\x22o\\x5C\"\n"
        );
        assert!(written(REQUEST, Form::Combined, false).contains("\" 200 - \""));
        assert!(
            written("\x16\x03\u{1b}[31m\r\nGET / HTTP/1.1\r\n", Form::Combined, true)
                .contains("\"\\x16\\x03\\x1B[31m\" 200 1234 \"-\" \"-\"\n")
        );
    }

    #[test]
    fn the_json_form_has_what_was_asked_and_who_served_it() {
        let line = written(REQUEST, Form::Json, true);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "time": "2026-11-23T11:30:00.250Z", "client": "192.0.2.7", "method": "GET",
            "target": "/a?b", "version": "HTTP/1.1", "status": 200, "bytes": 1234, "whole": true,
            "ms": 1.5, "referer": "http://e/", "agent": "w\"o\\", "dispatch": "any", "worker": 3
        });
        assert_eq!(value, expected);
        assert_eq!(line.matches('\n').count(), 1);
    }
}

//! A line of the access log.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use drover_http1::{Request, Status};
use drover_mech::fileio::ReadTimes;
use serde::Serialize;

use super::clock::combined;
use super::format::{Form, LogPart, OwnValue};
use crate::hosts::NamedSites;
use crate::log::json_text;
use crate::proxies::client::ClientAddress;

/// The longest first line of an unreadable request that the log repeats.
const REPEATED_MOST: usize = 1024;

/// A response that has not left yet.
pub(super) struct LogLine {
    pub(super) asked: LoggedRequest,
    /// The client that a trusted proxy names in the request.
    pub(super) named: Option<IpAddr>,
    /// How long it took from the first part of the head that was here to its end.
    pub(super) receive: Duration,
    /// When the request was here.
    pub(super) start: Instant,
    /// When the kernel had taken the first byte of the response.
    pub(super) first_byte: Option<Instant>,
    /// How long it then waited for its file to be opened.
    pub(super) lookup: Duration,
    pub(super) status: Status,
    /// The fields of the response's head that the form has.
    pub(super) fields: Vec<Vec<u8>>,
    /// The bytes of the body.
    pub(super) bytes: u64,
    /// Whether the file backend moves the body.
    pub(super) is_file: bool,
    /// How long reads of its file took.
    pub(super) times: ReadTimes,
    /// Whether parts of the body follow that are not in the output yet.
    pub(super) is_open: bool,
    /// Whether the connection goes on.
    pub(super) persists: bool,
    /// How many responses the connection had before.
    pub(super) earlier: u64,
}

/// What the client has sent, as far as the log repeats it.
#[derive(Default)]
pub(super) struct LoggedRequest {
    /// The name of the user whose request it is, if it is one's.
    user: Option<Vec<u8>>,
    method: String,
    /// The host that it names, if the form has it.
    host: Option<Vec<u8>>,
    /// The name of the host's site, if the form has it.
    site: Option<String>,
    target: Vec<u8>,
    version: &'static str,
    /// The fields that the form has.
    fields: Vec<Vec<u8>>,
}

/// The connection of a line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    /// The client's.
    pub(super) client: ClientAddress,
    /// The server's, if the form has it.
    pub(super) local: Option<SocketAddr>,
}

/// How a response has ended.
pub(super) struct Ending<'l> {
    /// When it had left, by both clocks.
    pub(super) at: Instant,
    pub(super) time: SystemTime,
    /// A word for how.
    pub(super) end: &'static str,
    pub(super) is_whole: bool,
    pub(super) ends: Ends,
    pub(super) by: &'l LoggedBy,
}

/// Who writes the lines.
pub(crate) struct LoggedBy {
    /// The dispatch mechanism.
    pub(crate) mechanism: &'static str,
    /// The accept strategy.
    pub(crate) accept: &'static str,
    /// What `--files` says.
    pub(crate) files: &'static str,
    /// The name of the backend that sends what needs no reading.
    pub(crate) sends: &'static str,
    pub(crate) worker: usize,
    /// The sites of hosts, if there are any and the form has them.
    pub(crate) sites: Option<NamedSites>,
}

impl LoggedRequest {
    pub(super) fn of(
        request: &Request<'_>,
        form: &Form,
        sites: Option<&NamedSites>,
    ) -> LoggedRequest {
        let site = sites.zip(request.host);
        LoggedRequest {
            user: None,
            site: site.and_then(|(sites, host)| sites.find(host)).map(str::to_owned),
            method: request.method_text().to_owned(),
            host: request.host.filter(|_| matches!(form, Form::Json { .. })).map(<[u8]>::to_vec),
            target: request.target.to_vec(),
            version: match request.version {
                drover_http1::Version::Http10 => "HTTP/1.0",
                drover_http1::Version::Http11 => "HTTP/1.1",
            },
            fields: form
                .request_fields()
                .map(|wanted| {
                    let it = |(name, _): &(&str, &[u8])| name.eq_ignore_ascii_case(wanted);
                    joined(request.fields().filter(it).map(|(_, value)| value))
                })
                .collect(),
        }
    }

    /// A request that is none: its first line, as far as it came. Empty lines may come before it (RFC 9112 section 2.2).
    pub(super) fn unreadable(input: &[u8]) -> LoggedRequest {
        let empty = input.iter().take_while(|byte| b"\r\n".contains(byte)).count();
        let input = &input[empty..];
        let end = input.iter().position(|byte| b"\r\n".contains(byte)).unwrap_or(input.len());
        LoggedRequest {
            target: input[..end.min(REPEATED_MOST)].to_vec(),
            ..LoggedRequest::default()
        }
    }

    /// The same as a request of `user`.
    pub(super) fn of_user(self, user: Option<&[u8]>) -> LoggedRequest {
        LoggedRequest { user: user.map(<[u8]>::to_vec), ..self }
    }

    /// Appends the user. A blank would end the field.
    fn append_user(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(user) = &self.user else { return out.write_all(b"-") };
        user.split(|byte| *byte == b' ').enumerate().try_for_each(|(number, word)| {
            out.extend_from_slice(if number > 0 { b"\\x20" } else { b"" });
            push_escaped(out, word)
        })
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

    /// The path, and the query with its question mark.
    fn path_and_query(&self) -> (&[u8], &[u8]) {
        let query = self.target.iter().position(|byte| *byte == b'?');
        self.target.split_at(query.unwrap_or(self.target.len()))
    }

    /// The field with a number; empty: the request has none of them.
    fn field(&self, number: usize) -> &[u8] {
        self.fields.get(number).map_or(&[], Vec::as_slice)
    }
}

/// The values of the lines of one field, as one line would have them (RFC 9110 section 5.3).
fn joined<'v>(values: impl Iterator<Item = &'v [u8]>) -> Vec<u8> {
    values.collect::<Vec<_>>().join(&b", "[..])
}

/// The field of a response's `head`; empty: there is none.
pub(super) fn response_field(head: &[u8], wanted: &str) -> Vec<u8> {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    joined(lines.filter_map(|line| {
        let (name, value) = line.split_at_checked(wanted.len())?;
        let value = value.strip_prefix(b":")?;
        name.eq_ignore_ascii_case(wanted.as_bytes()).then(|| value.trim_ascii())
    }))
}

/// The fields of a line in JSON.
#[derive(Serialize)]
struct Json<'l> {
    time: String,
    client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Cow<'l, str>>,
    method: &'l str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<Cow<'l, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<&'l str>,
    target: Cow<'l, str>,
    version: &'l str,
    status: u16,
    bytes: u64,
    whole: bool,
    ms: f64,
    referer: Cow<'l, str>,
    agent: Cow<'l, str>,
    dispatch: &'l str,
    worker: usize,
    #[serde(flatten)]
    stages: Option<JsonStages>,
}

/// What a line in JSON has of the stages of a response.
#[derive(Serialize)]
struct JsonStages {
    stages_ms: StagesMillis,
    reader: &'static str,
    reads: u32,
    end: &'static str,
    receive_ms: f64,
    /// `None`: no byte was taken.
    first_byte_ms: Option<f64>,
    accept: &'static str,
    files: &'static str,
}

#[derive(Serialize)]
struct StagesMillis {
    lookup: f64,
    queue: f64,
    read: f64,
    r#return: f64,
    send: f64,
}

/// Milliseconds, to a thousandth.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

impl LogLine {
    /// Appends the line, with its end.
    pub(super) fn append_to(&self, out: &mut Vec<u8>, form: &Form, ending: &Ending<'_>) {
        // Memory takes everything.
        let _ = match form {
            Form::Combined => self.append_combined(out, ending),
            Form::Json { stages } => self.append_json(out, *stages, ending),
            Form::Custom(format) => {
                format.parts.iter().try_for_each(|part| self.append_part(out, part, ending))
            }
        };
        out.push(b'\n');
    }

    /// How long the response took, from the request to its end.
    fn took(&self, ending: &Ending<'_>) -> Duration {
        ending.at.saturating_duration_since(self.start)
    }

    /// How long it took from the request to the first byte that the kernel took; `None`: it took none.
    fn first_byte(&self) -> Option<Duration> {
        self.first_byte.map(|at| at.saturating_duration_since(self.start))
    }

    /// How long the response was on its way to the socket: the time that no other stage has.
    fn send(&self, ending: &Ending<'_>) -> Duration {
        let ReadTimes { queue, read, back, .. } = self.times;
        self.took(ending).saturating_sub(self.lookup + queue + read + back)
    }

    /// Who has read the file.
    fn reader(&self, by: &LoggedBy) -> &'static str {
        match self.times.backend {
            Some(name) => name,
            None if self.is_file => by.sends,
            None => "memory",
        }
    }

    fn append_json(&self, out: &mut Vec<u8>, stages: bool, ending: &Ending<'_>) -> io::Result<()> {
        let (asked, by) = (&self.asked, ending.by);
        let stages = stages.then(|| JsonStages {
            stages_ms: StagesMillis {
                lookup: millis(self.lookup),
                queue: millis(self.times.queue),
                read: millis(self.times.read),
                r#return: millis(self.times.back),
                send: millis(self.send(ending)),
            },
            reader: self.reader(by),
            reads: self.times.reads,
            end: ending.end,
            receive_ms: millis(self.receive),
            first_byte_ms: self.first_byte().map(millis),
            accept: by.accept,
            files: by.files,
        });
        let line = Json {
            time: humantime::format_rfc3339_millis(ending.time).to_string(),
            client: match self.client(ending) {
                ClientAddress::Unknown => None,
                known => Some(known.to_string()),
            },
            user: asked.user.as_deref().map(String::from_utf8_lossy),
            method: &asked.method,
            host: asked.host.as_deref().map(String::from_utf8_lossy),
            site: asked.site.as_deref(),
            target: String::from_utf8_lossy(&asked.target),
            version: asked.version,
            status: self.status.code(),
            bytes: self.bytes,
            whole: ending.is_whole,
            ms: millis(self.took(ending)),
            referer: String::from_utf8_lossy(asked.field(0)),
            agent: String::from_utf8_lossy(asked.field(1)),
            dispatch: by.mechanism,
            worker: by.worker,
            stages,
        };
        json_text::write(out, &line)
    }

    fn client(&self, ending: &Ending<'_>) -> ClientAddress {
        self.named.map_or(ending.ends.client, ClientAddress::Ip)
    }

    fn append_combined(&self, out: &mut Vec<u8>, ending: &Ending<'_>) -> io::Result<()> {
        write!(out, "{} - ", self.client(ending))?;
        self.asked.append_user(out)?;
        write!(out, " [{}] \"", combined(ending.time))?;
        push_escaped(out, &self.asked.line())?;
        // How many bytes of a response that was cut have arrived is not known.
        match ending.is_whole {
            true => write!(out, "\" {} {} \"", self.status.code(), self.bytes)?,
            false => write!(out, "\" {} - \"", self.status.code())?,
        }
        push_or_dash(out, self.asked.field(0))?;
        out.extend_from_slice(b"\" \"");
        push_or_dash(out, self.asked.field(1))?;
        out.write_all(b"\"")
    }

    fn append_part(
        &self,
        out: &mut Vec<u8>,
        part: &LogPart,
        ending: &Ending<'_>,
    ) -> io::Result<()> {
        let (asked, took) = (&self.asked, self.took(ending));
        let begun = ending.time.checked_sub(took).unwrap_or(ending.time);
        let (path, query) = asked.path_and_query();
        match part {
            LogPart::Text(text) => out.write_all(text),
            LogPart::Client => write!(out, "{}", self.client(ending)),
            LogPart::LocalAddress => push_address(out, ending.ends.local),
            LogPart::LocalPort => match ending.ends.local {
                Some(local) => write!(out, "{}", local.port()),
                None => out.write_all(b"-"),
            },
            LogPart::Bytes { .. } if !ending.is_whole => out.write_all(b"-"),
            LogPart::Bytes { none } if self.bytes == 0 => out.write_all(none.as_bytes()),
            LogPart::Bytes { .. } => write!(out, "{}", self.bytes),
            LogPart::Took { micros } => write!(out, "{}", took.as_micros() / micros),
            LogPart::Version => push_or_dash(out, asked.version.as_bytes()),
            LogPart::EarlierRequests => write!(out, "{}", self.earlier),
            LogPart::Nobody => out.write_all(b"-"),
            LogPart::User => asked.append_user(out),
            LogPart::Site => {
                push_or_dash(out, asked.site.as_deref().unwrap_or_default().as_bytes())
            }
            LogPart::Method => push_or_dash(out, asked.method.as_bytes()),
            LogPart::Process => write!(out, "{}", std::process::id()),
            LogPart::Query => push_escaped(out, query),
            LogPart::RequestLine => push_escaped(out, &asked.line()),
            LogPart::Status => write!(out, "{}", self.status.code()),
            LogPart::Time => write!(out, "[{}]", combined(begun)),
            LogPart::Clock(format) => {
                format.append_to(out, if format.is_of_end { ending.time } else { begun })
            }
            LogPart::Path => push_or_dash(out, path),
            LogPart::Persistence => out.write_all(match (ending.is_whole, self.persists) {
                (false, _) => b"X",
                (true, true) => b"+",
                (true, false) => b"-",
            }),
            LogPart::RequestField(number) => push_or_dash(out, asked.field(*number)),
            LogPart::ResponseField(number) => {
                push_or_dash(out, self.fields.get(*number).map_or(&[], Vec::as_slice))
            }
            LogPart::Own(value) => self.append_own(out, *value, ending),
        }
    }

    /// Appends a value that Apache's httpd does not have; times are microseconds.
    fn append_own(
        &self,
        out: &mut Vec<u8>,
        value: OwnValue,
        ending: &Ending<'_>,
    ) -> io::Result<()> {
        let time = match value {
            OwnValue::Mechanism => return out.write_all(ending.by.mechanism.as_bytes()),
            OwnValue::Accept => return out.write_all(ending.by.accept.as_bytes()),
            OwnValue::Files => return out.write_all(ending.by.files.as_bytes()),
            OwnValue::Worker => return write!(out, "{}", ending.by.worker),
            OwnValue::End => return out.write_all(ending.end.as_bytes()),
            OwnValue::Reader => return out.write_all(self.reader(ending.by).as_bytes()),
            OwnValue::Reads => return write!(out, "{}", self.times.reads),
            OwnValue::Receive => self.receive,
            OwnValue::FirstByte => match self.first_byte() {
                Some(time) => time,
                None => return out.write_all(b"-"),
            },
            OwnValue::Lookup => self.lookup,
            OwnValue::Queue => self.times.queue,
            OwnValue::Read => self.times.read,
            OwnValue::Return => self.times.back,
            OwnValue::Send => self.send(ending),
            OwnValue::Longest => self.times.longest,
        };
        write!(out, "{}", time.as_micros())
    }
}

// Memory takes everything: what these functions return is for callers that write numbers too.

fn push_address(out: &mut Vec<u8>, address: Option<SocketAddr>) -> io::Result<()> {
    match address {
        Some(address) => write!(out, "{}", address.ip()),
        None => out.write_all(b"-"),
    }
}

fn push_or_dash(out: &mut Vec<u8>, text: &[u8]) -> io::Result<()> {
    if text.is_empty() { out.write_all(b"-") } else { push_escaped(out, text) }
}

/// Appends text that a client has chosen: nothing in it can end the line or a field, or steer a terminal.
fn push_escaped(out: &mut Vec<u8>, text: &[u8]) -> io::Result<()> {
    for byte in text {
        match byte {
            b'"' | b'\\' | 0..0x20 | 0x7f.. => write!(out, "\\x{byte:02X}")?,
            byte => out.push(*byte),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_http1::{HeadLimits, request};

    fn written(input: &str, form: &str, is_whole: bool) -> String {
        let form = Form::parse(form).unwrap();
        let asked = match request::parse(input.as_bytes(), &HeadLimits::default()) {
            Ok(Some(request)) => LoggedRequest::of(&request, &form, None),
            _ => LoggedRequest::unreadable(input.as_bytes()),
        };
        line_of(asked, &form, is_whole)
    }

    fn line_of(asked: LoggedRequest, form: &Form, is_whole: bool) -> String {
        let head = b"HTTP/1.1 200 OK\r\nETag: \"t\"\r\nVary: a\r\nvary: b\r\n\r\n";
        let us = Duration::from_micros;
        let start = Instant::now();
        let line = LogLine {
            asked,
            named: None,
            receive: us(70),
            start,
            first_byte: is_whole.then_some(start + us(500)),
            lookup: us(100),
            status: Status::Ok,
            fields: form.response_fields().iter().map(|it| response_field(head, it)).collect(),
            bytes: 1234,
            is_file: true,
            times: ReadTimes {
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
        };
        let ending = Ending {
            at: start + us(1500),
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_433_400_250),
            end: "sent",
            is_whole,
            ends: Ends {
                client: ClientAddress::Ip("192.0.2.7".parse().unwrap()),
                local: Some("[2001:db8::1]:8080".parse().unwrap()),
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
        line.append_to(&mut out, form, &ending);
        String::from_utf8(out).unwrap()
    }

    const REQUEST: &str =
        "GET /a?b HTTP/1.1\r\nHost: x\r\nReferer: http://e/\r\nUser-Agent: w\"o\\\r\n\r\n";

    #[test]
    fn the_combined_form_is_apache_s() {
        assert_eq!(
            written(REQUEST, "combined", true),
            "192.0.2.7 - - [23/Nov/2026:11:30:00 +0000] \"GET /a?b HTTP/1.1\" 200 1234 \"http://e/\" \
             \"w\\x22o\\x5C\"\n"
        );
        assert!(written(REQUEST, "combined", false).contains("\" 200 - \""));
        assert!(
            written("\x16\x03\u{1b}[31m\r\nGET / HTTP/1.1\r\n", "combined", true)
                .contains("\"\\x16\\x03\\x1B[31m\" 200 1234 \"-\" \"-\"\n")
        );
        assert_eq!(
            written("\r\nNO\u{1}SENSE\r\n\r\n", "combined", true),
            written("NO\u{1}SENSE\r\n\r\n", "combined", true)
        );
        let same =
            r#"%h %l %u %{end:[%d/%b/%Y:%T %z]}t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#;
        assert_eq!(written(REQUEST, same, true), written(REQUEST, "combined", true));
    }

    #[test]
    fn the_json_form_has_what_was_asked_and_who_served_it() {
        let line = written(REQUEST, "json", true);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let mut expected = serde_json::json!({
            "time": "2026-11-23T11:30:00.250Z", "client": "192.0.2.7", "method": "GET",
            "host": "x", "target": "/a?b", "version": "HTTP/1.1", "status": 200, "bytes": 1234, "whole": true,
            "ms": 1.5, "referer": "http://e/", "agent": "w\"o\\", "dispatch": "any", "worker": 3
        });
        assert_eq!(value, expected);
        assert_eq!(line.matches('\n').count(), 1);
        let line = written(REQUEST, "json-stages", true);
        let stages = serde_json::json!({
            "lookup": 0.1, "queue": 0.02, "read": 0.3, "return": 0.004, "send": 1.076
        });
        expected["stages_ms"] = stages;
        expected["reader"] = "some".into();
        expected["reads"] = 2.into();
        expected["end"] = "sent".into();
        expected["receive_ms"] = 0.07.into();
        expected["first_byte_ms"] = 0.5.into();
        expected["accept"] = "shared".into();
        expected["files"] = "auto".into();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), expected);
    }

    /// Whatever a client has sent, in every form: a line is one line, and nothing in it steers a terminal.
    mod escapes {
        use proptest::prelude::*;

        use super::*;
        use crate::log::json_text::tests::{read, texts};

        proptest! {
            #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

            #[test]
            fn what_a_client_has_sent_ends_no_line_and_steers_no_terminal(
                first in texts(), agent in texts(), user in texts(),
            ) {
                let written = |form: &str| {
                    let asked = LoggedRequest {
                        target: first.clone().into_bytes(),
                        host: Some(agent.clone().into_bytes()),
                        fields: vec![agent.clone().into_bytes(); 2],
                        ..LoggedRequest::default()
                    };
                    line_of(asked.of_user(Some(user.as_bytes())), &Form::parse(form).unwrap(), true)
                };
                for form in ["json", "json-stages"] {
                    let line = written(form);
                    let value = read(line.strip_suffix('\n').unwrap());
                    let found = ["target", "host", "referer", "agent", "user"].map(|key| &value[key]);
                    prop_assert_eq!(found, [&first, &agent, &agent, &agent, &user]);
                }
                for form in ["combined", "%r %m %U %q %u %{A}i %{B}i %v"] {
                    let line = written(form);
                    let is_plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
                    prop_assert!(line.strip_suffix('\n').unwrap().bytes().all(is_plain), "{:?}", line);
                }
            }
        }
    }

    #[test]
    fn a_format_of_one_s_own_has_what_its_directives_say() {
        for (format, expected) in [
            ("%a|%A|%p|%k|%X|%l|%u", "192.0.2.7|2001:db8::1|8080|7|+|-|-"),
            ("%m|%U|%q|%H|%s|%b|%B", "GET|/a|?b|HTTP/1.1|200|1234|1234"),
            ("%D|%T|%{ms}T|%{us}T|%{s}T", "1500|0|1|1500|0"),
            (
                "%t|%{%F %T}t|%{msec}t",
                "[23/Nov/2026:11:30:00 +0000]|2026-11-23 11:30:00|1795433400248",
            ),
            ("%{user-agent}i|%{X-None}i", "w\\x22o\\x5C|-"),
            ("%{etag}o|%{Vary}o|%{X-None}o", "\\x22t\\x22|a, b|-"),
            ("%{mechanism}x|%{worker}x|%{end}x|%{reader}x|%{reads}x", "any|3|sent|some|2"),
            ("%{lookup}x+%{queue}x+%{read}x+%{return}x+%{send}x", "100+20+300+4+1076"),
            ("%{longest}x%%", "280%"),
            ("%{accept}x|%{files}x|%{receive}x|%{first-byte}x", "shared|auto|70|500"),
        ] {
            assert_eq!(written(REQUEST, format, true), format!("{expected}\n"), "{format}");
        }
        assert_eq!(written(REQUEST, "%b %B %X %{first-byte}x", false), "- - X -\n");
        assert_eq!(written("NO\x01\r\n", "\"%r\" %m %U%q %H", true), "\"NO\\x01\" - NO\\x01 -\n");
        assert_eq!(written(REQUEST, "%P", true), format!("{}\n", std::process::id()));
    }
}

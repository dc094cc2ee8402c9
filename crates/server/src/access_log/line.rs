//! A line of the access log.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use drover_mech::fileio::ReadTimes;
use serde::Serialize;

use super::LoggedConnection;
use super::clock::combined;
use super::format::{Form, LogPart, OwnValue, TlsValue};
use crate::exchange::{Exchange, RequestFacts, ResponseWay};
use crate::hosts::NamedSites;
use crate::log::json_text;
use crate::proxies::client::ClientAddress;

/// What a line is made of.
pub(super) struct LogLine<'l> {
    exchange: &'l Exchange,
    asked: &'l RequestFacts,
    way: &'l ResponseWay,
    ending: &'l Ending<'l>,
}

/// How a response has ended.
pub(super) struct Ending<'l> {
    /// When it had left, by both clocks.
    pub(super) at: Instant,
    pub(super) time: SystemTime,
    /// A word for how.
    pub(super) end: &'static str,
    pub(super) is_whole: bool,
    pub(super) connection: LoggedConnection,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<JsonTls>,
    #[serde(flatten)]
    stages: Option<JsonStages>,
}

/// What a line in JSON has of the handshake of its connection.
#[derive(Serialize)]
struct JsonTls {
    version: &'static str,
    cipher: &'static str,
    resumed: bool,
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

/// What is known of a request if nobody has taken anything down.
static NOTHING: RequestFacts = RequestFacts {
    method: String::new(),
    host: None,
    target: Vec::new(),
    version: "",
    fields: Vec::new(),
};

impl<'l> LogLine<'l> {
    pub(super) fn new(exchange: &'l Exchange, ending: &'l Ending<'l>) -> LogLine<'l> {
        let asked = exchange.asked.as_deref().unwrap_or(&NOTHING);
        LogLine { exchange, asked, way: &exchange.way, ending }
    }

    /// Appends the line, with its end.
    pub(super) fn append_to(&self, out: &mut Vec<u8>, form: &Form) {
        // Memory takes everything.
        let _ = match form {
            Form::Combined => self.append_combined(out),
            Form::Json { stages } => self.append_json(out, *stages),
            Form::Custom(format) => {
                format.parts.iter().try_for_each(|part| self.append_part(out, part))
            }
        };
        out.push(b'\n');
    }

    /// How long the response took, from the request to its end.
    fn took(&self) -> Duration {
        let start = self.way.start.unwrap_or(self.ending.at);
        self.ending.at.saturating_duration_since(start)
    }

    /// How long it took from the request to the first byte that the kernel took; `None`: it took none.
    fn first_byte(&self) -> Option<Duration> {
        Some(self.way.first_byte?.saturating_duration_since(self.way.start?))
    }

    /// How long the response was on its way to the socket: the time that no other stage has.
    fn send(&self) -> Duration {
        let ReadTimes { queue, read, back, .. } = self.way.reads;
        self.took().saturating_sub(self.way.lookup + queue + read + back)
    }

    /// Who has read the file.
    fn reader(&self) -> &'static str {
        match self.way.reads.backend {
            Some(name) => name,
            None if self.way.is_file => self.ending.by.sends,
            None => "memory",
        }
    }

    fn append_json(&self, out: &mut Vec<u8>, stages: bool) -> io::Result<()> {
        let LogLine { asked, way, ending, exchange } = self;
        let by = ending.by;
        let stages = stages.then(|| JsonStages {
            stages_ms: StagesMillis {
                lookup: millis(way.lookup),
                queue: millis(way.reads.queue),
                read: millis(way.reads.read),
                r#return: millis(way.reads.back),
                send: millis(self.send()),
            },
            reader: self.reader(),
            reads: way.reads.reads,
            end: ending.end,
            receive_ms: millis(way.receive),
            first_byte_ms: self.first_byte().map(millis),
            accept: by.accept,
            files: by.files,
        });
        let line = Json {
            time: humantime::format_rfc3339_millis(ending.time).to_string(),
            client: match self.client() {
                ClientAddress::Unknown => None,
                known => Some(known.to_string()),
            },
            user: exchange.user.as_deref().map(String::from_utf8_lossy),
            method: &asked.method,
            host: asked.host.as_deref().map(String::from_utf8_lossy),
            site: self.site(),
            target: String::from_utf8_lossy(&asked.target),
            version: asked.version,
            status: exchange.status.code(),
            bytes: way.content_len,
            whole: ending.is_whole,
            ms: millis(self.took()),
            referer: String::from_utf8_lossy(asked.field(0)),
            agent: String::from_utf8_lossy(asked.field(1)),
            dispatch: by.mechanism,
            worker: by.worker,
            tls: ending.connection.tls.map(|facts| JsonTls {
                version: facts.version,
                cipher: facts.suite,
                resumed: facts.is_resumed,
            }),
            stages,
        };
        json_text::write(out, &line)
    }

    fn client(&self) -> ClientAddress {
        self.exchange.named.map_or(self.exchange.client, ClientAddress::Ip)
    }

    /// The name of the host's site, if the form has it.
    fn site(&self) -> Option<&str> {
        self.ending.by.sites.as_ref()?.find(self.asked.host.as_deref()?)
    }

    /// Appends the user. A blank would end the field.
    fn append_user(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(user) = &self.exchange.user else { return out.write_all(b"-") };
        user.split(|byte| *byte == b' ').enumerate().try_for_each(|(number, word)| {
            out.extend_from_slice(if number > 0 { b"\\x20" } else { b"" });
            push_escaped(out, word)
        })
    }

    fn append_combined(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let ending = self.ending;
        write!(out, "{} - ", self.client())?;
        self.append_user(out)?;
        write!(out, " [{}] \"", combined(ending.time))?;
        push_escaped(out, &self.asked.line())?;
        // How many bytes of a response that was cut have arrived is not known.
        match ending.is_whole {
            true => write!(out, "\" {} {} \"", self.exchange.status.code(), self.way.content_len)?,
            false => write!(out, "\" {} - \"", self.exchange.status.code())?,
        }
        push_or_dash(out, self.asked.field(0))?;
        out.extend_from_slice(b"\" \"");
        push_or_dash(out, self.asked.field(1))?;
        out.write_all(b"\"")
    }

    fn append_part(&self, out: &mut Vec<u8>, part: &LogPart) -> io::Result<()> {
        let LogLine { asked, way, ending, exchange } = self;
        let took = self.took();
        let begun = ending.time.checked_sub(took).unwrap_or(ending.time);
        let (path, query) = asked.path_and_query();
        match part {
            LogPart::Text(text) => out.write_all(text),
            LogPart::Client => write!(out, "{}", self.client()),
            LogPart::LocalAddress => push_address(out, ending.connection.local),
            LogPart::LocalPort => match ending.connection.local {
                Some(local) => write!(out, "{}", local.port()),
                None => out.write_all(b"-"),
            },
            LogPart::Bytes { .. } if !ending.is_whole => out.write_all(b"-"),
            LogPart::Bytes { none } if way.content_len == 0 => out.write_all(none.as_bytes()),
            LogPart::Bytes { .. } => write!(out, "{}", way.content_len),
            LogPart::Took { micros } => write!(out, "{}", took.as_micros() / micros),
            LogPart::Version => push_or_dash(out, asked.version.as_bytes()),
            LogPart::EarlierRequests => write!(out, "{}", way.earlier),
            LogPart::Nobody => out.write_all(b"-"),
            LogPart::User => self.append_user(out),
            LogPart::Site => push_or_dash(out, self.site().unwrap_or_default().as_bytes()),
            LogPart::Method => push_or_dash(out, asked.method.as_bytes()),
            LogPart::Process => write!(out, "{}", std::process::id()),
            LogPart::Query => push_escaped(out, query),
            LogPart::RequestLine => push_escaped(out, &asked.line()),
            LogPart::Status => write!(out, "{}", exchange.status.code()),
            LogPart::Time => write!(out, "[{}]", combined(begun)),
            LogPart::Clock(format) => {
                format.append_to(out, if format.is_of_end { ending.time } else { begun })
            }
            LogPart::Path => push_or_dash(out, path),
            LogPart::Persistence => out.write_all(match (ending.is_whole, way.persists) {
                (false, _) => b"X",
                (true, true) => b"+",
                (true, false) => b"-",
            }),
            LogPart::RequestField(number) => push_or_dash(out, asked.field(*number)),
            LogPart::ResponseField(name) => push_or_dash(out, &exchange.response_field(name)),
            LogPart::Own(value) => self.append_own(out, *value),
            LogPart::Tls(value) => self.append_tls(out, *value),
        }
    }

    /// Appends what the connection's handshake has agreed upon.
    fn append_tls(&self, out: &mut Vec<u8>, value: TlsValue) -> io::Result<()> {
        let Some(facts) = self.ending.connection.tls else { return out.write_all(b"-") };
        out.write_all(match value {
            TlsValue::Version => facts.version.as_bytes(),
            TlsValue::Cipher => facts.suite.as_bytes(),
            TlsValue::Resumed if facts.is_resumed => b"Resumed",
            TlsValue::Resumed => b"Initial",
        })
    }

    /// Appends a value that Apache's httpd does not have; times are microseconds.
    fn append_own(&self, out: &mut Vec<u8>, value: OwnValue) -> io::Result<()> {
        let LogLine { way, ending, .. } = self;
        let time = match value {
            OwnValue::Mechanism => return out.write_all(ending.by.mechanism.as_bytes()),
            OwnValue::Accept => return out.write_all(ending.by.accept.as_bytes()),
            OwnValue::Files => return out.write_all(ending.by.files.as_bytes()),
            OwnValue::Worker => return write!(out, "{}", ending.by.worker),
            OwnValue::End => return out.write_all(ending.end.as_bytes()),
            OwnValue::Reader => return out.write_all(self.reader().as_bytes()),
            OwnValue::Reads => return write!(out, "{}", way.reads.reads),
            OwnValue::Receive => way.receive,
            OwnValue::FirstByte => match self.first_byte() {
                Some(time) => time,
                None => return out.write_all(b"-"),
            },
            OwnValue::Lookup => way.lookup,
            OwnValue::Queue => way.reads.queue,
            OwnValue::Read => way.reads.read,
            OwnValue::Return => way.reads.back,
            OwnValue::Send => self.send(),
            OwnValue::Longest => way.reads.longest,
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
    use crate::access_log::sample::{facts_of, line_of};
    use drover_http1::FieldList;

    fn fields() -> FieldList {
        [("ETag", &b"\"t\""[..]), ("Vary", b"a"), ("vary", b"b")].into_iter().collect()
    }

    fn written(input: &str, form: &str, is_whole: bool) -> String {
        let form = Form::parse(form).unwrap();
        line_of(facts_of(input.as_bytes(), &form), None, &form, fields(), is_whole)
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
            "ms": 1.5, "referer": "http://e/", "agent": "w\"o\\", "dispatch": "any", "worker": 3,
            "tls": { "version": "TLSv1.3", "cipher": "TLS_AES_128_GCM_SHA256", "resumed": true }
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
                    let asked = RequestFacts {
                        target: first.clone().into_bytes(),
                        host: Some(agent.clone().into_bytes()),
                        fields: vec![agent.clone().into_bytes(); 2],
                        ..RequestFacts::default()
                    };
                    line_of(asked, Some(user.as_bytes()), &Form::parse(form).unwrap(), fields(), true)
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
            (
                "%{SSL_PROTOCOL}x|%{SSL_CIPHER}x|%{SSL_SESSION_RESUMED}x",
                "TLSv1.3|TLS_AES_128_GCM_SHA256|Resumed",
            ),
        ] {
            assert_eq!(written(REQUEST, format, true), format!("{expected}\n"), "{format}");
        }
        assert_eq!(written(REQUEST, "%b %B %X %{first-byte}x", false), "- - X -\n");
        assert_eq!(written("NO\x01\r\n", "\"%r\" %m %U%q %H", true), "\"NO\\x01\" - NO\\x01 -\n");
        assert_eq!(written(REQUEST, "%P", true), format!("{}\n", std::process::id()));
    }
}

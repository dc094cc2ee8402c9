//! The form of a line of the access log: one of those with a name, or a format string of Apache's `LogFormat`.

use std::iter::Peekable;
use std::str::CharIndices;
use std::sync::Arc;

use super::clock::ClockFormat;

/// The form of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// The combined log format of Apache's httpd, which nginx writes too and most tools read.
    #[default]
    Combined,
    /// An object of JSON; `stages`: with what the response waited for.
    Json {
        /// Whether the times of the stages are measured, and written.
        stages: bool,
    },
    /// A format of the user's own.
    Custom(Arc<LogFormat>),
}

/// What a format string says.
#[derive(Debug, PartialEq, Eq)]
pub struct LogFormat {
    pub(super) parts: Vec<LogPart>,
    /// The fields of requests that lines have, in the order of their numbers.
    request_fields: Vec<String>,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LogPart {
    Text(Vec<u8>),
    /// `%h`, `%a`
    Client,
    /// `%A`
    LocalAddress,
    /// `%p`
    LocalPort,
    /// `%b`, `%B`: the bytes of the body; what stands for none.
    Bytes {
        none: &'static str,
    },
    /// `%D`, `%T`, `%{UNIT}T`: the time that the response took, in units of so many microseconds.
    Took {
        micros: u128,
    },
    /// `%H`
    Version,
    /// `%k`
    EarlierRequests,
    /// `%l`: a name that nobody is asked for.
    Nobody,
    /// `%u`
    User,
    /// `%m`
    Method,
    /// `%P`
    Process,
    /// `%q`
    Query,
    /// `%r`
    RequestLine,
    /// `%s`
    Status,
    /// `%v`: the first name of the host's site.
    Site,
    /// `%t`
    Time,
    /// `%{FORMAT}t`
    Clock(ClockFormat),
    /// `%U`
    Path,
    /// `%X`
    Persistence,
    /// `%{FIELD}i`: the field of the request with this number.
    RequestField(usize),
    /// `%{FIELD}o`: the field of the response with this name.
    ResponseField(String),
    /// `%{NAME}x`
    Own(OwnValue),
    /// `%{SSL_NAME}x`
    Tls(TlsValue),
}

/// What a connection's handshake has agreed upon, by the names of Apache's mod_ssl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsValue {
    Version,
    Cipher,
    Resumed,
}

/// The names of mod_ssl for `%{NAME}x`.
const TLS_VALUES: &[(&str, TlsValue)] = &[
    ("SSL_PROTOCOL", TlsValue::Version),
    ("SSL_CIPHER", TlsValue::Cipher),
    ("SSL_SESSION_RESUMED", TlsValue::Resumed),
];

/// A value that Apache's httpd does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnValue {
    Mechanism,
    Accept,
    Files,
    Worker,
    End,
    Receive,
    FirstByte,
    Lookup,
    Queue,
    Read,
    Return,
    Send,
    Reader,
    Reads,
    Longest,
}

/// The names for `%{NAME}x`.
const OWN_VALUES: &[(&str, OwnValue)] = &[
    ("mechanism", OwnValue::Mechanism),
    ("accept", OwnValue::Accept),
    ("files", OwnValue::Files),
    ("worker", OwnValue::Worker),
    ("end", OwnValue::End),
    ("receive", OwnValue::Receive),
    ("first-byte", OwnValue::FirstByte),
    ("lookup", OwnValue::Lookup),
    ("queue", OwnValue::Queue),
    ("read", OwnValue::Read),
    ("return", OwnValue::Return),
    ("send", OwnValue::Send),
    ("reader", OwnValue::Reader),
    ("reads", OwnValue::Reads),
    ("longest", OwnValue::Longest),
];

/// The units of `%{UNIT}T`, in microseconds.
const UNITS: &[(&str, u128)] = &[("s", 1_000_000), ("ms", 1_000), ("us", 1)];

/// All directives, for messages.
const DIRECTIVES: &str = "%% %a %A %b %B %D %h %H %{FIELD}i %k %l %m %{FIELD}o %p %P %q %r %s %t \
                          %{FORMAT}t %T %{UNIT}T %u %U %v %{NAME}x %X";

impl OwnValue {
    /// Whether the value is known only if reads of files are timed.
    fn is_of_a_stage(self) -> bool {
        use OwnValue::{Longest, Queue, Read, Reader, Reads, Return, Send};
        matches!(self, Queue | Read | Return | Send | Reader | Reads | Longest)
    }
}

impl Form {
    /// Reads the value of `--log-format`.
    ///
    /// # Errors
    /// What is wrong, with its position, and what is right.
    pub fn parse(text: &str) -> Result<Form, String> {
        match text {
            "combined" => Ok(Form::Combined),
            "json" => Ok(Form::Json { stages: false }),
            "json-stages" => Ok(Form::Json { stages: true }),
            format if format.contains('%') => Ok(Form::Custom(Arc::new(LogFormat::parse(format)?))),
            _ => Err("write combined, json, json-stages, or a format such as '%h %t \"%r\" %s %b'"
                .to_owned()),
        }
    }

    /// Whether reads of files are to be timed.
    pub(crate) fn has_stages(&self) -> bool {
        match self {
            Form::Combined => false,
            Form::Json { stages } => *stages,
            Form::Custom(format) => format
                .parts
                .iter()
                .any(|part| matches!(part, LogPart::Own(value) if value.is_of_a_stage())),
        }
    }

    /// Whether lines have the address that a client has connected to.
    pub(super) fn has_local_address(&self) -> bool {
        let is_it = |part: &LogPart| matches!(part, LogPart::LocalAddress | LogPart::LocalPort);
        matches!(self, Form::Custom(format) if format.parts.iter().any(is_it))
    }

    /// Whether lines have what the connection's handshake has agreed upon.
    pub(super) fn has_tls(&self) -> bool {
        match self {
            Form::Combined => false,
            Form::Json { .. } => true,
            Form::Custom(format) => format.parts.iter().any(|part| matches!(part, LogPart::Tls(_))),
        }
    }

    /// Whether lines have the site that a request is for.
    pub(crate) fn has_site(&self) -> bool {
        match self {
            Form::Combined => false,
            Form::Json { .. } => true,
            Form::Custom(format) => format.parts.contains(&LogPart::Site),
        }
    }

    /// The fields of requests that lines have.
    pub(super) fn request_fields(&self) -> impl Iterator<Item = &str> {
        const NAMED: [&str; 2] = ["Referer", "User-Agent"];
        let (own, named) = match self {
            Form::Custom(format) => (&format.request_fields[..], &[][..]),
            Form::Combined | Form::Json { .. } => (&[][..], &NAMED[..]),
        };
        own.iter().map(String::as_str).chain(named.iter().copied())
    }

    /// Whether lines have fields of responses.
    pub(super) fn has_response_fields(&self) -> bool {
        let is_it = |part: &LogPart| matches!(part, LogPart::ResponseField(_));
        matches!(self, Form::Custom(format) if format.parts.iter().any(is_it))
    }
}

impl LogFormat {
    fn parse(text: &str) -> Result<LogFormat, String> {
        let mut format = LogFormat { parts: Vec::new(), request_fields: Vec::new() };
        let mut rest = text.char_indices().peekable();
        let mut literal = Vec::new();
        while let Some((at, letter)) = rest.next() {
            let escaped = match letter {
                // As Apache's httpd reads them.
                '\\' => rest.next_if(|(_, next)| "nt\"\\".contains(*next)),
                _ => None,
            };
            match (letter, escaped) {
                (_, Some((_, 'n'))) => literal.push(b'\n'),
                (_, Some((_, 't'))) => literal.push(b'\t'),
                (_, Some((_, other))) => push(&mut literal, other),
                ('%', _) => match format.directive(&mut rest).map_err(|reason| {
                    let column = text[..at].chars().count() + 1;
                    let end = rest.peek().map_or(text.len(), |(end, _)| *end);
                    format!("at character {column}, '{}': {reason}", &text[at..end])
                })? {
                    None => literal.push(b'%'),
                    Some(part) => {
                        format.parts.push(LogPart::Text(std::mem::take(&mut literal)));
                        format.parts.push(part);
                    }
                },
                (other, None) => push(&mut literal, other),
            }
        }
        format.parts.push(LogPart::Text(literal));
        format.parts.retain(|part| *part != LogPart::Text(Vec::new()));
        Ok(format)
    }

    /// Reads what follows a percent sign; `None`: another percent sign.
    fn directive(
        &mut self,
        rest: &mut Peekable<CharIndices<'_>>,
    ) -> Result<Option<LogPart>, String> {
        // The status of the first or the last of several requests inside the server: there is one.
        let _ = rest.next_if(|(_, letter)| "<>".contains(*letter));
        let mut argument = None;
        if rest.next_if(|(_, letter)| *letter == '{').is_some() {
            let mut text = String::new();
            loop {
                match rest.next() {
                    Some((_, '}')) => break,
                    Some((_, letter)) => text.push(letter),
                    None => return Err("the brace has no end".to_owned()),
                }
            }
            argument = Some(text);
        }
        let letter = rest.next().map(|(_, letter)| letter);
        Ok(Some(match (letter, argument) {
            (Some('%'), None) => return Ok(None),
            (Some('h' | 'a'), None) => LogPart::Client,
            (Some('A'), None) => LogPart::LocalAddress,
            (Some('p'), None) => LogPart::LocalPort,
            (Some('b'), None) => LogPart::Bytes { none: "-" },
            (Some('B'), None) => LogPart::Bytes { none: "0" },
            (Some('D'), None) => LogPart::Took { micros: 1 },
            (Some('T'), None) => LogPart::Took { micros: 1_000_000 },
            (Some('T'), Some(unit)) => LogPart::Took { micros: one_of(UNITS, &unit)? },
            (Some('H'), None) => LogPart::Version,
            (Some('k'), None) => LogPart::EarlierRequests,
            (Some('l'), None) => LogPart::Nobody,
            (Some('u'), None) => LogPart::User,
            (Some('m'), None) => LogPart::Method,
            (Some('P'), None) => LogPart::Process,
            (Some('q'), None) => LogPart::Query,
            (Some('r'), None) => LogPart::RequestLine,
            (Some('s'), None) => LogPart::Status,
            (Some('t'), None) => LogPart::Time,
            (Some('t'), Some(format)) => LogPart::Clock(ClockFormat::parse(&format)?),
            (Some('U'), None) => LogPart::Path,
            (Some('v'), None) => LogPart::Site,
            (Some('X'), None) => LogPart::Persistence,
            (Some('i'), Some(name)) => {
                LogPart::RequestField(number_of(&mut self.request_fields, name)?)
            }
            (Some('o'), Some(name)) => LogPart::ResponseField(field_name(name)?),
            (Some('x'), Some(name)) => own_value(&name)?,
            _ => return Err(format!("there are {DIRECTIVES}")),
        }))
    }
}

fn push(bytes: &mut Vec<u8>, letter: char) {
    bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
}

/// The value of `%{NAME}x`.
fn own_value(name: &str) -> Result<LogPart, String> {
    let own = OWN_VALUES.iter().map(|(name, value)| (*name, LogPart::Own(*value)));
    let of_tls = TLS_VALUES.iter().map(|(name, value)| (*name, LogPart::Tls(*value)));
    let known: Vec<_> = own.chain(of_tls).collect();
    one_of(&known, name)
}

/// The value with a name.
fn one_of<T: Clone>(known: &[(&str, T)], name: &str) -> Result<T, String> {
    let found = known.iter().find(|(it, _)| *it == name).map(|(_, value)| value.clone());
    found.ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("in the braces stands one of {}", names.join(", "))
    })
}

/// The number of a field, which is added to `fields`.
fn number_of(fields: &mut Vec<String>, name: String) -> Result<usize, String> {
    fields.push(field_name(name)?);
    Ok(fields.len() - 1)
}

/// The name of a field.
fn field_name(name: String) -> Result<String, String> {
    if name.is_empty() {
        return Err("in the braces stands the name of a field, as in %{User-Agent}i".to_owned());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<LogPart> {
        LogFormat::parse(text).unwrap().parts
    }

    #[test]
    fn a_format_is_text_and_directives() {
        let text = |text: &str| LogPart::Text(text.into());
        assert_eq!(
            parts(r#"%h %>s "%r"%%\t\q"#),
            [
                LogPart::Client,
                text(" "),
                LogPart::Status,
                text(" \""),
                LogPart::RequestLine,
                text("\"%\t\\q"),
            ]
        );
        let format = LogFormat::parse("%{Host}i%{ETag}o%{Accept}i").unwrap();
        assert_eq!(
            format.parts,
            [
                LogPart::RequestField(0),
                LogPart::ResponseField("ETag".into()),
                LogPart::RequestField(1)
            ]
        );
        assert_eq!(format.request_fields, ["Host", "Accept"]);
    }

    #[test]
    fn every_directive_that_messages_list_is_known() {
        for directive in DIRECTIVES.split(' ') {
            let known = directive
                .replace("FIELD", "Host")
                .replace("FORMAT", "%F")
                .replace("UNIT", "ms")
                .replace("NAME", "worker");
            assert!(LogFormat::parse(&known).is_ok(), "{directive}");
        }
    }

    #[test]
    fn a_fault_is_told_with_its_position_and_what_is_right() {
        for (format, words) in [
            ("%h %Z", "at character 4, '%Z'|%{FIELD}i"),
            ("ä%{x}h", "at character 2, '%{x}h'|%{FIELD}i"),
            ("%h %", "at character 4, '%'|%h"),
            ("%{User-Agent", "at character 1|no end"),
            ("%{User-Agent}", "at character 1|%{FIELD}i"),
            ("%i", "at character 1, '%i'|%{FIELD}i"),
            ("%{}i", "the name of a field"),
            ("%{turtles}x", "mechanism, accept|, SSL_PROTOCOL, "),
            ("%{ssl_protocol}x", "SSL_PROTOCOL"),
            ("%{min}T", "s, ms, us"),
            ("%{%Q}t", "%Y"),
            ("common", "combined, json"),
        ] {
            let told = Form::parse(format).unwrap_err();
            assert!(words.split('|').all(|word| told.contains(word)), "{format}: {told}");
        }
    }

    #[test]
    fn only_forms_with_stages_have_reads_timed() {
        for (form, has) in [
            ("combined", false),
            ("json", false),
            ("json-stages", true),
            (
                "%{mechanism}x %{accept}x %{files}x %{worker}x %{end}x %{receive}x %{lookup}x %{first-byte}x %D",
                false,
            ),
            ("%{reader}x", true),
            ("%{send}x", true),
        ] {
            assert_eq!(Form::parse(form).unwrap().has_stages(), has, "{form}");
        }
    }
}

//! Whatever a client sends, a line of the access log is one line of plain ASCII, or of JSON that no terminal obeys, and says
//! again what was sent. A format of one's own has in its lines no control byte that is not in the format.
//!
//! The first line of an input is a format, the second one a user, the rest is what a client sends.
#![no_main]

use drover_http1::{FieldList, HeadLimits, request};
use drover_server::{AccessLogForm, fuzzing};
use libfuzzer_sys::fuzz_target;

/// Those of the response.
fn fields() -> FieldList {
    [("ETag", &b"\"t\""[..])].into_iter().collect()
}

/// What stands for `\xHH`, and all other bytes as they are.
fn unescaped(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).expect("two digits"));
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    bytes
}

/// The fields of one name in one line.
fn field(request: &request::Request<'_>, wanted: &str) -> Vec<u8> {
    let fields = request.fields().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
    fields.map(|(_, value)| value).collect::<Vec<_>>().join(&b", "[..])
}

fuzz_target!(|input: &[u8]| {
    let mut lines = input.splitn(3, |byte| *byte == b'\n');
    let [format, user, sent] = [(); 3].map(|()| lines.next().unwrap_or_default());
    let user = (!user.is_empty()).then_some(user);
    let form = |name: &str| AccessLogForm::parse(name);
    let written = |form: &AccessLogForm| fuzzing::log_line(form, sent, user, fields());
    let limits = HeadLimits::default();
    let request = request::parse(sent, &limits).ok().flatten();

    let line = written(&form("combined").expect("it is a form"));
    let line = line.strip_suffix('\n').expect("a line has an end");
    assert!(line.chars().all(|it| (' '..='~').contains(&it)), "{line:?}");
    let parts: Vec<&str> = line.split('"').collect();
    assert_eq!(parts.len(), 7, "{line}");
    assert_eq!(parts[0].split(' ').count(), 6, "{line}");
    let told = parts[0].split(' ').nth(2).map(unescaped);
    assert_eq!(told.as_deref(), Some(user.unwrap_or(b"-")));
    let or_dash = |text: Vec<u8>| if text.is_empty() { b"-".to_vec() } else { text };
    if let Some(request) = &request {
        let version = if request.version == drover_http1::Version::Http10 { "1.0" } else { "1.1" };
        let asked =
            [request.method_text().as_bytes(), b" ", request.target, b" HTTP/", version.as_bytes()];
        assert_eq!(unescaped(parts[1]), asked.concat());
        assert_eq!(unescaped(parts[3]), or_dash(field(request, "referer")));
        assert_eq!(unescaped(parts[5]), or_dash(field(request, "user-agent")));
    }

    for name in ["json", "json-stages"] {
        let line = written(&form(name).expect("it is a form"));
        let line = line.strip_suffix('\n').expect("a line has an end");
        let is_bidirectional = |it: char| matches!(it, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        assert!(!line.chars().any(|it| it.is_control() || is_bidirectional(it)), "{line:?}");
        let value: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
        let text =
            |bytes: &[u8]| serde_json::Value::from(String::from_utf8_lossy(bytes).into_owned());
        assert_eq!(value.get("user").cloned(), user.map(text));
        if let Some(request) = &request {
            assert_eq!(value["method"], text(request.method_text().as_bytes()));
            assert_eq!(value["target"], text(request.target));
            assert_eq!(value.get("host").cloned(), request.host.map(text));
            assert_eq!(value["referer"], text(&field(request, "referer")));
            assert_eq!(value["agent"], text(&field(request, "user-agent")));
        }
    }

    let Ok(own) = form(&String::from_utf8_lossy(format)) else { return };
    let controls = |line: String| line.chars().filter(|it| it.is_control()).collect::<String>();
    let harmless = fuzzing::log_line(&own, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", None, fields());
    assert_eq!(controls(written(&own)), controls(harmless));
});

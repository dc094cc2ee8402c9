//! A second opinion on what `drover load` sends: it is one request, whoever reads it.

use drover_http1::{HeadLimits, request};
use drover_load::plan::request::RequestTemplate;

/// Fails unless the bytes of a request are a head whose lines are whole and a body of the length that the head says.
pub fn is_one_request(request: &RequestTemplate) {
    let bytes = request.bytes();
    let shown = bytes.escape_ascii();
    let body = &request.content.body;
    let head = bytes.strip_suffix(&body[..]).expect("the body is at the end");
    let lines =
        head.strip_suffix(b"\r\n\r\n").unwrap_or_else(|| panic!("no end of the head: {shown}"));
    let lines = String::from_utf8(lines.to_vec()).unwrap_or_else(|_| panic!("no text: {shown}"));
    let mut lines = lines.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    assert!(words.len() == 3 && words[2] == "HTTP/1.1" && !words[1].is_empty(), "{shown}");
    let (mut hosts, mut lengths) = (0, Vec::new());
    // Whoever names a host may name any.
    let mut named = words.join(" ") + "\r\n";
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no field: {shown}"));
        assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()), "{shown}");
        assert!(!value.contains(['\r', '\n', '\0']), "{shown}");
        let is_host = name.eq_ignore_ascii_case("host");
        named += &if is_host { "Host: a\r\n".to_owned() } else { format!("{line}\r\n") };
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts += 1,
            "content-length" => lengths.push(value.trim()),
            "transfer-encoding" => panic!("another length: {shown}"),
            _ => {}
        }
    }
    assert!(lengths.iter().all(|it| *it == body.len().to_string()), "{shown}");
    assert!(!lengths.is_empty() || body.is_empty(), "{shown}");
    // Whom a command tells to leave out the host, or to send two, does so.
    if hosts == 1 {
        named += "\r\n";
        let limits = HeadLimits { line: named.len() + 1, head: named.len() + 1, fields: 100 };
        let parsed = request::parse(named.as_bytes(), &limits);
        let parsed = parsed.unwrap_or_else(|refusal| panic!("{refusal:?}: {shown}"));
        assert_eq!(parsed.expect("the head is whole").head.len(), named.len(), "{shown}");
    }
}

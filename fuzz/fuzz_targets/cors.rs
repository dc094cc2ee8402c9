//! A page of another site may read a response if its origin stands in the list, byte for byte, and nothing that a client sends is
//! repeated otherwise.
//!
//! The first line of an input has the origins, with blanks between them; the rest are fields.
#![no_main]

use drover_http1::{HeadLimits, request};
use drover_server::{AllowedOrigin, Cors, fuzzing};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let line_end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (origins, fields) = input.split_at(line_end);
    let Ok(origins) = std::str::from_utf8(origins) else { return };
    let allowed: Vec<AllowedOrigin> = origins.split(' ').filter_map(|it| it.parse().ok()).collect();
    let Some(cors) = Cors::new(&allowed) else { return assert!(allowed.is_empty()) };
    let mut head = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
    for line in fields.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        head.extend_from_slice(&[line, b"\r\n"].concat());
    }
    head.extend_from_slice(b"\r\n");
    let Ok(Some(request)) = request::parse(&head, &HeadLimits::default()) else { return };
    let (all, own, is_granted) = fuzzing::cors_lines(&cors, &request);

    let text = std::str::from_utf8(&all).expect("origins are text");
    assert!(
        text.ends_with("\r\n")
            && text.replace("\r\n", "").chars().all(|it| (' '..='~').contains(&it))
    );
    assert!(all.ends_with(&own));
    let origin = |allowed: &AllowedOrigin| match allowed {
        AllowedOrigin::Any => "*".to_owned(),
        AllowedOrigin::One(origin) => origin.clone(),
    };
    let list: Vec<String> = allowed.iter().map(origin).collect();
    let lines = text.lines().filter_map(|line| line.strip_prefix("Access-Control-Allow-Origin: "));
    let granted: Vec<&str> = lines.collect();
    let is_origin = |(name, _): &(&str, &[u8])| name.eq_ignore_ascii_case("origin");
    let asked = request.fields().find(is_origin).map(|(_, value)| value);
    let is_any = list.iter().any(|it| it == "*");
    let is_listed = list.iter().any(|it| Some(it.as_bytes()) == asked);
    match (is_any, is_listed) {
        (true, _) => assert!(granted == ["*"] && own.is_empty()),
        (false, true) => {
            assert_eq!(granted.iter().map(|it| it.as_bytes()).collect::<Vec<_>>(), [asked.unwrap()])
        }
        (false, false) => assert!(granted.is_empty() && own.is_empty()),
    }
    assert!(is_any || text.starts_with("Vary: Origin\r\n"));
    let is_preflight = request
        .fields()
        .any(|(name, _)| name.eq_ignore_ascii_case("access-control-request-method"));
    assert_eq!(is_granted, is_preflight && asked.is_some() && (is_any || is_listed));
});

//! A prefix of a request is incomplete or gives the answer of the whole; an accepted head ends with
//! its empty line, keeps the limits and has no line that ends with a lone LF.
#![no_main]

use drover_http1::{HeadLimits, request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, u8, &[u8])| {
    let (line, head, fields, input) = input;
    let [line, head, fields] = [line, head, fields].map(usize::from);
    let limits = HeadLimits { line, head: 2 * head, fields };
    let whole = request::parse(input, &limits);
    for end in 0..input.len().min(600) {
        let part = request::parse(&input[..end], &limits);
        assert!(part == Ok(None) || part == whole, "at {end}: {part:?}, not {whole:?}");
    }
    if let Ok(Some(request)) = whole {
        let head = request.head;
        assert!(input.starts_with(head));
        assert!(request.fields().count() <= limits.fields);
        assert!(request.fields().all(|(name, value)| name.len() + value.len() <= limits.line));
        assert!(head.len() <= limits.head && request.target.len() < limits.line);
        assert!(head.ends_with(b"\r\n\r\n"));
        for line in head.split_inclusive(|byte| *byte == b'\n') {
            assert!(line.ends_with(b"\r\n"));
        }
    }
});

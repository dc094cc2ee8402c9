//! What holds for every input: the parsers under cuts and noise, and writers against readers.

use drover_http1::chunked::Decoder;
use drover_http1::conditional::{
    self, Conditions, ETag, FileTimes, ListField, PreconditionOutcome, Validators,
};
use drover_http1::proxy_protocol::{self, MalformedProxyHeader, ProxyHeader, ProxySource};
use drover_http1::range::{self, Ranges};
use drover_http1::response::{self, BodyLength};
use drover_http1::response::{Common, ConnectionField, push_head};
use drover_http1::{FieldList, Framing, HeadLimits, Status, Version, date, path, request};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Byte strings that look enough like a message to get past the first line.
fn message(pieces: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let noise = vec(any::<u8>(), 0..3);
    let piece = select(pieces).prop_map(|piece| piece.as_bytes().to_vec());
    vec(prop_oneof![20 => piece, 1 => noise], 0..8).prop_map(|pieces| pieces.concat())
}

/// A start line, fields and an empty line, each of them possibly wrong or missing.
fn head(
    start_lines: &'static [&'static str],
    fields: &'static [&'static str],
) -> impl Strategy<Value = Vec<u8>> {
    let end = select(&["\r\n", "\r\n", "", "\n"][..]).prop_map(str::as_bytes);
    (select(start_lines), message(fields), end)
        .prop_map(|(start, fields, end)| [start.as_bytes(), &fields, end].concat())
}

/// A header of the PROXY protocol, with what it says.
fn proxy_header() -> impl Strategy<Value = (Vec<u8>, ProxySource)> {
    let line = any::<(std::net::SocketAddr, u16)>().prop_map(|(client, port)| {
        let (family, ip) = (if client.is_ipv4() { 4 } else { 6 }, client.ip());
        let line = format!("PROXY TCP{family} {ip} {ip} {} {port}\r\n", client.port());
        (line.into_bytes(), ProxySource::Ip(std::net::SocketAddr::new(ip, client.port())))
    });
    let binary = (any::<(std::net::SocketAddr, bool)>(), vec(any::<u8>(), 0..300));
    let binary = binary.prop_map(|((client, is_local), extensions)| {
        let (family, mut addresses) = match client.ip() {
            std::net::IpAddr::V4(ip) => (0x11, ip.octets().repeat(2)),
            std::net::IpAddr::V6(ip) => (0x21, ip.octets().repeat(2)),
        };
        addresses.extend([client.port().to_be_bytes(); 2].concat());
        addresses.extend(extensions);
        let fixed = [if is_local { 0x20 } else { 0x21 }, family];
        let len = (addresses.len() as u16).to_be_bytes();
        let source = match is_local {
            true => ProxySource::Peer,
            false => ProxySource::Ip(std::net::SocketAddr::new(client.ip(), client.port())),
        };
        ([b"\r\n\r\n\0\r\nQUIT\n", &fixed[..], &len, &addresses].concat(), source)
    });
    prop_oneof![line, binary]
}

fn request_bytes() -> impl Strategy<Value = Vec<u8>> {
    head(
        &[
            "GET / HTTP/1.0\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n",
            "\r\nHEAD /a?b HTTP/1.1\r\nHost: a\r\n",
            "GET http://b/c HTTP/1.1\r\nHost: a\r\n",
            "GET /a-long-target-of-many-bytes HTTP/1.0\r\n",
            "PRI * HTTP/2.0\r\n",
            "G\u{e9}T / HTTP/1.1\r\n",
            "",
        ],
        &[
            "X: y\r\n",
            "X: y\r\n",
            "Accept-Encoding: br\r\n",
            "If-None-Match: *\r\n",
            "Range: bytes=0-1\r\n",
            "Connection: close\r\n",
            "Host: a\r\n",
            "Content-Length: 3\r\n",
            "Content-Length: 0\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip\r\n",
            "Long: 0123456789012345678901234567890123456789\r\n",
            " folded\r\n",
            "\r\n",
            "\r",
        ],
    )
}

fn response_bytes() -> impl Strategy<Value = Vec<u8>> {
    // Up to a hundred fields are read in another way than more.
    let many = select(&[0, 0, 98, 101, 300][..]).prop_map(|count| b"a:\n".repeat(count));
    (response_head(), many).prop_map(|(mut head, many)| {
        let line = b"200 OK\r\n";
        if let Some(at) = head.windows(line.len()).position(|part| part == line) {
            head.splice(at + line.len()..at + line.len(), many);
        }
        head
    })
}

/// `input` with spaces in place of the line ends before white space.
fn unfolded(mut input: Vec<u8>) -> Vec<u8> {
    for at in 0..input.len().saturating_sub(2) {
        if let [b'\r', b'\n', b' ' | b'\t'] = input[at..at + 3] {
            input[at..at + 2].fill(b' ');
        }
    }
    input
}

fn response_head() -> impl Strategy<Value = Vec<u8>> {
    head(
        &[
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.0 304\r\n",
            "HTTP/1.1 100 Continue\r\n",
            "HTTP/1.1 999 None\r\n",
            "\r\nHTTP/1.7 200 OK\r\n",
            "HTTP/2 200\r\n",
            "",
        ],
        &[
            "X: y\r\n",
            "Server: z\r\n",
            "Content-Length: 3\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Connection: keep-alive\r\n",
            "Connection: close\r\n",
            " folded, close\r\n",
            "\t\r\n",
            "\r\n",
            "\r",
        ],
    )
}

fn chunked_bytes() -> impl Strategy<Value = Vec<u8>> {
    message(&["0", "2", "a", "F", ";x=y", "\r\n", "\r\n", "\r", "ab\r\n", "X: y", "0\r\n\r\n"])
}

/// Paths full of what paths can be attacked with.
fn path_bytes() -> impl Strategy<Value = Vec<u8>> {
    message(&[
        "/", "/", "..", ".", "%2e", "%2E", "%2f", "%5c", "\\", "a", "b", "%", "%00", "%61", "%25",
        "?", "#", "//", "/../", "\u{e9}", "%ff",
    ])
}

/// Relative names as the kernel would list them: no empty, dot or dot-dot segment.
fn file_name() -> impl Strategy<Value = Vec<u8>> {
    let byte = (1..=255u8).prop_filter("a slash ends a segment", |byte| *byte != b'/');
    let segment = vec(byte, 1..6)
        .prop_filter("dot segments are no names", |name| name != b"." && name != b"..");
    vec(segment, 1..4).prop_map(|segments| segments.join(&b'/'))
}

proptest! {
    #[test]
    fn a_request_s_prefix_is_incomplete_or_gives_the_same_answer(
        input in request_bytes(),
        line in 1..60usize,
        head in 1..200usize,
        fields in 0..6usize,
    ) {
        let limits = HeadLimits { line, head, fields };
        let whole = request::parse(&input, &limits);
        for end in 0..input.len() {
            let part = request::parse(&input[..end], &limits);
            prop_assert!(part == Ok(None) || part == whole, "at {end}: {part:?}, not {whole:?}");
        }
    }

    #[test]
    fn an_accepted_request_ends_with_its_empty_line_and_within_the_limits(
        input in request_bytes(),
    ) {
        let limits = HeadLimits::default();
        if let Ok(Some(request)) = request::parse(&input, &limits) {
            let head = request.head;
            prop_assert!(input.starts_with(head));
            prop_assert!(head.ends_with(b"\r\n\r\n"));
            prop_assert!(head.len() <= limits.head && request.target.len() < limits.line);
            prop_assert_ne!(request.framing, Framing::Length(0));
        }
    }

    #[test]
    fn an_accepted_request_has_the_method_and_the_fields_that_httparse_finds(
        input in request_bytes(),
    ) {
        if let Ok(Some(request)) = request::parse(&input, &HeadLimits::default()) {
            let mut room = [httparse::EMPTY_HEADER; 100];
            let mut head = httparse::Request::new(&mut room);
            prop_assert!(head.parse(&input).unwrap().is_complete());
            prop_assert_eq!(Some(request.method_text()), head.method);
            let fields: Vec<_> = request.fields().collect();
            let wanted: Vec<_> = head.headers.iter().map(|field| (field.name, field.value)).collect();
            prop_assert_eq!(fields, wanted);
        }
    }

    #[test]
    fn an_accepted_response_has_the_reason_and_the_fields_that_httparse_finds(
        input in response_bytes(),
    ) {
        if let Ok(Some(response)) = response::parse(&input, false) {
            let mut room = [httparse::EMPTY_HEADER; 1000];
            let mut head = httparse::Response::new(&mut room);
            let mut known = input.clone();
            if let Some(later) = known.windows(8).position(|part| part == b"HTTP/1.7") {
                known[later + 7] = b'1';
            }
            let mut config = httparse::ParserConfig::default();
            config.allow_obsolete_multiline_headers_in_responses(true);
            prop_assert!(config.parse_response(&mut head, &known).unwrap().is_complete());
            let reason = response.reason(&input).unwrap_or_default();
            // httparse leaves out a reason phrase that is not ASCII.
            prop_assert!(!reason.is_ascii() || Some(reason) == head.reason.map(str::as_bytes));
            let fields: Vec<_> = response.fields(&input).collect();
            let wanted: Vec<_> = head.headers.iter().map(|field| (field.name, field.value)).collect();
            prop_assert_eq!(fields, wanted);
        }
    }

    /// RFC 9112 section 5.2 has a user agent do so before it reads a field.
    #[test]
    fn a_folded_response_means_the_same_as_an_unfolded_one(input in response_bytes()) {
        if let Ok(Some(response)) = response::parse(&input, false) {
            let head = unfolded(input[..response.head_len].to_vec());
            prop_assert_eq!(response::parse(&head, false), Ok(Some(response)));
            let names = |bytes| response.fields(bytes).map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
            prop_assert_eq!(names(&head), names(&input));
        }
    }

    #[test]
    fn a_response_s_prefix_is_incomplete_or_gives_the_same_answer(
        input in response_bytes(),
        request_was_head: bool,
    ) {
        let whole = response::parse(&input, request_was_head);
        for end in 0..input.len() {
            let part = response::parse(&input[..end], request_was_head);
            prop_assert!(part == Ok(None) || part == whole, "at {end}: {part:?}, not {whole:?}");
        }
    }

    #[test]
    fn a_written_head_is_read_back(
        status in select(Status::ALL),
        length: u64,
        old: bool,
        persists: bool,
        was_head: bool,
        behind in vec(any::<u8>(), 0..20),
    ) {
        let version = if old { Version::Http10 } else { Version::Http11 };
        let common = Common {
            server: "drover",
            date: &date::format(0),
            connection: ConnectionField::new(version, persists),
        };
        let mut out = Vec::new();
        let mut fields = FieldList::default();
        push_head(&mut out, status, &common, fields.content_length(length));
        let head_len = out.len();
        out.extend(behind);
        let response = response::parse(&out, was_head).unwrap().unwrap();
        let bodiless = was_head || matches!(status, Status::Continue | Status::NoContent | Status::NotModified);
        prop_assert_eq!(response.status, status.code());
        prop_assert_eq!(response.head_len, head_len);
        prop_assert_eq!(response.body, if bodiless { BodyLength::None } else { BodyLength::Length(length) });
        prop_assert_eq!(response.keep_alive, persists);
    }

    #[test]
    fn a_resolved_name_stays_below_the_root(input in path_bytes()) {
        let mut name = Vec::new();
        if path::resolve(&input, &mut name).is_ok() && !name.is_empty() {
            prop_assert!(!name.contains(&0));
            for segment in name.split(|byte| *byte == b'/') {
                prop_assert!(!matches!(segment, b"" | b"." | b".."), "{name:?}");
            }
        }
    }

    #[test]
    fn the_location_of_a_directory_resolves_to_it(name in file_name(), query in "[a-z%=?]{0,9}") {
        let mut fields = FieldList::default();
        fields.directory_location(&name, Some(query.as_bytes()));
        let location = fields.values("Location").next().unwrap();
        let mut resolved_name = Vec::new();
        let resolved = path::resolve(location, &mut resolved_name).unwrap();
        prop_assert_eq!(resolved_name, name);
        prop_assert!(resolved.directory);
        prop_assert_eq!(resolved.query, Some(query.as_bytes()));
    }

    #[test]
    fn a_satisfiable_range_lies_within_the_length(
        value in "(bytes=)?[0-9,-]{0,24}",
        length: u64,
        short in 0..100u64,
    ) {
        for length in [length, short] {
            if let Ranges::Satisfiable(part) = range::parse(value.as_bytes(), length) {
                prop_assert!(part.start < part.end && part.end <= length);
            }
        }
    }

    #[test]
    fn several_ranges_are_apart_and_have_every_byte_that_was_asked_for(
        asked in prop::collection::vec((0..2000u64, 0..300u64), 2..20),
        length in 1..2000u64,
    ) {
        let texts: Vec<String> =
            asked.iter().map(|(start, more)| format!("{start}-{}", start + more)).collect();
        let found = match range::parse(format!("bytes={}", texts.join(",")).as_bytes(), length) {
            Ranges::Several(found) => found,
            Ranges::Satisfiable(only) => vec![only],
            Ranges::Ignore => vec![range::ByteRange { start: 0, end: length }],
            Ranges::Unsatisfiable => Vec::new(),
        };
        for (at, part) in found.iter().enumerate() {
            prop_assert!(part.start < part.end && part.end <= length);
            for other in &found[..at] {
                prop_assert!(part.end < other.start || other.end < part.start);
            }
        }
        for (start, more) in asked {
            for byte in (start..=start + more).take_while(|byte| *byte < length) {
                prop_assert!(found.iter().any(|part| part.start <= byte && byte < part.end));
            }
        }
    }

    #[test]
    fn a_written_range_is_read_back(start: u64, more: u64, length: u64) {
        let last = start.saturating_add(more);
        let value = format!("bytes={start}-{last}");
        match range::parse(value.as_bytes(), length) {
            Ranges::Satisfiable(part) => {
                prop_assert!(start < length);
                prop_assert_eq!(part.start, start);
                prop_assert_eq!(part.end - 1, last.min(length - 1));
            }
            other => {
                prop_assert_eq!(other, Ranges::Unsatisfiable);
                prop_assert!(start >= length);
            }
        }
    }

    #[test]
    fn a_date_is_read_back(seconds in 0..=date::MAX_SECONDS) {
        prop_assert_eq!(date::parse(&date::format(seconds)), Some(seconds));
    }

    #[test]
    fn any_bytes_are_a_date_or_none(text in "[A-Za-z0-9 ,:-]{0,40}", bytes in vec(any::<u8>(), 0..40)) {
        for text in [text.as_bytes(), &bytes] {
            prop_assert!(date::parse(text).is_none_or(|seconds| seconds <= date::MAX_SECONDS));
        }
    }

    #[test]
    fn a_file_s_own_tag_matches_it_in_any_list(
        seconds: i64,
        nanoseconds in 0..1_000_000_000u32,
        size: u64,
        digest: Option<u128>,
        now: u64,
        before in "(\"[!-~&&[^\"]]{0,5}\", ?){0,3}",
    ) {
        let written = (seconds, nanoseconds);
        let times = FileTimes { size, modified: written, changed: written };
        let by_time = Validators::of_times(&times, None, now);
        let by_content = digest.map(|digest| ETag::of_content(digest, None));
        let file = Validators { etag: by_content.or(by_time.etag), ..by_time };
        let tag = file.etag.unwrap();
        let list = [before.as_bytes(), tag.as_bytes()].concat();
        let none_match = Conditions { if_none_match: Some(ListField::Line(&list)), ..Default::default() };
        prop_assert_eq!(conditional::evaluate(&none_match, &file, 0), PreconditionOutcome::NotModified);
        let matches = Conditions { if_match: Some(ListField::Line(&list)), ..Default::default() };
        let expected = match tag.is_weak() {
            true => PreconditionOutcome::PreconditionFailed,
            false => PreconditionOutcome::Proceed,
        };
        prop_assert_eq!(conditional::evaluate(&matches, &file, 0), expected);
    }

    #[test]
    fn a_chunked_body_is_decoded_however_it_is_cut(
        input in chunked_bytes(),
        cuts in vec(1..5usize, 1..40),
    ) {
        let mut whole = Decoder::new();
        let at_once = whole.advance(&input);
        let mut piecewise = Decoder::new();
        let mut taken = 0;
        let mut outcome = Ok(0);
        for cut in cuts.iter().cycle() {
            let piece = &input[taken..input.len().min(taken + cut)];
            outcome = piecewise.advance(piece).map(|length| taken + length);
            match outcome {
                Ok(total) if !piece.is_empty() && !piecewise.is_done() => taken = total,
                _ => break,
            }
        }
        prop_assert_eq!(outcome, at_once);
        prop_assert_eq!(piecewise.is_done(), whole.is_done());
        prop_assert_eq!(piecewise.body_len(), whole.body_len());
    }

    /// The whole answer may come early, before extensions; never another one.
    #[test]
    fn a_proxy_header_is_the_same_at_every_cut((header, source) in proxy_header(), behind in vec(any::<u8>(), 0..9)) {
        let whole = Ok(Some(ProxyHeader { source, len: header.len() }));
        for cut in 0..header.len() {
            let parsed = proxy_protocol::parse(&header[..cut]);
            prop_assert!(parsed == Ok(None) || parsed == whole, "{cut}: {parsed:?}");
            prop_assert!(parsed == Ok(None) || cut >= 16);
        }
        prop_assert_eq!(proxy_protocol::parse(&[header, behind].concat()), whole);
    }

    /// What is malformed stays so, and what is needed at once fits the room that is promised.
    #[test]
    fn a_changed_proxy_header_is_read_or_refused(
        (mut header, _) in proxy_header(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        for (at, byte) in changes {
            *at.get_mut(&mut header) = byte;
        }
        let mut refused = false;
        for cut in 0..=header.len() {
            match proxy_protocol::parse(&header[..cut]) {
                Err(MalformedProxyHeader) => refused = true,
                parsed => prop_assert!(!refused, "{cut}: {parsed:?}"),
            }
        }
        if header.len() >= proxy_protocol::NEEDED_MOST {
            prop_assert_ne!(proxy_protocol::parse(&header), Ok(None));
        }
    }

    #[test]
    fn an_encoded_body_has_the_length_of_its_data(
        sizes in vec(1..600usize, 0..8),
        behind in vec(any::<u8>(), 0..9),
    ) {
        let mut body = Vec::new();
        for size in &sizes {
            body.extend(format!("{size:x}\r\n").bytes());
            body.extend(vec![b'\n'; *size]);
            body.extend(b"\r\n");
        }
        body.extend(b"0\r\n\r\n");
        let end = body.len();
        body.extend(behind);
        let mut decoder = Decoder::new();
        prop_assert_eq!(decoder.advance(&body), Ok(end));
        prop_assert!(decoder.is_done());
        prop_assert_eq!(decoder.body_len(), sizes.iter().sum::<usize>() as u64);
    }
}

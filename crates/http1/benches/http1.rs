//! Parsing requests and writing responses: nanoseconds per call.

use divan::{Bencher, black_box};
use drover_http1::conditional::{FileTimes, Validators};
use drover_http1::response::{Common, ConnectionField, push_head};
use drover_http1::{FieldList, HeadLimits, Status, date, path, request};

/// What curl sends.
const SHORT: &[u8] =
    b"GET /f128.html HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: curl/8.5.0\r\n\
    Accept: */*\r\n\r\n";

/// What a browser sends: twelve fields.
const BROWSER: &[u8] = b"GET /news/index.html?from=start HTTP/1.1\r\nHost: www.example.org\r\n\
    Connection: keep-alive\r\nUpgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/126.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8\r\n\
    Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n\
    Referer: https://www.example.org/\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9\r\nIf-None-Match: \"5f3c-61b2a\"\r\n\r\n";

fn main() {
    divan::main();
}

#[divan::bench]
fn parse_short(bencher: Bencher<'_, '_>) {
    bencher.bench(|| request::parse(black_box(SHORT), &HeadLimits::default()).is_ok());
}

#[divan::bench]
fn parse_browser(bencher: Bencher<'_, '_>) {
    bencher.bench(|| request::parse(black_box(BROWSER), &HeadLimits::default()).is_ok());
}

/// Sixteen requests that came together.
#[divan::bench]
fn parse_pipelined_16(bencher: Bencher<'_, '_>) {
    let input = SHORT.repeat(16);
    bencher.bench(|| {
        let mut rest = black_box(&input[..]);
        let mut requests = 0;
        while let Ok(Some(request)) = request::parse(rest, &HeadLimits::default()) {
            rest = &rest[request.head.len()..];
            requests += 1;
        }
        assert_eq!(requests, 16);
    });
}

#[divan::bench]
fn write_head(bencher: Bencher<'_, '_>) {
    let date = date::format(1_700_000_000);
    let written = (1_600_000_000, 0);
    let times = FileTimes { size: 102_400, modified: written, changed: written };
    let validators = Validators::of_times(&times, None, 1_700_000_000);
    let (mut out, mut fields) = (Vec::new(), FieldList::default());
    bencher.bench_local(|| {
        out.clear();
        let common = Common { server: "drover", date: &date, connection: ConnectionField::Implied };
        fields.clear();
        fields
            .content_type("text/html; charset=utf-8")
            .content_length(black_box(102_400))
            .validators(black_box(&validators), 1_700_000_000)
            .accept_ranges();
        push_head(&mut out, black_box(Status::Ok), &common, &fields);
        out.len()
    });
}

#[divan::bench]
fn format_date() -> date::DateText {
    date::format(black_box(1_700_000_000))
}

#[divan::bench]
fn parse_date() -> Option<u64> {
    date::parse(black_box(b"Tue, 14 Nov 2023 22:13:20 GMT"))
}

#[divan::bench(args = ["/f128.html", "/docs/../a%20b/./c.html?q=1"])]
fn resolve_path(bencher: Bencher<'_, '_>, text: &str) {
    let mut name = Vec::new();
    bencher.bench_local(|| path::resolve(black_box(text.as_bytes()), &mut name).is_ok());
}

//! Byte ranges.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use crate::harness::{Client, Response, Server, Site, on_every_mechanism, usable_backends};

/// The parts of a 206: the value of `Content-Range` and the bytes of each.
#[track_caller]
fn parts(response: &Response) -> Vec<(String, Vec<u8>)> {
    let boundary = response.field("Content-Type").unwrap();
    let boundary = boundary.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let boundary = format!("\r\n--{boundary}");
    let between = |from: usize| {
        let found = response.body[from..].windows(boundary.len());
        from + { found }.position(|it| it == boundary.as_bytes()).expect("a boundary")
    };
    let mut parts = Vec::new();
    let mut at = between(0) + boundary.len();
    while !response.body[at..].starts_with(b"--") {
        let head_end =
            at + response.body[at..].windows(4).position(|it| it == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&response.body[at..head_end]);
        assert!(head.contains("\r\nContent-Type: "), "{head}");
        let place = head.split("Content-Range: ").nth(1).unwrap().to_owned();
        let next = between(head_end + 4);
        parts.push((place, response.body[head_end + 4..next].to_vec()));
        at = next + boundary.len();
    }
    assert_eq!(&response.body[at..], b"--\r\n");
    parts
}

/// A file of this length whose every byte says where it is, at least nearly.
fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// Asks for parts of `/long`, and for another file behind it on one connection.
fn parts_of_a_long_file_are_its_bytes(client: &mut Client, bytes: &[u8]) {
    let ranges = [(700_000, 1_000_000), (0, 1), (500, 140_000), (1_048_570, 1_048_576)];
    let asked: Vec<String> = ranges.iter().map(|(from, to)| format!("{from}-{}", to - 1)).collect();
    let response = client.ask("/long", &[&format!("Range: bytes={}", asked.join(","))]).is(206);
    assert!(response.field("ETag").is_some() && response.field("Content-Range").is_none());
    let found = parts(&response);
    assert_eq!(found.len(), ranges.len());
    for ((place, part), (from, to)) in found.iter().zip(ranges) {
        assert_eq!(*place, format!("bytes {from}-{}/1048576", to - 1));
        assert!(part == &bytes[from..to], "{place}");
    }
    assert_eq!(client.get("/short").is(200).text(), "0123456789");
}

#[test]
fn several_ranges_are_parts_on_every_mechanism_and_backend() {
    let site = Site::new();
    let bytes = numbered(1 << 20);
    site.file("long", &bytes);
    site.file("short", "0123456789");
    for backend in usable_backends() {
        let server = Server::on(&site, &["--files", backend]);
        parts_of_a_long_file_are_its_bytes(&mut server.connect(), &bytes);
    }
    on_every_mechanism(|mechanism| {
        let server = Server::on(&site, &["--dispatch", mechanism.name]);
        let mut client = server.connect();
        for _ in 0..2 {
            parts_of_a_long_file_are_its_bytes(&mut client, &bytes);
        }
    });
}

#[test]
fn several_ranges_of_a_short_file_are_parts_in_their_order() {
    let site = Site::new();
    let bytes = numbered(1000);
    site.file("a.css", &bytes);
    let server = Server::on(&site, &[]);
    let mut client = server.connect();
    for _ in 0..2 {
        let response = client.ask("/a.css", &["Range: bytes=-2,2000-,0-9,300-301,305-400"]).is(206);
        let found: Vec<(String, &[u8])> =
            vec![("998-999", &bytes[998..]), ("0-9", &bytes[..10]), ("300-400", &bytes[300..401])]
                .into_iter()
                .map(|(place, bytes)| (format!("bytes {place}/1000"), bytes))
                .collect();
        let parts = parts(&response);
        let parts: Vec<(String, &[u8])> =
            parts.iter().map(|(place, bytes)| (place.clone(), &bytes[..])).collect();
        assert_eq!(parts, found);
    }
    let response = client.ask("/a.css", &["Range: bytes=0-9,20-29"]).is(206);
    assert_eq!((response.field("Content-Range"), response.length()), (Some("bytes 0-29/1000"), 30));
    assert_eq!(client.head("/a.css", &["Range: bytes=0-1,500-501"]).is(200).length(), 1000);
    // Pipelined, and then the end.
    let asked = "GET /a.css HTTP/1.1\r\nHost: test\r\nRange: bytes=0-1,500-501\r\n";
    client.send(format!("{asked}\r\n{asked}Connection: close\r\n\r\n"));
    for _ in 0..2 {
        assert_eq!(self::parts(&client.response().is(206)).len(), 2);
    }
    client.expect_end();
}

#[test]
fn one_range_is_a_206_with_its_place() {
    let site = Site::new();
    site.file("a", "0123456789");
    let server = Server::on(&site, &[]);
    for (range, body, place) in [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
        ("bytes=5-99", "56789", "bytes 5-9/10"),
        ("bytes=-99", "0123456789", "bytes 0-9/10"),
    ] {
        let response = server.ask("/a", &[&format!("Range: {range}")]).is(206);
        assert_eq!(
            (response.text(), response.field("Content-Range")),
            (body, Some(place)),
            "{range}"
        );
        assert!(response.field("ETag").is_some());
    }
}

#[test]
fn a_range_without_a_byte_is_a_416_that_tells_the_length() {
    let site = Site::new();
    site.file("a", "0123456789");
    let server = Server::on(&site, &[]);
    for range in ["bytes=10-", "bytes=-0", "bytes=99-100"] {
        let response = server.ask("/a", &[&format!("Range: {range}")]).is(416);
        assert_eq!(response.field("Content-Range"), Some("bytes */10"), "{range}");
    }
}

#[test]
fn what_is_no_range_gets_the_whole() {
    let site = Site::new();
    site.file("a", "0123456789");
    let server = Server::on(&site, &[]);
    for range in ["bytes=", "lines=1-2", "bytes=4-2", "bytes=a-b", "bytes=0-1,x"] {
        let response = server.ask("/a", &[&format!("Range: {range}")]).is(200);
        assert_eq!(response.text(), "0123456789", "{range}");
    }
    assert_eq!(server.connect().head("/a", &["Range: bytes=0-0"]).is(200).length(), 10);
}

#[test]
fn if_range_decides_whether_the_range_counts() {
    let site = Site::new();
    let file = File::open(site.file("a", "0123456789")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    let server = Server::on(&site, &[]);
    let whole = server.get("/a");
    let (tag, date) = (whole.field("ETag").unwrap(), whole.field("Last-Modified").unwrap());
    for (validator, status) in [
        (tag, 206),
        (date, 206),
        ("\"another\"", 200),
        (&format!("W/{tag}"), 200),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 200),
    ] {
        let fields = ["Range: bytes=0-1", &format!("If-Range: {validator}")];
        server.ask("/a", &fields).is(status);
    }
}

#[test]
fn a_file_of_5_gib_is_fetched_by_range_through_every_backend() {
    let site = Site::new();
    let len = 5 << 30;
    let file = site.sparse("huge", len);
    file.write_all_at(b"first", 0).unwrap();
    file.write_all_at(b"middle", (4 << 30) - 3).unwrap();
    file.write_all_at(b"last", len - 4).unwrap();
    for backend in usable_backends() {
        let server = Server::on(&site, &["--files", backend]);
        let mut client = server.connect();
        assert_eq!(client.head("/huge", &[]).is(200).length(), len);
        for (range, body) in [
            ("bytes=0-4", "first"),
            ("bytes=4294967293-4294967298", "middle"),
            ("bytes=-4", "last"),
            ("bytes=5368709119-", "t"),
        ] {
            let response = client.ask("/huge", &[&format!("Range: {range}")]).is(206);
            assert_eq!(response.text(), body, "{backend}: {range}");
        }
        let response = client.ask("/huge", &["Range: bytes=-1000000"]).is(206);
        assert!(response.body.ends_with(b"\0last"), "{backend}");
        client.ask("/huge", &["Range: bytes=5368709120-"]).is(416);
    }
}

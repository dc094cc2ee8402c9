//! Byte ranges.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use crate::harness::{Server, Site, usable_backends};

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
        let reply = server.ask("/a", &[&format!("Range: {range}")]).is(206);
        assert_eq!((reply.text(), reply.field("Content-Range")), (body, Some(place)), "{range}");
        assert!(reply.field("ETag").is_some());
    }
}

#[test]
fn a_range_without_a_byte_is_a_416_that_tells_the_length() {
    let site = Site::new();
    site.file("a", "0123456789");
    let server = Server::on(&site, &[]);
    for range in ["bytes=10-", "bytes=-0", "bytes=99-100"] {
        let reply = server.ask("/a", &[&format!("Range: {range}")]).is(416);
        assert_eq!(reply.field("Content-Range"), Some("bytes */10"), "{range}");
    }
}

#[test]
fn what_is_no_single_range_gets_the_whole() {
    let site = Site::new();
    site.file("a", "0123456789");
    let server = Server::on(&site, &[]);
    for range in ["bytes=", "lines=1-2", "bytes=4-2", "bytes=a-b", "bytes=0-1,3-4"] {
        let reply = server.ask("/a", &[&format!("Range: {range}")]).is(200);
        assert_eq!(reply.text(), "0123456789", "{range}");
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
            let reply = client.ask("/huge", &[&format!("Range: {range}")]).is(206);
            assert_eq!(reply.text(), body, "{backend}: {range}");
        }
        let reply = client.ask("/huge", &["Range: bytes=-1000000"]).is(206);
        assert!(reply.body.ends_with(b"\0last"), "{backend}");
        client.ask("/huge", &["Range: bytes=5368709120-"]).is(416);
    }
}

//! What a file's response says and carries.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::harness::{Server, Site, usable_backends};
use crate::http2::wire as http2;

#[test]
fn a_file_comes_with_type_length_date_and_validators() {
    let site = Site::new();
    site.file("page.html", "<p>hello");
    let server = Server::on(&site, &[]);
    let response = server.get("/page.html").is(200);
    assert_eq!(response.text(), "<p>hello");
    let reason = if http2::is_wanted() { "" } else { "OK" };
    assert_eq!(response.lines[0], format!("HTTP/1.1 200 {reason}"));
    assert_eq!(response.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(response.length(), 8);
    assert_eq!(response.field("Accept-Ranges"), Some("bytes"));
    assert_eq!(response.field("Connection"), None);
    let date = drover_http1::date::parse(response.field("Date").unwrap().as_bytes()).unwrap();
    let modified =
        drover_http1::date::parse(response.field("Last-Modified").unwrap().as_bytes()).unwrap();
    assert!(modified <= date, "{:?}", response.lines);
    let tag = response.field("ETag").unwrap();
    assert!(tag.starts_with('"') && tag.ends_with('"'), "not a strong tag: {tag}");
}

#[test]
fn files_of_every_size_arrive_whole_through_every_backend() {
    let site = Site::new();
    let sizes = [0, 1, 4096, 4097, 32 * 1024, 32 * 1024 + 1, 100_000, 3_000_000];
    let content = |size: usize| (0..size).map(|i| (i * 31 % 251) as u8).collect::<Vec<_>>();
    for size in sizes {
        site.file(&format!("{size}.bin"), content(size));
    }
    for backend in usable_backends() {
        let server = Server::on(&site, &["--files", backend]);
        let mut client = server.connect();
        for size in sizes {
            let response = client.get(&format!("/{size}.bin")).is(200);
            assert!(response.body == content(size), "{backend}: {size} bytes arrive changed");
        }
    }
}

#[test]
fn the_type_follows_the_extension() {
    let site = Site::new();
    let server = Server::on(&site, &[]);
    for (name, kind) in [
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.PNG", "image/png"),
        ("a.svg", "image/svg+xml; charset=utf-8"),
        ("a.wasm", "application/wasm"),
        ("a", "application/octet-stream"),
    ] {
        site.file(name, "x");
        assert_eq!(server.get(&format!("/{name}")).field("Content-Type"), Some(kind), "{name}");
    }
}

#[test]
fn a_change_of_the_file_changes_its_tag_and_its_response() {
    let site = Site::new();
    site.file("a", "one");
    let server = Server::on(&site, &["--revalidate", "0s"]);
    let mut client = server.connect();
    let before = client.get("/a").is(200);
    site.file("a.new", "two");
    std::fs::rename(site.path().join("a.new"), site.path().join("a")).unwrap();
    let after = client.get("/a").is(200);
    assert_eq!((before.text(), after.text()), ("one", "two"));
    assert_ne!(before.field("ETag"), after.field("ETag"));
}

#[test]
fn a_file_from_the_future_is_not_said_to_be() {
    let site = Site::new();
    let path = site.file("a", "a");
    let later = SystemTime::now() + Duration::from_secs(86_400);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
    let response = Server::on(&site, &[]).get("/a").is(200);
    let modified =
        drover_http1::date::parse(response.field("Last-Modified").unwrap().as_bytes()).unwrap();
    assert!(modified < later.duration_since(UNIX_EPOCH).unwrap().as_secs());
}

#[test]
fn a_directory_shows_its_index() {
    let site = Site::new();
    site.file("index.html", "front");
    site.file("sub/index.html", "below");
    let server = Server::on(&site, &[]);
    assert_eq!(server.get("/").is(200).text(), "front");
    let response = server.get("/sub/").is(200);
    assert_eq!(response.text(), "below");
    assert_eq!(response.field("Content-Type"), Some("text/html; charset=utf-8"));
}

#[test]
fn a_directory_without_its_slash_is_redirected_to_it() {
    let site = Site::new();
    site.file("a b/index.html", "x");
    let server = Server::on(&site, &[]);
    let response = server.get("/a%20b?q=1").is(301);
    assert_eq!(response.field("Location"), Some("/a%20b/?q=1"));
    // Two slashes would name another host.
    site.file("evil.example/index.html", "x");
    let response = server.get("//evil.example").is(301);
    assert_eq!(response.field("Location"), Some("/evil.example/"));
}

#[test]
fn a_directory_without_index_and_a_file_with_a_slash_are_not_found() {
    let site = Site::new();
    site.file("sub/a", "x");
    let server = Server::on(&site, &[]);
    for target in ["/sub/", "/sub/a/", "/sub/b", "/sub/a/b", "/nothing"] {
        let response = server.get(target).is(404);
        assert_eq!(response.text(), "404 Not Found\n", "{target}");
    }
}

#[test]
fn an_index_that_is_a_directory_is_not_found() {
    let site = Site::new();
    site.file("sub/index.html/a", "x");
    Server::on(&site, &[]).get("/sub/").is(404);
}

#[test]
fn what_may_not_be_read_is_forbidden() {
    let site = Site::new();
    let path = site.file("secret", "x");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    let server = Server::on(&site, &[]);
    if std::fs::File::open(&path).is_ok() {
        drover_testing::skip!("this user reads every file, whatever its mode");
        return;
    }
    server.get("/secret").is(403);
}

#[test]
fn what_is_no_regular_file_is_forbidden_and_blocks_nobody() {
    let site = Site::new();
    let _socket = UnixListener::bind(site.path().join("socket")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(site.path().join("fifo")).status();
    let server = Server::on(&site, &[]);
    server.get("/socket").is(403);
    match fifo {
        Ok(status) if status.success() => drop(server.get("/fifo").is(403)),
        _ => drover_testing::skip!("no mkfifo here"),
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_cuts_the_connection_and_no_other() {
    let len = 64 << 20;
    for backend in usable_backends() {
        let site = Site::new();
        let file = site.sparse("large", len);
        site.file("small", "x");
        let server = Server::on(&site, &["--files", backend]);
        let mut client = server.connect();
        client.send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.response_head().is(200).length(), len);
        client.read(1000);
        file.set_len(1000).unwrap();
        let (bytes, _) = client.drain();
        assert!(bytes + 1000 < len, "{backend}: {bytes} bytes came of a file of 1000");
        server.get("/small").is(200);
    }
}

#[test]
fn a_response_size_needs_no_file() {
    for size in [0, 92, 4096, 4097, 1_000_000] {
        let server = Server::of_size(size, &[]);
        let mut client = server.connect();
        for target in ["/", "/any/thing?at=all", "/"] {
            assert_eq!(client.get(target).is(200).body.len(), size);
        }
        assert_eq!(client.head("/", &[]).is(200).length(), size as u64);
        assert_eq!(client.ask("/", &["Connection: close"]).is(200).body.len(), size);
        client.expect_end();
    }
}

/// However few bytes a turn has, and however many.
#[test]
fn a_body_is_whole_whatever_a_turn_may_send() {
    let site = Site::new();
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 31 % 251) as u8).collect();
    site.file("large", &content);
    for backend in ["auto", "sendfile", "splice", "threads"] {
        for turn in ["auto", "4K", "100000", "8M"] {
            let server = Server::on(&site, &["--files", backend, "--send-budget", turn]);
            assert!(server.get("/large").is(200).body == content, "{backend}, {turn}");
        }
    }
}

//! Methods, versions, request bodies, and requests that are refused.

use crate::harness::{Server, Site, request};
use crate::http2::wire as http2;

fn server() -> (Site, Server) {
    let site = Site::new();
    site.file("a", "hello");
    let server = Server::on(&site, &[]);
    (site, server)
}

#[test]
fn head_says_what_get_would_and_sends_no_body() {
    let (site, server) = server();
    site.file("large", vec![0; 100_000]);
    let mut client = server.connect();
    for target in ["/a", "/large", "/nothing", "/%zz"] {
        let head = client.head(target, &[]);
        let get = client.get(target);
        let without_date = |lines: &[String]| {
            lines.iter().filter(|line| !line.starts_with("Date")).cloned().collect::<Vec<_>>()
        };
        assert_eq!(without_date(&head.lines), without_date(&get.lines), "{target}");
        assert_eq!(head.length(), get.body.len() as u64, "{target}");
    }
}

#[test]
fn other_methods_are_not_allowed_and_the_connection_lives_on() {
    let (_site, server) = server();
    let mut client = server.connect();
    for method in ["POST", "PUT", "DELETE", "CONNECT", "TRACE", "PATCH"] {
        if method == "CONNECT" && http2::leaves_out("CONNECT has no path") {
            continue;
        }
        client.send(request(method, "/a", &[]));
        let response = client.response().is(405);
        assert_eq!(response.field("Allow"), Some("GET, HEAD, OPTIONS"), "{method}");
    }
    client.get("/a").is(200);
}

#[test]
fn options_tells_the_methods_of_the_server_and_of_every_path() {
    let (_site, server) = server();
    let mut client = server.connect();
    for target in ["*", "/a", "/nothing", "/../x", "http://test/a"] {
        if target.starts_with('h') && http2::leaves_out("a path is no URL") {
            continue;
        }
        client.send(request("OPTIONS", target, &["Content-Length: 2"]) + "ab");
        let response = client.response_head().is(204);
        assert_eq!(response.field("Allow"), Some("GET, HEAD, OPTIONS"), "{target}");
        assert_eq!(response.field("Content-Length"), None, "{target}");
    }
    client.get("/a").is(200);
}

/// RFC 9110 section 10.1.1.
#[test]
fn what_a_client_expects_beside_100_continue_is_a_417() {
    let (_site, server) = server();
    for expected in ["200-ok", "100-continue, x", "100-continue=1"] {
        let mut client = server.connect();
        client.send(request("GET", "/a", &[&format!("Expect: {expected}")]));
        client.response().is(417);
        if !http2::is_wanted() {
            client.expect_end();
        }
    }
    server.ask("/a", &["Expect: 100-Continue"]).is(200);
    server.ask("/a", &["Expect:"]).is(200);
    if http2::leaves_out("there is one version") {
        return;
    }
    let mut old = server.connect();
    old.send("GET /a HTTP/1.0\r\nExpect: x\r\n\r\n");
    old.response().is(200);
}

/// RFC 9110 section 9.1.
#[test]
fn methods_that_nobody_knows_are_not_implemented_and_the_connection_lives_on() {
    let (_site, server) = server();
    let mut client = server.connect();
    for method in ["PROPFIND", "get", "Head", "GETT", "X"] {
        client.send(request(method, "/a", &["Content-Length: 2"]) + "ab");
        let response = client.response().is(501);
        assert_eq!(response.field("Allow"), None, "{method}");
    }
    client.get("/a").is(200);
}

#[test]
fn http_1_0_closes_unless_it_asks_for_more() {
    if http2::leaves_out("there is one version") {
        return;
    }
    let (_site, server) = server();
    let mut client = server.connect();
    client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.response().is(200).field("Connection"), Some("keep-alive"));
    client.send("GET /a HTTP/1.0\r\n\r\n");
    let response = client.response().is(200);
    assert_eq!((response.text(), response.field("Connection")), ("hello", Some("close")));
    client.expect_end();
}

#[test]
fn http_1_1_persists_until_it_asks_to_close() {
    if http2::leaves_out("no response says that the connection ends") {
        return;
    }
    let (_site, server) = server();
    let mut client = server.connect();
    client.get("/a").is(200);
    let response = client.ask("/a", &["Connection: close"]).is(200);
    assert_eq!(response.field("Connection"), Some("close"));
    client.expect_end();
}

#[test]
fn a_url_as_target_is_taken_for_its_path() {
    if http2::leaves_out("a path is no URL") {
        return;
    }
    let (_site, server) = server();
    assert_eq!(server.get("http://elsewhere.example/a?b").is(200).text(), "hello");
}

#[test]
fn the_body_of_a_request_is_passed_over() {
    let (_site, server) = server();
    let mut client = server.connect();
    for len in [1, 1000, 60_000] {
        let body = "GET /x HTTP/1.1\r\n\r\n".repeat(len / 19 + 1);
        let head = request("GET", "/a", &[&format!("Content-Length: {len}")]);
        client.send(head + &body[..len]);
        client.response().is(200);
    }
    client.send(request("POST", "/a", &["Content-Length: 3"]) + "abc");
    client.response().is(405);
    client.get("/a").is(200);
}

#[test]
fn a_body_that_comes_later_is_passed_over_too() {
    let (_site, server) = server();
    let mut client = server.connect();
    client.send(request("GET", "/a", &["Content-Length: 5"]));
    client.response().is(200);
    client.send("abc");
    client.send("de");
    client.get("/a").is(200);
}

#[test]
fn a_body_too_long_to_pass_over_is_answered_before_the_close() {
    if http2::leaves_out("the client is told to stop by a reset of the stream") {
        return;
    }
    let (_site, server) = server();
    let body = vec![b'x'; 4 << 20];
    for fields in [
        &["Content-Length: 4194304"][..],
        &["Content-Length: 4194304", "Expect: 100-continue"],
        &["Transfer-Encoding: chunked"],
    ] {
        let mut client = server.connect();
        client.send(request("POST", "/a", fields));
        // All of it is written before anything is read: a reset would destroy the response.
        client.send(&body);
        assert_eq!(client.response().is(405).field("Connection"), Some("close"));
        client.end_sending();
        client.expect_end();
    }
}

#[test]
fn what_is_not_http_is_answered_and_closed() {
    if http2::leaves_out("what is malformed is reset") {
        return;
    }
    let (_site, server) = server();
    for (text, status) in [
        ("nonsense\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET /a HTTP/1.1\nHost: a\n\n", 400),
        ("GET /a HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        ("GET /a HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("\x16\x03\x01\x02", 400),
    ] {
        let mut client = server.connect();
        client.send(text);
        let response = client.response().is(status);
        assert_eq!(response.field("Connection"), Some("close"), "{text:?}");
        client.end_sending();
        client.expect_end();
    }
}

#[test]
fn a_head_too_long_is_a_431_that_reaches_a_client_still_sending() {
    if http2::leaves_out("a head in many frames is refused by GOAWAY") {
        return;
    }
    let (_site, server) = server();
    let mut client = server.connect();
    client.send(request("GET", "/a", &[&format!("X: {}", "x".repeat(1 << 20))]));
    client.response().is(431);
    let mut client = server.connect();
    client.send(request("GET", "/a", &["X: 1"; 200]));
    client.response().is(431);
}

//! Which pages of other sites may read responses.

use crate::harness::{
    Client, Response, Server, Site, on_every_mechanism, request, usable_backends,
};

const FIELD: &str = "Access-Control-Allow-Origin";
/// What scripts may read in addition.
const EXPOSED: (&str, &str) = (
    "Access-Control-Expose-Headers",
    "Accept-Ranges, Content-Encoding, Content-Length, Content-Range, ETag",
);
const ONE: &str = "https://a.example";
const TWO: &str = "http://b.example:8080";

fn site() -> Site {
    let site = Site::new();
    for length in [3_000, 200_000] {
        site.file(&format!("{length}.js"), vec![b'x'; length]);
        site.file(&format!("{length}.js.gz"), vec![b'y'; length / 2]);
    }
    site.file("folder/file", "");
    site
}

/// The fields that there are of two.
fn with<'f>(origin: Option<&'f str>, field: Option<&'f str>) -> Vec<&'f str> {
    [origin, field].into_iter().flatten().collect()
}

/// Every kind of response, to a page of `origin`.
fn responses(client: &mut Client, origin: Option<&str>) -> Vec<Response> {
    let origin = origin.map(|origin| format!("Origin: {origin}"));
    let origin = origin.as_deref();
    let mut responses = Vec::new();
    for length in [3_000, 200_000] {
        let target = format!("/{length}.js");
        let whole = client.ask(&target, &with(origin, None)).is(200);
        assert_eq!(whole.body, vec![b'x'; length]);
        let coded = client.ask(&target, &with(origin, Some("Accept-Encoding: gzip"))).is(200);
        assert_eq!(coded.body, vec![b'y'; length / 2]);
        let tag = format!("If-None-Match: {}", whole.field("ETag").unwrap());
        responses.extend([
            client.ask(&target, &with(origin, Some(&tag))).is(304),
            client.ask(&target, &with(origin, Some("Range: bytes=5-9"))).is(206),
            client.ask(&target, &with(origin, Some("Range: bytes=0-0,1000-1001"))).is(206),
            client.ask(&target, &with(origin, Some("Range: bytes=900000-"))).is(416),
            client.head(&target, &with(origin, None)),
        ]);
        responses.extend([whole, coded]);
    }
    for (target, status) in [("/none", 404), ("/folder", 301), ("/folder/", 200)] {
        responses.push(client.ask(target, &with(origin, None)).is(status));
    }
    client.send(request("OPTIONS", "/3000.js", &with(origin, None)));
    responses.push(client.response_head().is(204));
    // Equal requests of one turn may have equal responses; others may not.
    let plain = request("GET", "/3000.js", &[]);
    let own = request("GET", "/3000.js", &with(origin, None));
    client.send([&own[..], &own, &plain, &plain, &own].concat());
    let [first, second, _, _, last] = [(); 5].map(|()| client.response().is(200));
    responses.extend([first, second, last]);
    responses
}

fn vary(response: &Response) -> bool {
    response.lines.iter().any(|line| line == "Vary: Origin")
}

fn who_may_read_is_told(site: &Site, flags: &[&str]) {
    let flags = [flags, &["--precompressed", "--listing"]].concat();
    let any = Server::on(site, &[&flags[..], &["--cors", "*"]].concat());
    let mut client = any.connect();
    for origin in [None, Some(ONE)].repeat(2) {
        for response in responses(&mut client, origin) {
            assert_eq!(response.field(FIELD), Some("*"), "{:?}", response.lines);
            assert_eq!(response.field(EXPOSED.0), Some(EXPOSED.1), "{:?}", response.lines);
            assert!(!vary(&response), "{:?}", response.lines);
        }
    }
    let two = Server::on(site, &[&flags[..], &["--cors", ONE, "--cors", TWO]].concat());
    let mut client = two.connect();
    let others = [None, Some("null"), Some("https://a.example.org"), Some("http://a.example")];
    for origin in [&[Some(ONE), Some(TWO)], &others[..], &[Some(TWO)]].concat() {
        for response in responses(&mut client, origin) {
            let allowed = origin.filter(|origin| [ONE, TWO].contains(origin));
            assert_eq!(response.field(FIELD), allowed, "{origin:?}: {:?}", response.lines);
            assert_eq!(response.field(EXPOSED.0), allowed.map(|_| EXPOSED.1));
            assert!(vary(&response), "{:?}", response.lines);
        }
    }
}

#[test]
fn who_may_read_is_told_on_every_mechanism() {
    let site = site();
    on_every_mechanism(|mechanism| who_may_read_is_told(&site, &["--dispatch", mechanism.name]));
}

#[test]
fn who_may_read_is_told_by_every_backend() {
    let site = site();
    for backend in usable_backends() {
        for cache in ["64M", "off"] {
            who_may_read_is_told(&site, &["--files", backend, "--cache", cache]);
        }
    }
}

#[test]
fn preflights_are_answered_for_those_who_may_read() {
    let site = site();
    on_every_mechanism(|mechanism| {
        let server = Server::on(&site, &["--cors", ONE, "--dispatch", mechanism.name]);
        let mut client = server.connect();
        let mut ask = |target: &str, origin: &str| {
            let asks = "Access-Control-Request-Method: GET";
            client.send(request("OPTIONS", target, &[&format!("Origin: {origin}"), asks]));
            client.response_head().is(204)
        };
        for target in ["/3000.js", "/none", "*"] {
            let granted = ask(target, ONE);
            assert_eq!(granted.field(FIELD), Some(ONE));
            for (field, value) in [
                ("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS"),
                ("Access-Control-Allow-Headers", "*"),
                ("Access-Control-Max-Age", "86400"),
                ("Allow", "GET, HEAD, OPTIONS"),
            ] {
                assert_eq!(granted.field(field), Some(value));
            }
            let refused = ask(target, TWO);
            assert_eq!((refused.field(FIELD), vary(&refused)), (None, true));
            assert_eq!(refused.field("Access-Control-Allow-Methods"), None);
        }
    });
    let server = Server::on(&site, &[]);
    let response = server.ask("/3000.js", &["Origin: https://a.example"]).is(200);
    assert_eq!((response.field(FIELD), vary(&response)), (None, false));
}

#[test]
fn one_body_for_all_may_be_read_too() {
    let server = Server::of_size(10, &["--cors", ONE]);
    let mut client = server.connect();
    for (origin, allowed) in [(ONE, Some(ONE)), (TWO, None), (ONE, Some(ONE))] {
        let response = client.ask("/", &[&format!("Origin: {origin}")]).is(200);
        assert_eq!((response.field(FIELD), vary(&response)), (allowed, true));
    }
}

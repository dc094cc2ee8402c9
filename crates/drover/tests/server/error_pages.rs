//! Pages of the site that are sent with errors.

use std::process::Command;

use crate::harness::{
    Response, Server, Site, drover, on_every_mechanism, request, usable_backends,
};

const LENGTHS: [usize; 2] = [3_000, 200_000];

const PAGES: &[&str] = &[
    "--error-page",
    "404=errors/404.html",
    "--error-page",
    "403=403.txt",
    "--error-page",
    "405=/errors/405.html",
    "--error-page",
    "501=none.html",
    "--cache-control",
    "/** 1h",
    "--header",
    "/errors/* X-Kind: error",
];

/// A site whose page for 404 has this length.
fn site(length: usize) -> Site {
    let site = Site::new();
    site.file("page.html", "page");
    site.file(".secret", "hidden");
    site.file("errors/404.html", "x".repeat(length));
    site.file("errors/404.html.gz", "z".repeat(length / 3));
    site.file("errors/405.html", "use GET");
    site.file("403.txt", "not for you");
    let made = Command::new("mkfifo").arg(site.path().join("fifo")).status();
    assert!(made.unwrap().success());
    site
}

fn has_no_state(response: Response) -> Response {
    for field in ["Cache-Control", "ETag", "Last-Modified", "Accept-Ranges", "Content-Range"] {
        assert_eq!(response.field(field), None, "{:?}", response.lines);
    }
    response
}

fn errors_have_their_pages(server: &Server, length: usize) {
    let mut client = server.connect();
    for target in ["/none", "/none/", "/.secret", "/page.html/", "/"].repeat(2) {
        let fields = ["Range: bytes=0-1", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"];
        let response = has_no_state(client.ask(target, &fields).is(404));
        assert_eq!(response.field("Content-Type"), Some("text/html; charset=utf-8"));
        assert_eq!(response.body, vec![b'x'; length]);
        assert_eq!(client.head(target, &[]).is(404).length(), length as u64);
        let response = has_no_state(client.ask(target, &["Accept-Encoding: gzip"]).is(404));
        assert_eq!(response.body, vec![b'z'; length / 3]);
        assert_eq!(response.field("Content-Encoding"), Some("gzip"));
    }
    for _ in 0..2 {
        let response = has_no_state(client.get("/fifo").is(403));
        assert_eq!(response.field("Content-Type"), Some("text/plain; charset=utf-8"));
        assert_eq!(response.text(), "not for you");
        client.send(request("POST", "/page.html", &[]));
        let response = has_no_state(client.response().is(405));
        assert_eq!(
            (response.text(), response.field("Allow")),
            ("use GET", Some("GET, HEAD, OPTIONS"))
        );
        client.send(request("BREW", "/page.html", &[]));
        assert_eq!(client.response().is(501).text(), "501 Not Implemented\n");
        assert_eq!(client.get("/page.html").is(200).text(), "page");
        let page = client.get("/errors/404.html").is(200);
        assert_eq!((page.body.len(), page.field("Cache-Control")), (length, Some("max-age=3600")));
        assert_eq!(client.get("/none").is(404).field("X-Kind"), Some("error"));
    }
    let several = ["/none", "/fifo", "/page.html"].map(|target| request("GET", target, &[]));
    client.send(several.concat());
    assert_eq!([(); 3].map(|()| client.response().status), [404, 403, 200]);
}

#[test]
fn errors_have_their_pages_on_every_mechanism() {
    let sites = LENGTHS.map(site);
    on_every_mechanism(|mechanism| {
        for (site, length) in sites.iter().zip(LENGTHS) {
            let own = ["--precompressed", "--dispatch", mechanism.name];
            errors_have_their_pages(&Server::on(site, &[PAGES, &own].concat()), length);
        }
    });
}

#[test]
fn errors_have_their_pages_by_every_backend() {
    let sites = LENGTHS.map(site);
    for backend in usable_backends() {
        for cache in ["64M", "off"] {
            for (site, length) in sites.iter().zip(LENGTHS) {
                let own = ["--precompressed", "--files", backend, "--cache", cache];
                errors_have_their_pages(&Server::on(site, &[PAGES, &own].concat()), length);
            }
        }
    }
}

/// Of procfs no name is ever at hand: each response waits for the file that is missing, then for the page.
#[test]
fn pages_that_have_to_be_waited_for_come() {
    let expected = std::fs::read_to_string("/proc/sys/kernel/ostype").unwrap();
    on_every_mechanism(|mechanism| {
        let mut command = drover();
        command.arg("serve").arg("/proc/sys/kernel").args(["--dispatch", mechanism.name]);
        command.args(["--error-page", "404=ostype", "--error-page", "405=ostype"]);
        let mut client = Server::start(command, 1);
        for _ in 0..2 {
            assert_eq!(client.get("/none").is(404).text(), expected);
        }
        let several = ["GET /none", "POST /a", "GET /random/none", "GET /osrelease"];
        let several = several
            .map(|it| request(it.split(' ').next().unwrap(), &it[it.find('/').unwrap()..], &[]));
        let mut connection = client.connect();
        connection.send(several.concat());
        assert_eq!([(); 4].map(|()| connection.response().status), [404, 405, 404, 200]);
        client.terminate();
        assert!(client.exit_status().success());
    });
}

#[test]
fn a_page_that_is_missing_is_a_line_of_text_and_one_that_comes_is_sent() {
    let site = Site::new();
    let server = Server::on(&site, &["--error-page", "404=404.html"]);
    assert_eq!(server.get("/none").is(404).text(), "404 Not Found\n");
    site.file("404.html", "no");
    assert_eq!(server.get("/none").is(404).text(), "no");
}

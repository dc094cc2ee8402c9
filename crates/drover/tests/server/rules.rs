//! The user's rules: fields that responses have in addition, and paths that have moved.

use std::fs;
use std::process::Command;

use crate::harness::{Server, Site, drover, on_every_mechanism, request, usable_backends};
use crate::http2::wire as http2;

const CACHED: &str = "max-age=31536000, immutable";

fn site() -> Site {
    let site = Site::new();
    for length in [3_000, 200_000] {
        site.file(&format!("assets/{length}.js"), vec![b'x'; length]);
        site.file(&format!("assets/{length}.js.gz"), vec![b'y'; length / 2]);
    }
    site.file("index.html", "index");
    site.file("data.foo", "of a kind of its own");
    site.file("old", "still there");
    site.file("data.old", "of another kind");
    site
}

const RULES: &[&str] = &[
    "--precompressed",
    "--header",
    "/** X-Content-Type-Options: nosniff",
    "--header",
    "/assets/** Cache-Control: max-age=31536000, immutable",
    "--header",
    "*.foo Content-Type: application/x-foo",
    "--types",
    "old,foo=text/x-old",
];

fn responses_have_their_fields(server: &Server) {
    let mut client = server.connect();
    for length in [3_000, 200_000] {
        let target = format!("/assets/{length}.js");
        for codings in ["identity", "gzip"] {
            let accept = format!("Accept-Encoding: {codings}");
            let whole = client.ask(&target, &[&accept]).is(200);
            let tag = format!("If-None-Match: {}", whole.field("ETag").unwrap());
            let parts = "Range: bytes=0-0,1000-1001";
            for response in [
                client.ask(&target, &[&accept, &tag]).is(304),
                client.ask(&target, &[&accept, "Range: bytes=5-9"]).is(206),
                client.ask(&target, &[&accept, parts]).is(206),
                client.head(&target, &[&accept]),
                whole,
            ] {
                assert_eq!(response.field("Cache-Control"), Some(CACHED), "{:?}", response.lines);
                assert_eq!(response.field("X-Content-Type-Options"), Some("nosniff"));
            }
        }
    }
    let index = client.get("/").is(200);
    assert_eq!(index.field("X-Content-Type-Options"), Some("nosniff"));
    assert_eq!(index.field("Cache-Control"), None);
    // A rule of --header counts more than one of --types.
    assert_eq!(client.get("/data.foo").is(200).field("Content-Type"), Some("application/x-foo"));
    assert_eq!(client.get("/data.old").is(200).field("Content-Type"), Some("text/x-old"));
}

#[test]
fn responses_have_the_fields_of_their_rules_on_every_mechanism() {
    let site = site();
    on_every_mechanism(|mechanism| {
        let flags = [RULES, &["--dispatch", mechanism.name]].concat();
        responses_have_their_fields(&Server::on(&site, &flags));
    });
}

#[test]
fn responses_have_the_fields_of_their_rules_by_every_backend() {
    let site = site();
    for backend in usable_backends() {
        for cache in ["64M", "off"] {
            let flags = [RULES, &["--files", backend, "--cache", cache]].concat();
            responses_have_their_fields(&Server::on(&site, &flags));
        }
    }
}

#[test]
fn what_has_moved_is_told_though_there_is_a_file_with_the_name() {
    let site = site();
    on_every_mechanism(|mechanism| {
        let rules = ["--redirect", "/old /new", "--redirect", "/blog/* https://b.org/* 302"];
        let server = Server::on(&site, &[&rules[..], &["--dispatch", mechanism.name]].concat());
        let mut client = server.connect();
        for _ in 0..2 {
            assert_eq!(client.get("/old?a=b").is(301).field("Location"), Some("/new?a=b"));
            let moved = client.get("/blog/2026/a%20b/").is(302);
            assert_eq!(moved.field("Location"), Some("https://b.org/2026/a%20b/"));
            // The path is normalized before: nobody is sent to another host than the rule says.
            let moved = client.get("/x/..//blog//evil.org/..").is(302);
            assert_eq!(moved.field("Location"), Some("https://b.org/"));
            assert_eq!(client.get("/").is(200).text(), "index");
            client.get("/none").is(404);
            assert_eq!(client.head("/old", &[]).status, 301);
        }
    });
}

#[test]
fn rules_may_stand_in_a_file() {
    let (site, folder) = (site(), Site::new());
    let root = format!("root = '{}'", site.path().display());
    let file = folder.file(
        "drover.toml",
        format!(
            "{root}\nheader = ['*.html Cache-Control: no-cache', '/** A: b']\n\
             redirect = ['/old /']\nlisten = ['127.0.0.1:0']\n"
        ),
    );
    let mut command = drover();
    command.arg("serve").arg("--config").arg(&file);
    let server = Server::start(command, 1);
    let index = server.get("/").is(200);
    assert_eq!((index.field("Cache-Control"), index.field("A")), (Some("no-cache"), Some("b")));
    assert_eq!(server.get("/old").is(301).field("Location"), Some("/"));
    let checked = Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(["serve", "--check", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(text.contains("'/** A: b'") || text.contains("\"/** A: b\""), "{text}");
    fs::write(&file, format!("{root}\nheader = ['*.html Content-Length: 1']\n")).unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(["serve", "--check", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && text.contains("the server's own"), "{text}");
}

/// What --check says of a server of these flags, if it finds a fault.
fn fault(flags: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    let checked = command.args(["serve", "--check", "--listen", "0"]).args(flags).output().unwrap();
    assert_eq!(checked.status.code(), Some(2), "{flags:?}");
    String::from_utf8(checked.stderr).unwrap()
}

#[test]
fn policies_and_security_headers_are_fields_that_written_ones_replace() {
    let site = site();
    let flags = [
        "--security-headers",
        "--cache-control",
        "/** no-cache",
        "--cache-control",
        "/assets/** immutable",
        "--cache-control",
        "*.foo 10m",
        "--header",
        "/index.html Referrer-Policy: no-referrer",
        "--header",
        "/old Cache-Control: private",
    ];
    on_every_mechanism(|mechanism| {
        let server = Server::on(&site, &[&flags[..], &["--dispatch", mechanism.name]].concat());
        let mut client = server.connect();
        for (target, policy) in [
            ("/", "no-cache"),
            ("/assets/3000.js", "public, max-age=31536000, immutable"),
            ("/data.foo", "max-age=600"),
            ("/old", "private"),
        ] {
            let response = client.get(target).is(200);
            let referrer = response.field("Referrer-Policy");
            let expected =
                if target == "/" { "no-referrer" } else { "strict-origin-when-cross-origin" };
            assert_eq!((response.field("Cache-Control"), referrer), (Some(policy), Some(expected)));
            assert_eq!(response.field("X-Content-Type-Options"), Some("nosniff"));
            assert_eq!(response.field("X-Frame-Options"), Some("SAMEORIGIN"));
        }
    });
}

/// Pages that the server writes itself, with text that clients and names of files have chosen: browsers take them for nothing
/// but what their type says, whether rules say so of files or not.
#[test]
fn what_the_server_writes_itself_is_not_sniffed_on_every_mechanism() {
    let site = Site::new();
    site.file("folder/a", "hello");
    let rule = ["--header", "/** X-Content-Type-Options: nosniff"];
    on_every_mechanism(|mechanism| {
        for more in [&[][..], &["--security-headers"], &rule] {
            let flags = [&["--listing", "--dispatch", mechanism.name], more].concat();
            let server = Server::on(&site, &flags);
            let mut client = server.connect();
            let long = format!("X: {}", "x".repeat(9_000));
            for (method, target, field, status) in [
                ("GET", "/folder/", "Accept: text/html", 200),
                ("GET", "/folder/", "Accept: application/json", 200),
                ("HEAD", "/folder/", "A: b", 200),
                ("GET", "/folder", "A: b", 301),
                ("GET", "/none", "A: b", 404),
                ("GET", "/folder/a", "If-Match: \"none\"", 412),
                ("GET", "/folder/a", "Range: bytes=9-", 416),
                ("POST", "/folder/a", "A: b", 405),
                ("BREW", "/folder/a", "A: b", 501),
                ("GET", "/folder/a", &long, 431),
            ] {
                client.send(request(method, target, &[field]));
                let response = match method {
                    "HEAD" => client.response_head(),
                    _ => client.response(),
                };
                let found = response.field("X-Content-Type-Options");
                assert_eq!(found, Some("nosniff"), "{more:?} {method} {target} {field:.20}");
                response.is(status);
            }
            if !http2::is_wanted() {
                client.expect_end();
            }
        }
    });
}

#[test]
fn rules_that_cannot_be_are_told_with_what_can() {
    for (flags, what) in [
        (&["--cache-control", "*.js imutable"][..], "immutable, no-cache, no-store"),
        (&["--cors", "example.org"], "https://app.example.org"),
        (
            &["--cors", "*", "--header", "*.js access-control-allow-origin: *"],
            "leave one of them out",
        ),
        (&["--error-page", "200=a"], "401, 403, 404"),
    ] {
        let told = fault(flags);
        assert!(told.contains(what), "{flags:?}: {told}");
    }
}

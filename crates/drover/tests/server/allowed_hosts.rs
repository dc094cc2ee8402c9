//! `--allowed-hosts`: ROOT is for the hosts that were named, and for those that no other site can make its own.

use std::process::Stdio;

use crate::harness::{Server, Site, drover, on_every_mechanism, usable_backends, wait_until};
use crate::hosts::request_to;
use crate::http2::wire as http2;
use crate::reloading::Configured;

const ALLOWED: [&str; 9] = [
    "example.org",
    "EXAMPLE.ORG.:8080",
    "a.b.example.net:1",
    "localhost:8080",
    "127.0.0.1",
    "192.0.2.1:80",
    "[::1]:80",
    "",
    ":8080",
];

const REFUSED: [&str; 6] = [
    "rebind.test",
    "www.example.org",
    "example.net",
    "localhost.rebind.test",
    "127.0.0.1.rebind.test",
    "127.1",
];

fn site() -> Site {
    let site = Site::new();
    site.file("small", "small");
    site.file("large", vec![b'l'; 200_000]);
    site.file("own/small", "own");
    site
}

/// Every target for every host, twice: what is kept is found in another way, and what is asked for again in another one still.
fn only_allowed_hosts_are_served(server: &Server, label: &str) {
    let mut client = server.connect();
    for target in ["/small", "/small", "/large"] {
        for host in ALLOWED {
            client.send(request_to(host, target, ""));
            assert!(!client.response().is(200).body.is_empty(), "{label}: {host}");
        }
        for host in REFUSED {
            client.send(request_to(host, target, ""));
            let text = "421 Misdirected Request: this host is not served here\n";
            assert_eq!(client.response().is(421).text(), text, "{label}: {host}");
        }
    }
    // All at once: the host is of the request, and not of the connection.
    client.send(
        [ALLOWED, ALLOWED]
            .concat()
            .iter()
            .flat_map(|allowed| {
                [request_to(allowed, "/small", ""), request_to("rebind.test", "/small", "")]
            })
            .collect::<String>(),
    );
    for _ in 0..2 * ALLOWED.len() {
        client.response().is(200);
        client.response().is(421);
    }
    for method in ["POST", "OPTIONS", "BREW"] {
        client.send(request_to("rebind.test", "/small", "").replacen("GET", method, 1));
        client.response().is(421);
    }
    if http2::leaves_out("a path is no URL, and there is one version") {
        return;
    }
    // An absolute target wins (RFC 9112 section 3.2.2).
    client.send(request_to("rebind.test", "http://example.org/small", ""));
    client.response().is(200);
    client.send(request_to("example.org", "http://rebind.test/small", ""));
    client.response().is(421);
    // Browsers always name a host.
    client.send("GET /small HTTP/1.0\r\n\r\n");
    client.response().is(200);
}

const FLAGS: [&str; 2] = ["--allowed-hosts", "example.org,*.example.net"];

#[test]
fn hosts_that_were_not_named_are_refused_on_every_mechanism() {
    let site = site();
    on_every_mechanism(|mechanism| {
        for more in [&["--cache", "64M"][..], &["--cache", "off"], &["--processes"]] {
            let flags = [&FLAGS, &["--dispatch", mechanism.name], more].concat();
            only_allowed_hosts_are_served(&Server::on(&site, &flags), mechanism.name);
        }
        let server = Server::of_size(5, &[&FLAGS[..], &["--dispatch", mechanism.name]].concat());
        only_allowed_hosts_are_served(&server, mechanism.name);
    });
}

#[test]
fn hosts_that_were_not_named_are_refused_by_every_backend() {
    let site = site();
    for backend in usable_backends() {
        let server = Server::on(&site, &[&FLAGS[..], &["--files", backend]].concat());
        only_allowed_hosts_are_served(&server, backend);
    }
}

/// A site of a host is for that host whether ROOT is for it or not.
#[test]
fn hosts_with_a_site_of_their_own_have_that() {
    let site = site();
    let own = format!("own.test,example.org={}", site.path().join("own").display());
    let server = Server::on(&site, &[&FLAGS[..], &["--host", &own]].concat());
    let mut client = server.connect();
    for (host, text) in [
        ("own.test", "own"),
        ("example.org", "own"),
        ("a.example.net", "small"),
        ("127.0.0.1", "small"),
    ] {
        client.send(request_to(host, "/small", ""));
        assert_eq!(client.response().is(200).text(), text, "{host}");
    }
    client.send(request_to("rebind.test", "/small", ""));
    client.response().is(421);
}

#[test]
fn a_reload_changes_the_hosts() {
    let site = site();
    for flags in [&[][..], &["--processes"]] {
        let mut configured =
            Configured::start(&site, flags, "allowed-hosts = ['a.test', 'b.test,c.test']\n");
        for (settings, [a, b]) in [
            ("allowed-hosts = 'a.test'\n", [200, 421]),
            ("", [200, 200]),
            ("allowed-hosts = 'localhost'\n", [421, 421]),
        ] {
            configured.set(settings);
            // Workers of before may still take a connection.
            wait_until("the hosts are others", || {
                [("a.test", a), ("c.test", b), ("localhost", 200)].into_iter().all(
                    |(host, status)| {
                        let mut client = configured.server.connect();
                        client.send(request_to(host, "/small", ""));
                        client.response().status == status
                    },
                )
            });
        }
        configured.stops_in_good_order();
    }
}

#[test]
fn what_cannot_be_is_told_with_what_can() {
    let site = site();
    let host = format!("own.test={}", site.path().join("own").display());
    for (flags, told) in [
        (&["--allowed-hosts", "a.test", "--host", &host][..], "--allowed-hosts: there is no ROOT"),
        (&["--allowed-hosts", "a.test:80"], "a name is for all ports"),
        (&["--allowed-hosts", "*"], "write example.org"),
        (&["--admin-hosts", "a.test,"], "write example.org"),
    ] {
        let mut command = drover();
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags).stderr(Stdio::piped());
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(told) && output.status.code() == Some(2), "{flags:?}: {text}");
    }
}

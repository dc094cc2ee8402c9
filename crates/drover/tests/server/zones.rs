//! Addresses with a zone: `[fe80::1%lo]:8080`. The zone says where to listen, and nothing that goes over the network has it.

use std::process::{Command, Stdio};

use drover_mech::accept;
use nix::sched::{CloneFlags, unshare};

use crate::harness::{Server, Site, drover};
use crate::hosts::request_to;
use crate::tls::wire::is_spoken;

/// The forms of one zone: a name or a number, as people and as URLs write it (RFC 9844, RFC 6874).
const ZONES: [&str; 4] = ["%lo", "%25lo", "%1", "%251"];

/// Runs `test` in a network namespace of its own, whose loopback interface has the address fe80::1. Servers that the
/// test starts are there too.
fn with_link_local_address(test: impl Fn() + Sync) {
    let set_up = || -> Result<(), String> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|error| format!("unshare(2): {error}"))?;
        for command in ["link set lo up", "addr add fe80::1/64 dev lo nodad"] {
            let output = Command::new("ip").args(command.split(' ')).output();
            let output = output.map_err(|error| format!("ip: {error}"))?;
            if !output.status.success() {
                return Err(format!("ip {command}: {}", String::from_utf8_lossy(&output.stderr)));
            }
        }
        Ok(())
    };
    // On a thread of its own, which keeps the namespace.
    drover_testing::side_by_side(&[()], |()| match set_up() {
        Ok(()) => test(),
        Err(why) => drover_testing::skip!("no link-local address to listen on: {why}"),
    });
}

fn site() -> Site {
    let site = Site::new();
    site.file("a", "hello");
    site.file("folder/index.html", "folder");
    site
}

/// Programs can use a URL that the server has printed.
#[track_caller]
fn is_usable(url: &str) {
    // The certificate of the tests is for addresses without a zone.
    let trust: &[&str] = if url.starts_with("https:") { &["-k"] } else { &[] };
    let load = ["load", url, "-n", "20", "-c", "2", "--json", "-"];
    let load = drover().args(load).args(trust).output().unwrap();
    let result = String::from_utf8_lossy(&load.stdout);
    assert!(load.status.success() && result.contains("\"errors\""), "{url}: {result}");
    match Command::new("curl")
        .args(["-sS", "--globoff", "--noproxy", "*", "-i", url])
        .args(trust)
        .output()
    {
        Ok(output) => {
            let (said, error) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
            let is_answered = said.starts_with(b"HTTP/1.1 200") || said.starts_with(b"HTTP/2 200");
            assert!(is_answered, "curl {url}: {error}");
        }
        Err(error) => drover_testing::skip!("curl: {error}"),
    }
}

#[test]
fn every_strategy_listens_on_a_link_local_address_in_each_form() {
    with_link_local_address(|| {
        let site = site();
        let usable: Vec<_> = accept::ALL.iter().filter(|it| it.probe().is_ok()).collect();
        let forms = usable.iter().enumerate().map(|(number, it)| (it, ZONES[number % ZONES.len()]));
        for (strategy, zone) in forms {
            let listen = format!("[fe80::1{zone}]:0");
            let server = Server::on(&site, &["--listen", &listen, "--accept", strategy.name]);
            let port = server.address().port();
            assert_eq!(server.address().to_string(), format!("[fe80::1%1]:{port}"));
            assert_eq!(server.get("/a").is(200).text(), "hello");
            let scheme = if is_spoken(server.address()) { "https" } else { "http" };
            is_usable(&format!("{scheme}://[fe80::1%25lo]:{port}/a"));
        }
    });
}

#[test]
fn the_address_is_printed_as_a_url_has_it_and_no_response_has_the_zone() {
    with_link_local_address(|| {
        let (site, other) = (site(), Site::new());
        other.file("a", "the host's");
        let host = format!("[fe80::1]={}", other.path().display());
        let listen = ["--listen", "[fe80::1%lo]:0", "--admin", "[fe80::1%lo]:0", "--admin-public"];
        let flags = [&listen[..], &["--host", &host]].concat();
        let mut server = Server::on(&site, &[&flags[..], &["--redirect", "/old /new"]].concat());
        let admin = server.line_of_stdout();
        let (url, _) = admin.strip_prefix("status at ").unwrap().split_once("/status").unwrap();
        assert!(url.starts_with("http://[fe80::1%25lo]:"), "{admin}");
        is_usable(&format!("{url}/healthz"));

        let port = server.address().port();
        for (host, body) in [
            (format!("[fe80::1]:{port}"), "the host's"),
            (format!("[fe80::1%25lo]:{port}"), "the host's"),
            (format!("[fe80::1%lo]:{port}"), "the host's"),
            (format!("[fe80::2%25lo]:{port}"), "hello"),
        ] {
            let mut client = server.connect();
            client.send(request_to(&host, "/a", ""));
            assert_eq!(client.response().is(200).text(), body);
        }
        for (path, location) in [("/folder", "/folder/"), ("/old", "/new")] {
            let mut client = server.connect();
            client.send(request_to("[fe80::9%25lo]", path, ""));
            let response = client.response().is(301);
            assert_eq!(response.field("Location"), Some(location));
        }
    });
}

/// A file says it as a flag does, and a successor that writes the zone in another way has the same address.
#[test]
fn a_server_takes_over_an_address_with_a_zone() {
    with_link_local_address(|| {
        let site = site();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("take-over");
        let config = folder.path().join("drover.toml");
        let start = |listen: &str, admin: &str| {
            let text = format!("listen = \"{listen}\"\nadmin = \"{admin}\"\nadmin-public = true\n");
            std::fs::write(&config, text).unwrap();
            let mut command = drover();
            command.arg("serve").arg(site.path()).arg("--config").arg(&config);
            command.arg("--take-over").arg(&path);
            Server::start_as_it_is(command, 1)
        };
        for address in ["[fe80::1", "[::1"] {
            let mut server = start(&format!("{address}%lo]:0"), &format!("{address}%lo]:0"));
            let (port, admin) = (server.address().port(), server.admin_address().port());
            for zone in &ZONES[1..] {
                let listen = |port| format!("{address}{zone}]:{port}");
                let mut next = start(&listen(port), &listen(admin));
                assert_eq!(
                    (next.address(), next.admin_address().port()),
                    (server.address(), admin)
                );
                assert!(server.exit_status().success(), "{address}{zone}");
                assert_eq!(next.get("/a").is(200).text(), "hello");
                server = next;
            }
        }
    });
}

#[test]
fn a_zone_that_does_not_help_is_told_why() {
    for (listen, why) in [
        ("[fe80::1]:0", "a link-local address needs its interface, as in [fe80::1%eth0]:0"),
        ("[fe80::1%nowhere]:0", "there is no interface 'nowhere'"),
        ("[fe80::1%25nowhere]:0", "there is no interface 'nowhere'"),
    ] {
        let mut command = drover();
        command.args(["serve", "--listen", listen, "--check"]).stderr(Stdio::piped());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{listen}: {said}");
        assert!(said.contains(why), "{listen}: {said}");
    }
}

//! Clients that come without TLS, or with it where it is not spoken; what is counted and shown.

use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use super::wire::{TestCertificate, flags};
use super::{connect_as, on_each_kind, serve};
use crate::activation::activated;
use crate::harness::{Client, Server, Site, drover, figure, request};
use crate::http2::wire as http2;

fn site() -> Site {
    let site = Site::new();
    site.file("a b/c", "hello");
    site
}

/// A server with TLS at its first address and none at the second.
fn both(site: &Site, more: &[&str]) -> Server {
    let mut command = drover();
    command.arg("serve").arg(site.path()).args(flags()).args(more).stderr(Stdio::piped());
    command.args(["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0,plain"]);
    Server::start(command, 2)
}

#[test]
fn plain_http_at_a_tls_port_is_told_so() {
    let site = site();
    on_each_kind(|mechanism| {
        let server = serve(&site, &["--dispatch", mechanism.name]);
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(request("GET", "/a", &[]).as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("https://"), "{text}");
    });
}

#[test]
fn tls_at_a_plain_port_is_logged_once() {
    let site = site();
    let mut command = drover();
    command.arg("serve").arg(site.path()).stderr(Stdio::piped());
    command.args(["--listen", "127.0.0.1:0", "--workers", "1"]);
    let mut server = Server::start_as_it_is(command, 1);
    for _ in 0..3 {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    }
    server.terminate();
    let mut log = String::new();
    server.stderr().read_to_string(&mut log).unwrap();
    assert_eq!(log.matches("a client speaks TLS").count(), 1, "{log}");
    assert!(log.contains("--tls-cert"), "{log}");
}

#[test]
fn both_are_served_side_by_side_unless_clients_are_redirected() {
    let site = site();
    let server = both(&site, &[]);
    let [tls, plain] = server.addresses() else { panic!() };
    for address in [tls, plain] {
        assert_eq!(Client::connect(*address).get("/a%20b/c").is(200).text(), "hello");
    }
    let server = both(&site, &["--https-redirect", "--hsts", "1w"]);
    let [tls, plain] = server.addresses() else { panic!() };
    let mut client = Client::connect(*plain);
    for (target, host, location) in [
        ("/a%20b/c?d=e", "localhost", format!("https://localhost:{}/a%20b/c?d=e", tls.port())),
        ("/", "example.org:80", format!("https://example.org:{}/", tls.port())),
        ("/x", "[::1]:8080", format!("https://[::1]:{}/x", tls.port())),
        ("/x", "[::1]", format!("https://[::1]:{}/x", tls.port())),
        ("http://other/y", "localhost", format!("https://other:{}/y", tls.port())),
    ] {
        if target.starts_with('h') && http2::leaves_out("a path is no URL") {
            continue;
        }
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let response = client.response().is(308);
        assert_eq!(response.field("Location"), Some(&*location));
        assert_eq!(response.field("Strict-Transport-Security"), None);
    }
    // The target of another method is what the client has written: no part of a host is made of it.
    for target in [".evil.example/", "@evil.example/", "*"] {
        if http2::is_wanted() {
            // Without a slash in front it is malformed, and reset.
            continue;
        }
        let mut client = Client::connect(*plain);
        client.send(format!("OPTIONS {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let response = client.response();
        let location = format!("https://localhost:{}/", tls.port());
        let is_safe = response.status == 400 || response.field("Location") == Some(&*location);
        assert!(is_safe, "{:?}", response.lines);
    }
    let mut client = Client::connect(*plain);
    let host = if http2::is_wanted() { "Host:?" } else { "Host:" };
    client.send(format!("GET / HTTP/1.1\r\n{host}\r\n\r\n"));
    let status = client.response().status;
    assert!([400, 421].contains(&status), "{status}");
    let response = Client::connect(*tls).get("/a%20b/c").is(200);
    assert_eq!(response.field("Strict-Transport-Security"), Some("max-age=604800"));
    let server = both(&site, &["--https-redirect", "--https-port", "443"]);
    let response = Client::connect(server.addresses()[1]).get("/a").is(308);
    assert_eq!(response.field("Location"), Some("https://localhost/a"));
}

/// Of many requests that come in one turn some are over TLS; the others must not get their response.
#[test]
fn a_redirected_client_never_gets_what_was_prepared_for_others() {
    let site = site();
    site.file("a", "secret");
    on_each_kind(|mechanism| {
        let server = both(&site, &["--https-redirect", "--dispatch", mechanism.name]);
        let [tls, plain] = server.addresses() else { panic!() };
        let mut over_tls = Client::connect(*tls);
        over_tls.get("/a").is(200);
        let mut redirected = Client::connect(*plain);
        server.while_stopped(|| {
            over_tls.send(request("GET", "/a", &[]));
            redirected.send(request("GET", "/a", &[]));
        });
        over_tls.response().is(200);
        redirected.response().is(308);
    });
}

#[test]
fn handshakes_are_counted() {
    let site = site();
    let own = TestCertificate::of(&["localhost"]);
    let mut command = drover();
    command.arg("serve").arg(site.path()).args(own.flags()).stderr(Stdio::piped());
    command.args(["--admin", "127.0.0.1:0"]);
    let mut server = Server::start(command, 1);
    let admin = server.admin_address();
    let config = own.client();
    for _ in 0..3 {
        connect_as(&server, &config, "localhost").get("/a%20b/c").is(200);
    }
    drop(TcpStream::connect(server.address()).unwrap());
    let mut broken = TcpStream::connect(server.address()).unwrap();
    broken.write_all(&[22, 3, 1, 0, 5, 1, 0, 0, 1, 0]).unwrap();
    let mut alert = Vec::new();
    broken.read_to_end(&mut alert).unwrap();
    assert_eq!(alert.first(), Some(&21));
    let metrics = Client::connect(admin).get("/metrics").is(200);
    let value = |name: &str| {
        let line = metrics.text().lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("{name}: {}", metrics.text()))
            .rsplit(' ')
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(value("drover_tls_full_handshakes_total{worker=\"0\"}"), "1");
    assert_eq!(value("drover_tls_resumed_handshakes_total{worker=\"0\"}"), "2");
    let malformed = "drover_tls_failed_handshakes_total{reason=\"malformed\",worker=\"0\"}";
    assert_eq!(value(malformed), "1");
    let expiry: u64 = value("drover_tls_certificate_expiry_seconds").parse().unwrap();
    assert!(expiry > 1_700_000_000);
    server.terminate();
    let mut log = String::new();
    server.stderr().read_to_string(&mut log).unwrap();
    assert_eq!(figure(&log, " TLS handshakes"), 3, "{log}");
    assert_eq!(figure(&log, " failed TLS handshake"), 1, "{log}");
}

#[test]
fn check_and_explain_tell_of_certificates() {
    let site = site();
    for flag in ["--check", "--explain"] {
        let output = drover()
            .arg("serve")
            .arg(site.path())
            .args(flags())
            .args(["--listen", "127.0.0.1:0", flag])
            .output();
        let output = output.unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        for part in ["https://127.0.0.1:0", "localhost", " left"] {
            assert!(told.contains(part), "{flag}: {part}: {told}");
        }
    }
}

/// The header comes before TLS, as load balancers send it.
#[test]
fn a_proxy_header_comes_before_tls() {
    let site = site();
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = log.path().to_str().unwrap().to_owned();
    let flags = ["--proxy-protocol", "--trusted-proxies", "127.0.0.0/8", "--access-log", &path];
    let server = serve(&site, &flags);
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    tcp.write_all(b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 443\r\n").unwrap();
    Client::of(tcp).get("/a%20b/c").is(200);
    server.terminate();
    crate::harness::wait_until("the line is written", || {
        let text = std::io::BufReader::new(std::fs::File::open(&path).unwrap());
        text.lines().any(|line| line.unwrap().starts_with("192.0.2.7 "))
    });
}

/// Browsers are told so over TLS alone (RFC 6797 section 7.2). A socket that a service manager has opened has no suffix, so that one at
/// port 80 serves plain HTTP.
#[test]
fn hsts_is_not_sent_over_plain_http_by_a_passed_socket() {
    let site = site();
    // Other tests, and servers of this machine, have other addresses.
    let number = std::process::id();
    let address = format!("127.80.{}.{}:80", number >> 8 & 0xff, number & 0xff);
    let http = match TcpListener::bind(&address) {
        Ok(http) => http,
        Err(error) => return drover_testing::skip!("port 80 cannot be had: {error}"),
    };
    let https = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = flags();
    let flags: Vec<&str> = [site.path().to_str().unwrap(), "--hsts", "1w", "--workers", "1"]
        .into_iter()
        .chain(own.iter().map(String::as_str))
        .collect();
    let command = |more: &[&str]| activated(&[&http, &https], &[&flags[..], more].concat());
    let Some(mut alone) = command(&[]) else {
        return drover_testing::skip!("bash is not installed");
    };
    let output = alone.stderr(Stdio::piped()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains(&address) && told.contains("add --https-redirect"), "{told}");
    let server = Server::start_as_it_is(command(&["--https-redirect"]).unwrap(), 2);
    let [plain, tls] = server.addresses() else { panic!() };
    assert_eq!(plain.port(), 80);
    let mut client = Client::connect(*plain);
    client.send(request("GET", "/a", &[]));
    assert_eq!(client.response().is(308).field("Strict-Transport-Security"), None);
    let response = Client::connect(*tls).get("/a%20b/c").is(200);
    assert_eq!(response.field("Strict-Transport-Security"), Some("max-age=604800"));
}

#[test]
fn the_access_log_says_what_was_agreed_upon() {
    let site = site();
    site.file("a", "hello");
    let own = TestCertificate::of(&["localhost"]);
    let config = own.client();
    let form = "%{SSL_PROTOCOL}x %{SSL_CIPHER}x %{SSL_SESSION_RESUMED}x %U";
    let log = |flags: &[&str], ask: &dyn Fn(&Server)| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(flags).arg("--access-log").arg(file.path());
        command.args(["--listen", "127.0.0.1:0", "--workers", "1"]);
        let mut server = Server::start_as_it_is(command, 1);
        ask(&server);
        server.terminate();
        assert!(server.exit_status().success());
        std::fs::read_to_string(file.path()).unwrap()
    };
    let certificate = own.flags();
    let certificate: Vec<&str> = certificate.iter().map(String::as_str).collect();
    let twice = |server: &Server| {
        for _ in 0..2 {
            connect_as(server, &config, "localhost").get("/a").is(200);
        }
    };
    assert_eq!(
        log(&[&certificate[..], &["--log-format", form]].concat(), &twice),
        "TLSv1.3 TLS_AES_128_GCM_SHA256 Initial /a\nTLSv1.3 TLS_AES_128_GCM_SHA256 Resumed /a\n"
    );
    let text = log(&[&certificate[..], &["--log-format", "json"]].concat(), &|server| {
        connect_as(server, &own.client(), "localhost").get("/a").is(200);
    });
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    let expected = serde_json::json!({
        "version": "TLSv1.3", "cipher": "TLS_AES_128_GCM_SHA256", "resumed": false
    });
    assert_eq!(line["tls"], expected);
    let plain = |server: &Server| drop(server.get("/a").is(200));
    assert_eq!(log(&["--log-format", form], &plain), "- - - /a\n");
}

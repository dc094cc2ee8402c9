//! Proxies in front of the server: the PROXY protocol, and fields of requests that name the client.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::harness::{PATIENCE, Server, Site, drover, figure, on_every_mechanism, request, signal};
use crate::unix_sockets::connect;

const LINE: &[u8] = b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\r\n";

/// A header of version 2 with this command, family and rest.
fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let len = (rest.len() as u16).to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &len, rest].concat()
}

fn ipv4() -> Vec<u8> {
    [&[192, 0, 2, 7, 127, 0, 0, 1][..], &4711_u16.to_be_bytes(), &80_u16.to_be_bytes()].concat()
}

fn ipv6() -> Vec<u8> {
    let client = "2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets();
    [&client[..], &[0; 15], &[1], &4711_u16.to_be_bytes(), &80_u16.to_be_bytes()].concat()
}

/// Headers, each with the client that it names.
fn headers() -> Vec<(Vec<u8>, &'static str)> {
    let extended = [&ipv4()[..], &[4, 0, 2, 0, 0], &[0xea, 0x01, 0x2c], &[7; 30]].concat();
    vec![
        (LINE.to_vec(), "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 ::1 4711 80\r\n".to_vec(), "2001:db8::7"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (binary(0x21, 0x11, &ipv4()), "192.0.2.7"),
        (binary(0x21, 0x11, &extended), "192.0.2.7"),
        (binary(0x21, 0x21, &ipv6()), "2001:db8::7"),
        (binary(0x21, 0x31, &[b'u'; 216]), "unix:"),
        (binary(0x21, 0x00, &[]), "127.0.0.1"),
        (binary(0x20, 0x00, &[]), "127.0.0.1"),
        (binary(0x20, 0x11, &ipv4()), "127.0.0.1"),
    ]
}

fn site() -> Site {
    let site = Site::new();
    site.file("a", "hello");
    site
}

/// A server that logs, with a folder for its log.
struct Logging {
    folder: tempfile::TempDir,
    server: Server,
}

impl Logging {
    fn start(site: &Site, flags: &[&str]) -> Logging {
        let folder = tempfile::tempdir().unwrap();
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(["--log-format", "json"]);
        command.arg("--access-log").arg(folder.path().join("log")).args(flags);
        command.stderr(Stdio::piped());
        Logging { server: Server::start(command, 1), folder }
    }

    /// The clients that were served, and what the server has logged of itself.
    fn end(mut self) -> (Vec<String>, String) {
        self.server.terminate();
        let mut told = String::new();
        self.server.stderr().read_to_string(&mut told).unwrap();
        assert!(self.server.exit_status().success(), "{told}");
        (clients(&self.folder.path().join("log")), told)
    }
}

fn clients(log: &Path) -> Vec<String> {
    let client = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["client"].as_str().unwrap().to_owned()
    };
    let is_served = |line: &&str| line.contains("\"status\":200");
    fs::read_to_string(log).unwrap().lines().filter(is_served).map(client).collect()
}

const BY_PROXY: [&str; 3] = ["--proxy-protocol", "--trusted-proxies", "127.0.0.0/8"];

#[test]
fn a_header_names_the_client_under_every_mechanism() {
    let site = site();
    on_every_mechanism(|mechanism| {
        let logging =
            Logging::start(&site, &[&BY_PROXY[..], &["--dispatch", mechanism.name]].concat());
        // More extensions than the input buffer holds.
        let long = binary(0x21, 0x11, &[ipv4(), vec![4; 65_000]].concat());
        let mut expected = Vec::new();
        for (header, client) in headers().into_iter().chain([(long, "192.0.2.7")]) {
            let mut stream = logging.server.connect();
            // With the first of two requests, of which the second comes by itself.
            stream.send_behind(&header, request("GET", "/a", &[]));
            assert_eq!(stream.response().is(200).text(), "hello");
            assert_eq!(stream.get("/a").is(200).text(), "hello");
            expected.extend([client.to_owned(), client.to_owned()]);
        }
        assert_eq!(logging.end().0, expected, "{}", mechanism.name);
    });
}

#[test]
fn a_header_may_come_in_any_two_parts() {
    let site = site();
    on_every_mechanism(|mechanism| {
        let flags = [&BY_PROXY[..], &["--dispatch", mechanism.name]].concat();
        let logging = Logging::start(&site, &flags);
        let mut expected = Vec::new();
        for (header, client) in headers() {
            for at in 1..=header.len() {
                let mut stream = logging.server.connect();
                stream.send_header(&header[..at]);
                // Usually the server has the first part by itself: another connection is served between.
                if at % 16 == 0 {
                    let mut other = logging.server.connect();
                    other.send_behind(&header, request("GET", "/a", &[]));
                    other.response().is(200);
                    expected.push(client.to_owned());
                }
                stream.send_behind(&header[at..], request("GET", "/a", &[]));
                stream.response().is(200);
                expected.push(client.to_owned());
            }
        }
        assert_eq!(logging.end().0, expected, "{}", mechanism.name);
    });
}

/// Reads until the server closes, in whatever way.
fn closed(mut stream: TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut told = Vec::new();
    match stream.read_to_end(&mut told) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    assert!(told.is_empty(), "{:?}", told.escape_ascii());
}

#[test]
fn what_is_no_header_is_closed_without_a_response() {
    let site = site();
    let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
    let malformed: [&[u8]; 8] = [
        b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 080\r\n",
        b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\n",
        b"PROXY UDP4 192.0.2.7 127.0.0.1 4711 80\r\n",
        long.as_bytes(),
        &binary(0x21, 0x12, &ipv4()),
        &binary(0x11, 0x11, &ipv4()),
        &binary(0x21, 0x21, &ipv4()),
    ];
    on_every_mechanism(|mechanism| {
        let logging =
            Logging::start(&site, &[&BY_PROXY[..], &["--dispatch", mechanism.name]].concat());
        for head in malformed {
            let mut stream = TcpStream::connect(logging.server.address()).unwrap();
            // The server may be faster.
            let _sent = stream.write_all(&[head, request("GET", "/a", &[]).as_bytes()].concat());
            closed(stream);
        }
        // A check whether somebody listens is no failure.
        drop(TcpStream::connect(logging.server.address()).unwrap());
        // A header that ends early.
        let mut stream = TcpStream::connect(logging.server.address()).unwrap();
        stream.write_all(&LINE[..20]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        closed(stream);
        let (clients, told) = logging.end();
        assert_eq!(clients, [""; 0]);
        assert!(told.contains("127.0.0.1 has sent no header of the PROXY protocol"), "{told}");
        assert_eq!(figure(&told, "connections failed"), 9, "{told}");
    });
}

#[test]
fn a_header_that_never_ends_meets_the_time_out() {
    let server = Server::on(&site(), &[&BY_PROXY[..], &["--header-timeout", "100ms"]].concat());
    for part in [&b""[..], &LINE[..10], &binary(0x21, 0x11, &[0; 500])[..100]] {
        let mut stream = server.connect();
        stream.send_header(part);
        stream.expect_end();
    }
}

#[test]
fn only_proxies_that_are_trusted_may_connect() {
    let site = site();
    let whole = [LINE, request("GET", "/a", &["Connection: close"]).as_bytes()].concat();
    on_every_mechanism(|mechanism| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listen = format!("unix:{},plain", path.display());
        let by_unix = |bytes: &[u8]| {
            let mut stream = connect(&path);
            let _sent = stream.write_all(bytes);
            let mut told = String::new();
            // It may be closed with the bytes unread.
            let _end = stream.read_to_string(&mut told);
            told
        };
        let flags = ["--proxy-protocol", "--dispatch", mechanism.name, "--listen", "127.0.0.1:0"];
        let with = |trusted: &str| {
            let flags = [&flags[..], &["--listen", &listen, "--trusted-proxies", trusted]].concat();
            Logging::start(&site, &flags)
        };
        let logging = with("unix,192.0.2.0/24");
        let mut stream = TcpStream::connect(logging.server.address()).unwrap();
        let _sent = stream.write_all(&whole);
        closed(stream);
        assert!(by_unix(&whole).ends_with("hello"));
        let (clients, told) = logging.end();
        assert_eq!(clients, ["192.0.2.7"]);
        assert!(told.contains("127.0.0.1 is none of --trusted-proxies"), "{told}");

        let logging = with("127.0.0.1");
        assert_eq!(by_unix(&whole), "");
        let mut stream = logging.server.connect();
        stream.send_behind(LINE, request("GET", "/a", &["Connection: close"]));
        stream.response().is(200);
        let (clients, told) = logging.end();
        assert_eq!(clients, ["192.0.2.7"]);
        assert!(told.contains("unix: is none of --trusted-proxies"), "{told}");
    });
}

#[test]
fn connections_are_counted_by_the_client_that_the_header_names() {
    let site = site();
    let server = Server::on(&site, &[&BY_PROXY[..], &["--max-per-address", "1"]].concat());
    let begin = |client: u8| {
        let mut stream = server.connect();
        let line = format!("PROXY TCP4 192.0.2.{client} 127.0.0.1 1 80\r\n");
        stream.send_behind(line, request("GET", "/a", &[]));
        stream
    };
    let mut first = begin(1);
    first.response().is(200);
    begin(2).response().is(200);
    let mut second = begin(1);
    assert_eq!(second.drain().0, 0);
    first.get("/a").is(200);
}

#[test]
fn a_field_names_the_client_where_the_peer_is_trusted() {
    let site = site();
    const SENT: [(&[&str], &str, &str); 7] = [
        (&["X-Forwarded-For: 192.0.2.7"], "192.0.2.7", "127.0.0.1"),
        (&["X-Forwarded-For: 1.1.1.1, 192.0.2.7, 10.0.0.1"], "192.0.2.7", "127.0.0.1"),
        (&["X-Forwarded-For: 1.1.1.1", "x-forwarded-for: 2001:db8::7"], "2001:db8::7", "127.0.0.1"),
        (&["X-Forwarded-For: 1.1.1.1, unknown"], "127.0.0.1", "127.0.0.1"),
        (&["Forwarded: for=\"[2001:db8::7]:80\";proto=http"], "127.0.0.1", "2001:db8::7"),
        (&["Forwarded: for=1.1.1.1, for=192.0.2.7, for=10.1.2.3"], "127.0.0.1", "192.0.2.7"),
        (&[], "127.0.0.1", "127.0.0.1"),
    ];
    on_every_mechanism(|mechanism| {
        let ask = |flags: &[&str]| {
            let flags = [&["--dispatch", mechanism.name][..], flags].concat();
            let logging = Logging::start(&site, &flags);
            let mut client = logging.server.connect();
            for (fields, ..) in SENT {
                client.ask("/a", fields).is(200);
            }
            drop(client);
            logging.end().0
        };
        let trusted = ["--trusted-proxies", "127.0.0.1,10.0.0.0/8"];
        assert_eq!(ask(&trusted), SENT.map(|(_, client, _)| client));
        let by_other = [&trusted[..], &["--forwarded-field", "forwarded"]].concat();
        assert_eq!(ask(&by_other), SENT.map(|(.., client)| client));
        assert_eq!(ask(&["--trusted-proxies", "10.0.0.0/8"]), ["127.0.0.1"; 7]);
        assert_eq!(ask(&[]), ["127.0.0.1"; 7]);
    });
}

/// Asks until there is an answer: workers from before a reload may accept a last connection, and what it begins with is
/// nothing to them.
fn until_served(address: SocketAddr, begin: &[u8], forwarded: &str) {
    let forwarded = format!("X-Forwarded-For: {forwarded}");
    let request = request("GET", "/a", &["Connection: close", &forwarded]);
    let mut told = Vec::new();
    while !told.starts_with(b"HTTP/1.1 200 ") {
        told.clear();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _sent = stream.write_all(&[begin, request.as_bytes()].concat());
        let _end = stream.read_to_end(&mut told);
    }
}

#[test]
fn a_reload_takes_other_proxies() {
    let site = site();
    let folder = tempfile::tempdir().unwrap();
    let [file, log] = ["drover.toml", "log"].map(|name| folder.path().join(name));
    for processes in [false, true] {
        let _gone = fs::remove_file(&log);
        let settings = |rest: &str| {
            let text = format!(
                "root = '{}'\nlisten = '127.0.0.1:0'\naccess-log = '{}'\nlog-format = 'json'\n\
                 processes = {processes}\n{rest}\n",
                site.path().display(),
                log.display()
            );
            fs::write(&file, text).unwrap();
        };
        settings("trusted-proxies = ['127.0.0.1', 'unix']");
        let mut command = drover();
        command.args(["serve", "--config"]).arg(&file).stderr(Stdio::piped());
        let mut server = Server::start_as_it_is(command, 1);
        let mut told = server.stderr();
        let mut reload = |rest: &str| {
            use std::io::BufRead;
            settings(rest);
            signal("HUP", server.process());
            let mut lines = String::new();
            while !lines.contains("reloaded: ") && !lines.contains("cannot reload") {
                assert!(told.read_line(&mut lines).unwrap() > 0, "{lines}");
            }
            lines
        };
        let address = server.address();
        until_served(address, b"", "192.0.2.7");
        let told = reload("proxy-protocol = true\ntrusted-proxies = '127.0.0.1'");
        assert!(told.contains("reloaded: "), "{told}");
        until_served(address, LINE, "1.1.1.1");
        let told = reload("proxy-protocol = true");
        assert!(told.contains("drover.toml:6:") && told.contains("--trusted-proxies"), "{told}");
        assert!(reload("").contains("reloaded: "));
        until_served(address, b"", "192.0.2.7");
        server.terminate();
        assert!(server.exit_status().success());
        assert_eq!(clients(&log), ["192.0.2.7", "192.0.2.7", "127.0.0.1"], "{processes}");
    }
}

#[test]
fn flags_that_trust_nobody_or_nonsense_are_refused() {
    for (flags, expected) in [
        (&["--proxy-protocol"][..], "--trusted-proxies 127.0.0.1,unix"),
        (&["--trusted-proxies", "10.0.0.1/8"], "write 10.0.0.0/8"),
        (&["--trusted-proxies", "localhost"], "10.0.0.0/8"),
        (&["--forwarded-field", "via"], "x-forwarded-for"),
    ] {
        let mut command = drover();
        command.args(["serve", "--response-size", "1", "--check", "-p", "0"]).args(flags);
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && told.contains(expected), "{told}");
    }
}

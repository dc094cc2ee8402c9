//! What breaks TLS, and in which way: each failure has its class and its text, and the sums add up.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection};

use crate::certificate::{CERTIFICATE, TestCertificate};
use crate::run::{Run, load};
use crate::server::{Action, Nobody, Server, response};
use crate::tls::{always, check_tls, https, over_all, secure};

/// Accepts connections for ever, and has `act` do something with each.
fn misbehaving(act: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let act = Arc::new(act);
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let act = Arc::clone(&act);
            thread::spawn(move || act(stream));
        }
    });
    address
}

/// Reads until the client has ended the connection.
fn drain(mut stream: &TcpStream) {
    while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {}
}

/// Reads the client's first message, which comes whole: a client that is told something before may not have sent all of it.
fn read_hello(stream: &mut TcpStream) {
    let mut header = [0; 5];
    stream.read_exact(&mut header).unwrap();
    let length = u16::from_be_bytes([header[3], header[4]]);
    stream.read_exact(&mut vec![0; length.into()]).unwrap();
}

/// What a server with the suite's certificate says to a client's first message.
fn first_flight(stream: &mut TcpStream, config: &Arc<ServerConfig>) -> Vec<u8> {
    let mut tls = ServerConnection::new(Arc::clone(config)).unwrap();
    let mut flight = Vec::new();
    while tls.is_handshaking() && !tls.wants_write() {
        tls.read_tls(stream).unwrap();
        tls.process_new_packets().unwrap();
    }
    while tls.wants_write() {
        tls.write_tls(&mut flight).unwrap();
    }
    flight
}

/// Four attempts to connect fail in the same way, whose text has these words.
#[track_caller]
pub(crate) fn all_fail(address: SocketAddr, class: &str, words: &[&str], more: &[&str]) {
    let url = format!("https://{address}/");
    let run = secure(&[&[&url[..], "-c", "4", "-n", "8"], more].concat());
    assert_eq!(run.status, Some(1), "{more:?}: {}", run.json);
    assert_eq!(run.number(&format!("/errors/{class}")), 4, "{more:?}: {}", run.json);
    assert_eq!((run.errors(), run.number("/requests")), (4, 0), "{more:?}: {}", run.json);
    assert_eq!(run.number("/connections/failed"), 4, "{more:?}: {}", run.json);
    run.assert_warned("connects-failed", 4);
    run.assert_null("/connect_us");
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    for word in words {
        assert!(run.stderr.contains(word), "{word}: {}", run.stderr);
        let told = run.json["connect_error"].as_str().unwrap();
        assert!(told.starts_with(&format!("{address}: ")) && told.contains(word), "{told}");
    }
}

#[test]
fn a_plain_server_at_the_port_is_named() {
    let http = misbehaving(|mut stream| {
        read_hello(&mut stream);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").unwrap();
        drain(&stream);
    });
    over_all(|mechanism| {
        let more = ["--dispatch", mechanism];
        all_fail(http, "tls_failed", &["speaks plain HTTP there; use http://"], &more);
    });
}

#[test]
fn what_is_no_tls_fails_the_handshake() {
    let noise = misbehaving(|mut stream| {
        read_hello(&mut stream);
        stream.write_all(b"SSH-2.0-OpenSSH\r\n").unwrap();
        drain(&stream);
    });
    all_fail(noise, "tls_failed", &["TLS: received corrupt message", "speak TLS there"], &[]);
    let alert = misbehaving(|mut stream| {
        read_hello(&mut stream);
        // unrecognized_name (RFC 8446 section 6).
        stream.write_all(b"\x15\x03\x03\0\x02\x02\x70").unwrap();
        drain(&stream);
    });
    all_fail(alert, "tls_failed", &["UnrecognisedName", "--sni NAME"], &[]);
}

#[test]
fn an_end_within_the_handshake_is_a_failure_of_tls() {
    let config = CERTIFICATE.server();
    let half = misbehaving(move |mut stream| {
        let flight = first_flight(&mut stream, &config);
        stream.write_all(&flight[..flight.len() / 2]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        drain(&stream);
    });
    let reset = misbehaving(|mut stream| {
        read_hello(&mut stream);
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    });
    over_all(|mechanism| {
        let more = ["--dispatch", mechanism];
        all_fail(half, "tls_failed", &["closed the connection in the TLS handshake"], &more);
        all_fail(reset, "tls_failed", &["reset the connection in the TLS handshake"], &more);
    });
}

#[test]
fn a_handshake_that_stalls_ends_with_the_time_out() {
    let silent = misbehaving(|stream| drain(&stream));
    let config = CERTIFICATE.server();
    let half = misbehaving(move |mut stream| {
        let flight = first_flight(&mut stream, &config);
        stream.write_all(&flight[..flight.len() / 2]).unwrap();
        drain(&stream);
    });
    over_all(|mechanism| {
        for address in [silent, half] {
            let more = ["--timeout", "100ms", "--dispatch", mechanism];
            let words = ["did not finish the TLS handshake in time"];
            all_fail(address, "connect_timeout", &words, &more);
        }
    });
}

#[test]
fn a_certificate_that_is_not_trusted_is_refused_with_the_way_out() {
    let other = TestCertificate::of(&["other.example"]);
    let server =
        Server::start_with(Some(other.server()), |_| Action::Response(response("200 OK", 1)));
    let words = ["from a CA that is not trusted (", "); use --cacert FILE or --insecure"];
    all_fail(server.address, "tls_failed", &words, &[]);
    let url = server.url();
    let trusting = [&url[..], "-c", "1", "-n", "2", "--cacert", other.authority()];
    let run = load(&trusting);
    assert_eq!((run.status, run.number("/errors/tls_failed")), (Some(1), 1), "{}", run.json);
    for words in ["not valid for name \"127.0.0.1\"", "other.example", "use --sni NAME"] {
        assert!(run.stderr.contains(words), "{}", run.stderr);
    }
    for more in [&["--cacert", other.authority(), "--sni", "other.example"][..], &["--insecure"]] {
        let run = load(&[&trusting[..5], more].concat());
        assert_eq!((run.status, run.number("/responses")), (Some(0), 2), "{}", run.stderr);
        check_tls(&run);
    }
}

/// Every fifth request fails in the same way: 10 of 50.
#[track_caller]
fn every_fifth_fails(failure: Action, class: &str, more: &[&str]) -> Run {
    let server = https(move |n| match n % 5 {
        2 => failure.clone(),
        _ => Action::Response(response("200 OK", 7)),
    });
    let run = secure(&[&[&server.url()[..], "-c", "1", "-n", "50"], more].concat());
    assert_eq!(run.status, Some(0), "{more:?}: {}", run.stderr);
    assert_eq!(run.number(&format!("/errors/{class}")), 10, "{more:?}: {}", run.json);
    assert_eq!((run.errors(), run.number("/responses")), (10, 40), "{more:?}: {}", run.json);
    assert_eq!(server.requests(), 50);
    run
}

#[test]
fn what_breaks_an_open_connection_is_counted_for_what_it_is() {
    let cut = response("200 OK", 100)[..60].to_string();
    over_all(|mechanism| {
        let more = ["--dispatch", mechanism];
        every_fifth_fails(Action::ResponseAndReset(cut.clone()), "reset", &more);
        every_fifth_fails(Action::ResponseAndCut(cut.clone()), "truncated", &more);
        every_fifth_fails(Action::ResponseAndClose(cut.clone()), "truncated", &more);
        let run = every_fifth_fails(
            Action::Below("HTTP/1.1 200 OK\r\n".to_string()),
            "tls_failed",
            &more,
        );
        let told = run.json["connect_error"].as_str().unwrap();
        assert!(told.contains(": TLS: received corrupt message"), "{told}");
        assert!(!told.contains("http://") && run.warned("connects-failed").is_empty(), "{told}");
    });
}

/// Whoever is on the way can end a stream. Only the server can say that this is the end (RFC 8446 section 6.1).
#[test]
fn a_body_without_a_length_ends_with_the_word_of_the_server_alone() {
    let until_close = "HTTP/1.1 200 OK\r\n\r\nuntil the end";
    over_all(|mechanism| {
        let more = ["--dispatch", mechanism];
        every_fifth_fails(Action::ResponseAndCut(until_close.to_string()), "truncated", &more);
        let server = always(Action::ResponseAndClose(until_close.to_string()));
        let run = secure(&[&[&server.url()[..], "-c", "1", "-n", "20"], &more[..]].concat());
        assert_eq!((run.status, run.number("/responses")), (Some(0), 20), "{}", run.stderr);
        assert_eq!(run.number("/bytes/body"), 20 * 13, "{mechanism}");
        // A length says where the end is.
        let closing = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\n12345678\n";
        let server = always(Action::ResponseAndCut(closing.to_string()));
        let run = secure(&[&[&server.url()[..], "-c", "1", "-n", "20"], &more[..]].concat());
        assert_eq!(
            (run.number("/responses"), run.number("/bytes/body")),
            (20, 180),
            "{}",
            run.json
        );
    });
}

#[test]
fn nobody_at_the_port_is_refused_before_any_tls() {
    let nobody = Nobody::anywhere();
    all_fail(nobody.address, "refused", &["Connection refused"], &[]);
}

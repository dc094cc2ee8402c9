//! Servers that do not speak HTTP/2, and flags that do not go with it: one line says what helps.

use serde_json::json;

use super::server::Http2Server;
use crate::certificate::CERTIFICATE;
use crate::run::load;
use crate::server::{Action, Server, response};
use crate::tls::https;
use crate::usage::refused;

const PLAIN: &str = "http://127.0.0.1:9/";
const SECURE: &str = "https://127.0.0.1:9/";

#[test]
fn flags_that_mean_something_else_are_refused() {
    refused(&["load", PLAIN, "--http2"], &["--http2", "use --h2c"]);
    refused(&["load", SECURE, "--h2c"], &["--h2c", "use --http2"]);
    refused(&["load", PLAIN, "-m", "4"], &["--streams", "--h2c"]);
    refused(&["load", PLAIN, "--h2c", "--pipeline", "3"], &["--pipeline", "--streams"]);
    refused(&["load", PLAIN, "--h2c", "-m", "0"], &["--streams"]);
    refused(
        &["load", PLAIN, "--h2c", "-m", "100000", "-c", "4000"],
        &["--streams 100000", "fewer"],
    );
    refused(&["load", "--curl", "curl --http2 http://127.0.0.1:9/"], &["use --h2c"]);
    refused(&["idle", PLAIN, "--http2"], &["use --h2c"]);
}

/// The preface is no request: HTTP/1 servers answer it with 400, close, or wait.
#[test]
fn a_server_of_http_1_that_gets_a_preface_is_told_from_others() {
    let bad =
        Server::start_with(None, |_| Action::ResponseAndClose(response("400 Bad Request", 0)));
    let url = format!("http://{}/", bad.address);
    for more in [&[][..], &["--calls-per-connection", "1"]] {
        let run =
            load(&[&["--h2c", &url, "-c", "1", "-n", "1", "--timeout", "2s"][..], more].concat());
        assert_eq!(run.status, Some(1), "{}", run.json);
        assert_eq!(run.number("/responses"), 0);
        assert!(run.stderr.contains("leave --h2c out"), "{more:?}: {}", run.stderr);
    }
    let closes = Server::start_with(None, |_| Action::ResponseAndClose(String::new()));
    let url = format!("http://{}/", closes.address);
    let run = load(&["--h2c", &url, "-c", "1", "-n", "1", "--timeout", "1s"]);
    assert!(run.stderr.contains("does it speak HTTP/2?"), "{}", run.stderr);
    let waits = Server::start_with(None, |_| Action::Ignore);
    let url = format!("http://{}/", waits.address);
    let run = load(&["--h2c", &url, "-c", "1", "-n", "1", "--timeout", "300ms"]);
    assert!(run.number("/errors/connect_timeout") > 0, "{}", run.json);
    assert!(run.stderr.contains("SETTINGS"), "{}", run.stderr);
}

#[test]
fn a_server_that_does_not_choose_http_2_is_named_with_the_remedy() {
    let server = https(|_| Action::Response(response("200 OK", 1)));
    let own = ["--http2", &server.url(), "--cacert", CERTIFICATE.authority(), "-c", "2", "-n", "4"];
    let run = load(&[&own[..], &["--timeout", "2s"]].concat());
    assert_eq!(run.status, Some(1), "{}", run.json);
    assert!(run.stderr.contains("leave --http2 out"), "{}", run.stderr);
    assert!(run.number("/errors/tls_failed") > 0, "{}", run.json);
    assert_eq!(run.number("/requests"), 0);
}

/// curl's own options ask for HTTP/2 too.
#[test]
fn a_command_of_curl_asks_for_http_2() {
    let server = Http2Server::always(b"x");
    let command = format!("curl --http2-prior-knowledge {}", server.target()[1]);
    let run = load(&["--curl", &command, "-n", "64"]);
    assert_eq!((run.status, run.number("/responses")), (Some(0), 64), "{}", run.stderr);
    assert_eq!(run.json["http2"]["go_aways"], json!({}));
    assert_eq!(server.requests(), 64);
}

/// `drover idle` holds connections of HTTP/2.
#[test]
fn idle_connections_speak_http_2_too() {
    let server = Http2Server::always(b"x");
    let [flag, url] = server.target();
    let own = ["idle", &url, &flag, "--connections", "3", "--hold", "300ms"];
    let output = crate::run::drover(&own).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("held 3 connections"), "{text} {output:?}");
    let own = [&own[..], &["--every", "100ms"]].concat();
    let output = crate::run::drover(&own).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(server.requests() > 0);
}

//! HTTPS, against `drover serve` and against a scripted server; `broken_tls` has what breaks it.

use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};

use crate::broken_tls::all_fail;
use crate::certificate::{CERTIFICATE, TestCertificate, text};
use crate::run::{Run, drover, finish, line, load};
use crate::server::{Action, Server, response, wait_until};
use crate::usage::refused;

/// A running `drover serve` with a certificate; ended with the test.
struct HttpsServer {
    child: Child,
    url: String,
    /// Open as long as the server runs: it may have more to say.
    _stdout: BufReader<ChildStdout>,
}

impl HttpsServer {
    fn start(root: &Path, more: &[&str]) -> HttpsServer {
        let files = &CERTIFICATE.files;
        let own = ["serve", text(root), "--listen", "127.0.0.1:0", "--workers", "1"];
        let tls = ["--tls-cert", text(&files.certificate), "--tls-key", text(&files.key)];
        let mut child = drover(&[&own[..], &tls, more].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let line = line(&mut stdout);
        let url = line.split(' ').next_back().unwrap().to_owned();
        assert!(url.starts_with("https://127.0.0.1:"), "{line}");
        HttpsServer { child, url, _stdout: stdout }
    }
}

impl Drop for HttpsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A scripted server that speaks TLS.
pub(crate) fn https(script: impl Fn(u64) -> Action + Send + Sync + 'static) -> Server {
    Server::start_with(Some(CERTIFICATE.server()), script)
}

pub(crate) fn always(action: Action) -> Server {
    https(move |_| action.clone())
}

/// Runs a load that trusts the suite's CA, and checks what is said of its TLS.
#[track_caller]
pub(crate) fn secure(arguments: &[&str]) -> Run {
    let run = load(&[&["--cacert", CERTIFICATE.authority()], arguments].concat());
    check_tls(&run);
    run
}

/// The sums that hold for the TLS of a run whose servers all speak it.
#[track_caller]
pub(crate) fn check_tls(run: &Run) {
    let handshakes = run.number("/tls/handshakes");
    assert_eq!(handshakes, run.number("/connections/opened"), "{}", run.json);
    let agreed = run.json["tls"]["agreed"].as_array().unwrap();
    let count: u64 = agreed.iter().map(|it| it["count"].as_u64().unwrap()).sum();
    assert_eq!(count, handshakes, "{}", run.json);
    assert!(run.number("/tls/resumed") <= handshakes, "{}", run.json);
    assert!(run.number("/tls/handshakes_in_window") <= handshakes, "{}", run.json);
    assert_eq!(run.json["handshake_us"].is_null(), handshakes == 0, "{}", run.json);
}

pub(crate) fn over_all(test: impl Fn(&'static str)) {
    for mechanism in drover_mech::mechanisms::ALL {
        match mechanism.probe() {
            Ok(()) => test(mechanism.name),
            Err(reason) => drover_testing::skip!("{}: {reason}", mechanism.name),
        }
    }
}

/// What both sides can count.
#[track_caller]
fn agree(run: &Run, server: &Server) {
    let opened = run.number("/connections/opened");
    wait_until(|| server.connections() >= opened);
    assert_eq!(run.number("/requests"), server.requests());
    assert_eq!(opened, server.connections());
    assert_eq!(run.number("/bytes/sent"), server.request_bytes());
}

#[test]
fn files_come_over_tls_whole_by_every_mechanism() {
    let site = tempfile::tempdir().unwrap();
    let body: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
    let file = site.path().join("file");
    fs::write(&file, &body).unwrap();
    let server = HttpsServer::start(site.path(), &[]);
    let url = format!("{}/file", server.url);
    let verify = format!("--verify={}", text(&file));
    over_all(|mechanism| {
        let own = ["-c", "4", "-n", "40", "--idle", "2", "--dispatch", mechanism];
        for more in [&[&verify[..]][..], &["--expect-size", "300000"], &["--pipeline", "3"]] {
            let run = secure(&[&[&url[..]], &own[..], more].concat());
            assert_eq!(run.status, Some(0), "{mechanism} {more:?}: {}", run.stderr);
            assert_eq!((run.number("/responses"), run.errors()), (40, 0), "{mechanism} {more:?}");
            assert_eq!(run.number("/bytes/body"), 40 * 300_000, "{mechanism} {more:?}");
            assert_eq!(run.number("/connections/opened"), 6, "{mechanism} {more:?}");
            assert_eq!(run.number("/connections/idle_held"), 2, "{mechanism} {more:?}");
            let agreed = &run.json["tls"]["agreed"][0];
            assert_eq!(
                (&agreed["version"], &agreed["protocol"]),
                (&json!("TLSv1.3"), &json!("http/1.1"))
            );
        }
    });
}

#[test]
fn every_mechanism_gives_the_same_account_and_says_the_end() {
    over_all(|mechanism| {
        for pace in [&[][..], &["--rate", "2000"], &["--calls-per-connection", "7"]] {
            let server = https(|n| match n % 10 {
                9 => Action::ResponseAndClose(
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_string(),
                ),
                _ => Action::Response(response("200 OK", 100)),
            });
            let url = server.url();
            let own = [&url[..], "-c", "5", "-n", "200", "--idle", "3", "--dispatch", mechanism];
            let run = secure(&[&own[..], pace].concat());
            assert_eq!(run.status, Some(0), "{mechanism} {pace:?}: {}", run.stderr);
            agree(&run, &server);
            assert_eq!(run.number("/responses"), 200, "{mechanism} {pace:?}");
            assert_eq!(run.number("/connections/closed_by_peer"), 20, "{mechanism} {pace:?}");
            assert_eq!(run.number("/connections/idle_held"), 3, "{mechanism} {pace:?}");
            assert_eq!(server.unannounced_ends(), 0, "{mechanism} {pace:?}");
        }
    });
}

/// Against a server that gives one ticket for each connection, and one that gives two.
#[test]
fn sessions_are_resumed_as_often_as_asked() {
    let site = tempfile::tempdir().unwrap();
    fs::write(site.path().join("index.html"), "x").unwrap();
    let real = HttpsServer::start(site.path(), &[]);
    let scripted = always(Action::Response(response("200 OK", 1)));
    for url in [&real.url[..], &scripted.url()] {
        for (how, resumed) in
            [(&[][..], 11), (&["--tls-resume", "on"], 11), (&["--tls-resume", "off"], 0)]
        {
            let own = [url, "-c", "1", "-n", "12", "--calls-per-connection", "1"];
            let run = secure(&[&own[..], how].concat());
            assert_eq!(run.number("/tls/handshakes"), 12, "{url} {how:?}: {}", run.json);
            assert_eq!(run.number("/tls/resumed"), resumed, "{url} {how:?}: {}", run.json);
            assert_eq!(run.number("/tls/handshakes_in_window"), 12, "{url} {how:?}");
        }
        let own = [url, "-c", "1", "-n", "12", "--calls-per-connection", "1"];
        let run = secure(&[&own[..], &["--tls-resume", "3"]].concat());
        assert_eq!(run.number("/tls/resumed"), 9, "{url}: {}", run.json);
    }
    // Connections that are opened together have no session to resume.
    let run = secure(&[&real.url, "-c", "20", "-n", "100"]);
    assert_eq!((run.number("/tls/handshakes"), run.number("/tls/handshakes_in_window")), (20, 0));
}

#[test]
fn the_summary_says_what_was_agreed_upon_and_how_fast_handshakes_are() {
    let server = always(Action::Response(response("200 OK", 1)));
    let own = ["load", "--cacert", CERTIFICATE.authority(), "-c", "2", "-n", "20"];
    let summary = |more: &[&str]| {
        let output = drover(&[&own[..], &[&server.url()[..]], more].concat()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let kept = summary(&[]);
    let row = |text: &str| text.lines().find(|line| line.starts_with("  tls ")).unwrap().to_owned();
    assert!(
        row(&kept).contains("TLS 1.3, TLS_AES_128_GCM_SHA256, X25519MLKEM768: 2 handshakes, p50"),
        "{kept}"
    );
    assert!(!kept.contains("handshakes/s") && kept.contains("\n  handshake "), "{kept}");
    let closed = summary(&["--calls-per-connection", "1"]);
    assert!(
        row(&closed).contains("20 handshakes (") && row(&closed).ends_with(" handshakes/s"),
        "{closed}"
    );
    let old = summary(&["--tls-max", "1.2"]);
    assert!(row(&old).contains("TLS 1.2, TLS_ECDHE_ECDSA_WITH_"), "{old}");
}

#[test]
fn processes_and_warm_ups_count_their_handshakes() {
    let server = always(Action::Response(response("200 OK", 1)));
    let url = server.url();
    let run = secure(&[&url, "-c", "5", "-n", "50", "--processes", "2", "-t", "2", "--idle", "3"]);
    assert_eq!((run.status, run.number("/tls/handshakes")), (Some(0), 8), "{}", run.stderr);
    assert_eq!(run.json["tls"]["agreed"].as_array().unwrap().len(), 1, "{}", run.json);
    let run = secure(&[&url, "-c", "5", "-n", "50", "--warm-up", "2"]);
    assert_eq!((run.number("/tls/handshakes"), run.number("/requests")), (5, 50));
}

/// Servers of the same host and port are two, if one speaks TLS.
#[test]
fn plain_servers_are_asked_next_to_others() {
    let plain = Server::start_with(None, |_| Action::Response(response("200 OK", 3)));
    let server = always(Action::Response(response("200 OK", 1)));
    let urls = [&plain.url()[..], &server.url()];
    let run = load(&[&urls[..], &["-c", "4", "-n", "40", "-k"]].concat());
    assert_eq!((run.status, run.number("/responses")), (Some(0), 40), "{}", run.stderr);
    assert_eq!(run.number("/tls/handshakes"), 2, "{}", run.json);
    assert_eq!(run.number("/connections/opened"), 4);
    assert_eq!(plain.requests() + server.requests(), 40);
    let none = load(&[&plain.url(), "-c", "1", "-n", "1"]);
    ["/tls", "/handshake_us", "/errors/tls_failed", "/histograms/handshake"]
        .iter()
        .for_each(|path| none.assert_null(path));
}

#[test]
fn requests_of_browsers_keep_their_scheme() {
    let server = always(Action::Response(response("200 OK", 1)));
    let command = format!("curl '{}api' -k -H 'x: y'", server.url());
    let run = secure(&["--curl", &command, "-c", "1", "-n", "3"]);
    assert_eq!((run.status, run.number("/responses")), (Some(0), 3), "{}", run.stderr);
    let har = json!({"log": {"entries": [{"request": {
        "method": "GET", "url": format!("{}recorded", server.url()), "headers": []}}]}});
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("har");
    fs::write(&file, har.to_string()).unwrap();
    let run = secure(&["--from-har", text(&file), "-c", "1", "-n", "3"]);
    assert_eq!((run.status, run.number("/responses")), (Some(0), 3), "{}", run.stderr);
    assert_eq!(run.json["target"], format!("{}recorded", server.url()));
    assert_eq!(server.requests(), 6);
}

#[test]
fn a_slow_reader_gets_every_byte() {
    let server = always(Action::Response(response("200 OK", 100_000)));
    let own = [&server.url()[..], "-c", "2", "-n", "4", "--read-rate", "1000000"];
    over_all(|mechanism| {
        let run = secure(&[&own[..], &["--dispatch", mechanism]].concat());
        assert_eq!((run.status, run.errors()), (Some(0), 0), "{mechanism}: {}", run.stderr);
        assert_eq!(run.number("/bytes/body"), 400_000, "{mechanism}");
    });
}

/// A server that asks for a certificate, and the certificate and key that it lets in.
fn asking(folder: &Path) -> (Arc<ServerConfig>, PathBuf, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(vec![]).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = parameters.self_signed(&key).unwrap();
    let issuer = Issuer::new(parameters, key);
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(vec!["client".to_string()]).unwrap();
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let own = parameters.signed_by(&key, &issuer).unwrap();
    let files = ["cert", "key"].map(|name| folder.join(name));
    fs::write(&files[0], own.pem()).unwrap();
    fs::write(&files[1], key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
    let [cert, key] = files;
    (CERTIFICATE.server_that_asks(verifier), cert, key)
}

#[test]
fn a_server_that_asks_for_a_certificate_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let (config, cert, key) = asking(folder.path());
    let server = Server::start_with(Some(config), |_| Action::Response(response("200 OK", 1)));
    let url = server.url();
    for more in [&[][..], &["--tls-max", "1.2"], &["--calls-per-connection", "1"]] {
        let own = [&url, "-c", "2", "-n", "10", "--cert", text(&cert), "--key", text(&key)];
        let run = secure(&[&own[..], more].concat());
        assert_eq!((run.status, run.number("/responses")), (Some(0), 10), "{}", run.stderr);
    }
    // With TLS 1.3 a client hears of the refusal behind its handshake, or with its first request.
    let words = ["TLS: received fatal alert: CertificateRequired; ", "--cert FILE with --key FILE"];
    all_fail(server.address, "tls_failed", &words, &["--tls-max", "1.2"]);
}

/// The CAs of this machine, as OpenSSL's variable names them.
#[test]
fn without_flags_the_cas_of_this_machine_are_trusted() {
    let server = always(Action::Response(response("200 OK", 1)));
    let own = ["load", "--json", "-", "-c", "1", "-n", "2", &server.url()];
    let other = TestCertificate::of(&["127.0.0.1"]);
    for (trusted, responses) in [(CERTIFICATE.authority(), 2), (other.authority(), 0)] {
        let output = drover(&own).env("SSL_CERT_FILE", trusted).output().unwrap();
        assert_eq!(finish(output).number("/responses"), responses);
    }
    let empty = other.folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    let output = drover(&own).env("SSL_CERT_FILE", &empty).env_remove("SSL_CERT_DIR").output();
    let output = output.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && stderr.contains("--cacert FILE"), "{stderr}");
}

#[test]
fn keys_are_written_where_the_environment_says_and_the_result_warns_of_it() {
    let server = always(Action::Response(response("200 OK", 1)));
    let url = server.url();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    let own = ["load", "--json", "-", "-k", "-c", "2", "-n", "4"];
    let run = |url: &str, value: &Path, more: &[&str]| {
        let mut command = drover(&[&own[..], &[url], more].concat());
        command.env("SSLKEYLOGFILE", value).output().unwrap()
    };
    for (more, processes) in [(&[][..], 1), (&["--processes", "2"], 2)] {
        let run = finish(run(&url, &file, more));
        run.assert_warned("tls-keys-written", None);
        let warning = run.json["warnings"].to_string();
        assert!(warning.contains(text(&file)) && warning.contains("SSLKEYLOGFILE"), "{warning}");
        let keys = fs::read_to_string(&file).unwrap();
        let secrets = keys.lines().filter(|line| line.starts_with("CLIENT_TRAFFIC_SECRET_0 "));
        assert_eq!(secrets.count(), 2, "{processes}: {keys}");
        fs::remove_file(&file).unwrap();
    }
    let quiet = finish(run(&url, Path::new(""), &[]));
    assert_eq!(quiet.warned("tls-keys-written"), [], "{}", quiet.json);
    let output = run(&url, &folder.path().join("no/such"), &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && stderr.contains("SSLKEYLOGFILE"), "{stderr}");
    // Without TLS there are no keys.
    let plain = Server::start_with(None, |_| Action::Response(response("200 OK", 1)));
    let arguments = ["load", "--json", "-", "-n", "4", &plain.url()];
    let none = finish(drover(&arguments).env("SSLKEYLOGFILE", &file).output().unwrap());
    assert!(none.warned("tls-keys-written").is_empty() && !file.exists(), "{}", none.json);
}

#[test]
fn idle_connections_speak_tls_too() {
    let server = always(Action::Response(response("200 OK", 1)));
    let url = server.url();
    let own = ["idle", &url, "-c", "10", "--hold", "300ms"];
    let held = |more: &[&str]| {
        let output = drover(&[&own[..], more].concat()).output().unwrap();
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        (output.status.code(), stdout, stderr)
    };
    let (status, stdout, stderr) = held(&["--cacert", CERTIFICATE.authority()]);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.starts_with("holding 10 connections\nheld 10 connections for "), "{stdout}");
    let other = TestCertificate::of(&["127.0.0.1"]);
    let (status, stdout, stderr) = held(&["--cacert", other.authority()]);
    assert!(status == Some(1) && stdout.contains("errors: tls_failed 10"), "{stdout}");
    assert!(stderr.contains("--insecure"), "{stderr}");
    assert_eq!(server.requests(), 0);
}

#[test]
fn mistakes_name_the_flag_and_the_file() {
    let url = "https://127.0.0.1:9/";
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("nothing");
    fs::write(&nothing, "nothing").unwrap();
    let nothing = text(&nothing);
    let other = TestCertificate::of(&["other.example"]);
    let (cert, key) = (text(&CERTIFICATE.files.certificate), text(&CERTIFICATE.files.key));
    for (flags, words) in [
        (&["--cacert", "/no/such/file"][..], &["--cacert /no/such/file", "No such file"][..]),
        (&["--cacert", nothing], &["--cacert", nothing, "no certificate found"]),
        (&["--cacert", cert, "-k"], &["--cacert", "--insecure"]),
        (&["-k", "--cert", nothing, "--key", key], &["--cert", nothing, "no certificate found"]),
        (&["-k", "--cert", cert, "--key", nothing], &["--key", nothing, "no private key found"]),
        (
            &["-k", "--cert", cert, "--key", text(&other.files.key)],
            &["--key", text(&other.files.key), "does not belong to", cert],
        ),
        (&["-k", "--cert", cert], &["--key"]),
        (&["-k", "--sni", "no name"], &["'no name'", "--sni"]),
        (&["-k", "--tls-resume", "often"], &["--tls-resume", "on, off"]),
        (&["-k", "--tls-max", "1.1"], &["--tls-max", "1.2"]),
    ] {
        refused(&[&["load", url], flags].concat(), words);
    }
    for flags in [&["-k"][..], &["--cacert", "x"], &["--sni", "a"], &["--tls-resume", "off"]] {
        let words = ["is for TLS", "https://"];
        refused(&[&["load", "http://127.0.0.1:9/"], flags].concat(), &words);
        refused(&[&["idle", "http://127.0.0.1:9/"], flags].concat(), &words);
    }
}

/// The first object of the result with TLS, for the test of the schema.
pub(crate) fn result_with_tls() -> Value {
    let server = always(Action::Response(response("200 OK", 1)));
    secure(&[&server.url(), "-c", "2", "-n", "20", "--calls-per-connection", "1"]).json
}

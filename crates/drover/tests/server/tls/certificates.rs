//! Which certificate a client gets, and what becomes of sessions.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, HandshakeKind};

use super::wire::TestCertificate;
use super::{connect_as, serve_with};
use crate::harness::{Client, Server, Site, drover, wait_until};
use crate::reloading::Configured;

fn site() -> Site {
    let site = Site::new();
    site.file("a", "hello");
    site
}

/// The certificate that a client has got.
fn certificate(client: &mut Client) -> CertificateDer<'static> {
    client.get("/a").is(200);
    client.wire().tls().unwrap().peer_certificates().unwrap()[0].clone().into_owned()
}

fn own(certificate: &TestCertificate) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(&certificate.files.certificate).unwrap()
}

#[test]
fn a_client_gets_the_certificate_of_the_host_that_it_names() {
    let site = site();
    let all =
        [TestCertificate::of(&["a.example", "localhost"]), TestCertificate::of(&["*.b.example"])];
    let server = serve_with(&site, &[&all[0], &all[1]], &[]);
    for (host, number) in [("a.example", 0), ("x.b.example", 1), ("localhost", 0)] {
        let mut client = connect_as(&server, &all[number].client(), host);
        assert_eq!(certificate(&mut client), own(&all[number]), "{host}");
    }
    // An address is no name of a host: the first certificate is shown, which is not for it.
    let mut client = connect_as(&server, &all[0].client(), "192.0.2.1");
    let error = client.await_handshake().unwrap_err().to_string();
    assert!(error.contains("not valid for name"), "{error}");
    let strict = serve_with(&site, &[&all[0], &all[1]], &["--tls-strict-sni"]);
    let mut client = connect_as(&strict, &all[0].client(), "unknown.example");
    assert!(client.await_handshake().is_err());
}

fn resuming(certificate: &TestCertificate) -> Arc<ClientConfig> {
    certificate.client()
}

fn is_resumed(client: &mut Client) -> bool {
    client.get("/a").is(200);
    client.wire().tls().unwrap().handshake_kind() == Some(HandshakeKind::Resumed)
}

#[test]
fn sessions_are_resumed_by_other_processes_and_other_servers() {
    let site = site();
    let own = TestCertificate::of(&["localhost"]);
    let config = resuming(&own);
    let flags = ["--workers", "3", "--processes"];
    let one = serve_with(&site, &[&own], &flags);
    assert!(!is_resumed(&mut connect_as(&one, &config, "localhost")));
    let resumed = (0..12).filter(|_| is_resumed(&mut connect_as(&one, &config, "localhost")));
    assert_eq!(resumed.count(), 12, "whichever process takes the connection");
    let other = serve_with(&site, &[&own], &[]);
    assert!(is_resumed(&mut connect_as(&other, &config, "localhost")));
}

#[test]
fn a_reload_shows_other_certificates_and_refuses_broken_ones() {
    let site = site();
    let before = TestCertificate::of(&["localhost", "127.0.0.1"]);
    let after = TestCertificate::of(&["localhost", "127.0.0.1"]);
    let files = &before.files;
    let (cert, key) = (files.certificate.display(), files.key.display());
    let settings = format!("tls-cert = '{cert}'\ntls-key = '{key}'\n");
    let mut configured = Configured::start(&site, &[], &settings);
    let mut open = connect_as(&configured.server, &before.client(), "localhost");
    assert_eq!(certificate(&mut open), own(&before));
    assert!(configured.hang_up().contains("is as it was"));

    // The key of another certificate.
    let old_key = fs::read(&files.key).unwrap();
    fs::copy(&after.files.key, &files.key).unwrap();
    let told = configured.hang_up();
    assert!(told.contains("cannot reload: ") && told.contains("does not belong to"), "{told}");
    let mut client = connect_as(&configured.server, &before.client(), "localhost");
    assert_eq!(certificate(&mut client), own(&before));

    let own_before = own(&before);
    fs::copy(&after.files.certificate, &files.certificate).unwrap();
    let told = configured.hang_up();
    assert!(told.contains("reloaded: "), "{told}");
    // Workers from before may take connections until they have read that they are to retire: they show the other one.
    wait_until("the new certificate is shown", || {
        let mut client = connect_as(&configured.server, &after.client(), "localhost");
        client.await_handshake().is_ok() && certificate(&mut client) == own(&after)
    });
    // A connection from before gets one more response.
    open.get("/a").is(200);
    assert_ne!(own(&after), own_before);
    drop(old_key);
}

/// Workers get several sockets of one address when there are fewer of them than before.
#[test]
fn an_address_speaks_tls_whatever_number_of_workers_a_reload_brings() {
    let site = site();
    let own_certificate = TestCertificate::of(&["localhost", "127.0.0.1"]);
    let files = &own_certificate.files;
    let (cert, key) = (files.certificate.display(), files.key.display());
    let config = own_certificate.client();
    for processes in [false, true] {
        let settings = format!(
            "tls-cert = '{cert}'\ntls-key = '{key}'\nworkers = 4\naccept = 'reuseport'\nprocesses = {processes}\n"
        );
        let mut configured = Configured::start(&site, &[], &settings);
        for change in [["workers = 4", "workers = 2"], ["'reuseport'", "'shared'"]] {
            let told = configured.reload(|text| text.replace(change[0], change[1]));
            assert!(told.contains("reloaded: "), "{told}");
            for _ in 0..20 {
                connect_as(&configured.server, &config, "localhost").get("/a").is(200);
                let mut plain = std::net::TcpStream::connect(configured.server.address()).unwrap();
                std::io::Write::write_all(&mut plain, b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                    .unwrap();
                let mut text = String::new();
                std::io::Read::read_to_string(&mut plain, &mut text).unwrap();
                assert!(text.contains("this port speaks HTTPS"), "{text}");
            }
        }
    }
}

#[test]
fn faults_are_told_with_the_remedy() {
    let site = site();
    let (one, other) = (TestCertificate::of(&["localhost"]), TestCertificate::of(&["localhost"]));
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    let encrypted = folder.path().join("encrypted");
    fs::write(&encrypted, "-----BEGIN ENCRYPTED PRIVATE KEY-----\n").unwrap();
    let served = site.file("key.pem", fs::read(&one.files.key).unwrap());
    let path = |it: &Path| it.display().to_string();
    let (cert, key) = (path(&one.files.certificate), path(&one.files.key));
    for (flags, what) in [
        (vec!["--tls-cert", &cert], "each --tls-cert needs its --tls-key"),
        (vec!["--tls-cert", &cert, "--tls-key", &path(&other.files.key)], "does not belong to"),
        (vec!["--tls-cert", &path(&empty), "--tls-key", &key], "no certificate found"),
        (vec!["--tls-cert", &cert, "--tls-key", &path(&empty)], "no private key found"),
        (vec!["--tls-cert", &cert, "--tls-key", &path(&encrypted)], "openssl pkey"),
        (vec!["--tls-cert", &cert, "--tls-key", "/nowhere"], "cannot be read"),
        (vec!["--tls-cert", &cert, "--tls-key", &path(&served)], "--tls-key"),
        (vec!["--https-redirect"], "needs a certificate"),
        (vec!["--hsts", "1w"], "needs a certificate"),
        (vec!["--tls-strict-sni"], "needs a certificate"),
        (vec!["--listen", "127.0.0.1:0,tls"], "needs a certificate"),
        (
            vec![
                "--tls-cert",
                &cert,
                "--tls-key",
                &key,
                "--hsts",
                "1w",
                "--listen",
                "127.0.0.1:0,plain",
                "--listen",
                "127.0.0.1:0",
            ],
            "--https-redirect",
        ),
        (
            vec!["--tls-cert", &cert, "--tls-key", &key, "--listen", "127.0.0.1:0,plain"],
            "no address speaks HTTPS",
        ),
        (
            vec!["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &path(&empty)],
            "no certificate found",
        ),
    ] {
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(&flags).stderr(Stdio::piped());
        if !flags.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let output = command.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(what), "{flags:?}: {told}");
        let status = if what == "cannot be read" { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(status), "{flags:?}: {told}");
    }
}

/// Root's keys with mode 0600 are read before the rights are gone; workers never open them.
#[test]
fn keys_are_read_with_the_rights_of_the_start() {
    if !drover_sys::process::is_root() {
        return drover_testing::skip!("only root can become another user");
    }
    let site = site();
    fs::set_permissions(site.path(), Permissions::from_mode(0o755)).unwrap();
    let own = TestCertificate::of(&["localhost"]);
    fs::set_permissions(&own.files.certificate, Permissions::from_mode(0o600)).unwrap();
    let server = serve_with(&site, &[&own], &["--user", "4000000:4000001"]);
    connect_as(&server, &own.client(), "localhost").get("/a").is(200);
}

#[test]
fn a_machine_without_a_certificate_makes_one_and_keeps_it() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(["--tls", "self-signed"]);
        command.env("XDG_STATE_HOME", state.path()).env_remove("STATE_DIRECTORY");
        Server::start(command, 1)
    };
    let one = start();
    let folder = state.path().join("drover/tls");
    let text = fs::read(folder.join("server.pem")).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca.pem")).unwrap()).unwrap();
    let config =
        Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    for host in ["localhost", "127.0.0.1"] {
        connect_as(&one, &config, host).get("/a").is(200);
    }
    let other = start();
    assert_eq!(fs::read(folder.join("server.pem")).unwrap(), text);
    connect_as(&other, &config, "localhost").get("/a").is(200);
}

/// A command of a server that makes its own certificate, and keeps it in `state`.
fn self_signed(site: &Site, state: &Path) -> Command {
    let mut command = drover();
    command.arg("serve").arg(site.path()).args(["--tls", "self-signed"]);
    command.args(["--listen", "127.0.0.1:0", "--workers", "1"]);
    command.env("XDG_STATE_HOME", state).env_remove("STATE_DIRECTORY");
    command
}

/// One of them makes the authority, and the others wait for it.
#[test]
fn servers_that_start_at_once_have_one_authority() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let start = || Server::start_as_it_is(self_signed(&site, state.path()), 1);
    let servers: Vec<Server> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut roots = rustls::RootCertStore::empty();
    let authority = state.path().join("drover/tls/ca.pem");
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let config =
        Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    for server in &servers {
        connect_as(server, &config, "localhost").get("/a").is(200);
    }
}

#[test]
fn an_authority_that_others_could_replace_is_refused() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let folder = state.path().join("drover/tls");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o775)).unwrap();
    let mut command = self_signed(&site, state.path());
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains(&format!("run 'chmod 700 {}'", folder.display())), "{told}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing is made there");
}

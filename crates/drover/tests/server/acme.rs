//! Certificates from a CA, over the whole life of a server. The CA is one of this process, which looks at the server as a real one does.

use std::fs;
use std::io::{BufRead, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use drover_testing::acme_ca::{CaScript, ScriptedCa};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tempfile::TempDir;

use crate::harness::{Client, PATIENCE, Server, Site, drover, signal, wait_until};
use crate::tls::on_each_kind;
use crate::tls::wire::Wire;

const NAME: &str = "a.example";

/// What a server needs to get certificates.
struct Surroundings {
    ca: ScriptedCa,
    site: Site,
    folder: TempDir,
}

/// A server that gets certificates, and what it logs.
struct Certified {
    server: Server,
    log: Arc<Mutex<String>>,
}

impl Surroundings {
    fn new(script: CaScript) -> Surroundings {
        let (ca, site) = (ScriptedCa::start(script), Site::new());
        site.file("a", "hello");
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("root.pem"), ca.root()).unwrap();
        Surroundings { ca, site, folder }
    }

    /// The files of the CA.
    fn state(&self) -> PathBuf {
        let folder = self.folder.path().join("drover/acme");
        let mut all = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
        all.next().unwrap()
    }

    fn command(&self, flags: &[&str]) -> Command {
        let mut command = drover();
        command.arg("serve").arg(self.site.path()).args(["--workers", "1"]);
        command.args(["--acme", "a@example.org", "--acme-directory", &self.ca.directory()]);
        command.arg("--acme-ca-file").arg(self.folder.path().join("root.pem")).args(flags);
        command.env("XDG_STATE_HOME", self.folder.path()).env_remove("STATE_DIRECTORY");
        command.stderr(Stdio::piped());
        command
    }

    /// Starts a server with one name, at a plain address and one with TLS.
    fn serve(&self, flags: &[&str]) -> Certified {
        self.serve_at(&["127.0.0.1:0,tls", "127.0.0.1:0,plain"], flags)
    }

    fn serve_at(&self, addresses: &[&str], flags: &[&str]) -> Certified {
        let listen = addresses.iter().flat_map(|it| ["--listen", it]);
        let own: Vec<&str> = ["--acme-name", NAME].into_iter().chain(listen).collect();
        self.start(self.command(&[&own[..], flags].concat()), addresses.len())
    }

    fn start(&self, command: Command, addresses: usize) -> Certified {
        // The CA waits for the ports of this server.
        self.ca.change(|script| (script.tls_port, script.http_port) = (0, 0));
        let mut server = Server::start_as_it_is(command, addresses);
        let (tls, plain) = (server.addresses()[0], server.addresses().last().copied().unwrap());
        self.ca.change(|script| {
            (script.tls_port, script.http_port) = (tls.port(), plain.port());
        });
        let log = Arc::<Mutex<String>>::default();
        let (mut lines, all) = (server.stderr(), Arc::clone(&log));
        std::thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).unwrap_or(0) > 0 {
                all.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        Certified { server, log }
    }

    /// What a client has that trusts the CA alone.
    fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.root().as_bytes()).unwrap()).unwrap();
        Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
    }

    /// A client of the server with a certificate of the CA for `name`; `None`: the server shows another one.
    fn connect(&self, address: SocketAddr, name: &str) -> Option<Client> {
        let tcp = std::net::TcpStream::connect(address).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client::over_http1(Wire::over_tls(tcp, &self.client(), name));
        client.await_handshake().is_ok().then_some(client)
    }

    /// Waits until the server shows a certificate of the CA for `name`.
    fn until_certified(&self, served: &Certified, name: &str) -> CertificateDer<'static> {
        // Another connection may meet a worker that is about to give way.
        let mut client = None;
        wait_until(&format!("a certificate for {name} in {}", served.log()), || {
            client = self.connect(served.server.address(), name);
            client.is_some()
        });
        let mut client = client.unwrap();
        client.get("/a").is(200);
        client.wire().tls().unwrap().peer_certificates().unwrap()[0].clone().into_owned()
    }
}

impl Certified {
    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    fn until_logged(&self, what: &str) {
        wait_until(what, || self.log().contains(what));
    }
}

/// The metric with this name, once there is one.
fn metric(admin: SocketAddr, name: &str) -> Option<f64> {
    let response = Client::connect(admin).get("/metrics").is(200);
    let line = response.text().lines().find(|line| line.starts_with(&format!("{name}{{")))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

fn seconds_from_now(time: f64) -> f64 {
    time - SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

#[test]
fn the_first_certificate_comes_by_http_also_where_clients_are_redirected() {
    on_each_kind(|mechanism| {
        let around = Surroundings::new(CaScript { undecided: 1, ..CaScript::default() });
        let flags = ["--https-redirect", "--dispatch", mechanism.name];
        let served = around.serve(&flags);
        around.until_certified(&served, NAME);
        assert_eq!(
            around.ca.log(),
            [
                "account mailto:a@example.org",
                "order a.example",
                "valid a.example by http-01",
                "certificate a.example"
            ]
        );
        // All other paths are redirected, also those that look like a challenge.
        for path in ["/a", "/.well-known/acme-challenge/token-1"] {
            let plain = served.server.addresses()[1];
            Client::connect(plain).get(path).is(308);
        }
        let log = served.log();
        assert!(
            log.contains("registered a@example.org with the CA, which means to agree to"),
            "{log}"
        );
        assert!(log.contains("a.example has a certificate for 89 days; renewal at "), "{log}");
    });
}

#[test]
fn without_a_plain_address_it_comes_by_tls() {
    on_each_kind(|mechanism| {
        for flags in [&["--workers", "2"][..], &["--workers", "2", "--processes"]] {
            let around = Surroundings::new(CaScript::default());
            let flags = [flags, &["--dispatch", mechanism.name]].concat();
            let mut command = around.command(&["--acme-name", NAME, "--listen", "127.0.0.1:0"]);
            command.args(flags);
            // The last one counts.
            let served = around.start(command_without_workers(command), 1);
            around.until_certified(&served, NAME);
            assert_eq!(around.ca.count("valid a.example by tls-alpn-01"), 1);
            assert_eq!(around.ca.count("invalid"), 0, "{:?}", around.ca.log());
        }
    });
}

/// The command without its first `--workers 1`.
fn command_without_workers(command: Command) -> Command {
    let all: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let at = all.iter().position(|it| it == "--workers").unwrap();
    let mut other = Command::new(command.get_program());
    other.args(all[..at].iter().chain(&all[at + 2..])).stderr(Stdio::piped());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

/// A handshake for a challenge that nobody has asked for shows no certificate, and no data follows.
#[test]
fn a_stranger_s_challenge_is_refused() {
    let around = Surroundings::new(CaScript::default());
    let served = around.serve(&[]);
    around.until_certified(&served, NAME);
    let mut config = (*around.client()).clone();
    for (protocols, is_well) in [
        (&["acme-tls/1"][..], false),
        (&["http/1.1", "acme-tls/1"], true),
        (&["acme-tls/1", "http/1.1"], true),
    ] {
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(NAME).unwrap();
        let mut tls = ClientConnection::new(Arc::new(config.clone()), name).unwrap();
        let mut tcp = std::net::TcpStream::connect(served.server.address()).unwrap();
        let mut outcome = Ok(());
        while outcome.is_ok() && tls.is_handshaking() {
            outcome = tls.complete_io(&mut tcp).map(drop);
        }
        assert_eq!(outcome.is_ok(), is_well, "{protocols:?}: {outcome:?}");
        assert_eq!(tls.alpn_protocol(), is_well.then_some(&b"http/1.1"[..]));
    }
}

/// Until there is a certificate, this machine's own CA has issued the one that is shown.
#[test]
fn a_self_signed_certificate_is_shown_first_and_after_failures() {
    let around = Surroundings::new(CaScript { fails_challenges: true, ..CaScript::default() });
    let served = around.serve(&[]);
    served.until_logged("no certificate: ");
    let log = served.log();
    for part in [
        "a.example by HTTP-01: the CA refuses: no A record (dns)",
        "check that the name's A and AAAA records lead to this server",
        "a self-signed certificate is served until the CA has issued",
        "a self-signed certificate is shown; trying again in ",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(around.connect(served.server.address(), NAME).is_none());
    let own = around.folder.path().join("drover/tls/ca.pem");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(own).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let tcp = std::net::TcpStream::connect(served.server.address()).unwrap();
    Client::over_http1(Wire::over_tls(tcp, &Arc::new(config), NAME)).get("/a").is(200);
}

#[test]
fn a_failure_is_told_and_not_repeated_by_a_restart_but_after_sighup() {
    let around = Surroundings::new(CaScript { fails_challenges: true, ..CaScript::default() });
    let mut served = around.serve(&["--admin", "127.0.0.1:0"]);
    let admin = served.server.admin_address();
    wait_until("the failure is told", || metric(admin, "drover_acme_failures") == Some(1.0));
    let next = seconds_from_now(metric(admin, "drover_acme_next_attempt_seconds").unwrap());
    assert!((200.0..=400.0).contains(&next), "{next}");
    drop(served);
    let mut again = around.serve(&["--admin", "127.0.0.1:0"]);
    let admin = again.server.admin_address();
    wait_until("the failure is known", || metric(admin, "drover_acme_failures") == Some(1.0));
    assert_eq!(around.ca.count("order"), 1);
    around.ca.change(|script| script.fails_challenges = false);
    signal("HUP", again.server.process());
    around.until_certified(&again, NAME);
    wait_until("the success is told", || metric(admin, "drover_acme_failures") == Some(0.0));
    let expiry = metric(admin, "drover_tls_certificate_expiry_seconds").unwrap();
    assert!(seconds_from_now(expiry) > 80.0 * 86_400.0, "{expiry}");
    // The other kind of challenge was tried after the failure.
    assert_eq!(around.ca.count("valid a.example by tls-alpn-01"), 1, "{:?}", around.ca.log());
}

#[test]
fn a_ca_that_is_away_or_at_its_limits_is_left_alone_for_as_long_as_it_says() {
    for (script, told, least) in [
        (CaScript { is_down: true, ..CaScript::default() }, "cannot be reached", 200.0),
        (
            CaScript { rate_limited: Some("7200"), ..CaScript::default() },
            "too many certificates already (rateLimited)",
            7100.0,
        ),
        (
            CaScript { issues_for_another_key: true, ..CaScript::default() },
            "a certificate that cannot be used",
            200.0,
        ),
    ] {
        let around = Surroundings::new(script);
        let mut served = around.serve(&["--admin", "127.0.0.1:0"]);
        let admin = served.server.admin_address();
        served.until_logged(told);
        wait_until("that is told", || metric(admin, "drover_acme_failures") == Some(1.0));
        let next = seconds_from_now(metric(admin, "drover_acme_next_attempt_seconds").unwrap());
        assert!(next >= least, "{told}: {next}");
        // Requests are answered as ever.
        Client::connect(served.server.addresses()[1]).get("/a").is(200);
    }
}

#[test]
fn nonces_and_accounts_that_the_ca_has_lost_are_no_failure() {
    let around = Surroundings::new(CaScript { bad_nonces: 2, ..CaScript::default() });
    let served = around.serve(&[]);
    around.until_certified(&served, NAME);
    assert_eq!(around.ca.count("refused badNonce"), 2);
    drop(served);
    fs::remove_file(around.state().join("names/a.example.pem")).unwrap();
    around.ca.change(|script| script.forgets_accounts = true);
    let again = around.serve(&[]);
    around.until_certified(&again, NAME);
    assert_eq!(around.ca.count("refused accountDoesNotExist"), 1);
    assert!(!again.log().contains("no certificate: "), "{}", again.log());
}

#[test]
fn what_is_kept_is_used_after_a_restart() {
    let around = Surroundings::new(CaScript::default());
    let first = around.serve(&[]);
    let certificate = around.until_certified(&first, NAME);
    drop(first);
    let asked = around.ca.log();
    around.ca.change(|script| script.is_down = true);
    let mut again = around.serve(&["--admin", "127.0.0.1:0"]);
    assert_eq!(around.until_certified(&again, NAME), certificate);
    let admin = again.server.admin_address();
    let next = || metric(admin, "drover_acme_next_attempt_seconds").map(seconds_from_now);
    wait_until("the renewal is planned", || next().is_some());
    assert!(next().unwrap() > 50.0 * 86_400.0);
    assert_eq!(around.ca.log(), asked);
    use std::os::unix::fs::PermissionsExt;
    for file in ["account.json", "names/a.example.pem", "names/a.example.json"] {
        let mode = around.state().join(file).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

/// Of the 31 seconds that a certificate is valid, 20 have passed when it is issued.
#[test]
fn a_certificate_is_renewed_when_a_third_of_its_time_is_left() {
    let short = CaScript {
        valid_since: Duration::from_secs(20),
        valid_for: Duration::from_secs(11),
        ..CaScript::default()
    };
    let around = Surroundings::new(short);
    let served = around.serve(&[]);
    wait_until("a renewal", || around.ca.count("certificate ") >= 2);
    around.ca.change(|script| script.valid_for = Duration::from_secs(86_400));
    wait_until("the last certificate is shown", || {
        let Some(mut client) = around.connect(served.server.address(), NAME) else { return false };
        client.get("/a").is(200);
        let path = around.state().join("names/a.example.pem");
        let kept = CertificateDer::from_pem_file(path).unwrap();
        let shown = client.wire().tls().unwrap().peer_certificates().unwrap()[0].clone();
        shown == kept && served.log().contains("serving the new certificates for a.example")
    });
    assert_eq!(around.ca.count("account"), 1);
    assert!(!served.log().contains("no certificate: "), "{}", served.log());
}

/// The first server waits for the CA's decision when another one takes over, whose workers get the CA's questions then.
#[test]
fn a_server_that_takes_over_asks_in_place_of_the_one_before() {
    let around = Surroundings::new(CaScript { undecided: u32::MAX, ..CaScript::default() });
    let path = around.folder.path().join("take-over");
    let flags = ["--take-over", path.to_str().unwrap()];
    let mut first = around.serve(&flags);
    wait_until("the challenge is answered", || around.ca.count("valid ") == 1);
    around.ca.change(|script| script.undecided = 0);
    let addresses = first.server.addresses();
    let (tls, plain) = (format!("{},tls", addresses[0]), format!("{},plain", addresses[1]));
    let second = around.serve_at(&[&tls, &plain], &flags);
    around.until_certified(&second, NAME);
    assert!(first.server.exit_status().success(), "{}", first.log());
    assert_eq!((around.ca.count("order"), around.ca.count("account")), (2, 1));
    for log in [first.log(), second.log()] {
        assert!(!log.contains("no certificate: "), "{log}");
    }
}

#[test]
fn each_host_of_the_configuration_has_a_certificate() {
    let around = Surroundings::new(CaScript::default());
    let (root, file) = (around.site.path().display(), around.folder.path().join("drover.toml"));
    let host = |names: &str| format!("[[host]]\nname = {names}\nroot = '{root}'\n");
    let settings = format!("listen = ['127.0.0.1:0,tls', '127.0.0.1:0,plain']\nroot = '{root}'\n");
    let both = settings.clone() + &host("['a.example', 'b.example']") + &host("'c.example'");
    fs::write(&file, &both).unwrap();
    let served = around.start(around.command(&["--config", file.to_str().unwrap()]), 2);
    for name in ["a.example", "b.example", "c.example"] {
        around.until_certified(&served, name);
    }
    // A reload brings another name.
    fs::write(&file, both + &host("'d.example'")).unwrap();
    signal("HUP", served.server.process());
    around.until_certified(&served, "d.example");
    assert_eq!(around.ca.count("order"), 4);
    around.until_certified(&served, "a.example");
}

#[test]
fn faults_are_told_with_the_remedy() {
    let around = Surroundings::new(CaScript::default());
    let root = around.site.path().display().to_string();
    let (wildcard, address) = (format!("*.a.example={root}"), format!("192.0.2.1={root}"));
    for (flags, what) in [
        (vec![], "Add --acme-name www.example.org"),
        (vec!["--acme-name", "*.a.example"], "DNS-01"),
        (vec!["--acme-name", "192.0.2.1"], "certificates for addresses"),
        (vec!["--host", &wildcard], "*.a.example: a wildcard needs"),
        (vec!["--host", &address], "192.0.2.1: certificates for addresses"),
        (vec!["--acme-name", NAME, "--tls", "self-signed"], "--tls"),
        (vec!["--acme-name", NAME, "--tls-client-ca", "x.pem"], "has no client certificate"),
    ] {
        let mut command = around.command(&[&["--listen", "127.0.0.1:0"], &flags[..]].concat());
        let output = command.stdout(Stdio::null()).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(what), "{flags:?}: {told}");
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {told}");
    }
    let output = drover()
        .args(["serve", "--acme", "a@b.c", "--acme-directory", "http://ca.example/"])
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("use https://"), "{told}");
    assert_eq!(around.ca.log(), [""; 0]);
}

#[test]
fn without_a_folder_to_keep_things_in_there_is_no_start() {
    let around = Surroundings::new(CaScript::default());
    let mut command = around.command(&["--acme-name", NAME, "--listen", "127.0.0.1:0"]);
    let file = around.folder.path().join("file");
    fs::write(&file, "").unwrap();
    let output = command.env("XDG_STATE_HOME", &file).stdout(Stdio::null()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("--acme: cannot create") && told.contains("are kept there"), "{told}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(around.ca.log(), [""; 0]);
}

#[test]
fn check_and_explain_tell_what_would_be_asked_and_ask_nothing() {
    let around = Surroundings::new(CaScript::default());
    let told = |flag: &str| {
        let flags = ["--acme-name", NAME, "--listen", "127.0.0.1:0", flag];
        let mut command = around.command(&flags);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success(), "{text}");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for flag in ["--check", "--explain"] {
        let text = told(flag);
        assert!(text.contains("a.example: no certificate yet; would ask"), "{text}");
    }
    assert!(!around.folder.path().join("drover").exists());
    let served = around.serve(&[]);
    around.until_certified(&served, NAME);
    drop(served);
    for flag in ["--check", "--explain"] {
        let text = told(flag);
        assert!(text.contains("a.example: valid for 89 days, renewal in "), "{text}");
    }
    assert_eq!(around.ca.count("order"), 1);
}

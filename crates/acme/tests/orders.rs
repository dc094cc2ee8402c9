//! Orders from beginning to end, against a CA that does what a test tells it to.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_acme::{
    AccountKey, AcmeClient, AcmeError, CaTransport, CaTrust, CaUrl, Challenge, ChallengeKind,
    ChallengeProof, ChallengeSolver, IssuedCertificate, StoppedWaiting,
};
use drover_testing::acme_ca::{CaScript, ScriptedCa};

/// A server of HTTP-01 alone.
struct Solver {
    shown: Arc<Mutex<Option<(String, String)>>>,
    pauses: Vec<Duration>,
    withdrawn: u32,
    /// How many pauses it makes before it gives up.
    patience: usize,
}

impl Solver {
    fn start() -> (Solver, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shown: Arc<Mutex<Option<(String, String)>>> = Arc::default();
        let served = Arc::clone(&shown);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut asked = String::new();
                while !asked.ends_with("\r\n\r\n") {
                    let mut text = [0; 1024];
                    let count = stream.read(&mut text).unwrap();
                    asked += &String::from_utf8_lossy(&text[..count]);
                }
                let content = served.lock().unwrap().clone();
                let content = content.filter(|(token, _)| asked.contains(&format!("/{token} ")));
                let response = match content {
                    Some((_, content)) => format!("HTTP/1.1 200 OK\r\n\r\n{content}"),
                    None => "HTTP/1.1 404 Not Found\r\n\r\n".to_owned(),
                };
                stream.write_all(response.as_bytes()).unwrap();
            }
        });
        (Solver { shown, pauses: Vec::new(), withdrawn: 0, patience: 100 }, port)
    }
}

impl ChallengeSolver for Solver {
    fn show(&mut self, challenge: &Challenge) -> Result<(), String> {
        let ChallengeProof::Http { token, content } = &challenge.proof else { panic!() };
        *self.shown.lock().unwrap() = Some((token.clone(), content.clone()));
        Ok(())
    }

    fn withdraw(&mut self, _: &Challenge) {
        self.withdrawn += 1;
        *self.shown.lock().unwrap() = None;
    }

    fn pause(&mut self, time: Duration) -> Result<(), StoppedWaiting> {
        self.pauses.push(time);
        if self.pauses.len() > self.patience { Err(StoppedWaiting) } else { Ok(()) }
    }
}

fn transport(ca: &ScriptedCa) -> CaTransport {
    CaTransport::new(&CaTrust::Authorities("root.pem".into(), ca.root())).unwrap()
}

fn client(ca: &ScriptedCa) -> Result<AcmeClient, AcmeError> {
    let directory = CaUrl::parse(&ca.directory()).unwrap();
    let mut client =
        AcmeClient::connect(transport(ca), &directory, AccountKey::generate().unwrap(), None)?;
    client.register("a@example.org")?;
    Ok(client)
}

fn issue(ca: &ScriptedCa, solver: &mut Solver) -> Result<IssuedCertificate, AcmeError> {
    client(ca)?.issue("a.example", &[ChallengeKind::Http], solver)
}

fn start(script: CaScript) -> (ScriptedCa, Solver) {
    let (solver, http_port) = Solver::start();
    (ScriptedCa::start(CaScript { http_port, ..script }), solver)
}

#[test]
fn a_name_gets_its_certificate() {
    let (ca, mut solver) = start(CaScript::default());
    let issued = issue(&ca, &mut solver).unwrap();
    assert_eq!(issued.chain.matches("BEGIN CERTIFICATE").count(), 2);
    assert!(issued.to_pem().starts_with("-----BEGIN PRIVATE KEY-----"));
    assert_eq!(
        ca.log(),
        [
            "account mailto:a@example.org",
            "order a.example",
            "valid a.example by http-01",
            "certificate a.example"
        ]
    );
    assert_eq!((solver.withdrawn, solver.pauses.len()), (1, 0));
}

#[test]
fn an_account_is_used_again_and_its_address_can_change() {
    let (ca, _) = start(CaScript::default());
    let directory = CaUrl::parse(&ca.directory()).unwrap();
    let first = client(&ca).unwrap();
    let account = first.account().unwrap().clone();
    assert!(first.terms().unwrap().ends_with("/terms"));
    let key = AccountKey::generate().unwrap();
    let bytes = key.pkcs8().to_vec();
    let connect = |account| {
        let key = AccountKey::of_pkcs8(&bytes).unwrap();
        AcmeClient::connect(transport(&ca), &directory, key, account).unwrap()
    };
    let mut registered = connect(None);
    registered.register("a@example.org").unwrap();
    let own = registered.account().unwrap().clone();
    assert_ne!(own, account, "another key is another account");
    // Its URL is known already, or is asked for.
    let mut again = connect(Some(own.clone()));
    again.register("a@example.org").unwrap();
    let mut lost = connect(None);
    lost.register("a@example.org").unwrap();
    assert_eq!(lost.account(), Some(&own));
    again.register("b@example.org").unwrap();
    assert_eq!(again.account().unwrap().mail, "b@example.org");
    assert_eq!(ca.log()[2..], ["account again", "contact mailto:b@example.org"]);
}

#[test]
fn a_nonce_that_the_ca_does_not_know_any_more_is_replaced() {
    let (ca, mut solver) = start(CaScript { bad_nonces: 3, ..CaScript::default() });
    issue(&ca, &mut solver).unwrap();
    assert_eq!(ca.count("refused badNonce"), 3);
    ca.change(|script| script.bad_nonces = u32::MAX);
    let error = issue(&ca, &mut solver).unwrap_err();
    assert!(error.is_problem("badNonce"), "{error}");
}

#[test]
fn a_ca_that_takes_its_time_is_asked_again() {
    let (ca, mut solver) = start(CaScript { undecided: 3, ..CaScript::default() });
    issue(&ca, &mut solver).unwrap();
    let pauses: Vec<_> = solver.pauses.iter().map(Duration::as_millis).collect();
    assert_eq!(pauses, [250, 500, 1000, 250, 500, 1000]);
    // One that decides nothing is left, and so is one when nobody waits any more.
    ca.change(|script| script.undecided = u32::MAX);
    let error = issue(&ca, &mut solver).unwrap_err().to_string();
    assert!(error.contains("undecided after"), "{error}");
    (solver.patience, solver.pauses) = (2, Vec::new());
    assert!(issue(&ca, &mut solver).unwrap_err().is_given_up());
    assert_eq!(solver.withdrawn, 3);
}

#[test]
fn a_challenge_that_fails_is_told_and_withdrawn() {
    let (ca, mut solver) = start(CaScript { fails_challenges: true, ..CaScript::default() });
    let error = issue(&ca, &mut solver).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a.example by HTTP-01: the CA refuses: no A record (dns); check that the name's A and AAAA records lead to this server"
    );
    assert_eq!(solver.withdrawn, 1);
    ca.change(|script| script.offers = vec!["dns-01"]);
    let error = issue(&ca, &mut solver).unwrap_err().to_string();
    assert!(error.contains("dns-01") && error.contains("http-01"), "{error}");
}

#[test]
fn limits_are_told_with_the_time_to_wait() {
    let (ca, mut solver) = start(CaScript { rate_limited: Some("3600"), ..CaScript::default() });
    let error = issue(&ca, &mut solver).unwrap_err();
    assert!(error.is_problem("rateLimited"), "{error}");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3600)));
}

#[test]
fn a_lost_account_is_told_apart() {
    let (ca, mut solver) = start(CaScript::default());
    let mut client = client(&ca).unwrap();
    ca.change(|script| script.forgets_accounts = true);
    let kinds = [ChallengeKind::Http];
    let error = client.issue("a.example", &kinds, &mut solver).unwrap_err();
    assert!(error.is_problem("accountDoesNotExist"), "{error}");
    client.forget_account();
    client.register("a@example.org").unwrap();
    client.issue("a.example", &kinds, &mut solver).unwrap();
}

#[test]
fn a_ca_that_is_away_or_is_another_one_is_not_spoken_to() {
    let (ca, mut solver) = start(CaScript { is_down: true, ..CaScript::default() });
    let error = issue(&ca, &mut solver).unwrap_err().to_string();
    assert!(error.contains("cannot be reached") && error.contains("--acme-ca-file"), "{error}");
    // Its certificate is from an authority that is not trusted.
    let other = ScriptedCa::start(CaScript::default());
    let directory = CaUrl::parse(&other.directory()).unwrap();
    let key = AccountKey::generate().unwrap();
    let error = AcmeClient::connect(transport(&ca), &directory, key, None).unwrap_err().to_string();
    assert!(error.contains("invalid peer certificate"), "{error}");
    for (text, why) in
        [("", "no certificate found"), ("-----BEGIN CERTIFICATE-----\nAAAA\n", "--acme-ca-file")]
    {
        let trust = CaTrust::Authorities("root.pem".into(), text.to_owned());
        let error = CaTransport::new(&trust).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

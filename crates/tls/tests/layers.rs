//! Both sides of TLS, held against each other in memory: however the bytes between them are cut, the same comes out.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use drover_mech::net::{Layer, OpenedBytes};
use drover_tls::RECORD_MOST;
use drover_tls::certificate::Certificate;
use drover_tls::client::{
    ClientIdentity, ClientLayer, ClientLayers, ClientTls, ClientTlsOptions, Trust,
};
use drover_tls::self_signed::{self, LocalCertificate};
use drover_tls::server::{
    ClientAuthorities, HandshakeEnd, HandshakeFailure, OldestVersion, ServerLayer, ServerLayers,
    ServerTls, ServerTlsOptions,
};

/// One side of a connection: its layer, and what has come and is not opened.
struct Side<L> {
    layer: L,
    wire: Vec<u8>,
    plain: Vec<u8>,
    to_peer: Vec<u8>,
    is_end: bool,
}

impl<L: Layer> Side<L> {
    fn new(layer: L) -> Side<L> {
        let (wire, plain, to_peer) = (Vec::new(), Vec::new(), Vec::new());
        Side { layer, wire, plain, to_peer, is_end: false }
    }

    /// Opens what has come, and `bytes` behind it.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.extend_from_slice(bytes);
        let OpenedBytes { used, plain, is_end } =
            self.layer.open(&mut self.wire, &mut self.to_peer)?;
        assert!(plain <= used && used <= self.wire.len());
        self.plain.extend_from_slice(&self.wire[..plain]);
        self.wire.drain(..used);
        assert!(self.wire.len() < RECORD_MOST);
        self.is_end |= is_end;
        Ok(())
    }
}

/// A client and a server that talk.
struct Pair {
    client: Side<ClientLayer>,
    server: Option<Side<ServerLayer>>,
    layers: ServerLayers,
}

impl Pair {
    fn new(client: &ClientLayers, server: &ServerLayers) -> Pair {
        let client = Side::new(client.layer(true).unwrap());
        Pair { client, server: None, layers: server.clone() }
    }

    /// Carries bytes to and fro, at most `step` at a time, until neither side has anything to say.
    fn talk(&mut self, step: usize) -> io::Result<()> {
        if self.server.is_none() {
            self.client.take(&[])?;
        }
        loop {
            let to_server = std::mem::take(&mut self.client.to_peer);
            let mut parts = to_server.chunks(step);
            if self.server.is_none()
                && let Some(first) = parts.next()
            {
                let mut server = Side::new(self.layers.layer(first)?);
                server.take(first)?;
                self.server = Some(server);
            }
            let server = self.server.as_mut().unwrap();
            let taken = parts.try_for_each(|part| server.take(part));
            let to_client = std::mem::take(&mut server.to_peer);
            to_client.chunks(step).try_for_each(|part| self.client.take(part))?;
            taken?;
            if self.client.to_peer.is_empty() && to_client.is_empty() {
                return Ok(());
            }
        }
    }

    fn server(&mut self) -> &mut Side<ServerLayer> {
        self.server.as_mut().unwrap()
    }
}

type Ends = Rc<RefCell<Vec<HandshakeEnd>>>;

struct World {
    made: LocalCertificate,
    certificate: Arc<Certificate>,
    _folder: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let names = ["localhost", "a.example"].map(str::to_owned);
        let made = self_signed::certificate(folder.path(), &names).unwrap();
        let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
        let (text, key) = (read(&made.files.certificate), read(&made.files.key));
        let certificate = Arc::new(Certificate::of(made.files.clone(), text, key).unwrap());
        World { made, certificate, _folder: folder }
    }

    fn trust(&self) -> Trust {
        let path = self.made.authority.clone();
        let text = std::fs::read_to_string(&path).unwrap();
        Trust::Authorities(path, text)
    }

    fn server(&self, options: ServerTlsOptions) -> (ServerLayers, Ends) {
        let tls = ServerTls::new(&[Arc::clone(&self.certificate)], &options).unwrap();
        let ends = Ends::default();
        let heard = Rc::clone(&ends);
        (ServerLayers::new(tls, move |end| heard.borrow_mut().push(end)), ends)
    }

    fn client(&self, host: &str, options: ClientTlsOptions) -> ClientLayers {
        let options = ClientTlsOptions { trust: self.trust(), ..options };
        ClientTls::new(host, &options).unwrap().layers()
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn whatever_way_the_bytes_are_cut_the_same_comes_out() {
    let world = World::new();
    let (server, ends) = world.server(ServerTlsOptions::default());
    let client = world.client("localhost", ClientTlsOptions::default());
    let message = pattern(100_000);
    for step in [1, 2, 3, 5, 7, 100, 1000, 16_384, RECORD_MOST] {
        let mut pair = Pair::new(&client, &server);
        pair.talk(step).unwrap();
        let Pair { client, server, .. } = &mut pair;
        let server = server.as_mut().unwrap();
        assert!(client.layer.is_open() && server.layer.is_open());
        client.layer.seal(&message, &mut client.to_peer).unwrap();
        server.layer.seal(&message, &mut server.to_peer).unwrap();
        pair.talk(step).unwrap();
        assert!(pair.client.plain == message && pair.server().plain == message, "{step}");
    }
    for end in ends.take() {
        let facts = end.unwrap();
        assert_eq!((facts.version, facts.suite), ("TLSv1.3", "TLS_AES_128_GCM_SHA256"));
        assert!(!facts.is_resumed);
    }
}

#[test]
fn a_request_with_the_end_right_behind_it_is_read_and_answered() {
    let world = World::new();
    let (server, _) = world.server(ServerTlsOptions::default());
    let mut pair = Pair::new(&world.client("localhost", ClientTlsOptions::default()), &server);
    pair.talk(usize::MAX).unwrap();
    let client = &mut pair.client;
    client.layer.seal(b"GET", &mut client.to_peer).unwrap();
    client.layer.close(&mut client.to_peer);
    pair.talk(usize::MAX).unwrap();
    let server = pair.server();
    assert!(server.plain == b"GET" && server.is_end);
    let body = pattern(300_000);
    server.layer.seal(&body, &mut server.to_peer).unwrap();
    server.layer.close(&mut server.to_peer);
    let to_client = std::mem::take(&mut server.to_peer);
    pair.client.take(&to_client).unwrap();
    assert!(pair.client.plain == body && pair.client.is_end);
    assert!(pair.server().layer.seal(b"more", &mut Vec::new()).is_err(), "it has said the end");
}

#[test]
fn a_session_is_resumed_by_another_server_with_the_same_key() {
    let world = World::new();
    let (one, _) = world.server(ServerTlsOptions::default());
    let (other, ends) = world.server(ServerTlsOptions::default());
    let client = world.client("localhost", ClientTlsOptions { sessions: 8, ..Default::default() });
    Pair::new(&client, &one).talk(usize::MAX).unwrap();
    let mut pair = Pair::new(&client, &other);
    pair.talk(usize::MAX).unwrap();
    assert!(pair.client.layer.agreed().is_resumed);
    assert!(ends.take()[0].unwrap().is_resumed);
    // Who trusts no client's certificate does not take tickets from servers that trust some, nor the other way round.
    let authorities = ClientAuthorities {
        path: "ca".into(),
        text: std::fs::read_to_string(&world.made.authority).unwrap(),
    };
    let options =
        ServerTlsOptions { client_authorities: Some(authorities), ..ServerTlsOptions::default() };
    let (strict, ends) = world.server(options);
    assert!(Pair::new(&client, &strict).talk(usize::MAX).is_err());
    assert_eq!(ends.take(), [Err(HandshakeFailure::ClientCertificate)]);
}

/// A connection that does not resume a session leaves its own to others, and each is good for one.
#[test]
fn sessions_are_kept_for_as_many_connections_as_asked() {
    let world = World::new();
    let (server, _) = world.server(ServerTlsOptions::default());
    let client = world.client("localhost", ClientTlsOptions { sessions: 20, ..Default::default() });
    let is_resumed = |resumes: bool| {
        let client = Side::new(client.layer(resumes).unwrap());
        let mut pair = Pair { client, server: None, layers: server.clone() };
        pair.talk(usize::MAX).unwrap();
        pair.client.layer.agreed().is_resumed
    };
    assert!(!is_resumed(false) && !is_resumed(false) && is_resumed(true) && is_resumed(true));
    // More are opened at once than rustls itself keeps sessions for: each has one, from those of the round before.
    let round = || -> Vec<Pair> {
        let mut pairs: Vec<Pair> = (0..20).map(|_| Pair::new(&client, &server)).collect();
        pairs.iter_mut().for_each(|pair| pair.talk(usize::MAX).unwrap());
        pairs
    };
    drop(round());
    assert!(round().iter().all(|pair| pair.client.layer.agreed().is_resumed));
    let none = world.client("localhost", ClientTlsOptions::default());
    for _ in 0..2 {
        let mut pair = Pair::new(&none, &server);
        pair.talk(usize::MAX).unwrap();
        assert!(!pair.client.layer.agreed().is_resumed);
    }
}

#[test]
fn a_client_with_a_certificate_is_let_in() {
    let world = World::new();
    let authorities = ClientAuthorities {
        path: "ca".into(),
        text: std::fs::read_to_string(&world.made.authority).unwrap(),
    };
    let options =
        ServerTlsOptions { client_authorities: Some(authorities), ..ServerTlsOptions::default() };
    let (server, ends) = world.server(options);
    // A certificate for servers is none for clients.
    let made = rcgen_identity(&world);
    let client =
        world.client("localhost", ClientTlsOptions { identity: Some(made), ..Default::default() });
    let talked = Pair::new(&client, &server).talk(usize::MAX);
    assert!(talked.is_err(), "it is no certificate for clients");
    assert_eq!(ends.take(), [Err(HandshakeFailure::ClientCertificate)]);
}

/// The server's own certificate, as a client would show it.
fn rcgen_identity(world: &World) -> ClientIdentity {
    ClientIdentity {
        files: world.made.files.clone(),
        certificate: world.certificate.text().to_owned(),
        key: world.certificate.key_text().to_owned(),
    }
}

#[test]
fn failures_have_reasons_and_the_peer_gets_an_alert() {
    let world = World::new();
    let (strict, ends) =
        world.server(ServerTlsOptions { strict_names: true, ..ServerTlsOptions::default() });
    let mut wrong_host = Pair::new(
        &ClientTls::new(
            "unknown.example",
            &ClientTlsOptions { trust: Trust::Anybody, ..Default::default() },
        )
        .unwrap()
        .layers(),
        &strict,
    );
    assert!(wrong_host.talk(usize::MAX).is_err());
    assert_eq!(ends.take(), [Err(HandshakeFailure::UnknownHost)]);

    let (server, ends) = world.server(ServerTlsOptions::default());
    let distrustful = ClientTls::new(
        "other.example",
        &ClientTlsOptions { trust: world.trust(), ..Default::default() },
    );
    let mut pair = Pair::new(&distrustful.unwrap().layers(), &server);
    let error = pair.talk(usize::MAX).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let alert = std::mem::take(&mut pair.client.to_peer);
    assert!(pair.server().take(&alert).is_err());
    assert_eq!(ends.take(), [Err(HandshakeFailure::RefusedByClient)]);

    for garbage in [&b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"[..], b"\x16\x03\x01\xff\xff\x00"] {
        let mut server = Side::new(server.layer(garbage).unwrap());
        assert!(server.take(garbage).is_err());
        // An alert is a record of content type 21.
        assert_eq!(server.to_peer.first(), Some(&21));
        assert_eq!(ends.take(), [Err(HandshakeFailure::Malformed)]);
    }
}

#[test]
fn tampered_records_end_the_connection() {
    let world = World::new();
    let (server, _) = world.server(ServerTlsOptions::default());
    let client = world.client("a.example", ClientTlsOptions::default());
    for place in [0, 1, 3, 5, 20] {
        let mut pair = Pair::new(&client, &server);
        pair.talk(usize::MAX).unwrap();
        let mut record = Vec::new();
        pair.client.layer.seal(b"GET / HTTP/1.1", &mut record).unwrap();
        record[place] ^= 0x41;
        // A longer record is waited for.
        record.extend([0; RECORD_MOST]);
        assert!(pair.server().take(&record).is_err(), "byte {place}");
    }
}

#[test]
fn tls_1_2_is_spoken_without_tickets_unless_the_server_wants_1_3() {
    let world = World::new();
    let options = ClientTlsOptions { is_tls12: true, sessions: 8, ..Default::default() };
    let client = world.client("localhost", options);
    let (server, ends) = world.server(ServerTlsOptions::default());
    for _ in 0..2 {
        let mut pair = Pair::new(&client, &server);
        pair.talk(100).unwrap();
        let message = pattern(100_000);
        let server = pair.server();
        server.layer.seal(&message, &mut server.to_peer).unwrap();
        pair.talk(1000).unwrap();
        assert!(pair.client.plain == message);
        let facts = ends.take()[0].unwrap();
        assert_eq!(facts.version, "TLSv1.2");
        assert_eq!(facts.suite, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256");
        assert!(!facts.is_resumed, "a ticket of TLS 1.2 has no forward secrecy");
    }
    let options = ServerTlsOptions { oldest: OldestVersion::Tls13, ..Default::default() };
    let (server, ends) = world.server(options);
    assert!(Pair::new(&client, &server).talk(usize::MAX).is_err());
    assert_eq!(ends.take(), [Err(HandshakeFailure::NothingInCommon)]);
}

#[test]
fn the_first_protocol_that_both_speak_is_agreed_upon() {
    let world = World::new();
    let options = ServerTlsOptions { protocols: vec!["http/1.1"], ..Default::default() };
    let (server, ends) = world.server(options);
    let offer = |protocols| ClientTlsOptions { protocols, ..Default::default() };
    let mut pair = Pair::new(&world.client("localhost", offer(vec!["h2", "http/1.1"])), &server);
    pair.talk(usize::MAX).unwrap();
    assert_eq!(pair.client.layer.agreed().protocol, "http/1.1");
    assert_eq!(pair.server().layer.protocol(), Some(&b"http/1.1"[..]));
    let mut pair = Pair::new(&world.client("localhost", offer(vec![])), &server);
    pair.talk(usize::MAX).unwrap();
    assert_eq!(pair.server().layer.protocol(), None);
    ends.take();
    // RFC 7301 section 3.2.
    let mut pair = Pair::new(&world.client("localhost", offer(vec!["spdy/3"])), &server);
    assert!(pair.talk(usize::MAX).is_err());
    assert_eq!(ends.take(), [Err(HandshakeFailure::NothingInCommon)]);
}

/// The lengths of the records in `wire`, headers included.
fn records(mut wire: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let [_, _, _, high, low, rest @ ..] = wire {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        lengths.push(5 + length);
        wire = &rest[length..];
    }
    lengths
}

#[test]
fn records_of_a_server_are_short_at_first() {
    let world = World::new();
    let (server, _) = world.server(ServerTlsOptions::default());
    let mut pair = Pair::new(&world.client("localhost", ClientTlsOptions::default()), &server);
    pair.talk(usize::MAX).unwrap();
    let mut sealed = |len: usize| {
        let mut wire = Vec::new();
        pair.server().layer.seal(&pattern(len), &mut wire).unwrap();
        records(&wire)
    };
    const OVERHEAD: usize = 5 + 1 + 16;
    assert_eq!(sealed(500), [500 + OVERHEAD]);
    let expected = [1400, 2800, 5600, 11_200, 9000].map(|len| len + OVERHEAD);
    assert_eq!(sealed(30_000), expected);
    assert_eq!(sealed(40_000), [16_384, 16_384, 40_000 - 32_768].map(|len| len + OVERHEAD));
}

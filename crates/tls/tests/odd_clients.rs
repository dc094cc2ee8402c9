//! Clients that send what no library sends: records sealed by hand, with the keys of a session that was begun as usual.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use drover_mech::net::Layer;
use drover_tls::certificate::Certificate;
use drover_tls::self_signed;
use drover_tls::server::{ServerLayer, ServerLayers, ServerTls, ServerTlsOptions};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{ClientConfig, ConnectionTrafficSecrets, RootCertStore};

/// The content type of a handshake message, and of application data (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// A client that seals records itself, once its handshake is over.
struct OddClient {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl OddClient {
    /// Makes the handshake with a server, whose layer it returns.
    fn begin() -> (OddClient, ServerLayer) {
        let folder = tempfile::tempdir().unwrap();
        let made = self_signed::certificate(folder.path(), &["localhost".to_owned()]).unwrap();
        let read = |path| std::fs::read_to_string(path).unwrap();
        let texts = (read(&made.files.certificate), read(&made.files.key));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&made.authority).unwrap()).unwrap();
        let own = Arc::new(Certificate::of(made.files, texts.0, texts.1).unwrap());
        let tls = ServerTls::new(&[own], &ServerTlsOptions::default()).unwrap();
        let mut server = ServerLayers::new(tls, |_| {}).layer(&[]).unwrap();
        let mut config =
            ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.enable_secret_extraction = true;
        let mut client =
            UnbufferedClientConnection::new(Arc::new(config), "localhost".try_into().unwrap())
                .unwrap();
        let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
        while !server.is_open() {
            step(&mut client, &mut to_client, &mut to_server);
            let opened = server.open(&mut to_server, &mut to_client).unwrap();
            to_server.drain(..opened.used);
        }
        // The ticket.
        step(&mut client, &mut to_client, &mut to_server);
        // The one in its place wants a connection that has nothing left to read, and gives it away.
        #[expect(deprecated)]
        let secrets = client.dangerous_extract_secrets().unwrap().tx;
        let (sequence, ConnectionTrafficSecrets::Aes128Gcm { key, iv }) = secrets else {
            panic!("the server prefers AES with 128 bits")
        };
        let key = UnboundKey::new(&AES_128_GCM, key.as_ref()).unwrap();
        let iv = iv.as_ref().try_into().unwrap();
        (OddClient { key: LessSafeKey::new(key), iv, sequence }, server)
    }

    /// A record of TLS 1.3 (RFC 8446 section 5.2).
    fn record(&mut self, kind: u8, plain: &[u8]) -> Vec<u8> {
        let mut sealed = [plain, &[kind]].concat();
        let len = (sealed.len() + 16) as u16;
        let head = [APPLICATION_DATA, 3, 3, (len >> 8) as u8, len as u8];
        let mut nonce = self.iv;
        let sequence = self.sequence.to_be_bytes();
        nonce[4..].iter_mut().zip(sequence).for_each(|(byte, other)| *byte ^= other);
        self.sequence += 1;
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(head), &mut sealed).unwrap();
        [&head[..], &sealed].concat()
    }
}

/// Lets the client take what has come, and say what it has to say.
fn step(client: &mut UnbufferedClientConnection, wire: &mut Vec<u8>, to_server: &mut Vec<u8>) {
    loop {
        let UnbufferedStatus { discard, state } = client.process_tls_records(wire);
        let mut has_more = true;
        match state.unwrap() {
            ConnectionState::EncodeTlsData(mut message) => {
                let before = to_server.len();
                to_server.resize(before + 20_000, 0);
                let written = message.encode(&mut to_server[before..]).unwrap();
                to_server.truncate(before + written);
            }
            ConnectionState::TransmitTlsData(sent) => sent.done(),
            _ => has_more = false,
        }
        wire.drain(..discard);
        if !has_more {
            return;
        }
    }
}

/// rustls keeps the places of a message's parts, and looks there at the next call, whichever that is.
#[test]
fn a_message_that_comes_in_parts_between_requests_harms_nobody() {
    // KeyUpdate with update_requested (RFC 8446 section 4.6.3).
    let update = [24, 0, 0, 1, 1];
    for cut in 1..update.len() {
        let (mut client, mut server) = OddClient::begin();
        let mut wire = client.record(APPLICATION_DATA, b"GET");
        wire.extend(client.record(HANDSHAKE, &update[..cut]));
        let mut answer = Vec::new();
        let Ok(opened) = server.open(&mut wire, &mut answer) else { continue };
        assert_eq!(&wire[..opened.plain], b"GET");
        wire.drain(..opened.used);
        let mut sealed = Vec::new();
        let _either = server.seal(b"response", &mut sealed);
        wire.extend(client.record(HANDSHAKE, &update[cut..]));
        if let Ok(opened) = server.open(&mut wire, &mut answer) {
            wire.drain(..opened.used);
            server.seal(b"response", &mut sealed).unwrap();
        }
        server.close(&mut sealed);
    }
}

#[test]
fn empty_records_and_unknown_ones_end_in_time() {
    let (mut client, mut server) = OddClient::begin();
    let mut wire = Vec::new();
    (0..500).for_each(|_| wire.extend(client.record(APPLICATION_DATA, b"")));
    let mut answer = Vec::new();
    let opened = server.open(&mut wire, &mut answer);
    assert!(opened.is_err() || opened.is_ok_and(|it| it.plain == 0));
    for kind in [0, 20, 24, 255] {
        let (mut client, mut server) = OddClient::begin();
        let mut wire = client.record(kind, b"x");
        assert!(server.open(&mut wire, &mut answer).is_err(), "content type {kind}");
        assert!(server.seal(b"more", &mut Vec::new()).is_err());
        server.close(&mut Vec::new());
    }
}

#[test]
fn key_updates_without_end_are_an_error() {
    let (mut client, mut server) = OddClient::begin();
    // The key stays as it was for the sender of these, so that only the first can be opened.
    let mut wire = client.record(HANDSHAKE, &[24, 0, 0, 1, 1].repeat(100));
    assert!(server.open(&mut wire, &mut Vec::new()).is_err());
}

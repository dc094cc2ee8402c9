//! However the bytes between a client and a server are cut, what one has sealed is what the other opens; and if a byte is changed on its
//! way, or bytes are put in front, nothing but that comes out, and nobody panics.
//!
//! The first two bytes of an input say which byte is changed, the next one in which way (0: not at all), the next one how many of the rest
//! are put in front of what the client sends first; each byte behind those is the length of a piece, over and over.
#![no_main]

use std::sync::{Arc, LazyLock};

use drover_mech::net::Layer;
use drover_tls::certificate::Certificate;
use drover_tls::client::{ClientTls, ClientTlsOptions, Trust};
use drover_tls::self_signed;
use drover_tls::server::{ServerLayers, ServerTls, ServerTlsOptions};
use libfuzzer_sys::fuzz_target;

static SERVER: LazyLock<ServerTls> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("drover-fuzz-tls-{}", std::process::id()));
    let made = self_signed::certificate(&folder, &["localhost".to_owned()]).expect("it is made");
    let read = |path| std::fs::read_to_string(path).expect("it is there");
    let (text, key) = (read(&made.files.certificate), read(&made.files.key));
    std::fs::remove_dir_all(&folder).expect("it is there");
    let own = Certificate::of(made.files, text, key).expect("it is one");
    ServerTls::new(&[Arc::new(own)], &ServerTlsOptions::default()).expect("TLS can be had")
});

static CLIENT: LazyLock<ClientTls> = LazyLock::new(|| {
    let options = ClientTlsOptions { trust: Trust::Anybody, ..ClientTlsOptions::default() };
    ClientTls::new("localhost", &options).expect("TLS can be had")
});

/// One side, and what has come to it.
struct Side<L> {
    layer: L,
    wire: Vec<u8>,
    plain: Vec<u8>,
    to_peer: Vec<u8>,
}

impl<L: Layer> Side<L> {
    fn new(layer: L) -> Side<L> {
        Side { layer, wire: Vec::new(), plain: Vec::new(), to_peer: Vec::new() }
    }

    fn take(&mut self, bytes: &[u8]) -> bool {
        self.wire.extend_from_slice(bytes);
        let Ok(opened) = self.layer.open(&mut self.wire, &mut self.to_peer) else { return false };
        assert!(opened.plain <= opened.used && opened.used <= self.wire.len());
        self.plain.extend_from_slice(&self.wire[..opened.plain]);
        self.wire.drain(..opened.used);
        true
    }

    fn say(&mut self, plain: &[u8]) {
        if self.layer.is_open() {
            // It fails once the peer has done something wrong.
            let _failed = self.layer.seal(plain, &mut self.to_peer);
        }
    }
}

const QUESTION: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

fuzz_target!(|input: &[u8]| {
    let [high, low, change, before, rest @ ..] = input else { return };
    let (changed, front) = (usize::from(*high) << 8 | usize::from(*low), rest);
    let front = &front[..front.len().min((*before).into())];
    let pieces: Vec<usize> = rest.iter().map(|&it| usize::from(it) * 8 + 1).collect();
    let is_clean = *change == 0 && front.is_empty();
    let answer: Vec<u8> = (0..40_000u32).map(|at| (at * 31 % 251) as u8).collect();
    let mut client = Side::new(CLIENT.layers().layer(false).expect("there are random bytes"));
    let layers = ServerLayers::new(SERVER.clone(), |_| {});
    let mut server = Side::new(layers.layer(front).expect("there are random bytes"));
    let (mut sent, mut next) = (0, pieces.iter().cycle());
    client.take(&[]);
    client.to_peer.splice(..0, front.iter().copied());
    for round in 0..8 {
        let mut bytes = std::mem::take(&mut client.to_peer);
        if (sent..sent + bytes.len()).contains(&changed) {
            bytes[changed - sent] ^= change;
        }
        sent += bytes.len();
        let mut left = &bytes[..];
        while !left.is_empty() {
            let (piece, behind) = left.split_at(left.len().min(*next.next().unwrap_or(&usize::MAX)));
            left = behind;
            if !server.take(piece) {
                left = &[];
            }
        }
        if server.plain.len() == QUESTION.len() && round < 7 {
            server.say(&answer);
            server.plain.push(0);
        }
        let bytes = std::mem::take(&mut server.to_peer);
        let mut left = &bytes[..];
        while !left.is_empty() {
            let (piece, behind) = left.split_at(left.len().min(*next.next().unwrap_or(&usize::MAX)));
            left = behind;
            if !client.take(piece) {
                left = &[];
            }
        }
        if round == 3 {
            client.say(QUESTION);
        }
    }
    server.plain.pop();
    let is_whole = server.plain == QUESTION && client.plain == answer;
    assert!(if is_clean { is_whole } else { is_whole || answer.starts_with(&client.plain) });
    server.layer.close(&mut server.to_peer);
    client.layer.close(&mut client.to_peer);
});

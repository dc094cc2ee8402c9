//! What clients of HTTP/2 have done to servers: each attack is bounded by a count, and all others are answered meanwhile.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use drover_http2::hpack;
use drover_sys::process::resident_memory;
use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, push_frame,
};
use super::{client, serve};
use crate::admin::metrics;
use crate::connections::letters;
use crate::harness::{Client, Server, usable_mechanisms, wait_until};
use crate::tls::wire as tls;

/// What a client begins with: the preface, and empty SETTINGS.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// SETTINGS with an initial window of 0 bytes.
const NO_WINDOW: &[u8] = b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";

/// How often the frames of an attack are sent, unless the server has ended it before.
const REPEATS: u32 = 400;

/// How much memory an attack may cost.
const MEMORY_MOST: u64 = 16 << 20;

/// Clients that take a connection with so many answers, while another one's bytes are not received, show that they are not.
const STALLED_AFTER: u32 = 20;

/// An attack: the frames that begin it, and those that are sent again and again.
pub(crate) struct Attack {
    name: &'static str,
    pub(crate) begin: fn() -> Vec<u8>,
    /// The frames of repeat number `n`, counted from 0.
    pub(crate) again: fn(u32) -> Vec<u8>,
    bound: Bound,
}

/// What ends an attack, or makes it harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// So many requests, and 33 in each second, are looked at; then the connection is ended.
    Requests(u32),
    /// The connection is ended.
    End,
    /// The connection is ended, or nothing of it is received while its client takes nothing.
    EndOrStall,
    /// Each frame costs its client as much.
    None,
}

pub(crate) const ATTACKS: &[Attack] = &[
    // CVE-2023-44487
    Attack {
        name: "rapid reset",
        begin: Vec::new,
        again: |n| {
            frames(n, 50, |out, id| {
                get(out, id, "/large");
                push_frame(out, RST_STREAM, 0, id, &8_u32.to_be_bytes());
            })
        },
        bound: Bound::Requests(1000),
    },
    // CVE-2025-8671
    Attack {
        name: "made you reset",
        begin: || NO_WINDOW.to_vec(),
        again: |n| {
            frames(n, 50, |out, id| {
                get(out, id, "/large");
                push_frame(out, WINDOW_UPDATE, 0, id, &[0; 4]);
            })
        },
        bound: Bound::Requests(1000),
    },
    Attack {
        name: "streams that wait for room",
        begin: || NO_WINDOW.to_vec(),
        again: |n| frames(n, 50, |out, id| get(out, id, "/large")),
        bound: Bound::Requests(128),
    },
    // CVE-2024-27316
    Attack {
        name: "a head without end",
        begin: || {
            let mut out = Vec::new();
            push_frame(&mut out, HEADERS, END_STREAM, 1, &block("GET", "/a"));
            out
        },
        again: |_| frames(0, 10, |out, _| push_frame(out, CONTINUATION, 0, 1, &[])),
        bound: Bound::End,
    },
    // CVE-2016-6581
    Attack {
        name: "a small head of large fields",
        begin: Vec::new,
        again: |n| {
            let mut block = block("GET", "/a");
            if n == 0 {
                // A literal that goes into the table (RFC 7541 section 6.2.1): a name of one byte, and a value of 3000.
                block.extend_from_slice(&[0x40, 1, b'x', 0x7f, 0xb9, 0x16]);
                block.extend_from_slice(&[b'v'; 3000]);
            }
            // The newest entry, again and again.
            block.extend_from_slice(&[0x80 | 62; 4000]);
            frames(n, 1, |out, id| push_frame(out, HEADERS, END_STREAM | END_HEADERS, id, &block))
        },
        bound: Bound::None,
    },
    // CVE-2019-9512
    Attack {
        name: "pings without a reader",
        begin: Vec::new,
        again: |_| frames(0, 2000, |out, _| push_frame(out, PING, 0, 0, &[0; 8])),
        bound: Bound::EndOrStall,
    },
    // CVE-2019-9515
    Attack {
        name: "settings without a reader",
        begin: Vec::new,
        again: |_| frames(0, 3000, |out, _| push_frame(out, SETTINGS, 0, 0, &[])),
        bound: Bound::EndOrStall,
    },
    // CVE-2019-9513
    Attack {
        name: "priorities",
        begin: Vec::new,
        again: |_| frames(0, 2000, |out, id| push_frame(out, PRIORITY, 0, id, &[0, 0, 0, 0, 16])),
        bound: Bound::End,
    },
    // CVE-2019-9518
    Attack {
        name: "empty frames of a body",
        begin: || {
            let mut out = Vec::new();
            push_frame(&mut out, HEADERS, END_HEADERS, 1, &block("POST", "/a"));
            out
        },
        again: |_| frames(0, 3000, |out, _| push_frame(out, DATA, 0, 1, &[])),
        bound: Bound::End,
    },
    // CVE-2019-9511
    Attack {
        name: "windows of one byte",
        begin: || {
            let mut out = NO_WINDOW.to_vec();
            get(&mut out, 1, "/large");
            out
        },
        again: |_| {
            frames(0, 100, |out, _| push_frame(out, WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()))
        },
        bound: Bound::None,
    },
];

/// The header block of a request.
fn block(method: &str, path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in
        [(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost")]
    {
        hpack::push_field(&mut block, name, value.as_bytes());
    }
    block
}

fn get(out: &mut Vec<u8>, stream: u32, path: &str) {
    push_frame(out, HEADERS, END_STREAM | END_HEADERS, stream, &block("GET", path));
}

/// What `one` appends for each of `count` streams, those of repeat number `n`.
fn frames(n: u32, count: u32, one: impl Fn(&mut Vec<u8>, u32)) -> Vec<u8> {
    let mut out = Vec::new();
    (n * count..(n + 1) * count).for_each(|number| one(&mut out, 2 * number + 1));
    out
}

/// A connection that has begun an attack and reads nothing.
pub(crate) fn begin(stream: &mut impl Write, attack: &Attack) -> std::io::Result<()> {
    stream.write_all(HELLO)?;
    stream.write_all(&(attack.begin)())
}

#[test]
fn attacks_are_bounded_and_others_are_served_meanwhile() {
    if tls::is_wanted() {
        drover_testing::skip!(
            "frames are written to the socket as they are, also where it has no room"
        );
        return;
    }
    let site = letters();
    site.file("large", vec![b'x'; 1 << 20]);
    for mechanism in usable_mechanisms() {
        if !["epoll-et", "poll", "uring"].contains(&mechanism.name) {
            continue;
        }
        let flags = ["--dispatch", mechanism.name, "--admin", "127.0.0.1:0"];
        let mut server = serve(&site, &flags);
        let admin = server.admin_address();
        let mut polite = client(&server);
        polite.get("/large").is(200);
        for attack in ATTACKS {
            println!("{} on {}", attack.name, mechanism.name);
            hold(&server, admin, &mut polite, attack);
        }
    }
}

/// Attacks, and asserts that the server is as good as before.
fn hold(server: &Server, admin: SocketAddr, polite: &mut Client, attack: &Attack) {
    let value = |name: &str| metrics(admin).sum(name, &[]) as u64;
    let (requests, failures) =
        ("drover_http2_requests_total", "drover_http2_protocol_errors_total");
    let before = (value(requests), value(failures));
    let memory = resident_memory(server.worker_process()).unwrap();
    let start = Instant::now();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    set_socket_recv_buffer_size(&stream, 4096).unwrap();
    begin(&mut stream, attack).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut asked = 0;
    let mut is_stalled = false;
    for number in 0..REPEATS {
        let mut is_answered = || {
            asked += 1;
            polite.get("/a").is(200);
        };
        match send(&mut stream, &(attack.again)(number), &mut is_answered) {
            Sent::All => is_answered(),
            Sent::Stalled => {
                is_stalled = true;
                break;
            }
            Sent::Ended => break,
        }
    }
    let is_ended = || value(failures) == before.1 + 1;
    match attack.bound {
        Bound::None => {}
        Bound::EndOrStall if is_stalled => {}
        Bound::End | Bound::EndOrStall | Bound::Requests(_) => {
            wait_until(&format!("{} is ended", attack.name), is_ended);
        }
    }
    if let Bound::Requests(most) = attack.bound {
        let looked_at = value(requests) - before.0 - asked;
        let most = u64::from(most) + 33 * (start.elapsed().as_secs() + 1);
        assert!(looked_at <= most, "{}: {looked_at} requests of {most}", attack.name);
    }
    let grown = resident_memory(server.worker_process()).unwrap().saturating_sub(memory);
    assert!(grown <= MEMORY_MOST, "{}: {grown} bytes", attack.name);
}

/// What has become of frames that were sent.
enum Sent {
    All,
    /// The server receives nothing more.
    Stalled,
    /// The connection is over.
    Ended,
}

/// Sends frames; `meanwhile` is done as often as there is no room for them.
fn send(stream: &mut TcpStream, mut frames: &[u8], meanwhile: &mut impl FnMut()) -> Sent {
    let mut stalls = 0;
    while !frames.is_empty() {
        match stream.write(frames) {
            Ok(count) => (frames, stalls) = (&frames[count..], 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                stalls += 1;
                if stalls > STALLED_AFTER {
                    return Sent::Stalled;
                }
                meanwhile();
            }
            Err(_) => return Sent::Ended,
        }
    }
    Sent::All
}

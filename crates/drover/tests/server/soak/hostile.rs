//! Clients that harm, or try to: resets, clients that read nothing, nonsense, heads and bodies that do not end.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::well_formed::LARGE;
use crate::harness::{PATIENCE, request};
use crate::http2::attacks::{self, Attack};
use crate::http2::wire as http2;
use crate::tls::wire::{self, Wire};

/// How many clients of one thread read nothing, or send nothing more, at a time.
const STUCK_MOST: usize = 100;

/// How many kinds there are of clients, and how many more where TLS is spoken.
const KINDS: u64 = 8;
const KINDS_OF_TLS: u64 = 4;

/// What no server may answer with a file.
const MALFORMED: &[&str] = &[
    "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
    "GET / HTTP/9.1\r\nHost: a\r\n\r\n",
    "GET /../../etc/passwd%00 HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
    "\r\n\r\n\r\n\0\0\0\0\r\n\r\n",
];

/// Makes one connection after the other until `over`. Returns how many.
pub(super) fn bother(address: SocketAddr, seed: u64, over: &AtomicBool) -> u64 {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut stuck = VecDeque::new();
    let kinds_of_tls = if wire::is_spoken(address) { KINDS_OF_TLS } else { 0 };
    let attacks = if http2::is_wanted() { attacks::ATTACKS } else { &[] };
    let kinds = KINDS + kinds_of_tls;
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        // Whatever the server does to such a client is right, as long as others have their answers.
        let kind = count % (kinds + attacks.len() as u64);
        let stays = match kind {
            ..KINDS => connect(address).and_then(|it| one(it, &mut random, kind)),
            _ if kind < kinds => {
                connect_raw(address).and_then(|it| one_by_tls(it, &mut random, kind - KINDS))
            }
            _ => attack(address, &mut random, &attacks[(kind - kinds) as usize]),
        };
        if let Ok(Some(stays)) = stays {
            stuck.push_back(stays);
            stuck.drain(..stuck.len().saturating_sub(STUCK_MOST));
        }
        count += 1;
    }
    count
}

fn connect_raw(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn connect(address: SocketAddr) -> std::io::Result<Wire> {
    Ok(Wire::to(address, connect_raw(address)?))
}

/// One client of a kind that does not speak TLS, or not to the end of a handshake, where TLS is spoken. Returned is one that stays.
fn one_by_tls(
    mut stream: TcpStream,
    random: &mut SmallRng,
    kind: u64,
) -> std::io::Result<Option<Wire>> {
    let address = stream.peer_addr()?;
    match kind {
        0 => stream.write_all(request("GET", LARGE, &[]).as_bytes())?,
        // The header of a record, and noise in it.
        1 => {
            let mut noise = vec![0; random.random_range(1..3000)];
            random.fill(&mut noise[..]);
            stream.write_all(&[22, 3, 1, 8, 0])?;
            stream.write_all(&noise)?;
        }
        // A handshake that nobody waits for.
        2 => Wire::to(address, stream).say_hello(),
        _ => {
            let mut wire = Wire::to(address, stream);
            wire.say_hello();
            return Ok(Some(wire));
        }
    }
    Ok(None)
}

/// A client that attacks over HTTP/2, for a while. Returned is one that stays.
fn attack(
    address: SocketAddr,
    random: &mut SmallRng,
    attack: &Attack,
) -> std::io::Result<Option<Wire>> {
    let mut wire = Wire::for_http2(address, connect_raw(address)?);
    attacks::begin(&mut wire, attack)?;
    // A client that takes nothing is not waited for.
    wire.tcp().set_write_timeout(Some(Duration::from_millis(100)))?;
    for number in 0..random.random_range(1..40) {
        wire.write_all(&(attack.again)(number))?;
    }
    Ok(random.random_bool(0.5).then_some(wire))
}

/// One client of a kind. Returned is one that stays.
fn one(mut stream: Wire, random: &mut SmallRng, kind: u64) -> std::io::Result<Option<Wire>> {
    let large = request("GET", LARGE, &[]);
    match kind {
        // Leaves by a reset in the middle of a response, later or sooner.
        0 => {
            stream.write_all(large.as_bytes())?;
            let mut begin = vec![0; random.random_range(1..200_000)];
            stream.read_exact(&mut begin)?;
            reset(stream.tcp())?;
        }
        1 => {
            stream.write_all(large.as_bytes())?;
            reset(stream.tcp())?;
        }
        2 => {
            stream.write_all(large.as_bytes())?;
            return Ok(Some(stream));
        }
        3 => {
            stream.write_all(&large.as_bytes()[..random.random_range(0..large.len())])?;
            return Ok(Some(stream));
        }
        4 => {
            let mut noise = vec![0; random.random_range(1..3000)];
            random.fill(&mut noise[..]);
            stream.write_all(&noise)?;
        }
        5 => {
            let nonsense = MALFORMED[random.random_range(0..MALFORMED.len())];
            stream.write_all(nonsense.as_bytes())?;
            stream.try_end_sending()?;
            let mut response = Vec::new();
            stream.read_to_end(&mut response)?;
            assert!(
                !response.starts_with(b"HTTP/1.1 2"),
                "{nonsense:?}: {}",
                response.escape_ascii()
            );
        }
        6 => {
            stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nx")?;
        }
        // A head that is too long.
        _ => {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n")?;
            (0..2000).try_for_each(|it| write!(stream, "X-{it}: {it:40}\r\n"))?;
        }
    }
    Ok(None)
}

/// Closing sends a reset (socket(7), SO_LINGER with no time to linger).
fn reset(stream: &TcpStream) -> std::io::Result<()> {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
    Ok(())
}

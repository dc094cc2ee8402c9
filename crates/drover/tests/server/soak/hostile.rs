//! Clients that harm, or try to: resets, clients that read nothing, nonsense, heads and bodies that do not end.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::well_formed::LARGE;
use crate::harness::{PATIENCE, request};

/// How many clients of one thread read nothing, or send nothing more, at a time.
const STUCK_MOST: usize = 100;

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
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        // Whatever the server does to such a client is right, as long as others have their answers.
        if let Ok(Some(stays)) = connect(address).and_then(|it| one(it, &mut random, count)) {
            stuck.push_back(stays);
            stuck.drain(..stuck.len().saturating_sub(STUCK_MOST));
        }
        count += 1;
    }
    count
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// One client, of one kind after the other. Returned is one that stays.
fn one(
    mut stream: TcpStream,
    random: &mut SmallRng,
    number: u64,
) -> std::io::Result<Option<TcpStream>> {
    let large = request("GET", LARGE, &[]);
    match number % 8 {
        // Leaves by a reset in the middle of a response, later or sooner.
        0 => {
            stream.write_all(large.as_bytes())?;
            let mut begin = vec![0; random.random_range(1..200_000)];
            stream.read_exact(&mut begin)?;
            reset(&stream)?;
        }
        1 => {
            stream.write_all(large.as_bytes())?;
            reset(&stream)?;
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
            stream.shutdown(Shutdown::Write)?;
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

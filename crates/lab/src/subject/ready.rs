//! Waits until a server has started.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::HttpAddress;
use crate::failure::Failure;
use crate::process::Child;
use crate::spec::subject::ReadyRequest;

/// How long one request may take.
const ANSWER: Duration = Duration::from_secs(2);

/// How long to wait before a server that is not ready is asked again.
const AGAIN: Duration = Duration::from_millis(10);

/// Waits until a server accepts connections, or, with `ready` and without TLS, gives the expected answer. The calling
/// thread has to be at an end of the wire from which the server can be reached.
///
/// # Errors
/// [`Failure::Failed`] if the server ends or is not ready in time, with its last answer;
/// [`Failure::Interrupted`].
pub fn wait_until_ready(
    process: &mut Child,
    address: HttpAddress,
    ready: Option<&ReadyRequest>,
    within: Duration,
) -> Result<(), Failure> {
    let deadline = Instant::now() + within;
    // The lab itself speaks no TLS.
    let ready = ready.filter(|_| !address.is_tls);
    loop {
        let answer = match ready {
            None => TcpStream::connect_timeout(&address.socket, ANSWER)
                .map(drop)
                .map_err(|error| error.to_string()),
            Some(ready) => ask(address, ready),
        };
        let Err(why) = answer else { return Ok(()) };
        // The first process of a daemon ends, and leaves others.
        let has_ended = process.ended().map_err(Failure::failed)?;
        if has_ended.is_none_or(|status| !status.success()) || !process.has_descendants() {
            process.expect_running()?;
        }
        if Instant::now() > deadline {
            let what = match ready {
                None => format!("accepts no connection on {}", address.socket),
                Some(ready) => format!("is not ready by {} of {address}", ready.path),
            };
            return Err(process.failure(&format!("{what} within {within:?} ({why})")));
        }
        thread::sleep(AGAIN);
    }
}

/// Sends one request. The error says what was wrong with the answer.
fn ask(address: HttpAddress, ready: &ReadyRequest) -> Result<(), String> {
    let status = status(address, &ready.path).map_err(|error| error.to_string())?;
    match (status, ready.status) {
        (None, _) => Err("the answer is not HTTP".to_string()),
        (Some(status), Some(wanted)) if status != wanted => Err(format!("its status is {status}")),
        (Some(status), None) if status >= 500 => Err(format!("its status is {status}")),
        _ => Ok(()),
    }
}

/// The status of the response to a GET.
fn status(address: HttpAddress, path: &str) -> std::io::Result<Option<u16>> {
    let mut stream = TcpStream::connect_timeout(&address.socket, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", address.socket);
    stream.write_all(request.as_bytes())?;
    let mut line = Vec::new();
    let mut block = [0; 512];
    while !line.contains(&b'\n') && line.len() < 8192 {
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(n) => line.extend(&block[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(parse_status(&line))
}

/// The status in a status line (RFC 9112 §4).
fn parse_status(line: &[u8]) -> Option<u16> {
    let text =
        std::str::from_utf8(line.split(|byte| *byte == b'\r' || *byte == b'\n').next()?).ok()?;
    text.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_is_read() {
        assert_eq!(parse_status(b"HTTP/1.0 404 Not Found\r\n"), Some(404));
        assert_eq!(parse_status(b"HTTP/1.1 200\r\nA: b\r\n"), Some(200));
        assert_eq!(parse_status(b"SSH-2.0-OpenSSH\r\n"), None);
        assert_eq!(parse_status(b""), None);
    }
}

//! `drover lab child`: processes that block in accept(2).

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use drover_testing::wait_until;

struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn start(flags: &[&str]) -> Server {
        let mut process = Command::new(env!("CARGO_BIN_EXE_drover"))
            .args(["lab", "child", "--address", "127.0.0.1:0", "--children", "2"])
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap();
        Server { address: address.trim_end_matches('/').parse().unwrap(), process }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    /// How many connections wait to be accepted, as the kernel shows it (proc(5), `/proc/net/tcp`).
    fn waiting(&self) -> u64 {
        let port = format!(":{:04X}", self.address.port());
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let listening = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut own = listening.filter(|words| words[1].ends_with(&port) && words[3] == "0A");
        let queue = own.next().expect("it listens")[4];
        u64::from_str_radix(queue.split_once(':').unwrap().1, 16).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn answer(mut stream: TcpStream) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A child owns one connection, and takes the next one when that is closed.
#[test]
fn a_child_has_one_connection() {
    for flags in [&["--response-size", "5"][..], &["--response-size", "5", "--lock"]] {
        let server = Server::start(flags);
        let silent = [server.connect(), server.connect()];
        wait_until("both are accepted", || server.waiting() == 0);
        let third = server.connect();
        wait_until("the third waits", || server.waiting() == 1);
        drop(silent);
        let text = answer(third);
        assert!(
            text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nxxxxx"),
            "{text}"
        );
        assert!(answer(server.connect()).ends_with("xxxxx"));
    }
}

/// A request that comes in pieces, and one that never ends.
#[test]
fn a_request_ends_with_an_empty_line() {
    let server = Server::start(&[]);
    let mut pieces = server.connect();
    pieces.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r").unwrap();
    pieces.write_all(b"\n").unwrap();
    let mut text = String::new();
    pieces.read_to_string(&mut text).unwrap();
    assert!(text.contains("Content-Length: 92\r\n"), "{text}");
    let mut endless = server.connect();
    endless.write_all(&[b'x'; 8192]).unwrap();
    let mut rest = Vec::new();
    // The connection is closed, and as bytes are left perhaps reset.
    let _ = endless.read_to_end(&mut rest);
    assert_eq!(rest, [0_u8; 0]);
}

/// The kernel ends the children with their parent, however it ends.
#[test]
fn children_end_with_their_parent() {
    let mut server = Server::start(&["--lock"]);
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let address = server.address;
    wait_until("nobody listens", || TcpStream::connect(address).is_err());
}

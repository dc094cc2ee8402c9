//! A server of children that block, as Apache 1.3 was: each child is a process with one thread, which waits in accept(2), reads a
//! request, writes the response, closes the connection, and waits again.
//!
//! It has nothing that accept(2) itself does not need: no event loop, no thread beside, no connection taken ahead. Optionally a child
//! holds a lock while it is in accept(2) (fcntl(2), as Apache's USE_FCNTL_SERIALIZED_ACCEPT), so that the others wait for the lock
//! and not for a connection.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::fs::{FlockOperation, MemfdFlags, fcntl_lock, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::WaitOptions;

use crate::fork::Children;

/// How long a child waits for the rest of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest head of a request.
const LONGEST_HEAD: usize = 8192;

/// How many connections may wait to be accepted; the kernel has a limit of its own (listen(2)).
const BACKLOG: i32 = 4096;

/// A server of children that block.
#[derive(Clone, Copy, Debug)]
pub struct ChildServer {
    /// Where it listens; with port 0 the kernel chooses one.
    pub address: SocketAddr,
    /// How many children there are.
    pub children: u32,
    /// Whether a child holds a lock while it is in accept(2).
    pub is_serialized: bool,
    /// The length of the body of a response, in bytes.
    pub response_size: usize,
}

impl ChildServer {
    /// Serves until a signal ends the process, and with it the children. Calls `ready` with the address once all children run.
    ///
    /// # Errors
    /// What listening or forking meets; a child that has ended.
    pub fn run(self, ready: impl FnOnce(SocketAddr) -> io::Result<()>) -> io::Result<()> {
        let family =
            if self.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket =
            rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &self.address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        let listener = TcpListener::from(socket);
        // The lock of a process is released when the process closes any descriptor of the file: nobody does.
        let lock = File::from(memfd_create("accept", MemfdFlags::CLOEXEC)?);
        let response = response(self.response_size);
        let mut children = Children::new(self.children as usize)?;
        for _ in 0..self.children {
            let lock = self.is_serialized.then_some(&lock);
            children.fork("child", || serve(&listener, lock, &response))?;
        }
        ready(listener.local_addr()?)?;
        loop {
            match rustix::process::wait(WaitOptions::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                ended => return Err(io::Error::other(format!("a child has ended: {:?}", ended?))),
            }
        }
    }
}

/// The response to every request: as many bytes as asked, and the end of the connection.
fn response(size: usize) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    );
    let mut response = head.into_bytes();
    response.resize(response.len() + size, b'x');
    response
}

/// The life of a child.
fn serve(listener: &TcpListener, lock: Option<&File>, response: &[u8]) {
    let mut head = vec![0; LONGEST_HEAD];
    loop {
        let Ok(mut stream) = accept(listener, lock) else { continue };
        // A client that goes away in the middle is of no concern to the next one.
        let _ = answer(&mut stream, &mut head, response);
    }
}

/// Waits for a connection, alone if there is a lock.
fn accept(listener: &TcpListener, lock: Option<&File>) -> io::Result<TcpStream> {
    if let Some(lock) = lock {
        fcntl_lock(lock, FlockOperation::LockExclusive)?;
    }
    let accepted = listener.accept();
    if let Some(lock) = lock {
        fcntl_lock(lock, FlockOperation::Unlock)?;
    }
    Ok(accepted?.0)
}

/// Reads the head of a request, and writes the response.
fn answer(stream: &mut TcpStream, head: &mut [u8], response: &[u8]) -> io::Result<()> {
    let mut length = 0;
    while !head[..length].ends_with(b"\r\n\r\n") {
        if length == head.len() {
            return Err(ErrorKind::InvalidData.into());
        }
        match stream.read(&mut head[length..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => length += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if length < head.len() && !head[..length].ends_with(b"\r\n\r\n") {
            // Only a request in pieces needs a limit of time, and only it pays for one.
            stream.set_read_timeout(Some(PATIENCE))?;
        }
    }
    stream.write_all(response)
}

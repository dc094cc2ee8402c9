//! An echo server on any dispatch mechanism, without the coroutines:
//!
//! ```console
//! $ cargo run -p drover-mech --example echo -- rtsig
//! ```
//!
//! It shows what the owner of a descriptor has to do for each feature. Responses
//! that the socket does not take at once end the connection, for brevity.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use drover_mech::Key;
use drover_mech::mechanisms::{self, Features, MechanismOptions};
use drover_mech::readiness::{Dispatcher, Interest, Readiness, Ready};

const LISTENER: Key = Key { slot: 0, generation: 0 };

fn main() -> std::io::Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "epoll-et".to_owned());
    let Some(mechanism) = mechanisms::by_name(&name) else {
        let names: Vec<_> = mechanisms::ALL.iter().map(|mechanism| mechanism.name).collect();
        return Err(std::io::Error::other(format!("{name}? There are {}", names.join(", "))));
    };
    let mut dispatcher = Dispatcher::open(mechanism, &MechanismOptions::default())?;
    let features = mechanism.features;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    dispatcher.attach(listener.as_fd(), LISTENER, Interest::READABLE)?;
    println!("echoing on {} by {name}", listener.local_addr()?);

    let mut connections = HashMap::new();
    let mut next = 1;
    let mut events = Vec::new();
    loop {
        events.clear();
        dispatcher.wait(None, &mut events)?;
        let mut ready: Vec<Key> = events
            .iter()
            .filter(|event| event.ready.contains(Ready::READABLE))
            .map(|event| event.key)
            .collect();
        if ready.contains(&LISTENER) {
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true)?;
                let key = Key { slot: next, generation: 0 };
                next += 1;
                dispatcher.attach(stream.as_fd(), key, Interest::READABLE)?;
                connections.insert(key, stream);
                if features.contains(Features::MISSES_EARLIER) {
                    ready.push(key);
                }
            }
        }
        for key in ready {
            // An event of a connection that an earlier one has ended finds nobody.
            if let Some(stream) = connections.get(&key)
                && !echo(stream)
            {
                dispatcher.detach(stream.as_fd(), key)?;
                connections.remove(&key);
            }
        }
        if features.contains(Features::REARM) {
            for event in &events {
                if event.key == LISTENER {
                    dispatcher.want(listener.as_fd(), LISTENER, Interest::READABLE)?;
                } else if let Some(stream) = connections.get(&event.key) {
                    dispatcher.want(stream.as_fd(), event.key, Interest::READABLE)?;
                }
            }
        }
    }
}

/// Sends back what there is, until `EAGAIN` as edge mechanisms need it; returns
/// whether the connection goes on.
fn echo(mut stream: &TcpStream) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(count) if stream.write_all(&buffer[..count]).is_ok() => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            _ => return false,
        }
    }
}

//! The smallest server on `drover_mech::net`: answers every request head with the
//! same response, on any mechanism.
//!
//!     cargo run --release -p drover-mech --example hello -- epoll-et 127.0.0.1:8080

use std::net::TcpListener;
use std::time::Duration;

use drover_mech::mechanisms;
use drover_mech::net::{AcceptBatch, Body, Conn, Executor, Listener, Net, NetOptions};

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n";

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "epoll".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let socket = TcpListener::bind(&address)?;
    socket.set_nonblocking(true)?;
    let mechanism = mechanisms::by_name(&name).ok_or_else(|| {
        let names: Vec<_> = mechanisms::ALL.iter().map(|mechanism| mechanism.name).collect();
        std::io::Error::other(format!("no mechanism `{name}`; there are {}", names.join(", ")))
    })?;

    let net = Net::open(&NetOptions::new(mechanism))?;
    let listener = Listener::open(&net, socket.into())?;
    let mut executor = Executor::new(&net, Duration::from_secs(1));
    executor.listen(listener, |listener| async {
        let trouble = |error: &std::io::Error| {
            eprintln!("accept: {error}");
            false
        };
        let told = listener.run(AcceptBatch::All, trouble).await;
        if let Err(error) = told {
            eprintln!("the listener failed: {error}");
        }
    });
    println!("listening on http://{address} with {name}");
    executor.run(answer)
}

async fn answer(conn: Conn<'_>) {
    while let Ok(1..) = conn.fill_idle().await {
        conn.io(|io| {
            let mut consumed = 0;
            while let Some(end) = io.input[consumed..].windows(4).position(|w| w == b"\r\n\r\n") {
                consumed += end + 4;
                io.output.extend_from_slice(RESPONSE);
            }
            (consumed, ())
        });
        if conn.send(Body::None, None).await.is_err() {
            return;
        }
    }
}

//! How a Linux server waits for I/O: every dispatch mechanism behind one
//! contract, and the coroutines that run on top of any of them.
//!
//! **What it is.** From select(2) to io_uring, each mechanism that Linux has had is a value of one list, and one coroutine
//! per connection runs over any of them: choosing another mechanism is choosing another name. A worker is one thread
//! with a mechanism, an executor, timers and buffers of its own; a server has as many workers as it wants. Nothing is
//! allocated or locked per transfer, and an idle connection costs the size of its coroutine.
//!
//! **What it is not.** Not a general runtime: a coroutine awaits operations of its [`net::Conn`] and no other futures,
//! because a worker has no `std::task::Waker` at work. Streams only, TCP and unix sockets: no UDP, no TLS. Linux only. The
//! crate knows no HTTP.
//!
//! # An echo server over any mechanism
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::{Shutdown, TcpListener, TcpStream};
//!
//! use drover_mech::mechanisms;
//! use drover_mech::net::{Body, Conn, NetOptions, WorkerThread};
//!
//! /// The coroutine of a connection. The connection is closed when the coroutine ends.
//! async fn echo(conn: Conn<'_>) {
//!     // Received bytes stand in a buffer that the connection has only while there are any.
//!     while let Ok(1..) = conn.fill_idle().await {
//!         conn.io(|io| {
//!             io.output.extend_from_slice(io.input);
//!             (io.input.len(), ()) // all of them are consumed
//!         });
//!         if conn.send(Body::None, None).await.is_err() {
//!             return;
//!         }
//!     }
//! }
//!
//! /// Serves one client by the mechanism of that name, and ends.
//! fn serve_one(name: &str) -> std::io::Result<()> {
//!     let mechanism = mechanisms::by_name(name).ok_or(std::io::ErrorKind::NotFound)?;
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let mut client = TcpStream::connect(listener.local_addr()?)?;
//!     let worker = WorkerThread::start(NetOptions::new(mechanism), listener, echo)?;
//!     client.write_all(b"to and fro")?;
//!     client.shutdown(Shutdown::Write)?;
//!     let mut echoed = String::new();
//!     client.read_to_string(&mut echoed)?;
//!     assert_eq!(echoed, "to and fro");
//!     worker.stop()
//! }
//!
//! // Some kernels and some users cannot have every mechanism.
//! for mechanism in mechanisms::ALL.iter().filter(|mechanism| mechanism.probe().is_ok()) {
//!     serve_one(mechanism.name)?;
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A worker that does more than this (several listeners, services, deadlines of its own, files) is made of its parts:
//! [`net::Net`], [`net::Listener`], [`net::Executor`]; `examples/hello.rs` is the smallest. Whoever makes the transfers
//! without coroutines, and only asks which descriptors are ready, takes a [`readiness::Dispatcher`]; `examples/echo.rs`
//! shows what each feature of a mechanism asks of its user.
//!
//! # The modules
//!
//! - [`mechanisms`]: every dispatch mechanism as data, and the choice among them.
//! - [`readiness`]: mechanisms that tell which descriptors are ready — a file each.
//! - `uring`: the mechanism that makes the transfers itself, io_uring.
//! - [`net`]: what coroutines see — connections that own their buffers, an executor, deadlines — over any mechanism.
//! - [`accept`]: how new connections are shared among workers — a file per strategy.
//! - [`fileio`]: how a file's bytes reach a socket — a file per backend.
//! - [`files`]: files beneath a root, by the kernel's own rule; threads that open them; hearing of their changes.
//!
//! What the crate takes from the kernel without a decision of its own is in the crate [`drover_sys`].
#![cfg(target_os = "linux")]

pub mod accept;
pub mod fileio;
pub mod files;
pub mod key;
mod mechanism;
pub mod mechanisms;
pub mod net;
pub mod readiness;
mod thread_pool;
mod uring;

pub use drover_sys;
pub use key::Key;

//! An attempt to connect: through the addresses of a server, until one works.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::account::counts::{RequestFailure, record};
use crate::plan::endpoints::Endpoint;
use crate::run::connection::link::Link;
use crate::run::tls::Handshake;

/// The time between two attempts to connect to a unix socket with a full accept queue.
const QUEUE_LOOK: Duration = Duration::from_millis(1);

/// An attempt that succeeded.
struct Opened {
    /// When the connection was open, before its handshake.
    connected: Instant,
    handshake: Option<Box<Handshake>>,
}

/// An attempt that failed at every address.
struct Failed {
    class: RequestFailure,
    /// Where and why; `None`: the account has such a text already.
    told: Option<String>,
}

impl Link<'_, '_> {
    /// Tries once to connect, and makes the handshake where TLS is spoken; says whether it is open now.
    pub(crate) async fn connect(&mut self) -> bool {
        let worker = self.worker;
        worker.account.borrow_mut().connections.attempted += 1;
        worker.participants.begin_connecting();
        let begun = Instant::now();
        let connected = self.try_addresses(begun).await;
        let now = Instant::now();
        worker.close_seconds(now);
        {
            let mut account = worker.account.borrow_mut();
            match connected {
                Ok(Opened { connected, handshake }) => {
                    account.connections.opened += 1;
                    record(&mut account.connect, connected - begun);
                    if let Some(handshake) = handshake {
                        let Handshake { agreed, end } = *handshake;
                        let is_in_window = worker.is_in_window(end);
                        account.shook_hands(agreed, end - connected, is_in_window);
                    }
                    self.open = true;
                }
                Err(Failed { class, told }) => {
                    account.connections.failed += 1;
                    account.errors.add(class);
                    account.connect_error = account.connect_error.take().or(told);
                    self.forget();
                }
            }
        }
        self.conn.set_deadline(None);
        worker.connected();
        self.open
    }

    /// Tries the addresses of the server in turn, within the time-out. While none has worked, each gets an
    /// equal part of the time that is left; one that has worked gets all of it.
    ///
    /// An attempt that fails at every address counts as what it was at the address that has worked, or
    /// else at the last one.
    async fn try_addresses(&mut self, begun: Instant) -> Result<Opened, Failed> {
        let plan = self.worker.plan;
        let endpoints = &plan.origins.list[self.origin].endpoints;
        let first = endpoints.first();
        let mut told = self.worker.account.borrow().connect_error.is_none().then(String::new);
        let mut class = None;
        for turn in 0..endpoints.len() {
            let (place, endpoint) = endpoints.in_turn(first, turn);
            let left = plan.timeout.saturating_sub(begun.elapsed());
            let patience = match turn {
                0 if first.has_worked => left,
                _ => left / (endpoints.len() - turn) as u32,
            };
            let (this, error) = match self.try_address(endpoint, patience).await {
                Ok(opened) => {
                    endpoints.has_worked(place);
                    return Ok(opened);
                }
                Err(failure) => failure,
            };
            if let Some(told) = &mut told {
                endpoints.tell_failure(told, place, &error);
            }
            if class.is_none() || !first.has_worked {
                class = Some(this);
            }
            if turn == 0 && first.has_worked && this == RequestFailure::ConnectTimeout {
                endpoints.was_too_slow(place);
                break;
            }
            // Another address needs a descriptor too.
            if this == RequestFailure::FdUnavailable {
                break;
            }
            self.forget();
        }
        Err(Failed { class: class.unwrap_or(RequestFailure::Refused), told })
    }

    /// Opens a connection to an address, with TLS where that is spoken, and begins HTTP/2 where that is. Both have what is left of the
    /// time.
    async fn try_address(
        &mut self,
        endpoint: &Endpoint,
        mut left: Duration,
    ) -> Result<Opened, (RequestFailure, io::Error)> {
        let refused = |error| (RequestFailure::of_connect(&error), error);
        let end = Instant::now() + left;
        loop {
            let socket = self.socket_to(endpoint).map_err(refused)?;
            self.conn.set_deadline(Some(left));
            match self.conn.connect(socket, endpoint.address.clone()).await {
                Ok(()) => break,
                // The queue of a unix socket is full, and nothing tells when it is not.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(refused(error)),
            }
            self.conn.close();
            left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(refused(io::ErrorKind::TimedOut.into()));
            }
            self.conn.sleep_until(self.worker.net.now() + QUEUE_LOOK).await;
        }
        match self.worker.plan.is_http2() {
            false => self.shake_hands(end).await,
            // In memory of its own, which connections of HTTP/1 do not need.
            true => Box::pin(self.begin_http2(end)).await,
        }
    }

    /// Makes the TLS handshake on a connection that was opened just now, where TLS is spoken.
    async fn shake_hands(&self, end: Instant) -> Result<Opened, (RequestFailure, io::Error)> {
        let Some(tls) = &self.worker.tls[self.origin] else {
            return Ok(Opened { connected: Instant::now(), handshake: None });
        };
        match tls.shake_hands(&self.conn, end).await {
            Ok((connected, handshake)) => Ok(Opened { connected, handshake: Some(handshake) }),
            Err(error) => Err((RequestFailure::of_handshake(&error), error)),
        }
    }

    async fn begin_http2(&mut self, end: Instant) -> Result<Opened, (RequestFailure, io::Error)> {
        let opened = self.shake_hands(end).await?;
        self.greet(opened.handshake.as_ref().map(|it| &*it.agreed.protocol), end).await?;
        Ok(opened)
    }

    /// A socket to connect to an address with.
    fn socket_to(&self, endpoint: &Endpoint) -> io::Result<OwnedFd> {
        let plan = self.worker.plan;
        let source = endpoint.sources.of(self.number);
        let socket = drover_sys::socket::for_connect(endpoint.address.clone(), source)?;
        plan.sources.limit_ports(&socket)?;
        if let Some(bytes) = plan.socket_reads() {
            // A server would not notice a reader whose socket takes the whole response at once.
            drover_sys::socket::set_receive_buffer(&socket, bytes)?;
        }
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use drover_mech::mechanisms::{self, Mechanism};
    use drover_sys::socket::{self, ListenOptions};

    use super::*;
    use crate::LoadListener;
    use crate::plan::endpoints::Endpoints;
    use crate::plan::options::{LoadOptions, LoadPlan};
    use crate::plan::request::{RequestContent, RequestTemplate};
    use crate::run::coordinator::{self, LoadRun};

    struct Nobody;
    impl LoadListener for Nobody {}

    /// Calls `test` with every mechanism that the kernel has.
    fn over_all(test: impl Fn(&'static Mechanism)) {
        for mechanism in mechanisms::ALL {
            match mechanism.probe() {
                Ok(()) => test(mechanism),
                Err(reason) => drover_testing::skip!("{}: {reason}", mechanism.name),
            }
        }
    }

    /// The plan of a run to a host `test` that has these addresses, one connection per request.
    fn plan(mechanism: &'static Mechanism, requests: u64, addresses: &[SocketAddr]) -> LoadPlan {
        plan_with(Duration::from_secs(10), mechanism, requests, addresses)
    }

    /// The same, with a time-out.
    fn plan_with(
        timeout: Duration,
        mechanism: &'static Mechanism,
        requests: u64,
        addresses: &[SocketAddr],
    ) -> LoadPlan {
        let url = "http://127.0.0.1:9/".parse().unwrap();
        let content = Arc::new(RequestContent::default());
        let mut options = LoadOptions::new(vec![RequestTemplate { url, content }], mechanism);
        options.requests = Some(requests);
        options.session.calls = Some(1);
        options.timeout = timeout;
        let mut plan = LoadPlan::new(options).unwrap();
        let addresses = addresses.iter().map(|address| (*address).into()).collect();
        plan.origins.list[0].endpoints = Endpoints::new(Some("test".to_string()), addresses);
        plan
    }

    fn conduct(plan: &LoadPlan) -> LoadRun {
        coordinator::conduct(plan, &mut Nobody).unwrap()
    }

    /// An address at which nobody listens, as long as its socket is kept.
    fn nobody() -> (OwnedFd, SocketAddr) {
        let socket = socket::reserve("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket::local_address(socket.as_fd()).unwrap();
        (socket, address)
    }

    fn listen(address: SocketAddr, backlog: i32) -> OwnedFd {
        let options = ListenOptions { reuse_port: true, backlog, defer: false };
        socket::listen(address, options).unwrap()
    }

    fn answer(mut stream: &TcpStream) {
        let read = stream.read(&mut [0; 4096]);
        if read.is_ok_and(|count| count > 0) {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    }

    /// Answers the request of every connection, and counts them. Ends with the program.
    fn serve(listener: TcpListener) -> (SocketAddr, Arc<AtomicU64>) {
        let address = listener.local_addr().unwrap();
        let count = Arc::new(AtomicU64::new(0));
        let shared = Arc::clone(&count);
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                shared.fetch_add(1, Ordering::SeqCst);
                answer(&stream);
            }
        });
        (address, count)
    }

    #[test]
    fn the_addresses_are_tried_until_one_works_and_then_it_is_the_first() {
        over_all(|mechanism| {
            let (_held, refuses) = nobody();
            let (works, count) = serve(TcpListener::bind("127.0.0.1:0").unwrap());
            let plan_of_both = plan(mechanism, 5, &[refuses, works]);
            let run = conduct(&plan_of_both);
            let connections = run.account.connections;
            assert_eq!((run.account.responses, connections.attempted), (5, 5), "{mechanism:?}");
            assert_eq!((connections.failed, run.account.errors.total()), (0, 0), "{mechanism:?}");
            assert_eq!(count.load(Ordering::SeqCst), 5);
            assert_eq!(run.account.connect_error, None);

            // The first address listens by now, and is not asked.
            let _listens = listen(refuses, 9);
            let run = conduct(&plan_of_both);
            assert_eq!((run.account.responses, count.load(Ordering::SeqCst)), (5, 10));
        });
    }

    #[test]
    fn when_the_address_that_worked_fails_the_others_are_tried() {
        over_all(|mechanism| {
            let leaves = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = leaves.local_addr().unwrap();
            let (stays, count) = serve(TcpListener::bind("127.0.0.1:0").unwrap());
            let leaving = thread::spawn(move || {
                let (stream, _) = leaves.accept().unwrap();
                // Bound as long as this thread lives, so that nobody else gets the port.
                socket::share_port(&leaves).unwrap();
                let held = socket::reserve(leaves.local_addr().unwrap()).unwrap();
                drop(leaves);
                answer(&stream);
                held
            });
            let run = conduct(&plan(mechanism, 4, &[address, stays]));
            assert_eq!(
                (run.account.responses, run.account.errors.total()),
                (4, 0),
                "{mechanism:?}"
            );
            assert_eq!(count.load(Ordering::SeqCst), 3);
            drop(leaving.join().unwrap());
        });
    }

    /// Its queue is full: the kernel drops what asks for a connection, and says nothing.
    #[test]
    fn an_address_that_says_nothing_gets_its_part_of_the_time_out() {
        // It takes its time, so not with each mechanism.
        let usual = [mechanisms::auto_of_readiness().unwrap(), mechanisms::auto(1).unwrap()];
        for mechanism in usual {
            let socket = listen("127.0.0.1:0".parse().unwrap(), 0);
            let silent = socket::local_address(socket.as_fd()).unwrap();
            let full = TcpStream::connect(silent).unwrap();
            let (works, _) = serve(TcpListener::bind("127.0.0.1:0").unwrap());
            let timeout = Duration::from_secs(3);
            let run = conduct(&plan_with(timeout, mechanism, 1, &[silent, works]));
            // A machine that stands still may let a time-out pass at the other one too.
            let timeouts = run.account.errors.of(RequestFailure::ConnectTimeout);
            assert_eq!(run.account.responses, 1, "{mechanism:?}");
            assert_eq!(run.account.errors.total(), timeouts, "{mechanism:?}");
            drop(full);
        }
    }

    #[test]
    fn an_attempt_that_fails_everywhere_is_one_and_names_host_and_addresses() {
        over_all(|mechanism| {
            let ((_first, one), (_second, other)) = (nobody(), nobody());
            let timeout = Duration::from_millis(50);
            let account = conduct(&plan_with(timeout, mechanism, 3, &[one, other])).account;
            assert_eq!(account.connections.failed, account.connections.attempted);
            assert_eq!(account.errors.of(RequestFailure::Refused), account.connections.failed);
            let told = format!("test at {one}: Connection refused, at {other}: Connection refused");
            assert_eq!(account.connect_error, Some(told), "{mechanism:?}");
        });
    }
}

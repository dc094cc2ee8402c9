//! What a worker counts, so that the sums add up exactly:
//!
//! - scheduled = requests + unsent (open loop);
//! - requests = responses + errors after sending + requests in flight at an interruption;
//! - attempted = opened + failed + attempts in progress at an interruption;
//! - the errors of all classes = failed + unsolicited + errors after sending.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use drover_http1::chunked::BadChunk;
use drover_http1::response::BadResponse;
use drover_sys::errno::is_exhaustion;
use drover_tls::client::AgreedTls;
use hdrhistogram::Histogram;

use crate::account::http2::Http2Events;

/// Why a request got no response, or an attempt to connect failed. The names are those of the JSON
/// result, after httperf's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestFailure {
    /// The response was not complete in time.
    ClientTimeout,
    /// The connection was not open in time.
    ConnectTimeout,
    /// Nothing took the connection: no socket listens, or there is no route.
    Refused,
    /// The peer ended the connection with a reset.
    Reset,
    /// The peer ended the stream with a reset, and not because it has done nothing for it.
    StreamReset,
    /// The TLS handshake failed, or the peer broke TLS later.
    TlsFailed,
    /// No descriptor, or no kernel memory, was left for a socket.
    FdUnavailable,
    /// No local port was left, or the source address is not one of this machine.
    AddressUnavailable,
    /// The peer closed before the response was complete.
    Truncated,
    /// The body has another length than was expected.
    BadLength,
    /// The body differs from the expected one.
    BadBody,
    // From here on the server violates HTTP: see `RequestFailure::PROTOCOL`.
    /// What came does not begin like HTTP.
    NotHttp,
    /// A version of HTTP other than 1.x.
    HttpVersion,
    /// A status line without a valid status.
    StatusLine,
    /// A 101, which nobody asked for.
    SwitchingProtocols,
    /// A field line with an invalid name, value or line end.
    FieldLine,
    /// A head that does not end within the input buffer.
    HeadTooLong,
    /// A head that does not say, or says in two ways, where its body ends.
    Framing,
    /// A chunked body with an invalid chunk.
    Chunk,
    /// A violation of HTTP/2.
    Http2,
    /// More came than the response.
    Excess,
    /// A response came before its request.
    Unsolicited,
}

impl RequestFailure {
    const COUNT: usize = RequestFailure::Unsolicited as usize + 1;

    /// The failures of the class `protocol`, with their codes in the JSON result.
    pub(crate) const PROTOCOL: [(RequestFailure, &str); 11] = [
        (RequestFailure::NotHttp, "not_http"),
        (RequestFailure::HttpVersion, "http_version"),
        (RequestFailure::StatusLine, "status_line"),
        (RequestFailure::SwitchingProtocols, "switching_protocols"),
        (RequestFailure::FieldLine, "field_line"),
        (RequestFailure::HeadTooLong, "head_too_long"),
        (RequestFailure::Framing, "framing"),
        (RequestFailure::Chunk, "chunk"),
        (RequestFailure::Http2, "http2"),
        (RequestFailure::Excess, "excess"),
        (RequestFailure::Unsolicited, "unsolicited"),
    ];

    /// The class of an error at connect(2), or before it.
    pub(crate) fn of_connect(error: &io::Error) -> RequestFailure {
        match error.kind() {
            _ if is_exhaustion(error) => RequestFailure::FdUnavailable,
            io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse => {
                RequestFailure::AddressUnavailable
            }
            io::ErrorKind::TimedOut => RequestFailure::ConnectTimeout,
            io::ErrorKind::ConnectionReset => RequestFailure::Reset,
            _ => RequestFailure::Refused,
        }
    }

    /// The class of an error in a TLS handshake. Whether its peer ends the connection or resets it depends on what the peer
    /// has read.
    pub(crate) fn of_handshake(error: &io::Error) -> RequestFailure {
        match error.kind() {
            _ if is_exhaustion(error) => RequestFailure::FdUnavailable,
            io::ErrorKind::TimedOut => RequestFailure::ConnectTimeout,
            _ => RequestFailure::TlsFailed,
        }
    }

    /// The class of an error on an open connection.
    pub(crate) fn of_transfer(error: &io::Error) -> RequestFailure {
        match error.kind() {
            io::ErrorKind::TimedOut => RequestFailure::ClientTimeout,
            io::ErrorKind::InvalidData => RequestFailure::TlsFailed,
            // The input buffer is full of a head that does not end.
            io::ErrorKind::StorageFull => RequestFailure::HeadTooLong,
            _ => RequestFailure::Reset,
        }
    }
}

impl From<BadResponse> for RequestFailure {
    fn from(bad: BadResponse) -> RequestFailure {
        match bad {
            BadResponse::NotHttp => RequestFailure::NotHttp,
            BadResponse::Version => RequestFailure::HttpVersion,
            BadResponse::Status => RequestFailure::StatusLine,
            BadResponse::SwitchingProtocols => RequestFailure::SwitchingProtocols,
            BadResponse::FieldLine => RequestFailure::FieldLine,
            BadResponse::HeadTooLong => RequestFailure::HeadTooLong,
            BadResponse::Framing(_) => RequestFailure::Framing,
        }
    }
}

impl From<BadChunk> for RequestFailure {
    fn from(_: BadChunk) -> RequestFailure {
        RequestFailure::Chunk
    }
}

/// Errors by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Errors([u64; RequestFailure::COUNT]);

impl Errors {
    pub(crate) fn add(&mut self, failure: RequestFailure) {
        self.0[failure as usize] += 1;
    }

    pub(crate) fn of(&self, failure: RequestFailure) -> u64 {
        self.0[failure as usize]
    }

    /// The errors of the class `protocol`.
    pub(crate) fn protocol(&self) -> u64 {
        RequestFailure::PROTOCOL.iter().map(|(failure, _)| self.of(*failure)).sum()
    }

    /// The number of errors of all classes.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// What happened to connections, idle ones included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionEvents {
    pub(crate) attempted: u64,
    pub(crate) opened: u64,
    /// Connections opened in place of one that the server had closed, before a request needed them.
    /// They count as opened too.
    pub(crate) reopened: u64,
    pub(crate) failed: u64,
    /// Requests sent on a connection that had carried one before.
    pub(crate) reused: u64,
    /// Idle connections open at the end of the window.
    pub(crate) idle_held: u64,
    /// Connections closed by the server: between two responses, or by a response with `Connection: close`.
    pub(crate) closed_by_peer: u64,
    /// Connections closed because of an unsolicited response; each is an error too.
    pub(crate) unsolicited: u64,
    /// Not accepted by the server when the window began, as far as that can be seen.
    pub(crate) unaccepted: u64,
}

/// TLS handshakes that were finished.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handshakes {
    /// How often each was agreed upon.
    pub(crate) agreed: BTreeMap<AgreedTls, u64>,
    /// Those that ended within the window.
    pub(crate) in_window: u64,
}

impl Handshakes {
    fn merge(&mut self, other: &Handshakes) {
        for (agreed, count) in &other.agreed {
            *self.agreed.entry(agreed.clone()).or_default() += count;
        }
        self.in_window += other.in_window;
    }
}

/// Times in nanoseconds, with three significant digits.
pub(crate) type TimeHistogram = Histogram<u64>;

/// Longer times are recorded as this; no request waits for an hour.
const LONGEST: u64 = 3_600_000_000_000;

pub(crate) fn times() -> TimeHistogram {
    TimeHistogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are valid")
}

pub(crate) fn record(times: &mut TimeHistogram, time: Duration) {
    let whole = time.as_secs().saturating_mul(1_000_000_000);
    times.saturating_record(whole.saturating_add(u64::from(time.subsec_nanos())));
}

/// How late the generator itself may bring a request to the connection before it counts as a late
/// start.
pub(crate) const LATE: Duration = Duration::from_millis(1);

/// Everything one worker counts.
pub(crate) struct Account {
    /// Requests whose intended start came; stays 0 in a closed loop.
    pub(crate) scheduled: u64,
    pub(crate) requests: u64,
    pub(crate) responses: u64,
    /// Responses that were complete before the window ended.
    pub(crate) responses_in_window: u64,
    /// Responses by status code, which has three digits.
    pub(crate) statuses: Box<[u64; 1000]>,
    pub(crate) errors: Errors,
    /// The first attempt to connect that failed: host, each address tried, and its error. Or what has broken TLS on an open
    /// connection, if that came first.
    pub(crate) connect_error: Option<String>,
    /// Requests that waited, past their intended start, until a connection was free.
    pub(crate) waited: u64,
    pub(crate) late_starts: u64,
    /// Responses that the generator read later than [`LATE`] after it knew of them, and by how much at
    /// most.
    pub(crate) late_reads: u64,
    pub(crate) latest_read: Duration,
    /// Requests without a response when the run was interrupted.
    pub(crate) in_flight: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) head_bytes: u64,
    pub(crate) body_bytes: u64,
    pub(crate) connections: ConnectionEvents,
    pub(crate) handshakes: Handshakes,
    pub(crate) http2: Http2Events,
    /// From the intended start to the last byte of the response; empty in a closed loop, where
    /// `service` has these times.
    pub(crate) latency: TimeHistogram,
    /// From just before the request is given to the kernel to the last byte of the response.
    pub(crate) service: TimeHistogram,
    /// Service times of responses that came in one piece. Until [`Account::conclude`] they are neither
    /// in `service` nor in `first_byte` nor in `transfer`.
    pub(crate) whole: TimeHistogram,
    pub(crate) connect: TimeHistogram,
    /// From an open connection to the end of its TLS handshake.
    pub(crate) handshake: TimeHistogram,
    pub(crate) first_byte: TimeHistogram,
    /// From the first bytes of the response to its last.
    pub(crate) transfer: TimeHistogram,
    /// How late the generator was, by itself: see [`LATE`].
    pub(crate) slip: TimeHistogram,
    /// Responses in each second of the window.
    pub(crate) per_second: Vec<u64>,
}

impl Account {
    pub(crate) fn new() -> Account {
        Account {
            scheduled: 0,
            requests: 0,
            responses: 0,
            responses_in_window: 0,
            statuses: Box::new([0; 1000]),
            errors: Errors::default(),
            connect_error: None,
            waited: 0,
            late_starts: 0,
            late_reads: 0,
            latest_read: Duration::ZERO,
            in_flight: 0,
            sent_bytes: 0,
            head_bytes: 0,
            body_bytes: 0,
            connections: ConnectionEvents::default(),
            handshakes: Handshakes::default(),
            http2: Http2Events::default(),
            latency: times(),
            service: times(),
            whole: times(),
            connect: times(),
            handshake: times(),
            first_byte: times(),
            transfer: times(),
            slip: times(),
            per_second: Vec::new(),
        }
    }

    /// Forgets the requests of a warm-up, and keeps what is known of connections. A request that
    /// failed, or has no response yet, stays a request of the run, so that no error is lost.
    pub(crate) fn forget_warm_up(&mut self, open_loop: bool) {
        let left = self.requests - self.responses;
        let warm_up = std::mem::replace(self, Account::new());
        self.requests = left;
        self.scheduled = if open_loop { left } else { 0 };
        self.errors = warm_up.errors;
        self.connect_error = warm_up.connect_error;
        self.connections = ConnectionEvents { reused: 0, ..warm_up.connections };
        self.connect = warm_up.connect;
        (self.handshake, self.handshakes) = (warm_up.handshake, warm_up.handshakes);
        self.http2 = warm_up.http2;
    }

    /// Counts a TLS handshake that is over.
    pub(crate) fn shook_hands(&mut self, agreed: AgreedTls, time: Duration, is_in_window: bool) {
        record(&mut self.handshake, time);
        *self.handshakes.agreed.entry(agreed).or_default() += 1;
        self.handshakes.in_window += u64::from(is_in_window);
    }

    /// Counts a response that ended `at` (from the beginning of the window) if that was before `end`.
    pub(crate) fn response_in_window(&mut self, at: Duration) {
        self.responses_in_window += 1;
        let second = at.as_secs() as usize;
        if self.per_second.len() <= second {
            self.per_second.resize(second + 1, 0);
        }
        self.per_second[second] += 1;
    }

    /// Records the time from sending a request to the first bytes of its response, and to the last.
    pub(crate) fn served(&mut self, first_byte: Duration, end: Duration) {
        if first_byte == end {
            return record(&mut self.whole, end);
        }
        record(&mut self.service, end);
        record(&mut self.first_byte, first_byte);
        record(&mut self.transfer, end - first_byte);
    }

    /// The service times so far.
    pub(crate) fn service_so_far(&self) -> TimeHistogram {
        let mut service = self.service.clone();
        add_times(&mut service, &self.whole);
        service
    }

    /// Adds the responses that came in one piece to the other distributions. Call this when no more
    /// responses come.
    pub(crate) fn conclude(&mut self) {
        let whole = std::mem::replace(&mut self.whole, times());
        add_times(&mut self.service, &whole);
        add_times(&mut self.first_byte, &whole);
        self.transfer.saturating_record_n(0, whole.len());
    }

    /// Records by how much the generator was late with one request.
    pub(crate) fn slipped(&mut self, by: Duration) {
        record(&mut self.slip, by);
        self.late_starts += u64::from(by > LATE);
    }

    /// Records how long a response waited in its socket while the generator was busy with other
    /// connections.
    pub(crate) fn record_read_delay(&mut self, time: Duration) {
        if time > LATE {
            self.late_reads += 1;
            self.latest_read = self.latest_read.max(time);
        }
    }

    /// Requests whose intended start came and that were never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.scheduled.saturating_sub(self.requests)
    }

    /// Adds what another worker counted.
    pub(crate) fn merge(&mut self, other: &Account) {
        self.scheduled += other.scheduled;
        self.requests += other.requests;
        self.responses += other.responses;
        self.responses_in_window += other.responses_in_window;
        add_each(&mut self.statuses[..], &other.statuses[..]);
        add_each(&mut self.errors.0, &other.errors.0);
        if self.connect_error.is_none() {
            self.connect_error.clone_from(&other.connect_error);
        }
        self.waited += other.waited;
        self.late_starts += other.late_starts;
        self.late_reads += other.late_reads;
        self.latest_read = self.latest_read.max(other.latest_read);
        self.in_flight += other.in_flight;
        self.sent_bytes += other.sent_bytes;
        self.head_bytes += other.head_bytes;
        self.body_bytes += other.body_bytes;
        let (sum, more) = (&mut self.connections, &other.connections);
        sum.attempted += more.attempted;
        sum.opened += more.opened;
        sum.reopened += more.reopened;
        sum.failed += more.failed;
        sum.reused += more.reused;
        sum.idle_held += more.idle_held;
        sum.closed_by_peer += more.closed_by_peer;
        sum.unsolicited += more.unsolicited;
        // All workers look at the accept queue of one server: the lengths do not add up.
        sum.unaccepted = sum.unaccepted.max(more.unaccepted);
        self.handshakes.merge(&other.handshakes);
        self.http2.merge(&other.http2);
        for (sum, more) in [
            (&mut self.latency, &other.latency),
            (&mut self.service, &other.service),
            (&mut self.whole, &other.whole),
            (&mut self.connect, &other.connect),
            (&mut self.handshake, &other.handshake),
            (&mut self.first_byte, &other.first_byte),
            (&mut self.transfer, &other.transfer),
            (&mut self.slip, &other.slip),
        ] {
            add_times(sum, more);
        }
        if self.per_second.len() < other.per_second.len() {
            self.per_second.resize(other.per_second.len(), 0);
        }
        add_each(&mut self.per_second, &other.per_second);
    }
}

fn add_times(sum: &mut TimeHistogram, more: &TimeHistogram) {
    sum.add(more).expect("all histograms have the same bounds");
}

fn add_each(sums: &mut [u64], more: &[u64]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += more;
    }
}

#[cfg(test)]
mod tests {
    use drover_sys::syscall::libc;

    use super::*;

    fn agreed(is_resumed: bool) -> AgreedTls {
        let (version, suite, group) = ("TLSv1.3", "TLS_AES_128_GCM_SHA256", "X25519");
        AgreedTls { version, suite, group, protocol: String::new(), is_resumed }
    }

    #[test]
    fn a_warm_up_leaves_its_errors_and_what_is_known_of_connections() {
        let mut account = Account::new();
        account.requests = 10;
        account.responses = 7;
        account.errors.add(RequestFailure::Reset);
        account.errors.add(RequestFailure::Refused);
        account.statuses[200] = 7;
        account.sent_bytes = 1000;
        account.connections =
            ConnectionEvents { opened: 5, failed: 1, reused: 4, ..Default::default() };
        record(&mut account.connect, Duration::from_millis(1));
        account.shook_hands(agreed(false), Duration::from_millis(2), false);
        account.served(Duration::from_millis(2), Duration::from_millis(2));
        account.response_in_window(Duration::from_secs(3));
        account.forget_warm_up(true);
        assert_eq!((account.requests, account.scheduled, account.responses), (3, 3, 0));
        assert_eq!(account.errors.total(), 2);
        assert_eq!((account.connections.opened, account.connections.reused), (5, 0));
        assert_eq!((account.connect.len(), account.service_so_far().len()), (1, 0));
        assert_eq!((account.handshake.len(), account.handshakes.agreed[&agreed(false)]), (1, 1));
        assert_eq!(
            (account.sent_bytes, account.per_second.len(), account.statuses[200]),
            (0, 0, 0)
        );
    }

    #[test]
    fn merged_accounts_have_the_sums() {
        let mut sum = Account::new();
        for part in 1..=3 {
            let mut account = Account::new();
            account.scheduled = 10 * part;
            account.requests = 9 * part;
            account.statuses[200] = part;
            account.errors.add(RequestFailure::Reset);
            account.connections.opened = part;
            account.shook_hands(agreed(part > 1), Duration::from_millis(part), part > 2);
            record(&mut account.service, Duration::from_millis(part));
            account.response_in_window(Duration::from_secs(part));
            account.slipped(LATE * part as u32);
            account.record_read_delay(LATE * part as u32);
            sum.merge(&account);
        }
        assert_eq!((sum.scheduled, sum.requests, sum.unsent()), (60, 54, 6));
        assert_eq!((sum.statuses[200], sum.connections.opened), (6, 6));
        assert_eq!(sum.errors.of(RequestFailure::Reset), 3);
        assert_eq!((sum.service.len(), sum.late_starts), (3, 2));
        assert_eq!((sum.handshake.len(), sum.handshakes.in_window), (3, 1));
        assert_eq!(sum.handshakes.agreed, BTreeMap::from([(agreed(false), 1), (agreed(true), 2)]));
        assert_eq!((sum.late_reads, sum.latest_read), (2, 3 * LATE));
        assert_eq!((sum.per_second, sum.responses_in_window), (vec![0, 1, 1, 1], 3));
    }

    #[test]
    fn responses_in_one_piece_are_in_every_distribution_in_the_end() {
        let us = Duration::from_micros;
        let mut account = Account::new();
        account.served(us(300), us(300));
        account.served(us(100), us(500));
        let so_far = account.service_so_far();
        account.conclude();
        assert_eq!(account.service, so_far);
        for (times, low, high) in [
            (&account.service, 300, 500),
            (&account.first_byte, 100, 300),
            (&account.transfer, 0, 400),
        ] {
            let near =
                |found: u64, micros: i32| (found as f64 / 1000.0 - f64::from(micros)).abs() < 1.0;
            assert_eq!(times.len(), 2);
            assert!(near(times.min(), low) && near(times.max(), high), "{low} to {high}");
        }
        account.conclude();
        assert_eq!(account.service.len(), 2);
    }

    #[test]
    fn times_keep_three_digits_and_never_overflow() {
        let mut times = times();
        record(&mut times, Duration::from_micros(123_456));
        record(&mut times, Duration::from_secs(1 << 40));
        let first = times.min() as f64;
        assert!((first / 123_456_000.0 - 1.0).abs() < 0.001, "{first}");
        assert!(times.max() >= LONGEST);
    }

    #[test]
    fn the_kernels_errors_have_their_class() {
        let of = |errno| RequestFailure::of_connect(&io::Error::from_raw_os_error(errno));
        assert_eq!(of(libc::EMFILE), RequestFailure::FdUnavailable);
        assert_eq!(of(libc::ENOBUFS), RequestFailure::FdUnavailable);
        assert_eq!(of(libc::EADDRNOTAVAIL), RequestFailure::AddressUnavailable);
        assert_eq!(of(libc::ECONNREFUSED), RequestFailure::Refused);
        assert_eq!(of(libc::ETIMEDOUT), RequestFailure::ConnectTimeout);
        let timed_out = io::Error::from(io::ErrorKind::TimedOut);
        assert_eq!(RequestFailure::of_transfer(&timed_out), RequestFailure::ClientTimeout);
        let broken = io::Error::from_raw_os_error(libc::EPIPE);
        assert_eq!(RequestFailure::of_transfer(&broken), RequestFailure::Reset);
        let invalid = io::Error::from(io::ErrorKind::InvalidData);
        assert_eq!(RequestFailure::of_transfer(&invalid), RequestFailure::TlsFailed);
        let of = |errno| RequestFailure::of_handshake(&io::Error::from_raw_os_error(errno));
        assert_eq!(of(libc::ECONNRESET), RequestFailure::TlsFailed);
        assert_eq!(of(libc::ENOMEM), RequestFailure::FdUnavailable);
        assert_eq!(RequestFailure::of_handshake(&timed_out), RequestFailure::ConnectTimeout);
        assert_eq!(RequestFailure::of_handshake(&invalid), RequestFailure::TlsFailed);
    }
}

//! What connections speak: from bytes that have been received to exchanges, and from exchanges to bytes that are sent. Only here is a
//! response in a protocol's own form.
//!
//! [`serve`] is a connection's coroutine, [`tls`] its beginning where it is encrypted, [`connection`] what every protocol needs of a
//! connection, [`http1`] HTTP/1, [`http2`] HTTP/2.

pub(crate) mod addresses;
pub(crate) mod connection;
pub(crate) mod http1;
pub(crate) mod http2;
mod repeated;
mod response_start;
pub(crate) mod serve;
pub(crate) mod tls;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_http1::{HeadLimits, Refusal, Status};
use drover_mech::net::{MinRate, Net};

use addresses::AddressCounter;
use http1::Http1;
use http2::WorkerHttp2;
use tls::WorkerTls;

use crate::acme::ChallengeReader;
use crate::config::Config;
use crate::observe::Observers;
use crate::proxies::trusted::TrustedProxies;
use crate::respond::site::Site;
use crate::status::statistics::WorkerCounters;

/// The response when a file could not be opened in time, because its disk or its network hangs, or a password not verified.
pub(crate) static TOOK_TOO_LONG: Refusal =
    Refusal { status: Status::ServiceUnavailable, reason: "this takes too long now" };

/// The time-outs of a connection; `None`: no limit.
#[derive(Clone, Copy)]
pub(crate) struct TimeOuts {
    /// From the first byte of a request to the end of its head (or of its body).
    pub(crate) header: Option<Duration>,
    /// Between requests, and for taking any byte of a response.
    pub(crate) idle: Option<Duration>,
    /// From the request to the opening of its file.
    pub(crate) open: Option<Duration>,
}

/// What a client may take.
pub(crate) struct Limits {
    pub(crate) time_outs: TimeOuts,
    pub(crate) head: HeadLimits,
    /// How slow a client may take what is sent to it.
    pub(crate) min_rate: Option<MinRate>,
    /// How many requests each connection may have, if that is limited.
    pub(crate) requests: Option<NonZeroU32>,
    /// Who has how many connections, if that is limited.
    pub(crate) addresses: Option<AddressCounter>,
    /// The proxies that begin each connection with a header of the PROXY protocol, if they do; others may not connect.
    pub(crate) proxies: Option<Arc<TrustedProxies>>,
}

/// What the connections of a worker share.
pub(crate) struct WorkerService<'w> {
    pub(crate) site: Site<'w>,
    http1: Http1,
    http2: WorkerHttp2,
    pub(crate) counters: &'w WorkerCounters,
    limits: Limits,
    /// Who observes exchanges; where nobody does, this costs a test of a pointer.
    pub(crate) observers: Option<Box<Observers>>,
    /// TLS, if some connections are over it.
    tls: Option<Box<WorkerTls>>,
    /// What is shown to a CA that asks for it.
    challenges: Option<ChallengeReader>,
    /// Whether somebody asks whose a connection is.
    has_users: bool,
}

impl<'w> WorkerService<'w> {
    pub(crate) fn new(
        site: Site<'w>,
        limits: Limits,
        counters: &'w WorkerCounters,
        observers: Option<Box<Observers>>,
        (tls, challenges): (Option<WorkerTls>, Option<ChallengeReader>),
        config: &Config,
    ) -> WorkerService<'w> {
        let has_users = (0..site.count()).any(|number| site.has_users(number));
        let (http1, tls) = (Http1::default(), tls.map(Box::new));
        let http2 = WorkerHttp2::of(config);
        WorkerService {
            site,
            http1,
            http2,
            counters,
            limits,
            observers,
            tls,
            challenges,
            has_users,
        }
    }

    /// Whether something comes before the first request of some connections: a header of a proxy, a handshake.
    fn begins_specially(&self) -> bool {
        self.limits.proxies.is_some() || self.tls.is_some() || self.http2.is_spoken_plain
    }

    /// Forgets what is remembered of requests for those to come.
    fn forget_requests(&self) {
        self.http1.forget();
        self.http2.forget();
    }

    /// Closes kept files that no request has used.
    pub(crate) fn sweep(&self, now: Instant) {
        self.forget_requests();
        self.site.sweep(now);
    }

    /// Memory has run out: frees what is kept for requests to come.
    #[cold]
    pub(crate) fn free_memory(&self, net: &Net) {
        self.forget_requests();
        self.site.free_memory(net);
    }

    /// Closes kept descriptors to make room; `false`: none was kept.
    pub(crate) fn give_back_descriptors(&self) -> bool {
        self.forget_requests();
        self.site.give_back_descriptors()
    }
}

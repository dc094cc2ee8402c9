//! Flags of `drover serve` for HTTP/2.

use drover_server::{Http2, Http2Limits};
use drover_usage::size;

use super::request::LIMITS;
use super::response::SERVING;

/// Where HTTP/2 is spoken, and what its clients may take.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli::serve) struct Http2Flags {
    /// Where to speak HTTP/2: over TLS (auto), on plain ports too (on), nowhere (off)
    ///
    /// Over TLS the client chooses between HTTP/2 and HTTP/1.1 (ALPN). On a plain port, a client has to know beforehand that
    /// the server speaks it (h2c with prior knowledge: curl --http2-prior-knowledge); browsers do not do that.
    #[arg(help_heading = SERVING, hide_short_help = true)]
    #[arg(long, value_name = "WHERE", default_value = "auto")]
    http2: Http2Where,

    /// How many requests a client may have open on a connection of HTTP/2
    ///
    /// One more is refused, and the client may send it again. A request that the client has taken back counts until its
    /// work has ended: otherwise a client could have any amount of work done (rapid reset, CVE-2023-44487).
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value_t = Http2Limits::default().streams)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST_STREAMS))]
    http2_streams: u32,

    /// How many requests a client of HTTP/2 may take back at once, and a thirtieth of it per second later on
    ///
    /// Those count that it makes the server take back, too (CVE-2025-8671). A client that does more loses its connection.
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value_t = Http2Limits::default().resets_burst)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    http2_resets: u32,

    /// How many bytes clients of HTTP/2 may send that ask for nothing: PING, SETTINGS, empty frames
    ///
    /// Each byte of a request, or of its response, allows eight more (CVE-2019-9512, -9513, -9515, -9518).
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = size::parse)]
    http2_useless: usize,

    /// How many requests beyond --http2-streams a connection of HTTP/2 may have refused in all
    ///
    /// A client may open some too many before it knows how many it may. One that goes on loses its connection.
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value_t = Http2Limits::default().refused)]
    http2_refused: u32,

    /// How many requests are taken from one read of a connection of HTTP/2
    ///
    /// Requests that are answered at once never reach --http2-streams; this bounds the work that they make before it is another
    /// connection's turn. A client that sends more at once loses its connection.
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value_t = Http2Limits::default().new_streams_per_read)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    http2_per_read: u32,

    /// How many CONTINUATION frames the head of a request may have
    ///
    /// A head without end is no request yet, so nothing else counts it (CVE-2024-27316).
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value_t = Http2Limits::default().continuations)]
    http2_continuations: u32,

    /// How many acknowledgements may wait for a client of HTTP/2 to take them
    ///
    /// Nothing more is received from it meanwhile. Otherwise what it does not take would fill the memory (CVE-2019-9512, -9515).
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value_t = Http2Limits::default().waiting_acks)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    http2_waiting_acks: u32,

    /// How many bytes of a request's body a client of HTTP/2 may send
    ///
    /// They are dropped, as no response depends on them; a client that waits to send more is told to stop.
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "SIZE", default_value_t = Http2Limits::default().body, value_parser = body)]
    http2_body: u32,
}

/// A size that a window can have (RFC 9113 section 6.9.1).
fn body(text: &str) -> Result<u32, String> {
    let size = size::parse(text)?;
    u32::try_from(size)
        .ok()
        .filter(|size| *size < 1 << 31)
        .ok_or_else(|| "a window of HTTP/2 is smaller than 2G; give less".to_owned())
}

/// The most streams that may be allowed: each costs memory while it is open.
const MOST_STREAMS: i64 = 10_000;

/// The values of `--http2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Http2Where {
    Auto,
    On,
    Off,
}

impl Http2Flags {
    pub(in crate::cli::serve) fn is_off(&self) -> bool {
        self.http2 == Http2Where::Off
    }

    pub(in crate::cli::serve) fn settings(&self, head: usize) -> Http2 {
        let resets_per_second = (self.http2_resets / 30).max(1);
        let limits = Http2Limits {
            streams: self.http2_streams,
            resets_burst: self.http2_resets,
            resets_per_second,
            useless_bytes: u32::try_from(self.http2_useless).unwrap_or(u32::MAX),
            head,
            refused: self.http2_refused,
            new_streams_per_read: self.http2_per_read,
            continuations: self.http2_continuations,
            waiting_acks: self.http2_waiting_acks,
            body: self.http2_body,
        };
        Http2 {
            over_tls: self.http2 != Http2Where::Off,
            on_plain_ports: self.http2 == Http2Where::On,
            limits,
        }
    }
}

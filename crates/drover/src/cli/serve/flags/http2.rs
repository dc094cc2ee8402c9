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
    #[arg(long, value_name = "N", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST_STREAMS))]
    http2_streams: u32,

    /// How many requests a client of HTTP/2 may take back at once, and a thirtieth of it per second later on
    ///
    /// Those count that it makes the server take back, too (CVE-2025-8671). A client that does more loses its connection.
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    http2_resets: u32,

    /// How many bytes clients of HTTP/2 may send that ask for nothing: PING, SETTINGS, empty frames
    ///
    /// Each byte of a request, or of its response, allows eight more (CVE-2019-9512, -9513, -9515, -9518).
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = size::parse)]
    http2_useless: usize,
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
            ..Http2Limits::default()
        };
        Http2 {
            over_tls: self.http2 != Http2Where::Off,
            on_plain_ports: self.http2 == Http2Where::On,
            limits,
        }
    }
}

//! How much a client may ask for before it is refused, and how that is counted.

use crate::error::ProtocolFault;

/// The limits of a server's connection. What exceeds the first two is refused request by request; a client that exceeds one of
/// the others gets GOAWAY with `ENHANCE_YOUR_CALM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Limits {
    /// The most open streams, our `SETTINGS_MAX_CONCURRENT_STREAMS`; one more is reset with `REFUSED_STREAM`, after which clients
    /// may send it again. A stream that was reset is open until its work has ended: otherwise a client that opens and resets
    /// streams has any amount of work done for it (rapid reset, CVE-2023-44487).
    pub streams: u32,
    /// The longest head of a request in bytes: packed, and unpacked with 32 bytes for each field (our
    /// `SETTINGS_MAX_HEADER_LIST_SIZE`). A longer one is decoded, because the next one refers to its fields, and not kept: the
    /// caller answers 431. So a small block of large fields (HPACK bomb, CVE-2016-6581) needs no memory.
    pub head: usize,
    /// The most CONTINUATION frames of a header block. Without limit a block never ends, and nothing that counts requests sees it
    /// (CONTINUATION flood, CVE-2024-27316 and others).
    pub continuations: u32,
    /// How many resets a client may cause at once. Those that it sends count (rapid reset, CVE-2023-44487), and those that we
    /// send for what it does wrong (MadeYouReset, CVE-2025-8671).
    pub resets_burst: u32,
    /// How many resets a client may cause per second, in the long run.
    pub resets_per_second: u32,
    /// The most streams in all that may be reset with `REFUSED_STREAM`. A client may open some too many before it has seen our
    /// settings, and none afterwards.
    pub refused: u32,
    /// The most new streams in the bytes of one read, between two [`Incomplete`](crate::ServerEvent::Incomplete). Short requests
    /// that are answered at once never reach the limit of open streams; the work of a read has a bound by this.
    pub new_streams_per_read: u32,
    /// How many frames that we owe the client (acknowledgements, resets, updates of windows) may wait in the output before
    /// nothing more is received. A client that sends PING or SETTINGS and takes no answer would have them fill the memory
    /// (CVE-2019-9512, CVE-2019-9515).
    pub waiting_acks: u32,
    /// How many bytes may ask for nothing: each byte of a request, its body or its response lets the client send eight more.
    /// PING, SETTINGS, PRIORITY and empty frames cost time only (CVE-2019-9513, CVE-2019-9518).
    pub useless_bytes: u32,
    /// How many bytes of a request's body are received and dropped, our `SETTINGS_INITIAL_WINDOW_SIZE`. A client that has sent as many
    /// is not allowed more; once the response has ended the stream is reset with `NO_ERROR` (RFC 9113 section 8.1). It is not reset
    /// earlier, because clients can lose the response then: curl 7.88 does.
    pub body: u32,
}

impl Default for Http2Limits {
    /// 128 streams and 128 refused ones as nginx, heads of 32 KiB as with HTTP/1, 8 CONTINUATION and 1000 resets + 33 per second
    /// as nghttp2 1.57 and later, 256 streams a read, 64 waiting frames, 8 MiB of useless bytes as nginx, bodies of 65,535 bytes,
    /// which is the window that RFC 9113 section 6.9.2 begins with.
    fn default() -> Http2Limits {
        Http2Limits {
            streams: 128,
            head: 32 << 10,
            continuations: 8,
            resets_burst: 1000,
            resets_per_second: 33,
            refused: 128,
            new_streams_per_read: 256,
            waiting_acks: 64,
            useless_bytes: 8 << 20,
            body: 65_535,
        }
    }
}

/// What a client has used of its limits.
#[derive(Debug)]
pub(crate) struct UsedLimits {
    /// How many resets the client may still cause at once.
    resets_left: u32,
    /// Up to when [`resets_left`](Self::resets_left) has been filled up, in nanoseconds.
    filled_at: u64,
    /// How many useless bytes the client may still send.
    bytes_left: i64,
    pub(crate) refused: u32,
    pub(crate) new_streams: u32,
    pub(crate) waiting_acks: u32,
}

impl UsedLimits {
    pub(crate) fn new(limits: &Http2Limits) -> UsedLimits {
        UsedLimits {
            resets_left: limits.resets_burst,
            filled_at: 0,
            bytes_left: limits.useless_bytes.into(),
            refused: 0,
            new_streams: 0,
            waiting_acks: 0,
        }
    }

    /// Counts a reset of either side at `now`, in nanoseconds.
    ///
    /// # Errors
    /// There were too many.
    pub(crate) fn reset(&mut self, limits: &Http2Limits, now: u64) -> Result<(), ProtocolFault> {
        let elapsed = now.saturating_sub(self.filled_at);
        let per_token = 1_000_000_000 / u64::from(limits.resets_per_second.max(1));
        let gained = elapsed / per_token;
        self.filled_at =
            if self.filled_at == 0 { now } else { self.filled_at + gained * per_token };
        let left = u64::from(self.resets_left) + gained;
        let left = left.min(limits.resets_burst.into()) as u32;
        self.resets_left = left.checked_sub(1).ok_or(ProtocolFault::TooManyResets)?;
        Ok(())
    }

    /// Counts bytes that were received.
    #[inline]
    pub(crate) fn received(&mut self, len: usize) {
        self.bytes_left -= len as i64;
    }

    /// Counts bytes that somebody wanted.
    #[inline]
    pub(crate) fn useful(&mut self, len: usize, limits: &Http2Limits) {
        self.bytes_left = (self.bytes_left + 8 * len as i64).min(limits.useless_bytes.into());
    }

    #[inline]
    pub(crate) fn has_bytes_left(&self) -> bool {
        self.bytes_left >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_given_back_with_time() {
        let limits =
            Http2Limits { resets_burst: 3, resets_per_second: 2, ..Http2Limits::default() };
        let mut used = UsedLimits::new(&limits);
        let start = 5_000_000_000;
        for _ in 0..3 {
            assert_eq!(used.reset(&limits, start), Ok(()));
        }
        assert_eq!(used.reset(&limits, start + 499_999_999), Err(ProtocolFault::TooManyResets));
        assert_eq!(used.reset(&limits, start + 500_000_000), Ok(()));
        assert_eq!(used.reset(&limits, start + 999_999_999), Err(ProtocolFault::TooManyResets));
        // A long rest gives no more than the burst.
        for _ in 0..3 {
            assert_eq!(used.reset(&limits, start + 100_000_000_000), Ok(()));
        }
        assert_eq!(used.reset(&limits, start + 100_000_000_000), Err(ProtocolFault::TooManyResets));
    }

    #[test]
    fn useful_bytes_count_eight_times() {
        let limits = Http2Limits { useless_bytes: 100, ..Http2Limits::default() };
        let mut used = UsedLimits::new(&limits);
        used.received(100);
        assert!(used.has_bytes_left());
        used.received(1);
        assert!(!used.has_bytes_left());
        used.useful(1, &limits);
        used.received(7);
        assert!(used.has_bytes_left());
        used.useful(1000, &limits);
        used.received(101);
        assert!(!used.has_bytes_left(), "no more than the limit is saved");
    }
}

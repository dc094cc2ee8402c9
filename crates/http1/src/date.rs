//! HTTP dates (RFC 9110 section 5.6.7) as seconds since the epoch. The caller reads the clock.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An IMF-fixdate, the one form that is sent: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub type DateText = [u8; 29];

/// The last second that four digits of a year can name: the end of 9999.
pub const MAX_SECONDS: u64 = 253_402_300_799;

/// Writes `seconds` since the epoch as an IMF-fixdate; a date after the year 9999 is written as
/// the last second of 9999.
pub fn format(seconds: u64) -> DateText {
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(MAX_SECONDS));
    let mut text = [b' '; 29];
    write!(text.as_mut_slice(), "{}", httpdate::HttpDate::from(time))
        .expect("an IMF-fixdate has 29 bytes");
    text
}

/// Reads any of the three forms a recipient must accept, as seconds since the epoch.
///
/// `None` for anything else and for dates before 1970. A year of two digits lies in 1970 to 2069.
pub fn parse(text: &[u8]) -> Option<u64> {
    let time: SystemTime = httpdate::parse_http_date(str::from_utf8(text).ok()?).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// The text of a date, formatted again only when the second changes: for the `Date` of every
/// response.
#[derive(Clone, Debug)]
pub struct DateCache {
    seconds: u64,
    text: DateText,
}

impl DateCache {
    /// A cache that holds `seconds` since the epoch.
    pub fn new(seconds: u64) -> Self {
        DateCache { seconds, text: format(seconds) }
    }

    /// The text for `seconds` since the epoch.
    pub fn at(&mut self, seconds: u64) -> &DateText {
        if seconds != self.seconds {
            *self = DateCache::new(seconds);
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_seconds_have_known_dates() {
        assert_eq!(&format(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&format(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(&format(u64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn all_three_forms_are_read() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "0",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 25:49:37 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT; length=3",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(b"\xff"), None);
    }

    #[test]
    fn the_cache_follows_the_seconds_in_both_directions() {
        let mut cache = DateCache::new(5);
        for seconds in [5, 5, 6, 784_111_777, 5] {
            assert_eq!(*cache.at(seconds), format(seconds));
        }
    }
}

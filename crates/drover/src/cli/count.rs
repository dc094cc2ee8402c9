//! Whole numbers in flags, within a range. A number may have a unit: `10k` requests.

use std::fmt::Display;
use std::ops::RangeInclusive;

use clap::builder::{StringValueParser, TypedValueParser};
use drover_usage::count::split_unit;

/// Reads a whole number within `range`.
pub(super) fn within<N>(range: RangeInclusive<N>) -> impl TypedValueParser<Value = N>
where
    N: TryFrom<u64> + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    StringValueParser::new().try_map(move |text| {
        let (number, times) = split_unit(&text);
        let count = number.parse::<u64>().ok();
        let count = count.and_then(|count| count.checked_mul(times.into()));
        let count = count.and_then(|count| N::try_from(count).ok());
        count.filter(|count| range.contains(count)).ok_or_else(|| {
            format!("write a number from {} to {}, as 500 or 10k", range.start(), range.end())
        })
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn read(text: &str) -> Option<u32> {
        let command = clap::Command::new("test");
        within(1..=4_000_000).parse_ref(&command, None, OsStr::new(text)).ok()
    }

    #[test]
    fn counts_are_read_with_their_units() {
        for (text, count) in
            [("1", 1), ("500", 500), ("10k", 10_000), ("2K", 2000), ("4M", 4_000_000)]
        {
            assert_eq!(read(text), Some(count), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "k", "0", "-1", "1.5k", "5M", "10kk", "10 k", "99999999999999999999k"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}

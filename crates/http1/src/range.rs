//! Byte ranges (RFC 9110 section 14): what a `Range` field asks of a representation.
//!
//! A server may always ignore the field and send everything (RFC 9110 section 14.2). This is done
//! for every field that is not valid. Several ranges are recognised; the caller decides about them.

use crate::framing::list;

/// Some bytes of a representation: `start..end`, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

impl ByteRange {
    /// How many bytes the range has; at least 1.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// What a `Range` field asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ranges {
    /// The field is invalid or in a unit other than bytes: answer 200 with everything.
    Ignore,
    /// One range, cut to the representation's length: answer 206.
    Satisfiable(ByteRange),
    /// One range with no byte of the representation in it: answer 416.
    Unsatisfiable,
    /// More than one range, all well-formed: answer 200 with everything, or 206 in several parts.
    Several,
}

/// Reads the value of a `Range` field against a representation of `length` bytes.
///
/// A number too large for 64 bits counts as the largest 64-bit number.
pub fn parse(value: &[u8], length: u64) -> Ranges {
    let Some(set) = strip_unit(value) else {
        return Ranges::Ignore;
    };
    let mut only = None;
    let mut count = 0;
    for item in list(set) {
        let Some(spec) = Spec::parse(item) else {
            return Ranges::Ignore;
        };
        only = Some(spec);
        count += 1;
    }
    match only {
        None => Ranges::Ignore,
        Some(spec) if count == 1 => spec.resolve(length),
        Some(_) => Ranges::Several,
    }
}

fn strip_unit(value: &[u8]) -> Option<&[u8]> {
    let (unit, set) = value.split_at_checked(b"bytes=".len())?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(set)
}

/// One range as it is written.
enum Spec {
    /// `first-last`, or `first-` with the largest number for `last`.
    Between { first: u64, last: u64 },
    /// `-count`: so many bytes from the end.
    Suffix(u64),
}

impl Spec {
    fn parse(text: &[u8]) -> Option<Spec> {
        let dash = text.iter().position(|byte| *byte == b'-')?;
        match (&text[..dash], &text[dash + 1..]) {
            (b"", count) => Some(Spec::Suffix(saturating_decimal(count)?)),
            (first, b"") => {
                Some(Spec::Between { first: saturating_decimal(first)?, last: u64::MAX })
            }
            (first, last) => {
                let first = saturating_decimal(first)?;
                let last = saturating_decimal(last)?;
                (first <= last).then_some(Spec::Between { first, last })
            }
        }
    }

    fn resolve(self, length: u64) -> Ranges {
        match self {
            Spec::Suffix(0) => Ranges::Unsatisfiable,
            // The last bytes of an empty file are an empty range. `Content-Range` cannot express it;
            // a 200 with 0 bytes can.
            Spec::Suffix(_) if length == 0 => Ranges::Ignore,
            Spec::Suffix(count) => {
                Ranges::Satisfiable(ByteRange { start: length.saturating_sub(count), end: length })
            }
            Spec::Between { first, .. } if first >= length => Ranges::Unsatisfiable,
            Spec::Between { first, last } => Ranges::Satisfiable(ByteRange {
                start: first,
                end: last.saturating_add(1).min(length),
            }),
        }
    }
}

fn saturating_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0u64, |number, byte| {
        number.saturating_mul(10).saturating_add(u64::from(byte - b'0'))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: u64 = 1000;

    #[track_caller]
    fn gives(value: &str, length: u64, expected: Ranges) {
        assert_eq!(parse(value.as_bytes(), length), expected, "{value:?}");
    }

    fn part(start: u64, end: u64) -> Ranges {
        Ranges::Satisfiable(ByteRange { start, end })
    }

    #[test]
    fn one_range_is_cut_to_the_length() {
        gives("bytes=0-0", LENGTH, part(0, 1));
        gives("bytes=0-499", LENGTH, part(0, 500));
        gives("bytes=500-", LENGTH, part(500, 1000));
        gives("bytes=999-5000", LENGTH, part(999, 1000));
        gives("bytes=-1", LENGTH, part(999, 1000));
        gives("bytes=-5000", LENGTH, part(0, 1000));
        gives("BYTES=, 1-2 ,", LENGTH, part(1, 3));
    }

    #[test]
    fn a_range_outside_is_unsatisfiable() {
        gives("bytes=1000-", LENGTH, Ranges::Unsatisfiable);
        gives("bytes=1000-1001", LENGTH, Ranges::Unsatisfiable);
        gives("bytes=-0", LENGTH, Ranges::Unsatisfiable);
        gives("bytes=0-", 0, Ranges::Unsatisfiable);
        gives("bytes=-0", 0, Ranges::Unsatisfiable);
    }

    #[test]
    fn the_end_of_an_empty_file_is_the_whole_file() {
        gives("bytes=-5", 0, Ranges::Ignore);
    }

    #[test]
    fn numbers_beyond_64_bits_do_not_wrap() {
        let huge = "99999999999999999999999";
        gives(&format!("bytes={huge}-"), LENGTH, Ranges::Unsatisfiable);
        gives(&format!("bytes=1-{huge}"), LENGTH, part(1, 1000));
        gives(&format!("bytes=-{huge}"), LENGTH, part(0, 1000));
        gives("bytes=0-18446744073709551615", u64::MAX, part(0, u64::MAX));
    }

    #[test]
    fn what_is_not_well_formed_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=2-1",
            "bytes=a-b",
            "bytes=1",
            "bytes=1-2-3",
            "bytes= 1 - 2",
            "bytes =1-2",
            "items=0-1",
            "bytes=+1-2",
            "bytes=0-1,x",
        ] {
            gives(value, LENGTH, Ranges::Ignore);
        }
    }

    #[test]
    fn more_than_one_range_is_left_to_the_caller() {
        gives("bytes=0-1,2-3", LENGTH, Ranges::Several);
        gives("bytes=0-1, -1", LENGTH, Ranges::Several);
    }
}

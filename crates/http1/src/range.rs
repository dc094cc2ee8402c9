//! Byte ranges (RFC 9110 section 14): what a `Range` field asks of a representation.
//!
//! A server may always ignore the field and send everything (RFC 9110 section 14.2). This is done
//! for every field that is not valid, and for one that asks for too much: several ranges are served as long
//! as they are not many and together no longer than the representation (RFC 9110 section 14.2 warns of
//! requests for many small or overlapping ranges, which cost a server more than they cost a client).

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

/// The most ranges that a request may ask for; one with more gets everything.
pub const MOST_RANGES: usize = 64;

/// Two ranges with no more bytes than this between them are sent as one: the head of a part costs more.
const GAP: u64 = 80;

/// What a `Range` field asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ranges {
    /// The field is invalid, in a unit other than bytes, or asks for more than is served in parts: answer
    /// 200 with everything.
    Ignore,
    /// One range, cut to the representation's length: answer 206.
    Satisfiable(ByteRange),
    /// No range has a byte of the representation in it: answer 416.
    Unsatisfiable,
    /// Two ranges or more, in the order in which they were asked for, none near another: answer 206 in as
    /// many parts (`multipart/byteranges`).
    Several(Vec<ByteRange>),
}

/// Reads the value of a `Range` field against a representation of `length` bytes.
///
/// A number too large for 64 bits counts as the largest 64-bit number. Of several ranges, those without a byte
/// of the representation are left out, and those that overlap or nearly touch become one, in the place of the
/// first.
pub fn parse(value: &[u8], length: u64) -> Ranges {
    let Some(set) = strip_unit(value) else {
        return Ranges::Ignore;
    };
    // The only range, of the usual request, needs no list.
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
        Some(_) if count > MOST_RANGES => Ranges::Ignore,
        Some(_) => several(set, length),
    }
}

/// What a list of well-formed ranges asks for.
fn several(set: &[u8], length: u64) -> Ranges {
    let mut ranges: Vec<ByteRange> = Vec::new();
    for spec in list(set).filter_map(Spec::parse) {
        match spec.resolve(length) {
            Ranges::Satisfiable(range) => add(&mut ranges, range),
            Ranges::Unsatisfiable => {}
            Ranges::Ignore | Ranges::Several(_) => return Ranges::Ignore,
        }
    }
    let total: u64 = ranges.iter().map(ByteRange::len).sum();
    match &ranges[..] {
        [] => Ranges::Unsatisfiable,
        [only] => Ranges::Satisfiable(*only),
        // Ranges that do not overlap are no longer than everything, but their heads come on top.
        [..] if total.saturating_add(GAP * ranges.len() as u64) > length => Ranges::Ignore,
        [..] => Ranges::Several(ranges),
    }
}

/// Adds a range to ranges of which none is near another, and leaves them so.
fn add(ranges: &mut Vec<ByteRange>, mut new: ByteRange) {
    let mut place = ranges.len();
    let is_near = |a: &ByteRange, b: &ByteRange| {
        a.start <= b.end.saturating_add(GAP) && b.start <= a.end.saturating_add(GAP)
    };
    while let Some(near) = ranges.iter().position(|range| is_near(range, &new)) {
        let range = ranges.remove(near);
        new = ByteRange { start: new.start.min(range.start), end: new.end.max(range.end) };
        place = place.min(near);
    }
    ranges.insert(place.min(ranges.len()), new);
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

    fn parts<const N: usize>(parts: [(u64, u64); N]) -> Ranges {
        Ranges::Several(parts.map(|(start, end)| ByteRange { start, end }).into())
    }

    #[test]
    fn several_ranges_keep_their_order() {
        gives("bytes=0-1,500-600", LENGTH, parts([(0, 2), (500, 601)]));
        gives("bytes=500-600, -1 ,0-1", LENGTH, parts([(500, 601), (999, 1000), (0, 2)]));
        gives("bytes=1000-,0-1,5000-,500-", LENGTH, parts([(0, 2), (500, 1000)]));
        gives("bytes=1000-,0-1", LENGTH, part(0, 2));
        gives("bytes=1000-,5000-", LENGTH, Ranges::Unsatisfiable);
    }

    #[test]
    fn ranges_that_overlap_or_nearly_touch_are_one() {
        gives("bytes=0-1,2-3", LENGTH, part(0, 4));
        gives("bytes=0-9,90-99", LENGTH, part(0, 100));
        gives("bytes=0-9,91-99", LENGTH, parts([(0, 10), (91, 100)]));
        gives(
            "bytes=300-400,0-9,350-500,700-710",
            LENGTH,
            parts([(300, 501), (0, 10), (700, 711)]),
        );
        // The last one joins two that were apart.
        gives("bytes=0-9,200-209,500-509,5-205", LENGTH, parts([(0, 210), (500, 510)]));
    }

    #[test]
    fn more_than_the_representation_is_the_representation() {
        gives("bytes=0-450,540-", LENGTH, Ranges::Ignore);
        let many = |count: u64| -> String {
            let ranges = (0..count).map(|at| format!("{}-{}", 1000 * at, 1000 * at + 1));
            format!("bytes={}", ranges.collect::<Vec<_>>().join(","))
        };
        let Ranges::Several(found) = parse(many(64).as_bytes(), 1 << 20) else { panic!("several") };
        assert_eq!(found.len(), MOST_RANGES);
        gives(&many(65), 1 << 20, Ranges::Ignore);
    }
}

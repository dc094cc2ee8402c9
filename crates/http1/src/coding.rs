//! Content codings (RFC 9110 section 8.4.1): in which stored form of a file a client gets it.

use crate::fields::ListField;
use crate::framing::list;

/// A content coding in which a file may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContentCoding {
    /// `br`: Brotli (RFC 7932).
    Brotli,
    /// `zstd`: Zstandard (RFC 8878).
    Zstd,
    /// `gzip` (RFC 1952).
    Gzip,
}

impl ContentCoding {
    /// Every coding.
    pub const ALL: [ContentCoding; 3] =
        [ContentCoding::Brotli, ContentCoding::Zstd, ContentCoding::Gzip];

    /// The suffix of every coding.
    pub const SUFFIXES: [&str; 3] = [
        ContentCoding::Brotli.suffix(),
        ContentCoding::Zstd.suffix(),
        ContentCoding::Gzip.suffix(),
    ];

    /// The value of `Content-Encoding`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ContentCoding::Brotli => "br",
            ContentCoding::Zstd => "zstd",
            ContentCoding::Gzip => "gzip",
        }
    }

    /// What the name of a file in this coding has at its end, beyond the name of the file itself.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            ContentCoding::Brotli => ".br",
            ContentCoding::Zstd => ".zst",
            ContentCoding::Gzip => ".gz",
        }
    }
}

/// Which of the `stored` forms of a file the client gets; `None`: the file as it is. Each form comes with its length
/// in bytes, the file as it is has `len`.
///
/// A form is sent if `accept`, the request's `Accept-Encoding`, names its coding (or `*`) with the highest weight; of
/// several with that weight, the shortest. Without the field, or if nothing that is stored is accepted, the file is
/// sent as it is, even to a client that refuses `identity`: RFC 9110 section 12.5.3 leaves that to the server, and a
/// 406 helps nobody.
pub fn choose(
    accept: Option<ListField<'_>>,
    len: u64,
    stored: impl Iterator<Item = (ContentCoding, u64)>,
) -> Option<ContentCoding> {
    let weights = Weights::of(accept?);
    let as_it_is = (weights.identity.unwrap_or(0), len);
    let is_better = |one: (u16, u64), other: (u16, u64)| {
        one.0 > other.0 || (one.0 == other.0 && one.1 < other.1)
    };
    let mut best = (as_it_is, None);
    for (coding, len) in stored {
        let form = (weights.of_coding(coding), len);
        if form.0 > 0 && is_better(form, best.0) {
            best = (form, Some(coding));
        }
    }
    best.1
}

/// The weights in an `Accept-Encoding`, in thousandths; `None`: not named.
#[derive(Debug, Default)]
struct Weights {
    codings: [Option<u16>; ContentCoding::ALL.len()],
    identity: Option<u16>,
    any: Option<u16>,
}

impl Weights {
    /// An element that is not valid counts as if it were not there. Of elements with one name, the first counts.
    fn of(field: ListField<'_>) -> Weights {
        let mut weights = Weights::default();
        for item in field.lines().flat_map(list) {
            let Some((name, weight)) = element(item) else { continue };
            let named = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            let is_gzip = named("x-gzip"); // RFC 9110 section 8.4.1.3
            let coding = ContentCoding::ALL
                .iter()
                .position(|it| named(it.name()) || (is_gzip && *it == ContentCoding::Gzip));
            let place = match coding {
                Some(at) => &mut weights.codings[at],
                None if named("identity") => &mut weights.identity,
                None if name == b"*" => &mut weights.any,
                None => continue,
            };
            place.get_or_insert(weight);
        }
        weights
    }

    fn of_coding(&self, coding: ContentCoding) -> u16 {
        let at = ContentCoding::ALL.iter().position(|it| *it == coding);
        at.and_then(|at| self.codings[at]).or(self.any).unwrap_or(0)
    }
}

/// A coding's name and weight: `br`, `gzip;q=0.5`.
fn element(item: &[u8]) -> Option<(&[u8], u16)> {
    let Some(end) = item.iter().position(|byte| *byte == b';') else {
        return Some((item, 1000));
    };
    let (name, parameter) = (item[..end].trim_ascii(), item[end + 1..].trim_ascii());
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    Some((name, weight(value)?))
}

/// A weight in thousandths (RFC 9110 section 12.4.2): `0` to `1`, with three digits behind the point at most.
fn weight(value: &[u8]) -> Option<u16> {
    let (whole, digits) = match value {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', digits @ ..] if digits.len() <= 3 => (whole, digits),
        _ => return None,
    };
    let mut thousandths = 0;
    for place in 0..3 {
        let digit = *digits.get(place).unwrap_or(&b'0');
        thousandths = thousandths * 10 + u16::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    match (whole, thousandths) {
        (b'0', thousandths) => Some(thousandths),
        (_, 0) => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::RequestFields;
    use ContentCoding::{Brotli, Gzip, Zstd};

    /// What is chosen of a file of 1000 bytes that is stored in all codings: 300, 310 and 400 bytes.
    fn chosen(accept: &str) -> Option<ContentCoding> {
        let field = ListField::Line(accept.as_bytes());
        choose(Some(field), 1000, [(Brotli, 300), (Zstd, 310), (Gzip, 400)].into_iter())
    }

    #[test]
    fn the_weight_decides_and_then_the_length() {
        for (accept, expected) in [
            ("gzip, deflate, br, zstd", Some(Brotli)),
            ("gzip, zstd", Some(Zstd)),
            ("gzip", Some(Gzip)),
            ("GZIP", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("*", Some(Brotli)),
            ("br;q=0, *", Some(Zstd)),
            ("br;q=0.5, gzip;q=0.9", Some(Gzip)),
            ("br ; q=0.501, gzip;Q=0.5", Some(Brotli)),
            ("gzip;q=0.001", Some(Gzip)),
            ("gzip;q=1.000, br;q=0.999", Some(Gzip)),
            ("identity, gzip", Some(Gzip)),
            ("identity, gzip;q=0.9", None),
            ("identity;q=0.5, gzip;q=0.4, br;q=0.3", None),
            ("identity;q=0, deflate", None),
            ("gzip;q=0", None),
            ("", None),
            ("deflate, compress", None),
            ("brx", None),
        ] {
            assert_eq!(chosen(accept), expected, "{accept:?}");
        }
        assert_eq!(choose(None, 1000, [(Gzip, 1)].into_iter()), None);
    }

    #[test]
    fn what_is_no_weight_makes_its_element_void() {
        for weight in ["2", "1.001", "0.1234", "", "-1", ".5", "0,5", "a", "1.a", "0.5 x"] {
            assert_eq!(chosen(&format!("br;q={weight}")), None, "{weight:?}");
        }
        assert_eq!(chosen("br;level=3, gzip"), Some(Gzip));
        assert_eq!(chosen("br;q=0., gzip;q=1."), Some(Gzip));
    }

    #[test]
    fn a_form_that_is_longer_is_sent_only_to_whom_prefers_it() {
        let longer = |accept: &str| {
            choose(Some(ListField::Line(accept.as_bytes())), 10, [(Gzip, 30)].into_iter())
        };
        assert_eq!(longer("identity, gzip"), None);
        assert_eq!(longer("gzip, identity;q=0.5"), Some(Gzip));
    }

    #[test]
    fn all_lines_of_the_field_count() {
        let head = b"GET / HTTP/1.1\r\nAccept-Encoding: br;q=0\r\naccept-encoding: zstd\r\n\r\n";
        let field = ListField::Lines { name: "Accept-Encoding", of: RequestFields::of_head(head) };
        assert_eq!(choose(Some(field), 9, [(Brotli, 1), (Zstd, 2)].into_iter()), Some(Zstd));
    }
}

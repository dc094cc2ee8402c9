//! The static table (RFC 7541 appendix A).

/// How many entries the static table has; the dynamic table's begin behind them.
pub(super) const STATIC_COUNT: usize = 61;

/// Names and values by index, the first of which is 1.
static STATIC: [(&str, &str); STATIC_COUNT] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The entry with this index, from 1 to [`STATIC_COUNT`].
#[inline]
pub(super) fn entry(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = STATIC.get(index.wrapping_sub(1))?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// Where a field is in the static table.
pub(super) enum StaticMatch {
    /// Name and value have this index.
    Field(usize),
    /// The name has this index.
    Name(usize),
    /// Not even the name is there.
    Nothing,
}

/// Finds a field; letters of the name may be upper-case.
pub(super) fn find(name: &str, value: &[u8]) -> StaticMatch {
    let mut same = STATIC.iter().zip(1..).filter(|((it, _), _)| it.eq_ignore_ascii_case(name));
    let Some((first, index)) = same.next() else { return StaticMatch::Nothing };
    // An entry without value stands for its name: nobody sends empty values.
    let is_field = |entry: &(&str, &str)| !entry.1.is_empty() && entry.1.as_bytes() == value;
    if is_field(first) {
        return StaticMatch::Field(index);
    }
    let field = same.find(|(entry, _)| is_field(entry));
    field.map_or(StaticMatch::Name(index), |(_, index)| StaticMatch::Field(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_numbers_of_the_rfc() {
        for (index, name, value) in [
            (1, ":authority", ""),
            (2, ":method", "GET"),
            (8, ":status", "200"),
            (16, "accept-encoding", "gzip, deflate"),
            (28, "content-length", ""),
            (38, "host", ""),
            (54, "server", ""),
            (61, "www-authenticate", ""),
        ] {
            assert_eq!(entry(index), Some((name.as_bytes(), value.as_bytes())));
        }
        assert_eq!(entry(0), None);
        assert_eq!(entry(62), None);
    }

    #[test]
    fn fields_are_found_by_name_and_value() {
        assert!(matches!(find(":status", b"404"), StaticMatch::Field(13)));
        assert!(matches!(find(":status", b"302"), StaticMatch::Name(8)));
        assert!(matches!(find("Server", b"x"), StaticMatch::Name(54)));
        assert!(matches!(find("age", b""), StaticMatch::Name(21)));
        assert!(matches!(find("x", b""), StaticMatch::Nothing));
    }
}

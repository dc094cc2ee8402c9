//! All fields of a head that has been parsed, one after the other.
//!
//! The parsers themselves look only at the fields that they need. [`Fields`] reads the other ones from the bytes of
//! the head when somebody asks for them, so a head whose fields nobody asks for costs nothing more.

use std::fmt;
use std::iter::FusedIterator;

/// The fields of a head in the order in which they were sent: an iterator over names and values.
///
/// A name is as it was sent, and names are case-insensitive (RFC 9110 section 5.1): compare them with
/// [`str::eq_ignore_ascii_case`]. A value has no white space around it. A field that was sent in several lines comes
/// several times. A value that a response folds over several lines has the line ends in it; each stands for a space
/// (RFC 9112 section 5.2).
#[derive(Clone)]
pub struct Fields<'a> {
    /// The lines that are left, the closing empty line included.
    lines: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of `head`, a whole head that a parser of this crate has accepted.
    pub(crate) fn of(head: &'a [u8]) -> Fields<'a> {
        let (_start_line, lines) = split_line(without_empty_lines(head));
        Fields { lines }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, &'a [u8]);

    fn next(&mut self) -> Option<(&'a str, &'a [u8])> {
        let mut end = line_len(self.lines);
        while let Some(b' ' | b'\t') = self.lines.get(end) {
            end += line_len(&self.lines[end..]);
        }
        let (line, rest) = self.lines.split_at(end);
        self.lines = rest;
        // The closing empty line has no colon.
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = str::from_utf8(&line[..colon]).ok()?;
        Some((name, line[colon + 1..].trim_ascii()))
    }
}

impl FusedIterator for Fields<'_> {}

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.clone().map(|(name, value)| (name, value.escape_ascii().to_string()));
        formatter.debug_map().entries(fields).finish()
    }
}

/// The start line of `head`, without its line end.
pub(crate) fn start_line(head: &[u8]) -> &[u8] {
    split_line(without_empty_lines(head)).0
}

/// `head` without the empty lines that may precede its start line (RFC 9112 section 2.2).
pub(crate) fn without_empty_lines(head: &[u8]) -> &[u8] {
    let start = head.iter().position(|byte| !b"\r\n".contains(byte));
    &head[start.unwrap_or(head.len())..]
}

/// The first line of `bytes` without its line end, and what follows it.
fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (line, rest) = bytes.split_at(line_len(bytes));
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    (line.strip_suffix(b"\r").unwrap_or(line), rest)
}

/// The length of the first line with its line end. A response's line may end with LF alone.
fn line_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1)
}

/// All fields of a request, wherever they stand: with HTTP/1, in its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFields<'a>(&'a [u8]);

impl<'a> RequestFields<'a> {
    /// Those of a whole head that the parser of requests has accepted.
    pub(crate) fn of_head(head: &'a [u8]) -> RequestFields<'a> {
        RequestFields(head)
    }

    /// The names and values in the order in which they were sent. Each call reads the head again.
    pub fn iter(self) -> Fields<'a> {
        Fields::of(self.0)
    }
}

/// A list field of a request. Several lines with the same name are one list (RFC 9110 section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListField<'a> {
    /// The value of the field's only line.
    Line(&'a [u8]),
    /// The field has several lines.
    Lines {
        /// The field's name.
        name: &'static str,
        /// The request in which the lines stand.
        of: RequestFields<'a>,
    },
}

impl<'a> ListField<'a> {
    /// Takes one more line of the field `name`, found in `of`.
    pub(crate) fn take(
        field: &mut Option<ListField<'a>>,
        name: &'static str,
        value: &'a [u8],
        of: RequestFields<'a>,
    ) {
        *field = Some(match field {
            None => ListField::Line(value),
            Some(_) => ListField::Lines { name, of },
        });
    }

    /// The values of the field's lines, in their order.
    pub fn lines(self) -> impl Iterator<Item = &'a [u8]> {
        let (only, several) = match self {
            ListField::Line(value) => (Some(value), None),
            ListField::Lines { name, of } => (None, Some((name, of))),
        };
        let several = several.into_iter().flat_map(|(wanted, of)| {
            of.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, it)| it)
        });
        only.into_iter().chain(several)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_their_order_without_the_white_space_around_values() {
        let head = b"\r\nGET /a:b HTTP/1.1\r\nHost:a:80\r\nX: \t y z \r\nEmpty:\r\nx: \xff\r\n\r\n";
        let fields: Vec<_> = Fields::of(head).collect();
        let wanted: [(&str, &[u8]); 4] =
            [("Host", b"a:80"), ("X", b"y z"), ("Empty", b""), ("x", b"\xff")];
        assert_eq!(fields, wanted);
        assert_eq!(start_line(head), b"GET /a:b HTTP/1.1");
    }

    #[test]
    fn a_head_without_fields_has_none_and_the_end_stays_the_end() {
        let mut fields = Fields::of(b"GET / HTTP/1.0\r\n\r\n");
        assert_eq!((fields.next(), fields.next()), (None, None));
        let mut fields = Fields::of(b"HTTP/1.1 200 OK\nX: y\n\n");
        assert_eq!(fields.next(), Some(("X", b"y".as_slice())));
        assert_eq!((fields.next(), fields.next()), (None, None));
    }

    #[test]
    fn debug_shows_names_and_values() {
        let fields = Fields::of(b"GET / HTTP/1.0\r\nHost: a\r\nX: \xff\r\n\r\n");
        assert_eq!(format!("{fields:?}"), r#"{"Host": "a", "X": "\\xff"}"#);
    }
}

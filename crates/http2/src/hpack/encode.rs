//! From fields to header blocks, without a dynamic table: entries of the static table, and literals that nobody keeps.
//!
//! A response is encoded once and sent to many clients, each of which would have another table. Nothing here depends on what was
//! sent before.

use std::ops::Range;

use super::TABLE_SIZE;
use super::static_table::{self, StaticMatch};
use super::{huffman, integer};

/// The pattern of an indexed field (RFC 7541 section 6.1).
const INDEXED: u8 = 0x80;

/// The pattern of a literal that is not added to the table (RFC 7541 section 6.2.2).
const LITERAL: u8 = 0x00;

/// The pattern of a string in the Huffman code (RFC 7541 section 5.2).
const CODED: u8 = 0x80;

/// An update of the table's size to 0 (RFC 7541 section 6.3). Some decoders ask for one once their limit is below the 4,096 bytes
/// that both sides begin with.
const NO_TABLE: u8 = 0x20;

/// The update of the table's size that the peer's decoder expects of an encoder without a table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TableUpdate {
    /// One has been owed, and is not any more unless it `is_owed`: no table is smaller than none.
    was_owed: bool,
    is_owed: bool,
}

impl TableUpdate {
    /// The peer allows a table of this size, if it says so: a smaller one than at first has to be acknowledged in front of the next
    /// block (RFC 7541 section 4.2).
    pub(crate) fn allowed(&mut self, size: Option<u32>) {
        if !self.was_owed && size.is_some_and(|size| (size as usize) < TABLE_SIZE) {
            (self.was_owed, self.is_owed) = (true, true);
        }
    }

    /// Whether the next block begins with one.
    pub(crate) fn is_owed(self) -> bool {
        self.is_owed
    }

    /// What stands in front of the next block.
    pub(crate) fn take(&mut self) -> &'static [u8] {
        if std::mem::take(&mut self.is_owed) { &[NO_TABLE] } else { &[] }
    }
}

/// The index of `:status` in the static table.
const STATUS: usize = 8;

/// Appends the pseudo-field `:status`, which comes before all others. `status` is from 100 to 999.
pub fn push_status(out: &mut Vec<u8>, status: u16) {
    let index = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            let digits = [status / 100, status / 10 % 10, status % 10].map(|it| b'0' + it as u8);
            integer::push(out, STATUS, 4, LITERAL);
            out.push(digits.len() as u8);
            out.extend_from_slice(&digits);
            return;
        }
    };
    integer::push(out, index, 7, INDEXED);
}

/// Appends a field. The name may have upper-case letters, which are written lower-case (RFC 9113 section 8.2); the value is
/// Huffman-coded where that is shorter.
pub fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    match static_table::find(name, value) {
        StaticMatch::Field(index) => return integer::push(out, index, 7, INDEXED),
        StaticMatch::Name(index) => integer::push(out, index, 4, LITERAL),
        StaticMatch::Nothing => push_new_name(out, name),
    }
    let coded = huffman::coded_len(value.iter().copied());
    if coded < value.len() {
        integer::push(out, coded, 7, CODED);
        huffman::encode(value, |byte| byte, out);
    } else {
        push_plain(out, value);
    }
}

/// Appends a field whose value is not Huffman-coded, and tells where in `out` the value is: another one of the same length may
/// be written there, as of `date`.
pub fn push_plain_field(out: &mut Vec<u8>, name: &str, value: &[u8]) -> Range<usize> {
    match static_table::find(name, value) {
        StaticMatch::Field(_) | StaticMatch::Nothing => push_new_name(out, name),
        StaticMatch::Name(index) => integer::push(out, index, 4, LITERAL),
    }
    push_plain(out, value);
    out.len() - value.len()..out.len()
}

fn push_plain(out: &mut Vec<u8>, value: &[u8]) {
    integer::push(out, value.len(), 7, 0);
    out.extend_from_slice(value);
}

/// Appends the beginning of a literal whose name is written out.
fn push_new_name(out: &mut Vec<u8>, name: &str) {
    out.push(LITERAL);
    let lower = |byte: u8| byte.to_ascii_lowercase();
    let coded = huffman::coded_len(name.bytes().map(lower));
    if coded < name.len() {
        integer::push(out, coded, 7, CODED);
        huffman::encode(name.as_bytes(), lower, out);
    } else {
        integer::push(out, name.len(), 7, 0);
        out.extend(name.bytes().map(lower));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(push: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        push(&mut out);
        out
    }

    #[test]
    fn statuses_of_the_table_take_one_byte() {
        assert_eq!(block(|out| push_status(out, 200)), [0x88]);
        assert_eq!(block(|out| push_status(out, 500)), [0x8e]);
        assert_eq!(block(|out| push_status(out, 431)), [0x08, 3, b'4', b'3', b'1']);
    }

    #[test]
    fn a_field_of_the_table_is_its_index() {
        assert_eq!(block(|out| push_field(out, "Accept-Encoding", b"gzip, deflate")), [0x90]);
    }

    #[test]
    fn a_name_of_the_table_is_its_index() {
        assert_eq!(block(|out| push_field(out, "Server", b"##")), [0x0f, 54 - 15, 2, b'#', b'#']);
        assert_eq!(block(|out| push_field(out, "age", b"")), [0x0f, 21 - 15, 0]);
    }

    #[test]
    fn names_are_written_in_lower_case() {
        let upper = block(|out| push_field(out, "X-Served-By", b"a"));
        assert_eq!(upper, block(|out| push_field(out, "x-served-by", b"a")));
        assert_eq!(block(|out| push_field(out, "Q", b"1")), [0, 1, b'q', 1, b'1']);
    }

    #[test]
    fn values_are_coded_where_that_is_shorter() {
        let coded = block(|out| push_field(out, "location", b"https://www.example.com"));
        assert!(coded.len() < 2 + 1 + 23, "{}", coded.len());
        let plain = block(|out| push_field(out, "location", b"{}{}{}"));
        assert!(plain.ends_with(b"\x06{}{}{}"));
    }

    #[test]
    fn a_plain_value_can_be_overwritten() {
        let mut out = vec![1, 2, 3];
        let at = push_plain_field(&mut out, "Date", b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&out[at.clone()], b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(at.end, out.len());
        assert_eq!(out[3..6], [0x0f, 33 - 15, 29]);
        // Even a value that has an entry.
        let at = push_plain_field(&mut out, ":path", b"/");
        assert_eq!(&out[at], b"/");
    }
}

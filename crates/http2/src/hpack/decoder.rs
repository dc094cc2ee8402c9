//! From header blocks to fields (RFC 7541 sections 3.2 and 6).

use super::HpackFault;
use super::dynamic_table::{DynamicTable, EntryName};
use super::static_table::{self, STATIC_COUNT};
use super::{huffman, integer};

/// Takes the fields of a header block, one after the other.
///
/// A decoder hands over names and values where they are, and copies none, so that a small block whose fields are large ones of
/// the dynamic table (a "header bomb", CVE-2016-6581) costs what its own bytes cost. A sink counts the size of the list and keeps
/// no more than its limit.
pub trait FieldSink {
    /// Takes a field as it was sent: nothing is checked.
    fn field(&mut self, name: &[u8], value: &[u8]);
}

/// Decodes the header blocks of one direction of a connection.
#[derive(Debug)]
pub struct HpackDecoder {
    table: DynamicTable,
    /// What Huffman codes have become, of the field that is read.
    scratch: Vec<u8>,
    /// The most that the encoder may choose for the table: our `SETTINGS_HEADER_TABLE_SIZE`.
    most: u32,
    /// The smallest value that `most` had since the last block, if it is below the table's limit: the next block has to begin
    /// with an update (RFC 7541 section 4.2).
    update_due: Option<u32>,
    /// Whether updates of the table's size may still come in this block.
    may_update: bool,
    /// How often the table has changed.
    changes: u64,
}

/// A string of a block, where it is to be found.
#[derive(Clone, Copy)]
enum Text<'b> {
    Plain(&'b [u8]),
    /// In the scratch memory.
    Decoded(usize, usize),
}

impl<'b> Text<'b> {
    fn of<'s>(self, scratch: &'s [u8]) -> &'s [u8]
    where
        'b: 's,
    {
        match self {
            Text::Plain(bytes) => bytes,
            Text::Decoded(begin, end) => &scratch[begin..end],
        }
    }
}

impl HpackDecoder {
    /// A decoder whose table may have up to `most` bytes, as RFC 7541 section 4.1 counts them.
    #[must_use]
    pub fn new(most: usize) -> HpackDecoder {
        HpackDecoder {
            table: DynamicTable::new(most),
            scratch: Vec::new(),
            most: most as u32,
            update_due: None,
            may_update: true,
            changes: 0,
        }
    }

    /// Says that our `SETTINGS_HEADER_TABLE_SIZE` is another one from the next block on. If the encoder's table is larger, the
    /// next block has to begin with an update of its size.
    pub fn set_most(&mut self, most: usize) {
        self.most = most as u32;
        let smallest = self.update_due.map_or(self.most, |it| it.min(self.most));
        self.update_due = (smallest < self.table.limit()).then_some(smallest);
    }

    /// How often the dynamic table has changed: if a block has not changed it, the same bytes mean the same fields, as long as no
    /// other block does.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Gives memory back that only decoding needs.
    pub fn release(&mut self) {
        self.scratch = Vec::new();
    }

    /// Decodes whole fields from the beginning of `block`, and tells how many bytes they have. Unless `is_last`, the bytes of a
    /// field that is not complete are left: they belong in front of the block's next part.
    ///
    /// # Errors
    /// What is wrong with the block. The table is in no defined state after that, so that the connection has to end with
    /// `COMPRESSION_ERROR` (RFC 9113 section 4.3).
    pub fn decode(
        &mut self,
        block: &[u8],
        is_last: bool,
        sink: &mut impl FieldSink,
    ) -> Result<usize, HpackFault> {
        let mut at = 0;
        while at < block.len() {
            let mut next = at;
            match self.step(block, &mut next, sink)? {
                Some(()) => at = next,
                None if is_last => return Err(HpackFault::Truncated),
                None => return Ok(at),
            }
        }
        if is_last {
            if self.update_due.is_some() {
                return Err(HpackFault::TableSize);
            }
            self.may_update = true;
        }
        Ok(at)
    }

    /// Decodes one field or update; `None`: the block ends within it.
    #[inline]
    fn step(
        &mut self,
        block: &[u8],
        at: &mut usize,
        sink: &mut impl FieldSink,
    ) -> Result<Option<()>, HpackFault> {
        let first = block[*at];
        if first & 0xe0 == 0x20 {
            let Some(size) = integer::read(block, at, 5)? else { return Ok(None) };
            return self.update(size).map(Some);
        }
        if self.update_due.is_some() {
            return Err(HpackFault::TableSize);
        }
        let field = if first & 0x80 != 0 {
            let Some(index) = integer::read(block, at, 7)? else { return Ok(None) };
            let (name, value) = self.entry(index as usize).ok_or(HpackFault::Index)?;
            sink.field(name, value);
            Some(())
        } else {
            let is_kept = first & 0x40 != 0;
            self.literal(block, at, if is_kept { 6 } else { 4 }, is_kept, sink)?
        };
        if field.is_some() {
            self.may_update = false;
        }
        Ok(field)
    }

    /// Decodes a field that is written out, and adds it to the table if `is_kept`.
    fn literal(
        &mut self,
        block: &[u8],
        at: &mut usize,
        bits: u32,
        is_kept: bool,
        sink: &mut impl FieldSink,
    ) -> Result<Option<()>, HpackFault> {
        self.scratch.clear();
        let Some(index) = integer::read(block, at, bits)? else { return Ok(None) };
        let index = index as usize;
        if index > 0 && self.entry(index).is_none() {
            return Err(HpackFault::Index);
        }
        let own_name = match index {
            0 => match string(block, at, &mut self.scratch)? {
                Some(name) => Some(name),
                None => return Ok(None),
            },
            _ => None,
        };
        let Some(value) = string(block, at, &mut self.scratch)? else { return Ok(None) };
        let value = value.of(&self.scratch);
        let name = match own_name {
            Some(name) => name.of(&self.scratch),
            None => self.entry(index).ok_or(HpackFault::Index)?.0,
        };
        sink.field(name, value);
        if is_kept {
            self.changes += 1;
            let name = match own_name {
                Some(name) => EntryName::Bytes(name.of(&self.scratch)),
                None => match static_table::entry(index) {
                    Some((name, _)) => EntryName::Bytes(name),
                    None => EntryName::Entry(index - STATIC_COUNT - 1),
                },
            };
            self.table.insert(name, value);
        }
        Ok(Some(()))
    }

    /// Follows the encoder's choice of the table's size.
    fn update(&mut self, size: u32) -> Result<(), HpackFault> {
        let is_enough = self.update_due.is_none_or(|due| size <= due);
        if !self.may_update || size > self.most || !is_enough {
            return Err(HpackFault::TableSize);
        }
        self.update_due = None;
        self.changes += 1;
        self.table.set_limit(size);
        Ok(())
    }

    #[inline]
    fn entry(&self, index: usize) -> Option<(&[u8], &[u8])> {
        if index > STATIC_COUNT {
            return self.table.entry(index - STATIC_COUNT - 1);
        }
        static_table::entry(index)
    }
}

/// Reads the string at `at`; `None`: the block ends within it.
#[inline]
fn string<'b>(
    block: &'b [u8],
    at: &mut usize,
    scratch: &mut Vec<u8>,
) -> Result<Option<Text<'b>>, HpackFault> {
    let Some(first) = block.get(*at) else { return Ok(None) };
    let is_coded = first & 0x80 != 0;
    let Some(len) = integer::read(block, at, 7)? else { return Ok(None) };
    let Some(bytes) = block.get(*at..*at + len as usize) else { return Ok(None) };
    *at += len as usize;
    if !is_coded {
        return Ok(Some(Text::Plain(bytes)));
    }
    let begin = scratch.len();
    huffman::decode(bytes, scratch)?;
    Ok(Some(Text::Decoded(begin, scratch.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct List(Vec<(String, String)>);

    impl FieldSink for List {
        fn field(&mut self, name: &[u8], value: &[u8]) {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            self.0.push((text(name), text(value)));
        }
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|it| *it != b' ').collect();
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    fn decoded(
        decoder: &mut HpackDecoder,
        block: &[u8],
    ) -> Result<Vec<(String, String)>, HpackFault> {
        let mut list = List::default();
        let used = decoder.decode(block, true, &mut list)?;
        assert_eq!(used, block.len());
        Ok(list.0)
    }

    fn fields(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_requests_of_the_rfc() {
        // RFC 7541 appendix C.3: three requests on one connection.
        let mut decoder = HpackDecoder::new(4096);
        let first = hex("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d");
        let begin = [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
        ];
        assert_eq!(decoded(&mut decoder, &first).unwrap(), fields(&begin));
        let second = hex("8286 84be 5808 6e6f 2d63 6163 6865");
        let more = [&begin[..], &[("cache-control", "no-cache")]].concat();
        assert_eq!(decoded(&mut decoder, &second).unwrap(), fields(&more));
        let third = hex("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65");
        assert_eq!(decoder.changes(), 2);
        let last = decoded(&mut decoder, &third).unwrap();
        assert_eq!(
            last[3..],
            fields(&[(":authority", "www.example.com"), ("custom-key", "custom-value")])
        );
        assert_eq!(decoder.changes(), 3);
    }

    #[test]
    fn the_coded_responses_of_the_rfc() {
        // RFC 7541 appendix C.6: a table of 256 bytes, from which entries have to go.
        let mut decoder = HpackDecoder::new(256);
        let first = hex(
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b \
             97c8 e9ae 82ae 43d3",
        );
        let all = decoded(&mut decoder, &first).unwrap();
        assert_eq!(all[0], (":status".to_owned(), "302".to_owned()));
        assert_eq!(all[3].1, "https://www.example.com");
        let second = hex("4883 640e ffc1 c0bf");
        assert_eq!(decoded(&mut decoder, &second).unwrap()[0].1, "307");
        assert_eq!(decoded(&mut decoder, &hex("c1")).unwrap()[0].0, "cache-control");
    }

    #[test]
    fn indices_that_nothing_has_are_refused() {
        for block in ["80", "be", "7e 01 61", "ff 00"] {
            let mut decoder = HpackDecoder::new(4096);
            assert_eq!(decoded(&mut decoder, &hex(block)), Err(HpackFault::Index), "{block}");
        }
    }

    #[test]
    fn a_size_is_updated_in_front_of_the_fields_and_within_the_limit() {
        for (block, is_good) in [
            ("20 3f e1 1f 82", true),
            ("3f e2 1f 82", false),
            ("82 20", false),
            ("20 20 82", true),
            ("20", true),
        ] {
            let mut decoder = HpackDecoder::new(4096);
            let result = decoded(&mut decoder, &hex(block));
            assert_eq!(result.is_ok(), is_good, "{block}: {result:?}");
        }
    }

    #[test]
    fn a_smaller_table_has_to_be_acknowledged() {
        let shrunk = || {
            let mut decoder = HpackDecoder::new(4096);
            decoder.set_most(100);
            decoder.set_most(4096);
            decoder
        };
        assert_eq!(decoded(&mut shrunk(), &hex("82")), Err(HpackFault::TableSize));
        assert_eq!(decoded(&mut shrunk(), &hex("")), Err(HpackFault::TableSize));
        assert_eq!(decoded(&mut shrunk(), &hex("3f 46 82")), Err(HpackFault::TableSize), "101");
        assert!(decoded(&mut shrunk(), &hex("3f 45 3f e1 1f 82")).is_ok());
        let mut larger = HpackDecoder::new(100);
        larger.set_most(4096);
        assert!(decoded(&mut larger, &hex("82")).is_ok());
    }

    #[test]
    fn a_block_can_be_cut_anywhere() {
        let block = hex(
            "3f e1 1f 82 40 0a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65 be 41 8c f1e3 c2e5 f23a 6ba0 ab90 f4ff",
        );
        let whole = decoded(&mut HpackDecoder::new(4096), &block).unwrap();
        for cut in 0..block.len() {
            let (mut decoder, mut list) = (HpackDecoder::new(4096), List::default());
            let used = decoder.decode(&block[..cut], false, &mut list).unwrap();
            assert_eq!(decoder.decode(&block[used..], true, &mut list), Ok(block.len() - used));
            assert_eq!(list.0, whole);
            let is_boundary = [0, 3, 4, 29, 30].contains(&cut);
            let part = HpackDecoder::new(4096).decode(&block[..cut], true, &mut List::default());
            assert_eq!(part.is_ok(), is_boundary, "{cut}");
        }
    }
}

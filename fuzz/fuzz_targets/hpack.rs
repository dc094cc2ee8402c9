//! The decoder of header blocks gives what a simple second reader gives, wherever a block is cut; both refuse the same blocks.
//! The second reader keeps its table as a list, and has only Huffman strings decoded, each by itself.
//!
//! The first byte of an input is where each block is cut, the second one the table's size in units of 16 bytes; blocks are parted
//! by the bytes 0xff 0xff.
#![no_main]

use drover_http2::hpack::{FieldSink, HpackDecoder};
use libfuzzer_sys::fuzz_target;

type Field = (Vec<u8>, Vec<u8>);

#[derive(Default)]
struct List(Vec<Field>);

impl FieldSink for List {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.0.push((name.to_vec(), value.to_vec()));
    }
}

/// Reads one block after the other; `None`: it is wrong.
struct Simple {
    table: Vec<Field>,
    size: usize,
    most: usize,
}

impl Simple {
    fn block(&mut self, mut rest: &[u8]) -> Option<Vec<Field>> {
        let mut fields = Vec::new();
        while let Some(&first) = rest.first() {
            if first >= 0x80 {
                let index = number(&mut rest, 7)?;
                fields.push(self.entry(index)?);
            } else if first & 0xe0 == 0x20 {
                self.size = number(&mut rest, 5)?;
                if !fields.is_empty() || self.size > self.most {
                    return None;
                }
                self.shrink();
            } else {
                let is_kept = first >= 0x40;
                let index = number(&mut rest, if is_kept { 6 } else { 4 })?;
                let name = if index > 0 { self.entry(index)?.0 } else { text(&mut rest)? };
                let field = (name, text(&mut rest)?);
                if is_kept {
                    self.table.insert(0, field.clone());
                    self.shrink();
                }
                fields.push(field);
            }
        }
        Some(fields)
    }

    fn entry(&self, index: usize) -> Option<Field> {
        match index {
            0 => None,
            1..=61 => decoded(&[0x80 | index as u8]),
            _ => self.table.get(index - 62).cloned(),
        }
    }

    fn shrink(&mut self) {
        let size = |table: &[Field]| -> usize { table.iter().map(|it| it.0.len() + it.1.len() + 32).sum() };
        while size(&self.table) > self.size {
            self.table.pop();
        }
    }
}

/// What a fresh decoder says of a block with one field.
fn decoded(block: &[u8]) -> Option<Field> {
    let mut list = List::default();
    HpackDecoder::new(0).decode(block, true, &mut list).ok()?;
    list.0.pop()
}

fn number(rest: &mut &[u8], bits: u32) -> Option<usize> {
    let (first, mut behind) = rest.split_first()?;
    let most = (1u64 << bits) - 1;
    let mut value = u64::from(*first) & most;
    if value == most {
        for shift in 0..4 {
            let (byte, after) = behind.split_first()?;
            behind = after;
            value += u64::from(byte & 0x7f) << (7 * shift);
            if *byte < 0x80 {
                *rest = behind;
                return (value < 1 << 28).then_some(value as usize);
            }
        }
        return None;
    }
    *rest = behind;
    Some(value as usize)
}

fn text(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let begin = *rest;
    let is_coded = *rest.first()? >= 0x80;
    let len = number(rest, 7)?;
    let (bytes, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    if !is_coded {
        return Some(bytes.to_vec());
    }
    let coded = &begin[..begin.len() - behind.len()];
    decoded(&[&[0, 1, b'a'], coded].concat()).map(|field| field.1)
}

fuzz_target!(|input: &[u8]| {
    let [cut, size, rest @ ..] = input else { return };
    let most = usize::from(*size) * 16;
    let mut simple = Simple { table: Vec::new(), size: most, most };
    let (mut whole, mut parts) = (HpackDecoder::new(most), HpackDecoder::new(most));
    let mut blocks: Vec<Vec<u8>> = vec![Vec::new()];
    for byte in rest {
        let block = blocks.last_mut().expect("there is one");
        block.push(*byte);
        if block.ends_with(&[0xff, 0xff]) {
            block.truncate(block.len() - 2);
            blocks.push(Vec::new());
        }
    }
    for block in blocks {
        let expected = simple.block(&block);
        let (mut all, mut some) = (List::default(), List::default());
        let result = whole.decode(&block, true, &mut all);
        assert_eq!(result.ok().map(|_| &all.0), expected.as_ref());
        let cut = usize::from(*cut).min(block.len());
        let first = parts.decode(&block[..cut], false, &mut some);
        let both = first.and_then(|used| Ok(used + parts.decode(&block[used..], true, &mut some)?));
        assert_eq!(both, result);
        if expected.is_none() {
            return;
        }
        assert_eq!(some.0, all.0);
    }
});

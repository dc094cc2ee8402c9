//! The Huffman code of HPACK (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: codes of one length follow each other in the order of their symbols, and shorter ones come first. The
//! lengths are all that is written down here; codes and tables are made of them when the crate is compiled.

use super::HpackFault;

/// How many bits the code of each byte has; the last one is the end of the string, which is only ever used for padding.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
     6, 10, 10, 12, 13,  6,  8, 11, 10, 10,  8, 11,  8,  6,  6,  6,  5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8, 15,  6, 12, 10,
    13,  6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8, 13, 19, 13, 14,  6,
    15,  5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,  6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const LONGEST: usize = 30;

/// The end of the string.
const END: usize = 256;

/// The symbols in the order of their codes.
const SYMBOLS: [u16; 257] = {
    let mut symbols = [0; 257];
    let (mut length, mut at) = (1, 0);
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                symbols[at] = symbol as u16;
                at += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    symbols
};

/// What is known of the codes of one length.
#[derive(Clone, Copy)]
struct Codes {
    /// The first code behind them, at the top of 32 bits.
    limit: u32,
    /// The first of them, at the low end.
    first: u32,
    /// Where the first one's symbol stands in [`SYMBOLS`].
    offset: u32,
}

/// The codes of each length.
const BY_LENGTH: [Codes; LONGEST + 1] = {
    let mut all = [Codes { limit: 0, first: 0, offset: 0 }; LONGEST + 1];
    let (mut length, mut code, mut offset) = (1, 0u64, 0);
    while length <= LONGEST {
        code <<= 1;
        let mut count = 0;
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                count += 1;
            }
            symbol += 1;
        }
        let limit = (code + count) << (32 - length);
        // The codes of the greatest length reach the end of the 32 bits.
        let limit = if limit > u32::MAX as u64 { u32::MAX } else { limit as u32 };
        all[length] = Codes { limit, first: code as u32, offset };
        code += count;
        offset += count as u32;
        length += 1;
    }
    // Kraft's sum: every string of bits begins with exactly one code.
    assert!(code == 1 << LONGEST);
    all
};

/// The code of each byte, at the low end.
const CODES: [u32; 257] = {
    let mut codes = [0; 257];
    let mut at = 0;
    while at < SYMBOLS.len() {
        let symbol = SYMBOLS[at] as usize;
        let same = BY_LENGTH[LENGTHS[symbol] as usize];
        codes[symbol] = same.first + (at as u32 - same.offset);
        at += 1;
    }
    codes
};

/// For each value of the next eight bits the byte whose code they begin with and its length; length 0 if the code is longer.
static SHORT: [(u8, u8); 256] = {
    let mut short = [(0, 0); 256];
    let mut symbol = 0;
    while symbol < 256 {
        let length = LENGTHS[symbol];
        if length <= 8 {
            let mut at = (CODES[symbol] << (8 - length)) as usize;
            let end = at + (1 << (8 - length));
            while at < end {
                short[at] = (symbol as u8, length);
                at += 1;
            }
        }
        symbol += 1;
    }
    short
};

/// Appends what `coded` stands for to `out`.
///
/// # Errors
/// [`HpackFault::Huffman`]: `coded` has the code of the end of the string, or its padding is longer than seven bits or not the
/// beginning of that code (RFC 7541 section 5.2).
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), HpackFault> {
    out.reserve(coded.len() * 8 / 5);
    // The bits that have not been decoded, at the top; ones behind them, as padding has.
    let (mut bits, mut count) = (0u64, 0u32);
    let mut bytes = coded.iter();
    loop {
        while count <= 56 {
            let Some(&byte) = bytes.next() else { break };
            bits |= u64::from(byte) << (56 - count);
            count += 8;
        }
        if count == 0 {
            return Ok(());
        }
        let padded = if count < 64 { bits | (u64::MAX >> count) } else { bits };
        let (symbol, length) = next_symbol(padded);
        if length > count || symbol == END {
            // Fewer than eight ones are padding; nothing but ones can begin the end of the string.
            let is_padding = count < 8 && padded == u64::MAX;
            return if is_padding { Ok(()) } else { Err(HpackFault::Huffman) };
        }
        out.push(symbol as u8);
        bits <<= length;
        count -= length;
    }
}

/// The symbol whose code `bits` begins with, at the top, and its length.
#[inline]
fn next_symbol(bits: u64) -> (usize, u32) {
    let (symbol, length) = SHORT[(bits >> 56) as usize];
    if length > 0 {
        return (symbol.into(), length.into());
    }
    let top = (bits >> 32) as u32;
    let mut length = 9;
    while length < LONGEST && top >= BY_LENGTH[length].limit {
        length += 1;
    }
    let codes = BY_LENGTH[length];
    let at = (top >> (32 - length)) - codes.first + codes.offset;
    (SYMBOLS[at as usize].into(), length as u32)
}

/// How many bytes `plain` takes when it is coded.
pub(super) fn coded_len(plain: impl Iterator<Item = u8>) -> usize {
    let bits: usize = plain.map(|byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the code of `plain`, of bytes that `map` has changed.
pub(super) fn encode(plain: &[u8], map: impl Fn(u8) -> u8, out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0u32);
    for byte in plain {
        let symbol = usize::from(map(*byte));
        let length = u32::from(LENGTHS[symbol]);
        bits = bits << length | u64::from(CODES[symbol]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        out.push((bits << (8 - count)) as u8 | (0xff >> count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, HpackFault> {
        let mut out = Vec::new();
        decode(coded, &mut out).map(|()| out)
    }

    fn coded(plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(plain, |byte| byte, &mut out);
        assert_eq!(out.len(), coded_len(plain.iter().copied()));
        out
    }

    #[test]
    fn codes_are_those_of_the_rfc() {
        // RFC 7541 appendix B, one of many lengths.
        for (symbol, code, length) in [
            (usize::from(b'0'), 0x0, 5),
            (usize::from(b' '), 0x14, 6),
            (usize::from(b':'), 0x5c, 7),
            (usize::from(b'&'), 0xf8, 8),
            (usize::from(b'!'), 0x3f8, 10),
            (usize::from(b'|'), 0x7fc, 11),
            (usize::from(b'#'), 0xffa, 12),
            (0, 0x1ff8, 13),
            (usize::from(b'{'), 0x7ffe, 15),
            (usize::from(b'\\'), 0x7fff0, 19),
            (128, 0xfffe6, 20),
            (161, 0x1fffdd, 21),
            (129, 0x3fffd2, 22),
            (1, 0x7fffd8, 23),
            (9, 0xffffea, 24),
            (199, 0x1ffffec, 25),
            (255, 0x3ffffee, 26),
            (203, 0x7ffffde, 27),
            (249, 0xffffffe, 28),
            (22, 0x3ffffffe, 30),
            (END, 0x3fffffff, 30),
        ] {
            assert_eq!((CODES[symbol], LENGTHS[symbol]), (code, length), "of {symbol}");
        }
    }

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 7541 appendix C.4 and C.6.
        let host = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decoded(&host).unwrap(), b"www.example.com");
        assert_eq!(coded(b"www.example.com"), host);
        assert_eq!(coded(b"307"), [0x64, 0x0e, 0xff]);
    }

    #[test]
    fn each_byte_and_each_pair_survives() {
        for first in 0..=255u8 {
            assert_eq!(decoded(&coded(&[first])).unwrap(), [first]);
            for second in 0..=255u8 {
                assert_eq!(decoded(&coded(&[first, second])).unwrap(), [first, second]);
            }
        }
        assert_eq!(decoded(b"").unwrap(), b"");
    }

    #[test]
    fn padding_is_short_and_all_ones() {
        // 'a' has five bits, 00011: three bits of padding.
        assert_eq!(decoded(&[0b0001_1111]).unwrap(), b"a");
        for wrong in [&[0b0001_1110u8][..], &[0b0001_1000], &[0b0001_1111, 0xff], &[0xff]] {
            assert_eq!(decoded(wrong), Err(HpackFault::Huffman), "{wrong:x?}");
        }
        // The end of the string, 30 ones, even where padding follows.
        assert_eq!(decoded(&[0xff; 4]), Err(HpackFault::Huffman));
        assert_eq!(decoded(&[0xff; 8]), Err(HpackFault::Huffman));
    }
}

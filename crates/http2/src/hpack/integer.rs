//! Integers of HPACK: a prefix of some bits in the first byte, and seven bits in each byte that follows (RFC 7541 section 5.1).

use super::HpackFault;

/// No integer of a header block may be larger: a string is shorter than this, and so is a table. Four bytes follow the first at
/// most, so that nobody sends endless zeros.
const INTEGER_MOST: u32 = 1 << 28;

/// Reads the integer at `at`, whose first byte has `bits` bits of it; `at` moves behind it. `None`: the bytes end before the
/// integer does.
///
/// # Errors
/// [`HpackFault::Integer`]: the integer is too large, or has more bytes than such an integer needs.
#[inline]
pub(super) fn read(block: &[u8], at: &mut usize, bits: u32) -> Result<Option<u32>, HpackFault> {
    let Some(&first) = block.get(*at) else { return Ok(None) };
    let most = (1u32 << bits) - 1;
    let prefix = u32::from(first) & most;
    if prefix < most {
        *at += 1;
        return Ok(Some(prefix));
    }
    let mut value = prefix;
    for step in 0..4 {
        let Some(&byte) = block.get(*at + 1 + step) else { return Ok(None) };
        value += u32::from(byte & 0x7f) << (7 * step);
        if byte & 0x80 == 0 {
            *at += 2 + step;
            return if value < INTEGER_MOST { Ok(Some(value)) } else { Err(HpackFault::Integer) };
        }
    }
    Err(HpackFault::Integer)
}

/// Appends `value` with `bits` bits of it in the first byte, whose other bits are those of `pattern`.
pub(super) fn push(out: &mut Vec<u8>, value: usize, bits: u32, pattern: u8) {
    let most = (1usize << bits) - 1;
    if value < most {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 7541 appendix C.1.
        for (bytes, bits, value) in
            [(&[10u8][..], 5, 10), (&[31, 154, 10], 5, 1337), (&[42], 8, 42), (&[255, 0], 8, 255)]
        {
            let mut at = 0;
            assert_eq!(read(bytes, &mut at, bits), Ok(Some(value)));
            assert_eq!(at, bytes.len());
            let mut out = Vec::new();
            push(&mut out, value as usize, bits, 0);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn an_integer_that_is_cut_is_not_there_yet() {
        for part in [&[][..], &[31], &[31, 154]] {
            let mut at = 0;
            assert_eq!(read(part, &mut at, 5), Ok(None));
            assert_eq!(at, 0);
        }
    }

    #[test]
    fn what_is_too_large_or_too_long_is_refused() {
        for bytes in [
            &[31u8, 255, 255, 255, 255, 1][..],
            &[31, 128, 128, 128, 128, 0],
            &[31, 225, 255, 255, 127],
        ] {
            assert_eq!(read(bytes, &mut 0, 5), Err(HpackFault::Integer));
        }
        let mut at = 0;
        assert_eq!(read(&[31, 224, 255, 255, 127], &mut at, 5), Ok(Some(INTEGER_MOST - 1)));
    }

    #[test]
    fn what_is_written_is_read() {
        for bits in 1..=8 {
            for value in (0..2000).chain([1 << 20, INTEGER_MOST - 1]) {
                let mut out = Vec::new();
                push(&mut out, value as usize, bits, 0);
                assert_eq!(read(&out, &mut 0, bits), Ok(Some(value)));
            }
        }
    }
}

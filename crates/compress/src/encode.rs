//! Bytes of a file into a coding, and back to see whether a sibling still holds them.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::RangeInclusive;

use drover_http1::coding::ContentCoding;
use flate2::read::MultiGzDecoder;
use flate2::{Compression, write::GzEncoder};

/// Bytes that are read or written at once.
const BUFFER: usize = 64 * 1024;

/// The largest window of Zstandard that every client takes, as a power of 2: 8 MiB (RFC 9659).
const ZSTD_WINDOW_MOST: u32 = 23;

/// From this level on, Zstandard's own choice of a window may be larger than [`ZSTD_WINDOW_MOST`].
const ZSTD_LARGE_WINDOWS: u32 = 20;

/// The windows of Brotli that are used, as powers of 2. The largest is 16 MiB (RFC 7932 section 9.1); the encoder's memory
/// grows with it. With windows up to 16, levels 5 to 8 of the encoder take ten times as long.
const BROTLI_WINDOWS: RangeInclusive<u32> = 18..=24;

/// Writes all bytes of `input`, which are `len`, to `output` in `coding`.
///
/// # Errors
/// Those of `input` and `output`. Zstandard's encoder fails too if there are not `len` bytes.
pub(crate) fn encode(
    coding: ContentCoding,
    level: u32,
    len: u64,
    input: &mut impl Read,
    output: &mut impl Write,
) -> io::Result<()> {
    match coding {
        ContentCoding::Gzip => {
            let mut encoder = GzEncoder::new(output, Compression::new(level));
            copy(input, &mut encoder)?;
            encoder.finish().map(drop)
        }
        ContentCoding::Zstd => {
            let mut encoder = zstd::Encoder::new(output, level.cast_signed())?;
            encoder.set_pledged_src_size(Some(len))?;
            if level >= ZSTD_LARGE_WINDOWS {
                encoder.window_log(ZSTD_WINDOW_MOST)?;
            }
            copy(input, &mut encoder)?;
            encoder.finish().map(drop)
        }
        ContentCoding::Brotli => {
            let params = brotli::enc::BrotliEncoderParams {
                quality: level.cast_signed(),
                lgwin: brotli_window(len).cast_signed(),
                size_hint: usize::try_from(len).unwrap_or(usize::MAX),
                ..Default::default()
            };
            brotli::BrotliCompress(&mut BufReader::with_capacity(BUFFER, input), output, &params)
                .map(drop)
        }
    }
}

/// The smallest window that a file of `len` bytes fits in, because the decoder has to have that much memory. A window
/// holds 16 bytes less than its power of 2.
fn brotli_window(len: u64) -> u32 {
    let most = *BROTLI_WINDOWS.end();
    BROTLI_WINDOWS.into_iter().find(|&window| len.saturating_add(16) <= 1 << window).unwrap_or(most)
}

fn copy(input: &mut impl Read, output: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match input.read(&mut buffer)? {
            0 => return Ok(()),
            read => output.write_all(&buffer[..read])?,
        }
    }
}

/// Whether a file that begins with `head` may come from [`encode`]. The programs `gzip` and `zstd` leave marks, by which
/// downloads of a site are told from siblings: gzip names its operating system and often the file (RFC 1952 section
/// 2.3.1), zstd appends a checksum (RFC 8878 section 3.1.1.1.1). Brotli has no marks, and hardly any downloads.
pub(crate) fn may_be_encoded_here(coding: ContentCoding, head: &[u8]) -> bool {
    const UNKNOWN_SYSTEM: u8 = 255;
    const CHECKSUM: u8 = 1 << 2;
    match (coding, head) {
        (ContentCoding::Brotli, _) => true,
        (ContentCoding::Gzip, [0x1f, 0x8b, 8, flags, _, _, _, _, _, system, ..]) => {
            *flags == 0 && *system == UNKNOWN_SYSTEM
        }
        (ContentCoding::Zstd, [0x28, 0xb5, 0x2f, 0xfd, descriptor, ..]) => {
            descriptor & CHECKSUM == 0
        }
        _ => false,
    }
}

/// Whether `sibling` is whole, in `coding`, and holds the bytes of `original`. No more of `sibling` is decoded than is
/// equal.
pub(crate) fn holds(coding: ContentCoding, sibling: impl Read, original: impl Read) -> bool {
    let mut original = BufReader::with_capacity(BUFFER, original);
    let same = match coding {
        ContentCoding::Gzip => is_same(MultiGzDecoder::new(sibling), &mut original),
        ContentCoding::Brotli => is_same(brotli::Decompressor::new(sibling, BUFFER), &mut original),
        ContentCoding::Zstd => zstd::Decoder::new(sibling).and_then(|mut decoder| {
            decoder.window_log_max(ZSTD_WINDOW_MOST)?;
            is_same(decoder, &mut original)
        }),
    };
    same.unwrap_or(false)
}

fn is_same(decoded: impl Read, original: &mut impl BufRead) -> io::Result<bool> {
    let mut decoded = BufReader::with_capacity(BUFFER, decoded);
    loop {
        let (one, other) = (decoded.fill_buf()?, original.fill_buf()?);
        let len = one.len().min(other.len());
        if len == 0 || one[..len] != other[..len] {
            return Ok(one.is_empty() && other.is_empty());
        }
        decoded.consume(len);
        original.consume(len);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(coding: ContentCoding, level: u32, bytes: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        encode(coding, level, bytes.len() as u64, &mut &*bytes, &mut output).unwrap();
        output
    }

    /// Bytes that repeat themselves, as text does, up to some hundred thousand.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let word = prop::collection::vec(any::<u8>(), 0..40);
        (prop::collection::vec(word, 1..20), prop::collection::vec(any::<usize>(), 0..6000))
            .prop_map(|(words, order)| {
                order.iter().flat_map(|at| words[at % words.len()].clone()).collect()
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn what_is_encoded_holds_its_bytes_and_no_others(bytes in bytes(), at in any::<usize>()) {
            for (coding, levels) in [
                (ContentCoding::Gzip, [1, 6, 9]),
                (ContentCoding::Brotli, [0, 5, 9]),
                (ContentCoding::Zstd, [1, 9, 22]),
            ] {
                for level in levels {
                    let encoded = encoded(coding, level, &bytes);
                    prop_assert!(holds(coding, &*encoded, &*bytes), "{coding:?} {level}");
                    prop_assert!(may_be_encoded_here(coding, &encoded));
                    prop_assert!(!holds(coding, &encoded[..encoded.len() - 1], &*bytes));
                    let mut other = bytes.clone();
                    other.push(0);
                    prop_assert!(!holds(coding, &*encoded, &*other));
                    other.pop();
                    if !other.is_empty() {
                        let at = at % other.len();
                        other[at] ^= 1;
                        prop_assert!(!holds(coding, &*encoded, &*other));
                    }
                }
            }
        }
    }

    #[test]
    fn a_window_is_as_large_as_the_file_and_no_larger_than_clients_take() {
        for (len, window) in
            [(0, 18), (262_128, 18), (262_129, 19), (1 << 20, 21), (1 << 24, 24), (u64::MAX, 24)]
        {
            assert_eq!(brotli_window(len), window, "{len}");
        }
        // 20 MiB, so that level 22 would take a window of 32 MiB. holds() refuses more than 8 MiB.
        let large: Vec<u8> = (0..5u32 << 20).flat_map(|it| (it % 1000).to_le_bytes()).collect();
        assert!(holds(ContentCoding::Zstd, &*encoded(ContentCoding::Zstd, 22, &large), &*large));
    }

    #[test]
    fn an_error_of_either_side_is_told() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::TimedOut.into())
            }
        }
        for coding in ContentCoding::ALL {
            let full = encode(coding, 1, 3, &mut &b"abc"[..], &mut Full).unwrap_err();
            assert_eq!(full.kind(), io::ErrorKind::StorageFull, "{coding:?}");
            let broken = encode(coding, 1, 3, &mut Broken, &mut Vec::new()).unwrap_err();
            assert_eq!(broken.kind(), io::ErrorKind::TimedOut, "{coding:?}");
        }
    }
}

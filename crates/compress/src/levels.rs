//! Which codings are written, and how hard each compresses: the values of `--formats` and `--level`.

use std::ops::RangeInclusive;

use drover_http1::coding::ContentCoding;

/// The name of a coding in flags and summaries: the ending of its files, without the dot.
pub fn short_name(coding: ContentCoding) -> &'static str {
    &coding.suffix()[1..]
}

/// Reads the name of a coding: the ending of its files, or the name of its program.
pub fn parse_coding(text: &str) -> Result<ContentCoding, String> {
    match text {
        "gz" | "gzip" => Ok(ContentCoding::Gzip),
        "br" | "brotli" => Ok(ContentCoding::Brotli),
        "zst" | "zstd" => Ok(ContentCoding::Zstd),
        _ => Err("there are gz, br and zst".to_owned()),
    }
}

/// The level of each coding, as its own program counts levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionLevels {
    gzip: u32,
    brotli: u32,
    zstd: u32,
}

impl CompressionLevels {
    /// The smallest files within reason. Levels 20 to 22 of Zstandard need windows that clients refuse.
    const BEST: CompressionLevels = CompressionLevels { gzip: 9, brotli: 11, zstd: 19 };

    /// Some 30 times as fast as [`Self::BEST`]; a tenth larger.
    const FAST: CompressionLevels = CompressionLevels { gzip: 6, brotli: 5, zstd: 9 };

    /// Reads `best`, `fast`, and levels of single codings, as in `fast,br=9`. What is not named is at its best.
    pub fn parse(text: &str) -> Result<CompressionLevels, String> {
        let mut levels = CompressionLevels::BEST;
        for (at, word) in text.split(',').enumerate() {
            match (word, word.split_once('=')) {
                ("best", _) if at == 0 => levels = CompressionLevels::BEST,
                ("fast", _) if at == 0 => levels = CompressionLevels::FAST,
                (_, Some((name, level))) => levels.set(parse_coding(name)?, level)?,
                _ => return Err("write best, fast, or levels as in br=9,gz=6".to_owned()),
            }
        }
        Ok(levels)
    }

    fn set(&mut self, coding: ContentCoding, level: &str) -> Result<(), String> {
        let levels = Self::range(coding);
        let level = level.parse().ok().filter(|level| levels.contains(level));
        let refused = || {
            let (name, from, to) = (short_name(coding), levels.start(), levels.end());
            format!("levels of {name} are {from} to {to}")
        };
        *self.level_mut(coding) = level.ok_or_else(refused)?;
        Ok(())
    }

    fn range(coding: ContentCoding) -> RangeInclusive<u32> {
        match coding {
            ContentCoding::Gzip => 1..=9,
            ContentCoding::Brotli => 0..=11,
            ContentCoding::Zstd => 1..=22,
        }
    }

    fn level_mut(&mut self, coding: ContentCoding) -> &mut u32 {
        match coding {
            ContentCoding::Gzip => &mut self.gzip,
            ContentCoding::Brotli => &mut self.brotli,
            ContentCoding::Zstd => &mut self.zstd,
        }
    }

    /// The level of `coding`.
    pub(crate) fn of(mut self, coding: ContentCoding) -> u32 {
        *self.level_mut(coding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_named_or_numbers() {
        let read = |text| CompressionLevels::parse(text);
        assert_eq!(read("best"), Ok(CompressionLevels::BEST));
        assert_eq!(read("fast"), Ok(CompressionLevels::FAST));
        assert_eq!(
            read("br=9,zst=3"),
            Ok(CompressionLevels { brotli: 9, zstd: 3, ..CompressionLevels::BEST })
        );
        assert_eq!(read("fast,gz=1"), Ok(CompressionLevels { gzip: 1, ..CompressionLevels::FAST }));
        for wrong in ["", "9", "br", "br=12", "gz=0", "zst=23", "br=9,best", "best,", "lz4=1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}

//! Amounts of memory: `65536`, `512K`, `64MiB`, `64MB`, `2G`.

/// Units in bytes, as GNU's tools have them: a letter alone, or with `iB`, is a power of 1024; with `B`,
/// a power of 1000. Crates for sizes differ: they read a letter alone as a power of 1000.
const UNITS: &[(&str, usize)] = &[
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("B", 1),
    ("", 1),
];

/// Reads an amount in bytes; `off` is none.
///
/// # Errors
/// One line that says how to write it.
pub fn parse_or_off(text: &str) -> Result<usize, String> {
    if text == "off" { Ok(0) } else { parse(text).map_err(|remedy| remedy + ", or off") }
}

/// Reads an amount in bytes, at least one.
///
/// # Errors
/// One line that says how to write it; also for 0.
pub fn parse(text: &str) -> Result<usize, String> {
    bytes(text)
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| "write a number of bytes above 0, or 512K, 64M, 2G".to_owned())
}

/// Reads an amount in bytes; 0 is allowed.
///
/// # Errors
/// One line that says how to write it.
pub fn parse_or_none(text: &str) -> Result<usize, String> {
    bytes(text).ok_or_else(|| "write a number of bytes, or 512K, 64M, 2G".to_owned())
}

/// A whole number and perhaps one of the [`UNITS`], in letters of any case.
fn bytes(text: &str) -> Option<usize> {
    let text = text.to_ascii_uppercase();
    let (number, unit) =
        UNITS.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))?;
    number.trim_end().parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::{parse_or_none, parse_or_off};

    #[test]
    fn reads_bytes_units_and_off() {
        for (text, bytes) in [
            ("65536", 65536),
            ("512K", 512 << 10),
            ("512k", 512 << 10),
            ("64M", 64 << 20),
            ("64MiB", 64 << 20),
            ("64MB", 64_000_000),
            ("2G", 2 << 30),
            ("2 GiB", 2 << 30),
            ("100B", 100),
            ("off", 0),
        ] {
            assert_eq!(parse_or_off(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse_or_none("0"), Ok(0));
    }

    #[test]
    fn refuses_what_is_no_amount() {
        for text in
            ["", "0", "M", "-1", "1.5M", "64MBB", "99999999999999999999", "17179869184G", "64Ki"]
        {
            assert!(parse_or_off(text).is_err(), "{text}");
        }
    }
}

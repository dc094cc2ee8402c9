//! Amounts of memory in flags: `65536`, `512K`, `64M`, `2G`.

/// Reads an amount in bytes; `off` is none.
pub(super) fn parse_or_off(text: &str) -> Result<usize, String> {
    if text == "off" { Ok(0) } else { parse(text).map_err(|remedy| remedy + ", or off") }
}

/// Reads an amount in bytes, at least one.
pub(super) fn parse(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let number: Option<usize> = digits.parse().ok();
    number
        .filter(|&number| number > 0)
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| "write a number of bytes above 0, or 512K, 64M, 2G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse_or_off;

    #[test]
    fn reads_bytes_units_and_off() {
        assert_eq!(parse_or_off("65536"), Ok(65536));
        assert_eq!(parse_or_off("512K"), Ok(512 << 10));
        assert_eq!(parse_or_off("64M"), Ok(64 << 20));
        assert_eq!(parse_or_off("2G"), Ok(2 << 30));
        assert_eq!(parse_or_off("off"), Ok(0));
    }

    #[test]
    fn refuses_what_is_no_amount() {
        for text in ["", "M", "-1", "1.5M", "64MB", "99999999999999999999", "17179869184G"] {
            assert!(parse_or_off(text).is_err(), "{text}");
        }
    }
}

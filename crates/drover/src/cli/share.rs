//! Shares in flags: `5%`, `0.05`.

/// Reads a share of 0.1 % to 100 %.
///
/// Used as a clap `value_parser`.
///
/// # Errors
/// The message says how to write a share.
pub(super) fn parse(text: &str) -> Result<f64, String> {
    let value = match text.strip_suffix('%') {
        Some(number) => number.trim().parse::<f64>().map(|number| number / 100.0),
        None => text.parse(),
    };
    let value = value.ok().filter(|share| (0.001..=1.0).contains(share));
    value.ok_or_else(|| "write a share from 0.1% to 100%, as in 5% or 0.05".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn shares_are_read_as_people_write_them() {
        assert_eq!(parse("5%"), Ok(0.05));
        assert_eq!(parse("12.5 %"), Ok(0.125));
        assert_eq!(parse("0.05"), Ok(0.05));
        for wrong in ["5", "0", "-1%", "101%", "x", "0.01%", ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}

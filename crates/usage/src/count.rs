//! Numbers that may be written with a unit: `10k` requests, a rate of `1.5k`.

/// Units of what is counted: powers of 1000, other than those of [bytes](crate::size).
const UNITS: &[(char, u32)] = &[('k', 1_000), ('K', 1_000), ('M', 1_000_000)];

/// Splits a number from its unit: returns the number's text, and the factor of the unit.
#[must_use]
pub fn split_unit(text: &str) -> (&str, u32) {
    let with_unit = |(unit, times): &(char, u32)| Some((text.strip_suffix(*unit)?, *times));
    UNITS.iter().find_map(with_unit).unwrap_or((text, 1))
}

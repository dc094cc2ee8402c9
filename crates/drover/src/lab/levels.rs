//! Numbers as an experiment's file has them: levels of a factor, margins.

use serde::{Deserialize, Deserializer, de};

/// At least one number, in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels<T>(pub Vec<T>);

/// A number above zero.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Positive(pub f64);

/// A number that is not below zero.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct NotNegative(pub f64);

/// A number above zero and below one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fraction(pub f64);

impl<'de, T: Deserialize<'de> + PartialOrd> Deserialize<'de> for Levels<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Levels<T>, D::Error> {
        let levels = Vec::deserialize(deserializer)?;
        if levels.is_empty() || !levels.is_sorted_by(|a, b| a < b) {
            return Err(de::Error::custom("write at least one level, in ascending order"));
        }
        Ok(Levels(levels))
    }
}

impl<'de> Deserialize<'de> for Positive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Positive, D::Error> {
        let value = f64::deserialize(deserializer)?;
        if value > 0.0 && value.is_finite() {
            Ok(Positive(value))
        } else {
            Err(de::Error::custom("write a number above 0"))
        }
    }
}

impl<'de> Deserialize<'de> for NotNegative {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NotNegative, D::Error> {
        let value = f64::deserialize(deserializer)?;
        if value >= 0.0 && value.is_finite() {
            Ok(NotNegative(value))
        } else {
            Err(de::Error::custom("write a number that is not below 0"))
        }
    }
}

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fraction, D::Error> {
        let value = f64::deserialize(deserializer)?;
        if value > 0.0 && value < 1.0 {
            Ok(Fraction(value))
        } else {
            Err(de::Error::custom("write a fraction between 0 and 1, as 0.05 for 5 %"))
        }
    }
}

//! Names that files and commands of earlier versions have, and what they are called today.

use serde::{Deserialize, Deserializer};

/// Metrics, by their old and their present names.
pub(crate) const METRICS: &[(&str, &str)] = &[
    ("reply-rate", "response-rate"),
    ("cpu-per-reply", "cpu-per-response"),
    ("replies-per-cpu", "responses-per-cpu"),
];

/// Places in the result of a load, by their old and their present pointers.
const PLACES: &[(&str, &str)] = &[("/replies", "/responses"), ("/reply_rate", "/response_rate")];

/// Flags of `drover serve`, by their old and their present names.
const FLAGS: &[(&str, &str)] = &[("--reply-size", "--response-size")];

/// The present name of a metric.
#[must_use]
pub fn metric(name: &str) -> &str {
    METRICS.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new)
}

/// The present pointer of a place in the result of a load.
pub(crate) fn place(pointer: &str) -> String {
    let within = |(old, new): &(&str, &str)| {
        let rest = pointer.strip_prefix(old)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("{new}{rest}"))
    };
    PLACES.iter().find_map(within).unwrap_or_else(|| pointer.to_owned())
}

/// Whether a word of a command line is this flag, by its present name or its old one, with or without a value.
pub(crate) fn is_flag(word: &str, flag: &str) -> bool {
    let name = word.split('=').next().unwrap_or(word);
    FLAGS.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new) == flag
}

/// Reads the name of a metric.
pub(crate) fn read_metric<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    Ok(metric(&name).to_owned())
}

/// Reads what stands under the names of metrics, into the same kind of map.
pub(crate) fn read_under_metrics<'de, D, M, T>(from: D) -> Result<M, D::Error>
where
    D: Deserializer<'de>,
    M: Deserialize<'de> + IntoIterator<Item = (String, T)> + FromIterator<(String, T)>,
{
    let all = M::deserialize(from)?;
    Ok(all.into_iter().map(|(name, it)| (metric(&name).to_owned(), it)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Condition;
    use crate::model::Sample;
    use crate::spec::claim::Effect;
    use crate::spec::metric::built_in;

    #[test]
    fn old_names_mean_the_present_ones() {
        for (old, new) in METRICS {
            assert_eq!(metric(old), *new);
            assert_eq!(built_in(old).unwrap().name, *new);
        }
        assert_eq!(place("/replies"), "/responses");
        assert_eq!(place("/reply_rate/min"), "/response_rate/min");
        assert_eq!(place("/replies_of_others"), "/replies_of_others");
        assert!(is_flag("--reply-size=4K", "--response-size"));
        assert!(is_flag("--response-size", "--response-size") && !is_flag("4K", "--response-size"));
    }

    #[test]
    fn files_and_commands_of_earlier_versions_are_read() {
        let line = r#"{"cell": {"subject": "a", "levels": {}}, "round": 1, "values": {"cpu-per-reply": 3.0}}"#;
        let sample: Sample = serde_json::from_str(line).unwrap();
        assert_eq!(sample.values["cpu-per-response"], 3.0);
        let effect: Effect =
            toml::from_str("ratio = 'reply-rate'\nof = 'a'\nagainst = 'b'").unwrap();
        assert_eq!(effect.metric(), "response-rate");
        let condition: Condition = "reply-rate < 0.95".parse().unwrap();
        assert_eq!(condition.metric(), "response-rate");
    }
}

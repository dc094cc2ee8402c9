//! A strict reader of the text format of Prometheus, version 0.0.4: what a scraper would refuse, or join to something
//! wrong, is a fault.

use std::collections::{BTreeMap, BTreeSet};

/// The samples of a text, and the type of each metric.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    types: BTreeMap<String, String>,
    samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

/// Whether a name is legal: `[a-zA-Z_][a-zA-Z0-9_]*`; colons are for rules of the user.
fn is_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(legal) && !name.as_bytes()[0].is_ascii_digit()
}

impl Exposition {
    /// Reads a whole text.
    ///
    /// # Errors
    /// The first fault, with its line.
    pub(super) fn check(text: &str) -> Result<Exposition, String> {
        let mut found = Exposition::default();
        if !text.ends_with('\n') {
            return Err("the last line does not end".to_owned());
        }
        // The metric of the lines at hand, and those whose lines are over.
        let (mut current, mut helped, mut over) = (String::new(), String::new(), BTreeSet::new());
        for line in text.lines() {
            let fault = |what: &str| Err(format!("{what}: {line}"));
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let Some((name, help)) = rest.split_once(' ') else { return fault("no help") };
                if !is_name(name) || help.is_empty() || help.contains('\\') {
                    return fault("a bad help");
                }
                over.insert(std::mem::replace(&mut current, name.to_owned()));
                if over.contains(name) {
                    return fault("the lines of a metric are apart");
                }
                name.clone_into(&mut helped);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let Some((name, kind)) = rest.split_once(' ') else { return fault("no type") };
                let is_total = name.ends_with("_total");
                match kind {
                    "counter" if is_total => {}
                    "gauge" | "histogram" if !is_total => {}
                    _ => return fault("a type that does not go with the name"),
                }
                if helped != name || found.types.insert(name.into(), kind.into()).is_some() {
                    return fault("a type behind no help of its own");
                }
            } else if line.starts_with('#') {
                return fault("a comment");
            } else {
                let (name, labels, value) = sample(line)?;
                let is_part = |suffix| name.strip_suffix(suffix) == Some(&current);
                let is_of_histogram = found.types.get(&current).is_some_and(|it| it == "histogram");
                let is_current = match is_of_histogram {
                    true => ["_bucket", "_sum", "_count"].into_iter().any(is_part),
                    false => name == current,
                };
                if !is_current || !found.types.contains_key(&current) {
                    return fault("a sample without the type of its metric before it");
                }
                if value < 0.0 || found.samples.insert((name, labels), value).is_some() {
                    return fault("a series that is there twice, or below 0");
                }
            }
        }
        Ok(found)
    }

    /// The sum of the samples that have these labels among theirs; there is one at least.
    #[track_caller]
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |own: &BTreeMap<String, String>, (label, value): &(&str, &str)| {
            own.get(*label).is_some_and(|own| own == value)
        };
        let samples = self.samples.iter().filter(|((own, own_labels), _)| {
            own == name && labels.iter().all(|label| has(own_labels, label))
        });
        let values: Vec<f64> = samples.map(|(_, value)| *value).collect();
        assert!(!values.is_empty(), "no sample of {name} {labels:?}");
        values.iter().sum()
    }

    /// How many samples a metric has.
    pub(super) fn samples(&self, name: &str) -> usize {
        self.samples.keys().filter(|(own, _)| own == name).count()
    }
}

/// Name, labels and value of a line `name{label="value",…} number`.
fn sample(line: &str) -> Result<(String, BTreeMap<String, String>, f64), String> {
    let fault = |what: &str| format!("{what}: {line}");
    let (series, value) = line.rsplit_once(' ').ok_or_else(|| fault("no value"))?;
    let value: f64 = value.parse().map_err(|_| fault("a value that is no number"))?;
    if !value.is_finite() {
        return Err(fault("a value without an end"));
    }
    let (name, labels) = match series.split_once('{') {
        None => (series, None),
        Some((name, rest)) => {
            (name, Some(rest.strip_suffix('}').ok_or_else(|| fault("labels without an end"))?))
        }
    };
    if !is_name(name) {
        return Err(fault("a bad name"));
    }
    let mut found = BTreeMap::new();
    // No value of ours has a quote or a backslash.
    let mut rest = labels.unwrap_or_default();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").ok_or_else(|| fault("a bad label"))?;
        let (value, after) = after.split_once('"').ok_or_else(|| fault("a value that is open"))?;
        if !is_name(label) || label.starts_with("__") || value.contains('\\') {
            return Err(fault("a bad label"));
        }
        if found.insert(label.to_owned(), value.to_owned()).is_some() {
            return Err(fault("a label twice"));
        }
        rest = match after.strip_prefix(',') {
            Some(more) if !more.is_empty() => more,
            None if after.is_empty() => after,
            _ => return Err(fault("something between labels")),
        };
    }
    Ok((name.to_owned(), found, value))
}

#[test]
fn faults_of_the_format_are_found() {
    let head = "# HELP a_total h\n# TYPE a_total counter\n";
    let good = format!("{head}a_total{{x=\"1\",y=\"b c\"}} 1\na_total 2.5\n");
    let read = Exposition::check(&good).unwrap();
    assert_eq!((read.sum("a_total", &[]), read.sum("a_total", &[("x", "1")])), (3.5, 1.0));
    let bad = [
        "a_total 1\n".to_owned(),
        "# HELP a h\n# TYPE a counter\na 1\n".to_owned(),
        "# HELP a_total h\n# TYPE a_total gauge\na_total 1\n".to_owned(),
        format!("{head}a_total 1\na_total 1\n"),
        format!("{head}a_total 1"),
        format!("{head}a_total one\n"),
        format!("{head}b_total 1\n"),
        format!("{head}a_total{{x=1}} 1\n"),
        format!("{head}a_total{{x=\"1\",}} 1\n"),
        format!("{head}a_total{{x=\"1\" 1\n"),
        format!("{head}a_total 1\n# HELP b h\n# TYPE b gauge\nb 1\n{head}"),
    ];
    for text in bad {
        assert!(Exposition::check(&text).is_err(), "{text}");
    }
}

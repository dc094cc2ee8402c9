//! The report as JSON within the page. Figures and downloads are made from it.

use serde_json::{Map, Value, json};

use crate::report::model::Report;
use crate::report::model::claim::{ClaimReport, RowReport};
use crate::report::model::words;

/// Significant digits of raw values on the page. The CSV tables beside the page have all digits.
const DIGITS: i32 = 6;

/// The parts of an experiment that the page's script needs. The rest is in the page as text.
const NEEDED: [&str; 8] =
    ["id", "title", "subjects", "factors", "metrics", "cells", "figures", "samples"];

/// The data as JSON that cannot close its HTML element.
pub(super) fn embed(report: &Report) -> String {
    let experiments = report.experiments.iter().map(|one| {
        let value = serde_json::to_value(one).unwrap_or_default();
        let Value::Object(all) = value else { return Value::Null };
        let mut kept: Map<String, Value> =
            all.into_iter().filter(|(name, _)| NEEDED.contains(&name.as_str())).collect();
        for name in ["samples", "cells"] {
            if let Some(part) = kept.get_mut(name) {
                shorten(part);
            }
        }
        kept.insert("claims".to_owned(), one.claims.iter().map(effects).collect());
        Value::Object(kept)
    });
    let mut data = Map::new();
    data.insert("schema".to_owned(), report.schema.into());
    let marks = words::MARKS.iter().filter_map(|mark| {
        let name = serde_json::to_value(mark).ok()?;
        Some((name.as_str()?.to_owned(), words::mark(*mark).into()))
    });
    data.insert("marks".to_owned(), Value::Object(marks.collect()));
    data.insert("is_complete".to_owned(), report.session.is_complete.into());
    data.insert("experiments".to_owned(), experiments.collect());
    harmless(&Value::Object(data).to_string())
}

/// What a drawing of a claim's effects needs.
fn effects(claim: &ClaimReport) -> Value {
    let row = |(at, row): (usize, &RowReport)| {
        let label: Vec<String> = [row.subject_words(), row.place.clone()]
            .into_iter()
            .filter(|it| !it.is_empty())
            .collect();
        json!({
            "label": label.join(", "),
            "value": row.interval.map(|it| it.value),
            "low": row.interval.map(|it| it.low).filter(|_| row.bound.bounds_below()),
            "high": row.interval.map(|it| it.high),
            "published": row.published,
            "tone": row.verdict.tone,
            "decides": claim.deciding == Some(at),
        })
    };
    let rows = claim.rows.iter().enumerate().map(row);
    let also = claim.also.iter().map(|it| row((usize::MAX, it)));
    let mut value = json!({
        "above": claim.above, "below": claim.below, "null": claim.null, "is_log": claim.is_log,
        "metric": claim.metric, "cells": claim.deciding_row().map(|row| row.cells.clone()),
        "rows": rows.chain(also).filter(|row| !row["value"].is_null()).collect::<Vec<_>>(),
    });
    shorten(&mut value);
    value
}

/// JSON without the characters that HTML, or old versions of JavaScript, would interpret.
fn harmless(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Rounds every number to [`DIGITS`] digits.
fn shorten(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let Some(exact) = number.as_f64().filter(|it| *it != 0.0 && it.fract() != 0.0) else {
                return;
            };
            let places = (DIGITS - 1 - exact.abs().log10().floor() as i32).clamp(0, 15) as usize;
            if let Ok(short) = format!("{exact:.places$}").parse::<f64>() {
                *value = short.into();
            }
        }
        Value::Array(all) => all.iter_mut().for_each(shorten),
        Value::Object(all) => all.values_mut().for_each(shorten),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_values_keep_six_digits() {
        let mut value = json!([1_234.567_891, 0.000_123_456_789, 3, "x", null, { "a": 0.1 }]);
        shorten(&mut value);
        assert_eq!(value, json!([1234.57, 0.000_123_457, 3, "x", null, { "a": 0.1 }]));
    }

    #[test]
    fn nothing_in_the_data_is_html() {
        let text = harmless(&json!("</script><!--&\u{2028}").to_string());
        assert!(!text.contains(['<', '>', '&', '\u{2028}']));
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), "</script><!--&\u{2028}");
    }
}

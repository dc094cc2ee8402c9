//! The reference of the experiment file as text, generated from its schema and from the table of metrics.

use std::fmt::Write;

use serde_json::Value as Json;

use crate::spec::experiment::Experiment;
use crate::spec::metric::{self, Better, InstrumentName};
use crate::spec::schema;

/// The tables of an experiment file, in the order of the reference: the name of the type, and the heading with its
/// place in a file.
const TABLES: &[(&str, &str)] = &[
    ("SubjectSpec", "`[subject.NAME]`"),
    ("ProtocolKeys", "`tls = { ... }` and `http2 = { ... }` of a subject"),
    ("Waiters", "`waiters = { ... }` of a subject"),
    ("Pipes", "`pipes = { ... }` of a subject"),
    ("LimitSettings", "`limits = { ... }` of a subject"),
    ("ReadyRequest", "`ready = { ... }` of a subject"),
    ("Factor", "`[factor.NAME]`"),
    ("Case", "`[[case]]`"),
    ("PoolSpec", "`[pool.NAME]`"),
    ("LoadSpec", "`[load]`"),
    ("Http", "`[load.http]`"),
    ("Connects", "`[load.connects]`"),
    ("TokenSpec", "`[load.tokens]`"),
    ("LoadCommand", "`[load.command]`"),
    ("OutputPlace", "a place in a generator's output"),
    ("Background", "`[background]`"),
    ("LimitedWire", "`wire = { ... }`"),
    ("Phases", "`[phases]`"),
    ("Warmup", "`warmup = { ... }` of the phases"),
    ("Measure", "`measure = { ... }` of the phases"),
    ("Metric", "`[metric.NAME]`"),
    ("SlowShare", "`share = { ... }` of a metric"),
    ("Claim", "`[[claim]]`"),
    ("Region", "`holds = { ... }` of a claim"),
    ("PublishedData", "`published = { ... }` of a claim or a figure"),
    ("PublishedValue", "a row of published values"),
    ("Figure", "`[[figure]]`"),
    ("Preset", "`[presets.NAME]`"),
];

/// Every key, table by table.
#[must_use]
pub fn keys() -> String {
    let schema = schema::experiment();
    let mut text = String::new();
    section(&mut text, "The top of the file", schema);
    for (name, heading) in TABLES {
        section(&mut text, heading, &schema["$defs"][name]);
    }
    text
}

/// Every kind of effect.
#[must_use]
pub fn effects() -> String {
    let schema = schema::experiment();
    let mut text =
        String::from("| kind | further keys | what | nothing there |\n|---|---|---|---|\n");
    for branch in schema["$defs"]["Effect"]["anyOf"].as_array().into_iter().flatten() {
        let name = branch["$ref"].as_str().unwrap_or_default().trim_start_matches("#/$defs/");
        let effect = &schema["$defs"][name];
        let required: Vec<&str> =
            effect["required"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
        let kind = required.first().copied().unwrap_or_default();
        let properties = effect["properties"].as_object().into_iter().flatten();
        let optional =
            properties.map(|(key, _)| key.as_str()).filter(|key| !required.contains(key));
        let mut keys: Vec<String> = required[1..].iter().map(|key| format!("`{key}`")).collect();
        keys.extend(optional.map(|key| format!("(`{key}`)")));
        let null = match kind {
            "value" => "–",
            "exponent" => "0",
            "knee" => "1 (with `against`)",
            _ => "1",
        };
        let what = cell(&branch["description"]);
        writeln!(text, "| `{kind}` | {} | {what} | {null} |", keys.join(", "))
            .expect("it is memory");
    }
    text
}

/// Every built-in metric.
#[must_use]
pub fn metrics() -> String {
    let mut text = String::from("| metric | unit | better | what |\n|---|---|---|---|\n");
    for metric in metric::BUILT_IN {
        let better = match metric.better {
            Better::Higher => "higher",
            Better::Lower => "lower",
        };
        let needs = metric.needs.map(|it| format!(" Needs the instrument `{}`.", instrument(it)));
        let needs = needs.unwrap_or_default();
        let (name, unit, what) = (metric.name, metric.unit, metric.summary);
        writeln!(text, "| `{name}` | {unit} | {better} | {what}{needs} |").expect("it is memory");
    }
    text
}

/// Every built-in experiment with its claims.
#[must_use]
pub fn experiments(all: &[Experiment]) -> String {
    let mut text = String::from("| experiment | question | claims |\n|---|---|---|\n");
    for experiment in all {
        let ids: Vec<&str> = experiment.claim.iter().map(|claim| claim.id.as_str()).collect();
        let question = experiment.question.as_deref().unwrap_or_default();
        let (id, ids) = (&experiment.id, ids.join(", "));
        writeln!(text, "| `{id}` | {question} | {ids} |").expect("it is memory");
    }
    text
}

fn instrument(instrument: InstrumentName) -> String {
    let name = serde_json::to_value(instrument).expect("it is a name");
    name.as_str().unwrap_or_default().to_owned()
}

/// A heading, the description of the table, and its keys; required keys come first.
fn section(text: &mut String, heading: &str, schema: &Json) {
    let description = schema["description"].as_str().unwrap_or_default();
    write!(text, "### {heading}\n\n{description}\n\n| key | value | what |\n|---|---|---|\n")
        .expect("it is memory");
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    let properties = schema["properties"].as_object();
    let mut keys: Vec<(&String, &Json)> = properties.into_iter().flatten().collect();
    keys.sort_by_key(|(key, _)| !required.contains(&key.as_str()));
    for (key, property) in keys {
        let needed = if required.contains(&key.as_str()) { " (needed)" } else { "" };
        let (kind, what) = (words(property), cell(&property["description"]));
        writeln!(text, "| `{key}`{needed} | {kind} | {what} |").expect("it is memory");
    }
    if schema["additionalProperties"].is_object() {
        let kind = words(&schema["additionalProperties"]);
        writeln!(text, "| any other | {kind} | The level of the factor of that name. |")
            .expect("it is memory");
    }
    text.push('\n');
}

/// A description as a table's cell.
fn cell(description: &Json) -> String {
    description.as_str().unwrap_or_default().replace("\n\n", " ").replace('|', "\\|")
}

/// The kind of a value, in words.
fn words(schema: &Json) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return of_type(reference.trim_start_matches("#/$defs/"));
    }
    let kinds = match &schema["type"] {
        Json::Array(kinds) => kinds.iter().filter_map(Json::as_str).collect(),
        Json::String(kind) => vec![kind.as_str()],
        _ => Vec::new(),
    };
    let one = |kind: &str| match kind {
        "string" => "text".to_owned(),
        "number" => "number".to_owned(),
        "integer" => "whole number".to_owned(),
        "boolean" => "true or false".to_owned(),
        "array" => format!("list of {}", words(&schema["items"])),
        _ => format!("table of {}", words(&schema["additionalProperties"])),
    };
    kinds.into_iter().map(one).collect::<Vec<_>>().join(" or ")
}

/// A type of the format in words: a scalar by its written form, a table by its section.
fn of_type(name: &str) -> String {
    let words = match name {
        "CountSetting" => "whole number or `\"{factor}\"`",
        "TimeSetting" => "time, `\"300ms\"`, or `\"{factor}\"`",
        "SizeSetting" => "bytes, `4096`, `\"64K\"`, or `\"{factor}\"`",
        "SwitchSetting" => "true or false, or `\"{factor}\"`",
        "Setting" => "number or text",
        "Level" => "number or text",
        "Levels" => "a level or a list of levels",
        "Side" => "a subject, a list of subjects (every one), or `{ best = [...] }`",
        "Effect" => "an effect, see below",
        "Published" => "a list of rows, or a table",
        "PublishedEffect" => "number, or a list of two numbers",
        "Pick" => "a JSON pointer, or a place",
        "WireSpec" => "`\"loopback\"`, a rate as in `\"100mbit\"`, or `\"{factor}\"`",
        "By" => "`\"document\"` or `\"ours\"`",
        "Better" => "`\"higher\"` or `\"lower\"`",
        "AxisScale" => "`\"linear\"` or `\"log\"`",
        "Which" => "`\"every\"`, `\"some\"` or `\"mean\"`",
        "Until" => "`\"steady\"`, `\"connected\"` or `\"nothing\"`",
        "Each" => "`\"dispatch\"`, `\"accept\"` or `\"files\"`",
        "WaitersAs" => "`\"threads\"` or `\"processes\"`",
        "FormatVersion" => "`\"drover.experiment/2\"`",
        "InstrumentName" => {
            "`\"idle-counter\"`, `\"idle-guard\"`, `\"stages\"`, `\"counters\"`, `\"scheduler\"` or `\"disk\"`"
        }
        "Stage" => {
            "`\"stat\"`, `\"queue\"`, `\"read\"`, `\"return\"`, `\"write\"`, `\"total\"` or `\"longest\"`"
        }
        _ => return table(name),
    };
    words.to_owned()
}

fn table(name: &str) -> String {
    TABLES
        .iter()
        .find(|(known, _)| *known == name)
        .map_or_else(|| name.to_owned(), |(_, heading)| format!("table, see {heading}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every type of the schema has a section, or words of its own.
    #[test]
    fn the_reference_has_words_for_every_type() {
        let schema = schema::experiment();
        let effects = [
            "ValueEffect",
            "RatioEffect",
            "ChangeEffect",
            "ProfileEffect",
            "ExponentEffect",
            "OfferedEffect",
            "KneeEffect",
            "PeakEffect",
            "SpreadEffect",
            "Best",
        ];
        for name in schema["$defs"].as_object().unwrap().keys() {
            assert!(of_type(name) != *name || effects.contains(&name.as_str()), "{name}");
        }
    }
}

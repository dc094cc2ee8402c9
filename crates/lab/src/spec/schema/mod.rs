//! The JSON Schema of experiment files, derived from their types.

pub mod reference;

use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::spec::experiment::{Experiment, Fragment};

/// The schema of an experiment file.
#[must_use]
pub fn experiment() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| of(schemars::schema_for!(Experiment)));
    &SCHEMA
}

/// The schema of a file that experiments include.
#[must_use]
pub fn fragment() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| of(schemars::schema_for!(Fragment)));
    &SCHEMA
}

/// The text of the schema file that editors use.
#[must_use]
pub fn text() -> String {
    let mut text = serde_json::to_string_pretty(experiment()).expect("a schema is JSON");
    text.push('\n');
    text
}

fn of(schema: schemars::Schema) -> Value {
    let mut schema = schema.to_value();
    simplify(&mut schema);
    schema
}

/// Removes null, which TOML does not have (serde reads a missing key as null). Replaces line ends in descriptions,
/// which come from the source, by spaces.
fn simplify(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(simplify),
        Value::Object(object) => {
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [only] = &types[..] {
                    object["type"] = only.clone();
                }
            }
            if let Some(Value::Array(branches)) = object.get_mut("anyOf") {
                branches.retain(|branch| branch["type"] != "null");
                if branches.len() == 1 {
                    let only = branches.remove(0);
                    object.remove("anyOf");
                    add(object, only);
                }
            }
            if let Some(Value::String(text)) = object.get_mut("description") {
                let paragraphs = text.split("\n\n").map(|it| it.replace('\n', " "));
                *text = paragraphs.collect::<Vec<_>>().join("\n\n");
            }
            object.values_mut().for_each(simplify);
        }
        _ => {}
    }
}

/// Adds the keys of `other` that `object` does not have.
fn add(object: &mut Map<String, Value>, other: Value) {
    if let Value::Object(other) = other {
        for (key, value) in other {
            object.entry(key).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_no_null() {
        // A claim has a key of this name.
        let text = text();
        assert_eq!(text.matches("\"null\"").count(), text.matches("\"null\":").count());
    }
}

//! Checks a document against the schema of experiment files, and finds every fault of its shape at once.

use serde_json::Value as Json;

use crate::document::{Fault, Node, Type, Value, listed, nearest, suggestion};
use crate::spec::load;
use crate::spec::metric;
use crate::spec::pool;
use crate::spec::setting;

/// Checks `root` against `schema`, a schema of this module's `schema`.
pub(super) fn check(root: &Node, schema: &Json) -> Vec<Fault> {
    let mut walk = Walk { schema, faults: Vec::new() };
    walk.value(root, schema, "the experiment");
    walk.faults
}

struct Walk<'a> {
    schema: &'a Json,
    faults: Vec<Fault>,
}

impl<'a> Walk<'a> {
    /// The schema itself where it is a reference.
    fn resolved(&self, schema: &'a Json) -> &'a Json {
        let mut schema = schema;
        while let Some(reference) = schema["$ref"].as_str() {
            let pointer = reference.trim_start_matches('#');
            let Some(found) = self.schema.pointer(pointer) else { break };
            schema = found;
        }
        schema
    }

    /// Checks a value; `name` is the key that has it.
    fn value(&mut self, node: &Node, schema: &'a Json, name: &str) {
        let schema = self.resolved(schema);
        let names = texts_allowed(schema);
        if !names.is_empty() {
            return self.one_of_names(node, &names, name);
        }
        let branches = branches(schema);
        if !branches.is_empty() {
            return self.union(node, &branches, name);
        }
        let types = types(schema);
        if !types.is_empty() && !types.iter().any(|kind| fits(*kind, node.kind())) {
            return self.wrong_type(node, &types, &schema["format"], name);
        }
        match &node.value {
            Value::Table(_) => self.table(node, schema, name),
            Value::List(items) => {
                self.length(node, items.len(), schema, name);
                for item in items {
                    self.value(item, &schema["items"], name);
                }
            }
            Value::Text(text) => {
                if let Err(fault) = form(text, schema["format"].as_str().unwrap_or_default()) {
                    self.faults.push(node.place.fault(format!("{name}: {fault}")));
                }
            }
            Value::Number(_) | Value::Integer(_) => self.number(node, schema, name),
            Value::Bool(_) | Value::Date => {}
        }
    }

    fn wrong_type(&mut self, node: &Node, types: &[Type], format: &Json, name: &str) {
        let words = match format.as_str() {
            Some("time") => "a length of time, as in \"300ms\"".to_owned(),
            Some("count") => "a whole number, or \"{factor}\"".to_owned(),
            Some("size") => "a number of bytes, as in 4096 or \"64K\"".to_owned(),
            Some("switch") => "true, false, or \"{factor}\"".to_owned(),
            _ => types.iter().map(|kind| kind.words()).collect::<Vec<_>>().join(" or "),
        };
        let message = format!("{name} is {words}, not {}", node.kind().words());
        self.faults.push(node.place.fault(message));
    }

    fn one_of_names(&mut self, node: &Node, names: &[&str], name: &str) {
        match node.text() {
            Some(text) if names.contains(&text) => {}
            Some(text) => {
                let suggestion = suggestion(text, names.iter().copied());
                let message = format!("{name} cannot be '{text}'{suggestion}");
                self.faults.push(node.place.fault(message));
            }
            None => {
                let message =
                    format!("{name} is one of {}, not {}", listed(names), node.kind().words());
                self.faults.push(node.place.fault(message));
            }
        }
    }

    /// Checks a value that may have one of several shapes: the shape of its type, or, for a table, the only shape
    /// that has one of the table's keys.
    fn union(&mut self, node: &Node, branches: &[&'a Json], name: &str) {
        let fitting: Vec<&Json> =
            branches.iter().copied().filter(|it| self.accepts(it, node.kind())).collect();
        match &fitting[..] {
            [] => {
                let mut all: Vec<Type> = branches.iter().flat_map(|it| self.types_of(it)).collect();
                all.dedup();
                self.wrong_type(node, &all, &Json::Null, name);
            }
            [only] => self.value(node, only, name),
            [first, ..] if node.kind() != Type::Table => self.value(node, first, name),
            several => self.table_union(node, several, name),
        }
    }

    fn table_union(&mut self, node: &Node, branches: &[&'a Json], name: &str) {
        let keys = |it: &'a Json| keys(self.resolved(it));
        let marks: Vec<(&str, &Json)> = branches
            .iter()
            .filter_map(|it| {
                let others = || branches.iter().filter(|other| !std::ptr::eq(**other, *it));
                let is_mark = |key: &&str| !others().any(|other| keys(other).contains(key));
                Some((required(self.resolved(it)).into_iter().find(is_mark)?, *it))
            })
            .collect();
        let present: Vec<&(&str, &Json)> =
            marks.iter().filter(|(mark, _)| node.entry(mark).is_some()).collect();
        match &present[..] {
            [(_, branch)] => self.value(node, branch, name),
            [] => {
                let marks: Vec<&str> = marks.iter().map(|(mark, _)| *mark).collect();
                let known: Vec<&str> = branches.iter().flat_map(|it| keys(it)).collect();
                let unknown = node.entries().find(|(key, _)| !known.contains(&key.as_str()));
                let fault = match unknown {
                    Some((key, entry)) => entry.key.fault(format!(
                        "unknown key '{key}' of {name}{}",
                        suggestion(key, marks.iter().copied())
                    )),
                    None => {
                        node.place.fault(format!("{name} has one of the keys {}", listed(&marks)))
                    }
                };
                self.faults.push(fault);
            }
            [_, (second, _), ..] => {
                let present: Vec<&str> = present.iter().map(|(mark, _)| *mark).collect();
                let place = node.entry(second).map_or(&node.place, |entry| &entry.key);
                let message = format!("{name} has {}: only one of these", listed(&present));
                self.faults.push(place.fault(message));
            }
        }
    }

    fn table(&mut self, node: &Node, schema: &'a Json, name: &str) {
        let properties = &schema["properties"];
        let others = &schema["additionalProperties"];
        // Keys that unknown keys probably mean. These do not count as missing.
        let mut meant = Vec::new();
        for (key, entry) in node.entries() {
            if let Some(property) = properties.get(key) {
                self.value(&entry.node, property, key);
            } else if others.is_object() {
                self.value(&entry.node, others, &format!("{name} '{key}'"));
            } else {
                meant.extend(nearest(key, keys(schema)));
                let suggestion = suggestion(key, keys(schema));
                let message = format!("unknown key '{key}' of {name}{suggestion}");
                self.faults.push(entry.key.fault(message));
            }
        }
        for key in required(schema) {
            if node.entry(key).is_none() && !meant.contains(&key) {
                let what = first_sentence(&properties[key]["description"]);
                let what = what.map(|what| format!(" ({what})")).unwrap_or_default();
                let message = format!("{name} needs the key '{key}'{what}");
                self.faults.push(node.place.fault(message));
            }
        }
        self.alternatives(node, &schema["oneOf"], true, &meant, name);
        self.alternatives(node, &schema["anyOf"], false, &meant, name);
    }

    /// Checks that one of the keys exists, or is in `meant`. With `only`, checks that no second one exists.
    fn alternatives(
        &mut self,
        node: &Node,
        list: &'a Json,
        only: bool,
        meant: &[&str],
        name: &str,
    ) {
        let keys: Vec<&str> = list.as_array().into_iter().flatten().flat_map(required).collect();
        if keys.is_empty() {
            return;
        }
        let present: Vec<&str> =
            keys.iter().copied().filter(|key| node.entry(key).is_some()).collect();
        match &present[..] {
            [] if keys.iter().any(|key| meant.contains(key)) => {}
            [] => {
                let message = format!("{name} needs one of the keys {}", listed(&keys));
                self.faults.push(node.place.fault(message));
            }
            [_, second, ..] if only => {
                let place = node.entry(second).map_or(&node.place, |entry| &entry.key);
                let message = format!("{name} has {}: only one of these", listed(&present));
                self.faults.push(place.fault(message));
            }
            _ => {}
        }
    }

    fn length(&mut self, node: &Node, length: usize, schema: &Json, name: &str) {
        let bound = |key: &str| schema[key].as_u64().and_then(|bound| usize::try_from(bound).ok());
        let (least, most) = (bound("minItems").unwrap_or(0), bound("maxItems"));
        if length < least || most.is_some_and(|most| length > most) {
            let wanted = match most {
                Some(most) if most == least => format!("{most}"),
                Some(most) => format!("{least} to {most}"),
                None => format!("at least {least}"),
            };
            let message = format!("{name} is a list of {wanted}, not of {length}");
            self.faults.push(node.place.fault(message));
        }
    }

    fn number(&mut self, node: &Node, schema: &Json, name: &str) {
        let Some(number) = node.number() else { return };
        let format = schema["format"].as_str().unwrap_or_default();
        let least = schema["minimum"].as_f64().or(match format {
            "count" | "size" | "switch" => Some(0.0),
            _ => None,
        });
        let most = schema["maximum"].as_f64().or((format == "switch").then_some(1.0));
        let message = match (least, most) {
            (Some(least), _) if number < least => format!("{name} is at least {least}"),
            (_, Some(most)) if number > most => format!("{name} is at most {most}"),
            _ => return,
        };
        self.faults.push(node.place.fault(format!("{message}, not {number}")));
    }

    /// Whether a value of this type can have the schema's shape.
    fn accepts(&self, schema: &'a Json, kind: Type) -> bool {
        self.types_of(schema).iter().any(|allowed| fits(*allowed, kind))
    }

    /// The types that a schema allows, those of its branches included.
    fn types_of(&self, schema: &'a Json) -> Vec<Type> {
        let schema = self.resolved(schema);
        if !texts_allowed(schema).is_empty() {
            return vec![Type::Text];
        }
        let branches = branches(schema);
        if branches.is_empty() {
            return types(schema);
        }
        branches.into_iter().flat_map(|branch| self.types_of(branch)).collect()
    }
}

/// Whether a value of the kind `found` is one of the kind `allowed`.
fn fits(allowed: Type, found: Type) -> bool {
    allowed == found || (allowed == Type::Number && found == Type::Integer)
}

/// The types that a schema names itself.
fn types(schema: &Json) -> Vec<Type> {
    let names: Vec<&str> = match &schema["type"] {
        Json::String(name) => vec![name],
        Json::Array(names) => names.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    };
    let kind = |name| match name {
        "string" => Some(Type::Text),
        "number" => Some(Type::Number),
        "integer" => Some(Type::Integer),
        "boolean" => Some(Type::Bool),
        "array" => Some(Type::List),
        "object" => Some(Type::Table),
        _ => None,
    };
    names.into_iter().filter_map(kind).collect()
}

/// The shapes of a union; none if `anyOf` only says which keys are required.
fn branches(schema: &Json) -> Vec<&Json> {
    let all = schema["anyOf"].as_array().into_iter().flatten();
    all.filter(|branch| !branch["$ref"].is_null() || !branch["type"].is_null()).collect()
}

/// The texts that a value may have, if the schema lists them.
fn texts_allowed(schema: &Json) -> Vec<&str> {
    let single = |it: &'_ Json| it["const"].as_str().is_some() || it["enum"].is_array();
    let listed = schema["oneOf"].as_array().map(Vec::as_slice).unwrap_or_default();
    let all = if listed.iter().any(single) { listed } else { std::slice::from_ref(schema) };
    let mut texts = Vec::new();
    for schema in all {
        texts.extend(schema["const"].as_str());
        texts.extend(schema["enum"].as_array().into_iter().flatten().filter_map(Json::as_str));
    }
    texts
}

/// The keys that a schema names.
fn keys(schema: &Json) -> Vec<&str> {
    let properties = schema["properties"].as_object();
    properties.into_iter().flat_map(|it| it.keys().map(String::as_str)).collect()
}

/// The keys that have to be there.
fn required(schema: &Json) -> Vec<&str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str).collect()
}

/// The first sentence of a description, without its full stop and in lower case.
fn first_sentence(description: &Json) -> Option<String> {
    let text = description.as_str()?;
    let end = text.find(". ").or(text.find(".\n")).unwrap_or(text.trim_end_matches('.').len());
    let mut characters = text[..end].chars();
    let first = characters.next()?;
    Some(first.to_lowercase().chain(characters).collect())
}

/// Checks a text of a certain form. A text with placeholders is checked when they are filled in.
fn form(text: &str, form: &str) -> Result<(), String> {
    let is_filled_later = !setting::placeholders(text).is_empty();
    match form {
        _ if is_filled_later => Ok(()),
        "count" => setting::count(text).map(drop),
        "time" => setting::time(text).map(drop),
        "size" => setting::size(text).map(drop),
        "switch" => setting::switch(text).map(drop),
        "disk" => pool::disk_named(text).map(drop),
        "wire" => load::wire(text).map(drop),
        "origin" => metric::origin(text).map(drop),
        "pointer" if !text.starts_with('/') => {
            Err(format!("'{text}' is no JSON pointer; write one as in \"/latency/p99\""))
        }
        _ => Ok(()),
    }
}

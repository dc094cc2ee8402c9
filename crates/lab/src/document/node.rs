//! A TOML document as a tree. Every key and value has its location.

use std::rc::Rc;

use indexmap::IndexMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Fault, Location, SourceText};

/// A value with its location.
#[derive(Clone, Debug)]
pub struct Node {
    /// The location in the source.
    pub place: Location,
    /// The value.
    pub value: Value,
}

/// The value of a node.
#[derive(Clone, Debug)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number with a fraction or an exponent.
    Number(f64),
    /// A whole number.
    Integer(i64),
    /// True or false.
    Bool(bool),
    /// A date or a time of day. No key takes one.
    Date,
    /// Values, in their order.
    List(Vec<Node>),
    /// Entries by key, in their order.
    Table(IndexMap<String, KeyEntry>),
}

/// A key's location, and its value.
#[derive(Clone, Debug)]
pub struct KeyEntry {
    /// The location of the key.
    pub key: Location,
    /// The value.
    pub node: Node,
}

/// The kinds of values, as JSON Schema calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// [`Value::Text`].
    Text,
    /// [`Value::Number`].
    Number,
    /// [`Value::Integer`].
    Integer,
    /// [`Value::Bool`].
    Bool,
    /// [`Value::Date`].
    Date,
    /// [`Value::List`].
    List,
    /// [`Value::Table`].
    Table,
}

impl Type {
    /// The kind in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Type::Text => "a text",
            Type::Number => "a number",
            Type::Integer => "a whole number",
            Type::Bool => "true or false",
            Type::Date => "a date",
            Type::List => "a list",
            Type::Table => "a table",
        }
    }
}

impl Node {
    /// Reads a document.
    ///
    /// # Errors
    /// All faults of its syntax.
    pub fn parse(source: &Rc<SourceText>) -> Result<Node, Vec<Fault>> {
        let (table, errors) = DeTable::parse_recoverable(&source.text);
        let place = |span| Location { source: Rc::clone(source), span };
        let first = errors.iter().filter_map(|error| error.span()).map(|span| span.start).min();
        // After a list without an end, the parser reads the rest as values of the list, and reports dozens of false
        // faults.
        if errors.iter().any(|error| error.message().contains("unclosed array"))
            && let Some(open) = first.and_then(|first| source.text.get(..first)?.rfind('['))
        {
            let message = "this list has no end: write ']' behind its last value";
            return Err(vec![place(open..open + 1).fault(message)]);
        }
        let mut faults: Vec<Fault> = errors
            .iter()
            .map(|error| place(error.span().unwrap_or(0..0)).fault(error.message()))
            .collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        let value = table_of(table.get_ref(), source, &mut faults);
        if faults.is_empty() { Ok(Node { place: place(0..0), value }) } else { Err(faults) }
    }

    /// The kind of its value.
    #[must_use]
    pub fn kind(&self) -> Type {
        match self.value {
            Value::Text(_) => Type::Text,
            Value::Number(_) => Type::Number,
            Value::Integer(_) => Type::Integer,
            Value::Bool(_) => Type::Bool,
            Value::Date => Type::Date,
            Value::List(_) => Type::List,
            Value::Table(_) => Type::Table,
        }
    }

    /// The entries, if it is a table.
    pub fn entries(&self) -> impl Iterator<Item = (&String, &KeyEntry)> {
        let table = match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        };
        table.into_iter().flatten()
    }

    /// The entry with that key, if it is a table that has one.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&KeyEntry> {
        match &self.value {
            Value::Table(table) => table.get(key),
            _ => None,
        }
    }

    /// The value of that key, if it is a table that has one.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    /// The items, if it is a list.
    #[must_use]
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self.value {
            Value::Number(number) => Some(number),
            Value::Integer(number) => Some(number as f64),
            _ => None,
        }
    }

    /// The keys, if it is a table.
    #[must_use]
    pub fn keys(&self) -> Vec<&str> {
        self.entries().map(|(key, _)| key.as_str()).collect()
    }

    /// Every text in the node, without keys.
    pub(crate) fn texts(&self) -> Vec<(&str, &Location)> {
        match &self.value {
            Value::Text(text) => vec![(text, &self.place)],
            Value::List(items) => items.iter().flat_map(Node::texts).collect(),
            Value::Table(table) => table.values().flat_map(|entry| entry.node.texts()).collect(),
            _ => Vec::new(),
        }
    }

    /// The value without locations, for serde. A date becomes an empty text; dates are refused before.
    pub(crate) fn plain(&self) -> toml::Value {
        match &self.value {
            Value::Text(text) => toml::Value::String(text.clone()),
            Value::Number(number) => toml::Value::Float(*number),
            Value::Integer(number) => toml::Value::Integer(*number),
            Value::Bool(whether) => toml::Value::Boolean(*whether),
            Value::Date => toml::Value::String(String::new()),
            Value::List(items) => toml::Value::Array(items.iter().map(Node::plain).collect()),
            Value::Table(table) => {
                let entries = table.iter().map(|(key, entry)| (key.clone(), entry.node.plain()));
                toml::Value::Table(entries.collect())
            }
        }
    }
}

fn table_of(table: &DeTable<'_>, source: &Rc<SourceText>, faults: &mut Vec<Fault>) -> Value {
    let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>), faults: &mut Vec<Fault>| {
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        let place = Location { source: Rc::clone(source), span: key.span() };
        (name.to_string(), KeyEntry { key: place, node: node_of(value, source, faults) })
    };
    Value::Table(table.iter().map(|pair| entry(pair, faults)).collect())
}

fn node_of(value: &Spanned<DeValue<'_>>, source: &Rc<SourceText>, faults: &mut Vec<Fault>) -> Node {
    let place = Location { source: Rc::clone(source), span: value.span() };
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(whether) => Value::Bool(*whether),
        DeValue::Datetime(_) => Value::Date,
        DeValue::Array(items) => {
            Value::List(items.iter().map(|item| node_of(item, source, faults)).collect())
        }
        DeValue::Table(table) => table_of(table, source, faults),
        DeValue::Integer(integer) => {
            let parsed = i64::from_str_radix(integer.as_str(), integer.radix());
            Value::Integer(parsed.unwrap_or_else(|_| {
                faults.push(place.fault(format!("{integer} is too large a number")));
                0
            }))
        }
        DeValue::Float(float) => {
            let number: f64 = float.as_str().parse().unwrap_or(f64::NAN);
            if !number.is_finite() {
                faults.push(place.fault(format!("{float} is no finite number")));
            }
            Value::Number(number)
        }
    };
    Node { place, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Node, Vec<String>> {
        let source = Rc::new(SourceText { name: "f.toml".into(), text: text.into() });
        Node::parse(&source).map_err(|faults| faults.iter().map(Fault::to_string).collect())
    }

    #[test]
    fn every_value_knows_its_place() {
        let root = parse("a = 1\n[b]\nc = ['x', 2.5]\n").unwrap();
        let item = &root.get("b").unwrap().get("c").unwrap().items()[1];
        assert_eq!(item.number(), Some(2.5));
        assert_eq!(item.place.fault("m").to_string(), "f.toml:3:11: m");
        assert_eq!(root.entry("b").unwrap().key.fault("m").line, 2);
        assert_eq!(root.plain()["b"]["c"][0].as_str(), Some("x"));
    }

    #[test]
    fn a_list_without_an_end_is_one_fault_at_its_beginning() {
        for rest in ["b = 1\n[c]\nd = 'x'\n", "\n[[c]]\nd = [1]\ne = 2\n"] {
            let faults = parse(&format!("z = [1]\na = [4, 32\n{rest}")).unwrap_err();
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(
                faults[0].starts_with("f.toml:2:5: ") && faults[0].contains("']'"),
                "{faults:?}"
            );
        }
    }

    #[test]
    fn all_faults_of_the_syntax_are_found() {
        let faults = parse("a = \nb = 1 2\nc = 3\nc = 4\n").unwrap_err();
        assert!(faults.len() >= 3, "{faults:?}");
        assert!(parse("a = nan").is_err() && parse("a = 99999999999999999999").is_err());
    }
}

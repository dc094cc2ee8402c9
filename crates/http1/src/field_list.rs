//! The fields of a response as a list of names and values, before a protocol writes them in its own form.

use std::fmt;
use std::iter::FusedIterator;

/// Names and values, in the order in which they are sent. A name may come several times.
///
/// Two vectors hold any number of fields, so that a list that is emptied and filled again allocates nothing.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FieldList {
    /// Each name with its value behind it, without anything between.
    text: Vec<u8>,
    /// Of each field, where its name and where its value ends in the text.
    ends: Vec<(usize, usize)>,
}

impl FieldList {
    /// Adds a field. Neither name nor value may hold CR or LF.
    pub fn push(&mut self, name: &str, value: &[u8]) -> &mut Self {
        self.push_with(name, |text| text.extend_from_slice(value))
    }

    /// Adds a field whose value `append` puts behind what is there.
    pub fn push_with(&mut self, name: &str, append: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        self.text.extend_from_slice(name.as_bytes());
        let end = self.text.len();
        append(&mut self.text);
        self.ends.push((end, self.text.len()));
        self
    }

    /// Adds all fields of another list.
    pub fn push_all(&mut self, other: &FieldList) -> &mut Self {
        let before = self.text.len();
        self.text.extend_from_slice(&other.text);
        self.ends.extend(other.ends.iter().map(|(name, value)| (before + name, before + value)));
        self
    }

    /// Removes all fields, and keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many bytes names and values have.
    #[must_use]
    pub fn size(&self) -> usize {
        self.text.len()
    }

    /// The names and values.
    #[must_use]
    pub fn iter(&self) -> FieldListIter<'_> {
        FieldListIter { text: &self.text, start: 0, ends: self.ends.iter() }
    }

    /// The values of the fields with this name, in upper or lower case.
    pub fn values<'l>(&'l self, wanted: &'l str) -> impl Iterator<Item = &'l [u8]> {
        self.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    }
}

impl<'l> IntoIterator for &'l FieldList {
    type Item = (&'l str, &'l [u8]);
    type IntoIter = FieldListIter<'l>;

    fn into_iter(self) -> FieldListIter<'l> {
        self.iter()
    }
}

impl<'l> FromIterator<(&'l str, &'l [u8])> for FieldList {
    fn from_iter<I: IntoIterator<Item = (&'l str, &'l [u8])>>(fields: I) -> FieldList {
        let mut list = FieldList::default();
        for (name, value) in fields {
            list.push(name, value);
        }
        list
    }
}

impl fmt::Debug for FieldList {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.iter().map(|(name, value)| (name, value.escape_ascii().to_string()));
        formatter.debug_map().entries(fields).finish()
    }
}

/// The names and values of a [`FieldList`].
#[derive(Clone, Debug)]
pub struct FieldListIter<'l> {
    text: &'l [u8],
    start: usize,
    ends: std::slice::Iter<'l, (usize, usize)>,
}

impl<'l> Iterator for FieldListIter<'l> {
    type Item = (&'l str, &'l [u8]);

    fn next(&mut self) -> Option<(&'l str, &'l [u8])> {
        let (name_end, end) = *self.ends.next()?;
        let name = &self.text[self.start..name_end];
        self.start = end;
        // What was pushed as a name was text.
        Some((str::from_utf8(name).unwrap_or_default(), &self.text[name_end..end]))
    }
}

impl FusedIterator for FieldListIter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_its_fields_in_their_order_and_finds_them_by_name() {
        let fields: [(&str, &[u8]); 4] =
            [("Vary", b"a"), ("X", b""), ("", b"z"), ("vary", b"\xff")];
        let list = FieldList::from_iter(fields);
        assert_eq!(list.iter().collect::<Vec<_>>(), fields);
        assert_eq!(list.values("VARY").collect::<Vec<_>>(), [&b"a"[..], b"\xff"]);
        let mut twice = list.clone();
        twice.push_all(&list);
        assert_eq!(twice.iter().collect::<Vec<_>>(), [fields, fields].concat());
        assert_eq!(twice.size(), 2 * list.size());
        twice.clear();
        assert!(twice.is_empty() && twice.iter().next().is_none());
        assert_eq!(format!("{list:?}"), r#"{"Vary": "a", "X": "", "": "z", "vary": "\\xff"}"#);
    }
}

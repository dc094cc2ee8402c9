//! Which list of a directory a request is for, and the name that it has while it is looked up.
//!
//! What is found of a name is told to all who wait for that name. So each list of a directory has a name of its own, which is
//! one more spelling of the directory's. No name of a file ends like one of them.

use drover_http1::{Method, Request};

/// How a list is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum ListForm {
    /// For people.
    #[default]
    Html,
    /// For programs that ask for it.
    Json,
}

/// What a request for a directory that is shown gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedList {
    pub(crate) form: ListForm,
    /// Whether only the head is sent: the directory is not read for it.
    pub(crate) is_head: bool,
}

impl ListForm {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            ListForm::Html => "text/html; charset=utf-8",
            ListForm::Json => "application/json",
        }
    }
}

impl WantedList {
    /// The list that the request is for, if its path is a directory's.
    pub(crate) fn of(request: &Request<'_>) -> WantedList {
        let form = if wants_json(request) { ListForm::Json } else { ListForm::Html };
        WantedList { form, is_head: request.method == Method::Head }
    }

    /// Puts the end of the list's name behind the name of its directory, beneath the root.
    pub(crate) fn push_end(self, name: &mut Vec<u8>) {
        if name.is_empty() {
            name.push(b'.');
        }
        name.extend_from_slice(match self.form {
            ListForm::Html => b"/",
            ListForm::Json => b"//",
        });
        if self.is_head {
            name.push(b'.');
        }
    }

    /// The list that a name is of, and the name of its directory, which is `.` for the root; `None`: it is the name of a file.
    pub(crate) fn of_name(name: &[u8]) -> Option<(WantedList, &[u8])> {
        let (name, is_head) = match name.strip_suffix(b"/.") {
            Some(_) => (&name[..name.len() - 1], true),
            None => (name, false),
        };
        let (directory, form) = match name.strip_suffix(b"//") {
            Some(directory) => (directory, ListForm::Json),
            None => (name.strip_suffix(b"/")?, ListForm::Html),
        };
        Some((WantedList { form, is_head }, directory))
    }
}

/// Whether a program asks, and not a browser: browsers name HTML.
fn wants_json(request: &Request<'_>) -> bool {
    let accepts = |wanted: &str| {
        let mut fields = request.fields().filter(|(name, _)| name.eq_ignore_ascii_case("Accept"));
        fields.any(|(_, value)| {
            value.windows(wanted.len()).any(|it| it.eq_ignore_ascii_case(wanted.as_bytes()))
        })
    };
    accepts("application/json") && !accepts("text/html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_has_a_name_of_its_own_that_says_what_it_is() {
        let mut names = Vec::new();
        for directory in [&b""[..], b"a", b"a/b", b"a."] {
            for form in [ListForm::Html, ListForm::Json] {
                for is_head in [false, true] {
                    let (wanted, mut name) = (WantedList { form, is_head }, directory.to_vec());
                    wanted.push_end(&mut name);
                    let directory = if directory.is_empty() { b"." } else { directory };
                    assert_eq!(WantedList::of_name(&name), Some((wanted, directory)));
                    names.push(name);
                }
            }
        }
        names.sort();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        for name in [&b""[..], b"a", b"a/b.", b"."] {
            assert_eq!(WantedList::of_name(name), None);
        }
    }
}

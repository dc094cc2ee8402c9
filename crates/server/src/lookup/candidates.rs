//! Which names a request's path may mean, in the order in which they are tried: the first that leads to something is
//! what the path means.

use drover_http1::path::Resolved;

use crate::lookup::listings::form::WantedList;

/// What a name of the site's files is completed by.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameOptions {
    /// Whether a directory without an index is shown as a list of its files.
    pub(crate) listing: bool,
    /// Whether `about` means `about.html` if there is no file `about`.
    pub(crate) html_suffix: bool,
    /// The file, beneath the root, that a browser gets in place of a page that is missing.
    pub(crate) fallback: Option<Box<[u8]>>,
}

/// What a request for a directory gets.
const INDEX: &[u8] = b"index.html";

/// A way to complete a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameCandidate {
    /// The name itself, or the index of a directory.
    Named,
    /// The list of a directory's files.
    Listing,
    /// The name with `.html`.
    Suffixed,
    /// [`NameOptions::fallback`].
    Fallback,
}

impl NameCandidate {
    pub(crate) const ALL: [NameCandidate; 4] = [
        NameCandidate::Named,
        NameCandidate::Listing,
        NameCandidate::Suffixed,
        NameCandidate::Fallback,
    ];
}

/// What a request's path means by itself, and what decides what else it may mean.
#[derive(Clone, Copy)]
pub(crate) struct RequestedName<'a> {
    /// The name of the file or directory, beneath the root.
    pub(crate) base: &'a [u8],
    pub(crate) resolved: &'a Resolved<'a>,
    /// Whether the request is a browser's for a page.
    pub(crate) is_page: bool,
    /// Which list of a directory is asked for.
    pub(crate) list: WantedList,
    pub(crate) options: &'a NameOptions,
}

impl RequestedName<'_> {
    /// Puts a candidate's name into `name`; `false`: the request has no such candidate.
    pub(crate) fn candidate(&self, candidate: NameCandidate, name: &mut Vec<u8>) -> bool {
        let RequestedName { base, resolved, is_page, list, options } = *self;
        name.clear();
        name.extend_from_slice(base);
        match candidate {
            NameCandidate::Named => {
                if resolved.directory {
                    if !base.is_empty() {
                        name.push(b'/');
                    }
                    name.extend_from_slice(INDEX);
                }
                true
            }
            NameCandidate::Listing => {
                list.push_end(name);
                resolved.directory && options.listing
            }
            NameCandidate::Suffixed => {
                name.extend_from_slice(b".html");
                !resolved.directory && options.html_suffix
            }
            NameCandidate::Fallback => is_page && self.replace_by_fallback(name),
        }
    }

    /// Puts the fallback into `name`, if there is one, and says whether no earlier candidate has that name: what was missing
    /// once is not looked for again, and a connection that has waited for a name knows which candidate it was.
    fn replace_by_fallback(&self, name: &mut Vec<u8>) -> bool {
        let Some(fallback) = self.options.fallback.as_deref() else { return false };
        let mut earlier =
            NameCandidate::ALL.into_iter().take_while(|it| *it != NameCandidate::Fallback);
        let is_new = earlier.all(|it| !self.candidate(it, name) || name.as_slice() != fallback);
        name.clear();
        name.extend_from_slice(fallback);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &[u8], is_page: bool, options: &NameOptions) -> Vec<String> {
        let mut base = Vec::new();
        let resolved = drover_http1::path::resolve(path, &mut base).unwrap();
        let list = WantedList::default();
        let requested = RequestedName { base: &base, resolved: &resolved, is_page, list, options };
        let named = |candidate: NameCandidate| {
            let mut name = Vec::new();
            requested.candidate(candidate, &mut name).then(|| String::from_utf8(name).unwrap())
        };
        NameCandidate::ALL.into_iter().filter_map(named).collect()
    }

    #[test]
    fn each_name_is_looked_for_once_in_a_fixed_order() {
        let fallback = Some(b"index.html".as_slice().into());
        let options = NameOptions { listing: true, html_suffix: true, fallback };
        assert_eq!(names(b"/", true, &options), ["index.html", "./"]);
        assert_eq!(names(b"/a/", false, &options), ["a/index.html", "a/"]);
        assert_eq!(names(b"/a/", true, &options), ["a/index.html", "a/", "index.html"]);
        assert_eq!(names(b"/a", true, &options), ["a", "a.html", "index.html"]);
        assert_eq!(names(b"/index", true, &options), ["index", "index.html"]);
        assert_eq!(names(b"/b", true, &NameOptions::default()), ["b"]);
    }
}

//! Which names a request's path may mean, in the order in which they are tried: the first that leads to something is
//! what the path means.

use http1::path::Resolved;

/// What a name of the site's files is completed by.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameOptions {
    /// Whether a directory without an index is shown as a list of its files.
    pub(crate) listing: bool,
    /// Whether `about` means `about.html` if there is no `about`.
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

    /// Puts the candidate's name into `name`; `false`: the request has no such candidate. `base` is the name of the
    /// file or directory that the path means, `is_page` says whether the request is a browser's for a page.
    ///
    /// Only the name of a listing ends with a slash.
    pub(crate) fn name_into(
        self,
        base: &[u8],
        resolved: &Resolved<'_>,
        is_page: bool,
        options: &NameOptions,
        name: &mut Vec<u8>,
    ) -> bool {
        name.clear();
        name.extend_from_slice(base);
        match self {
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
                name.extend_from_slice(if base.is_empty() { b"./" } else { b"/" });
                resolved.directory && options.listing
            }
            NameCandidate::Suffixed => {
                name.extend_from_slice(b".html");
                !resolved.directory && options.html_suffix
            }
            NameCandidate::Fallback => match &options.fallback {
                Some(fallback) if is_page => {
                    name.clear();
                    name.extend_from_slice(fallback);
                    true
                }
                _ => false,
            },
        }
    }
}

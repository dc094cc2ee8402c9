//! The libraries that draw the page's figures, as released by their authors (npm packages `d3` and
//! `@observablehq/plot`), with their licences. Both are part of every page, so that it opens from disk and without a
//! network.

/// A file of a release.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// The package's name.
    pub name: &'static str,
    /// The release.
    pub version: &'static str,
    /// The minified script.
    pub script: &'static str,
    /// The SHA-256 of the script, in hexadecimal digits.
    pub sha256: &'static str,
    /// The licence.
    pub licence: &'static str,
}

/// The libraries. A library comes before those that need it.
pub static LIBRARIES: [Library; 2] = [
    Library {
        name: "d3",
        version: "7.9.2",
        script: include_str!("d3/d3.min.js"),
        sha256: "912111098ea99503a6f4967361d2bbdc9dbf58cf9c678c8e27e5b02d1a07f0c1",
        licence: include_str!("d3/LICENSE"),
    },
    Library {
        name: "@observablehq/plot",
        version: "0.6.17",
        script: include_str!("plot/plot.umd.min.js"),
        sha256: "4358086467740777dd788d6b27a95cebdbaefdd50c730a3060117073bd7134cb",
        licence: include_str!("plot/LICENSE"),
    },
];

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_files_are_those_of_the_releases() {
        for library in &LIBRARIES {
            let hash = Sha256::digest(library.script.as_bytes());
            let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hash, library.sha256, "{}", library.name);
            let first = library.script.lines().next().unwrap();
            assert!(
                first.contains(&format!("{} v{}", library.name, library.version))
                    || first.contains(&format!("v{} Copyright", library.version)),
                "{first}"
            );
            assert!(library.licence.contains("Permission to use, copy, modify"));
        }
    }

    #[test]
    fn no_script_ends_the_element_that_it_is_in() {
        for library in &LIBRARIES {
            assert!(!library.script.to_lowercase().contains("</script"));
            assert!(!library.script.contains("<!--"));
        }
    }
}

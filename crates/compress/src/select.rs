//! Which files of a site are worth compressing: by their type, and by what `--include` and `--exclude` say.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use drover_http1::coding::ContentCoding;
use drover_http1::mime;
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

/// Reads a pattern: as in a .gitignore, a pattern without a slash means names at any depth, others begin at DIR.
/// `*` and `?` stand for no slash, `**` for any number of folders.
///
/// # Errors
/// Why it is no pattern, in words.
pub fn parse_pattern(text: &str) -> Result<Glob, String> {
    let path = text.trim_end_matches('/');
    let rooted = path.strip_prefix("./").or(path.strip_prefix('/')).unwrap_or(path);
    let anywhere = if path.contains('/') { "" } else { "**/" };
    let glob = GlobBuilder::new(&format!("{anywhere}{rooted}")).literal_separator(true).build();
    glob.map_err(|error| format!("{}; quote it for the shell, as in '*.map'", error.kind()))
}

/// What `--include` and `--exclude` say.
#[derive(Debug)]
pub struct FileSelection {
    include: GlobSet,
    exclude: GlobSet,
}

/// What a file's name says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selected {
    /// To be compressed.
    Yes,
    /// Its type does not compress, or is unknown.
    OtherType,
    /// `--exclude` names it, or it has the ending of a sibling.
    No,
}

impl FileSelection {
    /// # Errors
    /// The patterns together are too large.
    pub fn new(include: &[Glob], exclude: &[Glob]) -> anyhow::Result<FileSelection> {
        let set = |globs: &[Glob]| {
            let mut set = GlobSetBuilder::new();
            for glob in globs {
                set.add(glob.clone());
            }
            set.build()
        };
        Ok(FileSelection { include: set(include)?, exclude: set(exclude)? })
    }

    /// What the name of a file says; `path` begins at DIR.
    pub(crate) fn select(&self, path: &[u8]) -> Selected {
        if sibling_of(path).is_some() || self.excludes(path) {
            Selected::No
        } else if self.include.is_match(OsStr::from_bytes(path)) || compresses(path) {
            Selected::Yes
        } else {
            Selected::OtherType
        }
    }

    /// Whether `--exclude` names a file or a folder itself.
    pub(crate) fn excludes(&self, path: &[u8]) -> bool {
        self.exclude.is_match(OsStr::from_bytes(path))
    }
}

/// The path of the file that `path` is a sibling of, and the sibling's coding, by its ending.
pub(crate) fn sibling_of(path: &[u8]) -> Option<(&[u8], ContentCoding)> {
    let mut codings = ContentCoding::ALL.into_iter();
    codings.find_map(|coding| Some((path.strip_suffix(coding.suffix().as_bytes())?, coding)))
}

/// Whether files of the type that a path has are stored uncompressed, so that a coding makes them shorter.
///
/// Images, sound, films, archives, WOFF fonts and PDF are compressed already; so are the documents of office programs,
/// which are ZIP archives.
fn compresses(path: &[u8]) -> bool {
    /// SVG in gzip has the type of SVG.
    const COMPRESSED: &[u8] = b".svgz";
    const TYPES: &[&str] = &[
        "application/json",
        "application/xml",
        "application/wasm",
        "application/vnd.sqlite3",
        "application/pem-certificate-chain",
        "application/toml",
        "application/yaml",
        "application/rtf",
        "application/postscript",
        "application/vnd.apple.mpegurl",
        "application/vnd.ms-fontobject",
        "font/collection",
        "font/otf",
        "font/ttf",
        "image/bmp",
        "image/vnd.dxf",
        "image/vnd.microsoft.icon",
        "model/gltf-binary",
        "model/iges",
        "model/obj",
        "model/ply",
        "model/step",
        "model/stl",
        "model/vnd.usda",
        "model/vrml",
    ];
    let content_type = mime::of(path);
    let is_compressed = path.to_ascii_lowercase().ends_with(COMPRESSED);
    let name = content_type.split(';').next().unwrap_or_default();
    let is_text = content_type.ends_with("; charset=utf-8") || name.starts_with("text/");
    let is_structured = name.ends_with("+xml") || name.ends_with("+json");
    !is_compressed && (is_text || is_structured || TYPES.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(include: &[&str], exclude: &[&str]) -> FileSelection {
        let globs = |texts: &[&str]| -> Vec<Glob> {
            texts.iter().map(|text| parse_pattern(text).unwrap()).collect()
        };
        FileSelection::new(&globs(include), &globs(exclude)).unwrap()
    }

    #[test]
    fn the_type_decides() {
        let all = selection(&[], &[]);
        for name in ["a.html", "b/c.JS", "d.svg", "e.wasm", "f.ttf", "g.webmanifest", "h.atom"] {
            assert_eq!(all.select(name.as_bytes()), Selected::Yes, "{name}");
        }
        for name in [
            "a.tsv",
            "a.srt",
            "a.geojson",
            "a.ndjson",
            "a.jsonl",
            "a.mpd",
            "a.stl",
            "a.asc",
            "a.pem",
            "a.dxf",
        ] {
            assert_eq!(all.select(name.as_bytes()), Selected::Yes, "{name}");
        }
        for name in [
            "a.png", "b.woff2", "c.mp4", "d.zip", "e.pdf", "f.docx", "g", "h.dump", "i.svgz",
            "j.apk", "k.usdz", "l.m4s",
        ] {
            assert_eq!(all.select(name.as_bytes()), Selected::OtherType, "{name}");
        }
        for name in ["a.html.gz", "a.html.br", "a.zst", "a.tar.gz"] {
            assert_eq!(all.select(name.as_bytes()), Selected::No, "{name}");
        }
    }

    #[test]
    fn patterns_decide_before_the_type_and_exclusion_before_inclusion() {
        let some = selection(&["*.sql", "data/*"], &["*.map", "drafts", "/top.js", "x/**/y.js"]);
        for (name, expected) in [
            ("a.sql", Selected::Yes),
            ("b/a.sql", Selected::Yes),
            ("data/x", Selected::Yes),
            ("data/x/y", Selected::OtherType),
            ("b/data/x", Selected::OtherType),
            ("data/x.gz", Selected::No),
            ("a.js.map", Selected::No),
            ("data/a.map", Selected::No),
            ("top.js", Selected::No),
            ("b/top.js", Selected::Yes),
            ("x/a/b/y.js", Selected::No),
        ] {
            assert_eq!(some.select(name.as_bytes()), expected, "{name}");
        }
        assert!(some.excludes(b"a/drafts") && some.excludes(b"drafts") && !some.excludes(b"a"));
        assert!(parse_pattern("a[").is_err());
    }
}

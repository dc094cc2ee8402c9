//! Content types by file name extension.
//!
//! Text is declared as UTF-8, and so is every format for which browsers would guess the encoding.
//! The types come from the IANA registry; JavaScript follows RFC 9239.

/// The type of a file with an unknown extension, or with none.
pub const DEFAULT: &str = "application/octet-stream";

/// Extension and type, sorted by extension.
const TYPES: &[(&str, &str)] = &[
    ("3gp", "video/3gpp"),
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apng", "image/apng"),
    ("atom", "application/atom+xml; charset=utf-8"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bin", "application/octet-stream"),
    ("bmp", "image/bmp"),
    ("br", "application/x-brotli"),
    ("bz2", "application/x-bzip2"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("conf", "text/plain; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("deb", "application/vnd.debian.binary-package"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("eot", "application/vnd.ms-fontobject"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("gz", "application/gzip"),
    ("heic", "image/heic"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/vnd.microsoft.icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("iso", "application/octet-stream"),
    ("jar", "application/java-archive"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json; charset=utf-8"),
    ("jsonld", "application/ld+json; charset=utf-8"),
    ("jxl", "image/jxl"),
    ("log", "text/plain; charset=utf-8"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4v", "video/mp4"),
    ("map", "application/json; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mkv", "video/matroska"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("ps", "application/postscript"),
    ("rar", "application/vnd.rar"),
    ("rss", "application/rss+xml; charset=utf-8"),
    ("rtf", "application/rtf"),
    ("svg", "image/svg+xml; charset=utf-8"),
    ("tar", "application/x-tar"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml; charset=utf-8"),
    ("ts", "video/mp2t"),
    ("ttc", "font/collection"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json; charset=utf-8"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml; charset=utf-8"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml; charset=utf-8"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml; charset=utf-8"),
    ("yml", "application/yaml; charset=utf-8"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// The length of the longest extension in the table, in bytes.
const LONGEST: usize = "webmanifest".len();

/// The content type of the file that `path` names, by its last extension in any case of letters.
///
/// A name that begins with its only dot (`.html`) has no extension.
pub fn of(path: &[u8]) -> &'static str {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let extension = match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) if dot > 0 => &name[dot + 1..],
        _ => return DEFAULT,
    };
    let mut lower = [0; LONGEST];
    let Some(lower) = lower.get_mut(..extension.len()) else {
        return DEFAULT;
    };
    lower.copy_from_slice(extension);
    lower.make_ascii_lowercase();
    match TYPES.binary_search_by(|(known, _)| known.as_bytes().cmp(lower)) {
        Ok(found) => TYPES[found].1,
        Err(_) => DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_every_entry_is_found() {
        assert!(TYPES.is_sorted_by(|(a, _), (b, _)| a < b));
        for (extension, kind) in TYPES {
            assert_eq!(of(format!("a/b.{extension}").as_bytes()), *kind);
            assert!(extension.len() <= LONGEST);
            assert_eq!(*extension, extension.to_ascii_lowercase());
        }
    }

    #[test]
    fn the_last_extension_counts_in_any_case() {
        assert_eq!(of(b"index.HTML"), "text/html; charset=utf-8");
        assert_eq!(of(b"a.tar.gz"), "application/gzip");
        assert_eq!(of(b"a.html/b.CsS"), "text/css; charset=utf-8");
        assert_eq!(of(b".config.json"), "application/json; charset=utf-8");
    }

    #[test]
    fn the_unknown_has_the_default_type() {
        for path in ["", "a", "a.", "a.unknown", ".html", "a/.html", "a.html/b", "a.webmanifests"] {
            assert_eq!(of(path.as_bytes()), DEFAULT, "{path}");
        }
        assert_eq!(of(b"a.\xff"), DEFAULT);
    }
}

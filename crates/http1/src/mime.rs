//! Content types by file name extension.
//!
//! Text is declared as UTF-8, and so is every format for which browsers would guess the encoding.
//! The types come from the IANA registry, or where that has none from the lists that Apache, nginx and mime-db agree on;
//! JavaScript follows RFC 9239.

/// The type of a file with an unknown extension, or with none.
pub const DEFAULT: &str = "application/octet-stream";

/// Extension and type, sorted by extension.
const TYPES: &[(&str, &str)] = &[
    ("3g2", "video/3gpp2"),
    ("3gp", "video/3gpp"),
    ("3mf", "model/3mf"),
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("ac3", "audio/ac3"),
    ("ai", "application/postscript"),
    ("aif", "audio/aiff"),
    ("aiff", "audio/aiff"),
    ("amr", "audio/AMR"),
    ("apk", "application/vnd.android.package-archive"),
    ("apng", "image/apng"),
    ("arrow", "application/vnd.apache.arrow.file"),
    ("asc", "text/plain; charset=utf-8"),
    ("ass", "text/x-ssa; charset=utf-8"),
    ("atom", "application/atom+xml; charset=utf-8"),
    ("au", "audio/basic"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("awb", "audio/AMR-WB"),
    ("azw3", "application/vnd.amazon.mobi8-ebook"),
    ("bib", "text/x-bibtex; charset=utf-8"),
    ("bin", "application/octet-stream"),
    ("bmp", "image/bmp"),
    ("br", "application/x-brotli"),
    ("bz", "application/x-bzip"),
    ("bz2", "application/x-bzip2"),
    ("cab", "application/vnd.ms-cab-compressed"),
    ("cbor", "application/cbor"),
    ("cbr", "application/vnd.comicbook-rar"),
    ("cbz", "application/vnd.comicbook+zip"),
    ("cer", "application/pkix-cert"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("conf", "text/plain; charset=utf-8"),
    ("crl", "application/pkix-crl"),
    ("crt", "application/x-x509-ca-cert"),
    ("crx", "application/x-chrome-extension"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("dae", "model/vnd.collada+xml; charset=utf-8"),
    ("dcm", "application/dicom"),
    ("deb", "application/vnd.debian.binary-package"),
    ("diff", "text/x-diff; charset=utf-8"),
    ("djvu", "image/vnd.djvu"),
    ("dmg", "application/x-apple-diskimage"),
    ("doc", "application/msword"),
    ("docm", "application/vnd.ms-word.document.macroEnabled.12"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("dotx", "application/vnd.openxmlformats-officedocument.wordprocessingml.template"),
    ("dtd", "application/xml-dtd; charset=utf-8"),
    ("dwg", "image/vnd.dwg"),
    ("dxf", "image/vnd.dxf"),
    ("emf", "image/emf"),
    ("eml", "message/rfc822"),
    ("eot", "application/vnd.ms-fontobject"),
    ("eps", "application/postscript"),
    ("epub", "application/epub+zip"),
    ("exe", "application/vnd.microsoft.portable-executable"),
    ("f4v", "video/mp4"),
    ("fb2", "application/x-fictionbook+xml; charset=utf-8"),
    ("fits", "image/fits"),
    ("flac", "audio/flac"),
    ("flv", "video/x-flv"),
    ("geojson", "application/geo+json; charset=utf-8"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("gml", "application/gml+xml; charset=utf-8"),
    ("gpg", "application/pgp-encrypted"),
    ("gpx", "application/gpx+xml; charset=utf-8"),
    ("gz", "application/gzip"),
    ("har", "application/json; charset=utf-8"),
    ("heic", "image/heic"),
    ("heics", "image/heic-sequence"),
    ("heif", "image/heif"),
    ("heifs", "image/heif-sequence"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/vnd.microsoft.icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("iges", "model/iges"),
    ("igs", "model/iges"),
    ("img", "application/octet-stream"),
    ("ini", "text/plain; charset=utf-8"),
    ("ipa", "application/octet-stream"),
    ("iso", "application/octet-stream"),
    ("jar", "application/java-archive"),
    ("jfif", "image/jpeg"),
    ("jp2", "image/jp2"),
    ("jpe", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("jpm", "image/jpm"),
    ("jpx", "image/jpx"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json; charset=utf-8"),
    ("json5", "application/json5; charset=utf-8"),
    ("jsonl", "application/jsonl; charset=utf-8"),
    ("jsonld", "application/ld+json; charset=utf-8"),
    ("jsx", "text/javascript; charset=utf-8"),
    ("jxl", "image/jxl"),
    ("kml", "application/vnd.google-earth.kml+xml; charset=utf-8"),
    ("kmz", "application/vnd.google-earth.kmz"),
    ("log", "text/plain; charset=utf-8"),
    ("lrc", "text/plain; charset=utf-8"),
    ("lz", "application/x-lzip"),
    ("m1v", "video/mpeg"),
    ("m2ts", "video/mp2t"),
    ("m2v", "video/mpeg"),
    ("m3u", "audio/x-mpegurl"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4b", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("m4v", "video/mp4"),
    ("map", "application/json; charset=utf-8"),
    ("markdown", "text/markdown; charset=utf-8"),
    ("mathml", "application/mathml+xml; charset=utf-8"),
    ("mbox", "application/mbox"),
    ("md", "text/markdown; charset=utf-8"),
    ("md5", "text/plain; charset=utf-8"),
    ("meta4", "application/metalink4+xml; charset=utf-8"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mj2", "video/mj2"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mka", "audio/matroska"),
    ("mkv", "video/matroska"),
    ("mml", "application/mathml+xml; charset=utf-8"),
    ("mov", "video/quicktime"),
    ("mp2", "audio/mpeg"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml; charset=utf-8"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("msi", "application/x-msi"),
    ("mts", "video/mp2t"),
    ("mvt", "application/vnd.mapbox-vector-tile"),
    ("mxf", "application/mxf"),
    ("ndjson", "application/x-ndjson; charset=utf-8"),
    ("nt", "application/n-triples; charset=utf-8"),
    ("numbers", "application/vnd.apple.numbers"),
    ("obj", "model/obj"),
    ("odf", "application/vnd.oasis.opendocument.formula"),
    ("odg", "application/vnd.oasis.opendocument.graphics"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("ogx", "application/ogg"),
    ("opml", "text/x-opml; charset=utf-8"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("otp", "application/vnd.oasis.opendocument.presentation-template"),
    ("ots", "application/vnd.oasis.opendocument.spreadsheet-template"),
    ("ott", "application/vnd.oasis.opendocument.text-template"),
    ("owl", "application/rdf+xml; charset=utf-8"),
    ("p12", "application/pkcs12"),
    ("p7c", "application/pkcs7-mime"),
    ("p7m", "application/pkcs7-mime"),
    ("p7s", "application/pkcs7-signature"),
    ("pages", "application/vnd.apple.pages"),
    ("parquet", "application/vnd.apache.parquet"),
    ("patch", "text/x-diff; charset=utf-8"),
    ("pbf", "application/x-protobuf"),
    ("pcap", "application/vnd.tcpdump.pcap"),
    ("pdf", "application/pdf"),
    ("pem", "application/pem-certificate-chain"),
    ("pfx", "application/pkcs12"),
    ("pgp", "application/pgp-encrypted"),
    ("ply", "model/ply"),
    ("pmtiles", "application/vnd.pmtiles"),
    ("png", "image/png"),
    ("potx", "application/vnd.openxmlformats-officedocument.presentationml.template"),
    ("pps", "application/vnd.ms-powerpoint"),
    ("ppsx", "application/vnd.openxmlformats-officedocument.presentationml.slideshow"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptm", "application/vnd.ms-powerpoint.presentation.macroEnabled.12"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("ps", "application/postscript"),
    ("psd", "image/vnd.adobe.photoshop"),
    ("qt", "video/quicktime"),
    ("rar", "application/vnd.rar"),
    ("rdf", "application/rdf+xml; charset=utf-8"),
    ("rpm", "application/x-redhat-package-manager"),
    ("rss", "application/rss+xml; charset=utf-8"),
    ("rst", "text/prs.fallenstein.rst; charset=utf-8"),
    ("rtf", "application/rtf"),
    ("sdp", "application/sdp"),
    ("sh", "application/x-sh; charset=utf-8"),
    ("sha256", "text/plain; charset=utf-8"),
    ("sig", "application/pgp-signature"),
    ("smil", "application/smil+xml; charset=utf-8"),
    ("snd", "audio/basic"),
    ("spx", "audio/ogg"),
    ("sql", "application/sql; charset=utf-8"),
    ("sqlite3", "application/vnd.sqlite3"),
    ("srt", "application/x-subrip; charset=utf-8"),
    ("step", "model/step"),
    ("stl", "model/stl"),
    ("stp", "model/step"),
    ("svg", "image/svg+xml; charset=utf-8"),
    ("svgz", "image/svg+xml; charset=utf-8"),
    ("swf", "application/vnd.adobe.flash.movie"),
    ("tar", "application/x-tar"),
    ("tex", "text/x-tex; charset=utf-8"),
    ("text", "text/plain; charset=utf-8"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml; charset=utf-8"),
    ("topojson", "application/json; charset=utf-8"),
    ("torrent", "application/x-bittorrent"),
    ("ts", "video/mp2t"),
    ("tsv", "text/tab-separated-values; charset=utf-8"),
    ("ttc", "font/collection"),
    ("ttf", "font/ttf"),
    ("ttl", "text/turtle; charset=utf-8"),
    ("ttml", "application/ttml+xml; charset=utf-8"),
    ("txt", "text/plain; charset=utf-8"),
    ("usda", "model/vnd.usda"),
    ("usdz", "model/vnd.usdz+zip"),
    ("vcard", "text/vcard; charset=utf-8"),
    ("vcf", "text/vcard; charset=utf-8"),
    ("vrml", "model/vrml"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json; charset=utf-8"),
    ("webp", "image/webp"),
    ("whl", "application/zip"),
    ("wma", "audio/x-ms-wma"),
    ("wmf", "image/wmf"),
    ("wmv", "video/x-ms-wmv"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("wrl", "model/vrml"),
    ("wsdl", "application/wsdl+xml; charset=utf-8"),
    ("x3d", "model/x3d+xml; charset=utf-8"),
    ("xht", "application/xhtml+xml; charset=utf-8"),
    ("xhtml", "application/xhtml+xml; charset=utf-8"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsm", "application/vnd.ms-excel.sheet.macroEnabled.12"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xltx", "application/vnd.openxmlformats-officedocument.spreadsheetml.template"),
    ("xml", "application/xml; charset=utf-8"),
    ("xpi", "application/x-xpinstall"),
    ("xsd", "application/xml; charset=utf-8"),
    ("xsl", "application/xslt+xml; charset=utf-8"),
    ("xslt", "application/xslt+xml; charset=utf-8"),
    ("xspf", "application/xspf+xml; charset=utf-8"),
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
    fn data_maps_films_and_models_have_their_types() {
        for (name, kind) in [
            ("a.tsv", "text/tab-separated-values; charset=utf-8"),
            ("a.srt", "application/x-subrip; charset=utf-8"),
            ("a.geojson", "application/geo+json; charset=utf-8"),
            ("a.ndjson", "application/x-ndjson; charset=utf-8"),
            ("a.jsonl", "application/jsonl; charset=utf-8"),
            ("a.mpd", "application/dash+xml; charset=utf-8"),
            ("a.m4s", "video/iso.segment"),
            ("a.usdz", "model/vnd.usdz+zip"),
            ("a.stl", "model/stl"),
            ("a.apk", "application/vnd.android.package-archive"),
            ("a.asc", "text/plain; charset=utf-8"),
            ("a.svgz", "image/svg+xml; charset=utf-8"),
        ] {
            assert_eq!(of(name.as_bytes()), kind);
        }
    }

    #[test]
    fn registered_types_go_before_others() {
        for (name, kind) in [
            ("a.pem", "application/pem-certificate-chain"),
            ("a.rst", "text/prs.fallenstein.rst; charset=utf-8"),
            ("a.3mf", "model/3mf"),
            ("a.mkv", "video/matroska"),
            ("a.p12", "application/pkcs12"),
            ("a.odg", "application/vnd.oasis.opendocument.graphics"),
            ("a.cbz", "application/vnd.comicbook+zip"),
            ("a.dwg", "image/vnd.dwg"),
        ] {
            assert_eq!(of(name.as_bytes()), kind);
        }
    }

    #[test]
    fn the_unknown_has_the_default_type() {
        for path in ["", "a", "a.", "a.unknown", ".html", "a/.html", "a.html/b", "a.webmanifests"] {
            assert_eq!(of(path.as_bytes()), DEFAULT, "{path}");
        }
        assert_eq!(of(b"a.\xff"), DEFAULT);
    }
}

//! Fields that responses with a file have in addition, by the file's name.

use std::str::FromStr;

use drover_http1::FieldList;
use drover_http1::coding::ContentCoding;
use globset::{GlobBuilder, GlobMatcher};

/// Fields that say how a message is delimited or which state of a file is sent: the server alone knows them.
const THE_SERVER_S: &[&str] = &[
    "accept-ranges",
    "connection",
    "content-length",
    "content-range",
    "date",
    "etag",
    "keep-alive",
    "last-modified",
    "server",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The longest pattern, in bytes. What it is compiled to grows with it.
const PATTERN_MOST: usize = 1024;

/// The field that says in which coding a file is stored, under its own name.
const CODING: &str = "Content-Encoding";

/// The coding that a value of [`CODING`] names, and `None` within for a file that is in no coding.
fn named_coding(value: &str) -> Option<Option<ContentCoding>> {
    let is_named = |coding: &ContentCoding| coding.name().eq_ignore_ascii_case(value);
    match ContentCoding::ALL.into_iter().find(is_named) {
        None if value.eq_ignore_ascii_case("identity") => Some(None),
        None => None,
        coding => Some(coding),
    }
}

/// A field that responses with certain files have: `/assets/** Cache-Control: max-age=31536000, immutable`.
///
/// The pattern is a glob over names beneath the root, which begin with a slash: `*` stands for any bytes but a slash,
/// `**` for any bytes, `?` for one, `[ab]` and `{a,b}` for alternatives. A pattern without a slash is one over the
/// last part of the name, in any folder.
#[derive(Clone, Debug)]
pub struct HeaderRule {
    pattern: GlobMatcher,
    name: String,
    value: String,
    /// Whether other rules for the field leave it as it is, so that a response may have several of them.
    adds_up: bool,
}

impl FromStr for HeaderRule {
    type Err = String;

    fn from_str(text: &str) -> Result<HeaderRule, String> {
        let parts = text.split_once(char::is_whitespace);
        let field = parts.and_then(|(pattern, field)| Some((pattern, field.split_once(':')?)));
        let Some((pattern, (name, value))) = field else {
            return Err(
                "write PATTERN NAME: VALUE, for example '*.html Cache-Control: no-cache'".into()
            );
        };
        HeaderRule::new(pattern, name.trim(), value.trim())
    }
}

impl HeaderRule {
    /// The field `name` for files that match `pattern`.
    pub(crate) fn new(pattern: &str, name: &str, value: &str) -> Result<HeaderRule, String> {
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(format!("{name:?} is no name of a field: letters, digits and - only"));
        }
        if THE_SERVER_S.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(format!("{name} is the server's own to set"));
        }
        if value.chars().any(|it| it.is_control() && it != '\t') {
            return Err(format!("the value of {name} has a control character in it"));
        }
        if pattern.len() > PATTERN_MOST {
            return Err(format!(
                "the pattern has {} bytes; write one of at most {PATTERN_MOST}",
                pattern.len()
            ));
        }
        if name.eq_ignore_ascii_case(CODING) && named_coding(value).is_none() {
            return Err(format!("{CODING} must be br, zstd, gzip or identity, not {value:?}"));
        }
        let pattern = if pattern.contains('/') { pattern.into() } else { format!("**/{pattern}") };
        let glob = GlobBuilder::new(&pattern).literal_separator(true).build();
        let pattern = glob.map_err(|error| error.to_string())?.compile_matcher();
        Ok(HeaderRule { pattern, name: name.into(), value: value.into(), adds_up: false })
    }

    /// The same rule, which adds up with others for its field.
    pub(crate) fn adding_up(self) -> HeaderRule {
        HeaderRule { adds_up: true, ..self }
    }

    /// The field `name` for all files.
    pub(crate) fn every(name: &str, value: &str) -> HeaderRule {
        HeaderRule::new("/**", name, value).expect("a rule of this program is one")
    }

    /// The same rule for responses that only users get, if it is one of `Cache-Control`: nothing in it allows caches that several
    /// people share to keep them, which `public` and `s-maxage` do (RFC 9111 section 3.5).
    #[must_use]
    pub fn for_users(self) -> HeaderRule {
        if !self.is_for("Cache-Control") {
            return self;
        }
        let shares = |it: &str| {
            it.eq_ignore_ascii_case("public")
                || it.get(..9).is_some_and(|it| it.eq_ignore_ascii_case("s-maxage="))
        };
        let kept = self.value.split(',').map(str::trim).filter(|it| !shares(it));
        let is_private =
            |it: &&str| ["private", "no-store"].iter().any(|own| it.eq_ignore_ascii_case(own));
        let mut kept: Vec<&str> = kept.collect();
        if kept.len() < self.value.split(',').count() && !kept.iter().any(is_private) {
            kept.insert(0, "private");
        }
        HeaderRule { value: kept.join(", "), ..self }
    }

    /// Whether it is a rule for the field `name`.
    #[must_use]
    pub fn is_for(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

impl HeaderRule {
    /// The rule for `EXT=TYPE`, or `EXT,EXT=TYPE`: the type of files whose names end so.
    ///
    /// # Errors
    /// What is wrong, and what is right.
    pub fn of_types(text: &str) -> Result<HeaderRule, String> {
        let example = "write EXT=TYPE, for example 'log,out=text/plain; charset=utf-8'";
        let (suffixes, kind) = text.split_once('=').ok_or(example)?;
        let is_suffix = |it: &str| {
            !it.is_empty()
                && it.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_+".contains(&it))
        };
        if !suffixes.split(',').all(is_suffix) || !kind.contains('/') {
            return Err(example.to_owned());
        }
        format!("*.{{{suffixes}}} Content-Type: {kind}").parse()
    }
}

/// What rules add to the responses with one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddedFields {
    /// The type that is sent in place of the one that the name's suffix tells.
    pub(crate) content_type: Option<String>,
    /// The coding that the file's own bytes are in.
    pub(crate) coding: Option<ContentCoding>,
    /// All other fields.
    pub(crate) fields: FieldList,
}

impl AddedFields {
    /// The fields of all rules that match `name`, a name beneath the root. Of rules for one field, the last counts, and those
    /// that add up unless one follows that does not.
    pub(crate) fn of(rules: &[HeaderRule], name: &[u8]) -> AddedFields {
        let mut added = AddedFields::default();
        if rules.is_empty() {
            return added;
        }
        let path = [b"/", name].concat();
        let path: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(&path);
        let matching = || rules.iter().filter(|rule| rule.pattern.is_match(path));
        for (at, rule) in matching().enumerate() {
            let is_same =
                |later: &HeaderRule| later.is_for(&rule.name) && !(rule.adds_up && later.adds_up);
            if matching().skip(at + 1).any(is_same) {
                continue;
            }
            if rule.is_for("Content-Type") {
                added.content_type = Some(rule.value.clone());
            } else if rule.is_for(CODING) {
                added.coding = named_coding(&rule.value).flatten();
            } else {
                added.fields.push(&rule.name, rule.value.as_bytes());
            }
        }
        added
    }
}

#[cfg(test)]
pub(in crate::rules) mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_a_length_that_can_be_compiled() {
        let rule = |len: usize| format!("/{} X-A: b", "{a,".repeat(len / 3)).parse::<HeaderRule>();
        let error = rule(1 << 20).unwrap_err();
        assert!(error.contains("at most 1024"), "{error}");
        HeaderRule::new(&"a?".repeat(512), "X-A", "b").unwrap();
    }

    #[test]
    fn what_only_users_get_is_kept_by_no_shared_cache() {
        for (value, expected) in [
            ("public, max-age=31536000, immutable", "private, max-age=31536000, immutable"),
            ("Public, S-MaxAge=9", "private"),
            ("no-store, public", "no-store"),
            ("max-age=60", "max-age=60"),
            ("no-cache", "no-cache"),
        ] {
            let rule = HeaderRule::every("cache-control", value).for_users();
            assert_eq!(rule.value, expected, "{value}");
        }
        assert_eq!(HeaderRule::every("X-Kind", "public").for_users().value, "public");
    }

    #[test]
    fn types_are_given_by_the_end_of_names() {
        let rules = [
            HeaderRule::of_types("log,out=text/plain; charset=utf-8"),
            HeaderRule::of_types("x=a/b"),
        ];
        let rules = rules.map(Result::unwrap);
        for (name, kind) in [
            ("a.log", Some("text/plain; charset=utf-8")),
            ("deep/er/a.out", Some("text/plain; charset=utf-8")),
            (".x", Some("a/b")),
            ("a.logx", None),
            ("log", None),
        ] {
            assert_eq!(AddedFields::of(&rules, name.as_bytes()).content_type.as_deref(), kind);
        }
        for wrong in ["log", "log=text", "=a/b", "l*g=a/b", "a,=a/b", "log=a/b\r\nX: y"] {
            assert!(HeaderRule::of_types(wrong).is_err(), "{wrong}");
        }
    }

    /// The fields as text, each with an end of line.
    pub(in crate::rules) fn texts_of(fields: &FieldList) -> Vec<String> {
        let text = |(name, value): (&str, &[u8])| format!("{name}: {}\n", value.escape_ascii());
        fields.iter().map(text).collect()
    }

    fn added(rules: &[&str], name: &str) -> (Option<String>, String) {
        let rules: Vec<HeaderRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let AddedFields { content_type, fields, .. } = AddedFields::of(&rules, name.as_bytes());
        (content_type, texts_of(&fields).concat())
    }

    #[test]
    fn rules_that_match_add_up_and_the_last_for_a_field_counts() {
        let rules = [
            "/** X-Content-Type-Options: nosniff",
            "/** Cache-Control: no-cache",
            "/assets/** cache-control:max-age=31536000, immutable",
            "*.wasm Content-Type: application/wasm",
        ];
        assert_eq!(
            added(&rules, "assets/js/app.js"),
            (
                None,
                "X-Content-Type-Options: nosniff\ncache-control: max-age=31536000, immutable\n"
                    .into()
            )
        );
        let (content_type, fields) = added(&rules, "index.html");
        assert_eq!(content_type, None);
        assert_eq!(fields, "X-Content-Type-Options: nosniff\nCache-Control: no-cache\n");
        assert_eq!(
            added(&rules[3..], "a/b.wasm"),
            (Some("application/wasm".into()), String::new())
        );
        assert_eq!(added(&[], "a"), (None, String::new()));
    }

    #[test]
    fn a_rule_names_the_coding_that_a_file_is_stored_in() {
        let rules = ["*.{gz,svgz} content-encoding: GZIP", "*.tar.gz Content-Encoding: identity"];
        let rules = rules.map(|rule| rule.parse().unwrap());
        let coding = |name: &str| {
            let added = AddedFields::of(&rules, name.as_bytes());
            assert!(added.fields.is_empty(), "the field is not written twice");
            added.coding
        };
        assert_eq!(coding("a/b.js.gz"), Some(ContentCoding::Gzip));
        assert_eq!(coding("b.svgz"), Some(ContentCoding::Gzip));
        assert_eq!((coding("b.tar.gz"), coding("b.js")), (None, None));
    }

    #[test]
    fn a_star_stays_in_its_folder_and_a_name_without_a_slash_is_in_any() {
        let is_hit =
            |pattern: &str, name: &str| !added(&[&format!("{pattern} A: b")], name).1.is_empty();
        for (pattern, name, hit) in [
            ("/a/*", "a/b", true),
            ("/a/*", "a/b/c", false),
            ("/a/**", "a/b/c", true),
            ("/**", "a", true),
            ("*.js", "a/b.js", true),
            ("*.js", "b.js", true),
            ("*.js", "b.jsx", false),
            ("/*.js", "a/b.js", false),
            ("*.{js,css}", "a/b.css", true),
            ("a?[bc]", "x/a1b", true),
        ] {
            assert_eq!(is_hit(pattern, name), hit, "{pattern} {name}");
        }
    }

    #[test]
    fn what_would_break_a_response_is_refused() {
        for (rule, what) in [
            ("*.js", "PATTERN NAME: VALUE"),
            ("*.js Cache-Control", "PATTERN NAME: VALUE"),
            ("*.js : x", "no name"),
            ("*.js a b: x", "no name"),
            ("*.js Content-Length: 1", "the server's own"),
            ("*.js Content-Encoding: deflate", "must be br, zstd, gzip or identity"),
            ("*.js transfer-encoding: chunked", "the server's own"),
            ("*.js A: b\r\nC: d", "control character"),
            ("a[ A: b", "unclosed"),
        ] {
            let error = rule.parse::<HeaderRule>().unwrap_err();
            assert!(error.contains(what), "{rule:?}: {error}");
        }
    }
}

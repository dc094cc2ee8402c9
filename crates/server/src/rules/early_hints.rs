//! What a browser will need for a page, told before the page is there (103 Early Hints, RFC 8297).

use std::str::FromStr;

use super::headers::HeaderRule;

/// A link that goes ahead of files that match a pattern: `/*.html </style.css>; rel=preload; as=style`.
#[derive(Clone, Debug)]
pub struct EarlyHint(HeaderRule);

impl FromStr for EarlyHint {
    type Err = String;

    fn from_str(text: &str) -> Result<EarlyHint, String> {
        let parts = text.split_once(char::is_whitespace);
        let parts = parts.map(|(pattern, link)| (pattern, link.trim()));
        // RFC 8288 section 3.
        let is_link = |link: &str| {
            let target = link.strip_prefix('<').and_then(|rest| rest.split_once('>'));
            target.is_some_and(|(url, parameters)| !url.is_empty() && parameters.contains("rel="))
        };
        let Some((pattern, link)) = parts.filter(|(_, link)| is_link(link)) else {
            return Err(
                "write PATTERN LINK, for example '*.html </style.css>; rel=preload; as=style'"
                    .into(),
            );
        };
        HeaderRule::new(pattern, "Link", link).map(|rule| EarlyHint(rule.adding_up()))
    }
}

impl From<EarlyHint> for HeaderRule {
    fn from(hint: EarlyHint) -> HeaderRule {
        hint.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::AddedFields;
    use crate::rules::headers::tests::texts_of;

    #[test]
    fn hints_add_up_unless_a_written_field_follows() {
        let hint = |text: &str| HeaderRule::from(text.parse::<EarlyHint>().unwrap());
        let mut rules = vec![
            hint("*.html </a.css>; rel=preload; as=style"),
            hint("/index.html   <https://cdn.example>; rel=preconnect"),
            hint("*.js </b.js>; rel=modulepreload"),
        ];
        let fields =
            |rules: &[HeaderRule]| texts_of(&AddedFields::of(rules, b"index.html").fields).concat();
        let expected = "Link: </a.css>; rel=preload; as=style\n\
                        Link: <https://cdn.example>; rel=preconnect\n";
        assert_eq!(fields(&rules), expected);
        rules.push("*.html Link: </c>; rel=next".parse().unwrap());
        assert_eq!(fields(&rules), "Link: </c>; rel=next\n");
    }

    #[test]
    fn what_is_no_hint_is_told_with_what_would_be_one() {
        for (hint, what) in [
            ("*.html", "PATTERN LINK"),
            ("*.html /style.css", "PATTERN LINK"),
            ("*.html <>; rel=preload", "PATTERN LINK"),
            ("*.html </style.css>", "rel=preload"),
            ("a[ </a>; rel=preload", "unclosed"),
            ("a </a>; rel=preload\r\nB: c", "control character"),
        ] {
            let error = hint.parse::<EarlyHint>().unwrap_err();
            assert!(error.contains(what), "{hint:?}: {error}");
        }
    }
}

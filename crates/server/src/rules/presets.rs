//! Fields that users name by what they want: how long files may be kept, and what makes browsers careful.

use std::str::FromStr;
use std::time::Duration;

use drover_usage::duration;

use super::headers::HeaderRule;

/// Values of `Cache-Control` that have a name. A file whose name changes with its content may be kept for a year, the longest
/// time of RFC 2616 section 14.21, and is not asked for again at a reload of its page (RFC 8246).
const PRESETS: &[(&str, &str)] = &[("immutable", "public, max-age=31536000, immutable")];

/// The directives of a response (RFC 9111 section 5.2.2, RFC 5861, RFC 8246); with `=` those that have an argument.
const DIRECTIVES: &[&str] = &[
    "immutable",
    "max-age=",
    "must-revalidate",
    "must-understand",
    "no-cache",
    "no-store",
    "no-transform",
    "private",
    "proxy-revalidate",
    "public",
    "s-maxage=",
    "stale-if-error=",
    "stale-while-revalidate=",
];

/// How long clients may keep the files that match a pattern: `/assets/** immutable`, `*.html no-cache`, `*.png 1h`.
#[derive(Clone, Debug)]
pub struct CachePolicy(HeaderRule);

impl FromStr for CachePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<CachePolicy, String> {
        let Some((pattern, wanted)) = text.split_once(char::is_whitespace) else {
            return Err("write PATTERN POLICY, for example '/assets/** immutable'".into());
        };
        let value = value(wanted.trim())?;
        HeaderRule::new(pattern, "Cache-Control", &value).map(CachePolicy)
    }
}

impl From<CachePolicy> for HeaderRule {
    fn from(policy: CachePolicy) -> HeaderRule {
        policy.0
    }
}

/// Has browsers use HTTPS alone for this host, for so long (RFC 6797).
#[must_use]
pub fn strict_transport(time: Duration) -> HeaderRule {
    HeaderRule::every("Strict-Transport-Security", &format!("max-age={}", time.as_secs()))
}

/// The value of `Cache-Control` for a preset, a time, or directives as they are.
fn value(wanted: &str) -> Result<String, String> {
    if let Some((_, value)) = PRESETS.iter().find(|(name, _)| *name == wanted) {
        return Ok((*value).to_owned());
    }
    if let Ok(time) = duration::parse(wanted) {
        return Ok(format!("max-age={}", time.as_secs()));
    }
    let is_known = |directive: &str| {
        let name = directive.find('=').map_or(directive, |end| &directive[..=end]);
        DIRECTIVES.contains(&name)
    };
    match wanted.split(',').map(str::trim).find(|directive| !is_known(directive)) {
        None => Ok(wanted.to_owned()),
        Some(unknown) => Err(format!(
            "{unknown:?} is no policy: write immutable, no-cache, no-store, a time such as 1h, or directives such as \
             'max-age=60, must-revalidate'; other values are for --header"
        )),
    }
}

/// The fields of `--security-headers`, for all files: only what harms no site. docs/serve.md says why these and no others.
pub fn security_headers() -> impl Iterator<Item = HeaderRule> {
    [
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "strict-origin-when-cross-origin"),
        ("X-Frame-Options", "SAMEORIGIN"),
    ]
    .into_iter()
    .map(|(name, value)| HeaderRule::every(name, value))
}

/// The field of files that only users may read, for all files unless a later rule says otherwise: caches that several people
/// share must not keep them (RFC 9111 section 5.2.2.7).
#[must_use]
pub fn private_to_users() -> HeaderRule {
    HeaderRule::every("Cache-Control", "private")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_a_preset_a_time_or_directives() {
        for (policy, expected) in [
            ("immutable", "public, max-age=31536000, immutable"),
            ("no-cache", "no-cache"),
            ("no-store", "no-store"),
            ("1h", "max-age=3600"),
            ("10m", "max-age=600"),
            ("max-age=5,  stale-while-revalidate=60", "max-age=5,  stale-while-revalidate=60"),
        ] {
            assert_eq!(value(policy).as_deref(), Ok(expected), "{policy}");
        }
    }

    #[test]
    fn what_is_no_policy_is_told_with_what_would_be_one() {
        for (policy, what) in [
            ("*.html", "PATTERN POLICY"),
            ("*.html imutable", "\"imutable\" is no policy"),
            ("*.html max-age", "a time such as 1h"),
            ("*.html no-cache, x=1", "\"x=1\""),
            ("a[ no-cache", "unclosed"),
        ] {
            let error = policy.parse::<CachePolicy>().unwrap_err();
            assert!(error.contains(what), "{policy:?}: {error}");
        }
        assert_eq!(security_headers().count(), 3);
    }
}

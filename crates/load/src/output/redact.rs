//! The command line of a run as it is written down: without the credentials in it, because results are
//! passed on and published.

use crate::input::curl::{self, ShownArgument};

/// What stands in place of a credential.
const REDACTED: &str = "[redacted]";

/// The ends of the names of header fields whose values are credentials.
const SECRET_FIELDS: [&str; 4] = ["authorization", "cookie", "api-key", "token"];

/// The command line of this process, without credentials.
pub(crate) fn command() -> Vec<String> {
    // A name of a file may hold any bytes.
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let mut shown = Vec::new();
    while let Some(argument) = words.next() {
        match argument.strip_prefix("--curl=") {
            Some(command) => shown.push(format!("--curl={}", curl_command(command))),
            None if argument == "--curl" => {
                shown.push(argument);
                shown.extend(words.next().map(|command| curl_command(&command)));
            }
            None => shown.push(word(&argument)),
        }
    }
    shown
}

/// A command line of curl without credentials. The name of a file is shown as it is.
fn curl_command(text: &str) -> String {
    if text.starts_with('@') {
        return text.to_string();
    }
    let Some(arguments) = curl::shown(text) else { return REDACTED.to_string() };
    let mut shown = vec!["curl".to_string()];
    for argument in arguments {
        match argument {
            ShownArgument::Url(url) => shown.push(word(&url)),
            ShownArgument::Secret(name) => {
                shown.extend([format!("--{name}"), REDACTED.to_string()])
            }
            ShownArgument::Option(name, value) => {
                shown.push(format!("--{name}"));
                shown.extend(value.as_deref().map(word));
            }
        }
    }
    shlex::try_join(shown.iter().map(String::as_str)).unwrap_or_else(|_| REDACTED.to_string())
}

/// One argument: a header field with its flag or without, a URL, or something else.
fn word(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let ends = SECRET_FIELDS.iter().filter_map(|name| {
        let field = format!("{name}:");
        Some(lower.find(&field)? + field.len())
    });
    if let Some(end) = ends.min() {
        return format!("{} {REDACTED}", &text[..end]);
    }
    without_user(text).unwrap_or_else(|| text.to_string())
}

/// A URL without the user and password before its host (RFC 3986 section 3.2.1); `None`: it has none. Without a
/// scheme, only `user:password@` is taken for credentials: many other words have an `@`.
fn without_user(text: &str) -> Option<String> {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?', '#', '@']) => {
            (&text[..scheme.len() + 3], rest)
        }
        _ => ("", text),
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    let is_word = user.contains(':') && !user.contains([' ', '"', '\'', '{', '\n']);
    let is_url = !scheme.is_empty() || is_word;
    is_url.then(|| format!("{scheme}{REDACTED}{}", &rest[user.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found_in_every_form() {
        for (text, expected) in [
            ("Authorization: Basic abc", "Authorization: [redacted]"),
            ("-HProxy-Authorization:Basic abc", "-HProxy-Authorization: [redacted]"),
            ("--header=COOKIE: a=b; c=d", "--header=COOKIE: [redacted]"),
            ("X-Auth-Token: abc", "X-Auth-Token: [redacted]"),
            ("http://me:pw@a:80/b@c?d", "http://[redacted]@a:80/b@c?d"),
            ("http://a/b@c", "http://a/b@c"),
            ("HTTP://me@a/", "HTTP://[redacted]@a/"),
            ("me:pw@a/?u=http://b", "[redacted]@a/?u=http://b"),
            ("@file", "@file"),
            ("{\"mail\":\"me@a\"}", "{\"mail\":\"me@a\"}"),
            ("Accept: */*", "Accept: */*"),
            ("--connections", "--connections"),
        ] {
            assert_eq!(word(text), expected);
        }
    }

    #[test]
    fn a_curl_command_keeps_everything_else() {
        let text = "curl 'http://me@a/' -sume:pw --user me:pw \\\n --cookie a=b -ba=b -H 'A: b c' -H 'Cookie: x' \
                    --oauth2-bearer t";
        let expected = "curl http://[redacted]@a/ --silent --user [redacted] --user [redacted] --cookie [redacted] \
                        --cookie [redacted] --header 'A: b c' --header 'Cookie: [redacted]' --oauth2-bearer [redacted]";
        // What is quoted, and how, is shlex's to choose.
        assert_eq!(shlex::split(&curl_command(text)), shlex::split(expected));
        assert_eq!(curl_command("curl 'a"), REDACTED);
        assert_eq!(curl_command("@file"), "@file");
    }
}

//! The options of curl(1): which there are, which take a value, and what each means for a request.

/// What an option says of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionMeaning {
    /// Nothing: how curl prints, waits, retries, or checks certificates.
    Nothing,
    /// Something that cannot be carried out; the text is the way out.
    Refused(&'static str),
    Url,
    Method,
    Head,
    Get,
    Field,
    UserAgent,
    Referer,
    Cookie,
    User,
    Bearer,
    Compressed,
    Data,
    DataBinary,
    DataRaw,
    DataUrlencode,
    Json,
    Form,
    FormString,
    Upload,
    Range,
    PathAsIs,
    Globoff,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurlOption {
    /// Its name behind `--`.
    pub(super) long: &'static str,
    short: Option<u8>,
    takes_value: bool,
    pub(super) meaning: OptionMeaning,
}

impl CurlOption {
    /// Whether its value is a credential.
    pub(super) fn is_secret(&self) -> bool {
        matches!(self.meaning, OptionMeaning::User | OptionMeaning::Cookie | OptionMeaning::Bearer)
            || ["pass", "cert"].contains(&self.long)
    }
}

/// An argument of a command line.
#[derive(Debug)]
pub(super) enum Argument {
    /// An option with the value that it takes.
    Value(CurlOption, Vec<u8>),
    /// An option without a value; `false`: `--no-…`.
    Flag(CurlOption, bool),
    /// A word that is no option.
    Url(Vec<u8>),
}

/// Reads the arguments of a command line as curl does: `-sSXPOST`, `--request POST`, `--no-buffer`, `--`.
///
/// # Errors
/// One line that names the option that is unknown, or lacks its value.
pub(super) fn read(words: impl IntoIterator<Item = Vec<u8>>) -> Result<Vec<Argument>, String> {
    let mut words = words.into_iter();
    let mut arguments = Vec::new();
    let mut may_be_option = true;
    while let Some(word) = words.next() {
        if !may_be_option || word.first() != Some(&b'-') {
            arguments.push(Argument::Url(word));
        } else if word == b"--" {
            may_be_option = false;
        } else if let Some(name) = word.strip_prefix(b"--") {
            let name = String::from_utf8_lossy(name);
            let (option, on) = long(&name)?;
            arguments.push(match option.takes_value {
                true => Argument::Value(
                    option,
                    words.next().ok_or_else(|| no_value(&format!("--{name}")))?,
                ),
                false => Argument::Flag(option, on),
            });
        } else {
            shorts(&word[1..], &mut words, &mut arguments)?;
        }
    }
    Ok(arguments)
}

/// The option called `name`, and whether it is on.
fn long(name: &str) -> Result<(CurlOption, bool), String> {
    if let Some(option) = all().find(|option| option.long == name) {
        return Ok((option, true));
    }
    let negated =
        name.strip_prefix("no-").and_then(|name| all().find(|option| option.long == name));
    if let Some(mut option) = negated.filter(|option| !option.takes_value) {
        if matches!(option.meaning, OptionMeaning::Refused(_)) {
            option.meaning = OptionMeaning::Nothing;
        }
        return Ok((option, false));
    }
    Err(match name.split_once('=') {
        Some((name, _)) => {
            format!("--{name} has its value behind '=', where curl has a space: '--{name} …'")
        }
        None => unknown(&format!("--{name}")),
    })
}

/// Reads the letters of a word. The rest of the word behind an option that takes a value is the value.
fn shorts(
    mut letters: &[u8],
    words: &mut impl Iterator<Item = Vec<u8>>,
    arguments: &mut Vec<Argument>,
) -> Result<(), String> {
    if letters.is_empty() {
        return Err("'-' is no URL and no option of curl: leave it out".to_string());
    }
    while let Some((letter, rest)) = letters.split_first() {
        let name =
            || format!("-{}", String::from_utf8_lossy(&letters[..letters.len() - rest.len()]));
        let option = all().find(|option| option.short == Some(*letter));
        let option = option.ok_or_else(|| unknown(&name()))?;
        if !option.takes_value {
            arguments.push(Argument::Flag(option, true));
            letters = rest;
            continue;
        }
        let value = if rest.is_empty() { words.next() } else { Some(rest.to_vec()) };
        arguments.push(Argument::Value(option, value.ok_or_else(|| no_value(&name()))?));
        break;
    }
    Ok(())
}

fn unknown(option: &str) -> String {
    format!("{option} is not supported: leave it out")
}

fn no_value(option: &str) -> String {
    format!("{option} needs a value")
}

/// All options that are known.
fn all() -> impl Iterator<Item = CurlOption> {
    let flags = IGNORED_FLAGS.iter().map(|option| (option, false, OptionMeaning::Nothing));
    let values = IGNORED_VALUES.iter().map(|option| (option, true, OptionMeaning::Nothing));
    let refused = REFUSED.iter().map(|(option, takes_value, way_out)| {
        (option, *takes_value, OptionMeaning::Refused(way_out))
    });
    let meant = MEANT.iter().map(|(option, takes_value, meaning)| (option, *takes_value, *meaning));
    flags.chain(values).chain(refused).chain(meant).map(|((long, short), takes_value, meaning)| {
        let short = (*short != ' ').then_some(*short as u8);
        CurlOption { long, short, takes_value, meaning }
    })
}

/// A long name, and a letter or a space.
type Name = (&'static str, char);

#[rustfmt::skip]
const MEANT: &[(Name, bool, OptionMeaning)] = &[
    (("url", ' '), true, OptionMeaning::Url),
    (("request", 'X'), true, OptionMeaning::Method),
    (("head", 'I'), false, OptionMeaning::Head),
    (("get", 'G'), false, OptionMeaning::Get),
    (("header", 'H'), true, OptionMeaning::Field),
    (("user-agent", 'A'), true, OptionMeaning::UserAgent),
    (("referer", 'e'), true, OptionMeaning::Referer),
    (("cookie", 'b'), true, OptionMeaning::Cookie),
    (("user", 'u'), true, OptionMeaning::User),
    (("oauth2-bearer", ' '), true, OptionMeaning::Bearer),
    (("compressed", ' '), false, OptionMeaning::Compressed),
    (("data", 'd'), true, OptionMeaning::Data),
    (("data-ascii", ' '), true, OptionMeaning::Data),
    (("data-binary", ' '), true, OptionMeaning::DataBinary),
    (("data-raw", ' '), true, OptionMeaning::DataRaw),
    (("data-urlencode", ' '), true, OptionMeaning::DataUrlencode),
    (("json", ' '), true, OptionMeaning::Json),
    (("form", 'F'), true, OptionMeaning::Form),
    (("form-string", ' '), true, OptionMeaning::FormString),
    (("upload-file", 'T'), true, OptionMeaning::Upload),
    (("range", 'r'), true, OptionMeaning::Range),
    (("path-as-is", ' '), false, OptionMeaning::PathAsIs),
    (("globoff", 'g'), false, OptionMeaning::Globoff),
];

#[rustfmt::skip]
const IGNORED_FLAGS: &[Name] = &[
    // What is printed, and where.
    ("silent", 's'), ("show-error", 'S'), ("include", 'i'), ("show-headers", ' '), ("verbose", 'v'), ("buffer", 'N'),
    ("progress-bar", '#'), ("progress-meter", ' '), ("styled-output", ' '), ("trace-time", ' '), ("trace-ids", ' '),
    ("remote-name", 'O'), ("remote-name-all", ' '), ("remote-header-name", 'J'), ("create-dirs", ' '),
    ("clobber", ' '), ("remove-on-error", ' '), ("xattr", ' '), ("suppress-connect-headers", ' '), ("raw", ' '),
    ("http0.9", ' '),
    // When curl gives up, or goes on with other requests. Redirects are never followed.
    ("fail", 'f'), ("fail-early", ' '), ("fail-with-body", ' '), ("retry-connrefused", ' '),
    ("retry-all-errors", ' '), ("location", 'L'), ("location-trusted", ' '), ("post301", ' '), ("post302", ' '),
    ("post303", ' '), ("parallel", 'Z'), ("parallel-immediate", ' '),
    // Connections and their TLS, which `drover load` has flags of its own for.
    ("http1.1", ' '), ("http2", ' '), ("http2-prior-knowledge", ' '), ("tcp-nodelay", ' '), ("tcp-fastopen", ' '), ("keepalive", ' '), ("sessionid", ' '),
    ("alpn", ' '), ("npn", ' '), ("insecure", 'k'), ("tlsv1", '1'), ("tlsv1.0", ' '), ("tlsv1.1", ' '),
    ("tlsv1.2", ' '), ("tlsv1.3", ' '), ("sslv2", '2'), ("sslv3", '3'), ("ssl", ' '), ("ssl-reqd", ' '),
    ("ssl-allow-beast", ' '), ("ssl-no-revoke", ' '), ("ssl-revoke-best-effort", ' '),
    ("ssl-auto-client-cert", ' '), ("cert-status", ' '), ("false-start", ' '), ("ca-native", ' '),
    // Curl's own settings, and its defaults.
    ("disable", 'q'), ("junk-session-cookies", 'j'), ("basic", ' '),
];

#[rustfmt::skip]
const IGNORED_VALUES: &[Name] = &[
    ("output", 'o'), ("write-out", 'w'), ("dump-header", 'D'), ("cookie-jar", 'c'), ("stderr", ' '), ("trace", ' '),
    ("trace-ascii", ' '), ("trace-config", ' '), ("output-dir", ' '), ("create-file-mode", ' '), ("libcurl", ' '),
    ("etag-save", ' '),
    ("max-time", 'm'), ("connect-timeout", ' '), ("expect100-timeout", ' '), ("retry", ' '), ("retry-delay", ' '),
    ("retry-max-time", ' '), ("max-redirs", ' '), ("max-filesize", ' '), ("speed-time", 'y'), ("speed-limit", 'Y'),
    ("proto", ' '), ("proto-redir", ' '), ("parallel-max", ' '), ("rate", ' '), ("happy-eyeballs-timeout-ms", ' '),
    ("keepalive-time", ' '), ("keepalive-cnt", ' '), ("noproxy", ' '),
    ("cacert", ' '), ("capath", ' '), ("cert", 'E'), ("cert-type", ' '), ("key", ' '), ("key-type", ' '), ("pass", ' '),
    ("ciphers", ' '), ("tls13-ciphers", ' '), ("tls-max", ' '), ("curves", ' '), ("pinnedpubkey", ' '),
    ("crlfile", ' '), ("engine", ' '), ("egd-file", ' '), ("random-file", ' '),
];

const ONE_REQUEST: &str = "one request is sent again and again: leave it out, or use --urls";
const OTHER_HTTP: &str = "requests are HTTP/1.1 or HTTP/2: leave it out";
const NO_PROXY: &str = "proxies are not supported: leave it out";
const ONLY_BASIC: &str = "only Basic authentication is supported";
const OTHER_SERVER: &str = "name the server with --target";
const OTHER_ADDRESS: &str = "name the address with --target";
const NETRC: &str = "write the user as -u USER:PASSWORD";

#[rustfmt::skip]
const REFUSED: &[(Name, bool, &str)] = &[
    (("next", ':'), false, ONE_REQUEST),
    (("config", 'K'), true, "put the options of its file into the command"),
    (("http1.0", '0'), false, OTHER_HTTP), (("http3", ' '), false, OTHER_HTTP), (("http3-only", ' '), false, OTHER_HTTP),
    (("proxy", 'x'), true, NO_PROXY), (("preproxy", ' '), true, NO_PROXY), (("proxy1.0", ' '), true, NO_PROXY),
    (("proxytunnel", 'p'), false, NO_PROXY), (("proxy-user", 'U'), true, NO_PROXY),
    (("proxy-header", ' '), true, NO_PROXY), (("socks4", ' '), true, NO_PROXY), (("socks4a", ' '), true, NO_PROXY),
    (("socks5", ' '), true, NO_PROXY), (("socks5-hostname", ' '), true, NO_PROXY),
    (("haproxy-protocol", ' '), false, "the PROXY protocol is not supported: leave it out"),
    (("digest", ' '), false, ONLY_BASIC), (("ntlm", ' '), false, ONLY_BASIC), (("negotiate", ' '), false, ONLY_BASIC),
    (("anyauth", ' '), false, ONLY_BASIC), (("aws-sigv4", ' '), true, ONLY_BASIC),
    (("netrc", 'n'), false, NETRC), (("netrc-file", ' '), true, NETRC), (("netrc-optional", ' '), false, NETRC),
    (("resolve", ' '), true, OTHER_SERVER), (("connect-to", ' '), true, OTHER_SERVER),
    (("dns-servers", ' '), true, OTHER_SERVER), (("doh-url", ' '), true, OTHER_SERVER),
    (("ipv4", '4'), false, OTHER_ADDRESS), (("ipv6", '6'), false, OTHER_ADDRESS),
    (("unix-socket", ' '), true, "use --unix PATH of drover load"),
    (("abstract-unix-socket", ' '), true, "use --unix PATH of drover load"),
    (("interface", ' '), true, "use --source of drover load"),
    (("local-port", ' '), true, "use --local-ports of drover load"),
    (("limit-rate", ' '), true, "use --read-rate of drover load"),
    (("time-cond", 'z'), true, "write -H 'If-Modified-Since: …'"),
    (("etag-compare", ' '), true, "write -H 'If-None-Match: …'"),
    (("continue-at", 'C'), true, "write -r FROM-"),
    (("tr-encoding", ' '), false, "leave it out"),
    (("url-query", ' '), true, "write it into the URL"),
    (("request-target", ' '), true, "write it into the URL"),
    (("proto-default", ' '), true, "write the URL with its scheme"),
    (("hsts", ' '), true, "leave it out"), (("alt-svc", ' '), true, "leave it out"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &[&str]) -> Result<Vec<String>, String> {
        let arguments = read(words.iter().map(|word| word.as_bytes().to_vec()))?;
        let text = |value: Vec<u8>| String::from_utf8(value).unwrap();
        let shown = arguments.into_iter().map(|argument| match argument {
            Argument::Value(option, value) => format!("{} {}", option.long, text(value)),
            Argument::Flag(option, true) => option.long.to_string(),
            Argument::Flag(option, false) => format!("no {}", option.long),
            Argument::Url(url) => format!("URL {}", text(url)),
        });
        Ok(shown.collect())
    }

    #[test]
    fn letters_are_grouped_and_values_may_follow_at_once() {
        assert_eq!(
            shown(&["-sSfLo", "f", "-XPUT", "a"]).unwrap(),
            ["silent", "show-error", "fail", "location", "output f", "request PUT", "URL a"]
        );
        assert_eq!(
            shown(&["-N", "--no-compressed", "--no-http2", "-d", "-x"]).unwrap(),
            ["buffer", "no compressed", "no http2", "data -x"]
        );
        assert_eq!(shown(&["--", "-s"]).unwrap(), ["URL -s"]);
    }

    #[test]
    fn unknown_options_are_named() {
        for (words, reason) in [
            (&["--zzz"][..], "--zzz is not supported"),
            (&["-s\u{e9}"], "-\u{fffd} is not supported"),
            (&["-"], "'-'"),
            (&["-H"], "-H needs a value"),
            (&["-sX"], "-X needs a value"),
            (&["--header"], "--header needs a value"),
            (&["--request=PUT"], "behind '='"),
            (&["--no-request", "PUT"], "--no-request is not supported"),
        ] {
            let error = shown(words).unwrap_err();
            assert!(error.contains(reason), "{words:?}: {error}");
        }
    }

    #[test]
    fn no_name_is_there_twice() {
        let mut names: Vec<String> = all().map(|option| option.long.to_string()).collect();
        names.extend(all().filter_map(|option| Some((option.short? as char).to_string())));
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}

//! The request of a curl(1) command line, as browsers, Postman and documentation write them.
//!
//! `shell` makes words of the text as bash does, `options` makes options of the words as curl does, `command`
//! collects what they say, and `request` writes the head as curl would: the same fields in the same order. Whatever is
//! not understood is refused. `crates/drover/tests/load/curl/` holds the intended differences as data, and a
//! corpus that a test sends by both programs.

mod command;
mod options;
mod parts;
mod request;
mod shell;
mod url;

use drover_usage::printable;

use crate::input::text::ReadFile;
use crate::plan::request::RequestTemplate;
use crate::plan::target::Url;
use command::CurlCommand;
use options::Argument;

/// Reads `curl …` as it would be typed into bash; a `server` takes the place of the URL's. Files that the command names
/// (`-d @FILE`) are read by `read`.
///
/// # Errors
/// One line that names the part that cannot be carried out.
pub fn parse(
    text: &str,
    server: Option<&Url>,
    read: &mut ReadFile,
) -> Result<RequestTemplate, String> {
    let command = arguments(text).and_then(|arguments| CurlCommand::new(arguments, read));
    let request = command.and_then(|command| request::build(command, server));
    request.map_err(|error| printable(&error).into_owned())
}

/// How HTTP/2 is begun that a command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurlHttp2 {
    /// `--http2`: chosen by ALPN. On `http://` URLs curl would ask for an upgrade.
    Negotiated,
    /// `--http2-prior-knowledge`: spoken without asking.
    PriorKnowledge,
}

/// Whether `curl …` asks for HTTP/2, by the last of its options about that; `None` also if it cannot be read.
#[must_use]
pub fn http2(text: &str) -> Option<CurlHttp2> {
    let mut asked = None;
    for argument in arguments(text).ok()? {
        let Argument::Flag(option, on) = argument else { continue };
        match option.long {
            "http2" => asked = on.then_some(CurlHttp2::Negotiated),
            "http2-prior-knowledge" => asked = on.then_some(CurlHttp2::PriorKnowledge),
            "http1.1" => asked = None,
            _ => {}
        }
    }
    asked
}

fn arguments(text: &str) -> Result<Vec<Argument>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut words = shell::words(text)?.into_iter();
    if words.next().as_deref() != Some(b"curl") {
        return Err("it does not begin with 'curl': copy it as cURL (bash)".to_string());
    }
    options::read(words)
}

/// An argument of a command line, to be shown to others.
pub(crate) enum ShownArgument {
    /// An option, or an option and its value.
    Option(&'static str, Option<String>),
    /// An option whose value is a credential.
    Secret(&'static str),
    /// A word that is no option.
    Url(String),
}

/// The arguments of `curl …`; `None`: it cannot be read.
pub(crate) fn shown(text: &str) -> Option<Vec<ShownArgument>> {
    let lossy = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let shown = arguments(text).ok()?.into_iter().map(|argument| match argument {
        Argument::Url(url) => ShownArgument::Url(lossy(url)),
        Argument::Value(option, _) if option.is_secret() => ShownArgument::Secret(option.long),
        Argument::Value(option, value) => ShownArgument::Option(option.long, Some(lossy(value))),
        Argument::Flag(option, _) => ShownArgument::Option(option.long, None),
    });
    Some(shown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let server = "http://127.0.0.1:8".parse().unwrap();
        let mut files = |name: &str| Ok(format!("<{name}\r\n>").into_bytes());
        let request = parse(text, Some(&server), &mut files)?;
        Ok(String::from_utf8(request.prepare().bytes).unwrap())
    }

    #[track_caller]
    fn sent(text: &str) -> String {
        read(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_browsers_command_is_its_request() {
        let text = "curl 'https://example.org/api?q=1' \\\n  -H 'accept: text/html' \\\n  \
                    -H 'cookie: a=b; c=d' \\\n  --data-raw $'{\"x\":\"it\\'s\\u0021\"}' \\\n  --compressed";
        assert_eq!(
            sent(text),
            "POST /api?q=1 HTTP/1.1\r\nHost: 127.0.0.1:8\r\nAccept-Encoding: deflate, gzip, br, zstd\r\naccept: \
             text/html\r\ncookie: a=b; c=d\r\nContent-Length: 13\r\nContent-Type: \
             application/x-www-form-urlencoded\r\n\r\n{\"x\":\"it's!\"}"
        );
        assert_eq!(sent(&format!("\u{feff}{}\r\n", text.replace('\n', "\r\n"))), sent(text));
    }

    #[test]
    fn each_flag_does_what_it_does_in_curl() {
        let head = |method: &str, path: &str, fields: &str| {
            format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:8\r\n{fields}\r\n")
        };
        let any = "Accept: */*\r\n";
        assert_eq!(sent("curl http://a/b"), head("GET", "/b", any));
        assert_eq!(sent("curl a/b"), head("GET", "/b", any));
        assert_eq!(
            sent("curl -fsSLI http://a -o x -w '%{http_code}' -m 5"),
            head("HEAD", "/", any)
        );
        assert_eq!(sent("curl -XDELETE http://a"), head("DELETE", "/", any));
        assert_eq!(sent("curl -X post http://a"), head("post", "/", any));
        assert_eq!(sent("curl -G -d x=1 -d y=2 http://a/?z"), head("GET", "/?z&x=1&y=2", any));
        let fields = format!(
            "Authorization: Basic dTpw\r\nRange: bytes=5-\r\nUser-Agent: me\r\n{any}Referer: http://r/\r\n\
             Cookie: a=b;c=d\r\n"
        );
        let text = "curl -sSk -A me -e 'http://r/;auto' -b a=b -b c=d -u u:p -r 5- http://a";
        assert_eq!(sent(text), head("GET", "/", &fields));
        let text = "curl http://a -H 'accept:' -H 'x-empty;' -H 'cookie: a=b; c=d' -b e=f";
        assert_eq!(sent(text), head("GET", "/", "x-empty:\r\ncookie: a=b; c=d\r\n"));
        let text = "curl http://u:p@a -H 'HOST:  h'";
        let fields = format!("Authorization: Basic dTpw\r\n{any}");
        assert_eq!(sent(text), head("GET", "/", &fields).replace("127.0.0.1:8", " h"));
        assert_eq!(sent("curl http://a -H 'Host:'"), format!("GET / HTTP/1.1\r\n{any}\r\n"));
    }

    #[test]
    fn bodies_are_texts_files_and_forms() {
        let body = |text: &str| sent(text).split_once("\r\n\r\n").unwrap().1.to_string();
        assert_eq!(body("curl a -d @f --data-binary @g --data-raw @h -d i"), "<f>&<g\r\n>&@h&i");
        assert_eq!(body("curl a --json '{' --json '}'"), "{}");
        let text = "curl a --data-urlencode 'a b' --data-urlencode '=c=' --data-urlencode 'd=e f' --data-urlencode g@h";
        assert_eq!(body(text), "a+b&c%3D&d=e+f&g=%3Ch%0D%0A%3E");
        assert!(
            sent("curl a -d ''").contains("\r\nContent-Length: 0\r\nContent-Type: application/x")
        );
        assert!(!sent("curl -X POST a").contains("Content-Length"));
        let put = sent("curl -T f a/b");
        assert!(put.starts_with("PUT /b") && put.contains("Length: 5\r\n\r\n<f"), "{put}");
        let form = sent("curl a -F x=y -H 'content-type: multipart/form-data'");
        assert!(
            form.contains("Length: 137\r\nContent-Type: multipart/form-data; boundary=-"),
            "{form}"
        );
    }

    #[test]
    fn the_last_option_says_whether_http_2_is_spoken() {
        use CurlHttp2::{Negotiated, PriorKnowledge};
        for (text, expected) in [
            ("curl https://a", None),
            ("curl --http2 https://a", Some(Negotiated)),
            ("curl https://a --http2 --http2-prior-knowledge", Some(PriorKnowledge)),
            ("curl https://a --http2 --http1.1", None),
            ("curl https://a --http2 --no-http2", None),
            ("wget --http2 https://a", None),
        ] {
            assert_eq!(http2(text), expected, "{text}");
        }
        assert_eq!(sent("curl --http2 http://a"), sent("curl http://a"));
    }

    #[test]
    fn what_cannot_be_carried_out_is_named() {
        for (text, reason) in [
            ("wget http://a", "begin with 'curl'"),
            ("curl 'http://a", "quotes"),
            ("curl", "no URL"),
            ("curl http://a http://b", "second URL, 'http://b'"),
            ("curl http://a --zzz", "--zzz is not supported"),
            ("curl http://a --http3", "HTTP/2"),
            ("curl http://a -x http://b", "proxies"),
            ("curl http://a -H 'a b;'", "no header field"),
            ("curl http://a -H 'a;b'", "no header field"),
            ("curl http://a -H $'a: b\\r\\nc: d'", "no header field"),
            ("curl http://a -A $'a\\nb'", "no header field"),
            ("curl http://a -H 'Transfer-Encoding: chunked'", "by itself"),
            ("curl http://a -d abc -H 'Content-Length: 4'", "3 bytes"),
            ("curl http://a -d abc -H 'Content-Length: +3'", "3 bytes"),
            ("curl http://a -d abc -H 'Content-Length: 03'", "3 bytes"),
            ("curl http://a -d abc -H 'Content-Length:'", "without its length"),
            ("curl http://a -H 'Expect: 100-continue'", "Expect"),
            ("curl http://a -H @file", "--header '@file'"),
            ("curl -b jar http://a", "files of cookies"),
            ("curl -d @- http://a", "stdin"),
            ("curl http://a -I -d x", "--head"),
            ("curl http://a -G -F x=y", "--form"),
            ("curl http://a -r 5- -d x", "--range"),
            ("curl http://a -r x", "FROM-TO"),
            ("curl http://a -u me", "USER:PASSWORD"),
            ("curl http://a -u me:pw --oauth2-bearer x", "two users"),
            ("curl http://a/?b -T f", "behind"),
            ("curl http://a/b -T f -T g", "second file"),
            ("curl http://a/b -H host:", "'Host:'"),
            ("curl http://a/b -F a=b -H 'Content-Type: multipart/mixed'", "multipart/form-data"),
            ("curl http://a/b -F a=b -H 'content-type:'", "multipart/form-data"),
            ("curl http://a -X 'G T'", "no method"),
            ("curl http://a -H $'x: \\xff'", "--header is not in UTF-8"),
            ("curl ftp://a", "no http:// or https:// URL"),
        ] {
            let error = read(text).err().unwrap_or_else(|| panic!("{text}"));
            assert!(error.contains(reason) && !error.contains('\n'), "{text}: {error}");
        }
    }

    proptest::proptest! {
        /// Whatever is accepted is one request: its head has no more lines than it has fields, and its body the
        /// length that the head says.
        #[test]
        fn what_is_accepted_is_one_request(
            arguments in proptest::collection::vec(
                "(-[XIGHAebudFTrgsSfLo]|--(data-urlencode|data-raw|json|compressed|get|path-as-is|user)|(X|Content-Length|Host|Expect)[:;]?|http://a|a)\
                 [ =]?(\\$?'[^']{0,6}'|\"[^\"$`]{0,6}\"|[a-z=:/@.%&?-]{0,6}|\\$'(\\\\r\\\\n|a){0,3}')",
                0..5,
            ),
        ) {
            let text = format!("curl {}", arguments.join(" "));
            if let Ok(request) = parse(&text, None, &mut |name| Ok(name.as_bytes().to_vec())) {
                let content = &request.content;
                let bytes = request.prepare().bytes;
                let (head, body) = bytes.split_at(bytes.len() - content.body.len());
                let head = std::str::from_utf8(head).unwrap().strip_suffix("\r\n\r\n").unwrap();
                let mut lines = head.split("\r\n");
                proptest::prop_assert!(lines.next().unwrap().ends_with(" HTTP/1.1"), "{:?}", head);
                let lines: Vec<&str> = lines.collect();
                proptest::prop_assert_eq!(&lines, &content.fields);
                proptest::prop_assert!(!head.contains(['\0', '\n']) || !head.replace("\r\n", "").contains(['\r', '\n', '\0']));
                let lengths: Vec<&str> = lines.iter().filter_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    name.eq_ignore_ascii_case("content-length").then_some(value.trim())
                }).collect();
                let expected = body.len().to_string();
                proptest::prop_assert!(lengths.iter().all(|it| *it == expected));
                proptest::prop_assert!(body.is_empty() || !lengths.is_empty());
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "(curl )?\\PC{0,40}") {
            let _ = parse(&text, None, &mut |_| Err(String::new()));
        }
    }
}

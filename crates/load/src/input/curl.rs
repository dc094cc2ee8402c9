//! A request as a browser copies it for curl(1).

use std::sync::Arc;

use base64::Engine;

use crate::input::urls;
use crate::plan::request::{RequestContent, RequestMethod, RequestTemplate, parse_field};
use crate::plan::target::Url;

/// The request, as far as the command line has been read.
#[derive(Default)]
struct Command {
    url: Option<String>,
    method: Option<String>,
    head: bool,
    get: bool,
    fields: Vec<String>,
    /// Names of fields that are not to be sent by themselves.
    without: Vec<String>,
    data: Option<String>,
    data_is_form: bool,
}

/// Flags that change nothing here: how curl prints, checks certificates or follows up.
const IGNORED: [&str; 13] = [
    "-s",
    "--silent",
    "-S",
    "--show-error",
    "-k",
    "--insecure",
    "-i",
    "--include",
    "-v",
    "--verbose",
    "--globoff",
    "-g",
    "--no-buffer",
];

/// Reads `curl …` as it would be typed into a shell; a `server` takes the place of the URL's.
///
/// # Errors
/// One line that names the part that cannot be carried out.
pub fn parse(text: &str, server: Option<&Url>) -> Result<RequestTemplate, String> {
    if text.contains(" $'") {
        return Err("its $'…' quotes are bash's own: put that body into a file, and send it with \
                    --body @FILE, --method and -H"
            .to_string());
    }
    let words = words(text).ok_or("its quotes do not match: copy it as for bash (POSIX)")?;
    let mut words = words.into_iter();
    if words.next().as_deref() != Some("curl") {
        return Err("it does not begin with 'curl': copy it as for bash (POSIX)".to_string());
    }
    let mut command = Command::default();
    while let Some(word) = words.next() {
        let (flag, value) = split(&word);
        let mut value = || {
            let value = value.map(String::from).or_else(|| words.next());
            value.ok_or_else(|| format!("{flag} needs a value"))
        };
        command.take(flag, &word, &mut value)?;
    }
    command.request(server)
}

/// The words of a command line; `None`: its quotes do not match.
pub(crate) fn words(text: &str) -> Option<Vec<String>> {
    // Browsers break the line before each flag.
    shlex::split(&text.replace("\\\r\n", " ").replace("\\\n", " "))
}

/// Whether the flag `letter` of a group (`-sS`) changes nothing.
fn is_ignored(letter: char) -> bool {
    IGNORED.contains(&&format!("-{letter}")[..])
}

/// A word as flag and value: `--flag=value` and `-Xvalue` carry theirs.
pub(crate) fn split(word: &str) -> (&str, Option<&str>) {
    if word.starts_with("--") {
        return word.split_once('=').map_or((word, None), |(flag, value)| (flag, Some(value)));
    }
    let takes_value = ["-X", "-H", "-d", "-b", "-A", "-e", "-u"];
    match word.get(..2) {
        Some(flag) if word.len() > 2 && takes_value.contains(&flag) => (flag, Some(&word[2..])),
        _ => (word, None),
    }
}

impl Command {
    fn take(
        &mut self,
        flag: &str,
        word: &str,
        value: &mut dyn FnMut() -> Result<String, String>,
    ) -> Result<(), String> {
        match flag {
            "-X" | "--request" => self.method = Some(value()?),
            "-I" | "--head" => self.head = true,
            "-G" | "--get" => self.get = true,
            "-H" | "--header" => self.field(&value()?)?,
            "-A" | "--user-agent" => self.field(&format!("User-Agent: {}", value()?))?,
            "-e" | "--referer" => self.field(&format!("Referer: {}", value()?))?,
            "-b" | "--cookie" => {
                let cookies = value()?;
                if !cookies.contains('=') {
                    return Err(format!(
                        "{flag} {cookies}: a file of cookies is not read: give NAME=VALUE"
                    ));
                }
                self.field(&format!("Cookie: {cookies}"))?;
            }
            "-u" | "--user" => {
                let user = base64::engine::general_purpose::STANDARD.encode(value()?);
                self.field(&format!("Authorization: Basic {user}"))?;
            }
            "--compressed" => self.field("Accept-Encoding: gzip, deflate")?,
            "-d" | "--data" | "--data-ascii" | "--data-binary" => {
                let data = value()?;
                if data.starts_with('@') {
                    return Err(format!("{flag} {data}: a file is read by --body @FILE only"));
                }
                self.data(&data);
            }
            "--data-raw" => self.data(&value()?),
            "--json" => {
                self.data(&value()?);
                self.data_is_form = false;
                self.field("Content-Type: application/json")?;
                self.field("Accept: application/json")?;
            }
            "--url" => self.url(value()?)?,
            ignored if IGNORED.contains(&ignored) => {}
            "-L" | "--location" => {
                return Err(format!("{flag}: redirects are not followed: give their target"));
            }
            _ if word.len() > 2 && word.starts_with('-') && word[1..].chars().all(is_ignored) => {}
            _ if word.len() > 1 && word.starts_with('-') => {
                return Err(format!("{flag} is not supported: leave it out"));
            }
            _ => self.url(word.to_string())?,
        }
        Ok(())
    }

    fn url(&mut self, url: String) -> Result<(), String> {
        match self.url.replace(url) {
            None => Ok(()),
            Some(first) => Err(format!("it has a second URL beside '{first}': leave one out")),
        }
    }

    /// A field as curl takes it: `Name: value`, `Name;` for one without a value, and `Name:` for none
    /// of that name.
    fn field(&mut self, field: &str) -> Result<(), String> {
        let name = field.split([':', ';']).next().unwrap_or_default();
        // Content-Length is written from the body.
        if name.eq_ignore_ascii_case("content-length") {
            return Ok(());
        }
        let empty = || parse_field(&format!("{name}:"));
        match field[name.len()..].trim_end() {
            ":" => self.without.push(empty()?),
            ";" => self.fields.push(empty()?),
            _ => self.fields.push(parse_field(field)?),
        }
        Ok(())
    }

    /// Several bodies are joined as the fields of a form are.
    fn data(&mut self, more: &str) {
        self.data_is_form = true;
        match &mut self.data {
            None => self.data = Some(more.to_string()),
            Some(data) => {
                data.push('&');
                data.push_str(more);
            }
        }
    }

    /// Adds a field that curl sends by default, unless the command sets or removes it.
    fn default_field(&mut self, field: &str) {
        let name = |field: &str| field.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let known = self.fields.iter().chain(&self.without).any(|known| name(known) == name(field));
        if !known {
            self.fields.push(field.to_string());
        }
    }

    fn request(mut self, server: Option<&Url>) -> Result<RequestTemplate, String> {
        let mut url = self.url.take().ok_or("it has no URL")?;
        // For curl, a URL without a scheme is an http URL.
        if !url.contains("://") && !url.starts_with('/') {
            url = format!("http://{url}");
        }
        let mut body = self.data.take();
        if self.get
            && let Some(data) = body.take()
        {
            url = format!("{url}{}{data}", if url.contains('?') { '&' } else { '?' });
        }
        if body.is_some() && self.data_is_form {
            self.default_field("Content-Type: application/x-www-form-urlencoded");
        }
        self.default_field("Accept: */*");
        let method: RequestMethod = match self.method {
            Some(method) => method.parse()?,
            None if self.head => "HEAD".parse()?,
            None if body.is_some() => "POST".parse()?,
            None => RequestMethod::default(),
        };
        let body = body.unwrap_or_default().into_bytes();
        let url = urls::at(&url, server).map_err(tls_remedy)?;
        Ok(RequestTemplate {
            url,
            content: Arc::new(RequestContent {
                method,
                fields: self.fields,
                body,
                is_whole_head: false,
            }),
        })
    }
}

/// Adds to an error about https that another server can be given: nearly all requests of a browser
/// are https.
pub(crate) fn tls_remedy(error: String) -> String {
    if error.contains("TLS") {
        format!("{error}, or send it elsewhere with --target")
    } else {
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn sent(text: &str) -> String {
        let server = "http://127.0.0.1:8".parse().unwrap();
        let request = parse(text, Some(&server)).unwrap_or_else(|error| panic!("{error}"));
        String::from_utf8(request.prepare().bytes).unwrap()
    }

    #[test]
    fn a_browsers_command_is_its_request() {
        let text = "curl 'https://example.org/api?q=1' \\\n  -H 'accept: text/html' \\\n  \
                    -H 'cookie: a=b; c=d' \\\n  --data-raw '{\"x\":\"it'\\''s\"}' \\\n  --compressed";
        assert_eq!(
            sent(text),
            "POST /api?q=1 HTTP/1.1\r\nHost: 127.0.0.1:8\r\naccept: text/html\r\ncookie: a=b; \
             c=d\r\nAccept-Encoding: gzip, deflate\r\nContent-Type: \
             application/x-www-form-urlencoded\r\nContent-Length: 12\r\n\r\n{\"x\":\"it's\"}"
        );
    }

    #[test]
    fn each_flag_does_what_it_does_in_curl() {
        let head = |method: &str, path: &str, fields: &str| {
            format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:8\r\n{fields}\r\n")
        };
        let any = "Accept: */*\r\n";
        assert_eq!(sent("curl http://a/b"), head("GET", "/b", any));
        assert_eq!(sent("curl a/b"), head("GET", "/b", any));
        assert_eq!(sent("curl -I http://a"), head("HEAD", "/", any));
        assert_eq!(sent("curl -XDELETE http://a"), head("DELETE", "/", any));
        assert_eq!(sent("curl --request=PURGE http://a"), head("PURGE", "/", any));
        assert_eq!(sent("curl -G -d x=1 -d y=2 http://a/?z"), head("GET", "/?z&x=1&y=2", any));
        let fields = format!(
            "User-Agent: me\r\nReferer: http://r/\r\nCookie: a=b\r\nAuthorization: Basic dTpw\r\n{any}"
        );
        let text = "curl -sSk -A me -e http://r/ -b a=b -u u:p http://a";
        assert_eq!(sent(text), head("GET", "/", &fields));
        let text = "curl http://a -H 'accept:' -H 'x-empty;' -H 'cookie: a=b; c=d'";
        assert_eq!(sent(text), head("GET", "/", "x-empty:\r\ncookie: a=b; c=d\r\n"));
    }

    #[test]
    fn what_cannot_be_carried_out_is_named() {
        for (text, reason) in [
            ("wget http://a", "begin with 'curl'"),
            ("curl 'http://a", "quotes"),
            ("curl http://a --data-raw $'a\\'b'", "--body @FILE"),
            ("curl", "no URL"),
            ("curl http://a http://b", "second URL"),
            ("curl http://a -F x=y", "-F is not supported"),
            ("curl http://a -o file", "-o is not supported"),
            ("curl http://a -so file", "-so is not supported"),
            ("curl http://a -H 'a b;'", "no header field"),
            ("curl -L http://a", "redirects"),
            ("curl -b jar http://a", "file of cookies"),
            ("curl -d @file http://a", "--body @FILE"),
            ("curl http://a -H", "-H needs a value"),
            ("curl http://a -H nonsense", "no header field"),
            ("curl https://a", "--target"),
            ("curl ftp://a", "no http:// URL"),
        ] {
            let error = parse(text, None).unwrap_err();
            assert!(error.contains(reason) && !error.contains('\n'), "{text}: {error}");
        }
    }
}

//! A corpus of command lines, each sent by curl and by `drover load --curl`: the requests are the same, byte by byte,
//! but for the differences of `differences.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::string::string_regex;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde::Deserialize;

use crate::run::drover;

#[derive(Deserialize)]
struct Corpus {
    /// Files that commands name, in the folder where they run.
    files: BTreeMap<String, String>,
    command: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    from: String,
    text: String,
    refused: Option<String>,
    #[serde(default)]
    crlf: bool,
}

#[derive(Deserialize)]
struct Differences {
    difference: Vec<Difference>,
}

#[derive(Deserialize)]
struct Difference {
    kind: Kind,
    field: Option<String>,
    value: Option<String>,
    /// The option of curl without which it does not apply.
    option: Option<String>,
    why: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Absent,
    Value,
    Boundary,
    HexCase,
}

/// A server at a unix socket that passes on the bytes of each request.
struct Recorder {
    folder: tempfile::TempDir,
    requests: Receiver<Vec<u8>>,
}

impl Recorder {
    fn start(files: &BTreeMap<String, String>) -> Recorder {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let settings =
            format!("unix-socket = \"{}\"\nmax-time = 60\nnoproxy = \"*\"\n", socket.display());
        fs::write(folder.path().join(".curlrc"), settings).unwrap();
        let (sender, requests) = channel();
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let sender = sender.clone();
                thread::spawn(move || serve(stream, &sender));
            }
        });
        Recorder { folder, requests }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Has bash and curl send a command; `None`: this curl does not know one of its options.
    #[track_caller]
    fn by_curl(&self, text: &str) -> Option<Vec<u8>> {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "--noprofile", "-c", text]).current_dir(self.folder.path());
        bash.env("CURL_HOME", self.folder.path()).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        let output = bash.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(2) {
            drover_testing::skip!("this curl: {}", stderr.lines().next().unwrap_or_default());
            return None;
        }
        assert!(output.status.success(), "{text}: {stderr}");
        Some(self.requests.try_recv().unwrap())
    }

    /// Has Drover send a command; the error: why it does not.
    fn by_drover(&self, text: &str) -> Result<Vec<u8>, String> {
        let mut load = drover(&["load", "-n", "1", "-c", "1", "--curl", text, "--unix"]);
        load.arg(self.socket()).current_dir(self.folder.path());
        let output = load.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        match output.status.code() {
            Some(0) => Ok(self.requests.try_recv().unwrap()),
            Some(2) => Err(stderr),
            _ => panic!("{text}: {stderr}"),
        }
    }
}

/// Serves a connection.
fn serve(stream: UnixStream, requests: &Sender<Vec<u8>>) -> Option<()> {
    let mut output = stream.try_clone().ok()?;
    let mut input = BufReader::new(stream);
    loop {
        let mut request = Vec::new();
        let mut length = 0;
        loop {
            let begin = request.len();
            input.read_until(b'\n', &mut request).ok().filter(|read| *read > 0)?;
            let line = String::from_utf8_lossy(&request[begin..]).to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line.starts_with("expect: 100-continue") {
                output.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let begin = request.len();
        request.resize(begin + length, 0);
        input.read_exact(&mut request[begin..]).ok()?;
        // Before the response, so that it is there when the client has ended.
        requests.send(request).ok()?;
        output.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok()?;
    }
}

impl Difference {
    /// Makes the difference in what curl has sent for `text`, as far as it applies.
    fn apply(&self, text: &str, curl: &[u8], drover: &[u8]) -> Vec<u8> {
        if self.option.as_ref().is_some_and(|option| !text.contains(option)) {
            return curl.to_vec();
        }
        let field = self.field.as_deref();
        match self.kind {
            Kind::Absent => {
                in_head(curl, |line| (!line.starts_with(field.unwrap())).then(|| line.to_string()))
            }
            // A value that the command itself has stays as it is.
            Kind::Value => in_head(curl, |line| match line.strip_prefix(field.unwrap()) {
                Some(value) if !text.contains(value.trim_end()) => {
                    Some(format!("{}{}\r\n", field.unwrap(), self.value.as_ref().unwrap()))
                }
                _ => Some(line.to_string()),
            }),
            Kind::Boundary => match (boundary(curl), boundary(drover)) {
                (Some(of_curl), Some(own)) => {
                    let changed = replaced(curl, &of_curl, &own);
                    let length = changed.len() - head_end(&changed);
                    // Boundaries of other versions of curl have other lengths.
                    in_head(&changed, |line| match line.starts_with("Content-Length: ") {
                        true => Some(format!("Content-Length: {length}\r\n")),
                        false => Some(line.to_string()),
                    })
                }
                _ => curl.to_vec(),
            },
            Kind::HexCase => {
                let target = |request: &[u8]| {
                    let head = String::from_utf8_lossy(request);
                    head.lines().next().unwrap_or_default().to_string()
                };
                let (of_curl, own) = (target(curl), target(drover));
                match of_curl.eq_ignore_ascii_case(&own) {
                    true => replaced(curl, of_curl.as_bytes(), own.as_bytes()),
                    false => curl.to_vec(),
                }
            }
        }
    }
}

/// Where the body begins.
fn head_end(request: &[u8]) -> usize {
    request.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4
}

/// Changes the lines of a request's head; each has its line end.
fn in_head(request: &[u8], change: impl Fn(&str) -> Option<String>) -> Vec<u8> {
    let end = head_end(request) - 2;
    let head = std::str::from_utf8(&request[..end]).unwrap();
    let mut changed: Vec<u8> =
        head.split_inclusive("\r\n").filter_map(change).flat_map(String::into_bytes).collect();
    changed.extend_from_slice(&request[end..]);
    changed
}

/// The boundary that curl, or Drover in its manner, has written into a form.
fn boundary(request: &[u8]) -> Option<Vec<u8>> {
    let begin = b"; boundary=------------------------";
    let at = request.windows(begin.len()).position(|it| it == begin)? + "; boundary=".len();
    let length = request[at..].iter().position(|byte| *byte == b'\r')?;
    Some(request[at..at + length].to_vec())
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut changed = Vec::new();
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        match rest.strip_prefix(from) {
            Some(after) => {
                changed.extend_from_slice(to);
                rest = after;
            }
            None => {
                changed.push(*first);
                rest = after;
            }
        }
    }
    changed
}

fn here(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/load/curl").join(name);
    fs::read_to_string(path).unwrap()
}

/// Whether bash and curl are here; otherwise the test is skipped.
fn curl_is_here() -> bool {
    ["bash", "curl"].iter().all(|program| {
        let mut version = Command::new(program);
        match version.arg("--version").stdout(Stdio::null()).status() {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                drover_testing::skip!("there is no {program}");
                false
            }
            Err(error) => panic!("{program}: {error}"),
        }
    })
}

/// Fails unless both have sent the same, but for the intended differences. Returns the numbers of those that there are.
#[track_caller]
fn compare(differences: &[Difference], text: &str, curl: Vec<u8>, drover: &[u8]) -> Vec<usize> {
    let mut expected = curl;
    let mut used = Vec::new();
    for (number, difference) in differences.iter().enumerate() {
        let changed = difference.apply(text, &expected, drover);
        used.extend((changed != expected).then_some(number));
        expected = changed;
    }
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(shown(drover), shown(&expected), "{text}");
    assert_eq!(drover, expected, "{text}");
    used
}

#[test]
fn the_corpus_is_sent_as_curl_sends_it() {
    let corpus: Corpus = toml::from_str(&here("corpus.toml")).unwrap();
    let Differences { difference: differences } =
        toml::from_str(&here("differences.toml")).unwrap();
    let has_curl = curl_is_here();
    let recorder = Recorder::start(&corpus.files);
    let mut used = Vec::new();
    let mut compared = 0;
    for line in &corpus.command {
        let text = line.text.replace("https://", "http://").replace("HTTPS://", "HTTP://");
        let read = if line.crlf { text.replace('\n', "\r\n") } else { text.clone() };
        let drover = recorder.by_drover(&read);
        let drover = match (&line.refused, drover) {
            (None, Ok(request)) => request,
            (Some(reason), Err(error)) => {
                assert!(
                    error.contains(reason.trim()) && error.lines().count() == 1,
                    "{text}: {error}"
                );
                continue;
            }
            (_, Ok(request)) => {
                panic!("{text}: not refused: {}", String::from_utf8_lossy(&request))
            }
            (_, Err(error)) => panic!("{}: {text}: {error}", line.from),
        };
        let Some(curl) = has_curl.then(|| recorder.by_curl(&text)).flatten() else { continue };
        used.extend(compare(&differences, &text, curl, &drover));
        compared += 1;
    }
    let sent = corpus.command.iter().filter(|line| line.refused.is_none()).count();
    assert!(sent >= 100, "the corpus has shrunk to {sent} lines that are sent");
    if compared == sent {
        for (number, difference) in differences.iter().enumerate() {
            // A curl with the same decoders makes no difference.
            let depends = matches!(difference.kind, Kind::Value | Kind::HexCase);
            assert!(depends || used.contains(&number), "not needed: {}", difference.why);
        }
    }
}

/// An argument in one of the forms that bash has for it.
fn quoted(argument: &str, form: u8) -> String {
    match form {
        0 => shlex::try_quote(argument).unwrap().into_owned(),
        1 => {
            let escaped = argument.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
            format!(
                "$'{}'",
                escaped.replace('\r', "\\r").replace('!', "\\u0021").replace('é', "\\xc3\\xa9")
            )
        }
        _ => {
            let mut escaped = argument.to_string();
            for special in ['\\', '"', '$', '`'] {
                escaped = escaped.replace(special, &format!("\\{special}"));
            }
            format!("\"{escaped}\"")
        }
    }
}

/// Options with values that are close to what curl treats in its own way.
fn option() -> impl Strategy<Value = String> {
    let with = |options: &'static [&'static str], values: &'static str| {
        (select(options), values, 0..3u8)
            .prop_map(|(option, value, form)| format!("{option} {}", quoted(&value, form)))
    };
    let names = "(Accept|X-A|content-type|host|Cookie|User-Agent|Referer|authorization|Content-Length|Expect|TE)";
    let header = (string_regex(&format!("{names}[:;] ?[a-c3; ]{{0,3}}")).unwrap(), 0..3u8)
        .prop_map(|(field, form)| format!("-H {}", quoted(&field, form)));
    let flags =
        &["-G", "-I", "-g", "--path-as-is", "--compressed", "-sSf", "-L", "--no-compressed"][..];
    prop_oneof![
        3 => header,
        4 => with(&["-d", "--data-raw", "--data-binary", "--data-urlencode", "--json"], "(@note\\.txt|[@=a-c&%+é\r\n'\"$! ~#?-]{0,6})"),
        2 => with(&["-F", "--form-string"], "[ab]=[@<]?(note\\.txt|image\\.png|[\"'\\\\;a-c@<=(, é]{0,6})(;(type|filename)=(a/b|\"?[a-c\"\\\\]{1,4}\"?))?"),
        2 => with(&["-u", "-b", "-A", "-e", "--oauth2-bearer"], "[a-c:=;@ é]{0,5}"),
        1 => with(&["-r"], "[0-9,-]{1,4}"),
        1 => with(&["-X"], "(PUT|GET|get|POST|HEAD|X-Y)"),
        1 => with(&["-T"], "(note\\.txt|image\\.png)"),
        2 => select(flags).prop_map(str::to_string),
    ]
}

fn url() -> impl Strategy<Value = String> {
    let url = "(http://|HTTP://|)(u(:p%40?)?@|)(a(\\.B)?|1(\\.2){0,3}|\\[::1\\]|ü)(:80|:8080|:|)(/[a.%2eE\\\\]{0,3}){0,4}(\\?[a=&\\[\\]%.?/+{}\\\\]{0,5})?(#x?)?";
    (string_regex(url).unwrap(), 0..3u8).prop_map(|(url, form)| quoted(&url, form))
}

/// Whatever Drover accepts, curl sends the same. What Drover refuses is not compared.
#[test]
fn what_is_accepted_at_random_is_sent_as_curl_sends_it() {
    const CASES: u32 = 60;
    if !curl_is_here() {
        return;
    }
    let corpus: Corpus = toml::from_str(&here("corpus.toml")).unwrap();
    let Differences { difference: differences } =
        toml::from_str(&here("differences.toml")).unwrap();
    let recorder = Recorder::start(&corpus.files);
    let mut runner = TestRunner::new_with_rng(
        Config::with_cases(CASES),
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    );
    let mut accepted = 0;
    for _ in 0..CASES {
        let command = (vec(option(), 0..4), url()).new_tree(&mut runner).unwrap().current();
        let text = format!("curl {} {}", command.0.join(" "), command.1);
        let Ok(drover) = recorder.by_drover(&text) else { continue };
        if let Some(curl) = recorder.by_curl(&text) {
            compare(&differences, &text, curl, &drover);
            accepted += 1;
        }
    }
    assert!(accepted > CASES / 8, "{accepted} of {CASES} were compared");
}

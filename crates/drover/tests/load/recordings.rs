//! Requests that a browser has recorded: what cannot be sent is told, and fields may be set.

use serde_json::{Value, json};

use crate::recorder::Recorder;
use crate::run::load;
use crate::usage::refused;

/// A file with a recording of these requests.
fn har(requests: &[Value]) -> tempfile::NamedTempFile {
    let entries: Vec<Value> = requests.iter().map(|request| json!({"request": request})).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!("\u{feff}{}", json!({"log": {"version": "1.2", "entries": entries}}));
    std::fs::write(file.path(), text).unwrap();
    file
}

fn get(path: &str) -> Value {
    json!({"method": "GET", "url": format!("https://a.example{path}"), "headers": [
        {"name": "Host", "value": "a.example"}, {"name": "X", "value": "recorded"}]})
}

/// A request with a file, whose bytes browsers do not record.
fn upload() -> Value {
    json!({"method": "POST", "url": "https://a.example/upload", "bodySize": 70_000, "headers": [
        {"name": "Content-Type", "value": "multipart/form-data; boundary=x"}]})
}

#[test]
fn one_faulty_entry_is_named_and_the_others_are_sent() {
    let server = Recorder::start();
    let file = har(&[get("/1"), json!({"method": "G\u{1b}T", "url": "http://a/"}), get("/3")]);
    let har = file.path().to_str().unwrap();
    for more in [&[][..], &["--processes", "2"]] {
        let run = load(
            &[&["--from-har", har, "--target", &server.url, "-n", "4", "-c", "2"], more].concat(),
        );
        assert_eq!((run.status, run.number("/responses")), (Some(0), 4), "{}", run.stderr);
        run.assert_warned("entries-not-sent", 1);
    }
    assert_eq!(server.counts().into_keys().collect::<Vec<_>>(), ["GET /1", "GET /3"]);
    let arguments = ["load", "--from-har", har, "--target", &server.url, "-n", "1", "-c", "1"];
    let summary = crate::run::drover(&arguments).output().unwrap().stdout;
    let summary = String::from_utf8(summary).unwrap();
    assert!(
        summary.contains("warning: --from-har ") && summary.contains("'G\\u{1b}T'"),
        "{summary:?}"
    );
    assert!(!summary.contains('\u{1b}'), "{summary:?}");

    let bad =
        self::har(&[json!({"method": "G T", "url": "http://a/"}), json!({"url": "http://a/"})]);
    refused(
        &["load", "--from-har", bad.path().to_str().unwrap()],
        &["none of its requests", "entry 1"],
    );
}

#[test]
fn a_body_that_was_not_recorded_is_an_error_unless_told_otherwise() {
    let server = Recorder::start();
    let file = har(&[get("/1"), upload(), get("/3")]);
    let har = file.path().to_str().unwrap();
    let own = ["--from-har", har, "--target", &server.url, "-n", "3", "-c", "1"];
    refused(
        &[&["load"], &own[..]].concat(),
        &["--from-har", "body of entry 2", "--har-missing skip"],
    );
    assert!(server.requests().is_empty());
    for (how, sent) in
        [("skip", ["GET /1", "GET /3", "GET /1"]), ("empty", ["GET /1", "POST /upload", "GET /3"])]
    {
        let before = server.requests().len();
        let run = load(&[&own[..], &["--har-missing", how]].concat());
        let lines: Vec<String> =
            server.requests()[before..].iter().map(|it| it.line.clone()).collect();
        assert_eq!(lines, sent, "{how}");
        let warnings = run.json["warnings"].to_string();
        assert!(warnings.contains("entry 2") && warnings.contains("lacks its body"), "{warnings}");
    }
    refused(&["load", "http://a/", "--har-missing", "skip"], &["--from-har"]);
    refused(&["load", "--from-har", har, "--har-missing", "x"], &["skip", "empty"]);
}

#[test]
fn fields_and_host_may_be_set() {
    let server = Recorder::start();
    let file = har(&[get("/1")]);
    let har = ["--from-har", file.path().to_str().unwrap(), "--target", &server.url];
    let curl = format!("curl '{}/1' -H 'X: copied' -d body", server.url);
    let url = format!("{}/1", server.url);
    let more = ["-H", "x: given", "-H", "Y: z", "--host", "b.example:81", "-n", "1", "-c", "1"];
    for of in [&har[..], &["--curl", &curl], &[&url]] {
        load(&[of, &more].concat());
        let fields = server.requests().pop().unwrap().fields;
        let named = |name: &str| {
            let is = |field: &&String| field.split(':').next().unwrap().eq_ignore_ascii_case(name);
            fields.iter().filter(is).cloned().collect::<Vec<_>>()
        };
        assert_eq!(fields[0], "Host: b.example:81", "{fields:?}");
        assert_eq!(
            (named("host").len(), named("x")),
            (1, vec!["x: given".to_string()]),
            "{fields:?}"
        );
        assert_eq!(named("y"), ["Y: z"], "{fields:?}");
        assert_eq!(named("content-length").len(), usize::from(of[0] == "--curl"), "{fields:?}");
    }
    refused(&["load", &url, "--host", "a b"], &["--host", "example.org"]);
    refused(&["load", &url, "--host", "a", "-H", "Host: b"], &["--host", "--header"]);
    refused(&[&["load"], &har[..], &["-X", "PUT"]].concat(), &["--method"]);
}

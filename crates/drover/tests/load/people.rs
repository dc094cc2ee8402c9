//! What people bring from elsewhere, and what they want to know: requests of browsers, objectives,
//! the summary.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crate::recorder::Recorder;
use crate::run::{drover, finish, load};
use crate::server::{Action, Nobody, Server, response};
use crate::usage::refused;

#[test]
fn a_curl_command_is_sent_as_it_says() {
    let server = Recorder::start();
    let command = format!("curl '{}/api' -X PATCH -H 'X: y' --data-raw 'a=\"b\"'", server.url);
    load(&["--curl", &command, "-n", "3", "-c", "1"]);
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!((&requests[0].line[..], &requests[0].body[..]), ("PATCH /api", "a=\"b\""));
    assert!(requests[0].fields.contains(&"X: y".to_string()), "{:?}", requests[0].fields);
}

/// A command may be longer than an argument can be, and may come from an editor of Windows.
#[test]
fn a_curl_command_may_be_in_a_file() {
    let server = Recorder::start();
    let file = tempfile::NamedTempFile::new().unwrap();
    let body = "x".repeat(300_000);
    let command =
        format!("\u{feff}curl '{}/a' \\\r\n  -H 'A: b' \\\r\n  -d {body}\r\n", server.url);
    std::fs::write(file.path(), command).unwrap();
    let run = load(&["--curl", &format!("@{}", file.path().display()), "-n", "1", "-c", "1"]);
    let request = &server.requests()[0];
    assert_eq!((&request.line[..], request.body == body), ("POST /a", true), "{}", run.stderr);
    assert!(request.fields.contains(&"A: b".to_string()), "{:?}", request.fields);
}

/// Results are passed on and published: the command line in them holds no credentials.
#[test]
fn credentials_of_the_command_line_are_sent_and_not_written_down() {
    let server = Recorder::start();
    let fields =
        ["-H", "authorization: Bearer s3cret", "--header=Cookie: id=s3cret", "-HX-A: seen"];
    let own = load(&[&[&server.url[..], "-n", "1", "-c", "1"], &fields[..]].concat());
    let command = format!(
        "curl '{}' -u me:s3cret -b 'id=s3cret' -H 'Proxy-Authorization: Basic s3cret' -H 'X-A: seen'",
        server.url
    );
    let curl = load(&["--curl", &command, "-n", "1", "-c", "1"]);
    let joined = load(&["--processes", "2", "-n", "2", "-c", "2", "--curl", &command]);
    for run in [own, curl, joined] {
        let command = run.json["command"].to_string();
        assert!(!run.json.to_string().contains("s3cret"), "{command}");
        assert!(command.contains("X-A: seen") && command.contains(&server.url), "{command}");
    }
    let sent = server.requests().iter().flat_map(|r| r.fields.clone()).collect::<String>();
    assert!(sent.contains("Bearer s3cret") && sent.contains("id=s3cret"), "{sent}");
}

/// A result written after the run must not be lost to the name of a file.
#[test]
fn a_file_s_name_may_hold_any_bytes() {
    let server = Recorder::start();
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join(OsStr::from_bytes(b"\xff.csv"));
    let mut command = drover(&["load", "--json", "-", &server.url, "-n", "1", "-c", "1", "--csv"]);
    let run = finish(command.arg(&name).output().unwrap());
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert!(run.json["command"].to_string().contains("\u{fffd}.csv"), "{}", run.json["command"]);
}

#[test]
fn a_har_is_sent_in_its_order_to_the_target() {
    let server = Recorder::start();
    let file = tempfile::NamedTempFile::new().unwrap();
    let har = r#"{"log": {"entries": [
        {"request": {"method": "GET", "url": "https://a.example/1", "headers": []}},
        {"request": {"method": "POST", "url": "https://b.example/2", "headers": [],
         "postData": {"text": "body"}}},
        {"request": {"method": "HEAD", "url": "https://a.example/3", "headers": []}}]}}"#;
    std::fs::write(file.path(), har).unwrap();
    let har = file.path().to_str().unwrap();
    let run = load(&["--from-har", har, "--target", &server.url, "-n", "6", "-c", "1"]);
    assert_eq!(run.number("/responses"), 6);
    let lines: Vec<String> = server.requests().into_iter().map(|r| r.line).collect();
    assert_eq!(lines[..3], ["GET /1", "POST /2", "HEAD /3"]);
    assert_eq!(lines[3..], lines[..3]);
    assert_eq!(server.requests()[1].body, "body");
}

#[test]
fn objectives_decide_the_exit_status() {
    let server = Recorder::start();
    let with = |terms: &str| load(&[&server.url, "-c", "1", "-n", "20", "--slo", terms]);
    let met = with("p99<1000s,errors<0.1%,rate>0");
    assert_eq!(met.status, Some(0), "{}", met.stderr);
    let violated = with("p50>1000s,p95>1000s,errors<0.1%,rate>1e9");
    assert_eq!(violated.status, Some(1));
    assert_eq!(violated.stderr.lines().count(), 1, "{}", violated.stderr);
    for part in ["--slo", "p50>1000s (it is ", "p95>1000s (it is ", "rate>1e9 (it is "] {
        assert!(violated.stderr.contains(part), "{}", violated.stderr);
    }
    assert!(!violated.stderr.contains("errors"), "{}", violated.stderr);
}

/// A server that fails half of its requests by their status has failed the run, unless that is expected.
#[test]
fn unexpected_statuses_are_errors_of_the_summary_and_of_the_exit_status() {
    let server = Server::start(|n| match n % 4 {
        0 => Action::Response(response("404 Not Found", 1)),
        1 => Action::Response(response("503 Service Unavailable", 1)),
        2 => Action::Response(response("304 Not Modified", 0)),
        _ => Action::Response(response("200 OK", 1)),
    });
    let url = server.url();
    let own = [&url[..], "-c", "1", "-n", "40"];
    let (summary, last_word) = seen(&own);
    assert!(summary.contains("errors       10 with status 404, 10 with status 503"), "{summary}");
    assert!(last_word.contains("--expect-status"), "{last_word}");
    let with = |more: &[&str]| load(&[&own[..], more].concat());
    let run = with(&["--expect-status", "404,503"]);
    assert_eq!((run.status, &run.json["unexpected_status"]["200"]), (Some(1), &10.into()));
    let run = with(&["--expect-status", "2xx,304,4xx,503"]);
    assert_eq!((run.status, run.json["unexpected_status"].to_string()), (Some(0), "{}".into()));
    // Where an objective judges errors, it decides alone.
    assert_eq!(with(&["--slo", "errors<60%"]).status, Some(0));
    assert_eq!(with(&["--slo", "errors<40%"]).status, Some(1));
    assert_eq!(with(&["--slo", "p50<1000s"]).status, Some(1));
    assert_eq!(with(&["--slo", "errors<1%", "--expect-status", "2xx,304,4xx,503"]).status, Some(0));
    let joined = load(&[&url, "-c", "2", "-n", "40", "--processes", "2"]);
    assert_eq!((joined.status, joined.number("/unexpected_status/503")), (Some(1), 10));
}

/// A scheduled request whose connection cannot be opened is one request without an answer: its failed
/// attempt and its being unsent are the same event.
#[test]
fn a_failed_attempt_to_connect_is_one_error_of_an_objective() {
    let (server, nobody) = (Recorder::start(), Nobody::anywhere());
    let on_demand = ["-n", "40", "--rate", "1000", "-c", "4", "--calls-per-connection", "1"];
    let urls = [&server.url[..], &nobody.url(), "--slo", "errors<0%"];
    let run = load(&[&urls[..], &on_demand].concat());
    let (failed, unsent) = (run.number("/errors/refused"), run.number("/unsent"));
    assert!(failed > 0 && failed <= unsent && unsent < 40, "{}", run.json);
    assert_eq!(run.number("/requests") + unsent, 40);
    let part = format!("errors<0% (it is {:.3} %)", unsent as f64 / 40.0 * 100.0);
    assert!(run.stderr.contains(&part), "{part}: {}", run.stderr);
}

#[test]
fn objectives_judge_joined_results_too() {
    let server = Recorder::start();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let made = drover(&["load", &server.url, "-n", "4", "-c", "1", "--json", path]).output();
    assert!(made.unwrap().status.success());
    let judged = ["load", "--json", "-", "--merge", path, "--slo", "max<1us"];
    let run = finish(drover(&judged).output().unwrap());
    assert_eq!(run.status, Some(1));
    assert!(run.stderr.contains("max<1us (it is "), "{}", run.stderr);
}

#[test]
fn the_summary_begins_with_the_rate_and_leaves_out_what_says_nothing() {
    let server = Recorder::start();
    let output = drover(&["load", &server.url, "-n", "20", "-c", "2"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<_> = text.lines().skip(3).collect();
    assert!(rows[0].starts_with("  rate ") && rows[0].contains("responses/s"), "{text}");
    for part in
        ["p99.9", "responses    20, all with status 200", "received", "2 opened", "generator"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("errors") && !text.contains("in flight"), "{text}");
    let unit = rows.iter().find_map(|row| row.strip_prefix("  in ")?.split(' ').next());
    assert!(unit.is_some_and(|unit| ["us", "ms", "s"].contains(&unit)), "{text}");
}

/// Runs `drover load` as people do: its summary, and its last word.
fn seen(arguments: &[&str]) -> (String, String) {
    let output = drover(&[&["load"], arguments].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).into()
}

#[test]
fn a_run_without_a_response_ends_with_what_to_look_at() {
    let last_word = |action: Action, timeout: &str| {
        let server = Server::always(action);
        seen(&[&server.url(), "-c", "1", "-n", "1", "--timeout", timeout]).1
    };
    for (action, timeout, expected) in [
        (
            Action::Response("SSH-2.0-OpenSSH\r\n".to_string()),
            "1m",
            "(protocol 1: not_http 1): does it speak HTTP/1",
        ),
        (Action::Ignore, "200ms", "(client_timeout 1): give it a longer --timeout"),
        (Action::Reset, "1m", "(reset 1): it takes connections and closes them"),
    ] {
        let last_word = last_word(action, timeout);
        assert!(last_word.contains(expected), "{last_word}");
    }

    let nobody = Nobody::anywhere();
    let (summary, last_word) = seen(&[&nobody.url(), "-c", "2"]);
    let why = format!("{}: Connection refused)", nobody.address);
    let expected = format!("(refused 2; {why}: is the server running there?");
    assert!(last_word.contains(&expected), "{last_word}");
    let warning = format!("2 of 2 attempts to connect failed ({why}");
    assert!(summary.contains(&warning), "{summary}");
    assert!(!summary.contains("p99"), "a table without rows: {summary}");
}

#[test]
fn responses_after_the_window_are_told() {
    let late = Action::ResponseLate(Duration::from_millis(600), response("200 OK", 1));
    let server = Server::always(late);
    let run = load(&[&server.url(), "-c", "2", "-d", "300ms"]);
    assert_eq!((run.status, run.number("/responses")), (Some(0), 2), "{}", run.stderr);
    assert_eq!(run.float("/achieved_rate"), 0.0);
    run.assert_warned("responses-after-window", 2);
}

#[test]
fn mistakes_name_the_flag_and_the_remedy() {
    let url = "http://127.0.0.1:9/";
    refused(&["load", url, "--slo", "p99<5"], &["--slo", "500us, 5ms or 1s"]);
    refused(&["load", url, "--slo", "speed>9"], &["--slo", "p99<5ms"]);
    refused(&["load", url, "--expect-status", "ok"], &["--expect-status", "2xx,404"]);
    refused(&["load", "--curl", "curl --zzz http://a"], &["--curl", "--zzz is not supported"]);
    refused(
        &["load", "--curl", "curl a -d @/no/such/file"],
        &["--curl", "'/no/such/file'", "No such file"],
    );
    refused(&["load", "--curl", "@/no/such/file"], &["--curl", "'/no/such/file'", "No such file"]);
    refused(&["load", "--from-har", "/no/such/file"], &["--from-har", "No such file"]);
    refused(&["load", url, "--curl", "curl http://a"], &["--curl", "[URL]"]);
}

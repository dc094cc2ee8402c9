//! `--live`: a report that is served while it grows.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use drover_testing::browser::{Browser, DRIVER, PROGRAMS};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{lab, write_experiment};

/// The response to a request for that path.
fn get(address: &str, path: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    response
}

/// A lab that runs, and the lines of its stdout.
struct Running {
    lab: Child,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(folder: &Path, rounds: &str) -> Running {
        write_experiment(folder, "short", "");
        let mut command = lab(folder, &["run", "short.toml", "--live", "--repeats", rounds]);
        let mut lab = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(lab.stdout.take().unwrap()).lines();
        Running { lab, stdout }
    }

    /// The next line that begins so.
    fn line(&mut self, begin: &str) -> String {
        self.stdout.by_ref().map(Result::unwrap).find(|line| line.starts_with(begin)).unwrap()
    }

    /// Where the page is: the server's address.
    fn address(&mut self) -> String {
        let live = self.line("Live: http://");
        let address = live.strip_prefix("Live: http://").unwrap();
        address.strip_suffix("/report.html").unwrap().to_owned()
    }

    /// Interrupts it; its exit status.
    fn interrupt(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.lab), Signal::INT).unwrap();
        self.lab.wait().unwrap().code()
    }
}

#[test]
fn a_report_is_served_while_it_grows() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = Running::start(folder.path(), "1000");
    let address = running.address();
    // Whoever opens the address as soon as it is told finds the report of what is planned.
    assert!(get(&address, "/report.html").contains("The experiment short"));
    let stderr = BufReader::new(running.lab.stderr.take().unwrap());
    let first = stderr.lines().map(Result::unwrap).find(|line| line.starts_with("1/2000 short: "));
    assert!(first.is_some());
    let progress = get(&address, "/progress.json");
    assert!(progress.contains("\"of\":2000") && progress.contains("short: "), "{progress}");
    assert_eq!(running.interrupt(), Some(1));
    assert!(!folder.path().join("drover-lab/progress.json").exists());
}

#[test]
fn a_report_is_served_until_its_reader_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = Running::start(folder.path(), "1");
    let address = running.address();
    running.line("The report stays there");
    assert!(get(&address, "/progress.json").contains("\"has_ended\":true"));
    let report = get(&address, "/report.html");
    assert!(report.contains("2 runs: 1 round of 2 cells"), "{report}");
    assert_eq!(running.interrupt(), Some(0));
    assert!(!folder.path().join("drover-lab/progress.json").exists());
}

#[test]
fn a_session_that_was_killed_does_not_run_for_who_serves_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = Running::start(folder.path(), "1000");
    running.address();
    let progress = folder.path().join("drover-lab/progress.json");
    assert!(progress.exists());
    running.lab.kill().unwrap();
    running.lab.wait().unwrap();
    assert!(progress.exists(), "a killed process cannot remove it");
    let mut serve = lab(folder.path(), &["serve", "drover-lab"]);
    let mut serve = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(serve.stdout.take().unwrap()).lines();
    let url = stdout.next().unwrap().unwrap();
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/report.html").unwrap();
    assert!(get(address, "/progress.json").starts_with("HTTP/1.1 404"));
    assert!(!progress.exists());
    kill_process(Pid::from_child(&serve), Signal::TERM).unwrap();
    let told = serve.wait_with_output().unwrap();
    let told = String::from_utf8(told.stderr).unwrap();
    assert!(
        told.contains("The session ended early, after ") && told.contains(" of 2000 runs"),
        "{told}"
    );
}

/// What a page tells of itself, asked once in a tenth of a second; `null` while it is being replaced.
fn state(browser: &Browser) -> Value {
    let script = "await new Promise((then) => setTimeout(then, 100));
        const heading = document.getElementById('method');
        return {
            is_over: /40 of 40 runs/.test(document.querySelector('header').textContent)
                && document.getElementById('progress').hidden,
            top: heading.getBoundingClientRect().top,
            unfolded: document.querySelectorAll('main details[open]').length,
        };";
    let script = format!("return (async () => {{ {script} }})()");
    browser.run(&script, &[]).unwrap_or_default()
}

#[test]
fn a_browser_follows_a_session_to_its_end_and_stays_where_its_reader_is() {
    let Some(browser) = Browser::start().unwrap() else {
        return drover_testing::skip!("no {DRIVER} with {} is installed", PROGRAMS.join(" or "));
    };
    browser.show_as(1200, 500, false).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut running = Running::start(folder.path(), "20");
    browser.open(&format!("http://{}/report.html", running.address())).unwrap();
    // The reader goes to a heading in the middle and unfolds what is there.
    let script = "for (const it of document.querySelectorAll('main details')) it.open = true;
        document.getElementById('method').scrollIntoView();
        scrollBy(0, 20);";
    browser.run(script, &[]).unwrap();
    let before = state(&browser);
    running.line("The report stays there");
    // The page looks every two seconds.
    let seen: Vec<Value> =
        (0..1200).map(|_| state(&browser)).take_while(|it| it["is_over"] != true).collect();
    assert!(seen.len() < 1200, "the page does not follow: {:?}", seen.last());
    let after = state(&browser);
    let top = |state: &Value| state["top"].as_f64().unwrap();
    assert!((top(&after) - top(&before)).abs() < 100.0, "{before} {after}");
    assert!(after["unfolded"].as_u64() >= before["unfolded"].as_u64(), "{before} {after}");
    assert_eq!(json!(browser.console().unwrap()), json!([]));
    assert_eq!(running.interrupt(), Some(0));
}

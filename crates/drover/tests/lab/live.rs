//! `--live`: a report that is served while it grows.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::{Pid, Signal, kill_process};

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
    // When the first run has ended, the report of what was planned is there.
    let stderr = BufReader::new(running.lab.stderr.take().unwrap());
    let first = stderr.lines().map(Result::unwrap).find(|line| line.starts_with("1/2000 short: "));
    assert!(first.is_some());
    assert!(get(&address, "/report.html").contains("The experiment short"));
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
    assert!(get(&address, "/progress.json").starts_with("HTTP/1.1 404"));
    let report = get(&address, "/report.html");
    assert!(report.contains("2 runs: 1 round of 2 cells"), "{report}");
    assert_eq!(running.interrupt(), Some(0));
}

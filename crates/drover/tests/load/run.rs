//! Runs the program, and holds every result to the sums it promises.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::certificate::{self, CERTIFICATE};

/// What one run left behind.
pub(crate) struct Run {
    pub(crate) status: Option<i32>,
    pub(crate) json: Value,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program, to be run with `arguments`.
pub(crate) fn drover(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.args(arguments).stdin(Stdio::null());
    trusting(command)
}

/// A command whose programs trust the scripted servers: for them, these are the CAs of this machine.
pub(crate) fn trusting(mut command: Command) -> Command {
    if certificate::is_wanted() {
        command.env("SSL_CERT_FILE", CERTIFICATE.authority());
    }
    command
}

/// Runs `drover load --json -` with `arguments`, and checks that its sums add up.
#[track_caller]
pub(crate) fn load(arguments: &[&str]) -> Run {
    let run = finish(drover(&["load", "--json", "-"]).args(arguments).output().unwrap());
    check_sums(&run.json);
    run
}

/// `drover load --json -`, while it runs.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Running {
        let mut command = drover(&["load", "--json", "-"]);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().unwrap())
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits for its end, and checks that its sums add up.
    #[track_caller]
    pub(crate) fn finish(self) -> Run {
        let run = finish(self.0.wait_with_output().unwrap());
        check_sums(&run.json);
        run
    }
}

/// A run whose stdout ends with a JSON result.
#[track_caller]
pub(crate) fn finish(output: Output) -> Run {
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let json = stdout.find('{').map(|begin| &stdout[begin..]);
    let json = json.and_then(|json| serde_json::from_str(json).ok());
    let json = json.unwrap_or_else(|| panic!("no result: {stdout}{stderr}"));
    Run { status: output.status.code(), json, stdout, stderr }
}

impl Run {
    /// The number at `path`, as in `/errors/refused`.
    #[track_caller]
    pub(crate) fn number(&self, path: &str) -> u64 {
        number(&self.json, path)
    }

    #[track_caller]
    pub(crate) fn float(&self, path: &str) -> f64 {
        let value = self.json.pointer(path).and_then(Value::as_f64);
        value.unwrap_or_else(|| panic!("no number at {path}: {}", self.json))
    }

    #[track_caller]
    pub(crate) fn assert_null(&self, path: &str) {
        assert_eq!(self.json.pointer(path), Some(&Value::Null), "{path}: {}", self.json);
    }

    /// The counts of the warnings with this code; empty if there is none.
    pub(crate) fn warned(&self, code: &str) -> Vec<Option<u64>> {
        warned(&self.json, code)
    }

    /// Fails unless there is one warning with this code, and it has this count.
    #[track_caller]
    pub(crate) fn assert_warned(&self, code: &str, count: impl Into<Option<u64>>) {
        assert_eq!(self.warned(code), [count.into()], "{code}: {}", self.json);
    }

    /// Whether the generator says of itself that its times may be its own.
    pub(crate) fn admits_delays(&self) -> bool {
        const CODES: [&str; 5] = [
            "generator-saturated",
            "generator-stalled",
            "late-starts",
            "late-reads",
            "unsent-generator-behind",
        ];
        CODES.iter().any(|code| !self.warned(code).is_empty())
    }

    /// Sum of the errors of all classes.
    pub(crate) fn errors(&self) -> u64 {
        sum(&self.json["errors"])
    }
}

#[track_caller]
fn number(json: &Value, path: &str) -> u64 {
    let value = json.pointer(path).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("no count at {path}: {json}"))
}

fn warned(json: &Value, code: &str) -> Vec<Option<u64>> {
    let warnings = json["warnings"].as_array().unwrap().iter();
    warnings.filter(|it| it["code"] == code).map(|it| it["count"].as_u64()).collect()
}

fn sum(counts: &Value) -> u64 {
    counts.as_object().unwrap().values().filter_map(Value::as_u64).sum()
}

/// The sums that the schema promises of every run.
#[track_caller]
pub(crate) fn check_sums(json: &Value) {
    let failed = number(json, "/connections/failed");
    let unsolicited = number(json, "/connections/unsolicited");
    let after_sending = sum(&json["errors"]) - failed - unsolicited;
    let requests = number(json, "/requests");
    let responses = number(json, "/responses");
    assert_eq!(requests, responses + after_sending + number(json, "/in_flight"), "{json}");
    // An interruption leaves attempts that are neither.
    let over = number(json, "/connections/opened") + failed;
    let attempted = number(json, "/connections/attempted");
    let interrupted = !warned(json, "interrupted").is_empty();
    assert!(attempted == over || (interrupted && attempted > over), "{json}");
    assert_eq!(responses, sum(&json["status"]), "{json}");
}

/// `drover load --json - --events --lockstep`, with the pipes to its stdin and from its stdout.
pub(crate) fn lockstep(arguments: &[&str]) -> (Child, ChildStdin, BufReader<ChildStdout>) {
    let mut command = drover(&["load", "--json", "-", "--events", "--lockstep"]);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (child, stdin, stdout)
}

/// The next line that a program prints, without its end.
pub(crate) fn line(out: &mut impl BufRead) -> String {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

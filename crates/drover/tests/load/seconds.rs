//! What is written second by second adds up to the result.

use std::fs;
use std::time::Duration;

use base64::Engine;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

use rustix::process::Signal;

use crate::recorder::Recorder;
use crate::run::{Run, Running, load};
use crate::server::{Action, Nobody, Server, response, wait};

/// The columns of a CSV file without its comments, by name.
struct Table {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn read(text: &str) -> Table {
        let split = |line: &str| line.split(',').map(String::from).collect();
        let mut lines = text.lines().filter(|line| !line.starts_with('#')).map(split);
        Table { names: lines.next().unwrap(), rows: lines.collect() }
    }

    #[track_caller]
    fn column(&self, name: &str) -> impl Iterator<Item = &str> {
        let at = self.names.iter().position(|known| known == name).unwrap();
        self.rows.iter().map(move |row| &row[at][..])
    }

    #[track_caller]
    fn sum(&self, name: &str) -> u64 {
        self.column(name).map(|cell| cell.parse::<u64>().unwrap()).sum()
    }
}

/// A run that is written down in both ways: its result, the CSV and the log.
fn written(arguments: &[&str]) -> (Run, String, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let [csv, hdr] = ["csv", "hdr"].map(|name| folder.path().join(name));
    let files = ["--csv", csv.to_str().unwrap(), "--hdr", hdr.to_str().unwrap()];
    let run = load(&[arguments, &files].concat());
    (run, fs::read_to_string(csv).unwrap(), fs::read(hdr).unwrap())
}

#[track_caller]
fn add_up(arguments: &[&str], lines: std::ops::RangeInclusive<usize>) {
    let (run, csv, hdr) = written(arguments);
    let table = Table::read(&csv);
    assert!(lines.contains(&table.rows.len()), "{csv}");
    assert_eq!(table.sum("requests"), run.number("/requests"), "{csv}");
    assert_eq!(table.sum("responses"), run.number("/responses"), "{csv}");
    assert_eq!(table.sum("errors"), run.errors(), "{csv}");
    assert_eq!(table.sum("sent_bytes"), run.number("/bytes/sent"), "{csv}");
    let received = run.number("/bytes/head") + run.number("/bytes/body");
    assert_eq!(table.sum("received_bytes"), received, "{csv}");
    assert_eq!(table.sum("connections_opened"), run.number("/connections/opened"), "{csv}");
    let responses = format!("# responses,{}\n", run.number("/responses"));
    assert!(csv.contains(&responses), "{csv}");

    let mut all = Histogram::<u64>::new(3).unwrap();
    for entry in IntervalLogIterator::new(&hdr) {
        match entry.unwrap() {
            LogEntry::Interval(interval) => {
                let text = interval.encoded_histogram();
                let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
                let times: Histogram<u64> =
                    Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
                all.add(&times).unwrap();
            }
            LogEntry::StartTime(start) => {
                let expected = run.float("/window_start");
                assert!((start.as_secs_f64() - expected).abs() < 0.01, "{start:?} {expected}");
            }
            LogEntry::BaseTime(_) => panic!("there is none"),
        }
    }
    assert_eq!(all.len(), run.number("/responses"));
    let p99 = all.value_at_quantile(0.99) as f64 / 1000.0;
    assert_eq!(p99, run.float("/latency_us/p99"));
}

#[test]
fn a_closed_loop_adds_up() {
    let server = Recorder::start();
    add_up(&[&server.url, "-c", "3", "-t", "2", "-d", "2100ms"], 3..=3);
}

#[test]
fn a_schedule_adds_up() {
    let server = Recorder::start();
    add_up(&[&server.url, "-c", "3", "-t", "2", "-d", "2s", "--rate", "100"], 2..=3);
}

/// What comes after a stop is told in its own second, and the seconds of the stop are told as empty ones.
#[test]
fn every_second_has_a_row_of_its_own_after_a_stop() {
    let server =
        Server::always(Action::ResponseLate(Duration::from_millis(1), response("200 OK", 1)));
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("csv");
    let url = server.url();
    for more in [&[][..], &["--rate", "500"], &["--processes", "2"]] {
        let own = [&url, "-c", "64", "-d", "4s", "--csv", csv.to_str().unwrap()];
        let running = Running::start(&[&own[..], more].concat());
        // Early in the window, so that whole seconds of it lie in the stop.
        server.wait_for_requests(server.requests() + 1);
        running.signal(Signal::STOP);
        wait(Duration::from_millis(2200));
        running.signal(Signal::CONT);
        let run = running.finish();
        let text = fs::read_to_string(&csv).unwrap();
        let table = Table::read(&text);
        let responses: Vec<u64> =
            table.column("responses").map(|cell| cell.parse().unwrap()).collect();
        let series: Vec<u64> =
            serde_json::from_value(run.json["response_rate"]["series"].clone()).unwrap();
        assert_eq!(responses[..4], series, "{more:?}: {text}");
        assert!(more.contains(&"--processes") || series.contains(&0), "{more:?}: {text}");
    }
}

/// A worker that has done its part before the others is not waited for.
#[test]
fn counted_requests_add_up() {
    let server = Recorder::start();
    let calls = ["--calls-per-connection", "1", "-t", "3", "-c", "3"];
    add_up(&[&[&server.url[..], "-n", "7"], &calls[..]].concat(), 1..=2);
}

#[test]
fn a_run_without_a_server_is_written_down_too() {
    let nobody = Nobody::anywhere();
    let (run, csv, hdr) = written(&[&nobody.url(), "-c", "2"]);
    assert_eq!(Table::read(&csv).sum("errors"), run.errors());
    assert!(csv.contains("# errors_refused,2\n"), "{csv}");
    assert!(hdr.is_empty());
}

#[test]
fn files_that_cannot_be_written_are_known_beforehand() {
    let refused = |flag| {
        let arguments = ["load", "http://127.0.0.1:9/", flag, "/no/such/directory/x"];
        crate::usage::refused(&arguments, &[flag, "No such file"]);
    };
    refused("--csv");
    refused("--hdr");
}

//! `--trace`: a line for each response, whatever becomes of it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use drover_mech::fileio;

use crate::harness::{Server, Site, drover, on_every_mechanism};
use crate::http2::wire as http2;

/// The lines of a trace as the values of their columns, by name.
fn lines(text: &str) -> Vec<HashMap<&str, &str>> {
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("# drover.trace/1 started="), "{text}");
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines
        .map(|line| {
            let values: Vec<&str> = line.split(',').collect();
            assert_eq!(values.len(), columns.len(), "{line}");
            columns.iter().copied().zip(values).collect()
        })
        .collect()
}

fn number(line: &HashMap<&str, &str>, column: &str) -> u64 {
    line[column].parse().unwrap()
}

/// Runs a server with `flags` on `site` for as long as `clients` does something with it, and returns
/// its trace.
fn trace(site: &Site, flags: &[&str], clients: impl Fn(&Server)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.csv");
    let flags = [&["--trace", file.to_str().unwrap()], flags].concat();
    let mut server = Server::on(site, &flags);
    clients(&server);
    server.terminate();
    assert!(server.exit_status().success());
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn every_response_has_its_line_on_every_mechanism() {
    let site = Site::new();
    site.file("small", "x");
    on_every_mechanism(|mechanism| {
        // A backend that was asked for keeps nothing in memory.
        let flags = ["--dispatch", mechanism.name, "--files", "auto"];
        let text = trace(&site, &flags, |server| {
            let mut client = server.connect();
            let requests = ["GET /small HTTP/1.1\r\nHost: a\r\n\r\n"; 3].concat();
            client.send(requests);
            (0..3).for_each(|_| drop(client.response().is(200)));
            client.get("/none").is(404);
            let mut refused = server.connect();
            // Over HTTP/2 too, what is malformed in HTTP/1.1 is a response.
            let nonsense =
                if http2::is_wanted() { "GET /%zz HTTP/1.1\r\nHost: a" } else { "nonsense" };
            refused.send(format!("{nonsense}\r\n\r\n"));
            refused.response().is(400);
        });
        let lines = lines(&text);
        let mut states: Vec<_> = lines.iter().map(|line| line["status"]).collect();
        states.sort_unstable();
        assert_eq!(states, ["200", "200", "200", "400", "404"], "{text}");
        let first = lines.iter().find(|line| line["status"] == "200").unwrap();
        assert_eq!((first["backend"], first["end"], first["reads"]), ("memory", "sent", "0"));
        for line in &lines {
            let stages = ["stat_us", "queue_us", "read_us", "return_us", "write_us"];
            let sum: u64 = stages.iter().map(|stage| number(line, stage)).sum();
            assert_eq!(sum, number(line, "total_us"), "{line:?}");
        }
    });
}

#[test]
fn the_backend_that_read_and_its_reads_are_told() {
    const LEN: usize = 300_000;
    let site = Site::new();
    site.file("large", vec![7; LEN]);
    for backend in fileio::ALL {
        if let Err(reason) = backend.probe() {
            drover_testing::skip!("{}: {reason}", backend.name);
            continue;
        }
        let flags = ["--files", backend.name, "--read-ahead", "64K"];
        let text = trace(&site, &flags, |server| {
            assert_eq!(server.get("/large").is(200).body.len(), LEN);
        });
        let lines = lines(&text);
        let [line] = &lines[..] else { panic!("{text}") };
        assert_eq!((line["backend"], line["status"]), (backend.name, "200"));
        assert!(number(line, "bytes") > LEN as u64);
        // Those that read apart need five steps at least; the others tell of no reads.
        let reads = number(line, "reads");
        assert!(reads == 0 || reads >= 5, "{line:?}");
        assert_eq!(reads == 0, number(line, "longest_us") == 0 && number(line, "read_us") == 0);
    }
}

#[test]
fn a_response_that_does_not_arrive_is_told_too() {
    let site = Site::new();
    site.sparse("large", 64 << 20);
    let text = trace(&site, &[], |server| {
        let mut client = server.connect();
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        client.read(1000);
    });
    let lines = lines(&text);
    let [line] = &lines[..] else { panic!("{text}") };
    assert!(["gone", "dropped"].contains(&line["end"]), "{line:?}");
}

#[test]
fn a_file_that_takes_no_more_ends_the_trace_and_nothing_else() {
    let site = Site::new();
    site.file("small", "x");
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    if !made.is_ok_and(|status| status.success()) {
        return drover_testing::skip!("no mkfifo here");
    }
    let mut command = drover();
    command.arg("serve").arg(site.path()).arg("--trace").arg(&fifo).stderr(Stdio::piped());
    // The server's opening waits for a reader, and the reader's for the server.
    let reader = std::thread::spawn(move || {
        let mut reader = BufReader::new(std::fs::File::open(fifo).unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line
    });
    let mut server = Server::start(command, 1);
    assert!(reader.join().unwrap().starts_with("# drover.trace/1"));
    let mut client = server.connect();
    client.get("/small").is(200);
    let stderr = server.stderr();
    let complaint = stderr.lines().map(Result::unwrap).find(|line| line.contains("--trace"));
    assert!(complaint.unwrap().contains("serving goes on"));
    client.get("/small").is(200);
    server.connect().get("/small").is(200);
}

//! What a server has counted, as `--counters` writes it: asked for while it runs, and at its end.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use drover_mech::mechanisms::{self, Features};
use rustix::fs::{FileType, Mode};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;

#[path = "../schema/mod.rs"]
pub(crate) mod checker;

use crate::harness::{Server, drover, once, signal, stop};

const SCHEMA: &str = include_str!("../../schemas/drover.counters-2.schema.json");

/// More connections than the queue of signals has room for.
const CONNECTIONS: usize = 64;
const ROOM: u64 = 16;

/// The counters in the file, once there is one; they conform to their schema.
fn counters(file: &Path) -> Value {
    let text = once("the file", || fs::read_to_string(file).ok());
    fs::remove_file(file).unwrap();
    let counters = serde_json::from_str(&text).unwrap();
    let schema = serde_json::from_str(SCHEMA).unwrap();
    checker::check(&counters, &schema, &schema, "").unwrap();
    counters
}

/// The counters of a server that runs.
fn asked_for(server: &Server, file: &Path) -> Value {
    signal("USR1", server.process());
    counters(file)
}

fn start(flags: &[&str], file: &Path) -> Server {
    let mut command = drover();
    command.args(["serve", "--response-size", "1", "--defer-accept", "off", "--counters"]);
    command.arg(file).args(flags);
    Server::start(command, 1)
}

/// Requests come while the server is stopped: more of them than its queue has room for.
#[test]
fn overflows_of_the_queue_of_signals_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("counters");
    for mechanism in mechanisms::ALL {
        if !mechanism.features.contains(Features::CAN_OVERFLOW) {
            continue;
        }
        for more in [&[][..], &["--processes"]] {
            let flags = [&["--dispatch", mechanism.name][..], more].concat();
            let mut server = start(&flags, &file);
            let worker = server.children().first().copied().unwrap_or(server.process());
            let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
            for connection in &mut connections {
                connection.get("/").is(200);
            }
            stop(worker);
            let limit = Rlimit { current: Some(ROOM), maximum: Some(ROOM) };
            prlimit(Pid::from_raw(worker.cast_signed()), Resource::Sigpending, limit).unwrap();
            for connection in &mut connections {
                connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            }
            signal("CONT", worker);
            for connection in &mut connections {
                connection.response().is(200);
            }
            let counted = asked_for(&server, &file);
            let overflows = counted["all"]["overflows"].as_u64().unwrap();
            assert!(overflows > 0, "{flags:?}: {counted}");
            assert_eq!(counted["workers"][0]["overflows"], overflows);
            assert_eq!(counted["all"]["requests"], 2 * CONNECTIONS);
            drop(connections);
            server.terminate();
            assert!(server.exit_status().success());
            assert!(counters(&file)["all"]["overflows"].as_u64() >= Some(overflows));
        }
    }
}

#[test]
fn the_counters_are_those_of_all_workers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("counters");
    for more in [&[][..], &["--processes"]] {
        let flags = [&["--workers", "2"][..], more].concat();
        let mut server = start(&flags, &file);
        for _ in 0..8 {
            server.get("/").is(200);
        }
        for counted in [asked_for(&server, &file), asked_for(&server, &file)] {
            assert_eq!(counted["all"]["responses_2xx"], 8);
            assert_eq!(counted["all"]["overflows"], 0);
            let of_workers = counted["workers"].as_array().unwrap().iter();
            assert_eq!(of_workers.map(|it| it["requests"].as_u64().unwrap()).sum::<u64>(), 8);
        }
        server.terminate();
        assert!(server.exit_status().success());
        assert_eq!(counters(&file)["all"]["closed"], 8);
    }
}

/// What is no regular file is written to and stays what it is: it may be a device of all processes.
#[test]
fn a_pipe_is_written_to_and_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &file, FileType::Fifo, Mode::RWXU, 0).unwrap();
    // Nobody reads: neither the answer to a signal nor the end waits for it.
    let mut server = start(&[], &file);
    signal("USR1", server.process());
    server.get("/").is(200);
    server.terminate();
    assert!(server.exit_status().success());
    // Open for both, so that neither end waits for the other.
    let mut pipe = fs::OpenOptions::new().read(true).write(true).open(&file).unwrap();
    let mut server = start(&[], &file);
    server.get("/").is(200);
    server.terminate();
    assert!(server.exit_status().success());
    assert!(fs::metadata(&file).unwrap().file_type().is_fifo());
    let mut text = vec![0; 1 << 16];
    let length = pipe.read(&mut text).unwrap();
    let counted: Value = serde_json::from_slice(&text[..length]).unwrap();
    assert_eq!(counted["all"]["requests"], 1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

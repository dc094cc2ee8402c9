//! Files that are not what they should be, through every backend, over readiness and completions:
//! the client hears what can still be said, the log says why, and the worker goes on.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use drover_mech::fileio;
use drover_mech::mechanisms::{self, Mechanism, MechanismKind};

use crate::disk::Disk;
use crate::harness::{Server, Site, drover};

/// A usable mechanism of each kind.
fn mechanisms() -> Vec<&'static Mechanism> {
    let usable = |completes: bool| {
        mechanisms::ALL.iter().copied().find(|mechanism| {
            matches!(mechanism.kind, MechanismKind::Completion { .. }) == completes
                && mechanism.probe().is_ok()
        })
    };
    let found: Vec<_> = [usable(false), usable(true)].into_iter().flatten().collect();
    assert!(!found.is_empty(), "no mechanism works here");
    if found.len() == 1 {
        drover_testing::skip!("no completion mechanism works here");
    }
    found
}

/// Runs `case` with the flags for each backend on each of the [`mechanisms`], over readiness with what
/// is in the page cache read like the rest.
fn on_each(case: impl Fn(&[&str]) + Sync) {
    let mut choices = Vec::new();
    for (mechanism, cached_reads) in mechanisms().into_iter().zip(["queued", "at-once"]) {
        for backend in fileio::ALL.iter().filter(|backend| backend.probe().is_ok()) {
            let flags = ["--dispatch", mechanism.name, "--files", backend.name];
            choices.push([&flags[..], &["--cached-reads", cached_reads]].concat());
        }
        choices.push(vec!["--dispatch", mechanism.name, "--files", "auto"]);
    }
    drover_testing::side_by_side(&choices, |flags| case(flags));
}

fn serve(root: &std::path::Path, flags: &[&str]) -> Server {
    let mut command = drover();
    command.arg("serve").arg(root).args(flags).stderr(Stdio::piped());
    Server::start(command, 1)
}

/// What the server has logged, at its end.
fn log(mut server: Server) -> String {
    server.terminate();
    let mut log = String::new();
    server.stderr().read_to_string(&mut log).unwrap();
    log
}

#[test]
fn an_error_of_the_disk_in_mid_file_cuts_the_connection_and_is_logged() {
    const LEN: usize = 1_000_000;
    let site = Site::new();
    site.file("large", vec![7; LEN]);
    site.file("small", "x");
    site.file("bad-from-the-start", vec![7; 9_000]);
    let Some(disk) = Disk::mount(&site, &["--fails-from", "600000"]) else { return };
    let Some(worse) = Disk::mount(&site, &["--fails-from", "4096"]) else { return };
    on_each(|flags| {
        let server = serve(disk.path(), flags);
        let mut client = server.connect();
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response_head().is(200).length(), LEN as u64);
        let (bytes, _) = client.drain();
        assert!(bytes < LEN as u64, "{flags:?}: {bytes} bytes came");
        assert_eq!(server.get("/small").is(200).text(), "x", "{flags:?}");
        let log = log(server);
        assert!(log.contains("cannot read") && log.contains("large"), "{flags:?}: {log}");

        // One that would be kept in memory, if it could be read.
        let server = serve(worse.path(), flags);
        let mut client = server.connect();
        client.send("GET /bad-from-the-start HTTP/1.1\r\nHost: a\r\n\r\n");
        let (bytes, _) = client.drain();
        assert!(bytes < 9_000, "{flags:?}: {bytes} bytes came");
        assert!(log_of_a_living(server).contains("cannot read"), "{flags:?}");
    });
}

fn log_of_a_living(server: Server) -> String {
    server.get("/no-such-file").is(404);
    log(server)
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_is_logged_and_cut() {
    const LEN: u64 = 64 << 20;
    on_each(|flags| {
        let site = Site::new();
        let file = site.sparse("large", LEN);
        let server = serve(site.path(), flags);
        let mut client = server.connect();
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        client.response_head().is(200);
        client.read(1000);
        file.set_len(1000).unwrap();
        let (bytes, _) = client.drain();
        assert!(bytes + 1000 < LEN, "{flags:?}: {bytes} bytes came");
        let log = log_of_a_living(server);
        assert!(log.contains("shrank while it was sent"), "{flags:?}: {log}");
    });
}

/// More than any socket takes at once.
const MANY: u64 = 64 << 20;

/// The name of a file is whoever's may write to the directory: it must not write to the terminal.
#[test]
fn the_log_shows_names_escaped_and_says_what_it_leaves_out() {
    let site = Site::new();
    let file = site.sparse("a\n\u{1b}[31mred", MANY);
    let server = serve(site.path(), &[]);
    for _ in 0..3 {
        file.set_len(MANY).unwrap();
        let mut client = server.connect();
        client.send("GET /a%0a%1b[31mred HTTP/1.1\r\nHost: a\r\n\r\n");
        client.response_head().is(200);
        client.read(1000);
        file.set_len(1000).unwrap();
        let _ = client.drain();
    }
    let log = log_of_a_living(server);
    assert!(!log.contains("\u{1b}[31mred"), "{log:?}");
    let line = log.lines().find(|line| line.contains("shrank")).unwrap();
    assert!(line.contains("red\" shrank") && line.contains(" like this not logged)"), "{line}");
}

/// It is neither the file's fault nor anybody's to hear of.
#[test]
fn a_client_that_resets_its_download_is_not_logged_as_a_file_that_cannot_be_read() {
    let site = Site::new();
    site.sparse("large", MANY);
    on_each(|flags| {
        let server = serve(site.path(), flags);
        for _ in 0..3 {
            let mut client = server.connect();
            client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
            client.response_head().is(200);
            // What was received and not read makes it a reset.
            client.read(1000);
        }
        let log = log_of_a_living(server);
        assert!(!log.contains("cannot read"), "{flags:?}: {log}");
    });
}

#[test]
fn a_file_that_is_removed_while_it_is_sent_arrives_and_is_gone_for_the_next() {
    const LEN: usize = 8 << 20;
    on_each(|flags| {
        let site = Site::new();
        let path = site.file("large", vec![7; LEN]);
        let server = serve(site.path(), &[flags, &["--revalidate", "0s"]].concat());
        let mut client = server.connect();
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        client.response_head().is(200);
        let first = client.read(1000);
        fs::remove_file(path).unwrap();
        let rest = client.read(LEN - 1000);
        assert!(first.iter().chain(&rest).all(|&byte| byte == 7), "{flags:?}");
        client.get("/large").is(404);
    });
}

#[test]
fn nothing_is_sent_of_what_is_no_file_and_the_worker_goes_on() {
    let site = Site::new();
    site.file("empty", "");
    fs::create_dir(site.path().join("folder")).unwrap();
    let _socket = UnixListener::bind(site.path().join("socket")).unwrap();
    let fifo = Command::new("mkfifo").arg(site.path().join("fifo")).status();
    let fifo = fifo.is_ok_and(|status| status.success());
    if !fifo {
        drover_testing::skip!("no mkfifo here");
    }
    on_each(|flags| {
        let server = serve(site.path(), flags);
        let mut client = server.connect();
        assert_eq!(client.get("/empty").is(200).length(), 0, "{flags:?}");
        client.get("/folder").is(301);
        client.get("/folder/").is(404);
        client.get("/socket").is(403);
        if fifo {
            client.get("/fifo").is(403);
        }
        drop(client);
        let devices = serve(std::path::Path::new("/dev"), flags);
        let mut client = devices.connect();
        for device in ["/null", "/zero"] {
            client.get(device).is(403);
        }
    });
}

#[test]
fn parts_beyond_four_gigabytes_arrive_as_they_are() {
    let far: u64 = (5 << 30) + 4_097;
    let site = Site::new();
    let mut file = site.sparse("vast", far + 300_000);
    let content: Vec<u8> = (0..200_000).map(|at| (at * 7 % 251) as u8).collect();
    file.seek(SeekFrom::Start(far)).unwrap();
    file.write_all(&content).unwrap();
    on_each(|flags| {
        let server = serve(site.path(), flags);
        let mut client = server.connect();
        assert_eq!(client.head("/vast", &[]).is(200).length(), far + 300_000);
        let range = format!("Range: bytes={far}-{}", far + 199_999);
        assert!(client.ask("/vast", &[&range]).is(206).body == content, "{flags:?}");
    });
}

#[test]
fn files_are_found_among_very_many() {
    const FILES: usize = 100_000;
    /// Names of the others lead to these: making so many files takes longer.
    const CONTENTS: usize = 1000;
    let site = Site::new();
    let path = |number: usize| site.path().join(format!("{number}.txt"));
    for number in 0..FILES {
        match number {
            0..CONTENTS => fs::write(path(number), number.to_string()).unwrap(),
            _ => fs::hard_link(path(number % CONTENTS), path(number)).unwrap(),
        }
    }
    for flags in [&["--cache", "1M"][..], &["--cache", "off"], &["--files", "threads"]] {
        let server = serve(site.path(), flags);
        let mut client = server.connect();
        for number in (0..FILES).step_by(487) {
            let response = client.get(&format!("/{number}.txt")).is(200);
            assert_eq!(response.text(), (number % CONTENTS).to_string());
        }
        client.get(&format!("/{FILES}.txt")).is(404);
    }
}

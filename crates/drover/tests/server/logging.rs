//! A log that cannot be written, and a log that nobody reads.

use std::fs::File;
use std::io::{Read, Write, pipe};
use std::process::{Command, Stdio};

use crate::harness::{Server, drover, on_every_mechanism, signal};

/// Servers as threads and as processes, which log to what `stderr` gives each of them.
fn serve_and_stop(dispatch: &str, stderr: impl Fn() -> Stdio) {
    for flags in [&["--workers", "2"][..], &["--workers", "2", "--processes"]] {
        let mut command = drover();
        command.args(["serve", "--response-size", "3", "--dispatch", dispatch]).args(flags);
        command.stderr(stderr());
        serves_and_stops(Server::start(command, 1));
    }
}

/// It logs a line at its start, one at the signal, and some at its end.
fn serves_and_stops(mut server: Server) {
    let mut client = server.connect();
    client.get("/").is(200);
    signal("HUP", server.process());
    client.get("/").is(200);
    server.terminate();
    assert!(server.exit_status().success());
}

#[test]
fn a_log_on_a_full_disk_ends_no_server() {
    on_every_mechanism(|mechanism| {
        serve_and_stop(mechanism.name, || {
            File::options().write(true).open("/dev/full").unwrap().into()
        });
    });
}

#[test]
fn a_log_that_nobody_reads_stops_no_server() {
    // As much as a pipe holds, unless its owner asks for more (pipe(7)).
    let full = vec![b'x'; 65_536];
    let (reader, mut writer) = pipe().unwrap();
    writer.write_all(&full).unwrap();
    serve_and_stop("auto", || writer.try_clone().unwrap().into());
    drop((reader, writer));
}

/// The kernel sends SIGXFSZ to whoever writes past the limit.
#[test]
fn a_log_file_at_the_limit_of_its_size_ends_no_server() {
    let log = tempfile::NamedTempFile::new().unwrap();
    log.as_file().set_len(1 << 20).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 64 && exec \"$0\" serve --response-size 1 \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_drover"));
    command.stderr(File::options().append(true).open(log.path()).unwrap());
    serves_and_stops(Server::start(command, 1));
}

/// What was queued is written before the end, the reason of a failure included.
#[test]
fn a_log_is_whole_at_the_end() {
    let mut command = drover();
    command.args(["serve", "--response-size", "1"]).stderr(Stdio::piped());
    let mut server = Server::start(command, 1);
    server.terminate();
    let mut log = String::new();
    server.stderr().read_to_string(&mut log).unwrap();
    assert!(log.lines().last().unwrap().contains("stopped:"), "{log}");
}

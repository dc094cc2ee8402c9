//! A server that a service manager has started: what it tells by sd_notify(3).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;

use drover_testing::uninterrupted;

use crate::harness::{PATIENCE, Server, drover, signal};

/// A manager's socket, and the value of `NOTIFY_SOCKET`.
fn manager(folder: &std::path::Path, is_abstract: bool) -> (UnixDatagram, String) {
    let path = folder.join("notify").to_str().unwrap().to_owned();
    let socket = if is_abstract {
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&path).unwrap()).unwrap()
    } else {
        UnixDatagram::bind(&path).unwrap()
    };
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    (socket, if is_abstract { format!("@{path}") } else { path })
}

fn told(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 4096];
    let len = uninterrupted(|| socket.recv(&mut bytes)).unwrap();
    String::from_utf8(bytes[..len].to_vec()).unwrap()
}

fn serve(flags: &[&str]) -> Command {
    let mut command = drover();
    command.args(["serve", "--response-size", "1", "--workers", "2"]).args(flags);
    command
}

const THREADS_AND_PROCESSES: [&[&str]; 2] = [&[], &["--processes"]];

#[test]
fn a_manager_is_told_when_the_server_serves_and_when_it_stops() {
    for flags in THREADS_AND_PROCESSES {
        for is_abstract in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let (socket, name) = manager(folder.path(), is_abstract);
            let mut command = serve(flags);
            command.env("NOTIFY_SOCKET", name);
            let mut server = Server::start(command, 1);
            let ready = told(&socket);
            assert!(ready.starts_with("READY=1\nSTATUS=serving "), "{ready:?}");
            assert!(ready.contains(&server.address().to_string()), "{ready:?}");
            server.get("/").is(200);
            server.terminate();
            assert!(told(&socket).starts_with("STOPPING=1\n"));
            assert!(server.exit_status().success());
            socket.set_nonblocking(true).unwrap();
            assert!(socket.recv(&mut [0; 99]).is_err(), "nothing else is told");
        }
    }
}

#[test]
fn a_watchdog_hears_of_workers_that_look_for_events() {
    for flags in THREADS_AND_PROCESSES {
        let folder = tempfile::tempdir().unwrap();
        let (socket, name) = manager(folder.path(), false);
        let mut command = serve(flags);
        command.env("NOTIFY_SOCKET", name).env("WATCHDOG_USEC", "200000");
        let server = Server::start(command, 1);
        assert!(told(&socket).starts_with("READY=1\n"));
        for _ in 0..3 {
            assert_eq!(told(&socket), "WATCHDOG=1\n");
        }
        drop(server);
    }
}

/// The supervisor hears nothing of a stopped worker, and does not say that it is alive.
#[test]
fn a_watchdog_hears_nothing_while_a_worker_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, name) = manager(folder.path(), false);
    let mut command = serve(&["--processes"]);
    command.env("NOTIFY_SOCKET", name).env("WATCHDOG_USEC", "100000");
    let server = Server::start(command, 1);
    let worker = server.children()[0];
    signal("STOP", worker);
    // Beats end sooner or later: a read that takes as long as many beats finds none.
    socket.set_read_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
    let since = std::time::Instant::now();
    while uninterrupted(|| socket.recv(&mut [0; 4096])).is_ok() {
        assert!(since.elapsed() < PATIENCE, "beats go on");
    }
    signal("CONT", worker);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(told(&socket), "WATCHDOG=1\n");
}

/// Serving does not depend on being watched.
#[test]
fn a_manager_that_cannot_be_reached_is_told_of_and_the_server_serves() {
    let mut command = serve(&[]);
    command.env("NOTIFY_SOCKET", "/nowhere/notify").stderr(std::process::Stdio::piped());
    let mut server = Server::start(command, 1);
    server.get("/").is(200);
    server.terminate();
    let mut told = String::new();
    std::io::Read::read_to_string(&mut server.stderr(), &mut told).unwrap();
    assert!(told.contains("NOTIFY_SOCKET /nowhere/notify"), "{told}");
    assert!(server.exit_status().success());
}

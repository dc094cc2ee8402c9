//! A server whose sockets a service manager has opened: sd_listen_fds(3).

use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use drover_mech::accept;

use crate::harness::{Client, Server, Site, drover, on_every_mechanism, usable_mechanisms};
use crate::tls::wire::note;
use crate::unix_sockets::is_served;

/// `drover serve` with `sockets` as its descriptors from 3 on. A shell puts them there: the numbers of this process are
/// other ones.
pub(crate) fn activated(sockets: &[&(impl AsFd + AsRawFd)], arguments: &[&str]) -> Option<Command> {
    // All are moved out of the way first: one of them may have the place of another.
    let aside = |at: usize| at + 200;
    let numbers = || sockets.iter().map(|it| it.as_raw_fd()).zip(3..);
    let away = numbers().map(|(number, place)| format!("{}<&{number}", aside(place)));
    let back = numbers().map(|(_, place)| format!("{place}<&{}", aside(place)));
    let moves: Vec<String> = away.chain(back).collect();
    let script = format!(
        "exec {}; export LISTEN_PID=$$ LISTEN_FDS={}; exec \"$0\" \"$@\"",
        moves.join(" "),
        sockets.len()
    );
    // Clients may come before the server says what it speaks there.
    let bound = sockets.iter().map(|it| drover_sys::socket::bound_address(it.as_fd()).unwrap());
    bound.filter_map(|it| it.ip()).for_each(|address| note(address, false));
    let mut command = Command::new("bash");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_drover"), "serve"]).args(arguments);
    command.stderr(Stdio::null());
    drover_sys::process::pass_on(&mut command, sockets.iter().map(|it| it.as_fd()));
    Command::new("bash").arg("--version").stdout(Stdio::null()).status().is_ok().then_some(command)
}

fn site() -> Site {
    let site = Site::new();
    site.file("a", "hello");
    site
}

#[test]
fn passed_sockets_are_served_by_every_mechanism_and_strategy() {
    let site = site();
    let root = site.path().to_str().unwrap();
    on_every_mechanism(|mechanism| {
        let strategies = accept::ALL.iter().filter(|it| it.goes_with(mechanism).is_ok());
        for accept in strategies.map(|it| it.name).filter(|it| *it != "reuseport").chain(["auto"]) {
            for processes in [&[][..], &["--processes"]] {
                let (one, two) =
                    (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("[::1]:0"));
                let sockets: Vec<&TcpListener> =
                    [&one].into_iter().chain(two.as_ref().ok()).collect();
                let flags = ["--dispatch", mechanism.name, "--accept", accept, "--workers", "2"];
                let flags = [&[root][..], &flags, processes].concat();
                let Some(command) = activated(&sockets, &flags) else {
                    return drover_testing::skip!("bash is not installed");
                };
                let server = serve(command, sockets.len());
                for socket in &sockets {
                    let address = socket.local_addr().unwrap();
                    assert!(server.addresses().contains(&address));
                    for _ in 0..4 {
                        assert_eq!(Client::connect(address).get("/a").is(200).text(), "hello");
                    }
                }
            }
        }
    });
}

/// A server that has become full gets connections as they come, and not the silent ones of a second together. Seen by the
/// duplicate of the listening socket that its maker keeps, where workers themselves wait for that socket.
#[test]
fn a_full_server_has_the_kernel_keep_no_connection_back() {
    let site = site();
    let root = site.path().to_str().unwrap();
    on_every_mechanism(|mechanism| {
        let strategies = accept::ALL.iter().filter(|it| it.goes_with(mechanism).is_ok());
        for accept in strategies.map(|it| it.name).filter(|it| ["shared", "exclusive"].contains(it))
        {
            let socket = TcpListener::bind("127.0.0.1:0").unwrap();
            let flags = ["--dispatch", mechanism.name, "--accept", accept, "--workers", "1"];
            let flags = [&[root][..], &flags, &["--max-connections", "4"]].concat();
            let Some(command) = activated(&[&socket], &flags) else {
                return drover_testing::skip!("bash is not installed");
            };
            let server = serve(command, 1);
            let mut clients = Vec::new();
            for _ in 0..4 {
                clients.push(server.connect());
                clients.last_mut().unwrap().get("/a").is(200);
                assert!(drover_sys::socket::defers(socket.as_fd()), "{accept}: there is room");
            }
            server.connect().get("/a").is(200);
            assert!(!drover_sys::socket::defers(socket.as_fd()), "{accept}: there was no room");
        }
    });
}

#[test]
fn a_passed_unix_socket_is_served_and_needs_another_strategy_than_reuseport() {
    let (site, folder) = (site(), tempfile::tempdir().unwrap());
    let path = folder.path().join("socket");
    let socket = UnixListener::bind(&path).unwrap();
    let with = |flags: &[&str]| {
        let root = site.path().to_str().unwrap();
        activated(&[&socket], &[&[root, "--workers", "2"], flags].concat())
    };
    let Some(mut command) = with(&["--accept", "reuseport"]) else {
        return drover_testing::skip!("bash is not installed");
    };
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && told.contains("--accept exclusive or shared"), "{told}");
    // One after the other, as they have one socket.
    for mechanism in usable_mechanisms() {
        let mut server = Server::start_as_it_is(with(&["--dispatch", mechanism.name]).unwrap(), 0);
        assert_eq!(server.line_of_stdout(), format!("listening on unix:{}\n", path.display()));
        (0..4).for_each(|_| is_served(&path));
        server.terminate();
        assert!(server.exit_status().success());
    }
}

/// The address is the sockets', so that none is added for the server.
fn serve(command: Command, addresses: usize) -> Server {
    Server::start_as_it_is(command, addresses)
}

/// The first worker serves while others, or the process of `--admin`, start. A stop that comes then must not cut its connections.
#[test]
fn a_stop_during_the_start_loses_no_request() {
    let site = site();
    let root = site.path().to_str().unwrap();
    on_every_mechanism(|mechanism| {
        for flags in [&["--processes", "--workers", "6"][..], &["--admin", "127.0.0.1:0"]] {
            let socket = TcpListener::bind("127.0.0.1:0").unwrap();
            let own = [root, "--grace", "10m", "--dispatch", mechanism.name];
            let Some(command) = activated(&[&socket], &[&own, flags].concat()) else {
                return drover_testing::skip!("bash is not installed");
            };
            let mut server = Server::start_as_it_is(command, 0);
            let mut client = Client::connect(socket.local_addr().unwrap());
            client.get("/a").is(200);
            server.terminate();
            client.get_until_it_closes("/a");
            assert!(server.exit_status().success(), "{} {flags:?}", mechanism.name);
        }
    });
}

/// Whoever connects while no server runs waits for the next one.
#[test]
fn a_restart_loses_no_connection() {
    let site = site();
    let root = site.path().to_str().unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let start = || Some(serve(activated(&[&socket], &[root])?, 1));
    let Some(mut server) = start() else { return drover_testing::skip!("bash is not installed") };
    Client::connect(address).get("/a").is(200);
    server.terminate();
    assert!(server.exit_status().success());
    let mut early = Client::connect(address);
    early.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let _server = start().unwrap();
    assert_eq!(early.response().is(200).text(), "hello");
}

#[test]
fn sockets_for_another_process_are_left_alone_and_bad_ones_are_told() {
    let mut command = drover();
    command.args(["serve", "--response-size", "1"]);
    command.env("LISTEN_PID", "1").env("LISTEN_FDS", "1");
    Server::start(command, 1).get("/").is(200);

    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let flags = ["--response-size", "1", "--accept", "reuseport", "--workers", "2"];
    let Some(command) = activated(&[&socket], &flags) else {
        return drover_testing::skip!("bash is not installed");
    };
    // Others of this user listen beside the one that was passed.
    let server = Server::start_as_it_is(command, 1);
    (0..20).for_each(|_| drop(server.get("/").is(200)));

    // More than there are: what the server has opened itself is none of them.
    let mut command = Command::new("bash");
    let script = "exec 3</dev/null; export LISTEN_PID=$$ LISTEN_FDS=99999; \
                  exec \"$0\" serve --response-size 1 --listen 127.0.0.1:0";
    command.args(["-c", script, env!("CARGO_BIN_EXE_drover")]);
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("cannot take the sockets of LISTEN_FDS"), "{told}");
    assert!(!told.contains("panicked"), "{told}");

    let mut command = Command::new("bash");
    let script =
        "exec 3</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" serve --response-size 1";
    command.args(["-c", script, env!("CARGO_BIN_EXE_drover")]);
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("socket 0 of LISTEN_FDS"), "{told}");
}

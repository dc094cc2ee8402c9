//! `--take-over`: another server goes on with the sockets of the one that runs.

use std::fs;
use std::io::{BufRead, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;

use drover_mech::accept;
use drover_mech::mechanisms;
use rustls::HandshakeKind;
use tempfile::TempDir;

use crate::harness::{Client, Server, Site, drover, request};
use crate::reloading::under_load;
use crate::signals::own_loopback;
use crate::tls::connect_as;
use crate::tls::wire as tls;
use crate::tls::wire::TestCertificate;

const LARGE: u64 = 64 << 20;

/// Servers that take over from each other.
struct Succession {
    site: Site,
    folder: TempDir,
    /// The address of all of them, once one has it.
    address: Option<SocketAddr>,
}

impl Succession {
    fn new() -> Succession {
        let site = Site::new();
        site.file("a", "hello");
        site.file("b", [b'b'; 100_000]);
        site.sparse("large", LARGE);
        Succession { site, folder: tempfile::tempdir().unwrap(), address: None }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("take-over")
    }

    fn command(&self, flags: &[&str]) -> std::process::Command {
        let listen = self.address.map_or("127.0.0.1:0".to_owned(), |address| address.to_string());
        let mut command = drover();
        command.arg("serve").arg(self.site.path()).args(["--listen", &listen]);
        command.arg("--take-over").arg(self.path()).args(flags).stderr(Stdio::piped());
        if tls::is_wanted() {
            command.args(tls::flags());
        }
        command
    }

    /// Starts the next server, and returns when it serves.
    fn next(&mut self, flags: &[&str]) -> Server {
        let server = Server::start_as_it_is(self.command(flags), 1);
        self.address = Some(server.address());
        server
    }

    /// What a server says that cannot start.
    fn cannot_start(&self, flags: &[&str]) -> String {
        let output = self.command(flags).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{told}");
        told
    }
}

#[track_caller]
fn ends_well(server: &mut Server) -> String {
    let mut log = String::new();
    server.stderr().read_to_string(&mut log).unwrap();
    assert!(server.exit_status().success(), "{log}");
    log
}

/// Flags of servers that follow each other: every mechanism, every strategy, threads and processes.
fn kinds() -> Vec<Vec<&'static str>> {
    let strategies: Vec<_> = accept::ALL.iter().filter(|it| it.probe().is_ok()).collect();
    let usable = mechanisms::ALL.iter().filter(|it| it.probe().is_ok());
    let kind = |(number, mechanism): (usize, &&'static mechanisms::Mechanism)| {
        let goes = (0..).map(|more| strategies[(number + more) % strategies.len()]);
        let strategy = goes.into_iter().find(|it| it.goes_with(mechanism).is_ok()).unwrap();
        let mut flags = vec!["--dispatch", mechanism.name, "--accept", strategy.name];
        flags.extend(["--workers", ["1", "2", "3"][number % 3]]);
        // Without, a client that stands still for half a second is closed as idle.
        flags.extend(["--grace", "10m"]);
        flags.extend((number % 2 == 1).then_some("--processes"));
        flags
    };
    usable.enumerate().map(kind).collect()
}

#[test]
fn servers_of_every_kind_follow_each_other_and_every_request_is_answered() {
    let mut succession = Succession::new();
    let mut server = succession.next(&["--grace", "10m"]);
    let address = server.address();
    let follow_each_other = || {
        for flags in kinds() {
            let next = succession.next(&flags);
            let log = ends_well(&mut server);
            assert!(log.contains(&format!("process {} has taken over", next.process())), "{log}");
            server = next;
        }
    };
    let answers = under_load(|| Client::connect(address), follow_each_other);
    assert!(answers > 0);
    server.terminate();
    ends_well(&mut server);
}

#[test]
fn connections_from_before_go_on_with_the_server_of_before() {
    for flags in [&[][..], &["--processes"]] {
        let mut succession = Succession::new();
        let mut first = succession.next(&[&["--header", "* X-Of: the first"], flags].concat());
        let mut idle = first.connect();
        idle.get("/a").is(200);
        let mut under_way = first.connect();
        under_way.send(request("GET", "/large", &[]));
        assert_eq!(under_way.response_head().is(200).length(), LARGE);

        let mut second = succession.next(flags);
        let mut log = first.stderr();
        let mut told = String::new();
        while !told.contains("has taken over") {
            assert!(log.read_line(&mut told).unwrap() > 0, "{told}");
        }
        // Until all workers of the first one have heard of it.
        while second.get("/a").is(200).field("X-Of").is_some() {}
        loop {
            let response = idle.get("/a").is(200);
            assert_eq!(response.field("X-Of"), Some("the first"));
            if response.field("Connection") == Some("close") {
                break;
            }
        }
        under_way.read(LARGE as usize);
        drop((idle, under_way));
        assert!(first.exit_status().success());
        second.terminate();
        ends_well(&mut second);
    }
}

/// Whether it fails before or after the first one has left the sockets.
#[test]
fn a_server_that_cannot_start_leaves_the_first_one_as_it_was() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for kind in [&["--dispatch", "epoll"][..], &["--dispatch", "epoll", "--processes"]] {
        let mut succession = Succession::new();
        let mut first =
            succession.next(&[kind, &["--accept", "shared", "--workers", "2"]].concat());
        let mut log = first.stderr();
        for accept in ["shared", "blocking"] {
            let flags = ["--dispatch", "epoll", "--accept", accept, "--workers", "2"];
            let told = succession.cannot_start(&[&flags[..], &["--listen", &taken]].concat());
            assert!(told.contains(&format!("port {} is taken", &taken[10..])), "{told}");
            let mut told = String::new();
            while !told.contains("serving as before") {
                assert!(log.read_line(&mut told).unwrap() > 0, "{told}");
            }
            assert!(told.contains("it has ended before it served"), "{told}");
            first.get("/a").is(200);
        }
        let mut second = succession.next(&["--dispatch", "epoll", "--accept", "blocking"]);
        assert!(first.exit_status().success());
        second.get("/a").is(200);
        second.terminate();
        ends_well(&mut second);
    }
}

#[test]
fn the_listener_of_admin_goes_over_too() {
    let mut succession = Succession::new();
    let mut first = succession.next(&["--admin", "127.0.0.1:0", "--dispatch", "epoll"]);
    let admin = first.admin_address();
    let dispatch = || {
        let response = Client::connect(admin).get("/status.json").is(200);
        let status: serde_json::Value = serde_json::from_str(response.text()).unwrap();
        status["dispatch"].as_str().unwrap().to_owned()
    };
    assert_eq!(dispatch(), "epoll");
    let flags = ["--admin", &admin.to_string(), "--dispatch", "poll", "--processes"];
    let mut second = succession.next(&flags);
    ends_well(&mut first);
    assert_eq!((second.admin_address(), dispatch()), (admin, "poll".to_owned()));
    second.terminate();
    ends_well(&mut second);
}

#[test]
fn a_path_that_is_no_socket_is_left_alone_and_one_of_a_dead_server_is_used() {
    let mut succession = Succession::new();
    fs::write(succession.path(), "precious").unwrap();
    let told = succession.cannot_start(&[]);
    assert!(told.contains("--take-over") && told.contains("name another path"), "{told}");
    assert_eq!(fs::read(succession.path()).unwrap(), b"precious");
    fs::remove_file(succession.path()).unwrap();
    // Where no other test could get the port between the two servers.
    succession.address = Some(own_loopback());
    let mut first = succession.next(&[]);
    first.kill();
    first.exit_status();
    first.until_it_refuses();
    let mut second = succession.next(&[]);
    second.get("/a").is(200);
    second.terminate();
    ends_well(&mut second);
}

#[test]
fn a_server_of_another_user_is_not_taken_over_from() {
    if !drover_sys::process::is_root() {
        return drover_testing::skip!("only root can be another user");
    }
    let mut succession = Succession::new();
    for folder in [succession.site.path(), succession.folder.path()] {
        fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).unwrap();
    }
    let user = 1_500_000_000 + std::process::id();
    let as_other = |succession: &Succession, flags: &[&str]| {
        let mut command = succession.command(flags);
        command.uid(user);
        command
    };
    if !as_other(&succession, &["--check"]).output().is_ok_and(|it| it.status.success()) {
        return drover_testing::skip!("another user cannot run the program where it lies");
    }
    let mut first = Server::start_as_it_is(as_other(&succession, &[]), 1);
    succession.address = Some(first.address());
    let told = succession.cannot_start(&[]);
    assert!(told.contains("another user's") && told.contains(&user.to_string()), "{told}");
    first.get("/a").is(200);
    first.terminate();
    ends_well(&mut first);
    // The other way round the socket cannot be connected to.
    fs::remove_file(succession.path()).unwrap();
    succession.address = None;
    let mut first = succession.next(&[]);
    let output = as_other(&succession, &[]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("Permission denied"), "{told}");
    first.terminate();
    ends_well(&mut first);
}

/// Tickets are sealed by keys that follow from the private key.
#[test]
fn a_server_that_takes_over_resumes_the_sessions_of_the_one_before() {
    let own = TestCertificate::of(&["localhost"]);
    let config = own.client();
    let flags = own.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut succession = Succession::new();
    let mut before = succession.next(&flags);
    let is_resumed = |server: &Server| {
        let mut client = connect_as(server, &config, "localhost");
        client.get("/a").is(200);
        client.wire().tls().unwrap().handshake_kind() == Some(HandshakeKind::Resumed)
    };
    assert!(!is_resumed(&before));
    let mut open = connect_as(&before, &config, "localhost");
    open.get("/a").is(200);
    let after = succession.next(&flags);
    assert!(is_resumed(&after));
    open.get_until_it_closes("/a");
    assert!(before.exit_status().success());
}

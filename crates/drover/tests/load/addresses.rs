//! Host names with several addresses, and addresses with a zone.
//!
//! A name is one of a file of hosts that only the program under test sees.

use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};

use crate::recorder::Recorder;
use crate::run::{drover, finish, load};
use crate::server::Nobody;

/// A name of two addresses, and its line in a file of hosts. The resolver puts the first one first.
const NAME: &str = "two.test";
const HOSTS: &str = "127.0.0.1 two.test\n127.9.8.7 two.test\n";

/// Runs `drover` with `arguments` in a namespace in which [`HOSTS`] are the contents of /etc/hosts; `None`: this
/// machine makes no such namespace.
fn with_hosts(arguments: &[&str]) -> Option<Output> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), HOSTS).unwrap();
    let run = |command: &[&str]| {
        let mount = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--mount", "sh", "-c", mount]).arg(file.path());
        unshare.args(command).output()
    };
    if !run(&["true"]).is_ok_and(|output| output.status.success()) {
        drover_testing::skip!("unshare(1) cannot give a program an /etc/hosts of its own here");
        return None;
    }
    Some(run(&[&[env!("CARGO_BIN_EXE_drover")], arguments].concat()).unwrap())
}

/// A server at the second address, and nobody at its port of the first one.
fn server_at_the_second() -> (Recorder, Nobody) {
    loop {
        let listener = TcpListener::bind("127.9.8.7:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Another test may have that port.
        if let Some(nobody) = Nobody::try_at(SocketAddr::from(([127, 0, 0, 1], port))) {
            return (Recorder::of(listener), nobody);
        }
    }
}

#[test]
fn the_second_address_of_a_name_is_tried_and_named() {
    let (server, nobody) = server_at_the_second();
    let port = nobody.address.port();
    let url = format!("http://{NAME}:{port}/");
    let own = ["load", "-c", "4", "-n", "40", &url];
    let Some(output) = with_hosts(&[&own[..], &["--json", "-"]].concat()) else { return };
    let run = finish(output);
    assert_eq!((run.number("/responses"), run.errors()), (40, 0), "{}", run.json);
    assert_eq!(run.number("/connections/attempted"), 4, "{}", run.json);
    assert_eq!(run.json["addresses"], serde_json::json!([format!("127.9.8.7:{port}")]));
    run.assert_null("/connect_error");
    assert_eq!(server.requests()[0].fields[0], format!("Host: {NAME}:{port}"));

    let summary = String::from_utf8(with_hosts(&own).unwrap().stdout).unwrap();
    assert!(summary.starts_with(&format!("{url} at 127.9.8.7:{port}\n")), "{summary}");
}

#[test]
fn every_message_about_connecting_has_the_host_and_its_addresses() {
    // Nobody listens at that port of 127.9.8.7 either: only servers of this file have that address.
    let nobody = Nobody::anywhere();
    let port = nobody.address.port();
    let url = format!("http://{NAME}:{port}/");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let why = format!(
        "{NAME} at 127.0.0.1:{port}: Connection refused, at 127.9.8.7:{port}: Connection refused"
    );
    let Some(run) = with_hosts(&["load", "-c", "2", &url]) else { return };
    let (summary, last_word) = (text(run.stdout), text(run.stderr));
    let warning = format!("2 of 2 attempts to connect failed ({why})");
    assert!(summary.contains(&warning), "{summary}");
    assert!(last_word.contains(&format!("(refused 2; {why}): is the server")), "{last_word}");
    let processes = ["load", "-c", "2", "--processes", "2", &url];
    let last_word = text(with_hosts(&processes).unwrap().stderr);
    assert!(last_word.contains(&format!("(refused 2; {why})")), "{last_word}");

    let last_word = text(with_hosts(&["idle", "-c", "3", &url]).unwrap().stderr);
    let expected = format!("3 of 3 connections could not be opened: {why}");
    assert!(last_word.contains(&expected), "{last_word}");
}

#[test]
fn a_unix_socket_is_named_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none");
    let own = ["load", "http://any/", "-c", "1", "--unix", path.to_str().unwrap()];
    let output = drover(&own).output().unwrap();
    let last_word = String::from_utf8(output.stderr).unwrap();
    let why = format!("unix:{}: No such file or directory", path.display());
    assert!(last_word.contains(&why), "{last_word}");
}

/// The zone is for this machine's kernel; the server need not know it (RFC 6874 section 1).
#[test]
fn a_zone_is_used_and_not_sent() {
    let Some(server) = Recorder::start_ipv6() else {
        return drover_testing::skip!("this machine has no IPv6");
    };
    let port = server.url.rsplit_once(':').unwrap().1;
    for zone in ["%251", "%1"] {
        let run = load(&[&format!("http://[::1{zone}]:{port}/"), "-c", "1", "-n", "2"]);
        assert_eq!((run.status, run.number("/responses")), (Some(0), 2), "{}", run.stderr);
        assert_eq!(run.json["target"], format!("http://[::1%251]:{port}/"));
    }
    for request in server.requests() {
        assert_eq!(request.fields[0], format!("Host: [::1]:{port}"));
    }
}

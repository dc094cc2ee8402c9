//! Which hosts are answered: no page of another site reads `--admin` by DNS rebinding.

use std::io::BufRead;
use std::process::Stdio;

use super::{PROCESSES, THREADS};
use crate::harness::{Client, Response, Server, drover};
use crate::reloading::Configured;

/// What one client gets for a host.
fn ask(client: &mut Client, method: &str, host: &str, target: &str) -> Response {
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    if method == "HEAD" { client.response_head() } else { client.response() }
}

#[test]
fn only_hosts_that_nobody_can_rebind_or_that_were_named_are_answered() {
    for workers in [THREADS, PROCESSES] {
        let flags = ["--admin", "127.0.0.1:0", "--admin-hosts", "drover,*.cluster.local"];
        let mut server = Server::of_size(1, &[&flags[..], workers].concat());
        let admin = server.admin_address();
        let mut client = Client::connect(admin);
        let own = admin.to_string();
        for host in [
            own.as_str(),
            "127.0.0.1",
            "10.1.2.3:9090",
            "[::1]:9090",
            "localhost",
            "LOCALHOST.:1",
            "",
            "drover:9090",
            "Drover.",
            "a.b.cluster.local:9090",
        ] {
            for target in ["/healthz", "/metrics", "/status", "/status.json"] {
                ask(&mut client, "GET", host, target).is(200);
            }
        }
        for host in
            ["example.org", "rebind.example:9090", "xdrover", "cluster.local", "127.0.0.1.nip.io"]
        {
            let name = host.split(':').next().unwrap();
            for target in ["/healthz", "/metrics", "/status", "/status.json", "/status/events", "/"]
            {
                let response = ask(&mut client, "GET", host, target).is(421);
                let text = format!(
                    "421 Misdirected Request: host '{name}' is not allowed; allow it with --admin-hosts {name}\n"
                );
                assert_eq!(response.text(), text);
            }
            assert_eq!(ask(&mut client, "HEAD", host, "/metrics").status, 421);
            ask(&mut client, "POST", host, "/metrics").is(421);
        }
        // What cannot be named is not repeated.
        let response = ask(&mut client, "GET", "$(x)", "/metrics").is(421);
        assert!(response.text().contains("this host is not allowed"), "{}", response.text());
        // An absolute target wins (RFC 9112 section 3.2.2).
        ask(&mut client, "GET", "localhost", "http://example.org/metrics").is(421);
        ask(&mut client, "GET", "example.org", "http://localhost/metrics").is(200);
    }
}

/// As health checks of old load balancers have it. Browsers always send a host.
#[test]
fn a_request_without_a_host_is_answered() {
    let mut server = Server::of_size(1, &["--admin", "127.0.0.1:0"]);
    let admin = server.admin_address();
    let mut client = Client::connect(admin);
    client.send("GET /healthz HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().is(200).text(), "ok\n");
    let mut client = Client::connect(admin);
    client.send("GET /healthz HTTP/1.0\r\nHost: example.org\r\n\r\n");
    client.response().is(421);
}

#[test]
fn the_log_names_the_flag_that_allows_a_host() {
    let mut command = drover();
    command
        .args(["serve", "--response-size", "1", "--admin", "localhost:0"])
        .stderr(Stdio::piped());
    let mut server = Server::start(command, 1);
    let mut client = Client::connect(server.admin_address());
    ask(&mut client, "GET", "drover:9090", "/metrics").is(421);
    server.terminate();
    let log: Vec<String> = server.stderr().lines().map(Result::unwrap).collect();
    let told = "--admin refuses a request: host 'drover' is not allowed; allow it with --admin-hosts drover (0 ";
    assert!(log.iter().any(|line| line.contains(told)), "{log:?}");
}

/// The file of --config names them as well; a reload cannot change them, as it cannot change the address.
#[test]
fn a_reload_keeps_the_hosts() {
    let site = crate::harness::Site::new();
    let flags = ["--admin", "127.0.0.1:0"];
    let mut configured =
        Configured::start(&site, &flags, "admin-hosts = ['drover', 'b.test,c.test']\n");
    let admin = configured.server.admin_address();
    for host in ["drover", "b.test", "c.test"] {
        ask(&mut Client::connect(admin), "GET", host, "/healthz").is(200);
    }
    let log = configured.reload(|text| text.replace("'drover', ", ""));
    assert!(log.contains("--admin-hosts cannot change while the server runs"), "{log}");
    ask(&mut Client::connect(admin), "GET", "drover", "/healthz").is(200);
    configured.stops_in_good_order();
}

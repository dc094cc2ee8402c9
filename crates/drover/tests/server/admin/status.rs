//! The state of a server as JSON: at one moment, and as events every second.

use std::net::SocketAddr;

use serde_json::Value;

use super::{PROCESSES, THREADS, get, metrics, metrics_at_rest, once, watched};
use crate::counters::checker;
use crate::harness::{Client, Site, on_every_mechanism, request};

const SCHEMA: &str = include_str!("../../../schemas/drover.status-2.schema.json");

/// The JSON, which conforms to its schema.
fn read(text: &str) -> Value {
    let status = serde_json::from_str(text).unwrap();
    let schema = serde_json::from_str(SCHEMA).unwrap();
    checker::check(&status, &schema, &schema, "").unwrap();
    status
}

fn status(admin: SocketAddr) -> Value {
    let response = get(admin, "/status.json").is(200);
    assert_eq!(response.field("Content-Type"), Some("application/json"));
    read(response.text())
}

/// A connection that is sent events.
struct Events(Client);

impl Events {
    fn open(admin: SocketAddr) -> Events {
        let mut client = Client::connect(admin);
        client.send(request("GET", "/status/events", &[]));
        let response = client.response_head().is(200);
        assert_eq!(response.field("Content-Type"), Some("text/event-stream"));
        assert_eq!(response.field("Content-Length"), None);
        Events(client)
    }

    fn next(&mut self) -> Value {
        let line = self.0.line();
        let text = line.strip_prefix("data: ").unwrap_or_else(|| panic!("{line:?}"));
        assert_eq!(self.0.line(), "\n");
        read(text)
    }
}

#[test]
fn the_json_tells_the_numbers_of_the_metrics() {
    let site = Site::new();
    site.file("a", "hello");
    on_every_mechanism(|mechanism| {
        for workers in [THREADS, PROCESSES] {
            let flags = [&["--dispatch", mechanism.name], workers].concat();
            let (server, admin) = watched(&site, &flags);
            for path in ["/a", "/a", "/none", "/a"] {
                let mut client = server.connect();
                client.send(request("GET", path, &["Connection: close"]));
                client.response();
                client.expect_end();
            }
            let found = metrics_at_rest(admin);
            let told = status(admin);
            let all = &told["all"];
            for (key, name) in [
                ("requests", "drover_requests_total"),
                ("connections", "drover_connections_accepted_total"),
                ("closed", "drover_connections_closed_total"),
                ("bytes_sent", "drover_sent_bytes_total"),
                ("errors", "drover_connection_errors_total"),
            ] {
                assert_eq!(all[key].as_f64(), Some(found.sum(name, &[])), "{key} {flags:?}");
            }
            // A worker may still find that another one was faster.
            let lost = found.sum("drover_accepts_lost_total", &[]);
            assert!(all["accepts_lost"].as_f64() >= Some(lost), "{flags:?}");
            assert_eq!(all["requests"], 4, "{flags:?}");
            assert_eq!((&all["responses_2xx"], &all["responses_4xx"]), (&3.into(), &1.into()));
            assert_eq!(told["responses"], serde_json::json!({ "200": 3, "404": 1 }));
            assert_eq!(told["open"], 0);
            assert_eq!(told["state"], "serving");
            assert_eq!(told["dispatch"], mechanism.name);
            assert_eq!(told["processes"], workers == PROCESSES);
            assert_eq!(told["addresses"][0], server.address().to_string());
            let of_workers = told["workers"].as_array().unwrap();
            assert_eq!(of_workers.len(), 2);
            let requests = of_workers.iter().map(|it| it["requests"].as_u64().unwrap());
            assert_eq!(requests.sum::<u64>(), 4);
        }
    });
}

#[test]
fn events_follow_what_the_server_does() {
    let site = Site::new();
    site.file("a", "hello");
    for workers in [THREADS, PROCESSES] {
        let (mut server, admin) = watched(&site, workers);
        let mut events = Events::open(admin);
        let first = events.next();
        assert_eq!(first["all"]["requests"], 0);
        let mut client = server.connect();
        client.get("/a").is(200);
        // One event may be from before the request.
        let second = once(|| Some(events.next()).filter(|event| event["all"]["requests"] != 0));
        assert_eq!((&second["all"]["requests"], &second["open"]), (&1.into(), &1.into()));
        assert!(second["at_s"].as_f64() > first["at_s"].as_f64());
        // A rate is seen as long as there are requests.
        once(|| {
            client.get("/a").is(200);
            let rates = &events.next()["rates"];
            let rate = |key: &str| rates[key].as_f64().unwrap();
            let seen = rate("requests") > 0.0 && rate("responses_2xx") > 0.0;
            (seen && rate("bytes_sent") > 0.0 && rate("over_s") > 0.0).then_some(())
        });
        drop(client);
        once(|| (events.next()["open"] == 0).then_some(()));
        // Whoever looks on does not keep the server, and is told of its end.
        server.terminate();
        assert!(server.exit_status().success());
        let rest = events.0.drain();
        assert!(rest.1.is_ok(), "{rest:?}");
    }
}

/// As many pages as are left open somewhere: the others are answered nevertheless.
#[test]
fn events_are_for_some_at_a_time() {
    let (server, admin) = watched(&Site::new(), &[]);
    let mut all: Vec<_> = (0..16).map(|_| Events::open(admin)).collect();
    all.iter_mut().for_each(|events| drop(events.next()));
    get(admin, "/status/events").is(503);
    get(admin, "/healthz").is(200);
    // A client that sends on, and one that leaves.
    all[0].0.send("more\r\n\r\n");
    all[0].next();
    all.pop();
    let head = || Client::connect(admin).head("/status/events", &[]).status;
    once(|| (head() == 200).then_some(()));
    // Who asked for the head alone is sent no events.
    assert_eq!(head(), 200);
    assert_eq!(metrics(admin).sum("drover_requests_total", &[]), 0.0);
    drop(server);
}

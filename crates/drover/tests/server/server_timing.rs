//! `--server-timing`: each response says how long the server took, on every mechanism.

use crate::harness::{Response, Server, Site, on_every_mechanism, request};
use crate::http2::wire as http2;

/// The milliseconds of `lookup` and `head` that a response states.
#[track_caller]
fn stated(response: &Response) -> (f64, f64) {
    let field = response.field("Server-Timing").expect("a Server-Timing");
    let (lookup, head) = field.split_once(", ").unwrap();
    let millis = |metric: &str, name: &str| -> f64 {
        metric.strip_prefix(name).unwrap().strip_prefix(";dur=").unwrap().parse().unwrap()
    };
    (millis(lookup, "lookup"), millis(head, "head"))
}

#[test]
fn every_response_says_how_long_it_took() {
    let site = Site::new();
    site.file("a", "hello");
    site.file("long", vec![b'l'; 300_000]);
    site.file("folder/b", "b");
    let whole = request("GET", "/a", &[]);
    on_every_mechanism(|mechanism| {
        let server = Server::on(&site, &["--server-timing", "--dispatch", mechanism.name]);
        let mut client = server.connect();
        for _ in 0..3 {
            for (target, len) in [("/a", 5), ("/long", 300_000)] {
                let response = client.get(target).is(200);
                assert_eq!(response.body.len(), len);
                let (lookup, head) = stated(&response);
                assert!(lookup >= 0.0 && head >= lookup, "{:?}", response.lines);
            }
        }
        // Pipelined, so that several heads stand in the output; the file is kept.
        client.send(whole.repeat(5));
        for _ in 0..5 {
            let response = client.response().is(200);
            stated(&response);
            assert_eq!(response.text(), "hello");
        }
        stated(&client.head("/a", &[]));
        stated(&client.get("/nothing").is(404));
        stated(&client.get("/folder").is(301));
        let response = client.ask("/long", &["Range: bytes=0-9"]).is(206);
        stated(&response);
        assert_eq!(response.body, b"llllllllll");
        let tag = client.get("/a").field("ETag").unwrap().to_owned();
        stated(&client.ask("/a", &[&format!("If-None-Match: {tag}")]).is(304));
        stated(&client.ask("/long", &["Range: bytes=0-0,200000-250000"]).is(206));
        if http2::is_wanted() {
            return;
        }
        client.send("NONSENSE\r\n\r\n");
        stated(&client.response().is(400));
    });
}

/// Files that are not at hand are opened by other threads, and the response says that it has waited for that.
#[test]
fn a_response_that_waited_for_its_file_says_so() {
    let link = std::path::Path::new("/proc/sys/kernel");
    if !link.join("ostype").exists() {
        drover_testing::skip!("no {}", link.display());
        return;
    }
    // The kernel never has names of procfs at hand: it asks for them each time.
    on_every_mechanism(|mechanism| {
        let mut command = crate::harness::drover();
        command.args(["serve", "--server-timing", "--cache", "off"]).arg(link);
        command.args(["--dispatch", mechanism.name]);
        let server = Server::start(command, 1);
        let response = server.get("/ostype");
        let (lookup, head) = stated(&response);
        assert!(lookup > 0.0 && head >= lookup, "{:?}", response.lines);
    });
}

#[test]
fn without_the_flag_no_response_says_it() {
    let site = Site::new();
    site.file("a", "hello");
    on_every_mechanism(|mechanism| {
        let server = Server::on(&site, &["--dispatch", mechanism.name]);
        let mut client = server.connect();
        for _ in 0..2 {
            assert_eq!(client.get("/a").is(200).field("Server-Timing"), None);
        }
    });
}

#[test]
fn responses_of_a_size_say_it_too() {
    for size in [5, 100_000] {
        let server = Server::of_size(size, &["--server-timing"]);
        let mut client = server.connect();
        for _ in 0..2 {
            let response = client.get("/").is(200);
            stated(&response);
            assert_eq!(response.body.len(), size);
        }
    }
}

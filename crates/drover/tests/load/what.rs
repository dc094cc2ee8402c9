//! What is asked for, of whom, and from where: the server sees what the flags say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::recorder::Recorder;
use crate::run::load;
use crate::usage::refused;

/// A file of a test's own.
fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|(line, count)| ((*line).to_string(), *count)).collect()
}

#[test]
fn urls_are_asked_for_in_turn() {
    let server = Recorder::start();
    let [a, b] = ["/a?1", "/b"].map(|path| format!("{}{path}", server.url));
    let run = load(&[&a, &b, "-c", "1", "-n", "5"]);
    let lines: Vec<String> = server.requests().into_iter().map(|r| r.line).collect();
    assert_eq!(lines, ["GET /a?1", "GET /b", "GET /a?1", "GET /b", "GET /a?1"]);
    assert_eq!(run.json["target"], format!("{a} {b}"));
}

#[test]
fn a_file_of_urls_is_gone_through_once_by_all_connections() {
    let server = Recorder::start();
    let list: String = (0..200).map(|n| format!("/{n}\n")).collect();
    let list = file(&list);
    let list = list.path().to_str().unwrap();
    let run = load(&["--urls", list, "--target", &server.url, "-c", "7", "-n", "200", "-t", "2"]);
    assert_eq!(run.number("/responses"), 200);
    let counts = server.counts();
    assert_eq!((counts.len(), counts.values().max()), (200, Some(&1)));
    assert!(run.json["target"].as_str().unwrap().ends_with("/9 and 190 more"));
}

/// With as many threads as servers, each thread has the connections of one server, and asks it for all
/// of its URLs.
#[test]
fn every_url_of_every_server_is_asked_for_whatever_the_number_of_threads() {
    for more in [&["-t", "2"][..], &["-t", "3"], &["--processes", "2", "-t", "2"]] {
        let servers = [(); 2].map(|()| Recorder::start());
        let url = |server: &Recorder, path: &str| format!("{}{path}", server.url);
        let urls = servers.each_ref().map(|server| ["/a", "/b"].map(|path| url(server, path)));
        let urls: Vec<&str> = urls.iter().flatten().map(String::as_str).collect();
        load(&[&urls[..], &["-c", "12", "-n", "96"], more].concat());
        for server in servers {
            assert!(server.counts().into_keys().eq(["GET /a", "GET /b"]), "{more:?}");
        }
    }
}

/// What the seed draws does not depend on the number of connections.
#[test]
fn a_seed_draws_the_same_urls_again() {
    let list = file("http://x/a 6\nhttp://x/b 3\nhttps://y/c 1\n");
    let list = list.path().to_str().unwrap();
    let drawn = |seed: &str, connections: &str| {
        let server = Recorder::start();
        load(&[
            "--urls",
            list,
            "--target",
            &server.url,
            "-n",
            "1000",
            "--seed",
            seed,
            "-c",
            connections,
        ]);
        server.counts()
    };
    let first = drawn("1", "1");
    assert_eq!(first, drawn("1", "5"));
    assert_ne!(first, drawn("2", "1"));
    // Five standard deviations are 77, 72 and 47.
    for (line, expected, off) in [("GET /a", 600, 77), ("GET /b", 300, 72), ("GET /c", 100, 47)] {
        assert!(first[line].abs_diff(expected) <= off, "{first:?}");
    }
}

#[test]
fn zipf_asks_for_the_first_urls_most() {
    let server = Recorder::start();
    let list = file("/1\n/2\n/3\n/4\n");
    let list = list.path().to_str().unwrap();
    let target = ["--target", &server.url];
    load(&["--urls", list, target[0], target[1], "-n", "1000", "--order", "zipf:2", "-c", "2"]);
    let counts = server.counts();
    // 1, 1/4, 1/9 and 1/16 of 1.4236; five standard deviations are 73, 61, 43 and 33.
    for (line, expected, off) in
        [("GET /1", 702, 73), ("GET /2", 176, 61), ("GET /3", 78, 43), ("GET /4", 44, 33)]
    {
        assert!(counts[line].abs_diff(expected) <= off, "{counts:?}");
    }
}

#[test]
fn short_connections_carry_the_weights_across_servers() {
    let (popular, rare) = (Recorder::start(), Recorder::start());
    let list = file(&format!("{}/ 9\n{}/ 1\n", popular.url, rare.url));
    let list = list.path().to_str().unwrap();
    load(&["--urls", list, "-c", "2", "-n", "500", "--calls-per-connection", "1"]);
    let (popular, rare) = (popular.requests().len(), rare.requests().len());
    assert_eq!(popular + rare, 500);
    // Five standard deviations are 34.
    assert!(rare.abs_diff(50) <= 34, "{rare}");
}

#[test]
fn methods_fields_and_bodies_are_sent() {
    let server = Recorder::start();
    load(&[&server.url, "-n", "1", "-c", "1", "--body", "a=b", "-H", "X-Y: z"]);
    load(&[&server.url, "-n", "1", "-c", "1", "--method", "delete"]);
    load(&[&server.url, "-n", "2", "-c", "1", "--method", "HEAD"]);
    let body = file("from a file");
    let body = format!("@{}", body.path().display());
    load(&[&server.url, "-n", "1", "-c", "1", "--method", "PUT", "--body", &body]);
    let expected = [("POST /", 1), ("DELETE /", 1), ("HEAD /", 2), ("PUT /", 1)];
    assert_eq!(server.counts(), counts(&expected));
    let requests = server.requests();
    assert_eq!(requests[0].body, "a=b");
    let host = server.url.replace("http://", "Host: ");
    assert_eq!(requests[0].fields, [&host, "X-Y: z", "Content-Length: 3"]);
    assert_eq!(requests[4].body, "from a file");
}

/// As other generators take them.
#[test]
fn short_forms_are_understood() {
    let server = Recorder::start();
    let authority = server.url.strip_prefix("http://").unwrap();
    let run = load(&[&format!("{authority}/x"), "-X", "PUT", "-n", "4", "-c", "2", "-t", "4"]);
    assert_eq!((run.status, run.number("/client/threads")), (Some(0), 2), "{}", run.json);
    run.assert_warned("threads-unused", 2);
    assert_eq!(server.counts(), counts(&[("PUT /x", 4)]));
    let run = load(&[authority, "-n", "6", "-c", "3", "-t", "2", "--processes", "2"]);
    assert_eq!((run.number("/responses"), run.number("/client/threads")), (6, 2));
}

/// As browsers and curl take them.
#[test]
fn urls_have_schemes_in_any_case_users_and_names_in_any_script() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = Recorder::start_at(&path);
    let path = path.to_str().unwrap();
    for (url, fields) in [
        ("HTTP://a:80/", &["Host: a"][..]),
        ("http://m%65:p%40@a:81/", &["Host: a:81", "Authorization: Basic bWU6cEA="]),
        ("bücher.example", &["Host: xn--bcher-kva.example"]),
        ("http://[fe80::1%25lo]:81/", &["Host: [fe80::1]:81"]),
    ] {
        let run = load(&[url, "--unix", path, "-n", "1", "-c", "1"]);
        assert_eq!(server.requests().last().unwrap().fields, fields, "{url}");
        assert!(!run.json.to_string().contains("p%40"), "{}", run.json["command"]);
    }
    let own = ["-H", "Authorization: Bearer x"];
    load(&[&["u:p@a", "--unix", path, "-n", "1", "-c", "1"], &own[..]].concat());
    assert_eq!(server.requests().last().unwrap().fields, ["Host: a", own[1]]);
}

/// A line without a weight has the weight 1.
#[test]
fn weighted_and_plain_lines_may_be_mixed() {
    let server = Recorder::start();
    // Editors of Windows begin a file with a byte order mark.
    let list = file("\u{feff}/a\n/b 8\r\n/c 0\n/d\n");
    let list = list.path().to_str().unwrap();
    load(&["--urls", list, "--target", &server.url, "-n", "1000"]);
    let counts = server.counts();
    assert_eq!(counts.len(), 3, "{counts:?}");
    // Five standard deviations are 47 and 63.
    for (line, expected, off) in [("GET /a", 100, 47), ("GET /b", 800, 63), ("GET /d", 100, 47)] {
        assert!(counts[line].abs_diff(expected) <= off, "{counts:?}");
    }
}

#[test]
fn a_unix_socket_is_loaded_like_a_port() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = Recorder::start_at(&path);
    let path = path.to_str().unwrap();
    for how in [&["-c", "4"][..], &["-c", "4", "--calls-per-connection", "2"]] {
        let run = load(&[&[&server.url[..], "--unix", path, "-n", "40"], how].concat());
        assert_eq!((run.status, run.number("/responses")), (Some(0), 40));
    }
    assert_eq!(server.counts(), counts(&[("GET /", 80)]));
    assert_eq!(server.requests()[0].fields, ["Host: unix.test"]);

    let absent = folder.path().join("absent");
    let run = load(&[&server.url, "--unix", absent.to_str().unwrap(), "-n", "1", "-c", "3"]);
    assert_eq!((run.status, run.number("/errors/refused")), (Some(1), 3));
}

#[test]
fn connections_come_from_the_addresses_given() {
    let server = Recorder::start();
    load(&[&server.url, "-c", "4", "-n", "40", "--source", "127.0.2.1,127.0.3.0/30"]);
    let from: BTreeSet<String> =
        server.requests().iter().map(|r| r.from.unwrap().ip().to_string()).collect();
    assert!(from.len() > 1, "{from:?}");
    let given = ["127.0.2.1", "127.0.3.1", "127.0.3.2"].map(String::from);
    assert!(from.is_subset(&given.into_iter().collect()), "{from:?}");
}

#[test]
fn a_hundred_thousand_urls_are_no_trouble() {
    let server = Recorder::start();
    let list: String = (0..100_000).map(|n| format!("/some/folder/{n}.html\n")).collect();
    let list = file(&list);
    let list = list.path().to_str().unwrap();
    let run = load(&[
        "--urls",
        list,
        "--target",
        &server.url,
        "--order",
        "random",
        "-n",
        "300",
        "-c",
        "2",
    ]);
    assert_eq!(run.number("/responses"), 300);
    // Of 300 among 100,000 hardly any two are the same.
    assert!(server.counts().len() > 290);
}

#[test]
fn mistakes_name_the_flag_and_the_remedy() {
    let list = file("/a 1\n/b 2\n");
    let weighted = list.path().to_str().unwrap();
    let plain = file("/a\n");
    let plain = plain.path().to_str().unwrap();
    let url = "http://127.0.0.1:9/";
    refused(&["load", "http://u@v@a/"], &["%40"]);
    refused(&["load", "http://bü cher/"], &["valid host name"]);
    refused(&["load", "--urls", plain], &["--urls", "line 1", "--target"]);
    refused(&["load", "--urls", "/no/such/file"], &["--urls", "No such file"]);
    refused(&["load", url, "--urls", plain], &["--urls", "[URL]"]);
    refused(&["load", url, "--order", "backwards"], &["--order", "zipf:0.8"]);
    refused(&["load", url, "--order", "zipf:-1"], &["--order", "from 0 to 10"]);
    refused(&["load", url, "--order", "weighted"], &["--order", "--urls FILE"]);
    refused(
        &["load", "--urls", weighted, "--target", url, "--order", "random"],
        &["--order", "weights"],
    );
    refused(&["load", url, "--body", "@/no/such/file"], &["--body", "No such file"]);
    refused(&["load", url, "--method", "G T"], &["--method", "GET or POST"]);
    refused(&["load", url, "-H", "Content-Length: 3"], &["--header", "by itself"]);
    refused(&["load", url, "--source", "192.0.2.1"], &["--source", "this machine"]);
    let is_here = std::net::UdpSocket::bind("[::1]:0").is_ok();
    let fault = if is_here { "IPv4" } else { "this machine" };
    refused(&["load", url, "--source", "::1"], &["--source", fault]);
    refused(&["load", url, "--unix", &"x".repeat(200)], &["--unix", "shorter"]);
    let two = [url, "http://127.0.0.2:9/"];
    refused(&["load", two[0], two[1], "-c", "1"], &["--connections", "--calls-per-connection"]);
}

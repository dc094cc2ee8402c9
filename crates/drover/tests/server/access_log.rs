//! `--access-log`: a line for each response, on every mechanism.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use drover_mech::mechanisms::{self, Mechanism};
use serde_json::Value;

use crate::config::pipe_in_place_of;
use crate::harness::{
    Server, Site, drover, noted_address, on_every_mechanism, request, signal, usable_backends,
    wait_until,
};
use crate::http2::wire as http2;
use crate::reloading::Configured;
use crate::tls::wire::client_flags;

/// What the log has when the server has ended.
fn logged(site: &Site, flags: &[&str], ask: impl FnOnce(&Server)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let own = ["--access-log", log.to_str().unwrap()];
    let mut server = Server::on(site, &[&own[..], flags].concat());
    ask(&server);
    server.terminate();
    assert!(server.exit_status().success());
    fs::read_to_string(&log).unwrap()
}

fn lines_of(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The flags of a server for each form that a mechanism has.
fn forms(mechanism: &Mechanism) -> Vec<Vec<&'static str>> {
    let parts = ["none", "hints", "ready-list"];
    let parts = parts.map(|parts| vec!["--dispatch", mechanism.name, "--devpoll-model", parts]);
    match mechanisms::models_devpoll(mechanism) {
        true => parts.to_vec(),
        false => vec![vec!["--dispatch", mechanism.name]],
    }
}

#[test]
fn requests_of_two_thousand_kept_connections_are_logged_as_they_were_counted_on_every_mechanism() {
    const CONNECTIONS: u64 = 2000;
    let site = Site::new();
    site.file("a", "hello");
    on_every_mechanism(|mechanism| {
        for flags in forms(mechanism) {
            let mut told = Value::Null;
            let text =
                logged(&site, &[&flags[..], &["--log-format", "%r %s"]].concat(), |server| {
                    let (connections, requests) =
                        (CONNECTIONS.to_string(), (2 * CONNECTIONS).to_string());
                    let mut load = drover();
                    load.args([
                        "load",
                        "--json",
                        "-",
                        "--dispatch",
                        mechanism.name,
                        "--timeout",
                        "1m",
                    ]);
                    load.args(["--connections", &connections, "--requests", &requests]);
                    load.args(client_flags(server.address()));
                    let output = load.arg(format!("{}/a", server.url())).output().unwrap();
                    told = serde_json::from_slice(&output.stdout).unwrap();
                });
            let counts = ["/requests", "/responses", "/status/200", "/connections/opened"];
            let counts = counts.map(|path| told.pointer(path).and_then(Value::as_u64));
            let all = Some(2 * CONNECTIONS);
            assert_eq!(counts, [all, all, all, Some(CONNECTIONS)], "{flags:?}: {told}");
            let answered = text.lines().filter(|line| *line == "GET /a HTTP/1.1 200").count();
            assert_eq!(Some(answered as u64), all, "{flags:?}");
            assert_eq!(text.lines().count(), answered, "{flags:?}");
        }
    });
}

#[test]
fn every_response_has_a_line_in_the_order_of_its_connection_on_every_mechanism() {
    let site = Site::new();
    site.file("a", "hello");
    site.file("long", vec![7; 300_000]);
    // What is malformed in HTTP/1.1 has a response over HTTP/2 too, if its path alone is wrong.
    let (nonsense, line_of_nonsense) = match http2::is_wanted() {
        false => ("NO\x01SENSE", "\"\" \"NO\\u0001SENSE\" 400"),
        true => ("GET /%zz HTTP/1.1\r\nHost: a", "\"GET\" \"/%zz\" 400"),
    };
    on_every_mechanism(|mechanism| {
        let flags = ["--dispatch", mechanism.name, "--log-format", "json"];
        let text = logged(&site, &flags, |server| {
            let mut client = server.connect();
            for _ in 0..2 {
                client.get("/a").is(200);
                client.head("/a", &[]).is(200);
                client.get("/long").is(200);
            }
            client.send(request("GET", "/a", &[]).repeat(3));
            for _ in 0..3 {
                client.response().is(200);
            }
            client.ask("/long", &["Range: bytes=0-0,200000-250000"]).is(206);
            client.ask("/nothing?x", &["User-Agent: test", "Referer: http://e/"]).is(404);
            client.send(format!("{nonsense}\r\n\r\n"));
            client.response().is(400);
        });
        let lines = lines_of(&text);
        let told: Vec<String> = lines
            .iter()
            .map(|line| format!("{} {} {}", line["method"], line["target"], line["status"]))
            .collect();
        let twice = ["\"GET\" \"/a\" 200", "\"HEAD\" \"/a\" 200", "\"GET\" \"/long\" 200"];
        let rest = [
            "\"GET\" \"/a\" 200",
            "\"GET\" \"/a\" 200",
            "\"GET\" \"/a\" 200",
            "\"GET\" \"/long\" 206",
            "\"GET\" \"/nothing?x\" 404",
            line_of_nonsense,
        ];
        assert_eq!(told, [&twice[..], &twice, &rest].concat(), "{}", mechanism.name);
        let bytes: Vec<u64> =
            lines.iter().take(6).map(|line| line["bytes"].as_u64().unwrap()).collect();
        assert_eq!(bytes, [5, 0, 300_000, 5, 0, 300_000]);
        assert!(lines[9]["bytes"].as_u64() > Some(50_002));
        assert_eq!(
            (&lines[10]["agent"], &lines[10]["referer"]),
            (&"test".into(), &"http://e/".into())
        );
        for line in &lines {
            assert_eq!((&line["client"], &line["whole"]), (&"127.0.0.1".into(), &true.into()));
            assert_eq!(line["dispatch"], mechanism.name);
        }
    });
}

#[test]
fn the_combined_form_goes_to_standard_output_too() {
    let site = Site::new();
    site.file("a", "hello");
    for processes in [&[][..], &["--processes"]] {
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(["--access-log", "-"]).args(processes);
        // It says on stderr where it listens: stdout has lines of the log and no others.
        let mut server = Server::start(
            {
                command.stderr(Stdio::piped());
                command
            },
            0,
        );
        let mut log = std::io::BufRead::lines(server.stderr());
        let first = log.next().unwrap().unwrap();
        let address = noted_address(&first).unwrap();
        crate::harness::Client::connect(address).ask("/a", &["User-Agent: a \"b\""]).is(200);
        let text = server.rest_of_stdout();
        let [line] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(line.starts_with("127.0.0.1 - - ["), "{text}");
        let rest = " +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"a \\x22b\\x22\"";
        assert!(line.ends_with(rest), "{text}");
    }
}

/// A client that resets its connection gets no whole response, and the log does not say so.
#[test]
fn a_response_that_was_cut_is_not_whole() {
    let site = Site::new();
    drop(site.sparse("huge", 1 << 30));
    for backend in usable_backends() {
        // The response ends when the server hears of the reset, before or after it is asked to stop.
        let flags = ["--files", backend, "--log-format", "json", "--grace", "10m"];
        let text = logged(&site, &flags, |server| {
            let mut client = server.connect();
            client.send(request("GET", "/huge", &[]));
            assert_eq!(client.response_head().status, 200);
            drop(client);
        });
        let lines = lines_of(&text);
        let huge = lines.iter().find(|line| line["target"] == "/huge");
        let huge = huge.unwrap_or_else(|| panic!("{backend}: {text}"));
        assert_eq!((&huge["whole"], &huge["status"]), (&false.into(), &200.into()), "{backend}");
    }
}

/// On every file backend, and with the file in the page cache and out of the server's.
#[test]
fn stages_add_up_to_the_time_of_the_response() {
    let site = Site::new();
    site.file("a", "hello");
    site.file("long", vec![7; 300_000]);
    for backend in usable_backends() {
        let flags = ["--files", backend, "--cached-reads", "queued", "--log-format", "json-stages"];
        let text = logged(&site, &flags, |server| {
            let mut client = server.connect();
            client.get("/a").is(200);
            client.get("/long").is(200);
            client.ask("/long", &["Range: bytes=0-9,100000-250000"]).is(206);
            client.get("/nothing").is(404);
        });
        let lines = lines_of(&text);
        assert_eq!(lines.len(), 4, "{backend}");
        for line in &lines {
            let stages = line["stages_ms"].as_object().unwrap();
            let names: Vec<&str> = stages.keys().map(String::as_str).collect();
            assert_eq!(names, ["lookup", "queue", "read", "return", "send"]);
            let sum: f64 = stages.values().map(|it| it.as_f64().unwrap()).sum();
            let all = line["ms"].as_f64().unwrap();
            // Six numbers are rounded to a microsecond.
            assert!((sum - all).abs() < 0.0031, "{backend}: {line}");
            assert_eq!(line["end"], "sent", "{backend}");
        }
        assert_eq!(lines[3]["reader"], "memory");
        assert_ne!(lines[1]["reader"], "memory", "{backend}");
        if lines[1]["reads"] != 0 {
            assert_ne!(lines[1]["stages_ms"]["read"], 0.0, "{backend}: {text}");
            assert!(lines[2]["reads"].as_u64() > Some(0), "{backend}: {text}");
        }
    }
}

/// What the response has waited for is in its time: the kernel never has names of procfs at hand.
#[test]
fn the_time_until_a_file_is_open_is_part_of_the_time() {
    on_every_mechanism(|mechanism| {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = drover();
        command.args(["serve", "/proc/sys/kernel", "--cache", "off", "--access-log"]).arg(&log);
        command.args(["--log-format", "%{lookup}x %D %r", "--dispatch", mechanism.name]);
        let mut server = Server::start(command, 1);
        server.get("/ostype");
        server.terminate();
        assert!(server.exit_status().success());
        let text = fs::read_to_string(&log).unwrap();
        let numbers: Vec<u64> =
            text.split(' ').take(2).map(|number| number.parse().unwrap()).collect();
        assert!(numbers[0] > 0 && numbers[0] <= numbers[1], "{}: {text}", mechanism.name);
    });
}

/// The part of a head that comes behind a whole request is in the server when that one's response is here; the rest comes in
/// another turn, because a client is served between them. Of a body that no buffer holds, the first byte leaves before the
/// client takes the others.
#[test]
fn lines_tell_how_long_a_head_took_and_when_the_first_byte_left_on_every_mechanism() {
    let site = Site::new();
    site.file("a", "hello");
    drop(site.sparse("huge", 64 << 20));
    let form = "%U %{receive}x %{first-byte}x %D %{accept}x %{files}x";
    let request = request("GET", "/a", &[]);
    let (part, rest) = request.split_at(10);
    on_every_mechanism(|mechanism| {
        let flags = ["--dispatch", mechanism.name, "--accept", "reuseport", "--files", "sendfile"];
        let text = logged(&site, &[&flags[..], &["--log-format", form]].concat(), |server| {
            let mut client = server.connect();
            client.send([&request, part].concat());
            client.response().is(200);
            server.get("/a").is(200);
            client.send(rest);
            client.response().is(200);
            client.get("/huge").is(200);
        });
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        let told: Vec<_> = lines.iter().map(|line| (line[0], line[4], line[5])).collect();
        let expected = ["/a", "/a", "/a", "/huge"].map(|path| (path, "reuseport", "sendfile"));
        assert_eq!(told, expected, "{}", mechanism.name);
        let number = |line: usize, column: usize| lines[line][column].parse::<u64>().unwrap();
        assert_eq!(
            [0, 1, 2, 3].map(|line| number(line, 1) > 0),
            [false, false, true, false],
            "{text}"
        );
        assert!((0..4).all(|line| number(line, 2) <= number(line, 3)), "{text}");
        assert!(number(3, 2) < number(3, 3), "{}: {text}", mechanism.name);
    });
}

#[test]
fn a_format_says_what_a_line_has_on_every_mechanism() {
    let site = Site::new();
    site.file("a", "hello");
    site.file("long", vec![7; 300_000]);
    let form = r#"%h %k %X "%r" %>s %b %B %m %U%q %H %{Host}i %{x-twice}i %{Content-Length}o %{mechanism}x.%{worker}x %{end}x %p %P %%"#;
    on_every_mechanism(|mechanism| {
        let name = mechanism.name;
        let (mut port, mut process) = (0, 0);
        let text = logged(&site, &["--dispatch", name, "--log-format", form], |server| {
            (port, process) = (server.address().port(), server.worker_process());
            let mut client = server.connect();
            client.ask("/a?b=\"c", &["X-Twice: 1", "X-Twice: \"2"]).is(200);
            client.head("/long", &[]).is(200);
            client.ask("/long", &["Connection: close"]).is(200);
        });
        let rest = |fields: &str| format!("{fields} {name}.0 sent {port} {process} %");
        let expected = [
            rest(
                r#"127.0.0.1 0 + "GET /a?b=\x22c HTTP/1.1" 200 5 5 GET /a?b=\x22c HTTP/1.1 localhost 1, \x222 5"#,
            ),
            rest(
                r#"127.0.0.1 1 + "HEAD /long HTTP/1.1" 200 - 0 HEAD /long HTTP/1.1 localhost - 300000"#,
            ),
            rest(
                r#"127.0.0.1 2 - "GET /long HTTP/1.1" 200 300000 300000 GET /long HTTP/1.1 localhost - 300000"#,
            ),
        ];
        let expected = expected.map(|line| match http2::is_wanted() {
            // That a client ends the connection it says nowhere.
            true => line.replace("HTTP/1.1", "HTTP/2.0").replace("2 - ", "2 + "),
            false => line,
        });
        assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{name}");
    });
}

/// What a client sends can neither end a line nor a field.
#[test]
fn a_client_cannot_write_lines_of_its_own() {
    if http2::leaves_out("what is malformed is reset") {
        return;
    }
    let site = Site::new();
    site.file("a", "hello");
    let form = "%{User-Agent}i|%{Host}i|%U|%q|%r";
    let text = logged(&site, &["--log-format", form], |server| {
        let mut client = server.connect();
        client.ask("/a?", &["User-Agent: a\tb\u{e9}\u{9b}31m\\\""]);
        let mut client = server.connect();
        client.send("GET /\x1b[31m HTTP/1.1\r\n127.0.0.1 - forged\r\n\r\n");
        client.response().is(400);
    });
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.bytes().all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte)), "{text:?}");
    assert!(text.starts_with("a\\x09b\\xC3\\xA9\\xC2\\x9B31m\\x5C\\x22|localhost|/a|?|"), "{text}");
}

#[test]
fn a_wrong_format_is_refused_with_its_position_and_what_is_right() {
    for (form, words) in [
        ("%h %Z", "at character 4, '%Z'|%{FIELD}i"),
        ("%{nobody}x", "mechanism"),
        ("common", "combined|json-stages|%h"),
    ] {
        let mut command = drover();
        command.args(["serve", "--check", "--log-format", form]).stderr(Stdio::piped());
        let output = command.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(words.split('|').all(|word| told.contains(word)), "{form}: {told}");
    }
}

#[test]
fn the_file_is_appended_to_and_a_bad_one_is_refused_at_the_start() {
    let site = Site::new();
    site.file("a", "hello");
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    fs::write(&log, "before\n").unwrap();
    let mut server = Server::on(&site, &["--access-log", log.to_str().unwrap()]);
    server.get("/a").is(200);
    server.terminate();
    assert!(server.exit_status().success());
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.starts_with("before\n127.0.0.1 - - ["), "{text}");
    for check in [&["--check"][..], &[]] {
        let mut command = drover();
        command.args(["serve", "-p", "127.0.0.1:0", "--access-log", "/nowhere/log"]).args(check);
        let output = command.arg(site.path()).stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains("--access-log /nowhere/log"), "{told}");
    }
}

/// Opening a pipe for writing waits for a reader, and here there never is one.
#[test]
fn a_pipe_in_place_of_the_log_does_not_keep_the_server_waiting_at_sighup() {
    let site = Site::new();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut configured = Configured::start(&site, &["--access-log", log.to_str().unwrap()], "");
    configured.server.get("/1").is(404);
    fs::rename(&log, folder.path().join("old")).unwrap();
    drop(pipe_in_place_of(&log));
    let told = configured.reload(|text| text.to_owned() + "hidden = true\n");
    for part in ["still writing to the old file", "cannot reload: --access-log"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    configured.server.get("/2").is(404);
    // One that somebody reads is as good as a file.
    let mut pipe = pipe_in_place_of(&log);
    let told = configured.reload(str::to_owned);
    assert!(told.contains("reloaded: "), "{told}");
    configured.server.get("/3").is(404);
    configured.stops_in_good_order();
    let mut text = fs::read(folder.path().join("old")).unwrap();
    rustix::io::ioctl_fionbio(&pipe, true).unwrap();
    // It ends by an error, since this is a writer too.
    pipe.read_to_end(&mut text).unwrap_err();
    let text = String::from_utf8(text).unwrap();
    for number in 1..=3 {
        assert!(text.contains(&format!("\"GET /{number} ")), "{text}");
    }
}

/// Waits until all workers have the new file of the log open, and not the old one. A worker has the new one as soon as it is
/// told, and closes the old one when it writes there no more.
#[track_caller]
pub(crate) fn until_all_write(server: &Server, new: &Path, old: &Path) {
    let has_changed = |process: u32| {
        let Ok(open) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
        let open = open.flatten().filter_map(|it| fs::read_link(it.path()).ok());
        let open: Vec<_> = open.collect();
        open.iter().any(|it| it == new) && !open.iter().any(|it| it == old)
    };
    wait_until("all write to the new file", || server.children().into_iter().all(has_changed));
}

/// As logrotate(8) does it: the file is moved away, then the server gets SIGHUP.
#[test]
fn the_file_is_opened_anew_at_sighup_and_no_line_is_lost() {
    let site = Site::new();
    site.file("a", "hello");
    for processes in [&[][..], &["--processes"]] {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let at = |name: &str| real.join(name);
        let log = at("log").to_str().unwrap().to_owned();
        let flags = [&["--workers", "2", "--access-log", &log][..], processes].concat();
        let mut server = Server::on(&site, &flags);
        let ask = |count: usize| (0..count).for_each(|_| drop(server.get("/a").is(200)));
        for round in 0..3 {
            ask(10);
            fs::rename(&log, at(&format!("old{round}"))).unwrap();
            signal("HUP", server.process());
            until_all_write(&server, &at("log"), &at(&format!("old{round}")));
        }
        ask(10);
        server.terminate();
        assert!(server.exit_status().success());
        let lines = |name: &str| fs::read_to_string(at(name)).unwrap().lines().count();
        let (old, new) = (["old0", "old1", "old2"].map(lines), lines("log"));
        assert_eq!(old.iter().sum::<usize>() + new, 40, "{old:?} {new}");
        assert!(new >= 10, "{old:?} {new}");
    }
}

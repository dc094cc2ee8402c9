//! `--auth`: users with passwords, by Basic authentication.

use std::fs;
use std::io::{BufRead, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tempfile::TempDir;

use crate::config::pipe_in_place_of;
use crate::harness::{
    Arrived, Client, PATIENCE, Response, Server, Site, drover, has_let_go, on_every_mechanism,
    request, signal, usable_backends, wait_until,
};
use crate::http2::wire as http2;

/// Of "open sesame", as crypt(3) makes it.
pub(crate) const ANN: &str = "ann:$2y$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy";
/// Of "x".
const BOB: &str = "b o\"b:$2y$04$abcdefghijklmnopqrstuuPp7HPfoAs8I2dCQCQ/fW7zEJv8I8C8e";
/// Of "password", as libargon2 makes it.
const CY: &str =
    "cy:$argon2id$v=19$m=256,t=1,p=2$c29tZXNhbHQ$qi5fM169QCmZNmKTYJmX4cqNJowuRUFK41RYVx6nbrg";
/// Of no password, and many seconds to verify.
pub(crate) const SLOW: &str = "slow:$2y$18$abcdefghijklmnopqrstuuPp7HPfoAs8I2dCQCQ/fW7zEJv8I8C8e";

/// As many passwords as a server verifies at a time and has in its queue.
pub(crate) const WAITING_MOST: usize = 2 + 64;

pub(crate) fn as_user(name: &str, password: &str) -> String {
    format!("Authorization: Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

pub(crate) fn ann() -> String {
    as_user("ann", "open sesame")
}

/// A file of users, in a folder of its own.
pub(crate) struct Users {
    folder: TempDir,
    file: PathBuf,
}

impl Users {
    pub(crate) fn new(lines: &[&str]) -> Users {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        fs::write(&file, lines.join("\n")).unwrap();
        Users { folder, file }
    }

    pub(crate) fn flags(&self) -> [&str; 2] {
        ["--auth", self.file.to_str().unwrap()]
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Puts another file in the place of the file, as htpasswd and editors do.
    fn replace(&self, lines: &[&str]) {
        let new = self.folder.path().join("new");
        fs::write(&new, lines.join("\n")).unwrap();
        fs::rename(new, &self.file).unwrap();
    }
}

pub(crate) fn site() -> Site {
    let site = Site::new();
    site.file("index.html", "index");
    site.file("200000", vec![b'x'; 200_000]);
    site.file("401.html", "who are you?");
    site.file("public", "for all");
    site
}

fn is_refused(response: Response) -> Response {
    let challenge = "Basic realm=\"restricted\", charset=\"UTF-8\"";
    assert_eq!(response.field("WWW-Authenticate"), Some(challenge), "{:?}", response.lines);
    for field in ["ETag", "Last-Modified", "Location"] {
        assert_eq!(response.field(field), None);
    }
    response.is(401)
}

fn only_users_are_served(server: &Server) {
    let (ann, cy) = (ann(), as_user("cy", "password"));
    let mut client = server.connect();
    for _ in 0..2 {
        for target in ["/", "/none", "/200000", "/%", "/folder"] {
            let fields = ["If-None-Match: *", "Range: bytes=0-0"];
            assert_eq!(is_refused(client.ask(target, &fields)).text(), "401 Unauthorized\n");
            is_refused(client.head(target, &[]));
        }
        for wrong in [
            as_user("ann", "open sesame "),
            as_user("none", "open sesame"),
            as_user("", ""),
            as_user("cy", "open sesame"),
            "Authorization: Basic !".into(),
            "Authorization: Bearer QTpC".into(),
            as_user("ann", &"p".repeat(3_000)),
        ] {
            is_refused(client.ask("/", &[&wrong]));
        }
        for right in [&ann, &cy, &ann.replace("Basic ", "basic  ")] {
            let response = client.ask("/", &[right]).is(200);
            assert_eq!((response.text(), response.field("WWW-Authenticate")), ("index", None));
            assert_eq!(response.field("Cache-Control"), Some("private"));
            let public = client.ask("/public", &[right]).is(200);
            assert_eq!(public.field("Cache-Control"), Some("no-cache"));
            assert_eq!(client.ask("/200000", &[right]).is(200).body, vec![b'x'; 200_000]);
            client.ask("/none", &[right]).is(404);
            let tag = format!("If-None-Match: {}", response.field("ETag").unwrap());
            client.ask("/", &[right, &tag]).is(304);
        }
    }
    client.send(request("POST", "/", &[&ann]));
    client.response().is(405);
    client.send(request("OPTIONS", "/", &[]));
    client.response_head().is(204);
    let new = as_user("b o\"b", "x");
    let several = [Some(&*ann), None, Some(&new), None, Some(&new), Some(&ann)];
    client
        .send(several.iter().map(|user| request("GET", "/", user.as_slice())).collect::<String>());
    assert_eq!([(); 6].map(|()| client.response().status), [200, 401, 200, 401, 200, 200]);
}

const PUBLIC: [&str; 2] = ["--cache-control", "/public no-cache"];

#[test]
fn only_users_are_served_on_every_mechanism() {
    let (site, users) = (site(), Users::new(&[ANN, BOB, CY]));
    on_every_mechanism(|mechanism| {
        let own = ["--dispatch", mechanism.name];
        let server = Server::on(&site, &[&users.flags()[..], &PUBLIC, &own].concat());
        only_users_are_served(&server);
    });
}

#[test]
fn only_users_are_served_by_every_backend() {
    let (site, users) = (site(), Users::new(&[ANN, BOB, CY]));
    for backend in usable_backends() {
        for own in [["--cache", "off"].as_slice(), &["--processes"]] {
            let flags = [&users.flags()[..], &PUBLIC, &["--files", backend], own].concat();
            only_users_are_served(&Server::on(&site, &flags));
        }
    }
}

#[test]
fn who_comes_at_once_with_one_password_is_served_at_once() {
    let (site, users) = (site(), Users::new(&[ANN]));
    on_every_mechanism(|mechanism| {
        let own = ["--dispatch", mechanism.name, "--error-page", "401=401.html"];
        let server = Server::on(&site, &[&users.flags()[..], &own].concat());
        let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
        let wrong = as_user("ann", "wrong");
        for (number, client) in clients.iter_mut().enumerate() {
            let user = if number % 2 == 0 { ann() } else { wrong.clone() };
            client.send(request("GET", "/", &[&user]));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let (status, text) = [(200, "index"), (401, "who are you?")][number % 2];
            assert_eq!(client.response().is(status).text(), text);
        }
    });
}

/// Also for somebody whose password has to be verified first.
#[test]
fn a_root_that_is_replaced_is_noticed_before_the_first_request_of_a_user_is_answered() {
    let users = Users::new(&[ANN, BOB, CY]);
    on_every_mechanism(|mechanism| {
        let site = Site::new();
        site.file("1/file", "old");
        site.file("2/file", "new");
        let current = site.path().join("current");
        symlink("1", &current).unwrap();
        let flags = [&["--dispatch", mechanism.name, "--revalidate", "0s"], &users.flags()[..]];
        let mut command = drover();
        command.arg("serve").arg(&current).args(flags.concat());
        let server = Server::start(command, 1);
        server.ask("/file", &[&ann()]).is(200);
        fs::remove_file(&current).unwrap();
        symlink("2", &current).unwrap();
        let response = server.ask("/file", &[&as_user("cy", "password")]).is(200);
        assert_eq!(response.text(), "new");
    });
}

#[test]
fn one_body_is_for_users_too() {
    let users = Users::new(&[ANN]);
    let server = Server::of_size(10, &users.flags());
    is_refused(server.get("/"));
    assert_eq!(server.ask("/", &[&ann()]).is(200).body, b"xxxxxxxxxx");
}

/// Sends requests with other wrong passwords, each on a connection of its own, until one is turned away; the others wait.
fn until_turned_away(server: &Server, waiting: &mut Vec<Client>) -> Response {
    loop {
        let mut client = server.connect();
        let wrong = as_user("slow", &waiting.len().to_string());
        client.send(request("GET", "/", &[&wrong]));
        // The worker accepts these connections later, so that it has taken the request by then.
        for _ in 0..5 {
            server.ask("/", &[&ann()]).is(200);
        }
        if client.arrived() != Arrived::Nothing {
            return client.response();
        }
        waiting.push(client);
        assert!(waiting.len() <= WAITING_MOST, "{:?}", waiting.last_mut().map(Client::response));
    }
}

/// Wrong passwords fill the queue, so that more are turned away; whoever is known is served all the same.
#[test]
fn wrong_passwords_keep_nobody_waiting_who_is_known() {
    let (site, users) = (site(), Users::new(&[ANN, SLOW]));
    on_every_mechanism(|mechanism| {
        let own = ["--dispatch", mechanism.name, "--error-page", "503=401.html"];
        let server = Server::on(&site, &[&users.flags()[..], &own].concat());
        let mut known = server.connect();
        known.ask("/", &[&ann()]).is(200);
        let mut waiting = Vec::new();
        for _ in 0..2 {
            let turned_away = until_turned_away(&server, &mut waiting).is(503);
            assert_eq!(turned_away.field("Retry-After"), Some("1"));
            assert_eq!(turned_away.text(), "who are you?");
            for target in ["/", "/200000"].repeat(5) {
                known.ask(target, &[&ann()]).is(200);
                server.ask(target, &[&ann()]).is(200);
                is_refused(server.get(target));
            }
        }
        assert!(waiting.len() >= 64, "{} wait", waiting.len());
    });
}

/// A cache that several people share must not keep what only users may read.
#[test]
fn no_response_of_a_site_with_users_is_for_caches_that_are_shared() {
    let (site, users) = (site(), Users::new(&[ANN]));
    for rule in [
        ["--cache-control", "/** immutable"],
        ["--cache-control", "/** public, max-age=31536000, immutable"],
    ] {
        let server = Server::on(&site, &[&users.flags()[..], &rule].concat());
        let mut client = server.connect();
        let whole = client.ask("/200000", &[&ann()]).is(200);
        let tag = format!("If-None-Match: {}", whole.field("ETag").unwrap());
        for response in [
            client.ask("/200000", &[&ann(), &tag]).is(304),
            client.ask("/200000", &[&ann(), "Range: bytes=0-9"]).is(206),
            client.head("/200000", &[&ann()]).is(200),
            whole,
        ] {
            let expected = Some("private, max-age=31536000, immutable");
            assert_eq!(response.field("Cache-Control"), expected, "{rule:?}");
        }
        for response in [client.ask("/none", &[&ann()]).is(404), is_refused(client.get("/200000"))]
        {
            let told = response.field("Cache-Control").unwrap_or_default();
            assert!(!told.contains("public"), "{rule:?}: {:?}", response.lines);
        }
    }
    // Without users, it is for all.
    let server = Server::on(&site, &["--cache-control", "/** immutable"]);
    let told = server.get("/200000").is(200);
    assert_eq!(told.field("Cache-Control"), Some("public, max-age=31536000, immutable"));
}

/// Three requests of one turn: the third repeats the first, which is nobody's, behind one of a user.
#[test]
fn the_log_names_nobody_for_the_request_of_another_on_every_mechanism() {
    let (open, closed, users) = (site(), site(), Users::new(&[ANN]));
    on_every_mechanism(|mechanism| {
        let log = users.folder.path().join(mechanism.name);
        let host = format!("ann.test={} --auth {}", closed.path().display(), users.flags()[1]);
        let own = ["--host", &host, "--log-format", "%u %{Host}i", "--access-log"];
        let own = [&own[..], &[log.to_str().unwrap(), "--dispatch", mechanism.name]].concat();
        let mut server = Server::on(&open, &own);
        let ann = request("GET", "/public", &[&ann()]).replace("Host: localhost", "Host: ann.test");
        let nobody = request("GET", "/public", &[]);
        let mut client = server.connect();
        client.send(&ann);
        client.response().is(200);
        client.send([&*nobody, &ann, &nobody].concat());
        (0..3).for_each(|_| drop(client.response().is(200)));
        server.terminate();
        assert!(server.exit_status().success());
        let expected = "ann ann.test\n- localhost\nann ann.test\n- localhost\n";
        assert_eq!(fs::read_to_string(&log).unwrap(), expected, "{}", mechanism.name);
    });
}

#[test]
fn the_log_has_the_user_and_never_the_password() {
    let (site, users) = (site(), Users::new(&[ANN, BOB]));
    let bob = as_user("b o\"b", "x");
    for form in ["combined", "json"] {
        let log = users.folder.path().join(form);
        let mut command = drover();
        command.arg("-vv").arg("serve").arg(site.path()).args(users.flags());
        command.args(["--log-format", form, "--access-log", log.to_str().unwrap()]);
        command.args(["--error-page", "404=401.html", "--cache", "off"]);
        let mut server = Server::start(
            {
                command.stderr(Stdio::piped());
                command
            },
            1,
        );
        let mut client = server.connect();
        for (user, target, status) in [
            (&ann(), "/", 200),
            (&as_user("ann", "topsecret"), "/", 401),
            (&bob, "/none", 404),
            (&"Authorization: Basic topsecret".to_owned(), "/public", 401),
        ] {
            client.ask(target, &[user]).is(status);
        }
        if !http2::is_wanted() {
            client.send(format!("NO\x01SENSE\r\n{}\r\n\r\n", ann()));
            client.response().is(400);
        }
        server.terminate();
        let mut told = String::new();
        server.stderr().read_to_string(&mut told).unwrap();
        assert!(server.exit_status().success(), "{told}");
        let text = fs::read_to_string(&log).unwrap();
        let has = match form {
            "json" => ["\"user\":\"ann\"", "\"user\":\"b o\\\"b\"", "\"status\":401"],
            _ => [" - ann [", " - b\\x20o\\x22b [", " - - ["],
        };
        assert_eq!(text.lines().count(), if http2::is_wanted() { 4 } else { 5 });
        assert!(has.iter().all(|it| text.contains(it)), "{text}");
        let encoded = STANDARD.encode("ann:topsecret");
        for secret in ["open sesame", "topsecret", &ann()[21..], &encoded, &bob[21..], "$2y$"] {
            assert!(!text.contains(secret) && !told.contains(secret), "{secret}: {text}{told}");
        }
    }
}

/// Reads the log until it says how a reload went.
fn reloaded(server: &Server, log: &mut impl BufRead) -> String {
    signal("HUP", server.process());
    let mut told = String::new();
    while !["reloaded: ", "cannot reload: ", "is as it was"].iter().any(|it| told.contains(it)) {
        assert!(log.read_line(&mut told).unwrap() > 0, "the server has ended: {told}");
    }
    told
}

/// Asks until the answer has this status: those of before take connections for a moment after a reload.
fn until_answered(server: &Server, user: &str, status: u16) {
    let began = Instant::now();
    while server.ask("/", &[user]).status != status {
        assert!(began.elapsed() < PATIENCE, "{status} never comes");
    }
}

#[test]
fn users_that_have_changed_count_after_a_reload() {
    let site = site();
    for processes in [false, true] {
        let users = Users::new(&[ANN, BOB]);
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(users.flags()).stderr(Stdio::piped());
        if processes {
            command.arg("--processes");
        }
        let mut server = Server::start(command, 1);
        let mut log = server.stderr();
        // The signal is heard once the server has said what is in force.
        let mut told = String::new();
        while !told.contains("sandbox: ") {
            assert!(log.read_line(&mut told).unwrap() > 0, "{told}");
        }
        let bob = as_user("b o\"b", "x");
        let mut kept = server.connect();
        kept.ask("/", &[&ann()]).is(200);
        server.ask("/", &[&bob]).is(200);
        assert!(reloaded(&server, &mut log).contains("is as it was"));
        kept.ask("/", &[&ann()]).is(200);
        users.replace(&[BOB, CY]);
        assert!(reloaded(&server, &mut log).contains("reloaded: "));
        for (user, status) in [(ann(), 401), (bob.clone(), 200), (as_user("cy", "password"), 200)] {
            until_answered(&server, &user, status);
        }
        // A connection from before is closed behind its next response.
        assert_eq!(kept.ask("/", &[&ann()]).field("Connection"), Some("close"));
        users.replace(&["ann:open sesame"]);
        let told = reloaded(&server, &mut log);
        assert!(told.contains("cannot reload: ") && told.contains("htpasswd -B"), "{told}");
        assert!(!told.contains("open sesame"), "{told}");
        server.ask("/", &[&bob]).is(200);
        server.terminate();
        assert!(server.exit_status().success());
    }
}

#[test]
fn what_cannot_be_a_file_of_users_is_told_with_what_can() {
    let site = site();
    let users = Users::new(&[ANN, "bob:plain text"]);
    let inside = site.file(".users", ANN);
    let fault = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command.args(["serve", "--check", "--listen", "0"]).arg(site.path()).args(flags);
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let told = fault(&["--auth", inside.to_str().unwrap()]);
    assert!(told.contains("is served; move it out of there"), "{told}");
    let told = fault(&users.flags());
    assert!(told.contains("line 2, user \"bob\"") && told.contains("htpasswd -B"), "{told}");
    assert!(!told.contains("plain"), "{told}");
    assert!(fault(&["--auth", "/nowhere/users"]).contains("/nowhere/users: cannot be read"));
}

/// Whoever reads a pipe waits for its writer.
#[test]
fn a_pipe_is_no_file_of_users_at_a_start_or_a_reload() {
    let (site, users) = (site(), Users::new(&[ANN]));
    let command = || {
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(users.flags());
        command.args(["--listen", "127.0.0.1:0", "--workers", "1"]).stderr(Stdio::piped());
        command
    };
    let mut server = Server::start_as_it_is(command(), 1);
    let mut log = server.stderr();
    let mut told = String::new();
    while !told.contains("sandbox: ") {
        assert!(log.read_line(&mut told).unwrap() > 0, "{told}");
    }
    let _pipe = pipe_in_place_of(&users.file);
    let told = reloaded(&server, &mut log);
    assert!(told.contains("cannot reload: ") && told.contains("it is a pipe"), "{told}");
    server.ask("/", &[&ann()]).is(200);
    let mut next = Server::start_as_it_is(command(), 0);
    wait_until("it ends", || has_let_go(next.process()));
    assert!(!next.exit_status().success());
    let mut told = String::new();
    next.stderr().read_to_string(&mut told).unwrap();
    assert!(told.contains("cannot be read: it is a pipe"), "{told}");
}

#[test]
fn the_log_says_when_passwords_go_in_clear_text() {
    let (site, users) = (site(), Users::new(&[ANN]));
    for (address, in_clear) in [("127.0.0.1:0", false), ("0.0.0.0:0", true)] {
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(users.flags()).args(["--listen", address]);
        command.stderr(Stdio::piped());
        let mut server = Server::start_as_it_is(command, 1);
        let mut log = server.stderr();
        let mut told = String::new();
        while !told.contains("sandbox: ") {
            assert!(log.read_line(&mut told).unwrap() > 0, "{told}");
        }
        assert_eq!(
            told.contains("passwords go over the network in clear text"),
            in_clear,
            "{told}"
        );
    }
}

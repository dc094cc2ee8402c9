//! Random pipelines of several clients at once, held against each request alone: nothing that one request leaves behind in a
//! worker may show in the response to another, or in its line of the access log.
//!
//! The server is stopped while the clients of a round send, so that it finds the requests of all of them in one turn. The
//! PROXY protocol gives each connection an address of its own, by which its lines are found in the log; the requests
//! themselves stay equal byte for byte, as the short cut for repeated requests needs them.

use std::collections::HashMap;
use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drover_mech::mechanisms::Mechanism;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use tempfile::TempDir;

use crate::harness::{Client, Server, Site, on_every_mechanism};
use crate::http2::wire as http2;

/// How many rounds there are on each mechanism.
const ROUNDS: u32 = 40;

const CLIENTS_MOST: usize = 5;

const PIPELINED_MOST: usize = 12;

/// Of "open sesame" and "x", as crypt(3) makes them.
const USERS: &str = "ann:$2y$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy\n\
                     bob:$2y$04$abcdefghijklmnopqrstuuPp7HPfoAs8I2dCQCQ/fW7zEJv8I8C8e\n";

/// What lines of the log have: nothing that depends on time, or on what the connection had before.
const FORM: &str = "%h %u %v \"%r\" %s %b %X %{ETag}o %{Content-Type}o %{Content-Encoding}o %{Location}o %{Referer}i";

/// A request, and how its response is read.
struct Asked {
    bytes: String,
    /// Whether the response has no body, whatever its length says.
    bodiless: bool,
    /// Whether the server closes the connection behind the response.
    is_last: bool,
}

/// A response without what may differ from one time to the next, and a line of the log without the client.
type Outcome = (Vec<String>, Vec<u8>);

fn asked(method: &str, target: &str, host: &str, fields: &[&str]) -> Asked {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let (fields, body) = fields.split_once("\r\n\r\n").map_or((&*fields, ""), |it| it);
    let fields = fields.trim_end();
    let end = if fields.is_empty() { "\r\n" } else { "\r\n\r\n" };
    Asked {
        bytes: format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{fields}{end}{body}"),
        bodiless: ["HEAD", "OPTIONS"].contains(&method),
        is_last: false,
    }
}

/// All requests that pipelines are made of.
fn requests() -> Vec<Asked> {
    let user = |pair: &str| format!("Authorization: Basic {}", STANDARD.encode(pair));
    let [ann, bob, wrong] = ["ann:open sesame", "bob:x", "bob:open sesame"].map(user);
    let (open, closed, listed) = ("open.test", "closed.test", "listed.test");
    let get = |target: &str, host: &str, fields: &[&str]| asked("GET", target, host, fields);
    let last = |asked: Asked| Asked { is_last: true, ..asked };
    let plain = |text: &str| Asked { bytes: text.into(), bodiless: false, is_last: false };
    vec![
        get("/short", open, &[]),
        get("/short", open, &["Referer: http://a/"]),
        get("/short", open, &[&ann]),
        get("/short", open, &["Origin: https://a.test"]),
        get("/short", open, &["Origin: https://b.test"]),
        get("/short", open, &["Accept-Encoding: gzip"]),
        get("/moved?x", open, &[]),
        get("/other", open, &[]),
        get("/long", open, &[]),
        get("/none", open, &[]),
        get("/folder?x", open, &[]),
        get("/short", closed, &[]),
        get("/short", closed, &[&ann]),
        get("/short", closed, &[&bob]),
        get("/other", closed, &[&ann]),
        get("/long", closed, &[&bob]),
        get("/none", closed, &[&ann]),
        get("/short", closed, &[&wrong]),
        get("http://closed.test/short", open, &[&bob]),
        get("/short", listed, &[]),
        get("/folder/", listed, &[]),
        asked("HEAD", "/short", open, &[]),
        asked("HEAD", "/short", closed, &[&ann]),
        asked("OPTIONS", "/short", closed, &[]),
        asked("POST", "/short", closed, &[&bob, "Content-Length: 5\r\n\r\nGET /"]),
        Asked { bodiless: true, ..get("/short", open, &["If-None-Match: *"]) },
        Asked { bodiless: true, ..get("/short", closed, &[&ann, "If-None-Match: *"]) },
        get("/short", open, &["Range: bytes=1-2"]),
        get("/long", closed, &[&ann, "Range: bytes=0-1,5-6"]),
        get("/short", open, &["Range: bytes=99-"]),
        plain("GET /short HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
        last(get("/short", closed, &[&ann, "Connection: close"])),
        last(get("/short", open, &["Connection: close"])),
        last(plain("GET /short HTTP/1.0\r\n\r\n")),
        last(plain("NO\u{1}SENSE\r\n\r\n")),
    ]
}

/// A server with an open site, one for users, and one that shows its folders.
struct Sites {
    _folders: [Site; 3],
    log: TempDir,
    server: Server,
    /// How many connections there were.
    connections: u32,
}

impl Sites {
    fn serve(mechanism: &Mechanism) -> Sites {
        let folders = ["open", "closed", "listed"].map(|name| {
            let site = Site::new();
            site.file("short", format!("short of {name}"));
            site.file("short.gz", format!("short of {name}, compressed"));
            site.file("other", format!("other of {name}"));
            site.dated("long", name.repeat(50_000));
            site.file("folder/page.html", name);
            site.file("error", format!("an error of {name}"));
            site
        });
        let log = tempfile::tempdir().unwrap();
        let users = log.path().join("users");
        fs::write(&users, USERS).unwrap();
        let [open, closed, listed] = folders.each_ref().map(|site| site.path().display());
        let users = users.display();
        let hosts = [
            format!(
                "open.test={open} --error-page 404=error --cors https://a.test --precompressed \
                 --redirect '/moved /short'"
            ),
            format!(
                "closed.test={closed} --auth {users} --error-page 401=error --error-page 404=error"
            ),
            format!("listed.test={listed} --listing --error-page 404=error"),
        ];
        let path = log.path().join("log");
        let mut flags = vec!["--dispatch", mechanism.name, "--log-format", FORM];
        flags.extend(["--access-log", path.to_str().unwrap(), "--max-connections", "100"]);
        flags.extend(["--proxy-protocol", "--trusted-proxies", "127.0.0.1"]);
        // The line feed behind a body that is longer than its length begins a request that does not come.
        flags.extend(["--header-timeout", "0", "--idle-timeout", "0"]);
        flags.extend(hosts.iter().flat_map(|host| ["--host", host]));
        let server = Server::on(&folders[0], &flags);
        Sites { _folders: folders, log, server, connections: 0 }
    }

    /// A connection with an address of its own.
    fn connect(&mut self) -> (Client, String) {
        self.connections += 1;
        let [_, high, middle, low] = self.connections.to_be_bytes();
        let address = format!("10.{high}.{middle}.{low}");
        let mut client = self.server.connect();
        client.send_header(format!("PROXY TCP4 {address} 127.0.0.1 4711 80\r\n"));
        client.await_handshake().unwrap();
        (client, address)
    }

    /// Asks for all of a pipeline by each of some clients, all of whom have sent everything before the server runs. Returns
    /// the address of each, with the responses.
    fn ask(&mut self, pipelines: &[Vec<&Asked>]) -> Vec<(String, Vec<Outcome>)> {
        let mut clients: Vec<_> = pipelines.iter().map(|_| self.connect()).collect();
        self.server.while_stopped(|| {
            for ((client, _), pipeline) in clients.iter_mut().zip(pipelines) {
                client.send(pipeline.iter().map(|asked| &*asked.bytes).collect::<String>());
            }
        });
        let responses = clients.iter_mut().zip(pipelines).map(|((client, address), pipeline)| {
            let responses = pipeline.iter().map(|asked| outcome(client, asked)).collect();
            if pipeline.last().is_some_and(|asked| asked.is_last) {
                client.expect_end();
            }
            (address.clone(), responses)
        });
        responses.collect()
    }

    /// Ends the server. Returns its lines by the address of their client.
    fn lines(mut self) -> HashMap<String, Vec<String>> {
        self.server.terminate();
        assert!(self.server.exit_status().success());
        let mut lines: HashMap<String, Vec<String>> = HashMap::new();
        for line in fs::read_to_string(self.log.path().join("log")).unwrap().lines() {
            let (address, line) = line.split_once(' ').unwrap();
            lines.entry(address.into()).or_default().push(without_boundary(line, line));
        }
        lines
    }
}

/// The response to a request, as far as it is the same each time.
fn outcome(client: &mut Client, asked: &Asked) -> Outcome {
    let response = if asked.bodiless { client.response_head() } else { client.response() };
    let kind = response.field("Content-Type").unwrap_or_default().to_owned();
    let lines = response.lines.iter().filter(|line| !line.starts_with("Date: "));
    let lines = lines.map(|line| without_boundary(line, &kind)).collect();
    let body = match kind.contains("boundary=") {
        true => without_boundary(response.text(), &kind).into_bytes(),
        false => response.body,
    };
    (lines, body)
}

/// `text` with another word in place of the random boundary of parts that `kind` names.
fn without_boundary(text: &str, kind: &str) -> String {
    let boundary = kind.split_once("boundary=").map(|(_, rest)| rest);
    let boundary =
        boundary.and_then(|it| it.split([' ', ';', '"', '\\']).find(|it| !it.is_empty()));
    boundary.map_or_else(|| text.to_owned(), |boundary| text.replace(boundary, "BOUNDARY"))
}

/// Random pipelines for a round: of some few requests, so that many are equal.
fn pipelines<'a>(random: &mut SmallRng, requests: &'a [Asked]) -> Vec<Vec<&'a Asked>> {
    let some = |random: &mut SmallRng| &requests[random.random_range(0..requests.len())];
    let few: Vec<&Asked> = (0..random.random_range(2..=6)).map(|_| some(random)).collect();
    let pipeline = |random: &mut SmallRng| {
        let mut pipeline = Vec::new();
        for _ in 0..random.random_range(1..=PIPELINED_MOST) {
            pipeline.push(few[random.random_range(0..few.len())]);
            if pipeline.last().is_some_and(|asked| asked.is_last) {
                break;
            }
        }
        pipeline
    };
    (0..random.random_range(2..=CLIENTS_MOST)).map(|_| pipeline(random)).collect()
}

fn is_as_alone(mechanism: &Mechanism, seed: u64) {
    let requests = requests();
    let mut sites = Sites::serve(mechanism);
    // Twice: who logs in is known from then on, also where a request is refused before its password would be verified.
    let [_, alone] = [(); 2].map(|()| {
        requests.iter().map(|asked| sites.ask(&[vec![asked]]).remove(0)).collect::<Vec<_>>()
    });
    let mut random = SmallRng::seed_from_u64(seed);
    let number = |asked: &Asked| requests.iter().position(|it| std::ptr::eq(it, asked)).unwrap();
    let mut expected_lines = Vec::new();
    for round in 0..ROUNDS {
        let pipelines = pipelines(&mut random, &requests);
        let answered = sites.ask(&pipelines);
        for (pipeline, (address, responses)) in pipelines.iter().zip(answered) {
            let numbers: Vec<usize> = pipeline.iter().map(|asked| number(asked)).collect();
            let what = format!("{}, seed {seed}, round {round}, {numbers:?}", mechanism.name);
            for (number, response) in numbers.iter().zip(responses) {
                assert_eq!(response, alone[*number].1[0], "{what}: {number}");
            }
            expected_lines.push((address, numbers, what));
        }
    }
    let lines = sites.lines();
    for (address, numbers, what) in expected_lines {
        let expected: Vec<&String> =
            numbers.iter().map(|number| &lines[&alone[*number].0][0]).collect();
        assert_eq!(lines[&address].iter().collect::<Vec<_>>(), expected, "{what}");
    }
}

#[test]
fn every_request_of_a_pipeline_is_answered_and_logged_as_alone_on_every_mechanism() {
    if http2::leaves_out("streams are no pipeline") {
        return;
    }
    let seed = std::env::var("DROVER_SEED");
    let seed = seed.map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    on_every_mechanism(|mechanism| is_as_alone(mechanism, seed));
}

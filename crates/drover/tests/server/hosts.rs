//! `--host`: a site of its own for some hosts; never a file of one site for another.

use std::fs;
use std::process::{Command, Stdio};

use crate::harness::{
    Client, Response, Server, Site, drover, on_every_mechanism, usable_backends, wait_until,
};
use crate::http2::wire as http2;
use crate::reloading::Configured;

/// The directories, and hosts that lead to each; the first is the root.
const SITES: [(&str, &[&str]); 4] = [
    ("root", &["other.test", "test", "xa.test.example", "127.0.0.1"]),
    ("a", &["a.test", "A.TEST:8080", "a.test.", "b.test:1"]),
    ("wild", &["x.wild.test", "y.x.wild.test:80", "b.wild.test"]),
    ("deep", &["x.deep.wild.test", "x.y.deep.wild.test"]),
];

const HOSTS: [(&str, &str); 3] =
    [("a", "a.test,b.test"), ("wild", "*.wild.test"), ("deep", "*.deep.wild.test")];

/// Files of the same names in each directory; each byte tells whose it is.
fn site() -> Site {
    let site = Site::new();
    for (directory, _) in SITES {
        for (name, len) in [("index.html", 10), ("small", 100), ("kept", 9_000), ("large", 200_000)]
        {
            site.file(&format!("{directory}/{name}"), content(directory, len));
        }
        site.file(&format!("{directory}/small.gz"), format!("packed {directory}"));
        site.file(&format!("{directory}/of-{directory}"), directory);
    }
    site
}

fn content(directory: &str, len: usize) -> Vec<u8> {
    directory.bytes().cycle().take(len).collect()
}

fn host_flag(site: &Site, directory: &str, names: &str) -> String {
    format!("{names}={}", site.path().join(directory).display())
}

fn serve(site: &Site, flags: &[&str]) -> Server {
    let mut command = drover();
    command.arg("serve").arg(site.path().join("root")).args(flags);
    start_with_hosts(site, command)
}

fn start_with_hosts(site: &Site, mut command: Command) -> Server {
    for (directory, names) in HOSTS {
        command.args(["--host", &host_flag(site, directory, names)]);
    }
    Server::start(command, 1)
}

pub(crate) fn request_to(host: &str, target: &str, field: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n")
}

#[track_caller]
fn ask(client: &mut Client, host: &str, target: &str) -> Response {
    client.send(request_to(host, target, ""));
    client.response()
}

/// Requests for every host, file by file, each twice: what is kept is found in another way.
fn each_host_has_its_files(server: &Server, label: &str) {
    let mut client = server.connect();
    for _ in 0..2 {
        for (target, len) in [("/", 10), ("/small", 100), ("/kept", 9_000), ("/large", 200_000)] {
            for (directory, hosts) in SITES {
                for host in hosts {
                    let response = ask(&mut client, host, target).is(200);
                    assert!(
                        response.body == content(directory, len),
                        "{label}: {host} {target}: {:?}",
                        &response.body[..5]
                    );
                }
            }
        }
        for (directory, hosts) in SITES {
            for (other, _) in SITES {
                let status = if other == directory { 200 } else { 404 };
                ask(&mut client, hosts[0], &format!("/of-{other}")).is(status);
            }
        }
    }
}

/// All at once on one connection, in an order in which the host changes with each request.
fn the_host_is_of_the_request_and_not_of_the_connection(server: &Server, label: &str) {
    let mut client = server.connect();
    let all: Vec<_> = SITES
        .iter()
        .flat_map(|(directory, hosts)| hosts.iter().map(move |host| (directory, host)))
        .collect();
    let order: Vec<_> = (0..60).map(|number| all[number * 7 % all.len()]).collect();
    client.send(order.iter().map(|(_, host)| request_to(host, "/small", "")).collect::<String>());
    for (directory, host) in order {
        assert_eq!(client.response().is(200).body, content(directory, 100), "{label}: {host}");
    }
    if http2::leaves_out("a path is no URL, and there is one version") {
        return;
    }
    // An absolute target wins (RFC 9112 section 3.2.2).
    let target = |host: &str| format!("http://{host}/small");
    assert_eq!(ask(&mut client, "a.test", &target("x.wild.test")).body, content("wild", 100));
    assert_eq!(ask(&mut client, "x.wild.test", &target("none.test")).body, content("root", 100));
    client.send("GET /small HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().is(200).body, content("root", 100), "no host at all");
}

#[test]
fn each_host_has_its_own_files_by_every_mechanism() {
    let site = site();
    on_every_mechanism(|mechanism| {
        for cache in ["64M", "off"] {
            let flags = ["--dispatch", mechanism.name, "--cache", cache];
            let server = serve(&site, &flags);
            each_host_has_its_files(&server, mechanism.name);
            the_host_is_of_the_request_and_not_of_the_connection(&server, mechanism.name);
        }
    });
}

#[test]
fn each_host_has_its_own_files_by_every_backend() {
    let site = site();
    for backend in usable_backends() {
        let server = serve(&site, &["--files", backend]);
        each_host_has_its_files(&server, backend);
    }
}

/// Neither root has its names at hand, so that other threads open every file: procfs is asked each time. The files are
/// empty, and a field tells the site.
#[test]
fn files_that_other_threads_open_come_from_the_site_of_the_request_by_every_mechanism() {
    const NAMES: [&str; 4] = ["mtu", "hop_limit", "forwarding", "disable_ipv6"];
    const OF_ALL: &str = "/proc/sys/net/ipv6/conf/all";
    const OF_LO: &str = "/proc/sys/net/ipv6/conf/lo";
    if fs::metadata(OF_LO).is_err() {
        return drover_testing::skip!("this kernel has no IPv6");
    }
    on_every_mechanism(|mechanism| {
        let mut command = drover();
        command.args([
            "serve",
            OF_ALL,
            "--header",
            "/** X-Site: all",
            "--dispatch",
            mechanism.name,
        ]);
        command.args(["--host", &format!("lo.test={OF_LO} --header '/** X-Site: lo'")]);
        let server = Server::start(command, 1);
        let mut clients = [("lo.test", "lo"), ("all.test", "all"), ("lo.test", "lo")]
            .map(|(host, of)| (server.connect(), host, of));
        for (client, host, _) in &mut clients {
            client.send(NAMES.map(|name| request_to(host, &format!("/{name}"), "")).concat());
        }
        for (client, host, of) in &mut clients {
            for name in NAMES {
                let response = client.response().is(200);
                assert_eq!(
                    response.field("X-Site"),
                    Some(*of),
                    "{}: {host} {name}",
                    mechanism.name
                );
            }
        }
    });
}

#[test]
fn a_host_has_settings_of_its_own_and_those_of_all_where_it_has_none() {
    let site = site();
    site.file("a/.dot", "hidden");
    site.file("root/.dot", "hidden");
    fs::remove_file(site.path().join("a/index.html")).unwrap();
    let own = "--listing --hidden=false --precompressed --header '* X-Own: yes' --redirect '/old /small' --error-page 404=small --cors https://a.test";
    let flags = [&host_flag(&site, "a", "a.test"), own].map(|it| it.to_owned()).join(" ");
    let mut command = drover();
    command.arg("serve").arg(site.path().join("root"));
    command.args([
        "--hidden",
        "--cache-control",
        "* 1h",
        "--header",
        "* X-All: yes",
        "--host",
        &flags,
    ]);
    let server = Server::start(command, 1);
    let mut client = server.connect();
    for _ in 0..2 {
        let response = ask(&mut client, "test", "/small").is(200);
        assert_eq!((response.field("X-All"), response.field("X-Own")), (Some("yes"), None));
        assert_eq!(response.field("Cache-Control"), Some("max-age=3600"));
        assert_eq!(response.field("Vary"), None);
        let response = ask(&mut client, "a.test", "/small").is(200);
        assert_eq!((response.field("X-All"), response.field("X-Own")), (None, Some("yes")));
        assert_eq!(response.field("Cache-Control"), Some("max-age=3600"), "as for all");
        client.send(request_to("a.test", "/small", "Accept-Encoding: gzip\r\n"));
        assert_eq!(client.response().is(200).text(), "packed a");
        client.send(request_to("test", "/small", "Accept-Encoding: gzip\r\n"));
        assert_eq!(client.response().is(200).body, content("root", 100));
        ask(&mut client, "test", "/.dot").is(200);
        assert_eq!(ask(&mut client, "a.test", "/.dot").is(404).body, content("a", 100));
        ask(&mut client, "test", "/old").is(404);
        assert_eq!(ask(&mut client, "a.test", "/old").is(301).field("Location"), Some("/small"));
        assert!(ask(&mut client, "a.test", "/").is(200).text().contains("of-a"));
        client.send(request_to("a.test", "/small", "Origin: https://a.test\r\n"));
        let allowed = client.response().is(200);
        assert_eq!(allowed.field("Access-Control-Allow-Origin"), Some("https://a.test"));
        client.send(request_to("test", "/small", "Origin: https://a.test\r\n"));
        assert_eq!(client.response().is(200).field("Access-Control-Allow-Origin"), None);
    }
}

#[test]
fn a_host_can_be_without_what_is_set_for_all() {
    let site = site();
    let users = tempfile::tempdir().unwrap();
    let users = users.path().join("users");
    fs::write(&users, "ann:$2y$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy").unwrap();
    let flag = |directory: &str, more: &str| {
        format!("{}={} {more}", directory, site.path().join(directory).display())
    };
    let table = |directory: &str, more: &str| {
        let path = site.path().join(directory);
        format!("[[host]]\nname = '{directory}'\nroot = '{}'\n{more}", path.display())
    };
    let file = site.file(
        "d.toml",
        [table("a", "auth = ''\nheader = []\nlisting = false\n"), table("wild", "header = []\n")]
            .concat(),
    );
    let in_file = ["--config".to_owned(), file.display().to_string()];
    let as_flags = ["--host".to_owned(), flag("a", "--auth= --header= --listing=false")]
        .into_iter()
        .chain(["--host".to_owned(), flag("wild", "--header=")]);
    for hosts in [in_file.to_vec(), as_flags.collect()] {
        for kind in [&[][..], &["--processes"]] {
            let mut command = drover();
            command.arg("serve").arg(site.path().join("root")).args(&hosts).args(kind);
            command.args(["--header", "* X-All: yes", "--auth"]).arg(&users);
            let server = Server::start(command, 1);
            let mut client = server.connect();
            assert_eq!(ask(&mut client, "a", "/small").is(200).field("X-All"), None, "{hosts:?}");
            ask(&mut client, "wild", "/small").is(401);
            ask(&mut client, "test", "/small").is(401);
            let right = "Authorization: Basic YW5uOm9wZW4gc2VzYW1l\r\n";
            client.send(request_to("wild", "/small", right));
            assert_eq!(client.response().is(200).field("X-All"), None);
            client.send(request_to("test", "/small", right));
            assert_eq!(client.response().is(200).field("X-All"), Some("yes"));
        }
    }
}

#[test]
fn the_access_log_names_the_site_by_its_first_name() {
    for (form, known, other) in [
        ("%v %s %U", "a.test 200 /small", "- 200 /small"),
        ("json", "\"host\":\"B.TEST:80\",\"site\":\"a.test\"", "\"host\":\"other\",\"target\""),
    ] {
        let site = site();
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let flags = ["--log-format", form, "--access-log", log.to_str().unwrap()];
        let mut server = serve(&site, &flags);
        let mut client = server.connect();
        for _ in 0..2 {
            // The second of each is answered as the first was, without another look at its host.
            for host in ["B.TEST:80", "B.TEST:80", "other", "other"] {
                ask(&mut client, host, "/small").is(200);
            }
        }
        drop(client);
        server.terminate();
        assert!(server.exit_status().success());
        let lines = fs::read_to_string(&log).unwrap();
        let found: Vec<bool> = lines.lines().map(|line| line.contains(known)).collect();
        assert_eq!(found, [true, true, false, false].repeat(2), "{lines}");
        assert_eq!(lines.lines().filter(|line| line.contains(other)).count(), 4, "{lines}");
    }
}

#[test]
fn users_of_one_host_are_nobody_at_another() {
    let (site, folder) = (site(), tempfile::tempdir().unwrap());
    // Of "open sesame".
    let ann = "ann:$2y$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy";
    let users = folder.path().join("users");
    fs::write(&users, ann).unwrap();
    let flag = format!("{} --auth {}", host_flag(&site, "a", "a.test"), users.display());
    on_every_mechanism(|mechanism| {
        let mut command = drover();
        command.arg("serve").arg(site.path().join("root")).args(["--host", &flag]);
        command.args(["--dispatch", mechanism.name]);
        let server = Server::start(command, 1);
        let mut client = server.connect();
        for _ in 0..2 {
            ask(&mut client, "a.test", "/small").is(401);
            ask(&mut client, "test", "/small").is(200);
            let right = "Authorization: Basic YW5uOm9wZW4gc2VzYW1l\r\n";
            client.send(request_to("a.test", "/small", right));
            assert_eq!(client.response().is(200).body, content("a", 100), "{}", mechanism.name);
            client.send(request_to("test", "/small", right));
            assert_eq!(client.response().is(200).field("Cache-Control"), None);
        }
    });
}

#[test]
fn without_a_root_hosts_without_a_site_are_refused() {
    let site = site();
    let mut command = drover();
    // The current directory is nobody's.
    command.arg("serve").current_dir(site.path().join("root"));
    let server = start_with_hosts(&site, command);
    let mut client = server.connect();
    for host in SITES[0].1 {
        let response = ask(&mut client, host, "/small").is(421);
        assert!(response.text().starts_with("421 Misdirected Request"), "{}", response.text());
    }
    assert_eq!(ask(&mut client, "a.test", "/small").is(200).body, content("a", 100));
    if http2::leaves_out("there is one version") {
        return;
    }
    client.send("GET /small HTTP/1.0\r\n\r\n");
    client.response().is(421);
    client.expect_end();
}

#[test]
fn a_reload_changes_hosts_and_worker_processes_have_them_too() {
    for flags in [&[][..], &["--processes"]] {
        let site = site();
        let root = Site::new();
        root.file("small", "root");
        let table = |directory: &str, more: &str| {
            let path = site.path().join(directory);
            format!("[[host]]\nname = ['a.test', '*.a.test']\nroot = '{}'\n{more}", path.display())
        };
        let mut configured = Configured::start(&root, flags, &table("", "listing = true\n"));
        let address = configured.server.address();
        let get = |host: &str, target: &str| ask(&mut Client::connect(address), host, target);
        assert_eq!(get("x.a.test", "/wild/small").is(200).body, content("wild", 100));
        assert!(get("a.test", "/").is(200).text().contains("wild"));
        get("x.test", "/wild/small").is(404);
        // Beneath what the sandbox leaves readable.
        configured.set(&table("wild", ""));
        // Workers from before may take connections for a moment.
        let is_now = |body: &[u8]| wait_until("it is new", || get("a.test", "/small").body == body);
        is_now(&content("wild", 100));
        configured.set("");
        is_now(b"root");
        configured.stops_in_good_order();
    }
}

#[test]
fn what_is_no_host_is_told_at_the_start() {
    let site = site();
    let path = site.path().display();
    for (flags, why) in [
        (vec!["--host", "a"], "write NAME=ROOT"),
        (vec!["--host", "a=none"], "the root of a must be a directory"),
        (vec!["--host", "a=none", "--host", "b,c=no"], "the root of b, c must be a directory"),
        (vec!["--host", "a=none", "--host", "b,c=no"], "2 faults in what is to be served"),
        (vec!["--host", "a=. --workers 2"], "--workers"),
        (vec!["--host", "a,b=.", "--host", "B.=."], "b has two sites"),
        (vec!["--host", "a=.", "--response-size", "1"], "cannot be used with"),
    ] {
        let mut command = drover();
        command.args(["serve", "--check"]).args(&flags).current_dir(site.path());
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && told.contains(why), "{flags:?}: {told}");
    }
    let mut command = drover();
    command.args(["serve", "--check", "--host", "a=a --listing --auth ../users"]);
    command.args(["--host", "*.b=root"]).current_dir(site.path());
    let told = command.stderr(Stdio::piped()).output().unwrap();
    assert!(String::from_utf8(told.stderr).unwrap().contains("cannot be read"));
    let mut command = drover();
    command.args([
        "serve",
        "--check",
        "--listen",
        "127.0.0.1:0",
        "--host",
        "a=a --listing --auth= --header=",
        "--host",
        "*.b=root",
    ]);
    let told = command.current_dir(site.path()).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let tables = [
        format!(
            "name = [\"a\"]\nroot = \"{path}/a\"\nlisting = true\nheader = []\nauth = \"\"\n\n[[host]]"
        ),
        format!("name = [\"*.b\"]\nroot = \"{path}/root\"\n"),
        "[[host]]".to_owned(),
    ];
    assert!(tables.iter().all(|table| told.contains(table)), "{told}");
    assert!(told.contains("/a for a; "), "{told}");
    assert!(
        told.lines().any(|line| line.starts_with("# root ") && line.ends_with("421")),
        "{told}"
    );
    let file = site.file("check.toml", &told);
    let mut command = drover();
    command.args(["serve", "--check", "--config"]).arg(file);
    let again = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let tail = |text: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|line| !line.starts_with("[[host]]"));
        lines.map(|line| line.split('#').next().unwrap().trim_end().to_owned()).collect()
    };
    assert_eq!(tail(&told).len(), 10);
    assert_eq!(tail(&told), tail(&again));
}

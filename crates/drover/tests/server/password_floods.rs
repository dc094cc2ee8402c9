//! Who tries many passwords keeps nobody else waiting, and what verifying them may cost.

use std::fs;
use std::process::Command;
use std::time::Instant;

use crate::authentication::{ANN, SLOW, Users, WAITING_MOST, ann, as_user, site};
use crate::harness::{
    Arrived, Client, PATIENCE, Server, drover, on_every_mechanism, pause, request,
    usable_mechanisms,
};

/// Of "open sesame": takes long enough to verify that a flood is still there when the next one asks.
const BOB: &str = "bob:$2y$08$abcdefghijklmnopqrstuuvbcBqwD0vqGp5cw/xK4wy0Mtx9M8.Zy";

/// How many wrong passwords a flood has.
const FLOOD: usize = 80;

/// The field or the header in which a proxy names a client.
type NamedBy = fn(&str) -> (String, Vec<String>);

fn by_header(client: &str) -> (String, Vec<String>) {
    let family = if client.contains(':') { "TCP6" } else { "TCP4" };
    let to = if client.contains(':') { "::1" } else { "127.0.0.1" };
    (format!("PROXY {family} {client} {to} 4711 80\r\n"), Vec::new())
}

fn by_field(client: &str) -> (String, Vec<String>) {
    // What stands before the last address was made up by the client.
    (String::new(), vec![format!("X-Forwarded-For: 192.0.2.99, {client}")])
}

/// One client floods the server with wrong passwords, each on a connection of its own, for all names; then another one asks with
/// the right password, for the first time. All have asked before the server runs.
fn another_client_has_its_turn(
    server: &Server,
    named_by: NamedBy,
    flood: impl Fn(usize) -> String,
    other: &str,
) {
    let connect = |client: &str, user: &str| {
        let (header, mut fields) = named_by(client);
        fields.push(user.to_owned());
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let mut client = server.connect();
        client.send_header(header);
        client.await_handshake().unwrap();
        (client, request("GET", "/", &fields))
    };
    let wrong = |number| as_user(&format!("user {}", number % 7), &format!("wrong {number}"));
    let flood = (0..FLOOD).map(|number| connect(&flood(number), &wrong(number)));
    let mut flood: Vec<(Client, String)> = flood.collect();
    let (mut right, ask) = connect(other, &as_user("bob", "open sesame"));
    server.while_stopped(|| {
        flood.iter_mut().for_each(|(client, ask)| client.send(&*ask));
        right.send(&ask);
    });
    assert_eq!(right.response().is(200).text(), "index");
    let statuses: Vec<u16> = flood.iter_mut().map(|(client, _)| client.response().status).collect();
    assert!(statuses.iter().all(|status| [401, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&503), "the flood was none");
}

const TRUSTED: [&str; 2] = ["--trusted-proxies", "127.0.0.1"];

#[test]
fn a_flood_of_wrong_passwords_leaves_others_their_turn_on_every_mechanism() {
    let (site, users) = (site(), Users::new(&[BOB]));
    on_every_mechanism(|mechanism| {
        let own = ["--dispatch", mechanism.name, "--proxy-protocol"];
        let server = Server::on(&site, &[&users.flags()[..], &TRUSTED, &own].concat());
        let one = |_| "192.0.2.1".to_owned();
        another_client_has_its_turn(&server, by_header, one, "192.0.2.2");
    });
}

#[test]
fn a_client_is_whom_proxies_name_and_a_network_of_ipv6() {
    let (site, users) = (site(), Users::new(&[BOB]));
    let network = |number: usize| format!("2001:db8:0:1::{number:x}");
    for (named_by, flags) in
        [(by_header as NamedBy, &["--proxy-protocol"][..]), (by_field, &["--workers", "2"])]
    {
        let server = Server::on(&site, &[&users.flags()[..], &TRUSTED, flags].concat());
        another_client_has_its_turn(&server, named_by, network, "2001:db8:0:2::1");
    }
}

/// Fills the queue of a server with passwords that take many seconds, so that nothing can be verified.
fn fill_queue(server: &Server) -> Vec<Client> {
    let fill = |number: usize| {
        let mut client = server.connect();
        client.send(request("GET", "/", &[&as_user("slow", &number.to_string())]));
        client
    };
    let mut clients: Vec<Client> = (0..=WAITING_MOST).map(fill).collect();
    let since = Instant::now();
    while clients.iter_mut().all(|client| client.arrived() == Arrived::Nothing) {
        assert!(since.elapsed() < PATIENCE, "nobody is turned away");
        pause(std::time::Duration::from_millis(5));
    }
    clients
}

#[test]
fn who_has_logged_in_at_one_worker_is_known_to_all() {
    let (site, users) = (site(), Users::new(&[ANN, SLOW]));
    for mechanism in usable_mechanisms() {
        let own = ["--dispatch", mechanism.name, "--workers", "4"];
        let server = Server::on(&site, &[&users.flags()[..], &own].concat());
        server.ask("/", &[&ann()]).is(200);
        let _waiting = fill_queue(&server);
        for _ in 0..40 {
            server.ask("/", &[&ann()]).is(200);
        }
    }
}

#[test]
fn users_whose_passwords_take_more_memory_than_there_is_are_refused_at_the_start() {
    let site = site();
    let argon2 = |kibibytes: u32| {
        format!(
            "cy:$argon2id$v=19$m={kibibytes},t=1,p=1$c29tZXNhbHQ$qi5fM169QCmZNmKTYJmX4cqNJowuRUFK41RYVx6nbrg"
        )
    };
    let check = |users: &Users, kibibytes: u32, flags: &[&str]| {
        let script = format!("ulimit -v {kibibytes}; exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_drover"), "serve", "--check"]);
        command.args(["--listen", "127.0.0.1:0", "--dispatch", "epoll"]).arg(site.path());
        let output = command.args(users.flags()).args(flags).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (large, usual) = (Users::new(&[&argon2((1 << 20) + 1)]), Users::new(&[&argon2(64 << 10)]));
    let (is_right, told) = check(&large, 4 << 20, &[]);
    assert!(
        !is_right && told.contains("line 1, user \"cy\"") && told.contains("-k 65536"),
        "{told}"
    );
    // Two of 64 MiB at a time in each process, which has addresses of its own: a quarter of a GiB, and of 400 MiB.
    assert_eq!(check(&usual, 1 << 20, &[]), (true, String::new()));
    for flags in [&[][..], &["--processes", "--workers", "3"]] {
        let (is_right, told) = check(&usual, 400 << 10, flags);
        assert!(!is_right && told.contains("htpasswd -B"), "{told}");
    }
}

#[test]
fn the_log_says_why_a_long_password_is_none_for_bcrypt() {
    let (site, users) = (site(), Users::new(&[ANN]));
    let log = users.folder().join("log");
    let mut command = drover();
    command.arg("serve").arg(site.path()).args(users.flags());
    command.stderr(fs::File::create(&log).unwrap());
    let mut server = Server::start(command, 1);
    for password in ["p".repeat(73), "q".repeat(80), "open sesame\0".into()] {
        server.ask("/", &[&as_user("ann", &password)]).is(401);
    }
    server.ask("/", &[&ann()]).is(200);
    server.terminate();
    assert!(server.exit_status().success());
    let told = fs::read_to_string(&log).unwrap();
    assert_eq!(told.matches("more than 72 bytes").count(), 1, "{told}");
    assert!(!told.contains("ppp") && !told.contains("qqq"), "{told}");
}

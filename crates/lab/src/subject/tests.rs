//! Tests with a small server: this test binary, started as a server that answers every request.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};

use super::*;
use crate::spec::SubjectSpec;
use crate::spec::built_in;
use crate::spec::load::TokenSpec;
use crate::spec::made::read_made;

/// The environment variable that makes the test binary a server: `PORT STATUS`.
const ROLE: &str = "LAB_TEST_SERVER";

/// The server. Does nothing when it is run as a test.
#[test]
fn a_small_server() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut words = role.split(' ');
    let port: u16 = words.next().unwrap().parse().unwrap();
    let status = words.next().unwrap();
    let listener = TcpListener::bind((LOCALHOST, port)).unwrap();
    for stream in listener.incoming() {
        let stream = stream.unwrap();
        let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
        if lines.by_ref().take_while(|line| !line.is_empty()).count() > 0 {
            let _ = write!(&stream, "HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
        }
    }
}

const LOCALHOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// The addresses on which sockets listen on a port, as the kernel writes them: hexadecimal, without the port.
fn listening(port: u16) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let lines: Vec<String> = tables
        .into_iter()
        .flatten()
        .flat_map(|it| it.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let address = |line: &String| {
        let mut words = line.split_whitespace().skip(1);
        let (address, of) = words.next()?.split_once(':')?;
        let is_listening = words.nth(1) == Some("0A");
        (is_listening && u16::from_str_radix(of, 16) == Ok(port)).then(|| address.to_owned())
    };
    lines.iter().filter_map(address).collect()
}

/// Two runs side by side have addresses of their own, and a server that takes every address fails at the second.
#[test]
fn every_known_server_listens_on_the_given_address_only() {
    for name in built_in::peers() {
        let text = format!(
            "schema = 'drover.experiment/2'\nid = 'x'\n[subject.it]\npeer = '{name}'\n[load.http]\n"
        );
        let experiment = read_made(&text).unwrap();
        start(&experiment.subject["it"], |running, _| {
            let running = match running {
                Ok(running) => running,
                Err(Failure::NotTestable(why)) => return drover_testing::skip!("{why}"),
                Err(why) => panic!("{name}: {why}"),
            };
            let port = running.address.unwrap().socket.port();
            // 127.0.0.1, in the order of bytes of this machine.
            let expected = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
            assert_eq!(listening(port), [expected], "{name}");
        });
    }
}

/// A description of the small server; `more` are further keys.
fn description(command: &str, more: &str) -> SubjectSpec {
    let program = std::env::current_exe().unwrap();
    let text = format!(
        "command = {}\n{more}\n",
        command.replace(
            "SERVER",
            &format!(
                "'{}', 'subject::tests::a_small_server', '--exact', '--nocapture'",
                program.display()
            )
        )
    );
    toml::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Calls a function with a scene at level 41 of the factor `n`.
fn on_scene<T>(act: impl FnOnce(&Scene<'_>) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let guard = Arc::new(Guard::start().unwrap());
    let levels = BTreeMap::from([("n".to_string(), Level::Number(41.0))]);
    let scene = Scene {
        guest: None,
        drover: Path::new("drover"),
        guard: &guard,
        interrupt: &Interrupt::default(),
        wire: &Wire::Loopback,
        placement: &Placement::default(),
        levels: &levels,
        seed: 1,
        tls: None,
        is_http2: false,
        root: Some(Path::new("/srv")),
        work: folder.path(),
        trace: None,
        counters: &folder.path().join("counters"),
        counts_events: false,
        notes_access: false,
        descriptors: None,
    };
    act(&scene)
}

/// Starts a subject at level 41 of the factor `n`, and calls a function with it.
fn start<T>(
    description: &SubjectSpec,
    look: impl FnOnce(Result<Running, Failure>, &Path) -> T,
) -> T {
    let words = description.command.as_deref().unwrap();
    on_scene(|scene| look(Command { subject: description, words }.start(scene), scene.work))
}

fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_command_is_ready_when_it_accepts_and_gone_when_it_is_dropped() {
    let server = description("[SERVER]", "env = { LAB_TEST_SERVER = '{port} 200' }");
    start(&server, |running, _| {
        let running = running.unwrap();
        let SocketAddr::V4(address) = running.address.unwrap().socket else { panic!("not IPv4") };
        assert!(running.process.members().contains(&running.process.id()));
        std::net::TcpStream::connect(address).unwrap();
        let pid = running.process.id();
        drop(running);
        assert!(!is_alive(pid));
    });
}

#[test]
fn a_status_decides_what_is_ready() {
    let server = |status: &str, ready: &str| {
        let env = format!("env = {{ LAB_TEST_SERVER = '{{port}} {status}' }}\nready = {ready}");
        description("[SERVER]", &env)
    };
    start(&server("404", "{ path = '/' }"), |running, _| assert!(running.is_ok()));
    start(&server("404", "{ path = '/x', status = 404 }"), |running, _| assert!(running.is_ok()));
    // Where the machine is slow the server does not answer at all within a short time: a longer one shows its status.
    assert!(["50ms", "1s", "20s"].iter().any(|within| {
        let ready = format!("{{ path = '/health', within = '{within}' }}");
        start(&server("503", &ready), |running, _| {
            let why = running.unwrap_err().to_string();
            assert!(why.contains("/health"), "{why}");
            why.contains("its status is 503")
        })
    }));
}

#[test]
fn files_levels_and_limits_are_filled_in() {
    let more = "env = { LAB_TEST_SERVER = '{port} 200', N = '{n}' }\n\
                limits = { nofile = '{n}' }\n\
                files = { conf = 'port {port} root {root} n {n} {{n}}' }";
    let script = "['sh', '-c', 'ulimit -n >$0; echo $N >>$0; cat {conf} >>$0; exec \"$@\"', \
                  '{work}/seen', SERVER]";
    start(&description(script, more), |running, work| {
        let port = running.unwrap().address.unwrap().socket.port();
        let seen = fs::read_to_string(work.join("seen")).unwrap();
        assert_eq!(seen, format!("41\n41\nport {port} root /srv n 41 {{n}}"));
    });
}

#[test]
fn a_daemon_is_billed_and_ends_with_its_subject() {
    let env = "env = { LAB_TEST_SERVER = '{port} 200' }";
    // The first process ends. The server is in a session of its own.
    let script = "['sh', '-c', 'setsid \"$@\" & exit 0', 'sh', SERVER]";
    start(&description(script, env), |running, _| {
        let mut running = running.unwrap();
        let daemons = running.process.members();
        assert!(!daemons.is_empty());
        assert!(running.process.cpu_time().unwrap().is_some_and(|time| !time.is_zero()));
        drop(running);
        assert!(daemons.iter().all(|pid| !is_alive(*pid)));
    });
}

#[test]
fn what_does_not_start_is_quoted() {
    start(
        &description("['sh', '-c', 'echo no such key: colour >&2; exit 2']", ""),
        |running, _| {
            let why = running.unwrap_err().to_string();
            assert!(why.contains("exit status: 2") && why.contains("no such key: colour"), "{why}");
        },
    );
    let missing = description("['{it}']", "find = { it = ['no-such-server'] }");
    start(&missing, |running, _| {
        assert!(matches!(running, Err(Failure::NotTestable(_))), "{running:?}");
    });
    start(&description("['sh', '{colour}']", ""), |running, _| {
        assert!(running.unwrap_err().to_string().contains("{colour}"));
    });
}

#[test]
fn pipes_of_a_guest_are_measured_there_and_not_testable_without_one() {
    let text = "pipes = { by = 'devpoll', count = '{n}', parts = 'hints', guest = true }";
    let subject: SubjectSpec = toml::from_str(text).unwrap();
    let pipes = subject.pipes.as_ref().unwrap();
    let tokens: TokenSpec = toml::from_str("active = 1").unwrap();
    let set = PipeSet { subject: &subject, pipes, tokens: &tokens, warm_up: Duration::ZERO };
    let called = called_in_a_guest(&set);
    for expected in ["lab guest /socket lab pipes", "--devpoll-model hints", "--pipes 41"] {
        assert!(called.contains(expected), "{called}");
    }
    assert!(!called.contains("--cpu"), "{called}");
}

#[test]
fn a_command_of_a_guest_is_run_there_and_not_testable_without_one() {
    let text = "guest = ['lab', 'wait-queue', '--policy', 'wake-all', '--threads', '{n}']";
    let subject: SubjectSpec = toml::from_str(text).unwrap();
    let Some(SubjectKind::Guest(words)) = subject.kind() else { panic!("{subject:?}") };
    let called = called_in_a_guest(&GuestCommand { subject: &subject, words });
    assert_eq!(called, "lab guest /socket lab wait-queue --policy wake-all --threads 41");
}

#[test]
fn a_command_of_a_guest_may_name_known_levels_alone() {
    let subject: SubjectSpec = toml::from_str("guest = ['{colour}']").unwrap();
    let words = subject.guest.as_deref().unwrap();
    on_scene(|scene| {
        let scene = Scene { guest: Some(Path::new("/socket")), ..*scene };
        let command = GuestCommand { subject: &subject, words };
        let why = command.measure(&scene, Duration::ZERO).unwrap_err().to_string();
        assert!(why.contains("{colour}"), "{why}");
    });
}

#[test]
fn values_and_marks_of_a_cell_that_a_guest_has_run_are_those_of_the_run() {
    let subject: SubjectSpec = toml::from_str("guest = ['lab', 'cell']").unwrap();
    let words = subject.guest.as_deref().unwrap();
    let command = GuestCommand { subject: &subject, words };
    let measured = |result: &str| measured_in_a_guest(&command, &format!("echo '{result}'"));
    let cell =
        measured(r#"{"values": {"response-rate": 5.0, "latency-mean": 1.0}, "marks": ["late"]}"#)
            .unwrap();
    assert_eq!(cell.values, BTreeMap::from([("response-rate".to_owned(), 5.0)]));
    assert_eq!(cell.marks, BTreeSet::from([Mark::Late]));
    assert_eq!(measured(r#"{"queued": 3}"#).unwrap().marks, BTreeSet::new());
    assert!(measured(r#"{"marks": ["no such mark"]}"#).is_err());
}

/// The arguments that Drover gets for a subject of a guest, which is not testable without a guest.
fn called_in_a_guest(subject: &dyn SelfDriven) -> String {
    let failure = on_scene(|scene| subject.measure(scene, Duration::ZERO).unwrap_err());
    let tells_why = |why: &String| why.contains("--vm");
    assert!(matches!(&failure, Failure::NotTestable(why) if tells_why(why)), "{failure:?}");
    let tells = r#"echo "{\"called\": \"$*\"}""#;
    let result = measured_in_a_guest(subject, tells).unwrap().result;
    result["called"].as_str().unwrap().to_owned()
}

/// What a subject of a guest makes of a program in Drover's place, which is this shell script.
fn measured_in_a_guest(subject: &dyn SelfDriven, script: &str) -> Result<SelfMeasurement, Failure> {
    on_scene(|scene| {
        let program = scene.work.join("drover");
        let text = format!("#!/bin/sh\n{script}\n");
        drover_testing::make_program(&program, "printf %s \"$1\"", &[&text]);
        let guest = Some(Path::new("/socket"));
        subject.measure(&Scene { drover: &program, guest, ..*scene }, Duration::ZERO)
    })
}

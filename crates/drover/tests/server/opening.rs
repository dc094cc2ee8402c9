//! What happens before a file is read: who opens it, its access time, what the kernel is told.

use std::fs;
use std::io::{BufRead, Read};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use drover_mech::fileio;
use drover_sys::process;
use nix::libc;

use crate::cache::until;
use crate::disk::Disk;
use crate::harness::{
    PATIENCE, Server, Site, drover, figure, on_every_mechanism, request, usable_mechanisms,
};
use crate::http2::wire as http2;

/// A directory whose names the kernel never has at hand: it asks procfs each time.
const NEVER_AT_HAND: &str = "/proc/sys/kernel";

fn serve(root: &str, flags: &[&str]) -> Server {
    let mut command = drover();
    command.args(["serve", root]).args(flags).stderr(Stdio::piped());
    Server::start(command, 1)
}

/// Stops the server, and returns what it counted under `name`.
#[track_caller]
fn count(mut server: Server, name: &str) -> u64 {
    server.terminate();
    let mut log = String::new();
    server.stderr().read_to_string(&mut log).unwrap();
    figure(&log, name)
}

#[test]
fn names_that_a_disk_must_be_asked_for_are_looked_up_elsewhere_on_every_mechanism() {
    on_every_mechanism(|mechanism| {
        let server = serve(NEVER_AT_HAND, &["--dispatch", mechanism.name, "--stat-threads", "1"]);
        let mut client = server.connect();
        let paths = ["/ostype", "/no-such-thing", "/random", "/random/", "/ostype"];
        // All at once: their order has to stay, whoever opens what.
        client.send(paths.map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).concat());
        let states = paths.map(|_| client.response().status);
        assert_eq!(states, [200, 404, 301, 404, 200], "{}", mechanism.name);
        assert_eq!(client.get("/ostype").is(200).text(), "Linux\n");
        // Who leaves in between is not waited for.
        for _ in 0..20 {
            server.connect().send("GET /hostname HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        server.get("/hostname").is(200);
        assert!(count(server, "opened by other threads") >= 4, "{}", mechanism.name);
    });
}

/// One client has the file opened that stands in front of another client's pipelined requests.
#[test]
fn a_file_that_others_have_opened_too_is_sent_under_its_own_name_only() {
    const FILES: usize = 24;
    let site = Site::new();
    for number in 0..FILES {
        site.file(&number.to_string(), number.to_string());
    }
    // The kernel relies on no name that it knows, and looking one up takes 5 ms.
    let slow = ["--attributes-for", "0s", "--metadata", "5ms", "--speed", "1"];
    let Some(disk) = Disk::mount(&site, &slow) else { return };
    on_every_mechanism(|mechanism| {
        for flags in [&["--stat-threads", "1"][..], &[], &["--cache", "off"]] {
            let flags = [&["--dispatch", mechanism.name], flags].concat();
            let server = serve(disk.path().to_str().unwrap(), &flags);
            let mut clients = [server.connect(), server.connect(), server.connect()];
            for pair in (0..FILES).step_by(2) {
                let requests =
                    [pair, pair + 1].map(|name| request("GET", &format!("/{name}"), &[]));
                clients[0].send(&requests[0]);
                clients[1].send(requests.concat());
                clients[2].send(requests.concat());
                for (client, asked) in clients.iter_mut().zip([1, 2, 2]) {
                    for name in (pair..).take(asked) {
                        assert_eq!(client.response().is(200).text(), name.to_string(), "{flags:?}");
                    }
                }
            }
        }
    });
}

/// Two files that cannot be opened, because their disk answers nobody, are asked for first.
#[test]
fn an_opening_that_hangs_holds_up_neither_other_names_nor_the_end() {
    let site = Site::new();
    let (hung, slow) = (site.path().join("hung"), site.path().join("slow"));
    [&hung, &slow].into_iter().for_each(|path| fs::create_dir(path).unwrap());
    let files = Site::new();
    files.file("a", "found");
    // Dropped after the disk: a process that waits for it does not end before.
    let mut servers = Vec::new();
    let Some(_hung) = Disk::mount_hanging(&hung, &files) else { return };
    let asks_always = ["--attributes-for", "0s", "--metadata", "1ms"];
    let Some(_slow) = Disk::mount_at(&slow, &files, &asks_always) else { return };
    for mechanism in usable_mechanisms() {
        let flags = ["--dispatch", mechanism.name, "--open-timeout", "10s", "--grace", "1s"];
        let server = serve(site.path().to_str().unwrap(), &flags);
        let asked = [("GET", "/hung/a"), ("GET", "/hung/b"), ("HEAD", "/hung/a")];
        let waiting = asked.map(|(method, name)| {
            let mut client = server.connect();
            client.send(request(method, name, &[]));
            client
        });
        servers.push((mechanism.name, server, waiting));
    }
    for (mechanism, server, waiting) in &mut servers {
        assert_eq!(server.get("/slow/a").is(200).text(), "found", "{mechanism}");
        server.get("/slow/no-such-file").is(404);
        let [one, other, head] = waiting;
        [one, other].into_iter().for_each(|client| drop(client.response().is(503)));
        // A response to HEAD has no body, also when the file could not be opened in time.
        head.response_head().is(503);
        if !http2::is_wanted() {
            head.expect_end();
        }
        server.terminate();
        let mut log = server.stderr().lines().map(Result::unwrap);
        let stopped = log.find(|line| line.contains("stopped:")).unwrap();
        // Each of four names once, though three clients have waited for two of them.
        let opened = figure(&stopped, "files opened by other threads");
        assert_eq!(opened, 4, "{mechanism}: {stopped}");
    }
}

/// Runs a command that may not call openat2(2), as a unit with RestrictSUIDSGID= has it. A process has the filter of the thread
/// that starts it.
fn run_without_openat2(mut command: Command) -> std::io::Result<Output> {
    let op = |code: u32, jf, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let program = [
        // The number of the call is the first field of seccomp_data.
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_openat2 as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let run = || {
        process::forbid_new_privileges()?;
        process::filter_system_calls(&program, false)?;
        Ok(command.output().unwrap())
    };
    process::on_own_thread(run)?
}

#[test]
fn a_server_that_may_not_call_openat2_names_the_remedy_before_it_listens() {
    let site = Site::new();
    site.file("a", "here");
    let mut command = drover();
    command.arg("serve").arg(site.path()).args(["--listen", "127.0.0.1:0", "--tuned", "off"]);
    command.stderr(Stdio::piped());
    let output = match run_without_openat2(command) {
        Err(error) => return drover_testing::skip!("no filter of system calls: {error}"),
        Ok(output) => output,
    };
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]), "{log}");
    let [line] = log.lines().collect::<Vec<_>>()[..] else { panic!("one line: {log}") };
    for part in ["openat2(2) is missing", "Linux 5.11", "filter", "RestrictSUIDSGID=", "User="] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn a_root_that_is_replaced_is_noticed() {
    on_every_mechanism(|mechanism| {
        let site = Site::new();
        for release in ["1", "2"] {
            site.file(&format!("{release}/small"), release);
            site.file(&format!("{release}/large"), release.repeat(100_000));
        }
        let current = site.path().join("current");
        let link = |release: &str| {
            std::os::unix::fs::symlink(release, site.path().join("next")).unwrap();
            fs::rename(site.path().join("next"), &current).unwrap();
        };
        link("1");
        let flags = ["--dispatch", mechanism.name, "--revalidate", "0s"];
        let server = serve(current.to_str().unwrap(), &flags);
        let mut client = server.connect();
        for release in ["1", "2", "1"] {
            link(release);
            until(&mut client, "/small", Some(release.as_bytes()));
            until(&mut client, "/large", Some(release.repeat(100_000).as_bytes()));
        }
        fs::rename(site.path().join("1"), site.path().join("0")).unwrap();
        // What is open is served until there is another.
        assert_eq!(client.get("/small").is(200).text(), "1", "{}", mechanism.name);
        fs::rename(site.path().join("2"), site.path().join("1")).unwrap();
        until(&mut client, "/small", Some(b"2"));
    });
}

#[test]
fn a_file_that_was_removed_is_closed_though_nobody_asks_for_it() {
    let site = Site::new();
    site.file("large", vec![7; 200_000]);
    let mut servers = Vec::new();
    for mechanism in usable_mechanisms() {
        let server = serve(site.path().to_str().unwrap(), &["--dispatch", mechanism.name]);
        server.get("/large").is(200);
        servers.push((mechanism.name, server));
    }
    fs::remove_file(site.path().join("large")).unwrap();
    let keeps_it = |server: &Server| {
        let names =
            fs::read_dir(format!("/proc/{}/fd", server.worker_process())).unwrap().flatten();
        names.filter_map(|name| fs::read_link(name.path()).ok()).any(|path| {
            path.starts_with(site.path()) && path.to_string_lossy().ends_with("(deleted)")
        })
    };
    let given_up = Instant::now() + PATIENCE;
    for (mechanism, server) in &servers {
        while keeps_it(server) {
            assert!(Instant::now() < given_up, "{mechanism}: it stays open");
            std::thread::yield_now();
        }
    }
}

#[test]
fn without_stat_threads_the_worker_opens_everything() {
    let server = serve(NEVER_AT_HAND, &["--stat-threads", "0"]);
    server.get("/ostype").is(200);
    server.get("/no-such-thing").is(404);
    assert_eq!(count(server, "opened by other threads"), 0);
}

#[test]
fn what_was_opened_elsewhere_is_found_without_the_cache_too() {
    let server = serve(NEVER_AT_HAND, &["--cache", "off"]);
    let mut client = server.connect();
    (0..3).for_each(|_| drop(client.get("/ostype").is(200)));
    assert_eq!(count(server, "opened by other threads"), 3);
}

#[test]
fn the_access_time_stays_if_it_is_asked_for_and_possible() {
    let site = Site::new();
    let long_ago = SystemTime::now() - Duration::from_secs(100 * 86_400);
    let accessed = |name: &str| site.path().join(name).metadata().unwrap().accessed().unwrap();
    for (name, len) in [("small", 100), ("large", 100_000), ("probe", 1)] {
        let path = site.file(name, vec![7; len]);
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_times(fs::FileTimes::new().set_accessed(long_ago)).unwrap();
    }
    fs::read(site.path().join("probe")).unwrap();
    let is_noted_here = accessed("probe") > long_ago;
    for (flags, noted) in [(&["--noatime"][..], false), (&[], is_noted_here)] {
        let server = Server::on(&site, flags);
        for name in ["small", "large"] {
            server.get(&format!("/{name}")).is(200);
            assert_eq!(accessed(name) > long_ago, noted, "{name} {flags:?}");
        }
    }
    if !is_noted_here {
        drover_testing::skip!("this file system notes no access times");
    }
}

#[test]
fn the_next_step_is_advised_by_every_backend_that_reads_through_the_page_cache() {
    if http2::leaves_out("a file is read by pieces, which the kernel reads ahead of") {
        return;
    }
    let site = Site::new();
    let content: Vec<u8> = (0..1_000_000).map(|at| (at * 7 % 251) as u8).collect();
    site.file("large", &content);
    for backend in fileio::ALL {
        if let Err(reason) = backend.probe() {
            drover_testing::skip!("{}: {reason}", backend.name);
            continue;
        }
        let flags = ["--files", backend.name, "--read-ahead", "64K", "--advise", "willneed"];
        let flags = [&flags[..], &["--cached-reads", "queued"]].concat();
        let root = site.path().to_str().unwrap();
        if backend.past_cache {
            let output =
                drover().args(["serve", root]).args(flags).stderr(Stdio::piped()).output().unwrap();
            let line = output.stderr.lines().next().unwrap().unwrap();
            assert_eq!(output.status.code(), Some(2), "{line}");
            assert!(line.contains("--advise") && line.contains(backend.name), "{line}");
            continue;
        }
        let server = serve(root, &flags);
        assert!(server.get("/large").is(200).body == content, "{}", backend.name);
        assert!(count(server, "advised") > 0, "{}", backend.name);
    }
}

#[test]
fn what_is_in_the_page_cache_is_read_at_once_unless_it_is_to_queue() {
    let site = Site::new();
    let content: Vec<u8> = (0..300_000).map(|at| (at * 7 % 251) as u8).collect();
    site.file("large", &content);
    let root = site.path().to_str().unwrap();
    for backend in fileio::ALL.iter().filter(|backend| backend.reads_apart) {
        if let Err(reason) = backend.probe() {
            drover_testing::skip!("{}: {reason}", backend.name);
            continue;
        }
        for (flags, at_once) in [(&[][..], true), (&["--cached-reads", "queued"], false)] {
            let server = serve(root, &[&["--files", backend.name], flags].concat());
            assert!(server.get("/large").is(200).body == content, "{}", backend.name);
            assert_eq!(count(server, "of them at once") > 0, at_once, "{}", backend.name);
        }
    }
}

#[test]
fn files_are_whole_when_the_kernel_knows_that_they_are_read_in_order() {
    let site = Site::new();
    site.file("large", vec![7; 1_000_000]);
    let server = Server::on(&site, &["--advise", "sequential"]);
    assert_eq!(server.get("/large").is(200).body, vec![7; 1_000_000]);
}

//! A mount that hangs, as of a network file system whose server is gone, holds up those who ask for its files, and nobody
//! else: no worker waits for it, whatever it has to find out of files there.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use crate::disk::Disk;
use crate::harness::{
    PATIENCE, Server, Site, drover, once, request, usable_mechanisms, wait_until,
};

const LARGE: usize = 200_000;

/// A server with one worker, so that whoever is answered is answered by the one that must not wait.
fn serve(root: &Path, flags: &[&str]) -> Server {
    let mut command = drover();
    command.arg("serve").arg(root).args(flags).stderr(Stdio::null());
    Server::start(command, 1)
}

/// A site with files of its own, and a directory `hung` for a mount.
fn site() -> Site {
    let site = Site::new();
    site.file("healthy", "healthy");
    site.file("healthy-large", vec![b'h'; LARGE]);
    fs::create_dir(site.path().join("hung")).unwrap();
    site
}

/// The files of the mount.
fn files() -> Site {
    let files = Site::new();
    for name in
        ["small", "new-small", "page.html", "404.html", "index.html", "folder/inner", "small.gz"]
    {
        files.file(name, name);
    }
    for name in ["large", "new-large"] {
        files.file(name, vec![b'l'; LARGE]);
    }
    files
}

/// What asks for something of the mount: method, target and fields. Each is one more way to a question about a file.
const QUESTIONS: &[(&str, &str, &[&str])] = &[
    ("GET", "/hung/small", &[]),
    ("HEAD", "/hung/small", &[]),
    ("GET", "/hung/small", &["Accept-Encoding: gzip"]),
    ("GET", "/hung/large", &[]),
    ("HEAD", "/hung/large", &[]),
    ("GET", "/hung/large", &["Range: bytes=5-10"]),
    ("GET", "/hung/large", &["Range: bytes=5-10,100-150000"]),
    ("GET", "/hung/large", &["If-None-Match: \"none\""]),
    ("GET", "/hung/new-small", &[]),
    ("GET", "/hung/new-large", &[]),
    ("GET", "/hung/page", &[]),
    ("GET", "/hung/", &[]),
    ("GET", "/hung/folder/", &[]),
    ("GET", "/hung/folder", &[]),
    ("GET", "/hung/none", &[]),
    // The error page and the fallback are files of the mount.
    ("GET", "/none", &[]),
    ("GET", "/none", &["Accept: text/html"]),
];

/// Asks for files that do not hang.
#[track_caller]
fn still_serves(server: &Server, after: &str) {
    let mut client = server.connect();
    assert_eq!(client.get("/healthy").is(200).text(), "healthy", "after {after}");
    assert!(client.get("/healthy-large").is(200).body == [b'h'; LARGE], "after {after}");
}

/// Waits until each server has looked through what it keeps, without anybody asking: it closes a file that was removed.
fn await_sweeps(servers: &[(String, Server)], site: &Site) {
    site.file("removed", vec![7; LARGE]);
    for (_, server) in servers {
        server.get("/removed").is(200);
    }
    fs::remove_file(site.path().join("removed")).unwrap();
    let given_up = Instant::now() + PATIENCE;
    let keeps_it = |process: u32| {
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
        let mut paths = descriptors.filter_map(|it| fs::read_link(it.path()).ok());
        paths.any(|path| path.to_string_lossy().ends_with("removed (deleted)"))
    };
    for (name, server) in servers {
        let processes: Vec<u32> = [server.process()].into_iter().chain(server.children()).collect();
        while processes.iter().any(|&process| keeps_it(process)) {
            assert!(Instant::now() < given_up, "{name} looks through nothing");
            std::thread::yield_now();
        }
    }
}

#[test]
fn no_question_about_a_mount_that_hangs_stops_a_worker() {
    // A mount whose kernel asks for attributes each time, and one that is asked at each opening and no more.
    for disk_flags in [["--attributes-for", "0s"], ["--keep-cache", "off"]] {
        let (site, files) = (site(), files());
        let Some(disk) = Disk::mount_at(&site.path().join("hung"), &files, &disk_flags) else {
            return;
        };
        let mut servers = Vec::new();
        for mechanism in usable_mechanisms() {
            for revalidate in ["0s", "1h", "inotify"] {
                let flags = ["--dispatch", mechanism.name, "--revalidate", revalidate];
                let more = ["--listing", "--html-suffix", "--precompressed", "--error-page"];
                let more =
                    [&more[..], &["404=hung/404.html", "--fallback", "hung/index.html"]].concat();
                let server = serve(site.path(), &[&flags[..], &more].concat());
                for (method, target, fields) in QUESTIONS {
                    if !target.contains("new-") {
                        let mut client = server.connect();
                        client.send(request(method, target, fields));
                        client.response_head();
                    }
                }
                still_serves(&server, "the start");
                servers.push((format!("{} {revalidate}", mechanism.name), server));
            }
        }
        let stopped = disk.stop();
        let mut waiting = Vec::new();
        for (name, server) in &servers {
            for (method, target, fields) in QUESTIONS {
                let mut asking = server.connect();
                asking.send(request(method, target, fields));
                still_serves(server, &format!("{method} {target} {fields:?} ({name})"));
                waiting.push(asking);
            }
        }
        await_sweeps(&servers, &site);
        for (name, server) in &servers {
            still_serves(server, &format!("a sweep ({name})"));
        }
        // Half of the clients leave: what was found for them is nobody's.
        waiting.truncate(waiting.len() / 2);
        for (name, server) in &servers {
            still_serves(server, &format!("clients have left ({name})"));
        }
        drop(stopped);
        for (name, server) in &mut servers {
            // What waited for the mount goes first, and may take longer than a request waits.
            let found =
                || Some(server.get("/hung/large")).filter(|response| response.status == 200);
            assert!(once("the mount answers", found).body == [b'l'; LARGE], "{name}");
            server.terminate();
            assert!(server.exit_status().success(), "{name}");
        }
    }
}

/// Closing a file asks the file system too: to write what is left, or to free the blocks of a file that was removed.
#[test]
fn closing_a_file_of_a_mount_that_hangs_stops_no_worker() {
    const OTHERS: usize = 60;
    let (site, files) = (site(), files());
    for number in 0..OTHERS {
        site.file(&format!("other-{number}"), vec![b'o'; 100_000]);
    }
    for mechanism in usable_mechanisms() {
        // A daemon of its own for each, that no process has closed a file of: the kernel asks it once.
        let Some(disk) = Disk::mount_at(&site.path().join("hung"), &files, &[]) else { return };
        let server = serve(site.path(), &["--dispatch", mechanism.name, "--cache", "1M"]);
        let mut client = server.connect();
        assert!(client.get("/hung/large").is(200).body == [b'l'; LARGE]);
        let stopped = disk.stop();
        // Twice, so that they stay rather than the first: it has to be closed to make room.
        for _ in 0..2 {
            for number in 0..OTHERS {
                let response = client.get(&format!("/other-{number}")).is(200);
                assert!(response.body == [b'o'; 100_000], "{}", mechanism.name);
            }
        }
        // Another thread closes them.
        wait_until(&format!("{}: files are closed", mechanism.name), || {
            server.files_open() < OTHERS
        });
        still_serves(&server, mechanism.name);
        drop(stopped);
    }
}

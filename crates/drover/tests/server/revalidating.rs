//! What is checked again once `--revalidate` is over is not sent before it was.

use std::fs;
use std::io::BufRead;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};

use crate::harness::{Client, Server, Site, drover, on_every_mechanism, threads_are, wait_until};
use crate::sandbox::serve;

/// A site with two releases, and a link `current` that leads to the first.
fn deployed() -> Site {
    let site = Site::new();
    for release in ["1", "2"] {
        site.file(&format!("releases/{release}/small"), release);
        site.file(&format!("releases/{release}/large"), release.repeat(100_000));
    }
    switch(&site, "1");
    site
}

/// Has `current` lead to a release, as a deployment does.
fn switch(site: &Site, release: &str) {
    symlink(format!("releases/{release}"), site.path().join("next")).unwrap();
    fs::rename(site.path().join("next"), site.path().join("current")).unwrap();
}

/// Waits until a server waits for events: all responses of one turn count as simultaneous, and a fast client's next request
/// may belong to the turn of its last one.
fn await_rest(server: &Server) {
    for process in [server.process()].into_iter().chain(server.children()) {
        while !threads_are(process, 'S') {
            std::thread::yield_now();
        }
    }
}

/// Following a new link changes its access time. For that, the kernel needs more than its caches, and a look that may not
/// wait finds out nothing. The first client must not get the old release because of that.
#[test]
fn the_first_response_after_a_swap_is_of_the_new_release() {
    on_every_mechanism(|mechanism| {
        for (root, prefix) in [("current", ""), (".", "/current")] {
            let site = deployed();
            let root = site.path().join(root);
            let mut command = drover();
            command.arg("serve").arg(root).args(["--dispatch", mechanism.name]);
            command.args(["--revalidate", "0s"]);
            let server = Server::start(command, 1);
            let mut client = server.connect();
            let small = |client: &mut Client, release: &str| {
                let response = client.get(&format!("{prefix}/small")).is(200);
                assert_eq!(response.text(), release, "{} {prefix}", mechanism.name);
            };
            let large = |client: &mut Client, release: &str| {
                let response = client.get(&format!("{prefix}/large")).is(200);
                assert!(response.body == release.repeat(100_000).as_bytes(), "{}", mechanism.name);
            };
            for (round, release) in ["1", "2", "1", "2", "1"].into_iter().enumerate() {
                await_rest(&server);
                switch(&site, release);
                // Each of them is the first in turn.
                if round % 2 == 0 {
                    small(&mut client, release);
                    large(&mut client, release);
                } else {
                    large(&mut client, release);
                    small(&mut client, release);
                }
            }
        }
    });
}

/// Who has a response, replaces the file and asks again gets the new one, even if the worker has not waited since: it may find
/// the second request in the turn of the first, on the same connection or on another one.
#[test]
fn what_was_replaced_after_a_response_is_in_the_next_one() {
    on_every_mechanism(|mechanism| {
        let site = Site::new();
        site.file("a", "0");
        let server = &Server::on(&site, &["--revalidate", "0s", "--dispatch", mechanism.name]);
        thread::scope(|scope| {
            let until_it_is_over = Arc::new(());
            // They keep the worker's turns long, and have it accept connections in most of them.
            for _ in 0..3 {
                let it_goes_on = Arc::downgrade(&until_it_is_over);
                scope.spawn(move || {
                    while it_goes_on.strong_count() > 0 {
                        server.get("/a").is(200);
                    }
                });
            }
            for round in 0..300 {
                let mut client = server.connect();
                for step in 0..4 {
                    let content = format!("{round}.{step}");
                    let next = site.file("next", &content);
                    fs::rename(next, site.path().join("a")).unwrap();
                    let response = match step % 2 {
                        0 => client.get("/a"),
                        _ => server.get("/a"),
                    };
                    assert_eq!(response.is(200).text(), content, "{}, {step}", mechanism.name);
                }
            }
        });
    });
}

/// Two workers, as threads and as processes, between which connections go in turn.
const TWO_WORKERS: [&[&str]; 2] = [
    &["--workers", "2", "--accept", "blocking", "--revalidate", "1s"],
    &["--workers", "2", "--accept", "blocking", "--revalidate", "1s", "--processes"],
];
const REVALIDATE: Duration = Duration::from_secs(1);

/// Ends the server, and says whether each worker had clients.
fn each_worker_had_clients(mut server: Server) -> bool {
    server.terminate();
    let log: Vec<String> = server.stderr().lines().map(Result::unwrap).collect();
    let line = log.iter().find(|line| line.contains("by worker: connections ["));
    let shares = line.unwrap_or_else(|| panic!("{log:?}")).split(['[', ']']).nth(1).unwrap();
    shares.split(", ").all(|share| share != "0")
}

/// A worker has looked at its files before the swap, and looks again when it is asked after `--revalidate`.
fn old_releases_are_not_sent(root: &str, prefix: &str, flags: &[&str]) -> bool {
    let site = deployed();
    let server = serve(&site.path().join(root), flags);
    let mut clients: Vec<Client> = (0..10).map(|_| server.connect()).collect();
    let mut ask_all = |release: &str| {
        for client in &mut clients {
            let small = client.get(&format!("{prefix}/small")).is(200);
            assert_eq!(small.text(), release, "{root} {flags:?}");
            let large = client.get(&format!("{prefix}/large")).is(200);
            assert!(large.body == release.repeat(100_000).as_bytes(), "{root} {flags:?}");
        }
    };
    ask_all("1");
    for release in ["2", "1", "2"] {
        switch(&site, release);
        let switched = Instant::now();
        wait_until("all that is known is old", || switched.elapsed() > REVALIDATE);
        await_rest(&server);
        ask_all(release);
    }
    drop(clients);
    each_worker_had_clients(server)
}

#[test]
fn no_worker_sends_an_old_release_after_revalidate() {
    let roots = [("current", ""), (".", "/current")];
    let cases = roots.map(|root| TWO_WORKERS.map(|flags| (root, flags)));
    drover_testing::side_by_side(cases.as_flattened(), |((root, prefix), flags)| {
        wait_until("each worker has clients", || old_releases_are_not_sent(root, prefix, flags));
    });
}

/// Waits until every worker sends `content`. Whatever they do for that, each request is answered by one state or the other.
#[track_caller]
fn until_all_send(server: &Server, content: &str) {
    let mut all_do = || (0..20).all(|_| server.get("/a").is(200).text() == content);
    wait_until("another directory is served", &mut all_do);
    assert!(all_do(), "a worker has gone back");
}

#[test]
fn a_directory_in_the_place_of_the_root_is_served_by_every_worker() {
    drover_testing::side_by_side(&TWO_WORKERS, |flags| {
        let site = Site::new();
        site.file("root/a", "0");
        let server = serve(&site.path().join("root"), flags);
        until_all_send(&server, "0");
        for round in ["1", "2"] {
            site.file(&format!("next/{round}/a"), round);
            fs::create_dir_all(site.path().join("before")).unwrap();
            let root = site.path().join("root");
            fs::rename(&root, site.path().join("before").join(round)).unwrap();
            fs::rename(site.path().join("next").join(round), &root).unwrap();
            until_all_send(&server, round);
        }
    });
}

/// A mount namespace for this thread, and what it starts.
fn own_mounts() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| format!("unshare(2): {error}"))?;
    mount("mount", &["--make-rprivate", "/"])
}

fn mount(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {told}")) }
}

/// The path stays, and the directory stays where it was, beneath the mount.
#[test]
fn a_mount_over_the_root_is_served_by_every_worker_and_so_is_its_end() {
    let served = |flags: &&[&str]| -> Result<(), String> {
        own_mounts()?;
        let site = Site::new();
        site.file("root/a", "beneath");
        fs::create_dir(site.path().join("next")).unwrap();
        let [root, next] = ["root", "next"].map(|it| site.path().join(it).display().to_string());
        mount("mount", &["-t", "tmpfs", "none", &next])?;
        site.file("next/a", "mounted");
        let server = serve(root.as_ref(), flags);
        until_all_send(&server, "beneath");
        mount("mount", &["--move", &next, &root])?;
        until_all_send(&server, "mounted");
        mount("umount", &["--lazy", &root])?;
        until_all_send(&server, "beneath");
        Ok(())
    };
    for flags in TWO_WORKERS {
        // On a thread of its own, which keeps the namespace.
        drover_testing::side_by_side(&[flags], |flags| {
            if let Err(why) = served(flags) {
                drover_testing::skip!("no mount over a root: {why}");
            }
        });
    }
}

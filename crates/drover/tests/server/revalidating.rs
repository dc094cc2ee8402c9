//! What is checked again once `--revalidate` is over is not sent before it was.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::thread;

use crate::harness::{Client, Server, Site, drover, on_every_mechanism, threads_are};

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

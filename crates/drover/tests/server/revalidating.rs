//! What is checked again once `--revalidate` is over is not sent before it was.

use std::fs;
use std::os::unix::fs::symlink;

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
                let reply = client.get(&format!("{prefix}/small")).is(200);
                assert_eq!(reply.text(), release, "{} {prefix}", mechanism.name);
            };
            let large = |client: &mut Client, release: &str| {
                let reply = client.get(&format!("{prefix}/large")).is(200);
                assert!(reply.body == release.repeat(100_000).as_bytes(), "{}", mechanism.name);
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

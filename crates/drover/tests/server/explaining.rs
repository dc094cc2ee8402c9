//! `serve --explain`: what would be used and why, and what would help; true to what `--check` and a server say.

use std::fs;
use std::process::{Command, Stdio};

use drover_mech::accept;
use drover_mech::mechanisms;

use crate::harness::{Server, Site, drover, on_every_mechanism};
use crate::limits::starved;

/// What `--explain` says, with the texts of one axis each.
struct Explained(String);

impl Explained {
    #[track_caller]
    fn by(mut command: Command) -> Explained {
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        for line in told.lines() {
            // A path, which has no spaces to break it at, may be longer.
            assert!(line.chars().count() <= 80 || line.contains("/tmp/"), "{line}");
        }
        Explained(told)
    }

    #[track_caller]
    fn of(site: &Site, flags: &[&str]) -> Explained {
        let mut command = drover();
        command.args(["serve", "--explain", "--tuned", "off"]).args(flags).arg(site.path());
        Explained::by(command)
    }

    /// What is told of one axis, in a line.
    #[track_caller]
    fn axis(&self, axis: &str) -> String {
        let mut paragraphs = self.0.split("\n\n");
        let found = paragraphs.find(|it| it.split_whitespace().next() == Some(axis));
        let found = found.unwrap_or_else(|| panic!("no {axis}: {}", self.0));
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn every_axis_is_explained_on_eighty_columns() {
    let site = Site::new();
    let explained = Explained::of(&site, &["--workers", "2"]);
    for axis in [
        "dispatch",
        "accept",
        "listen",
        "defer-accept",
        "files",
        "cache",
        "memory",
        "workers",
        "descriptors",
        "tuned",
        "sandbox",
    ] {
        assert!(explained.axis(axis).contains(" probed "), "{axis}: {}", explained.0);
    }
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let told = format!("net.core.somaxconn is {}", somaxconn.trim());
    assert!(explained.axis("listen").contains(&told), "{}", explained.0);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(explained.0.contains(release.trim()), "{}", explained.0);
}

/// What is chosen is what a server says that it serves with.
#[test]
fn the_choices_are_those_of_a_server() {
    let site = Site::new();
    for workers in ["1", "2"] {
        let explained = Explained::of(&site, &["--workers", workers]);
        let mut command = drover();
        command.args(["serve", "--check", "--tuned", "off", "--listen", "127.0.0.1:0"]);
        let output = command.args(["--workers", workers]).arg(site.path()).output().unwrap();
        let checked = String::from_utf8(output.stdout).unwrap();
        let chosen = |axis: &str| explained.axis(axis).split(' ').nth(1).unwrap().to_owned();
        let (dispatch, accept) = (chosen("dispatch"), chosen("accept"));
        assert!(checked.contains(&format!("dispatch {dispatch}")), "{checked}{}", explained.0);
        let note = format!("takes {accept}, for {workers} by {dispatch}");
        assert!(checked.contains(&note), "{checked}{}", explained.0);
        let sandbox = explained.axis("sandbox");
        let in_force = checked.lines().next().unwrap().split_once("sandbox: ").unwrap().1;
        assert!(sandbox.contains(in_force), "{sandbox} {in_force}");
    }
}

#[test]
fn a_mechanism_that_was_asked_for_is_not_explained_by_what_was_not_looked_at() {
    let site = Site::new();
    on_every_mechanism(|mechanism| {
        let explained = Explained::of(&site, &["--dispatch", mechanism.name]);
        let dispatch = explained.axis("dispatch");
        let begin = format!("dispatch {0} probed {0}: works", mechanism.name);
        assert!(dispatch.starts_with(&begin), "{dispatch}");
        assert!(dispatch.contains("the command line says so (--dispatch)"), "{dispatch}");
        assert!(!dispatch.contains("rings at once"), "{dispatch}");
        // Every strategy is usable, or has a reason against it.
        let told = explained.axis("accept");
        for strategy in accept::ALL {
            let usable = strategy.goes_with(mechanism).is_ok() && strategy.probe().is_ok();
            assert_eq!(told.contains(&format!("not {}:", strategy.name)), !usable, "{told}");
        }
    });
}

#[test]
fn a_file_that_sets_a_flag_is_named() {
    let site = Site::new();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("drover.toml");
    fs::write(&config, "dispatch = 'poll'\nworkers = 3\n").unwrap();
    let explained = Explained::of(&site, &["--config", config.to_str().unwrap()]);
    assert!(explained.axis("dispatch").contains("drover.toml:1"), "{}", explained.0);
    assert!(explained.axis("workers").contains("drover.toml:2"), "{}", explained.0);
}

#[test]
fn few_descriptors_are_a_thing_to_change() {
    let site = Site::new();
    let flags = ["--explain", "--tuned", "off", "--workers", "2", site.path().to_str().unwrap()];
    let explained = Explained::by(starved(100, &flags));
    let descriptors = explained.axis("descriptors");
    for words in ["ulimit -Sn: 100, ulimit -Hn: 100", "change ulimit -Hn 65536", "in 2 workers"] {
        assert!(descriptors.contains(words), "{words}: {descriptors}");
    }
    // 100 less what is open, and less half of the rest for files.
    let connections: u64 = descriptors.split(' ').nth(4).unwrap().parse().unwrap();
    assert!((20..50).contains(&connections), "{descriptors}");
}

/// Without rings, `auto` takes what works, and the reason is told as what helps.
#[test]
fn what_stands_in_the_way_of_rings_is_told() {
    let Err(reason) = mechanisms::rings(1) else {
        let explained = Explained::of(&Site::new(), &["--workers", "1"]);
        let dispatch = explained.axis("dispatch");
        assert!(dispatch.contains("a ring with deferred completions"), "{dispatch}");
        // It is Linux 6.6's.
        assert!(dispatch.contains("kernel.io_uring_disabled "), "{dispatch}");
        return;
    };
    let dispatch = Explained::of(&Site::new(), &["--workers", "1"]).axis("dispatch");
    let change = format!("change uring would be better: {reason}");
    assert!(dispatch.contains(&change), "{dispatch}");
}

/// It serves nothing and binds no address: a server that runs there is no fault.
#[test]
fn a_server_that_runs_can_be_explained() {
    let site = Site::new();
    let server = Server::on(&site, &[]);
    let address = server.address().to_string();
    let explained = Explained::of(&site, &["--listen", &address]);
    assert!(explained.axis("listen").contains("backlog"), "{}", explained.0);
}

#[test]
fn flags_that_cannot_work_are_refused_as_a_server_refuses_them() {
    for (flags, word) in [
        (&["--check"][..], "--check"),
        (&["--accept", "exclusive", "--dispatch", "select"], "--accept exclusive"),
        (&["/no/such/folder"], "ROOT must be a directory"),
    ] {
        let mut command = drover();
        command.args(["serve", "--explain"]).args(flags).stderr(Stdio::piped());
        let output = command.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(word) && output.stdout.is_empty(), "{told}");
    }
}

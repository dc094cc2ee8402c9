//! Files that are kept: right, and no longer than they are right.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use drover_testing::Finally;

use crate::harness::{Client, PATIENCE, Server, Site, on_every_mechanism, request, wait_until};

/// Lengths on both sides of the border between memory and file backend.
const LENGTHS: [usize; 2] = [3_000, 200_000];

fn replace(site: &Site, name: &str, content: &[u8]) {
    let new = site.file(&format!("{name}.new"), content);
    fs::rename(new, site.path().join(name)).unwrap();
}

/// Only `auto` keeps the bytes of files: a backend that was asked for sends each file from its descriptor.
#[test]
fn a_file_in_memory_is_served_without_a_look_until_it_is_time() {
    let site = Site::new();
    site.file("a", "one");
    let server = Server::on(&site, &["--revalidate", "1h", "--files", "auto"]);
    let before = server.get("/a").is(200);
    replace(&site, "a", b"two");
    let after = server.get("/a?query").is(200);
    assert_eq!((before.text(), after.text()), ("one", "one"));
    assert_eq!(before.field("ETag"), after.field("ETag"));
}

#[test]
fn a_change_shows_at_the_next_look() {
    for length in LENGTHS {
        let site = Site::new();
        site.file("a", vec![b'1'; length]);
        let server = Server::on(&site, &["--revalidate", "0s"]);
        let mut client = server.connect();
        assert!(client.get("/a").is(200).body == vec![b'1'; length]);
        replace(&site, "a", &vec![b'2'; length]);
        assert!(client.get("/a").is(200).body == vec![b'2'; length]);
        fs::write(site.path().join("a"), vec![b'3'; length + 1]).unwrap();
        assert!(client.get("/a").is(200).body == vec![b'3'; length + 1]);
        fs::remove_file(site.path().join("a")).unwrap();
        client.get("/a").is(404);
    }
}

/// Its validators are those of the open file that its bytes come from. (Replacing
/// the name changes the file too: it has a link less.)
#[test]
fn a_file_that_is_sent_from_its_descriptor_is_looked_at_each_time() {
    let site = Site::new();
    site.file("a", vec![b'1'; 200_000]);
    let server = Server::on(&site, &["--revalidate", "1h"]);
    let before = server.get("/a").is(200);
    fs::write(site.path().join("a"), vec![b'2'; 200_001]).unwrap();
    let after = server.get("/a").is(200);
    assert!(after.body == vec![b'2'; 200_001]);
    assert_ne!(before.field("ETag"), after.field("ETag"));
}

#[test]
fn nothing_is_kept_when_the_cache_is_off() {
    let site = Site::new();
    site.file("a", "one");
    let server = Server::on(&site, &["--cache", "off", "--revalidate", "1h"]);
    assert_eq!(server.get("/a").is(200).text(), "one");
    replace(&site, "a", b"two");
    assert_eq!(server.get("/a").is(200).text(), "two");
}

#[test]
fn a_link_that_comes_to_lead_outside_is_followed_no_more() {
    let site = Site::new();
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(outside.path(), "secret").unwrap();
    site.file("a", "open");
    let server = Server::on(&site, &["--revalidate", "0s"]);
    assert_eq!(server.get("/a").is(200).text(), "open");
    fs::remove_file(site.path().join("a")).unwrap();
    std::os::unix::fs::symlink(outside.path(), site.path().join("a")).unwrap();
    server.get("/a").is(404);
}

#[test]
fn parts_conditions_and_heads_of_a_kept_file_are_as_of_any() {
    for length in LENGTHS {
        let site = Site::new();
        let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        site.dated("a", &content);
        let server = Server::on(&site, &[]);
        let mut client = server.connect();
        let whole = client.get("/a").is(200);
        let kept = client.get("/a").is(200);
        assert!(whole.body == content && kept.body == content);
        let tag = whole.field("ETag").unwrap();
        assert_eq!(kept.field("ETag"), Some(tag));
        let part = client.ask("/a", &["Range: bytes=100-2099"]).is(206);
        assert!(part.body == content[100..2100]);
        client.ask("/a", &[&format!("If-None-Match: {tag}")]).is(304);
        client.ask("/a", &["If-Match: \"other\""]).is(412);
        let head = client.head("/a", &[]).is(200);
        assert_eq!(head.length(), length as u64);
        assert_eq!(head.field("ETag"), Some(tag));
    }
}

/// Every version is one byte repeated and has a length of its own: a response that
/// is made of two versions shows.
#[test]
fn responses_are_never_mixed_while_the_file_is_being_replaced() {
    on_every_mechanism(|mechanism| {
        for (base, revalidate) in
            LENGTHS.iter().flat_map(|&base| [(base, "0s"), (base, "inotify,1h")])
        {
            let site = Site::new();
            site.file("a", version(base, 0));
            let flags = ["--dispatch", mechanism.name, "--revalidate", revalidate];
            let server = Server::on(&site, &flags);
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for number in (0..26).cycle() {
                        if over.load(Ordering::Relaxed) {
                            return;
                        }
                        replace(&site, "a", &version(base, number));
                    }
                });
                let _over = Finally(|| over.store(true, Ordering::Relaxed));
                let mut tags = HashMap::new();
                let mut client = server.connect();
                for _ in 0..100 {
                    let response = client.get("/a");
                    let number = response.body[0] - b'a';
                    assert!(response.body == version(base, usize::from(number)), "a mixed body");
                    let tag = response.field("ETag").unwrap().to_owned();
                    assert_eq!(*tags.entry(tag).or_insert(number), number, "another's validator");
                }
            });
        }
    });
}

fn version(base: usize, number: usize) -> Vec<u8> {
    vec![b'a' + number as u8; base + number]
}

/// Asks until the answer is `expected`; `None`: that there is no such file.
#[track_caller]
pub(crate) fn until(client: &mut Client, target: &str, expected: Option<&[u8]>) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        client.send(request("GET", target, &[]));
        let Ok(response) = client.response_unless_cut() else {
            // The file has become shorter than was promised.
            assert!(Instant::now() < deadline, "{target} is not answered");
            *client = Client::connect(client.address);
            continue;
        };
        match expected {
            Some(body) if response.status == 200 && response.body == body => return,
            None if response.status == 404 => return,
            _ => {
                assert!(Instant::now() < deadline, "{target} is still answered {}", response.status)
            }
        }
    }
}

/// No look at the names would come to pass within the test's patience.
#[test]
fn changes_are_heard_of_without_a_look() {
    on_every_mechanism(|mechanism| {
        for length in LENGTHS {
            let site = Site::new();
            let path = |name: &str| site.path().join(name);
            let content = |number: u8| vec![number; length + usize::from(number)];
            site.file("in/a", content(1));
            let server =
                Server::on(&site, &["--revalidate", "inotify,1h", "--dispatch", mechanism.name]);
            let mut client = server.connect();
            until(&mut client, "/in/a", Some(&content(1)));
            replace(&site, "in/a", &content(2));
            until(&mut client, "/in/a", Some(&content(2)));
            fs::write(path("in/a"), content(3)).unwrap();
            until(&mut client, "/in/a", Some(&content(3)));
            fs::File::options().write(true).open(path("in/a")).unwrap().set_len(0).unwrap();
            until(&mut client, "/in/a", Some(b""));
            fs::remove_file(path("in/a")).unwrap();
            until(&mut client, "/in/a", None);
            site.file("in/a", content(4));
            until(&mut client, "/in/a", Some(&content(4)));
            fs::rename(path("in"), path("out")).unwrap();
            until(&mut client, "/in/a", None);
            site.file("in/a", content(5));
            until(&mut client, "/in/a", Some(&content(5)));
        }
    });
}

#[test]
fn a_swapped_link_is_heard_of_without_a_look() {
    let site = Site::new();
    let link = |target: &str| {
        std::os::unix::fs::symlink(target, site.path().join("next")).unwrap();
        fs::rename(site.path().join("next"), site.path().join("current")).unwrap();
    };
    site.file("releases/1/index.html", "one");
    site.file("releases/2/index.html", "two");
    link("releases/1");
    let server = Server::on(&site, &["--revalidate", "inotify,1h"]);
    let mut client = server.connect();
    until(&mut client, "/current/", Some(b"one"));
    for _ in 0..20 {
        link("releases/2");
        until(&mut client, "/current/", Some(b"two"));
        link("releases/1");
        until(&mut client, "/current/", Some(b"one"));
    }
    site.file("releases/1/index.html", "new");
    until(&mut client, "/current/", Some(b"new"));
}

/// Whoever walks through more files than fit makes the server read them, and no more.
#[test]
fn files_in_rotation_do_not_grow_memory_beyond_the_limit() {
    const FILES: usize = 100_000;
    const CACHE: u64 = 4 << 20;
    let site = Site::new();
    // A file has no more than 65,000 names (ext4), and a directory should not be too long.
    for folder in 0..FILES / 1000 {
        let first = site.file(&format!("{folder}/0"), [b'a'; 500]);
        for number in 1..1000 {
            fs::hard_link(&first, site.path().join(format!("{folder}/{number}"))).unwrap();
        }
    }
    for (revalidate, requests) in [("1s", FILES + FILES / 10), ("inotify", FILES / 2)] {
        let server = Server::on(&site, &["--cache", "4M", "--revalidate", revalidate]);
        let mut client = server.connect();
        let mut walk = |files: std::ops::Range<usize>| {
            for start in files.step_by(50) {
                let numbers = start..start + 50;
                let target = |at: usize| format!("/{}/{}", at % FILES / 1000, at % 1000);
                let asked: String =
                    numbers.clone().map(|at| request("GET", &target(at), &[])).collect();
                client.send(asked);
                for _ in numbers {
                    assert_eq!(client.response().is(200).body.len(), 500);
                }
            }
        };
        // By now the cache is full, several times.
        walk(0..FILES / 10);
        let (before, descriptors) = (server.private_memory(), server.files_open());
        walk(FILES / 10..requests);
        let grown = server.private_memory().saturating_sub(before);
        println!("{revalidate}: {before} bytes, then {grown} more");
        assert!(before < 8 * CACHE && grown < CACHE, "{before} bytes, then {grown} more");
        // They may be closed a moment later, and elsewhere.
        wait_until("files are closed", || server.files_open() <= descriptors + 1);
    }
}

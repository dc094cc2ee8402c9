//! Files that are kept: right, and no longer than they are right.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::{Server, Site, on_every_mechanism};

/// Lengths on both sides of the border between memory and file backend.
const LENGTHS: [usize; 2] = [3_000, 200_000];

fn replace(site: &Site, name: &str, content: &[u8]) {
    let new = site.file(&format!("{name}.new"), content);
    fs::rename(new, site.path().join(name)).unwrap();
}

#[test]
fn a_file_in_memory_is_served_without_a_look_until_it_is_time() {
    let site = Site::new();
    site.file("a", "one");
    let server = Server::on(&site, &["--revalidate", "1h"]);
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
        site.file("a", &content);
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

/// Every version is one byte repeated and has a length of its own: a reply that
/// is made of two versions shows.
#[test]
fn replies_are_never_mixed_while_the_file_is_being_replaced() {
    on_every_mechanism(|mechanism| {
        for base in LENGTHS {
            let site = Site::new();
            site.file("a", version(base, 0));
            let flags = ["--dispatch", mechanism.name, "--revalidate", "0s"];
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
                let mut tags = HashMap::new();
                let mut client = server.connect();
                for _ in 0..200 {
                    let reply = client.get("/a");
                    let number = reply.body[0] - b'a';
                    assert!(reply.body == version(base, usize::from(number)), "a mixed body");
                    let tag = reply.field("ETag").unwrap().to_owned();
                    assert_eq!(*tags.entry(tag).or_insert(number), number, "another's validator");
                }
                over.store(true, Ordering::Relaxed);
            });
        }
    });
}

fn version(base: usize, number: usize) -> Vec<u8> {
    vec![b'a' + number as u8; base + number]
}

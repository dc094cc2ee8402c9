//! What a response says of the state of a file: equal files have equal tags on every server, and other bytes never keep a strong
//! one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use crate::harness::{PATIENCE, Response, Server, Site, drover, on_every_mechanism, request};

/// One that is kept as bytes, and one that is not.
const LENGTHS: [usize; 2] = [3_000, 200_000];

/// The time that a reproducible build gives every file.
fn epoch() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

/// Puts a file of equal bytes in place by rename(2), with the time of every other one.
fn deploy(site: &Site, name: &str, byte: u8, length: usize) {
    let new = site.file(&format!("{name}.new"), vec![byte; length]);
    File::open(&new).unwrap().set_modified(epoch()).unwrap();
    fs::rename(new, site.path().join(name)).unwrap();
}

fn tag(response: &Response) -> String {
    response.field("ETag").unwrap().to_owned()
}

impl Site {
    /// A file that says to be old, as one that was copied with its time. Its tag stays as it is: that of a long file whose time is
    /// that of its last change becomes a strong one after two seconds.
    pub(crate) fn dated(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name, content);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(epoch()).unwrap();
        path
    }
}

fn is_weak(tag: &str) -> bool {
    tag.starts_with("W/")
}

#[test]
fn equal_files_have_equal_tags_on_two_servers() {
    let content = ["--etag", "content"];
    for flags in [&[][..], &["--cache", "off"], &content, &["--etag", "mtime"]] {
        let tags = [(); 2].map(|()| {
            let site = Site::new();
            let server = Server::on(&site, flags);
            LENGTHS.map(|length| {
                deploy(&site, &length.to_string(), b'x', length);
                tag(&server.get(&format!("/{length}")).is(200))
            })
        });
        assert_eq!(tags[0], tags[1], "{flags:?}");
    }
}

/// Whoever has a part of the old version, or all of it, gets all of the new one.
#[test]
fn other_bytes_of_equal_time_and_length_keep_no_strong_tag_across_a_restart() {
    on_every_mechanism(|mechanism| {
        for length in LENGTHS {
            let site = Site::new();
            let flags = ["--dispatch", mechanism.name, "--revalidate", "0s"];
            deploy(&site, "a", b'1', length);
            let before = tag(&Server::on(&site, &flags).get("/a").is(200));
            deploy(&site, "a", b'2', length);
            let server = Server::on(&site, &flags);
            let mut client = server.connect();
            for _ in 0..2 {
                let after = client.get("/a").is(200);
                assert!(after.body == vec![b'2'; length]);
                let after = tag(&after);
                assert!(before != after || is_weak(&after), "{before} {after}");
                let part = ["Range: bytes=0-9", &format!("If-Range: {before}")];
                assert_eq!(client.ask("/a", &part).is(200).length(), length as u64);
                client.ask("/a", &[&format!("If-Match: {before}")]).is(412);
                if length == LENGTHS[0] {
                    let old = client.ask("/a", &[&format!("If-None-Match: {before}")]).is(200);
                    assert_eq!(old.body, vec![b'2'; length]);
                    let own =
                        client.ask("/a", &["Range: bytes=0-9", &format!("If-Range: {after}")]);
                    assert_eq!(own.is(206).length(), 10);
                }
            }
        }
    });
}

/// A file that was just written may be written again without another time.
#[test]
fn the_tag_of_a_long_file_is_strong_once_its_time_is_over() {
    let site = Site::new();
    site.file("a", vec![b'x'; LENGTHS[1]]);
    let server = Server::on(&site, &["--revalidate", "0s"]);
    let mut client = server.connect();
    let began = Instant::now();
    let mut settled = tag(&client.get("/a").is(200));
    while is_weak(&settled) {
        assert!(began.elapsed() < PATIENCE, "the tag stays weak: {settled}");
        client.ask("/a", &["Range: bytes=0-9", &format!("If-Range: {settled}")]).is(200);
        crate::harness::pause(Duration::from_millis(50));
        settled = tag(&client.get("/a").is(200));
    }
    let part = client.ask("/a", &["Range: bytes=0-9", &format!("If-Range: {settled}")]);
    assert_eq!(tag(&part.is(206)), settled);
    // Its mode is changed, or its time set back: other bytes could have come too.
    File::open(site.path().join("a")).unwrap().set_modified(epoch()).unwrap();
    assert!(is_weak(&tag(&client.get("/a").is(200))));
}

/// Time and length tell nothing; the bytes do, strongly, to a server that never saw those before.
#[test]
fn tags_of_content_differ_across_a_restart_where_time_and_length_do_not() {
    let site = Site::new();
    for flags in [&[][..], &["--etag", "content"]] {
        let [one, other, again] = [b'1', b'2', b'1'].map(|byte| {
            deploy(&site, "a", byte, LENGTHS[0]);
            let response = Server::on(&site, flags).get("/a").is(200);
            assert!(response.body == vec![byte; LENGTHS[0]]);
            (tag(&response), response.field("Last-Modified").unwrap().to_owned())
        });
        assert_eq!(one.1, other.1, "{flags:?}");
        assert!(one.0 != other.0 && ![&one, &other].iter().any(|it| is_weak(&it.0)), "{flags:?}");
        assert_eq!(one, again, "{flags:?}");
    }
}

#[test]
fn tags_are_of_times_or_missing_if_that_is_asked_for() {
    let site = Site::new();
    for length in LENGTHS {
        deploy(&site, &length.to_string(), b'x', length);
        let target = format!("/{length}");
        let mtime = Server::on(&site, &["--etag", "mtime"]).get(&target).is(200);
        assert!(is_weak(&tag(&mtime)), "its time was set");
        let off = Server::on(&site, &["--etag", "off"]);
        let response = off.get(&target).is(200);
        assert_eq!(response.field("ETag"), None);
        let since = format!("If-Modified-Since: {}", response.field("Last-Modified").unwrap());
        off.ask(&target, &[&since]).is(304);
    }
}

/// Even where forms are equal in every byte.
#[test]
fn each_coding_has_its_own_tag() {
    for (flags, length) in [(&[][..], 3_000), (&[], 200_000), (&["--cache", "off"], 3_000)] {
        let site = Site::new();
        for suffix in ["", ".gz", ".br", ".zst"] {
            deploy(&site, &format!("a{suffix}"), b'x', length);
        }
        let server = Server::on(&site, &[flags, &["--precompressed"]].concat());
        let forms = ["identity", "gzip", "br", "zstd"];
        let tag_of = |coding| {
            let response = server.ask("/a", &[&format!("Accept-Encoding: {coding}")]).is(200);
            (response.field("Content-Encoding").map(str::to_owned), tag(&response))
        };
        let tags: BTreeMap<_, _> = forms.into_iter().map(tag_of).collect();
        let different: BTreeSet<_> = tags.values().collect();
        assert_eq!((tags.len(), different.len()), (4, 4), "{tags:?}");
    }
}

/// Files of procfs have the length 0 and are not empty: they are read to their end for each request, and nothing tells one
/// reading from the next.
#[test]
fn files_without_a_length_are_read_to_their_end_on_every_mechanism() {
    let expected = fs::read_to_string("/proc/sys/kernel/ostype").unwrap();
    on_every_mechanism(|mechanism| {
        for more in [&[][..], &["--cache", "off"], &["--stat-threads", "0"]] {
            let mut command = drover();
            command.args(["serve", "/proc/sys/kernel", "--dispatch", mechanism.name]).args(more);
            let server = Server::start(command, 1);
            let mut client = server.connect();
            for _ in 0..2 {
                let response = client.get("/ostype").is(200);
                assert_eq!(response.text(), expected);
                for field in ["ETag", "Last-Modified"] {
                    assert_eq!(response.field(field), None);
                }
                assert_eq!(client.head("/ostype", &[]).is(200).length(), expected.len() as u64);
                let part = client.ask("/ostype", &["Range: bytes=1-2"]).is(206);
                assert_eq!(part.text(), &expected[1..3]);
            }
            client.send([request("GET", "/ostype", &[]), request("GET", "/ostype", &[])].concat());
            for _ in 0..2 {
                assert_eq!(client.response().is(200).text(), expected);
            }
        }
    });
}

/// Files of sysfs have the length of a page, however long they are.
#[test]
fn files_with_another_length_than_they_have_bytes_are_read_to_their_end() {
    let Ok(expected) = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled") else {
        drover_testing::skip!("no sysfs with huge pages");
        return;
    };
    let mut command = drover();
    command.args(["serve", "/sys/kernel/mm"]);
    let server = Server::start(command, 1);
    for _ in 0..2 {
        let response = server.get("/transparent_hugepage/enabled").is(200);
        assert_eq!((response.text(), response.field("ETag")), (expected.as_str(), None));
    }
}

#[test]
fn a_file_that_is_stored_compressed_is_sent_with_its_coding() {
    let site = Site::new();
    for (name, text) in [
        ("app.wasm", "plain"),
        ("app.wasm.br", "brotli"),
        ("app.js.gz", "gzip"),
        ("a.svgz", "drawing"),
        ("a.svgz.br", "drawing in two codings"),
        ("a.tar.gz", "archive"),
    ] {
        site.file(name, text.repeat(500));
    }
    let rules = [
        "--header=*.wasm.br Content-Encoding: br",
        "--header=*.{gz,svgz} Content-Encoding: gzip",
        "--header=*.tar.gz Content-Encoding: identity",
    ];
    for more in [&[][..], &["--precompressed"], &["--precompressed", "--cache", "off"]] {
        let server = Server::on(&site, &[&rules[..], more].concat());
        let mut client = server.connect();
        for (target, coding, kind, text) in [
            ("/app.wasm.br", Some("br"), "application/wasm", "brotli"),
            ("/app.js.gz", Some("gzip"), "text/javascript; charset=utf-8", "gzip"),
            ("/a.svgz", Some("gzip"), "image/svg+xml; charset=utf-8", "drawing"),
            ("/a.tar.gz", None, "application/gzip", "archive"),
        ] {
            let response = client.ask(target, &["Accept-Encoding: gzip, br"]).is(200);
            let fields = (response.field("Content-Encoding"), response.field("Content-Type"));
            assert_eq!(fields, (coding, Some(kind)), "{target} {more:?}");
            let named = response.lines.iter().filter(|it| it.starts_with("Content-Encoding"));
            assert_eq!(named.count(), usize::from(coding.is_some()));
            assert_eq!(response.text(), text.repeat(500));
            let several = client.ask(target, &["Range: bytes=0-0,1500-1501"]);
            several.is(if coding.is_some() { 200 } else { 206 });
            let part = client.ask(target, &["Range: bytes=0-1"]).is(206);
            assert_eq!(part.field("Content-Encoding"), coding);
        }
        let coding = more.first().map(|_| "br");
        let whole = client.ask("/app.wasm", &["Accept-Encoding: br"]).is(200);
        assert_eq!(whole.field("Content-Encoding"), coding);
    }
}

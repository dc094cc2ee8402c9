//! Files that are stored compressed beside themselves: who gets which form, and when a form is not used.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use crate::harness::{
    Client, PATIENCE, Response, Server, Site, on_every_mechanism, request, usable_backends,
};

/// Lengths on both sides of the border between memory and file backend.
const LENGTHS: [usize; 2] = [3_000, 200_000];

/// `Content-Encoding` and the suffix of a form's name.
const FORMS: [(&str, &str); 3] = [("br", ".br"), ("zstd", ".zst"), ("gzip", ".gz")];

const FLAGS: &[&str] = &["--precompressed", "--revalidate", "0s"];

/// A page of each length, with all forms: of 1/2, 1/3 and 1/4 of the length. What their bytes mean is nobody's
/// business but the client's.
fn pages() -> Site {
    let site = Site::new();
    for length in LENGTHS {
        site.dated(&page(length), content("", length));
        for (share, (coding, suffix)) in (2..).zip(FORMS) {
            site.dated(&format!("{}{suffix}", page(length)), content(coding, length / share));
        }
    }
    site
}

fn page(length: usize) -> String {
    format!("{length}.html")
}

/// Bytes that tell the form.
fn content(coding: &str, length: usize) -> Vec<u8> {
    format!("<{coding}>").into_bytes().into_iter().cycle().take(length).collect()
}

fn accept(codings: &str) -> String {
    format!("Accept-Encoding: {codings}")
}

/// Asserts that the response is the form with this coding (`""`: the file as it is) and that length.
#[track_caller]
fn is_form(response: &Response, coding: &str, length: usize) {
    let encoding = (!coding.is_empty()).then_some(coding);
    assert_eq!((response.status, response.field("Content-Encoding")), (200, encoding));
    assert_eq!(response.field("Vary"), Some("Accept-Encoding"));
    assert_eq!(response.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert!(response.body == content(coding, length), "another form's bytes");
}

/// What each client gets of a file with all its forms; `of_length` bytes long itself.
fn each_client_gets_its_form(client: &mut Client, of_length: usize) {
    let target = format!("/{}?query", page(of_length));
    let mut tags = Vec::new();
    for (codings, coding, share) in [
        ("gzip, deflate, br, zstd", "gzip", 4),
        ("br, zstd", "zstd", 3),
        ("br", "br", 2),
        ("gzip;q=0.5, br", "br", 2),
        ("deflate", "", 1),
        ("identity, gzip;q=0.9", "", 1),
    ] {
        let response = client.ask(&target, &[&accept(codings)]).is(200);
        is_form(&response, coding, of_length / share);
        let tag = response.field("ETag").unwrap().to_owned();

        let head = client.head(&target, &[&accept(codings)]);
        let undated = |response: &Response| -> Vec<String> {
            response.lines.iter().filter(|it| !it.starts_with("Date")).cloned().collect()
        };
        assert_eq!(undated(&head), undated(&response));

        let unchanged = format!("If-None-Match: {tag}");
        let response = client.ask(&target, &[&accept(codings), &unchanged]).is(304);
        let fields = (response.field("ETag"), response.field("Vary"));
        assert_eq!(fields, (Some(tag.as_str()), Some("Accept-Encoding")));

        let part = client.ask(&target, &[&accept(codings), "Range: bytes=10-19"]).is(206);
        let encoding = (!coding.is_empty()).then_some(coding);
        assert_eq!(part.field("Content-Encoding"), encoding);
        assert!(part.body == content(coding, of_length / share)[10..20]);
        tags.push(tag);
    }
    let whole = client.get(&target).is(200);
    is_form(&whole, "", of_length);
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 4, "each form has a tag of its own: {tags:?}");
    let several = [&accept("br")[..], "Range: bytes=0-1,1000-1001"];
    let several = client.ask(&target, &several).is(206);
    assert_eq!(
        (several.field("Content-Encoding"), several.field("Vary")),
        (None, whole.field("Vary"))
    );
}

#[test]
fn each_client_gets_its_form_on_every_mechanism() {
    let site = pages();
    on_every_mechanism(|mechanism| {
        let server = Server::on(&site, &[FLAGS, &["--dispatch", mechanism.name]].concat());
        let mut client = server.connect();
        LENGTHS.iter().for_each(|length| each_client_gets_its_form(&mut client, *length));
    });
}

#[test]
fn each_client_gets_its_form_by_every_backend_and_cache() {
    let site = pages();
    for backend in usable_backends() {
        for cache in [&["--cache", "off"][..], &[], &["--revalidate", "inotify"]] {
            let flags = [&["--precompressed", "--files", backend][..], cache].concat();
            let server = Server::on(&site, &flags);
            let mut client = server.connect();
            LENGTHS.iter().for_each(|length| each_client_gets_its_form(&mut client, *length));
        }
    }
}

/// Two clients in one packet do not get each other's form.
#[test]
fn requests_in_one_packet_get_their_own_forms() {
    let site = pages();
    on_every_mechanism(|mechanism| {
        let server = Server::on(&site, &[FLAGS, &["--dispatch", mechanism.name]].concat());
        let mut client = server.connect();
        for length in LENGTHS {
            let target = format!("/{}", page(length));
            let asked = ["br", "gzip", "gzip", "identity", "br", "zstd", "zstd"];
            let all = asked.map(|it| request("GET", &target, &[&accept(it)])).concat();
            client.send(all);
            for coding in asked {
                let at = FORMS.iter().position(|(name, _)| *name == coding);
                let share = at.map_or(1, |at| at + 2);
                is_form(&client.response(), at.map_or("", |at| FORMS[at].0), length / share);
            }
        }
    });
}

#[test]
fn without_the_flag_a_form_is_a_file_like_others() {
    let site = pages();
    let server = Server::on(&site, &[]);
    let response = server.ask("/3000.html", &[&accept("br, gzip")]).is(200);
    assert_eq!((response.field("Vary"), response.field("Content-Encoding")), (None, None));
    assert!(response.body == content("", 3000));
}

/// Whoever asks for a form by its name gets it as a file, not as a coding of something else.
#[test]
fn a_form_can_be_downloaded() {
    let site = pages();
    let server = Server::on(&site, FLAGS);
    let response = server.ask("/3000.html.gz", &[&accept("br, gzip")]).is(200);
    let fields = (
        response.field("Content-Type"),
        response.field("Content-Encoding"),
        response.field("Vary"),
    );
    assert_eq!(fields, (Some("application/gzip"), None, None));
    assert!(response.body == content("gzip", 750));
}

#[test]
fn a_file_without_forms_does_not_vary_and_the_index_of_a_folder_does() {
    let site = Site::new();
    site.file("alone.html", "<>");
    site.file("folder/index.html", content("", 100));
    site.file("folder/index.html.br", content("br", 50));
    let server = Server::on(&site, FLAGS);
    assert_eq!(server.ask("/alone.html", &[&accept("br")]).is(200).field("Vary"), None);
    is_form(&server.ask("/folder/", &[&accept("br")]), "br", 50);
}

#[test]
fn a_form_that_is_older_than_its_file_is_not_used() {
    for length in LENGTHS {
        let site = pages();
        let hour = Duration::from_secs(3600);
        let set = |name: &str, time| {
            let file = File::options().write(true).open(site.path().join(name)).unwrap();
            file.set_modified(time).unwrap();
        };
        let server = Server::on(&site, FLAGS);
        let ask = |codings: &str| server.ask(&format!("/{}", page(length)), &[&accept(codings)]);
        is_form(&ask("br"), "br", length / 2);
        let now = fs::metadata(site.path().join(page(length))).unwrap().modified().unwrap();
        set(&page(length), now - hour);
        set(&format!("{}.br", page(length)), now - 2 * hour);
        is_form(&ask("br"), "", length);
        is_form(&ask("br, gzip"), "gzip", length / 4);
        // Of equal age: what tools set that keep the time of the file.
        set(&format!("{}.br", page(length)), now - hour);
        is_form(&ask("br"), "br", length / 2);
    }
}

/// A form that comes, changes or goes shows at the next look.
#[test]
fn changes_of_forms_show_at_the_next_look() {
    for length in LENGTHS {
        for flags in [FLAGS, &["--precompressed", "--cache", "off"]] {
            let site = Site::new();
            site.file("a.html", content("", length));
            let server = Server::on(&site, flags);
            let mut client = server.connect();
            let mut ask = || client.ask("/a.html", &[&accept("gzip, br")]).is(200);
            assert!(ask().field("Vary").is_none());
            site.file("a.html.gz", content("gzip", length / 2));
            is_form(&ask(), "gzip", length / 2);
            site.file("a.html.br", content("br", length / 3));
            is_form(&ask(), "br", length / 3);
            site.file("a.html.br", content("br", length / 4));
            is_form(&ask(), "br", length / 4);
            fs::remove_file(site.path().join("a.html.br")).unwrap();
            is_form(&ask(), "gzip", length / 2);
            // The new file is younger than its forms.
            fs::remove_file(site.path().join("a.html")).unwrap();
            let file = site.file("a.html", content("", length + 1));
            let later = SystemTime::now() + Duration::from_secs(60);
            File::options().write(true).open(file).unwrap().set_modified(later).unwrap();
            assert!(ask().body == content("", length + 1));
        }
    }
}

#[test]
fn a_watched_file_gets_a_new_form_at_once() {
    for length in LENGTHS {
        let site = Site::new();
        site.file("a.html", content("", length));
        // Without a report, the server would look again after an hour.
        let flags = ["--precompressed", "--revalidate", "inotify,1h"];
        let server = Server::on(&site, &flags);
        let mut client = server.connect();
        let since = std::time::Instant::now();
        let mut until = |wanted: Option<&str>| loop {
            let response = client.ask("/a.html", &[&accept("br")]).is(200);
            if response.field("Content-Encoding") == wanted {
                break;
            }
            assert!(since.elapsed() < PATIENCE, "{wanted:?} does not come");
        };
        until(None);
        site.file("a.html.br", content("br", length / 2));
        until(Some("br"));
        fs::remove_file(site.path().join("a.html.br")).unwrap();
        until(None);
    }
}

/// Folders, links that lead out of the root and the like are no forms.
#[test]
fn what_is_no_file_beneath_the_root_is_no_form() {
    let site = Site::new();
    site.file("a.html", content("", 100));
    fs::create_dir(site.path().join("a.html.br")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", site.path().join("a.html.gz")).unwrap();
    for flags in [FLAGS, &["--precompressed", "--cache", "off"]] {
        let server = Server::on(&site, flags);
        let response = server.ask("/a.html", &[&accept("br, gzip, zstd")]).is(200);
        assert!(response.body == content("", 100) && response.field("Vary").is_none());
    }
}

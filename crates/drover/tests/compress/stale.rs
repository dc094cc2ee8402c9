//! Siblings that no longer fit their file: written anew, refreshed, or removed, so that nobody is sent old content.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use crate::harness::{Site, noise, text};

#[test]
fn siblings_of_a_changed_file_are_written_anew() {
    let site = Site::filled();
    site.compress("");
    site.write("index.html", &text(7, 6000));
    site.set_time("index.html", SystemTime::now());
    let told = site.compress("");
    assert!(told.contains("br  1 written: 6.00 KB → "), "{told}");
    assert!(told.contains("3 up to date, 1 outdated"), "{told}");
    site.assert_whole();
    site.assert_siblings("index.html", &["br", "zst", "gz"]);
}

/// Reproducible builds, archives and copies give a new file the time of the old one.
#[test]
fn a_file_that_is_replaced_by_one_of_the_same_time_is_noticed() {
    let site = Site::filled();
    site.compress("");
    let time = site.metadata("index.html").modified().unwrap();
    site.write("new", &text(8, 5000));
    site.set_time("new", time);
    fs::rename(site.path("new"), site.path("index.html")).unwrap();
    site.compress("");
    site.assert_whole();
    assert_eq!(site.siblings().len(), 12);
}

#[test]
fn a_sibling_goes_with_the_content_that_was_worth_it() {
    let site = Site::filled();
    site.compress("");
    site.write("index.html", &noise(1, 5000));
    site.write("a/app.js", b"small");
    let told = site.compress("");
    site.assert_siblings("index.html", &[]);
    site.assert_siblings("a/app.js", &[]);
    assert!(told.contains("1 not 5 % smaller than their file"), "{told}");
    assert!(told.contains("2 outdated or not asked for, removed"), "{told}");
    assert!(told.contains("Left out: 1 too small"), "{told}");
    site.assert_whole();
}

#[test]
fn what_is_only_touched_is_not_compressed_again() {
    let site = Site::filled();
    site.compress("");
    let before = site.files();
    for file in ["index.html", "a/app.js"] {
        site.set_time(file, SystemTime::now() - Duration::from_secs(60));
    }
    fs::set_permissions(site.path("a/app.js"), fs::Permissions::from_mode(0o600)).unwrap();
    let told = site.compress("");
    assert!(told.contains("2 up to date, 2 with the right bytes"), "{told}");
    assert!(!told.contains("written"), "{told}");
    site.assert_whole();
    for (name, data) in site.files() {
        assert_eq!(data.0, before[&name].0, "{name} is another file");
    }
    assert_eq!(site.metadata("a/app.js.br").mode() & 0o777, 0o600);
}

/// Who may no longer read the file may not read its sibling, even if nothing else has changed.
#[test]
fn a_sibling_follows_the_permissions_of_its_file() {
    let site = Site::filled();
    site.compress("");
    fs::set_permissions(site.path("index.html"), fs::Permissions::from_mode(0o600)).unwrap();
    site.compress("--formats gz");
    site.assert_whole();
}

#[test]
fn broken_siblings_are_replaced() {
    let site = Site::filled();
    site.compress("");
    let whole = site.read("a/app.js.br");
    site.write("a/app.js.br", &whole[..whole.len() / 2]);
    site.write("a/app.js.zst", b"");
    site.write("a/app.js.gz", &text(1, 100));
    site.compress("");
    site.assert_whole();
    assert_eq!(site.read("a/app.js.br"), whole);
}

#[test]
fn outdated_siblings_go_in_formats_that_are_not_asked_for_too() {
    let site = Site::filled();
    site.compress("");
    site.write("index.html", &text(7, 6000));
    site.set_time("index.html", SystemTime::now());
    site.compress("--formats br");
    site.assert_siblings("index.html", &["br"]);
    site.assert_siblings("a/app.js", &["br", "zst", "gz"]);
    site.compress("--formats br --prune");
    site.assert_siblings("a/app.js", &["br"]);
    site.assert_whole();
}

/// Downloads are no siblings: by their type, by a hidden name, by what gzip and zstd write that Drover does not.
#[test]
fn siblings_of_files_that_are_gone_are_told_and_pruned() {
    let site = Site::filled();
    site.compress("");
    fs::remove_file(site.path("index.html")).unwrap();
    let gzip = flate2::GzBuilder::new().operating_system(3);
    let mut gzip = gzip.write(Vec::new(), flate2::Compression::best());
    gzip.write_all(&text(1, 100)).unwrap();
    let mut zstd = zstd::Encoder::new(Vec::new(), 3).unwrap();
    zstd.include_checksum(true).unwrap();
    zstd.write_all(&text(1, 100)).unwrap();
    let sibling = site.read("index.html.gz");
    let downloads = [
        ("data.tar.gz", &sibling),
        ("photo.png.br", &sibling),
        ("readme.gz", &sibling),
        (".hidden.html.gz", &sibling),
        ("excluded/notes.txt.gz", &sibling),
        ("notes.txt.gz", &gzip.finish().unwrap()),
        ("dump.json.zst", &zstd.finish().unwrap()),
        ("broken.txt.gz", &b"short".to_vec()),
    ];
    for (name, bytes) in downloads {
        site.write(name, bytes);
    }
    let told = site.compress("--exclude excluded");
    assert!(told.contains("3 siblings of files that are gone: --prune removes them"), "{told}");
    site.assert_siblings("index.html", &["br", "zst", "gz"]);
    let told = site.compress("--exclude excluded --prune");
    assert!(told.contains("3 siblings of files that are gone removed"), "{told}");
    site.assert_siblings("index.html", &[]);
    for (name, bytes) in downloads {
        assert_eq!(site.read(name), *bytes, "{name}");
    }
}

/// What lies outside is neither read nor written, even if a sibling leads there.
#[test]
fn a_link_with_the_name_of_a_sibling_is_replaced_and_not_followed() {
    let site = Site::filled();
    let outside = Site::new();
    outside.write("victim", b"of somebody else");
    symlink(outside.path("victim"), site.path("index.html.gz")).unwrap();
    symlink("nowhere", site.path("index.html.br")).unwrap();
    site.compress("");
    assert_eq!(outside.read("victim"), b"of somebody else");
    assert!(site.metadata("index.html.gz").is_file() && site.metadata("index.html.br").is_file());
    site.assert_whole();
}

/// A sibling may have a second name somewhere, as in a backup made of hard links: that one keeps its time.
#[test]
fn a_sibling_with_a_second_name_is_written_anew() {
    let site = Site::filled();
    site.compress("");
    fs::hard_link(site.path("index.html.gz"), site.path("backup")).unwrap();
    let before = site.metadata("backup").modified().unwrap();
    site.set_time("index.html", SystemTime::now() - Duration::from_secs(60));
    site.compress("");
    assert_eq!(site.metadata("backup").modified().unwrap(), before);
    fs::remove_file(site.path("backup")).unwrap();
    site.assert_whole();
}

//! Which files are compressed: by type, name, size and what can be gained.

use std::fs;
use std::os::unix::fs::symlink;

use crate::harness::{Site, noise, text};

const ALL: &[&str] = &["br", "zst", "gz"];

#[test]
fn types_that_are_compressed_already_are_left_out() {
    let site = Site::new();
    for name in ["a.html", "b.WASM", "c.ttf", "d.ico", "e.txt"] {
        site.write(name, &text(1, 1000));
    }
    for name in ["a.png", "b.woff2", "c.zip", "d.mp4", "LICENSE", "e.dump"] {
        site.write(name, &text(1, 1000));
    }
    let told = site.compress("");
    assert_eq!(site.siblings().len(), 5 * 3);
    assert!(told.contains("Left out: 6 of types that hardly compress, or unknown"), "{told}");
    site.compress("--include *.dump --include LICENSE --exclude *.txt");
    site.assert_siblings("e.dump", ALL);
    site.assert_siblings("LICENSE", ALL);
    assert_eq!(site.siblings().len(), 7 * 3);
}

#[test]
fn hidden_files_are_left_out_as_the_server_does() {
    let site = Site::new();
    for name in
        [".env.json", ".git/config.txt", "a/.b/c.html", "a/.well-known/d.txt", ".well-known/.e.txt"]
    {
        site.write(name, &text(1, 1000));
    }
    site.write(".well-known/security.txt", &text(2, 1000));
    let told = site.compress("");
    site.assert_siblings(".well-known/security.txt", ALL);
    assert_eq!(site.siblings().len(), 3, "{:?}", site.siblings());
    assert!(told.contains("Left out: 2 hidden"), "{told}");
}

#[test]
fn patterns_leave_out_files_and_folders() {
    let site = Site::filled();
    site.write("a/b/c/data.json", &text(1, 1000));
    site.write("b/app.js", &text(1, 1000));
    site.compress("--exclude /a/app.js --exclude b/ --formats gz");
    site.assert_siblings("a/app.js", &[]);
    site.assert_siblings("a/b/c/data.json", &[]);
    site.assert_siblings("b/app.js", &[]);
    site.assert_siblings("index.html", &["gz"]);
}

/// What is excluded is left alone altogether, --prune or not.
#[test]
fn siblings_of_excluded_files_stay() {
    let site = Site::filled();
    site.compress("");
    site.write("index.html", &text(7, 6000));
    let before = site.files();
    site.compress("--exclude index.html --prune");
    assert_eq!(site.files(), before);
}

#[test]
fn siblings_and_temporary_files_are_never_compressed() {
    let site = Site::filled();
    site.compress("--include *");
    let before = site.files();
    site.compress("--include * --min-size 0");
    assert_eq!(site.files(), before);
}

#[test]
fn small_files_and_files_that_do_not_shrink_are_left_out() {
    let site = Site::new();
    site.write("small.txt", &text(1, 255));
    site.write("large.txt", &text(1, 256));
    site.write("empty.txt", b"");
    site.write("noise.txt", &noise(1, 100_000));
    let told = site.compress("");
    site.assert_siblings("small.txt", &[]);
    site.assert_siblings("large.txt", ALL);
    site.assert_siblings("noise.txt", &[]);
    assert!(told.contains("Left out: 2 too small"), "{told}");
    assert!(told.contains("1 not 5 % smaller than their file"), "{told}");
    site.compress("--min-size 0");
    site.assert_siblings("small.txt", ALL);
    site.assert_siblings("empty.txt", &[]);
    site.assert_whole();
}

#[test]
fn links_within_the_site_get_siblings_and_nothing_outside_is_touched() {
    let (site, outside) = (Site::filled(), Site::filled());
    symlink("a/app.js", site.path("link.js")).unwrap();
    symlink("a", site.path("folder")).unwrap();
    symlink("..", site.path("a/loop")).unwrap();
    symlink(outside.path("index.html"), site.path("out.html")).unwrap();
    symlink(outside.path("a"), site.path("outside")).unwrap();
    symlink("nowhere.html", site.path("dangling.html")).unwrap();
    let before = outside.files();
    site.compress("");
    site.assert_siblings("link.js", ALL);
    site.assert_siblings("out.html", &[]);
    assert_eq!(site.siblings().len(), 5 * 3, "{:?}", site.siblings());
    site.assert_whole();
    assert_eq!(outside.files(), before);
    // A link whose target has changed.
    site.write("a/app.js", &text(9, 2000));
    site.compress("");
    site.assert_whole();
}

#[test]
fn what_is_no_file_is_left_alone() {
    let site = Site::filled();
    rustix::fs::mkfifoat(rustix::fs::CWD, site.path("pipe.html"), rustix::fs::Mode::RUSR).unwrap();
    fs::create_dir(site.path("folder.html")).unwrap();
    site.compress("");
    site.assert_whole();
    assert_eq!(site.siblings().len(), 12);
}

#[test]
fn a_site_without_anything_to_compress_says_so() {
    let site = Site::new();
    site.write("a.png", &noise(1, 1000));
    let told = site.compress("");
    assert!(told.starts_with("No file to compress: --include"), "{told}");
}

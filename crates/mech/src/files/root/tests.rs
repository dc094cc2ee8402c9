//! Tests of opening files beneath a root.

use std::io::Write;
use std::os::unix::fs::symlink;

use super::*;

#[test]
fn opens_files_and_tells_their_kind() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::File::create(directory.path().join("a")).unwrap().write_all(b"abc").unwrap();
    let root = Root::open(directory.path()).unwrap();
    let file = root.open_file(b"a").unwrap();
    assert_eq!((file.kind, file.stamp.len), (FileKind::Regular, 3));
    assert!(file.stamp.modified > 0 && file.stamp.modified_nanos < 1_000_000_000);
    assert_eq!(root.open_file(b"").unwrap().kind, FileKind::Directory);
    assert_eq!(Cause::of(&root.open_file(b"b").unwrap_err()), Cause::Missing);
    std::os::unix::net::UnixListener::bind(directory.path().join("s")).unwrap();
    assert_eq!(Cause::of(&root.open_file(b"s").unwrap_err()), Cause::Forbidden);
}

#[test]
fn small_files_come_with_their_bytes_if_asked_for() {
    // Not in /tmp, which may be a tmpfs without `RWF_NOWAIT`.
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    std::fs::write(directory.path().join("a"), b"abc").unwrap();
    std::fs::write(directory.path().join("empty"), b"").unwrap();
    let root = Root::open(directory.path()).unwrap();
    let options =
        OpenOptions { content: 3, noatime: true, sequential: true, ..OpenOptions::default() };
    assert_eq!(root.open_as(b"a", options).unwrap().content.as_deref(), Some(&b"abc"[..]));
    assert_eq!(root.open_as(b"a", OpenOptions { content: 2, ..options }).unwrap().content, None);
    let empty = root.open_as(b"empty", options).unwrap();
    assert_eq!((empty.content.as_deref(), empty.unmeasured), (Some(&b""[..]), false));
    assert!(!root.open_as(b"a", options).unwrap().noatime_refused, "it is our own file");
    // The file was just written and opened, so its name and its bytes are in the caches.
    match root.try_open_cached(b"a", options) {
        Ok(open) => assert_eq!(open.content.as_deref(), Some(&b"abc"[..])),
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            drover_testing::skip!("this file system or kernel cannot say what is at hand");
        }
    }
    assert_eq!(Cause::of(&root.open_as(b"b", options).unwrap_err()), Cause::Missing);
    if let Ok(stamp) = root.try_stamp_cached(b"a") {
        assert_eq!(stamp, root.stamp(b"a").unwrap());
    }
}

#[test]
fn files_of_others_are_opened_though_their_access_time_is_noted() {
    let root = Root::open(Path::new("/")).unwrap();
    let options = OpenOptions { noatime: true, ..OpenOptions::default() };
    let open = root.open_as(b"proc/version", options).unwrap();
    // Root in a user namespace does not own this file either.
    let noatime = OFlags::RDONLY | OFlags::NOATIME;
    let refused = rustix::fs::open("/proc/version", noatime, Mode::empty()).is_err();
    assert_eq!((open.kind, open.noatime_refused), (FileKind::Regular, refused));
}

/// A rename anywhere on the machine makes openat2(2) fail with `EAGAIN` for a path that contains `..`.
#[test]
fn links_upwards_open_while_something_is_renamed() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("sub")).unwrap();
    std::fs::write(at("file"), b"abc").unwrap();
    // A long path, so that renames happen while the kernel resolves it.
    let up_and_down = "../sub/".repeat(50);
    symlink(format!("{up_and_down}../file"), at("sub/link")).unwrap();
    std::fs::write(at("one"), b"").unwrap();
    let directory_path = format!("sub/{up_and_down}").into_bytes();
    let root = Root::open(directory.path()).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::fs::rename(at("one"), at("other")).unwrap();
                std::fs::rename(at("other"), at("one")).unwrap();
            }
        });
        let mut refused = (0, 0, 0);
        for _ in 0..20_000 {
            refused.0 += u32::from(root.open_file(b"sub/link").is_err());
            refused.1 += u32::from(root.open_directory(&directory_path).is_err());
            // `WouldBlock` is the expected error: the server then opens the file on another thread.
            let opened = root.try_open_cached(b"sub/link", OpenOptions::default());
            let wrong = opened.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock);
            refused.2 += u32::from(wrong);
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(refused, (0, 0, 0));
    });
}

#[test]
fn nothing_outside_the_root_opens_unless_links_may_lead_there() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("inside");
    std::fs::create_dir_all(inside.join("sub")).unwrap();
    std::fs::write(inside.join("sub/page"), "p").unwrap();
    std::fs::write(directory.path().join("secret"), "s").unwrap();
    for (target, link) in [
        ("../secret", "relative"),
        ("/etc/passwd", "absolute"),
        ("sub/page", "within"),
        ("sub", "folder"),
        ("/proc/self/cwd", "magic"),
    ] {
        symlink(target, inside.join(link)).unwrap();
    }
    let of = |symlinks| Root::open(&inside).unwrap().with_symlinks(symlinks);
    let refused = |root: &Root, path: &[u8]| {
        let refused = |result: io::Result<OpenFile>| match result {
            Ok(_) => false,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(error) => Cause::of(&error) == Cause::Missing,
        };
        let is_refused = refused(root.open_file(path));
        // What has just been looked up is in the kernel's caches, if it keeps such things there.
        assert!(!is_refused || refused(root.try_open_cached(path, OpenOptions::default())));
        is_refused
    };
    for symlinks in [Symlinks::Never, Symlinks::Inside, Symlinks::Any] {
        let root = of(symlinks);
        for path in [&b"../secret"[..], b"/etc/passwd", b"x/../../secret", b"magic", b"magic/x"] {
            assert!(refused(&root, path), "{symlinks:?} {}", path.escape_ascii());
        }
        for (path, opens) in [
            (&b"sub/page"[..], true),
            (b"within", symlinks != Symlinks::Never),
            (b"folder/page", symlinks != Symlinks::Never),
            (b"relative", symlinks == Symlinks::Any),
            (b"absolute", symlinks == Symlinks::Any),
        ] {
            assert_eq!(!refused(&root, path), opens, "{symlinks:?} {}", path.escape_ascii());
            if symlinks == Symlinks::Never {
                assert_eq!(root.stamp(path).is_ok(), opens, "{}", path.escape_ascii());
                assert!(opens || root.try_stamp_cached(path).is_err());
            }
        }
    }
    assert_eq!(of(Symlinks::Never).replaced().unwrap().map(|_| ()), None);
    std::fs::rename(&inside, directory.path().join("old")).unwrap();
    let root = Root::open(&directory.path().join("old")).unwrap().with_symlinks(Symlinks::Never);
    std::fs::rename(directory.path().join("old"), &inside).unwrap();
    std::fs::create_dir(directory.path().join("old")).unwrap();
    assert_eq!(root.replaced().unwrap().unwrap().symlinks(), Symlinks::Never);
}

/// Lets an access of a link that was just made leave its time as it is: the kernel notes the first one after a change
/// (relatime, mount(8)), and to note it may need the disk, so that the link is not followed by what is in memory alone.
fn note_no_access(link: &Path) {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    // Later than the link's last change, which this call is itself.
    let last_access = Timespec { tv_sec: now.as_secs() as i64 + 3600, tv_nsec: 0 };
    let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access, last_modification };
    utimensat(CWD, link, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[test]
fn what_stands_beside_a_file_is_opened_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| std::fs::write(folder.path().join(name), content);
    file("page", "whole").unwrap();
    file("page.gz", "short").unwrap();
    file("page.gz.gz", "of the other").unwrap();
    std::fs::create_dir(folder.path().join("page.br")).unwrap();
    symlink("/etc/hostname", folder.path().join("page.zst")).unwrap();
    note_no_access(&folder.path().join("page.zst"));
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    file("folder.gz", "of no file").unwrap();
    let root = Root::open(folder.path()).unwrap();
    let options =
        OpenOptions { content: 100, siblings: &[".br", ".gz", ".zst"], ..OpenOptions::default() };
    type Open = fn(&Root, &[u8], OpenOptions) -> io::Result<OpenFile>;
    for open in [Root::open_as as Open, Root::try_open_cached] {
        if open(&root, b"page", options).is_err_and(|it| it.kind() == io::ErrorKind::WouldBlock) {
            // The caches do not tell a link that leads out of the root from one to another mount.
            std::fs::remove_file(folder.path().join("page.zst")).unwrap();
        }
        let page = open(&root, b"page", options).unwrap();
        let found: Vec<_> = page
            .siblings
            .iter()
            .map(|it| (it.suffix, it.file.as_ref().map(|file| file.content.clone().unwrap())))
            .collect();
        assert_eq!(found, [(".br", None), (".gz", Some(b"short".to_vec())), (".zst", None)]);
        assert!(open(&root, b"folder", options).unwrap().siblings.is_empty());
        assert!(open(&root, b"page", OpenOptions::default()).unwrap().siblings.is_empty());
    }
}

#[test]
fn a_directory_is_listed_without_what_cannot_be_served() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at("in/z")).unwrap();
    for name in ["in/b", "in/a", "in/.hidden", "beside"] {
        std::fs::write(at(name), name).unwrap();
    }
    for (target, name) in [("../beside", "link"), ("/etc/hostname", "out"), ("none", "lost")] {
        symlink(target, at("in").join(name)).unwrap();
    }
    rustix::fs::mknodat(rustix::fs::CWD, at("in/fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let root = Root::open(folder.path()).unwrap();
    let list = |root: &Root, path: &[u8], names| {
        root.list(&root.open_file(path).unwrap(), path, names).unwrap()
    };
    let names = |path: &[u8], which| -> Vec<String> {
        let text = |it: ListedFile<'_>| String::from_utf8(it.name.to_vec()).unwrap();
        list(&root, path, which).files().map(text).collect()
    };
    assert_eq!(names(b"in", ListedNames::Visible), ["z", "a", "b", "link"]);
    assert_eq!(names(b"in/", ListedNames::All), ["z", ".hidden", "a", "b", "link"]);
    assert_eq!(names(b".", ListedNames::Visible), ["in", "beside"]);
    let listing = list(&root, b"in", ListedNames::Visible);
    let files: Vec<_> = listing.files().collect();
    assert_eq!(files[3].len, "beside".len() as u64, "of what the link leads to");
    assert!(files[0].is_directory && !listing.is_cut());
    let never = Root::open(folder.path()).unwrap().with_symlinks(Symlinks::Never);
    assert_eq!(list(&never, b"in", ListedNames::Visible).files().len(), 3);
    let file = root.open_file(b"beside").unwrap();
    assert!(root.list(&file, b"beside", ListedNames::Visible).is_err());
    for number in 0..=LISTED_MOST {
        std::fs::File::create(at("in/z").join(number.to_string())).unwrap();
    }
    let listing = list(&root, b"in/z", ListedNames::Visible);
    assert!(listing.is_cut() && listing.files().len() == LISTED_MOST);
    assert!(listing.memory() < 100 * LISTED_MOST);
}

#[test]
fn equal_bytes_have_equal_digests() {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in [("a", "abc"), ("b", "abc"), ("c", "abd"), ("empty", "")] {
        std::fs::write(directory.path().join(name), bytes).unwrap();
    }
    let root = Root::open(directory.path()).unwrap();
    let options = OpenOptions { content: 3, digest: true, ..OpenOptions::default() };
    let digest = |name: &[u8]| root.open_as(name, options).unwrap().digest;
    assert!(digest(b"a").is_some() && digest(b"a") == digest(b"b") && digest(b"a") != digest(b"c"));
    // Other servers, of other versions, have the same: the test vector of XXH3 for no bytes.
    assert_eq!(digest(b"empty"), Some(0x99aa_06d3_0147_98d8_6001_c324_468d_497f));
    assert_eq!(root.open_as(b"a", OpenOptions { digest: false, ..options }).unwrap().digest, None);
    assert_eq!(root.open_as(b"a", OpenOptions { content: 2, ..options }).unwrap().digest, None);
}

#[test]
fn a_file_without_a_length_is_read_to_its_end_by_those_who_may_wait() {
    let expected = std::fs::read("/proc/version").unwrap();
    let root = Root::open("/proc".as_ref()).unwrap();
    for options in [OpenOptions::default(), OpenOptions { content: 10, ..OpenOptions::default() }] {
        let open = root.open_as(b"version", options).unwrap();
        assert_eq!((open.content.as_ref(), open.unmeasured), (Some(&expected), true));
        let error = root.try_open_cached(b"version", options).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
    if let Err(error) = root.open_as(b"kallsyms", OpenOptions::default()) {
        assert_eq!(Cause::of(&error), Cause::Forbidden, "it is longer than is read");
    }
}

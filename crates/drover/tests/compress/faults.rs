//! What cannot be done is told with the remedy, the rest is done, and nothing is left half done.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::harness::{Site, noise, text, told};

#[test]
fn mistakes_are_one_line_with_the_remedy() {
    let site = Site::filled();
    for (arguments, mentions) in [
        ("--formats lz4", "there are gz, br and zst"),
        ("--level 9", "br=9,gz=6"),
        ("--level br=12", "levels of br are 0 to 11"),
        ("--exclude a[", "quote it for the shell"),
        ("--jobs 0", "from 1 to 1024"),
        ("--min-size 1.5", "--min-size"),
        ("index.html", "index.html"),
    ] {
        let told = site.run(arguments);
        assert_eq!(told.status, Some(2), "{arguments}: {told:?}");
        assert_eq!(told.stderr.lines().count(), 1, "{arguments}: {told:?}");
        assert!(told.stderr.contains(mentions), "{arguments}: {told:?}");
    }
    for dir in ["nowhere", "index.html"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        let told = told(command.arg("compress").arg(site.path(dir)));
        assert_eq!(told.status, Some(2), "{told:?}");
        assert!(told.stderr.contains(&format!("{dir}: ")), "{told:?}");
    }
    assert!(site.siblings().is_empty());
}

#[test]
fn a_file_that_fails_is_told_and_the_others_are_done() {
    let site = Site::filled();
    fs::create_dir(site.path("index.html.gz")).unwrap();
    let told = site.run("");
    assert_eq!(told.status, Some(1), "{told:?}");
    let lines: Vec<&str> = told.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{told:?}");
    assert!(lines[0].starts_with("drover: index.html.gz: cannot be written: "), "{told:?}");
    assert!(lines[0].contains("a folder has the name of the sibling"), "{told:?}");
    assert!(lines[1].contains("1 failure, see above"), "{told:?}");
    fs::remove_dir(site.path("index.html.gz")).unwrap();
    site.assert_whole();
    assert_eq!(site.siblings().len(), 11);
}

#[test]
fn what_may_not_be_read_is_told() {
    let site = Site::filled();
    site.write("private/a.html", &text(1, 1000));
    let restrict = |mode: u32| {
        for name in ["index.html", "private"] {
            fs::set_permissions(site.path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    restrict(0o000);
    let is_readable = fs::read(site.path("index.html")).is_ok();
    let told = site.run("");
    restrict(0o700);
    if is_readable {
        return drover_testing::skip!("this user may read every file");
    }
    assert_eq!(told.status, Some(1), "{told:?}");
    for name in ["index.html", "private"] {
        let line = told.stderr.lines().find(|line| line.starts_with(&format!("drover: {name}: ")));
        let line = line.unwrap_or_else(|| panic!("{name}: {told:?}"));
        assert!(line.contains("Permission denied") && line.contains("--exclude"), "{line}");
    }
    assert_eq!(site.siblings().len(), 9);
}

/// A limit of a file's size acts as a full disk does: the write fails.
#[test]
fn a_write_that_fails_leaves_nothing_half_done() {
    let site = Site::filled();
    site.compress("");
    // Bytes of which half are noise: their siblings are longer than the limit, those of the others are not.
    let large =
        noise(1, 200_000).iter().flat_map(|byte| [b'0' + byte % 16, b'0']).collect::<Vec<_>>();
    site.write("large.txt", &large);
    site.write("index.html", &text(7, 4000));
    let command = site.command("");
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 64; exec \"$0\" \"$@\""]);
    let told = told(limited.arg(command.get_program()).args(command.get_args()));
    assert_eq!(told.status, Some(1), "{told:?}");
    for ending in ["br", "gz", "zst"] {
        let line = told.stderr.lines().find(|line| line.contains(&format!("large.txt.{ending}: ")));
        let line = line.unwrap_or_else(|| panic!("{ending}: {told:?}"));
        assert!(line.contains("File too large") && line.contains("ulimit -f"), "{line}");
    }
    site.assert_siblings("large.txt", &[]);
    site.assert_siblings("index.html", &["br", "zst", "gz"]);
    site.assert_whole();
}

/// A small file system in memory at a folder of the site, which is unmounted at the end.
struct SmallDisk<'s>(&'s Site);

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path("disk")).output();
    }
}

#[test]
fn a_full_disk_is_told_and_has_neither_old_nor_half_siblings() {
    let site = Site::new();
    fs::create_dir(site.path("disk")).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=1M", "tmpfs"]).arg(site.path("disk"));
    if !mount.output().is_ok_and(|output| output.status.success()) {
        return drover_testing::skip!("no tmpfs can be mounted, which only root may do");
    }
    let disk = SmallDisk(&site);
    site.write("disk/a.txt", &text(1, 100_000));
    site.compress("");
    site.write("disk/a.txt", &text(2, 100_000));
    let most = fs::write(site.path("disk/filler"), vec![1; 2 << 20]);
    assert_eq!(most.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    // Outdated siblings make room, which is taken at once: the file is bytes that do not fit in it.
    let large: Vec<u8> = noise(3, 100_000).iter().flat_map(|it| [b'0' + it % 64, b'0']).collect();
    fs::remove_file(site.path("disk/filler")).unwrap();
    site.write("disk/a.txt", &large);
    let _ = fs::write(site.path("disk/filler"), vec![1; 2 << 20]);
    let told = site.run("");
    assert_eq!(told.status, Some(1), "{told:?}");
    assert!(told.stderr.contains("No space left") && told.stderr.contains("free some"), "{told:?}");
    site.assert_whole();
    fs::remove_file(site.path("disk/filler")).unwrap();
    site.compress("");
    site.assert_siblings("disk/a.txt", &["br", "zst", "gz"]);
    site.assert_whole();
    drop(disk);
}

#[test]
fn two_runs_do_not_work_on_one_site() {
    let site = Site::filled();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let folder = rustix::fs::open(site.path(""), flags, Mode::empty()).unwrap();
    rustix::fs::flock(&folder, FlockOperation::LockExclusive).unwrap();
    let told = site.run("");
    assert_eq!(told.status, Some(1), "{told:?}");
    assert!(told.stderr.contains("another 'drover compress' works on"), "{told:?}");
    assert!(site.siblings().is_empty());
    site.compress("--dry-run");
    // Not by closing it: children that other tests start have a copy until they run their program.
    rustix::fs::flock(&folder, FlockOperation::Unlock).unwrap();
    site.compress("");
    site.assert_whole();
}

//! Who may do what with a sibling: no more than with its file; and files that are meant for something else are not touched.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::harness::{ENDINGS, Site, text};

impl Site {
    fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
    }

    fn mode(&self, name: &str) -> u32 {
        self.metadata(name).mode() & 0o7777
    }
}

#[test]
fn what_runs_as_its_owner_stays_with_the_file() {
    let site = Site::filled();
    site.set_mode("index.html", 0o6755);
    site.compress("--formats gz,br");
    assert_eq!([site.mode("index.html.gz"), site.mode("index.html.br")], [0o755; 2]);
    // A sibling that is refreshed loses the bits too.
    site.set_mode("index.html.gz", 0o6755);
    site.set_time("index.html", SystemTime::now() - Duration::from_secs(60));
    let told = site.compress("--formats gz,br");
    assert!(told.contains("1 with the right bytes"), "{told}");
    assert_eq!(site.mode("index.html.gz"), 0o755);
}

/// An existing sibling may be a private file of somebody. Replacing it must not show it to others.
#[test]
fn a_file_that_was_there_gets_no_more_permissions() {
    let site = Site::filled();
    site.compress("--formats gz");
    site.set_mode("index.html.gz", 0o600);
    site.set_time("index.html", SystemTime::now() - Duration::from_secs(60));
    let before = File::open(site.path("index.html.gz")).unwrap();
    site.compress("--formats gz");
    site.assert_whole();
    assert_eq!(before.metadata().unwrap().mode() & 0o777, 0o600);
    assert_ne!(before.metadata().unwrap().ino(), site.metadata("index.html.gz").ino());
}

#[test]
fn a_link_to_the_sibling_of_the_same_file_stays() {
    let site = Site::filled();
    symlink("a/app.js", site.path("link.js")).unwrap();
    for ending in ENDINGS {
        symlink(format!("a/app.js.{ending}"), site.path(&format!("link.js.{ending}"))).unwrap();
    }
    site.compress("--exclude link.js");
    site.compress("");
    for ending in ENDINGS {
        assert!(site.metadata(&format!("link.js.{ending}")).is_symlink(), "{ending}");
    }
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// The kernel's form of an access list (version 2): owner, a named user, group, the most that named users and the group
/// have, others.
fn access_list(owner: u16, user: (u32, u16), group: u16, most: u16, others: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries = [
        (0x01, owner, NOBODY),
        (0x02, user.1, user.0),
        (0x04, group, NOBODY),
        (0x10, most, NOBODY),
        (0x20, others, NOBODY),
    ];
    let bytes = |(tag, permissions, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    [2_u32.to_le_bytes().to_vec(), entries.into_iter().flat_map(bytes).collect()].concat()
}

fn get(path: &Path) -> Option<Vec<u8>> {
    let mut list = vec![0; 1000];
    match rustix::fs::getxattr(path, ACCESS, &mut list[..]) {
        Ok(len) => {
            list.truncate(len);
            Some(list)
        }
        Err(Errno::NODATA) => None,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// With an access list, the group's permissions are the most that any of several users has: they say nothing of the group.
#[test]
fn a_sibling_has_the_access_list_of_its_file() {
    let site = Site::filled();
    let list = access_list(6, (54_321, 4), 0, 4, 0);
    match rustix::fs::setxattr(site.path("index.html"), ACCESS, &list, XattrFlags::empty()) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP) => {
            return drover_testing::skip!("the file system has no access lists");
        }
        Err(error) => panic!("{error}"),
    }
    // The folder would give one to every new file in it.
    let to_all = access_list(7, (54_322, 7), 7, 7, 7);
    rustix::fs::setxattr(site.path("a"), DEFAULT, &to_all, XattrFlags::empty()).unwrap();
    let check = || {
        site.assert_whole();
        for ending in ENDINGS {
            assert_eq!(get(&site.path(&format!("index.html.{ending}"))).as_ref(), Some(&list));
            assert_eq!(get(&site.path(&format!("a/app.js.{ending}"))), None);
        }
    };
    site.compress("");
    check();
    // A sibling with another list is not refreshed.
    rustix::fs::setxattr(site.path("a/app.js.br"), ACCESS, &list, XattrFlags::empty()).unwrap();
    rustix::fs::removexattr(site.path("index.html.gz"), ACCESS).unwrap();
    for name in ["a/app.js", "index.html"] {
        site.set_time(name, SystemTime::now() - Duration::from_secs(60));
    }
    site.compress("");
    check();
}

/// Whether root runs the tests, who may give files away. Notes a skip if not.
fn is_root() -> bool {
    let is_root = drover_sys::process::is_root();
    if !is_root {
        drover_testing::skip!("only root can give files to other users");
    }
    is_root
}

const ONE: u32 = 54_321;
const OTHER: u32 = 54_322;

#[test]
fn a_file_of_another_user_is_never_given_away() {
    if !is_root() {
        return;
    }
    let site = Site::filled();
    site.compress("--formats gz");
    chown(site.path("index.html"), Some(ONE), Some(ONE)).unwrap();
    site.set_time("index.html", SystemTime::now() - Duration::from_secs(60));
    let before = File::open(site.path("index.html.gz")).unwrap();
    site.compress("--formats gz");
    assert_eq!(before.metadata().unwrap().uid(), 0);
    assert_eq!(site.metadata("index.html.gz").uid(), ONE);
    site.assert_whole();
}

#[test]
fn in_a_sticky_folder_the_files_of_other_users_stay() {
    if !is_root() {
        return;
    }
    let site = Site::filled();
    site.compress("--formats gz");
    for name in ["a/app.js", "a/größe µ.svg"] {
        site.write(name, &text(9, 2000));
        chown(site.path(name), Some(ONE), Some(ONE)).unwrap();
    }
    chown(site.path("a/app.js.gz"), Some(OTHER), Some(OTHER)).unwrap();
    chown(site.path("a/größe µ.svg.gz"), Some(ONE), Some(ONE)).unwrap();
    site.set_mode("a", 0o1777);
    let before = site.read("a/app.js.gz");
    let told = site.run("");
    assert_eq!(told.status, Some(1), "{told:?}");
    let line = told.stderr.lines().find(|it| it.contains("a/app.js.gz: ")).expect("it is told");
    assert!(line.contains("sticky") && line.contains("--exclude"), "{line}");
    assert_eq!(site.read("a/app.js.gz"), before);
    assert_eq!(site.metadata("a/app.js.gz").uid(), OTHER);
    fs::remove_file(site.path("a/app.js.gz")).unwrap();
    site.assert_whole();
}

//! Somebody who may write to the site changes it between any two steps of a run: files that are not his stay as they are.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use drover_http1::coding::ContentCoding;
use drover_mech::files::root::Root;
use tempfile::TempDir;

use crate::encode;
use crate::levels::CompressionLevels;
use crate::options::CompressOptions;
use crate::siblings::{CompressContext, EncodingStep, inspect, write};
use crate::temporary::is_temporary;
use crate::walk::CompressCandidate;

/// The user who may write to `hers` if root runs the tests; otherwise everything is of the user who does.
const OTHER_USER: u32 = 1000;

const CODING: ContentCoding = ContentCoding::Gzip;

/// A site with two folders: `hers`, which the other user may change, and `private`, which she may only rename.
struct Site {
    dir: TempDir,
    private: File,
    /// `private/index.html.gz`, which holds the bytes of `hers/index.html`, and `private/index.html`.
    victims: [File; 2],
    before: String,
}

impl Site {
    fn new(start: Start) -> Site {
        let dir = tempfile::tempdir_in(std::env::temp_dir()).unwrap();
        let at = |name: &str| dir.path().join(name);
        let page = "a page of hers; ".repeat(300);
        let mut packed = Vec::new();
        encode::encode(CODING, 9, page.len() as u64, &mut page.as_bytes(), &mut packed).unwrap();
        for folder in ["hers", "private"] {
            fs::create_dir(at(folder)).unwrap();
        }
        for (name, bytes) in [
            ("hers/index.html", page.as_bytes()),
            ("private/index.html", "a private page; ".repeat(300).as_bytes()),
            ("private/index.html.gz", &packed),
        ] {
            fs::write(at(name), bytes).unwrap();
        }
        match start {
            Start::Missing => {}
            Start::Link => symlink("../private/index.html.gz", at("hers/index.html.gz")).unwrap(),
            Start::SameBytes => fs::write(at("hers/index.html.gz"), &packed).unwrap(),
            Start::Outdated => fs::write(at("hers/index.html.gz"), "old").unwrap(),
        }
        if rustix::process::geteuid().is_root() {
            for name in ["hers", "hers/index.html"] {
                chown(at(name), Some(OTHER_USER), Some(OTHER_USER)).unwrap();
            }
        }
        let victims = ["private/index.html.gz", "private/index.html"].map(|name| {
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o600)).unwrap();
            let file = File::open(at(name)).unwrap();
            // Another time than that of her page, which makes a sibling one that is to be refreshed.
            file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
            file
        });
        let private = File::open(at("private")).unwrap();
        let mut site = Site { private, victims, dir, before: String::new() };
        site.before = site.private_state();
        site
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What is in `private`, wherever that is now.
    fn private_state(&self) -> String {
        let path = format!("/proc/self/fd/{}", self.private.as_raw_fd());
        let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<_> = names.map(|entry| (entry.file_name(), entry.ino())).collect();
        names.sort();
        let files = self.victims.each_ref().map(|mut file| {
            let (mut bytes, data) = (Vec::new(), file.metadata().unwrap());
            file.rewind().unwrap();
            file.read_to_end(&mut bytes).unwrap();
            let attributes = (data.mode(), data.uid(), data.gid(), data.mtime(), data.mtime_nsec());
            (attributes, bytes)
        });
        format!("{names:?} {files:?}")
    }

    /// One phase of a run for her page, in which `at_step` is called. Returns what became of the sibling, in words.
    fn run(&self, phase: Phase, at_step: impl Fn(EncodingStep) + Send + Sync + 'static) -> String {
        let context = CompressContext {
            root: Root::open(self.dir.path()).unwrap(),
            options: CompressOptions {
                codings: vec![CODING],
                levels: CompressionLevels::parse("fast").unwrap(),
                min_size: 0,
                force: false,
                prune: false,
                dry_run: false,
                jobs: 1,
            },
            stop: Arc::new(AtomicBool::new(false)),
            bytes_read: AtomicU64::new(0),
            at_step: Box::new(at_step),
        };
        let path = b"hers/index.html".to_vec();
        match phase {
            Phase::Inspect => {
                let candidate = CompressCandidate { path, siblings: vec![CODING] };
                format!("{:?}", inspect(&context, &candidate))
            }
            Phase::Write => format!("{:?}", write(&context, &path, CODING)),
        }
    }
}

/// What is at `hers/index.html.gz` when the run begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    Missing,
    /// A link to the private file with the same bytes.
    Link,
    SameBytes,
    Outdated,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Inspect,
    Write,
}

/// What the other user does. She may change `hers`, and the names in the folder that it and `private` are in.
#[derive(Clone, Copy, Debug)]
enum Swap {
    /// Another file under the name of the sibling, of the page, of what is being written.
    File(SwappedAt),
    /// A link to the private file there.
    Link(SwappedAt),
    /// Another name of the private file there.
    HardLink(SwappedAt),
    /// A link to `private` in place of `hers`.
    FolderLink,
    /// `private` itself in place of `hers`.
    Folder,
}

#[derive(Clone, Copy, Debug)]
enum SwappedAt {
    Sibling,
    Page,
    Temporary,
}

impl Swap {
    const ALL: [Swap; 11] = [
        Swap::File(SwappedAt::Sibling),
        Swap::File(SwappedAt::Page),
        Swap::File(SwappedAt::Temporary),
        Swap::Link(SwappedAt::Sibling),
        Swap::Link(SwappedAt::Page),
        Swap::Link(SwappedAt::Temporary),
        Swap::HardLink(SwappedAt::Sibling),
        Swap::HardLink(SwappedAt::Page),
        Swap::HardLink(SwappedAt::Temporary),
        Swap::FolderLink,
        Swap::Folder,
    ];

    fn make(self, dir: &Path) {
        let hers = dir.join("hers");
        let replace = |place: SwappedAt, make: &dyn Fn(&Path, &str)| {
            let (name, private) = match place {
                SwappedAt::Page => (Some("index.html".into()), "index.html"),
                SwappedAt::Sibling => (Some("index.html.gz".into()), "index.html.gz"),
                SwappedAt::Temporary => {
                    let names = fs::read_dir(&hers).unwrap().map(|it| it.unwrap().file_name());
                    let found = names.into_iter().find(|it| is_temporary(it.as_encoded_bytes()));
                    (found, "index.html.gz")
                }
            };
            let Some(name) = name else { return };
            let _ = fs::remove_file(hers.join(&name));
            make(&hers.join(&name), private);
        };
        match self {
            Swap::File(place) => replace(place, &|path, _| fs::write(path, "her own").unwrap()),
            Swap::Link(place) => replace(place, &|path, private| {
                symlink(Path::new("../private").join(private), path).unwrap();
            }),
            Swap::HardLink(place) => replace(place, &|path, private| {
                fs::hard_link(dir.join("private").join(private), path).unwrap();
            }),
            Swap::FolderLink => {
                fs::rename(&hers, dir.join("away")).unwrap();
                symlink("private", &hers).unwrap();
            }
            Swap::Folder => {
                fs::rename(&hers, dir.join("away")).unwrap();
                fs::rename(dir.join("private"), &hers).unwrap();
            }
        }
    }
}

#[test]
fn what_is_swapped_between_two_steps_changes_no_other_file() {
    if !rustix::process::geteuid().is_root() {
        drover_testing::skip!(
            "only root can give files away; their permissions and times are compared"
        );
    }
    let starts = [Start::Missing, Start::Link, Start::SameBytes, Start::Outdated];
    let faults: Vec<String> = std::thread::scope(|scope| {
        let of_step = |step: EncodingStep| {
            let (mut faults, mut reached) = (Vec::new(), 0);
            for (start, swap) in starts.iter().flat_map(|&it| Swap::ALL.map(|swap| (it, swap))) {
                for phase in [Phase::Inspect, Phase::Write] {
                    let site = Site::new(start);
                    let is_made = Arc::new(AtomicBool::new(false));
                    let (dir, made) = (site.dir.path().to_owned(), Arc::clone(&is_made));
                    let outcome = site.run(phase, move |now| {
                        if now == step && !made.swap(true, Ordering::Relaxed) {
                            swap.make(&dir);
                        }
                    });
                    reached += usize::from(is_made.load(Ordering::Relaxed));
                    if site.private_state() != site.before {
                        faults.push(format!("{step:?} {start:?} {swap:?} {phase:?}: {outcome}"));
                    }
                }
            }
            assert!(reached > 0, "{step:?} is never reached");
            faults
        };
        let threads = EncodingStep::ALL.map(|step| scope.spawn(move || of_step(step)));
        threads.into_iter().flat_map(|it| it.join().unwrap()).collect()
    });
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn without_a_swap_the_sibling_is_written() {
    for start in [Start::Missing, Start::Link, Start::SameBytes, Start::Outdated] {
        let site = Site::new(start);
        site.run(Phase::Inspect, |_| {});
        let outcome = site.run(Phase::Write, |_| {});
        assert!(outcome.starts_with("Written"), "{start:?}: {outcome}");
        let sibling = fs::symlink_metadata(site.at("hers/index.html.gz")).unwrap();
        let page = fs::metadata(site.at("hers/index.html")).unwrap();
        let taken = |it: &fs::Metadata| (it.mode(), it.uid(), it.gid(), it.mtime());
        assert_eq!(taken(&sibling), taken(&page), "{start:?}");
        assert_eq!(site.private_state(), site.before, "{start:?}");
    }
}

//! Lists and who waits for them, without connections.

use drover_mech::Key;
use drover_mech::net::{Net, NetOptions};

use super::*;

/// A directory that is old enough for another change to show, with so many files.
struct Folder(tempfile::TempDir, Arc<Root>);

impl Folder {
    fn new(files: usize) -> Folder {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..files {
            std::fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        let root = Arc::new(Root::open(folder.path()).unwrap());
        let stamp = || root.open_file(b".").unwrap().stamp;
        while !shows_changes(&stamp(), SystemTime::now()) {
            std::thread::yield_now();
        }
        Folder(folder, root)
    }

    fn stamp(&self) -> Stamp {
        self.1.open_file(b".").unwrap().stamp
    }
}

/// A worker that asks.
struct Worker {
    _net: Net,
    results: Arc<OpenResults>,
    is_wanted: Arc<AtomicBool>,
}

impl Worker {
    fn new() -> Worker {
        let mechanism = drover_mech::mechanisms::auto_of_readiness().unwrap();
        let net = Net::open(&NetOptions::new(mechanism)).unwrap();
        let results = OpenResults::new(net.remote(), Key { slot: 0, generation: 1 });
        Worker { _net: net, results, is_wanted: Arc::new(AtomicBool::new(true)) }
    }

    fn ask(&self, listings: &Arc<Listings>, folder: &Folder, name: &[u8]) {
        let query = ListQuery {
            root: Arc::clone(&folder.1),
            name: name.into(),
            options: OPTIONS,
            results: Arc::clone(&self.results),
            is_wanted: Arc::clone(&self.is_wanted),
        };
        listings.begin(query).unwrap();
    }

    /// The next `count` results.
    fn take(&self, count: usize) -> Vec<io::Result<(Arc<SharedBytes>, bool)>> {
        let mut taken = Vec::new();
        while taken.len() < count {
            taken.extend(self.results.take().into_iter().map(|opened| match opened {
                Opened::Listed { result, .. } => result,
                other => panic!("{other:?}"),
            }));
            std::thread::yield_now();
        }
        assert_eq!(taken.len(), count);
        taken
    }

    fn take_one(&self) -> io::Result<(Arc<SharedBytes>, bool)> {
        self.take(1).pop().unwrap()
    }
}

const OPTIONS: ListOptions = ListOptions {
    names: ListedNames::Visible,
    noatime: false,
    valid_for: Duration::from_secs(3600),
};

fn site(listings: &Arc<Listings>) -> SiteListings {
    SiteListings { listings: Arc::clone(listings), options: OPTIONS }
}

/// Waits until so many lists wait for memory.
fn await_waiting(listings: &Listings, count: usize) {
    while listings.state().waiting.len() != count {
        std::thread::yield_now();
    }
}

#[test]
fn who_asks_at_once_gets_one_list_and_who_asks_later_the_same_until_the_directory_changes() {
    let (listings, folder, worker) = (Listings::new(1 << 20), Folder::new(3), Worker::new());
    for _ in 0..50 {
        worker.ask(&listings, &folder, b"./");
    }
    let lists: Vec<_> = worker.take(50).into_iter().map(Result::unwrap).collect();
    let first = &lists[0].0;
    let now = Instant::now();
    let site = site(&listings);
    let at_hand = |stamp: &Stamp, now| site.at_hand(&folder.1, b"./", stamp, now);
    // If the machine has paused, a list was too old for some.
    if let Some(kept) = at_hand(&folder.stamp(), now) {
        assert_eq!(kept.as_bytes(), first.as_bytes());
    }
    assert!(lists.iter().all(|(list, _)| list.as_bytes() == first.as_bytes()));
    assert!(lists.iter().filter(|(_, is_new)| *is_new).count() < 10);
    assert!(
        at_hand(&folder.stamp(), now + SHARED_FOR).is_none(),
        "it is old, though not for files"
    );
    std::fs::write(folder.0.path().join("another"), "").unwrap();
    assert!(at_hand(&folder.stamp(), now).is_none());
    worker.ask(&listings, &folder, b".//");
    let (json, is_new) = worker.take_one().unwrap();
    assert!(is_new && String::from_utf8_lossy(json.as_bytes()).contains("\"another\""));
    assert!(at_hand(&folder.stamp(), now).is_none(), "JSON is not HTML");
}

#[test]
fn a_kept_list_is_forgotten_and_is_not_kept_where_a_change_may_not_show() {
    let (listings, folder, worker) = (Listings::new(1 << 20), Folder::new(1), Worker::new());
    worker.ask(&listings, &folder, b"./");
    drop(worker.take_one().unwrap());
    let mut stamp = folder.stamp();
    let changed = UNIX_EPOCH + Duration::new(stamp.changed.0.cast_unsigned(), stamp.changed.1);
    assert!(!shows_changes(&stamp, changed + CHANGE_SHOWS_AFTER / 2));
    assert!(shows_changes(&stamp, changed + CHANGE_SHOWS_AFTER));
    stamp.changed.0 += 3600;
    assert!(!shows_changes(&stamp, SystemTime::now()), "the clock of another machine");
    listings.sweep(Instant::now() + SHARED_FOR);
    assert!(listings.state().kept.is_empty());
    assert_eq!(listings.held.load(Ordering::SeqCst), 0);
}

#[test]
fn what_has_no_room_waits_until_others_are_done() {
    let listings = Listings::new(100 << 10);
    let (large, small, worker) = (Folder::new(1000), Folder::new(1), Worker::new());
    // Larger than the share, but alone.
    worker.ask(&listings, &large, b"./");
    let (bytes, _) = worker.take_one().unwrap();
    assert!(bytes.as_bytes().len() > 50 << 10);
    worker.ask(&listings, &large, b".//");
    await_waiting(&listings, 1);
    worker.ask(&listings, &large, b".//");
    // Those who want what has room do not wait for those who do not.
    worker.ask(&listings, &small, b"./");
    assert!(worker.take_one().is_ok());
    assert!(worker.results.is_empty());
    drop(bytes);
    for result in worker.take(2) {
        assert!(result.unwrap().0.as_bytes().starts_with(b"{\"entries\":["));
    }
    listings.sweep(Instant::now() + SHARED_FOR);
    assert_eq!(listings.held.load(Ordering::SeqCst), 0);
}

#[test]
fn whoever_gives_up_leaves_nothing_behind() {
    let (listings, folder, worker) = (Listings::new(1), Folder::new(1000), Worker::new());
    worker.ask(&listings, &folder, b"./");
    let (bytes, _) = worker.take_one().unwrap();
    worker.ask(&listings, &folder, b".//");
    await_waiting(&listings, 1);
    worker.is_wanted.store(false, Ordering::SeqCst);
    listings.sweep(Instant::now());
    let gave_up = worker.take_one().unwrap_err();
    assert_eq!(gave_up.kind(), io::ErrorKind::Interrupted);
    assert!(listings.state().waiting.is_empty());
    // Nothing is read for nobody.
    worker.ask(&listings, &folder, b".//");
    assert_eq!(worker.take_one().unwrap_err().kind(), io::ErrorKind::Interrupted);
    drop(bytes);
    assert_eq!(listings.held.load(Ordering::SeqCst), 0);
}

#[test]
fn more_than_may_wait_are_turned_away() {
    let (listings, worker) = (Listings::new(1), Worker::new());
    let folders: Vec<_> = (0..=waiting::WAITING_MOST).map(|_| Folder::new(1)).collect();
    worker.ask(&listings, &folders[0], b"./");
    let held = worker.take_one().unwrap();
    for folder in &folders[1..] {
        worker.ask(&listings, folder, b"./");
    }
    await_waiting(&listings, waiting::WAITING_MOST);
    worker.ask(&listings, &folders[0], b".//");
    assert_eq!(worker.take_one().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let directory = folders[0].1.open_file(b".").unwrap();
    let now = site(&listings).list_now(&folders[0].1, b".//", &directory);
    assert_eq!(now.unwrap_err().kind(), io::ErrorKind::WouldBlock, "nobody may wait there");
    drop(held);
    // One after the other: each is given back before the next is made.
    for _ in 0..waiting::WAITING_MOST {
        assert!(worker.take_one().is_ok());
    }
}

#[test]
fn what_is_no_directory_has_no_list() {
    let (listings, folder, worker) = (Listings::new(1 << 20), Folder::new(1), Worker::new());
    for name in [&b"none/"[..], b"0/", b"0//"] {
        worker.ask(&listings, &folder, name);
        assert!(worker.take_one().is_err());
    }
    assert!(listings.state().under_way.is_empty());
}

//! Runs that are ended from outside, or that others write beside: every sibling that there is is whole.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Site, decoded, text};

/// The files of a site that takes a while.
const FILES: u64 = 30;

/// A site that takes a while: its files are compressed one after the other.
fn long_site() -> Site {
    let site = Site::new();
    for at in 0..FILES {
        site.write(&format!("{}/{at}.txt", at % 3), &text(at, 8_000));
    }
    site
}

/// A run that has written `siblings` siblings at least, or has ended.
fn begun(site: &Site, siblings: usize) -> Child {
    let mut command = site.command("--jobs 2");
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while site.siblings_now() < siblings && run.try_wait().unwrap().is_none() {
        thread::yield_now();
    }
    run
}

impl Site {
    /// How many siblings there are while a run writes more.
    fn siblings_now(&self) -> usize {
        let names = (0..3).flat_map(|folder| fs::read_dir(self.path(&folder.to_string())).unwrap());
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with('.') && !name.ends_with(".txt")).count()
    }
}

#[test]
fn a_run_that_is_asked_to_stop_leaves_whole_siblings_and_nothing_else() {
    let site = long_site();
    for (signal, siblings) in [
        (Signal::TERM, 0),
        (Signal::INT, 1),
        (Signal::HUP, 20),
        (Signal::TERM, 40),
        (Signal::INT, 70),
    ] {
        let mut run = begun(&site, siblings);
        // ESRCH: it has ended.
        let _ = kill_process(Pid::from_child(&run), signal);
        let status = run.wait().unwrap();
        // Before the handlers are there, a signal ends the process at once: nothing is written by then.
        assert!(status.code().is_none_or(|code| code < 2), "{status}");
        site.assert_whole();
    }
    site.compress("");
    assert_eq!(site.siblings().len(), FILES as usize * 3);
    site.assert_whole();
}

#[test]
fn an_interrupted_run_says_so() {
    let site = long_site();
    let mut command = site.command("--jobs 1");
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while site.siblings_now() == 0 {
        thread::yield_now();
    }
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    let mut stderr = String::new();
    std::io::Read::read_to_string(run.stderr.as_mut().unwrap(), &mut stderr).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("drover: interrupted: what is done stays"), "{stderr}");
    assert!(site.siblings().len() < FILES as usize * 3);
}

#[test]
fn what_a_killed_run_leaves_the_next_one_removes() {
    let site = long_site();
    for siblings in [0, 7, 30, 60] {
        let mut run = begun(&site, siblings);
        run.kill().unwrap();
        run.wait().unwrap();
        for name in site.siblings() {
            let (file, _) = name.rsplit_once('.').unwrap();
            let bytes = decoded(&site.path(&name)).expect(&name);
            assert!(bytes == site.read(file), "{name} is half done");
        }
    }
    site.write("1/.drover-compress-0123456789abcdef.tmp", b"half");
    site.compress("");
    assert_eq!(site.siblings().len(), FILES as usize * 3);
    site.assert_whole();
}

/// A version of a file that says itself which one it is.
fn version(seed: u64) -> Vec<u8> {
    [format!("{seed:08}").into_bytes(), text(seed, 150_000)].concat()
}

/// No sibling mixes two versions of its file, and one that has the time of its file has the version that is there.
#[test]
fn files_that_change_meanwhile_get_no_siblings_of_mixed_or_old_bytes() {
    let site = Site::new();
    let names = ["a.txt", "b.txt"];
    names.iter().for_each(|name| site.write(name, &version(0)));
    let (is_over, mut told) = (AtomicBool::new(false), Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            let files =
                names.map(|it| fs::File::options().write(true).open(site.path(it)).unwrap());
            let mut seed = 1;
            while !is_over.load(Ordering::Relaxed) {
                files.iter().for_each(|file| file.write_all_at(&version(seed), 0).unwrap());
                seed += 1;
            }
        });
        // No assertion before the writer is told to end, which the scope waits for.
        told.extend((0..3).map(|_| site.run("--level fast")));
        is_over.store(true, Ordering::Relaxed);
    });
    for told in told {
        let is_told = told.stderr.contains("changes while it is read");
        assert!(told.status == Some(0) || told.status == Some(1) && is_told, "{told:?}");
    }
    for name in site.siblings() {
        let (file, _) = name.rsplit_once('.').unwrap();
        let bytes = decoded(&site.path(&name)).unwrap();
        let seed = std::str::from_utf8(&bytes[..8]).unwrap().parse().unwrap();
        assert!(bytes == version(seed), "{name} is a mixture");
        let time = |name: &str| site.metadata(name).modified().unwrap();
        assert!(time(&name) != time(file) || bytes == site.read(file), "{name} is old");
    }
    site.compress("");
    assert_eq!(site.siblings().len(), 6);
    site.assert_whole();
}

//! A server takes no more memory than its cgroup allows, by its defaults.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{Client, Server, Site};

/// A cgroup with a limit of memory. It is removed when the test ends.
struct Cgroup(PathBuf);

impl Cgroup {
    /// A group with `limit` bytes, by either version of cgroups.
    fn new(limit: u64) -> Result<Cgroup, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("drover-test-{}-{number}", std::process::id());
        let hierarchies =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        let mut refused = "no hierarchy of cgroups is mounted".to_owned();
        for (hierarchy, file) in hierarchies {
            let path = Path::new(hierarchy).join(&name);
            if let Err(error) = fs::create_dir(&path) {
                refused = format!("{hierarchy}: {error}");
                continue;
            }
            let group = Cgroup(path);
            match fs::OpenOptions::new().write(true).open(group.0.join(file)) {
                Ok(_) => {
                    fs::write(group.0.join(file), limit.to_string()).unwrap();
                    return Ok(group);
                }
                Err(error) => refused = format!("{hierarchy}: {file}: {error}"),
            }
        }
        Err(refused)
    }

    /// `drover serve` in the group.
    fn serve(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs"));
        command.arg(env!("CARGO_BIN_EXE_drover")).arg("serve").args(arguments);
        command.stderr(Stdio::null());
        command
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that was killed leaves its group a little later.
        while fs::remove_dir(&self.0).is_err_and(|error| error.kind() == ErrorKind::ResourceBusy) {
            std::thread::yield_now();
        }
    }
}

/// The group's limit, the length of a file, and how many names it has: all that is asked for is half as much again as the
/// limit, and no cache of 64 MiB would drop any of it.
const LIMIT: u64 = 40 << 20;
const LEN: usize = 8 << 10;
const NAMES: usize = 7_500;

/// A site with many names of one file, which the page cache has once.
fn site_of_many_names() -> Site {
    let site = Site::new();
    let file = site.file("0/0", vec![b'x'; LEN]);
    for number in 1..NAMES {
        let folder = site.path().join((number / 500).to_string());
        if number % 500 == 0 {
            fs::create_dir(&folder).unwrap();
        }
        fs::hard_link(&file, folder.join(number.to_string())).unwrap();
    }
    site
}

/// Both workers are asked for all names.
fn a_crawl_is_survived(site: &Site, flags: &[&str]) {
    let group = match Cgroup::new(LIMIT) {
        Ok(group) => group,
        Err(error) => return drover_testing::skip!("no cgroup with a limit: {error}"),
    };
    let flags = [&[site.path().to_str().unwrap(), "--workers", "2"], flags].concat();
    let server = Server::start(group.serve(&flags), 1);
    let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    for number in 0..NAMES {
        let (target, count) = (format!("/{}/{number}", number / 500), clients.len());
        let client = &mut clients[number % count];
        assert_eq!(client.get(&target).is(200).body.len(), LEN, "{target}");
    }
    for client in &mut clients {
        client.get("/0/0").is(200);
    }
}

#[test]
fn a_crawl_of_more_files_than_the_cgroup_has_memory_is_survived() {
    let site = site_of_many_names();
    a_crawl_is_survived(&site, &[]);
    a_crawl_is_survived(&site, &["--processes"]);
}

/// What is planned with is the limit, and what flags allow beyond it is told.
#[test]
fn the_limit_of_the_cgroup_is_explained_and_its_excess_told() {
    let group = match Cgroup::new(LIMIT) {
        Ok(group) => group,
        Err(error) => return drover_testing::skip!("no cgroup with a limit: {error}"),
    };
    let site = Site::new();
    let told = |flags: &[&str]| {
        let own = [site.path().to_str().unwrap(), "--workers", "2", "--listen", "127.0.0.1:0"];
        let flags = [&own[..], flags].concat();
        let output = group.serve(&flags).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{told}");
        told.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let explained = told(&["--explain", "--tuned", "off"]);
    for words in [
        "cache 5 MiB per worker, 10 MiB in all",
        "memory 40 MiB: cache 2 x 5 MiB, file reads 5 MiB, ",
        "cgroup, with those above it: 40 MiB",
    ] {
        assert!(explained.contains(words), "{words}: {explained}");
    }
    let excess = "this server may use only 40 MiB; leave --cache out";
    let explained = told(&["--explain", "--tuned", "off", "--cache", "64M"]);
    assert!(explained.contains(excess), "{explained}");
    let checked = told(&["--check", "--tuned", "off", "--cache", "64M"]);
    assert!(checked.contains(excess), "{checked}");
}

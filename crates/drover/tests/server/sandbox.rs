//! What the server gives up after its start, and that everything works without it.

use std::fs;
use std::io::BufRead;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use crate::accepting::on_every_pair;
use crate::cache::until;
use crate::harness::{PATIENCE, Server, Site, drover, on_every_mechanism, signal, usable_backends};
use crate::processes::until_replaced;

/// Whether this kernel has Landlock; if not, that is noted.
fn has_landlock() -> bool {
    let output = drover().args(["serve", "--check", "--listen", "127.0.0.1:0"]).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let has = told.contains("; sandbox: Landlock (ABI ");
    if !has {
        drover_testing::skip!("this kernel has no Landlock");
    }
    has
}

/// A server whose log can be read.
pub(crate) fn serve(root: &Path, flags: &[&str]) -> Server {
    let mut command = drover();
    command.arg("serve").arg(root).args(flags).stderr(Stdio::piped());
    Server::start(command, 1)
}

/// The line of the log that says what is in force.
pub(crate) fn told(server: &mut Server) -> String {
    let mut log = server.stderr().lines().map(Result::unwrap);
    log.find(|line| line.contains("sandbox: ")).unwrap()
}

/// A field of /proc/PID/status of every thread of a process.
pub(crate) fn of_each_thread(process: u32, field: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let value = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').split_whitespace().collect::<Vec<_>>().join(" ")
    };
    texts.map(|text| value(&text)).collect()
}

#[test]
fn the_log_tells_what_is_in_force_and_no_thread_can_gain_rights() {
    let site = Site::new();
    let root = site.path().canonicalize().unwrap();
    let beneath = format!("read-only beneath {}, ", root.display());
    let has_landlock = has_landlock();
    for (flags, expected) in [
        (&[][..], &*beneath),
        (&["--processes"], &*beneath),
        (&["--counters", "/dev/null"], ", writes nothing"),
        (&["--no-sandbox"], "sandbox: off (--no-sandbox)"),
    ] {
        let mut server = serve(site.path(), flags);
        let line = told(&mut server);
        assert!(line.contains(expected) || !has_landlock, "{flags:?}: {line}");
        for process in [vec![server.process()], server.children()].concat() {
            let threads = of_each_thread(process, "NoNewPrivs");
            assert!(threads.len() > 1 && threads.iter().all(|it| it == "1"), "{threads:?}");
        }
    }
}

#[test]
fn every_choice_of_mechanisms_serves_within() {
    let site = Site::new();
    let content: Vec<u8> = (0..300_000).map(|at| (at * 7 % 251) as u8).collect();
    site.file("large", &content);
    site.file("small", "small");
    let backends = usable_backends();
    let fetch = |server: Server, backend: &str| {
        assert_eq!(server.get("/small").is(200).text(), "small", "{backend}");
        assert!(server.get("/large").is(200).body == content, "{backend}");
        server.get("/missing").is(404);
    };
    // What the three need of the sandbox is apart, so that not every combination of them has to be tried.
    for backend in &backends {
        on_every_mechanism(|mechanism| {
            let flags = ["--files", backend, "--dispatch", mechanism.name];
            fetch(Server::on(&site, &flags), backend);
        });
    }
    on_every_pair(&site, &[], |server| fetch(server, "auto"));
}

/// `current` is a link to `releases/1`; 2 and 3 come while the server runs.
#[test]
fn a_release_that_a_link_leads_to_later_is_served_on_every_mechanism() {
    on_every_mechanism(|mechanism| {
        for flags in [&[][..], &["--processes", "--workers", "3"], &["--revalidate", "inotify,0s"]]
        {
            let site = Site::new();
            let current = site.path().join("current");
            let deploy = |release: &str| {
                site.file(&format!("releases/{release}/public/small"), release);
                site.file(&format!("releases/{release}/public/large"), release.repeat(100_000));
                symlink(format!("releases/{release}"), site.path().join("next")).unwrap();
                fs::rename(site.path().join("next"), &current).unwrap();
            };
            deploy("1");
            let own = ["--dispatch", mechanism.name, "--revalidate", "0s"];
            let own = if flags.contains(&"--revalidate") { &own[..2] } else { &own[..] };
            let server = serve(&current.join("public"), &[own, flags].concat());
            for release in ["1", "2"] {
                deploy(release);
                let mut client = server.connect();
                until(&mut client, "/small", Some(release.as_bytes()));
                until(&mut client, "/large", Some(release.repeat(100_000).as_bytes()));
            }
            // Whoever takes the place of a dead worker finds its way too.
            deploy("3");
            let count = server.children().len();
            for worker in server.children() {
                signal("KILL", worker);
                until_replaced(&server, worker, count);
            }
            until(&mut server.connect(), "/large", Some("3".repeat(100_000).as_bytes()));
        }
    });
}

/// Another directory takes the name of the root: by rename(2), or by being made anew as a build does it. The sandbox keeps it from
/// the workers, which have their supervisor start others.
#[test]
fn a_root_that_another_directory_takes_the_place_of_is_served_on_every_mechanism() {
    on_every_mechanism(|mechanism| {
        for flags in [&[][..], &["--processes", "--workers", "2"], &["--no-sandbox"]] {
            let site = Site::new();
            let at = |name: &str| site.path().join(name);
            site.file("root/a", "before");
            site.file("new/a", "after");
            let own = ["--dispatch", mechanism.name, "--revalidate", "0s"];
            let server = serve(&at("root"), &[&own, flags].concat());
            assert_eq!(server.get("/a").is(200).text(), "before");
            fs::rename(at("root"), at("old")).unwrap();
            fs::rename(at("new"), at("root")).unwrap();
            until_fresh(&server, "after");
            fs::remove_dir_all(at("root")).unwrap();
            site.file("root/a", "built again");
            until_fresh(&server, "built again");
        }
    });
}

/// Asks on connections of their own until the answer is this: the workers of before close theirs at some time.
fn until_fresh(server: &Server, text: &str) {
    let since = std::time::Instant::now();
    loop {
        let response = server.get("/a");
        if response.status == 200 && response.text() == text {
            return;
        }
        assert!(since.elapsed() < PATIENCE, "{} in place of {text}", response.text());
    }
}

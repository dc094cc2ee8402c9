//! `--user`: what a server of root is when it serves.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::accepting::on_every_pair;
use crate::harness::{PATIENCE, Server, Site, drover, signal, usable_backends};
use crate::processes::until_replaced;
use crate::sandbox::of_each_thread;

/// Numbers that no machine gives to anybody.
const USER: &str = "4000000:4000001";

/// Whether another user can be assumed; if not, that is noted.
fn is_root() -> bool {
    let is_root = drover_sys::process::is_root();
    if !is_root {
        drover_testing::skip!("only root can become another user");
    }
    is_root
}

/// A site that every user can read.
fn public() -> Site {
    let site = Site::new();
    fs::set_permissions(site.path(), Permissions::from_mode(0o755)).unwrap();
    site.file("small", "small");
    site.file("large", vec![7; 300_000]);
    site
}

#[track_caller]
fn is_the_user(process: u32) {
    for (field, expected) in [
        ("Uid", "4000000 4000000 4000000 4000000"),
        ("Gid", "4000001 4000001 4000001 4000001"),
        ("Groups", "4000001"),
        ("CapPrm", "0000000000000000"),
        ("CapEff", "0000000000000000"),
        ("NoNewPrivs", "1"),
    ] {
        // One that has just been started is root until it is about to accept connections.
        let since = std::time::Instant::now();
        loop {
            let threads = of_each_thread(process, field);
            if !threads.is_empty() && threads.iter().all(|it| it == expected) {
                break;
            }
            assert!(since.elapsed() < PATIENCE, "{field} {threads:?}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn root_becomes_the_user_for_good_with_all_threads_and_workers() {
    if !is_root() {
        return;
    }
    let site = public();
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(4_000_000), None).unwrap();
    for (flags, sandbox) in
        [(&[][..], &[][..]), (&["--processes"], &[]), (&["--processes"], &["--no-sandbox"])]
    {
        let log = folder.path().join("log");
        let own = ["--user", USER, "--workers", "3", "--access-log", log.to_str().unwrap()];
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(own).args(flags).args(sandbox);
        command.stderr(Stdio::piped());
        let mut server = Server::start(command, 1);
        assert_eq!(server.get("/small").is(200).text(), "small");
        let workers = server.children();
        for &worker in &workers {
            is_the_user(worker);
            signal("KILL", worker);
            until_replaced(&server, worker, workers.len());
        }
        assert!(of_each_thread(server.process(), "Uid").iter().all(|it| it == "0 0 0 0"));
        assert_eq!(server.get("/large").is(200).length(), 300_000);
        server.children().into_iter().for_each(is_the_user);
        server.terminate();
        let mut told = String::new();
        server.stderr().read_to_string(&mut told).unwrap();
        assert!(told.contains(&format!("user {USER} (4000000:4000001)")), "{told}");
        // What a killed worker has not handed over is lost.
        let lines = fs::read_to_string(&log).unwrap();
        assert!(lines.contains("GET /large"), "{lines}");
        // So that it can be opened again, whoever does that.
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata(&log).unwrap()), 4_000_000);
        fs::remove_file(&log).unwrap();
    }
}

#[test]
fn every_choice_of_mechanisms_serves_as_the_user() {
    if !is_root() {
        return;
    }
    let site = public();
    for processes in [&[][..], &["--processes"]] {
        on_every_pair(&site, &[&["--user", USER], processes].concat(), |server| {
            assert_eq!(server.get("/small").is(200).text(), "small");
        });
    }
    for backend in usable_backends() {
        let server = Server::on(&site, &["--user", USER, "--files", backend]);
        assert!(server.get("/large").is(200).body == [7; 300_000], "{backend}");
    }
}

#[test]
fn a_name_stands_for_the_user_with_the_groups_that_it_has() {
    if !is_root() {
        return;
    }
    let site = public();
    let server = Server::on(&site, &["--user", "nobody"]);
    let output = Command::new("id").args(["-G", "nobody"]).output().unwrap();
    let mut groups: Vec<_> = output.stdout.split(|byte| byte.is_ascii_whitespace()).collect();
    groups.retain(|group| !group.is_empty());
    groups.sort_unstable();
    let told = of_each_thread(server.worker_process(), "Groups").remove(0);
    let mut own: Vec<_> = told.split(' ').map(str::as_bytes).collect();
    own.sort_unstable();
    assert_eq!(own, groups);
}

#[test]
fn a_root_that_the_user_cannot_look_into_is_told_at_the_start() {
    if !is_root() {
        return;
    }
    let site = Site::new();
    fs::set_permissions(site.path(), Permissions::from_mode(0o700)).unwrap();
    for processes in [&[][..], &["--processes"]] {
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(["--user", USER, "--listen", "127.0.0.1:0"]);
        let output = command.args(processes).stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), told.lines().count()), (Some(1), 1), "{told}");
        for part in ["--user", "cannot look into", "Permission denied"] {
            assert!(told.contains(part), "{told}");
        }
    }
}

#[test]
fn who_is_not_root_is_told_so_unless_nothing_changes() {
    let site = public();
    let run = |user: &str| {
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(["--check", "--listen", "127.0.0.1:0"]);
        command.args(["--user", user]).current_dir("/").stderr(Stdio::piped());
        if drover_sys::process::is_root() {
            command.uid(4_000_000).gid(4_000_001);
        }
        command.output()
    };
    // The way to the program may be closed to others.
    let Ok(output) = run("nobody") else {
        return drover_testing::skip!("only root can run the program");
    };
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("--user nobody") && told.contains("only root"), "{told}");
    if drover_sys::process::is_root() {
        let output = run(USER).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

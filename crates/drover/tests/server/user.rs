//! `--user`: what a server of root is when it serves.

use std::cell::Cell;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::accepting::on_every_pair;
use crate::access_log::until_all_write;
use crate::harness::{PATIENCE, Server, Site, drover, once, signal, usable_backends};
use crate::processes::until_replaced;
use crate::reloading::Configured;
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
    chown(folder.path(), Some(4_000_000), None).unwrap();
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
        assert_eq!(fs::metadata(&log).unwrap().uid(), 4_000_000);
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

/// A folder that the user may write, as folders of logs often are.
fn folder_of_user() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(4_000_000), Some(4_000_001)).unwrap();
    folder
}

/// A `drover serve` of the user that writes a file.
fn writing(site: &Site, flag: &str, file: &Path) -> Command {
    let mut command = drover();
    command.arg("serve").arg(site.path()).args(["--user", USER, "--listen", "127.0.0.1:0"]);
    // What --record-events needs.
    command.args(["--workers", "1", "--dispatch", "epoll"]).arg(flag).arg(file);
    command.stderr(Stdio::piped());
    command
}

/// The flags whose files are open as long as the server runs. `--counters` makes another file each time.
const OPEN: [&str; 3] = ["--access-log", "--trace", "--record-events"];

#[test]
fn files_that_are_written_belong_to_the_user() {
    if !is_root() {
        return;
    }
    let (site, folder) = (public(), folder_of_user());
    for flag in [&OPEN[..], &["--counters"]].concat() {
        let file = folder.path().join(flag);
        let mut server = Server::try_start(&mut writing(&site, flag, &file), 1).unwrap();
        server.get("/small").is(200);
        server.terminate();
        assert!(server.exit_status().success(), "{flag}");
        let found = fs::symlink_metadata(&file).unwrap();
        assert!(found.is_file() && found.len() > 0, "{flag}");
        assert_eq!((found.uid(), found.gid()), (4_000_000, 4_000_001), "{flag}");
    }
}

/// Root may write to the file that the link leads to, and the user may not: the link is not followed with the rights of root.
#[test]
fn a_link_in_a_folder_of_the_user_has_root_write_nothing() {
    if !is_root() {
        return;
    }
    let (site, of_root) = (public(), Site::new());
    fs::set_permissions(of_root.path(), Permissions::from_mode(0o755)).unwrap();
    let precious = of_root.file("precious", "precious");
    fs::set_permissions(&precious, Permissions::from_mode(0o600)).unwrap();
    let is_untouched = || {
        let found = fs::metadata(&precious).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (0, 0o600));
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    };
    for (owner, reason) in [(4_000_000, "symbolic link of user 4000000"), (0, "Permission denied")]
    {
        let folder = folder_of_user();
        let link = |name: &str| {
            let link = folder.path().join(name);
            symlink(&precious, &link).unwrap();
            lchown(&link, Some(owner), None).unwrap();
            link
        };
        let file = link("file");
        for flag in OPEN {
            for check in [&[][..], &["--check"]] {
                let mut command = writing(&site, flag, &file);
                let told = Server::try_start(command.args(check), 1).err().unwrap();
                assert!(told.contains(flag) && told.contains(reason), "{owner}: {told}");
                is_untouched();
            }
        }
        // Counters are written to a new file with the rights of the user, and that file takes the place of the link.
        link("file.new");
        let mut server = Server::try_start(&mut writing(&site, "--counters", &file), 1).unwrap();
        server.terminate();
        assert!(server.exit_status().success());
        let found = fs::symlink_metadata(&file).unwrap();
        assert!(found.is_file() && found.uid() == 4_000_000, "{found:?}");
        is_untouched();
    }
}

/// The user may write in the folder of the log, and cannot read that of the configuration.
#[test]
fn the_log_goes_on_when_root_reads_the_configuration_again() {
    if !is_root() {
        return;
    }
    let site = public();
    for processes in [&[][..], &["--processes"]] {
        let folder = folder_of_user();
        let real = folder.path().canonicalize().unwrap();
        let (log, old) = (real.join("log"), |round: usize| real.join(format!("old{round}")));
        let flags = ["--user", USER, "--workers", "2", "--access-log", log.to_str().unwrap()];
        let settings = |round| format!("header = ['* X-Round: {round}']\n");
        let mut configured =
            Configured::start(&site, &[&flags[..], processes].concat(), &settings(0));
        // The last request of the test counts too.
        let asked = Cell::new(1);
        // Workers of before accept connections for a moment.
        let ask = |server: &Server, round: usize| {
            once("an answer of the new workers", || {
                asked.set(asked.get() + 1);
                let response = server.get(&format!("/small?{round}")).is(200);
                (response.field("X-Round") == Some(&round.to_string())).then_some(())
            });
        };
        ask(&configured.server, 0);
        for round in 1..3 {
            fs::rename(&log, old(round - 1)).unwrap();
            configured.set(&settings(round));
            ask(&configured.server, round);
        }
        fs::rename(&log, old(2)).unwrap();
        let told = configured.reload(str::to_owned);
        assert!(told.contains("is as it was"), "{told}");
        until_all_write(&configured.server, &log, &old(2));
        configured.server.get("/small?last").is(200);
        configured.stops_in_good_order();
        let files = [old(0), old(1), old(2), log];
        files.iter().for_each(|it| assert_eq!(fs::metadata(it).unwrap().uid(), 4_000_000));
        let texts = files.map(|it| fs::read_to_string(it).unwrap());
        assert!(texts[3].contains("GET /small?last "), "{texts:?}");
        let lines = texts.iter().map(|text| text.lines().count()).sum::<usize>();
        assert_eq!(lines, asked.get(), "{texts:?}");
    }
}

/// The user puts a link in the place of the log, and waits for the next SIGHUP.
#[test]
fn a_link_in_place_of_the_log_is_not_followed_at_a_reload_either() {
    if !is_root() {
        return;
    }
    let (site, of_root, folder) = (public(), Site::new(), folder_of_user());
    fs::set_permissions(of_root.path(), Permissions::from_mode(0o755)).unwrap();
    // The user may write to it, and root says where the log is.
    let precious = of_root.file("precious", "precious\n");
    fs::set_permissions(&precious, Permissions::from_mode(0o666)).unwrap();
    let at = |name: &str| folder.path().join(name);
    let log = at("log");
    let flags = ["--user", USER, "--access-log", log.to_str().unwrap()];
    let mut configured = Configured::start(&site, &flags, "header = ['* X-Round: 0']\n");
    configured.server.get("/small").is(200);
    fs::rename(&log, at("old")).unwrap();
    symlink(&precious, &log).unwrap();
    lchown(&log, Some(4_000_000), None).unwrap();
    let told = configured.reload(|text| text.replace("Round: 0", "Round: 1"));
    for part in ["still writing to the old file", "cannot reload: ", "link of user 4000000"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let answer = configured.server.get("/small").is(200);
    assert_eq!(answer.field("X-Round"), Some("0"));
    configured.stops_in_good_order();
    assert_eq!(fs::read_to_string(at("old")).unwrap().lines().count(), 2);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious\n");
}

//! The server's own files are never served: it does not start with one of them beneath a directory that it serves.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Server, Site, once};
use crate::reloading::Configured;

/// The flags that name files of the server, but for `--config`, which has more to say.
const FLAGS: [&str; 5] = ["--access-log", "--counters", "--trace", "--record-events", "--auth"];

/// Of "open sesame", as crypt(3) makes it.
const USERS: &str = "ann:$2y$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy\n";

/// What `drover serve` says to these arguments, which it must refuse.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--workers", "1"]).args(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The first line comes when it serves; if it is refused, there is none.
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let serves = line.starts_with("listening");
    if serves {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(!serves, "{arguments:?} is served");
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
    told
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn no_file_of_the_server_lies_beneath_a_root_of_any_host() {
    let sites = [(); 3].map(|()| Site::new());
    let outside = tempfile::tempdir().unwrap();
    symlink(sites[0].path(), outside.path().join("current")).unwrap();
    let [first, second] =
        [1, 2].map(|number| format!("{number}.test={}", text(sites[number].path())));
    let hosts = ["--host", &first, "--host", &second];
    let root = text(sites[0].path());
    for site in &sites {
        site.file("folder/.hidden", USERS);
        for name in ["folder/.hidden", "file"] {
            site.file("file", USERS);
            let file = site.path().join(name);
            for flag in FLAGS {
                for check in [&[][..], &["--check"]] {
                    let told = refused(&[&[root, flag, text(&file)], &hosts[..], check].concat());
                    assert!(told.contains(flag) && told.contains("is served; move it"), "{told}");
                }
            }
            // A file that would be made there.
            fs::remove_file(site.path().join(name)).unwrap();
            let told = refused(&[&[root, "--trace", text(&file)], &hosts[..]].concat());
            assert!(told.contains("--trace") && told.contains("is served"), "{told}");
            site.file("folder/.hidden", USERS);
        }
        let config = site.file("drover.toml", "workers = 1\nroot = '/var/empty'\n");
        let told = refused(&[&[root, "--config", text(&config)], &hosts[..]].concat());
        assert!(told.contains("--config") && told.contains("is served"), "{told}");
        fs::remove_file(config).unwrap();
    }
    let by_link = outside.path().join("current/log");
    assert!(refused(&[root, "--access-log", text(&by_link)]).contains("--access-log"));
    assert!(!by_link.exists());
}

#[test]
fn files_of_the_server_beside_its_roots_are_fine() {
    let site = Site::new();
    site.file("www/index.html", "index");
    let at = |name: &str| site.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("users"), USERS).unwrap();
    let config = format!("root = '{}'\nlisten = '127.0.0.1:0'\nworkers = 1\n", at("www"));
    fs::write(at("drover.toml"), config).unwrap();
    let mut command = crate::harness::drover();
    command.args(["serve", "--config", &at("drover.toml"), "--auth", &at("users")]);
    command.args(["--access-log", &at("www.log"), "--counters", "/dev/null"]);
    Server::start(command, 1).get("/").is(401);
}

/// A site with a file of the server's beneath it, and what its configuration may change to.
#[test]
fn a_reload_serves_no_file_of_the_server_either() {
    let site = Site::new();
    site.file("a", "hello");
    let users = site.file("folder/users", USERS);
    let log = site.path().join("log");
    let logs = tempfile::tempdir().unwrap();
    let host = |root: &Path| format!("[[host]]\nname = 'a.test'\nroot = '{}'\n", root.display());
    for processes in [&[][..], &["--processes"]] {
        let mut configured = Configured::start(&site, processes, "workers = 1\n");
        let outside = format!("access-log = '{}'\n", logs.path().join("log").display());
        for (flag, settings) in [
            ("--access-log", format!("access-log = '{}'\n", log.display())),
            ("--access-log", outside.clone() + &host(logs.path())),
            ("--counters", format!("counters = '{}'\n", log.display())),
            ("--auth", format!("auth = '{}'\n", users.display())),
            ("--config", host(configured.folder.path())),
        ] {
            let told = configured.reload(|text| text.to_owned() + &settings);
            for part in ["cannot reload: ", flag, "is served; move it", "serving as before"] {
                assert!(told.contains(part), "{settings}: {told}");
            }
            assert_eq!(configured.server.get("/a").is(200).text(), "hello");
            configured.server.get("/log").is(404);
            assert!(!log.exists(), "{settings}");
            let told = configured.reload(|text| text.replace(&settings, ""));
            assert!(told.contains("is as it was"), "{told}");
        }
        configured.set(&outside);
        configured.stops_in_good_order();
    }
}

/// The path of ROOT is a link, as releases have it: what it leads to next holds the access log.
#[test]
fn a_root_that_is_replaced_serves_no_file_of_the_server_either() {
    let site = Site::new();
    for release in ["1", "2", "3"] {
        site.file(&format!("{release}/a"), release);
    }
    let log = site.path().join("2/log");
    let current = site.path().join("current");
    let lead_to = |release: &str| {
        let next = site.path().join("next");
        symlink(release, &next).unwrap();
        fs::rename(next, &current).unwrap();
    };
    for processes in [&[][..], &["--processes"]] {
        lead_to("1");
        let mut command = crate::harness::drover();
        command.arg("serve").arg(&current).args(["--revalidate", "0s", "--access-log"]).arg(&log);
        let mut server = Server::start(
            {
                command.args(processes).stderr(Stdio::piped());
                command
            },
            1,
        );
        let mut told = server.stderr().lines().map(Result::unwrap);
        assert_eq!(server.get("/a").is(200).text(), "1");
        lead_to("2");
        // A worker finds that when it is asked for something.
        server.get("/a").is(200);
        let line = told.find(|line| line.contains("is another directory now")).unwrap();
        for part in ["not served: --access-log", "is served; move it"] {
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(server.get("/a").is(200).text(), "1");
        server.get("/log").is(404);
        lead_to("3");
        once("the next release", || (server.get("/a").is(200).text() == "3").then_some(()));
    }
}

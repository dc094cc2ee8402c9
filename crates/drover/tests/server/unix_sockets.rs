//! `--listen unix:PATH`: a server at a path, on every mechanism and strategy.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use drover_mech::accept;
use drover_mech::mechanisms;
use tempfile::TempDir;

use crate::harness::{
    PATIENCE, Server, Site, drover, figure, on_every_mechanism, request, signal, usable_backends,
};

/// A folder with room for a socket.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("socket")
    }

    /// The value of `--listen`.
    fn listen(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// A server at the path and at a TCP port.
    fn serve(&self, site: &Site, flags: &[&str]) -> Server {
        Server::start(self.command(site, flags), 1)
    }

    fn command(&self, site: &Site, flags: &[&str]) -> Command {
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(["--listen", "127.0.0.1:0", "--listen"]);
        // Clients at the path speak no TLS, whatever is spoken at the port.
        command.arg(self.listen() + ",plain").args(flags);
        command
    }
}

fn site() -> Site {
    let site = Site::new();
    site.file("a", "hello");
    site.file("long", vec![b'l'; 3_000_000]);
    site
}

pub(crate) fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What a server sends to a request that closes the connection.
#[track_caller]
fn get(path: &Path, target: &str) -> String {
    let mut stream = connect(path);
    stream.write_all(request("GET", target, &["Connection: close"]).as_bytes()).unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    told
}

#[track_caller]
pub(crate) fn is_served(path: &Path) {
    let told = get(path, "/a");
    assert!(told.starts_with("HTTP/1.1 200 ") && told.ends_with("\r\n\r\nhello"), "{told}");
}

#[test]
fn a_path_is_served_by_every_mechanism_and_strategy() {
    let site = site();
    on_every_mechanism(|mechanism| {
        let strategies = accept::ALL.iter().filter(|it| it.goes_with(mechanism).is_ok());
        for accept in strategies.map(|it| it.name).filter(|it| *it != "reuseport").chain(["auto"]) {
            for processes in [&[][..], &["--processes"]] {
                let folder = Folder::new();
                let flags = ["--dispatch", mechanism.name, "--accept", accept, "--workers", "2"];
                let mut server = folder.serve(&site, &[&flags[..], processes].concat());
                server.get("/a").is(200);
                (0..4).for_each(|_| is_served(&folder.socket()));
                let long = get(&folder.socket(), "/long");
                assert!(long.len() > 3_000_000 && long.ends_with(&"l".repeat(3_000_000)));
                server.terminate();
                assert!(server.exit_status().success());
            }
        }
    });
}

#[test]
fn files_of_any_size_come_by_every_backend_and_a_client_that_goes_is_no_fault() {
    let site = site();
    for backend in usable_backends() {
        let folder = Folder::new();
        let mut command = folder.command(&site, &["--files", backend]);
        command.stderr(Stdio::piped());
        let mut server = Server::start(command, 1);
        assert!(get(&folder.socket(), "/long").ends_with(&"l".repeat(3_000_000)), "{backend}");
        let mut leaves = connect(&folder.socket());
        leaves.write_all(request("GET", "/long", &[]).as_bytes()).unwrap();
        leaves.read_exact(&mut [0; 1000]).unwrap();
        drop(leaves);
        is_served(&folder.socket());
        server.terminate();
        let mut log = String::new();
        server.stderr().read_to_string(&mut log).unwrap();
        assert!(!log.contains("cannot read"), "{backend}: {log}");
        assert_eq!(figure(&log, "connections"), 3, "{backend}: {log}");
    }
}

#[test]
fn the_file_has_its_mode_and_one_of_a_server_that_is_gone_is_replaced() {
    let site = site();
    for (option, mode) in [("", 0o660), (",mode=0600", 0o600), (",mode=0666", 0o666)] {
        let folder = Folder::new();
        drop(UnixListener::bind(folder.socket()).unwrap());
        let listen = folder.listen() + option;
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(["-p", "127.0.0.1:0", "-p", &listen]);
        let mut server = Server::start_as_it_is(command, 1);
        let found = fs::metadata(folder.socket()).unwrap();
        assert!(found.file_type().is_socket());
        assert_eq!(found.mode() & 0o7777, mode);
        is_served(&folder.socket());
        server.kill();
        server.exit_status();
        // The kernel takes a ring apart when its process has ended already, and with it the socket.
        while UnixStream::connect(folder.socket()).is_ok() {}
        let _next = folder.serve(&site, &[]);
        is_served(&folder.socket());
    }
}

/// The umask takes bits from the file that bind(2) makes.
#[test]
fn the_mode_of_the_file_does_not_depend_on_the_umask() {
    let site = site();
    for umask in ["0027", "0777"] {
        for (option, mode) in
            [("", 0o660), (",mode=0600", 0o600), (",mode=0666", 0o666), (",mode=0622", 0o622)]
        {
            let folder = Folder::new();
            let mut command = Command::new("sh");
            command.stderr(Stdio::null()).args(["-c", "umask \"$0\"; exec \"$@\"", umask]);
            command.args([env!("CARGO_BIN_EXE_drover"), "serve"]).arg(site.path());
            command.args(["-p", "127.0.0.1:0", "-p", &(folder.listen() + option)]);
            let _server = Server::start_as_it_is(command, 1);
            let found = fs::metadata(folder.socket()).unwrap().mode() & 0o7777;
            assert_eq!(found, mode, "{umask}: {found:o} {mode:o}");
            is_served(&folder.socket());
        }
    }
}

/// Neither to a file, nor to a socket that a server has left behind, nor to nothing.
#[test]
fn a_link_at_the_path_is_not_followed() {
    let (site, folder) = (site(), Folder::new());
    let at = |name: &str| folder.0.path().join(name);
    fs::write(at("file"), "keep").unwrap();
    drop(UnixListener::bind(at("stale")).unwrap());
    let mode = |name: &str| fs::metadata(at(name)).unwrap().mode();
    for name in ["file", "stale"] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let before = ["file", "stale"].map(mode);
    for target in ["file", "stale", "nothing"] {
        symlink(target, folder.socket()).unwrap();
        for check in [&[][..], &["--check"]] {
            let mut command = folder.command(&site, &[&["--workers", "1"], check].concat());
            let told = Server::try_start(command.stderr(Stdio::piped()), 1).err().unwrap();
            assert!(told.contains("no socket") && told.contains(&folder.listen()), "{told}");
        }
        assert_eq!(fs::read_link(folder.socket()).unwrap(), Path::new(target));
        fs::remove_file(folder.socket()).unwrap();
    }
    assert_eq!(["file", "stale"].map(mode), before);
    assert!(!at("nothing").exists());
}

#[test]
fn a_server_that_lives_keeps_its_path_and_other_files_stay() {
    let (site, folder) = (site(), Folder::new());
    let cannot_start = |flags: &[&str], check: &[&str]| {
        let mut command = folder.command(&site, &[flags, check].concat());
        let output = command.stderr(Stdio::piped()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let server = folder.serve(&site, &[]);
    for check in [&[][..], &["--check"]] {
        let told = cannot_start(&[], check);
        assert!(told.contains("a server listens there") && told.contains("--take-over"), "{told}");
    }
    is_served(&folder.socket());
    drop(server);
    fs::remove_file(folder.socket()).unwrap();
    fs::write(folder.socket(), "keep").unwrap();
    let told = cannot_start(&[], &[]);
    assert!(told.contains("no socket") && told.contains(&folder.listen()), "{told}");
    assert_eq!(fs::read(folder.socket()).unwrap(), b"keep");
    fs::remove_file(folder.socket()).unwrap();
    let told =
        cannot_start(&["--accept", "reuseport", "--dispatch", "epoll", "--workers", "2"], &[]);
    assert!(told.contains("--accept shared or exclusive"), "{told}");
    let told = cannot_start(&["--listen", "unix:/nowhere/socket"], &["--check"]);
    assert!(told.contains("'/nowhere'"), "{told}");
    for wrong in ["unix:", "unix:/a,mode=9", "unix:/a,owner=b"] {
        assert!(cannot_start(&["--listen", wrong], &[]).contains("unix"), "{wrong}");
    }
}

#[test]
fn a_check_makes_no_socket() {
    let (site, folder) = (site(), Folder::new());
    let output = folder.command(&site, &["--check"]).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && told.contains(&format!(", {}: ", folder.listen())),
        "{told}"
    );
    assert!(!folder.socket().exists());
}

/// A worker alone has every strategy, since it shares its socket with nobody.
#[test]
fn the_start_and_the_status_name_the_path_and_the_access_log_the_client() {
    let (site, folder) = (site(), Folder::new());
    for form in ["combined", "json"] {
        let log = folder.0.path().join(form);
        let flags = ["--accept", "reuseport", "--admin", "127.0.0.1:0", "--max-per-address", "1"];
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(["--listen", &folder.listen()]).args(flags);
        command.args(["--workers", "1", "--log-format", form]).arg("--access-log").arg(&log);
        command.stdout(Stdio::piped());
        let mut server = Server::start_as_it_is(command, 0);
        let told = server.line_of_stdout();
        assert_eq!(told, format!("listening on {}\n", folder.listen()));
        let admin = server.admin_address();
        let status = crate::harness::Client::connect(admin).get("/status.json").is(200);
        assert!(status.text().contains(&folder.listen()), "{}", status.text());
        let page = crate::harness::Client::connect(admin).get("/status").is(200);
        assert!(page.text().contains(&folder.listen()), "{}", page.text());
        // Clients without an address are not counted by it.
        let _idle = connect(&folder.socket());
        is_served(&folder.socket());
        server.terminate();
        assert!(server.exit_status().success());
        let line = fs::read_to_string(&log).unwrap();
        let client = ["unix: - - [", "\"client\":\"unix:\""];
        assert!(client.iter().any(|it| line.contains(it)), "{line}");
    }
}

#[test]
fn the_file_belongs_to_the_user_that_root_becomes() {
    if !drover_sys::process::is_root() {
        return drover_testing::skip!("only root can become another user");
    }
    let (site, folder) = (site(), Folder::new());
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for processes in [&[][..], &["--processes"]] {
        let flags = [&["--user", "4000000:4000001"], processes].concat();
        let mut server = folder.serve(&site, &flags);
        let found = fs::metadata(folder.socket()).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (4_000_000, 4_000_001, 0o660));
        is_served(&folder.socket());
        server.terminate();
        assert!(server.exit_status().success());
    }
}

#[test]
fn curl_reaches_it() {
    let (site, folder) = (site(), Folder::new());
    let _server = folder.serve(&site, &[]);
    let mut curl = Command::new("curl");
    curl.args(["-s", "http://localhost/a", "--unix-socket"]).arg(folder.socket());
    match curl.output() {
        Ok(output) => assert_eq!(output.stdout, b"hello"),
        Err(_) => drover_testing::skip!("curl is not installed"),
    }
}

#[test]
fn reloads_and_successors_go_on_with_the_socket() {
    let site = site();
    let usable = mechanisms::ALL.iter().filter(|it| it.probe().is_ok());
    let usable: Vec<_> = usable.map(|it| it.name).collect();
    for processes in [false, true] {
        let folder = Folder::new();
        let file = folder.0.path().join("drover.toml");
        let take_over = folder.0.path().join("take-over");
        let settings = |mechanism: &str, workers: usize| {
            format!(
                "root = '{}'\nlisten = ['127.0.0.1:0', '{}']\ndispatch = '{mechanism}'\n\
                 workers = {workers}\nprocesses = {processes}\ntake-over = '{}'\n",
                site.path().display(),
                folder.listen(),
                take_over.display()
            )
        };
        let start = |mechanism, workers| {
            fs::write(&file, settings(mechanism, workers)).unwrap();
            let mut command = drover();
            command.args(["serve", "--config"]).arg(&file).stderr(Stdio::piped());
            Server::start_as_it_is(command, 1)
        };
        let mut server = start(usable[0], 1);
        let mut log = server.stderr();
        let inode = fs::metadata(folder.socket()).unwrap().ino();
        let mut kept = connect(&folder.socket());
        for (number, mechanism) in usable.iter().enumerate() {
            fs::write(&file, settings(mechanism, 3 - number % 3)).unwrap();
            if number > 0 || usable.len() == 1 {
                signal("HUP", server.process());
                let mut told = String::new();
                while !told.contains("reloaded: ") && !told.contains("as it was") {
                    use std::io::BufRead;
                    assert!(log.read_line(&mut told).unwrap() > 0, "{told}");
                    assert!(!told.contains("cannot reload"), "{told}");
                }
            }
            (0..4).for_each(|_| is_served(&folder.socket()));
        }
        let mut next = start(usable[usable.len() - 1], 2);
        (0..4).for_each(|_| is_served(&folder.socket()));
        assert_eq!(fs::metadata(folder.socket()).unwrap().ino(), inode);
        kept.write_all(request("GET", "/a", &[]).as_bytes()).unwrap();
        let mut told = String::new();
        kept.read_to_string(&mut told).unwrap();
        assert!(told.ends_with("hello"), "{told}");
        let mut rest = String::new();
        log.read_to_string(&mut rest).unwrap();
        assert!(server.exit_status().success(), "{rest}");
        is_served(&folder.socket());
        next.terminate();
        assert!(next.exit_status().success());
    }
}

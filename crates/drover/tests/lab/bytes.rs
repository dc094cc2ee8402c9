//! Folders whose names are not UTF-8: what reads sessions works there, and what starts servers there is refused.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::{DROVER, output, session, text, write_experiment};

/// A name that is not UTF-8.
fn name() -> &'static OsStr {
    OsStr::from_bytes(b"lab\xff")
}

/// A folder of that name in `folder`.
fn unnameable(folder: &Path) -> PathBuf {
    let path = folder.join(name());
    fs::create_dir(&path).unwrap();
    path
}

fn drover(folder: &Path, args: &[&OsStr]) -> Output {
    Command::new(DROVER).args(args).current_dir(folder).output().unwrap()
}

#[test]
fn servers_are_not_started_where_no_text_can_name_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let bad = unnameable(folder.path());
    write_experiment(folder.path(), "small", "");
    write_experiment(&bad, "small", "");
    fs::write(bad.join("index.html"), "some bytes").unwrap();
    fs::write(bad.join("urls"), "/index.html").unwrap();
    std::os::unix::fs::symlink(&bad, folder.path().join("link")).unwrap();
    fs::create_dir(folder.path().join("files")).unwrap();
    fs::write(folder.path().join("files/index.html"), "some bytes").unwrap();
    let words = |text: &'static str| text.split(' ').map(OsStr::new).collect::<Vec<_>>();
    let in_bad = || [&words("lab run small.toml --out"), &[bad.as_os_str()][..]].concat();
    for (args, at) in [
        (in_bad(), folder.path()),
        ([&in_bad()[..], &words("--live=127.0.0.1:0")].concat(), folder.path()),
        (words("lab run small.toml --out link/inner"), folder.path()),
        // The folder of the process itself.
        (words("lab run small.toml"), &bad),
        ([&words("lab run small.toml --pools"), &[name()][..]].concat(), folder.path()),
        ([&words("lab decide --root"), &[name()][..]].concat(), folder.path()),
        ([&words("lab decide --out"), &[name()][..]].concat(), folder.path()),
        ([&words("lab versus drover --out"), &[name()][..]].concat(), folder.path()),
        ([&words("lab calibrate --out"), &[name()][..]].concat(), folder.path()),
        ([&words("tune"), &[name()][..]].concat(), folder.path()),
        (
            [&words("tune files --urls"), &[bad.join("urls").as_os_str()][..]].concat(),
            folder.path(),
        ),
    ] {
        let output = drover(at, &args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(
            stderr.contains("lab\\xFF") && stderr.contains("is not UTF-8"),
            "{args:?}: {stderr}"
        );
        assert!(!stderr.contains('\u{fffd}'), "{args:?}: {stderr}");
    }
    let left: Vec<_> =
        fs::read_dir(&bad).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "something was written: {left:?}");
}

#[test]
fn sessions_are_read_and_served_from_where_they_were_moved() {
    let folder = tempfile::tempdir().unwrap();
    write_experiment(folder.path(), "small", "");
    let made = output(folder.path(), &["run", "small.toml", "--repeats", "1"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let name = session(folder.path()).file_name().unwrap().to_owned();
    let bad = folder.path().join("moved").join(self::name());
    fs::create_dir(folder.path().join("moved")).unwrap();
    fs::rename(folder.path().join("drover-lab"), &bad).unwrap();
    let other = bad.join(OsStr::from_bytes(b"session\xfe"));
    fs::rename(bad.join(name), &other).unwrap();

    let lab = |args: &[&OsStr]| drover(folder.path(), &[&[OsStr::new("lab")], args].concat());
    let report = lab(&[OsStr::new("report"), other.as_os_str()]);
    assert!(report.status.success(), "{}", text(&report.stderr));
    assert!(text(&report.stdout).contains("lab\\xFF/session\\xFE/report.html"), "{report:?}");
    let compared = lab(&[OsStr::new("compare"), other.as_os_str(), bad.as_os_str()]);
    assert!(compared.status.success(), "{}", text(&compared.stderr));
    assert!(text(&compared.stdout).contains("session\\xFE: "), "{compared:?}");
    let resumed = lab(&[OsStr::new("run"), OsStr::new("--resume"), other.as_os_str()]);
    assert_eq!(resumed.status.code(), Some(2), "{resumed:?}");
    assert!(text(&resumed.stderr).contains("--resume: '"), "{resumed:?}");

    let mut command = Command::new(DROVER);
    command.args(["lab", "serve"]).arg(&other).stdout(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut url = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
    let address = url.trim().strip_prefix("http://").unwrap().strip_suffix("/report.html").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let request =
        format!("GET /report.html HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 ") && response.contains("The experiment small"));
    drover_sys::process::ask_to_stop(&server).unwrap();
    assert!(server.wait().unwrap().success());
}

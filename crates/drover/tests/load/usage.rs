//! Mistakes end in one line that names the flag and the remedy, before anything is sent.

use crate::run::drover;

#[track_caller]
pub(crate) fn refused(arguments: &[&str], mentions: &[&str]) {
    let output = drover(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    for mention in mentions {
        assert!(stderr.contains(mention), "{arguments:?}: {mention}: {stderr}");
    }
}

const URL: &str = "http://127.0.0.1:9/";

/// What a message quotes may come from anywhere: nothing in it is for a terminal to obey.
#[test]
fn no_message_has_control_characters() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name).to_str().unwrap().to_owned()
    };
    let bad = "\u{1b}[31m\u{9b}2J\u{7}\u{202e}";
    let har =
        r#"{"log": {"entries": [{"request": {"method": "G\u001b[31mT", "url": "http://a/"}}]}}"#;
    let har = file("har", har);
    let list = file("urls", &format!("ftp://{bad}/\n"));
    let named = file(bad, "nothing");
    for arguments in [
        &["--from-har", &har][..],
        &["--from-har", &named],
        &["--urls", &list],
        &["--curl", &format!("curl http://a -{bad}")],
        &["--curl", &format!("curl 'http://a/{bad}'")],
        &[&format!("http://a/{bad}")],
        &["-H", bad, URL],
        &["-X", bad, URL],
        &[&format!("--{bad}"), URL],
        &["--order", bad, URL],
    ] {
        let output = drover(&[&["load"], arguments].concat()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr:?}");
        let obeyed = |letter: char| letter.is_control() || letter == '\u{202e}';
        assert!(!stderr.trim_end().contains(obeyed), "{arguments:?}: {stderr:?}");
    }
}

#[test]
fn mistakes_name_the_flag_and_the_remedy() {
    refused(&["load"], &["<URL>"]);
    refused(&["load", "https://127.0.0.1:x/"], &["https://127.0.0.1:x/", "no valid host and port"]);
    refused(&["load", "ftp://127.0.0.1/"], &["http://127.0.0.1:8080/path"]);
    refused(&["load", URL, "--rate", "0"], &["--rate", "above 0"]);
    refused(&["load", URL, "--rate", "1e300"], &["--rate", "not be above"]);
    let turns = ["load", URL, "--events", "--lockstep", "--turns", "2", "--rate", "9"];
    refused(&turns, &["--turns", "closed loop"]);
    refused(&["load", URL, "--csv", "-"], &["--csv -", "/dev/stdout"]);
    refused(&["load", URL, "--hdr", "-"], &["--hdr -", "/dev/stdout"]);
    refused(&["load", URL, "--rate", "9..x"], &["--rate", "100..1000"]);
    refused(&["load", URL, "--rate", "9..90", "-n", "5"], &["--rate 9..90", "--duration"]);
    refused(&["load", URL, "--rate", "9", "--connection-rate", "9"], &["--connection-rate"]);
    refused(&["load", URL, "--rate", "9", "--every", "1s"], &["--every", "--rate"]);
    refused(&["load", URL, "--every", "0"], &["--every"]);
    refused(&["load", URL, "--burst", "3"], &["--think-time"]);
    refused(&["load", URL, "--think-time", "exp:5x"], &["--think-time", "10s"]);
    refused(&["load", URL, "--pipeline", "0"], &["--pipeline"]);
    refused(&["load", URL, "--verify=/no/such/file"], &["--verify", "No such file"]);
    refused(&["load", URL, "-t", "1024", "-c", "1024", "--pin"], &["--pin", "--threads"]);
    refused(&["load", URL, "--duration", "10x"], &["--duration", "10s"]);
    refused(&["load", URL, "--duration", "0"], &["--duration"]);
    refused(&["load", URL, "--connections", "0"], &["--connections"]);
    refused(&["load", URL, "--arrivals", "poisson"], &["--rate"]);
    refused(&["load", URL, "-H", "no field"], &["--header", "'Name: value'"]);
    refused(&["load", URL, "--dispatch", "kqueue"], &["--dispatch", "epoll"]);
    refused(&["load", URL, "--json", "/no/such/directory/x"], &["--json", "No such file"]);
    refused(&["load", URL, "--idle", "4000000000"], &["--idle", "4000000"]);
    refused(&["idle", "http://a b/"], &["valid host name"]);
    refused(&["idle", "http://a/b c"], &["percent-encoded"]);
    refused(&["idle", URL, "--every", "0"], &["--every"]);
}

//! Sessions that run to their end: files and names together, what is left out, refused or fails, and the report.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use drover_testing::make_program;
use serde_json::Value;

use super::{DROVER, lab, lab_as, output, report, runs, session, text, write_experiment};

#[test]
fn files_and_names_are_one_session_with_one_report() {
    let folder = tempfile::tempdir().unwrap();
    write_experiment(folder.path(), "mine", "");
    let args = ["run", "mine.toml", "pipes", "--seed", "7", "--subjects", "poll,select"];
    let levels = ["--levels", "pipes=10,20", "--levels", "active=1", "--levels", "writes=1"];
    let output = output(folder.path(), &[&args[..], &levels, &["--window", "20ms"]].concat());
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.starts_with("2 experiments, 36 runs (quick): about "), "{stdout}");
    assert_eq!(stdout.lines().last(), Some("Report: drover-lab/report.html"), "{stdout}");
    assert!(stderr.contains("mine has no factor pipes"), "{stderr}");
    assert!(stderr.contains("36/36 pipes: "), "{stderr}");
    let session = session(folder.path());
    assert!(session.to_str().unwrap().ends_with("-quick"), "{session:?}");
    for (id, expected) in [("mine", 12), ("pipes", 24)] {
        let runs = runs(&session, id);
        assert_eq!(runs.len(), expected, "{id}");
        for run in runs {
            assert_eq!(run["sample"]["failure"], Value::Null, "{run}");
        }
    }
    let page = report(folder.path());
    assert!(page.contains("The experiment mine") && page.contains("Both answer."), "{page}");
    // The page above the session's folder leads into it; the rest is one.
    let own = fs::read_to_string(session.join("report.html")).unwrap();
    let links = format!("href=\"{}/", session.file_name().unwrap().to_str().unwrap());
    assert!(page.contains(&links) && own == page.replace(&links, "href=\""));
    a_report_is_written_anew(folder.path(), &own);
    a_report_is_served(folder.path(), &page);
    a_complete_session_has_nothing_to_go_on_with(folder.path());
}

fn a_report_is_written_anew(folder: &Path, page: &str) {
    let path = session(folder).join("report.html");
    fs::remove_file(&path).unwrap();
    let output = output(folder, &["report"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told = text(&output.stdout).trim().strip_prefix("Report: ").unwrap();
    assert_eq!(folder.join(told), path);
    assert_eq!(fs::read_to_string(path).unwrap().len(), page.len());
}

fn a_report_is_served(folder: &Path, page: &str) {
    let mut server = lab(folder, &["serve"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
    let address = url.trim().strip_prefix("http://").unwrap().strip_suffix("/report.html").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let request =
        format!("GET /report.html HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with(page));
    drover_sys::process::ask_to_stop(&server).unwrap();
    assert!(server.wait().unwrap().success());
}

fn a_complete_session_has_nothing_to_go_on_with(folder: &Path) {
    let before = runs(&session(folder), "mine");
    let output = output(folder, &["run", "--resume"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("it has every run"), "{}", text(&output.stdout));
    assert_eq!(runs(&session(folder), "mine"), before);
}

#[test]
fn an_experiment_that_cannot_be_planned_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    write_experiment(folder.path(), "small", "[presets.quick]\nrounds = 1\n");
    write_experiment(folder.path(), "fine", "[presets.fine]\nrounds = 1\n");
    let output = output(folder.path(), &["run", "small.toml", "fine.toml", "--preset", "fine"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("small cannot be run here: there is no preset named fine"), "{stderr}");
    assert!(stderr.lines().last().unwrap().contains("small could not be run"), "{stderr}");
    let session = session(folder.path());
    assert_eq!(runs(&session, "fine").len(), 2);
    let saved = fs::read_to_string(session.join("session.json")).unwrap();
    let saved: Value = serde_json::from_str(&saved).unwrap();
    assert_eq!(saved["refused"][0][0], "small");
    assert!(report(folder.path()).contains("there is no preset named fine"));
}

#[test]
fn what_this_machine_lacks_is_said_and_the_others_run() {
    let folder = tempfile::tempdir().unwrap();
    let missing = "[subject.missing]\ncommand = [\"{it}\", \"{port}\"]\n\
                   find = { it = [\"no-such-server\"] }\ninstall = \"apt-get install it\"\n";
    write_experiment(folder.path(), "lacking", missing);
    let output = output(folder.path(), &["run", "lacking.toml", "--repeats", "1"]);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("not testable here: missing, connections 2: "), "{stderr}");
    assert!(stderr.contains("apt-get install it"), "{stderr}");
    assert_eq!(runs(&session(folder.path()), "lacking").len(), 2);
}

#[test]
fn a_server_that_fails_is_reported_and_remembered_by_the_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    let broken =
        "[subject.broken]\ncommand = [\"sh\", \"-c\", \"echo no such luck >&2; exit 3\"]\n";
    write_experiment(folder.path(), "failing", broken);
    let output = output(folder.path(), &["run", "failing.toml", "--repeats", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let last = text(&output.stderr).lines().last().unwrap();
    assert_eq!(last, "drover: 1 of 3 runs failed: the report says why");
    assert!(report(folder.path()).contains("no such luck"));
}

/// The counters of one server cannot be read: a folder is in their place. The server itself works.
#[test]
fn an_instrument_that_fails_is_no_failure_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let unread = "[[figure]]\nid = \"Table 1\"\nmetric = \"overflows\"\n\
                  [subject.unread]\nserve = [\"--dispatch\", \"poll\", \"--counters\", \"{work}/mine\"]\n\
                  files = { \"counters/x\" = \"\" }\n";
    write_experiment(folder.path(), "blind", unread);
    let run = output(folder.path(), &["run", "blind.toml", "--repeats", "1"]);
    let stderr = text(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("unread, connections 2, round 1: not measured: the server's"),
        "{stderr}"
    );
    let last = stderr.lines().last().unwrap();
    assert!(last.starts_with("drover: the lab failed in 1 run: not measured: "), "{stderr}");
    let made = runs(&session(folder.path()), "blind");
    assert_eq!(made.len(), 3);
    for run in &made {
        let is_unread = run["sample"]["cell"]["subject"] == "unread";
        let marks = run["sample"]["validity"].as_array().unwrap();
        assert_eq!(marks.iter().any(|mark| mark == "not-measured"), is_unread, "{run}");
        assert_eq!(run["sample"]["failure"].is_string(), is_unread, "{run}");
    }
    assert!(report(folder.path()).contains("because the lab itself failed"));
    // Only that run is made again.
    let resumed = output(folder.path(), &["run", "--resume"]);
    assert!(
        text(&resumed.stderr).contains("blind: resumed after 2 runs"),
        "{}",
        text(&resumed.stderr)
    );
    let again = runs(&session(folder.path()), "blind");
    assert_eq!(again.len(), 4, "{again:?}");
    assert_eq!(again[3]["sample"]["cell"]["subject"], "unread");
}

#[test]
fn a_budget_is_kept_by_the_whole_session_and_what_was_cut_is_said() {
    let folder = tempfile::tempdir().unwrap();
    write_experiment(folder.path(), "one", "");
    write_experiment(folder.path(), "two", "");
    let output = output(folder.path(), &["run", "one.toml", "two.toml", "--budget", "1ms"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stdout.contains("2 of 2 experiments have less time than the 6 rounds of a verdict take"),
        "{stdout}"
    );
    assert!(
        stderr.contains("one: The time limit ended one after 1 of 6 rounds (--budget"),
        "{stderr}"
    );
    assert!(stderr.contains("two cannot be run here: the session's time was over"), "{stderr}");
    // Without that limit the session has its other rounds, and the experiment that had no time.
    let resumed = super::output(folder.path(), &["run", "--resume", "--budget", "1h"]);
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    let session = session(folder.path());
    assert_eq!((runs(&session, "one").len(), runs(&session, "two").len()), (12, 12));
}

#[test]
fn whoever_reads_nothing_gets_the_report_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    write_experiment(folder.path(), "unread", "");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = lab(folder.path(), &["run", "unread.toml", "--repeats", "1"]);
    let status = command.stdout(writer.try_clone().unwrap()).stderr(writer).status().unwrap();
    assert!(status.success());
    assert!(report(folder.path()).contains("The experiment unread"));
}

#[test]
fn an_ordinary_user_runs_a_session() {
    if !rustix::process::geteuid().is_root() {
        return drover_testing::skip!("the other tests run as an ordinary user already");
    }
    /// `nobody`, who owns nothing.
    const NOBODY: u32 = 65534;
    let folder = tempfile::tempdir().unwrap();
    write_experiment(folder.path(), "plain", "");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // The folder of the build may be root's alone.
    let program = folder.path().join("drover");
    make_program(&program, "cat \"$1\"", &[DROVER]);
    let mut command = lab_as(&program, folder.path(), &["run", "plain.toml", "--repeats", "1"]);
    let output = command.uid(NOBODY).gid(NOBODY).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(runs(&session(folder.path()), "plain").len(), 2);
}

#[test]
fn the_list_names_experiments_presets_subjects_and_levels() {
    let folder = tempfile::tempdir().unwrap();
    write_experiment(folder.path(), "mine", "");
    let listed = |args: &[&str]| text(&output(folder.path(), args).stdout).to_owned();
    let list = listed(&["list"]);
    for expected in ["dispatch-overhead: ", "--preset paper: ", "completion-or-readiness: "] {
        assert!(list.contains(expected), "no {expected:?} in {list}");
    }
    let mine = listed(&["list", "mine.toml"]);
    assert!(
        mine.starts_with("mine: The experiment mine\n    --preset quick: 6 rounds of 2 cells: ")
    );
    assert!(
        mine.contains("subjects: poll, select\n") && mine.contains("connections: 2\n"),
        "{mine}"
    );
}

//! Configuration files: what they set, who wins, their faults, and that workers never look at them.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Output, Stdio};

use rustix::fs::{CWD, FileType, Mode};

use crate::harness::{Server, Site, drover, has_let_go, once, signal, wait_until};
use crate::reloading::Configured;

/// A site below a folder that has a configuration file beside it.
struct Folder(Site);

/// A check tries the addresses too, and the port that people use may be taken.
const ANYWHERE: [&str; 2] = ["--listen", "127.0.0.1:0"];

impl Folder {
    /// With one page, `/a`, and one that is hidden, `/.b`.
    fn new() -> Folder {
        let folder = Site::new();
        folder.file("public/a", "visible");
        folder.file("public/.b", "hidden");
        Folder(folder)
    }

    fn config(&self, text: &str) -> String {
        self.0.file("drover.toml", text).to_str().unwrap().to_owned()
    }

    fn public(&self) -> String {
        self.0.path().join("public").canonicalize().unwrap().to_str().unwrap().to_owned()
    }

    /// A server that the file alone configures.
    fn serve(&self, text: &str, n_addresses: usize) -> Server {
        let mut command = drover();
        command.args(["serve", "--config", &self.config(text)]);
        Server::start(command, n_addresses)
    }

    fn check(&self, text: &str, flags: &[&str]) -> Output {
        let mut command = drover();
        command.args(["serve", "--check", "--config", &self.config(text)]).args(flags);
        command.stderr(Stdio::piped()).output().unwrap()
    }

    #[track_caller]
    fn checked(&self, text: &str, flags: &[&str]) -> String {
        let output = self.check(text, flags);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The lines on stderr of a check that finds faults, the last of which counts them.
    #[track_caller]
    fn faults(&self, text: &str, flags: &[&str]) -> Vec<String> {
        let output = self.check(text, flags);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{stderr}");
        let folder = format!("{}/", self.0.path().display());
        stderr.lines().map(|line| line.replace(&folder, "")).collect()
    }
}

#[test]
fn a_file_says_what_flags_say() {
    let folder = Folder::new();
    let server = folder.serve(
        "root = 'public'\nlisten = ['127.0.0.1:0', '127.0.0.2:0']\nworkers = 2\nhidden = true\n",
        2,
    );
    for address in server.addresses() {
        let mut client = crate::harness::Client::connect(*address);
        assert_eq!(client.get("/a").is(200).text(), "visible");
        assert_eq!(client.get("/.b").is(200).text(), "hidden");
    }
    assert_eq!(server.addresses()[1].ip().to_string(), "127.0.0.2");
}

#[test]
fn the_command_line_wins_and_replaces_lists() {
    let folder = Folder::new();
    let text =
        "root = 'nowhere'\nlisten = ['127.0.0.1:0', '127.0.0.2:0']\nworkers = 3\npin = false\n";
    let public = folder.public();
    let flags =
        [public.as_str(), "--listen", "127.0.0.3:0", "--workers", "2", "--dispatch", "poll"];
    let told = folder.checked(text, &flags);
    let would =
        format!("# no fault found; would serve {public} on http://127.0.0.3:0: dispatch poll, 2 ");
    assert!(told.starts_with(&would), "{told}");
    let line = |key: &str| -> (String, String) {
        let mut lines = told.lines();
        let line = lines.find(|line| line.starts_with(&format!("{key} = "))).unwrap_or(&told);
        let (value, origin) = line.split_once('#').unwrap();
        (
            value.trim().to_owned(),
            origin.trim().replace(&format!("{}/", folder.0.path().display()), ""),
        )
    };
    let expected = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    assert_eq!(line("listen"), expected("listen = [\"127.0.0.3:0\"]", "command line"));
    assert_eq!(line("workers"), expected("workers = 2", "command line"));
    assert_eq!(line("pin"), expected("pin = false", "drover.toml:4"));
    assert_eq!(line("cache"), expected("cache = \"auto\"", "default: takes 64 MiB per worker"));
    assert_eq!(line("dispatch"), expected("dispatch = \"poll\"", "command line"));
    assert!(line("accept").1.starts_with("default: takes "), "{told}");
}

/// What `--check` prints can be saved and used.
#[test]
fn what_check_prints_is_a_file_that_says_it_again() {
    let folder = Folder::new();
    let text = "root = 'public'\nlisten = 0\nworkers = 2\ncache = 'off'\nadvise = 'sequential'\n";
    let lines_of = |told: String| -> Vec<String> {
        let (_, lines) = told.split_once('\n').unwrap();
        lines.lines().map(str::to_owned).collect()
    };
    let first = lines_of(folder.checked(text, &["--hidden"]));
    let second = lines_of(folder.checked(&first.join("\n"), &[]));
    let values = |lines: &[String]| -> Vec<String> {
        let value = |line: &String| line.split('#').next().unwrap().trim().to_owned();
        lines.iter().map(value).filter(|value| !value.is_empty()).collect()
    };
    assert_eq!(values(&first), values(&second));
    for value in ["hidden = true", "advise = \"sequential\"", "cache = \"off\"", "workers = 2"] {
        assert!(values(&second).iter().any(|line| line == value), "{value}: {second:?}");
    }
}

#[test]
fn all_faults_of_a_file_are_told_at_once_with_their_places() {
    let folder = Folder::new();
    let text =
        "worker = 3\nlisten = [80, 'x']\nidle-timeout = '5x'\npin = 'yes'\ncheck = true\n[cache]\n";
    let faults = folder.faults(text, &[]);
    let expected = [
        ("drover.toml:1:1: ", "the nearest is 'workers'"),
        ("drover.toml:2:15: ", "HOST:PORT"),
        ("drover.toml:3:16: ", "10s"),
        ("drover.toml:4:7: ", "true or false"),
        ("drover.toml:5:1: ", "command line"),
        ("drover.toml:6:1: ", "not a table"),
        ("drover: 6 faults", "it is not used"),
    ];
    assert_eq!(faults.len(), expected.len(), "{faults:#?}");
    for (fault, (place, words)) in faults.iter().zip(expected) {
        assert!(fault.starts_with(place) && fault.contains(words), "{place}, {words}: {fault}");
    }
}

#[test]
fn what_does_not_go_together_is_told_with_its_place() {
    let folder = Folder::new();
    let both = folder.faults("response-size = '1K'\nroot = 'public'\n", &[]);
    assert!(
        both[0].starts_with("drover.toml:2:1: ") && both[0].contains("--response-size"),
        "{both:?}"
    );
    let one = folder.faults("listen = 0\nroot = 'public'\n", &["--response-size", "1K"]);
    assert!(
        one[0].starts_with("drover.toml:2:1: ") && one[0].contains("--response-size"),
        "{one:?}"
    );
    // Faults that only show once all flags are known.
    for (text, place, words) in [
        ("root = 'no'\n", "drover.toml:1:1: ROOT must be a directory", "No such file"),
        ("root = 'public'\nread-memory = '1K'", "drover.toml:2:1: --read-memory", "256K"),
        (
            "root = 'public'\n\naccept = 'exclusive'\ndispatch = 'select'\n",
            "drover.toml:3:1: --accept exclusive: ",
            "--dispatch",
        ),
    ] {
        let faults = folder.faults(text, &["--listen", "127.0.0.1:0"]);
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert!(fault.starts_with(&format!("drover: {place}")) && fault.contains(words), "{fault}");
    }
}

#[test]
fn a_file_names_the_directory_that_is_served() {
    let folder = Folder::new();
    for text in ["", "listen = 0\n"] {
        let told = folder.faults(text, &[]);
        assert!(told.len() == 1 && told[0].contains("write root ="), "{told:?}");
        folder.checked(text, &[&ANYWHERE[..], &[&folder.public()]].concat());
        folder.checked(&format!("{text}response-size = '1K'\n"), &ANYWHERE);
        folder.checked(&format!("{text}[[host]]\nname = 'a'\nroot = 'public'\n"), &ANYWHERE);
    }
}

#[test]
fn every_host_is_told_with_its_place() {
    let folder = Folder::new();
    let hosts = "\n[[host]]\nname = 'a'\nroot = 'public'\n[[host]]\nname = 'b'\nroot = 'no'\n\
                 [[host]]\nname = ['c', '*.c']\nroot = 'public'\nauth = 'nobody'\n";
    let told = folder.faults(&format!("root = 'none'{hosts}"), &[]);
    for (told, (place, words)) in told.iter().zip([
        ("drover.toml:1:1: ", "ROOT must be a directory"),
        ("drover.toml:5:1: ", "the root of b must be a directory"),
        ("drover.toml:8:1: ", "--auth"),
        ("drover: 3 faults", "see above"),
    ]) {
        assert!(told.starts_with(place) && told.contains(words), "{place}, {words}: {told}");
    }
    assert_eq!(told.len(), 4, "{told:?}");
    let twice = hosts.replace("'c', '*.c'", "'c', 'a'");
    let told = folder.faults(&format!("auth = 'users'\n{twice}"), &[]);
    for (place, words) in [
        ("drover.toml:1:1: ", "users"),
        ("drover.toml:6:1: ", "the root of b"),
        ("drover.toml:9:1: ", "--auth"),
        ("drover.toml:9:1: ", "a has two sites: this one, and that of a"),
        ("drover: 4 faults", "see above"),
    ] {
        let is_it = |told: &&String| told.starts_with(place) && told.contains(words);
        assert_eq!(told.iter().filter(is_it).count(), 1, "{place}, {words}: {told:?}");
    }
    assert_eq!(told.len(), 5, "{told:?}");
    let checked =
        folder.checked(&hosts.replace("'no'", "'public'").replace("auth", "# auth"), &ANYWHERE);
    let heads = checked.lines().filter(|line| line.starts_with("[[host]]"));
    let lines: Vec<_> = heads.map(|head| head.rsplit_once(':').unwrap().1).collect();
    assert_eq!(lines, ["2", "5", "8"], "{checked}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = Folder::new();
    folder.config("");
    fs::remove_file(folder.0.path().join("drover.toml")).unwrap();
    let mut command = drover();
    let path = folder.0.path().join("drover.toml");
    let output = command.args(["serve", "--config"]).arg(&path).stderr(Stdio::piped()).output();
    let output = output.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("drover.toml:1:1: cannot be read: No such file"), "{stderr}");
}

/// A pipe that somebody has open for writing, so that whoever reads it waits for more.
pub(crate) fn pipe_in_place_of(file: &Path) -> fs::File {
    let _none = fs::remove_file(file);
    rustix::fs::mknodat(CWD, file, FileType::Fifo, Mode::RWXU, 0).unwrap();
    // Open for both, this does not wait for a reader.
    fs::OpenOptions::new().read(true).write(true).open(file).unwrap()
}

#[test]
fn a_pipe_is_no_configuration_and_nobody_waits_for_it() {
    let folder = Folder::new();
    let file = folder.0.path().join("drover.toml");
    let _pipe = pipe_in_place_of(&file);
    for check in [&[][..], &["--check"]] {
        let mut command = drover();
        command.args(["serve", "--config"]).arg(&file).args(check).stderr(Stdio::piped());
        let mut server = Server::start_as_it_is(command, 0);
        wait_until("it ends", || has_let_go(server.process()));
        assert_eq!(server.exit_status().code(), Some(2));
        let mut told = String::new();
        server.stderr().read_to_string(&mut told).unwrap();
        assert!(told.contains("drover.toml:1:1: cannot be read: it is a pipe"), "{told}");
        assert!(told.contains("name a file"), "{told}");
    }
}

#[test]
fn a_pipe_in_place_of_the_configuration_is_refused_at_a_reload() {
    for processes in [&[][..], &["--processes"]] {
        let site = Site::new();
        site.file("a", "visible");
        let mut configured = Configured::start(&site, processes, "workers = 1\n");
        let file = configured.folder.path().join("drover.toml");
        let text = fs::read_to_string(&file).unwrap();
        let pipe = pipe_in_place_of(&file);
        for _ in 0..2 {
            let told = configured.hang_up();
            assert!(told.contains("cannot reload: ") && told.contains("it is a pipe"), "{told}");
            assert_eq!(configured.server.get("/a").is(200).text(), "visible");
        }
        drop(pipe);
        fs::remove_file(&file).unwrap();
        fs::write(&file, text + "hidden = true\n").unwrap();
        let told = configured.hang_up();
        assert!(told.contains("reloaded: "), "{told}");
        configured.stops_in_good_order();
    }
}

fn children(server: &Server, but: Option<u32>) -> Vec<u32> {
    once("a successor", || {
        let children = server.children();
        let is_other = children.len() == 1 && but.is_none_or(|gone| !children.contains(&gone));
        is_other.then_some(children)
    })
}

/// A worker process that is replaced serves as the others do, whatever the file says by then.
#[test]
fn worker_processes_do_not_look_at_the_file_again() {
    let folder = Folder::new();
    let text =
        "root = 'public'\nlisten = '127.0.0.1:0'\nhidden = true\nprocesses = true\nworkers = 1\n";
    for now in [Some("hidden = false\nroot = '/nowhere'\n"), Some("this is no TOML ["), None] {
        let server = folder.serve(text, 1);
        let [first] = children(&server, None)[..] else { panic!() };
        match now {
            Some(now) => drop(folder.config(now)),
            None => fs::remove_file(folder.0.path().join("drover.toml")).unwrap(),
        }
        signal("KILL", first);
        children(&server, Some(first));
        assert_eq!(server.get("/.b").is(200).text(), "hidden");
    }
}

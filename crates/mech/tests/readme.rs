//! What the README promises to somebody who knows nothing but the README: its list of mechanisms, and its example as a
//! project of its own.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use drover_mech::mechanisms;

const README: &str = include_str!("../README.md");

/// How many clients are connected at a time.
const CLIENTS: usize = 500;

/// How many clients connect before one of them is served: fewer than the queue of a listener of std has room for (128). A client
/// that finds no room tries again a second later.
const AT_A_TIME: usize = 100;

/// How long a test waits before it says that something hangs. Nothing is ordered by it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The name of the project, and of its program.
const PROJECT: &str = "drover-mech-readme";

#[test]
fn the_table_has_every_mechanism() {
    let rows = README.lines().skip_while(|line| *line != "## Mechanisms");
    let rows = rows.take_while(|line| *line != "## Limits");
    let names: BTreeSet<&str> =
        rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(names, mechanisms::ALL.iter().map(|mechanism| mechanism.name).collect());
}

/// The first example, and what the manifest is told to have.
fn example() -> (&'static str, &'static str) {
    let block = |language: &str| {
        let (_, rest) = README.split_once(&format!("```{language}\n")).unwrap();
        rest.split_once("```").unwrap().0
    };
    (block("rust,no_run"), block("toml"))
}

/// The target folder of the workspace: `target/debug/deps` has the program of the test.
fn target() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(3).unwrap().to_owned()
}

/// Builds the example as a new project, and returns its program; `None`: there is no cargo. The project has one folder for all
/// runs of the test, so that the target folder, which it shares with the workspace, does not grow.
fn built() -> Option<PathBuf> {
    let (folder, mech) = (Path::new(env!("CARGO_TARGET_TMPDIR")), env!("CARGO_MANIFEST_DIR"));
    let folder = folder.join(PROJECT);
    let (code, dependencies) = example();
    let version = "drover-mech = \"0.1\"";
    assert!(dependencies.contains(version), "{dependencies}");
    let dependencies =
        dependencies.replace(version, &format!("drover-mech = {{ path = {mech:?} }}"));
    let manifest = format!(
        "[package]\nname = \"{PROJECT}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n{dependencies}\n\
         [lints.rust]\nwarnings = \"deny\"\n\n[workspace]\n"
    );
    // The same versions of other people's crates, which are on this machine.
    let lock = fs::read_to_string(Path::new(mech).join("../../Cargo.lock")).unwrap();
    fs::create_dir_all(folder.join("src")).unwrap();
    for (name, text) in [("src/main.rs", code), ("Cargo.toml", &*manifest), ("Cargo.lock", &*lock)]
    {
        let path = folder.join(name);
        // A file that is written again is compiled again.
        if fs::read_to_string(&path).is_ok_and(|before| before == text) {
            continue;
        }
        fs::write(path, text).unwrap();
    }

    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--offline", "--target-dir"]).arg(target()).current_dir(folder);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            drover_testing::skip!("cargo cannot be run: {error}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(target().join("debug").join(PROJECT))
}

/// The running example. It is killed when the test ends.
struct Example(Child, SocketAddr);

impl Example {
    fn start(program: &Path, mechanism: &str) -> Example {
        let mut command = Command::new(program);
        command.args(["127.0.0.1:0", mechanism]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["listening", "on", address, "by", name] = words[..] else {
            panic!("{mechanism}: {line:?}, and {:?}", child.wait());
        };
        assert_eq!(name, mechanism);
        Example(child, address.parse().unwrap())
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client, and what it sends.
type Client = (TcpStream, Vec<u8>);

/// Connects many clients, a few at a time, and then has all of them send before any of them reads.
fn serves_many(address: SocketAddr, mechanism: &str) {
    let connect = |number: usize| {
        let client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        (client, format!("client {number} by {mechanism}").into_bytes())
    };
    let mut clients: Vec<Client> = Vec::new();
    while clients.len() < CLIENTS {
        let mut next: Vec<Client> = (clients.len()..CLIENTS).take(AT_A_TIME).map(connect).collect();
        echo(&mut next);
        clients.append(&mut next);
    }
    echo(&mut clients);
}

fn echo(clients: &mut [Client]) {
    for (client, text) in &mut *clients {
        client.write_all(text).unwrap();
    }
    for (client, text) in clients {
        let mut echoed = vec![0; text.len()];
        client.read_exact(&mut echoed).unwrap();
        assert_eq!(echoed, *text);
    }
}

#[test]
fn the_example_in_a_new_project_serves_many_clients_by_every_mechanism() {
    // Both ends of a connection do not have to share a limit of 1024 descriptors.
    drover_sys::process::raise_open_files_limit().unwrap();
    let Some(program) = built() else { return };
    for mechanism in mechanisms::ALL {
        match mechanism.probe() {
            Ok(()) => {
                let example = Example::start(&program, mechanism.name);
                serves_many(example.1, mechanism.name);
            }
            Err(why) => drover_testing::skip!("{}: {why}", mechanism.name),
        }
    }
}

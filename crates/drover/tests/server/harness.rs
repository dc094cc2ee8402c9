//! What the tests share: a directory to serve, the server as a child process, a client that sees
//! every byte.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use drover_mech::fileio::{self, Backend};
use drover_mech::mechanisms::{self, Mechanism};
use drover_sys::tcp_table;
use tempfile::TempDir;

pub(crate) use crate::client::{Arrived, Client, Response, request};
use crate::http2::wire as http2;
use crate::tls::wire as tls;

/// How long a test waits before it says that something hangs. Nothing is ordered by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A directory of files to serve.
pub(crate) struct Site(TempDir);

impl Site {
    pub(crate) fn new() -> Site {
        Site(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// A file of zeros that takes no room.
    pub(crate) fn sparse(&self, name: &str, len: u64) -> fs::File {
        let file = fs::File::create_new(self.path().join(name)).unwrap();
        file.set_len(len).unwrap();
        file
    }
}

/// A `drover serve` of this test's own. It is killed when the test ends.
pub(crate) struct Server {
    child: Child,
    addresses: Vec<SocketAddr>,
    /// Open as long as the server runs: it may have more to say.
    stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Serves `site` with the flags.
    pub(crate) fn on(site: &Site, flags: &[&str]) -> Server {
        let mut command = drover();
        command.arg("serve").arg(site.path()).args(flags);
        Server::start(command, 1)
    }

    /// Serves `bytes` bytes to every request.
    pub(crate) fn of_size(bytes: usize, flags: &[&str]) -> Server {
        let mut command = drover();
        command.args(["serve", "--response-size", &bytes.to_string()]).args(flags);
        Server::start(command, 1)
    }

    /// Starts `command`, a `drover serve` on port 0 with one worker unless it, or its file, says otherwise, and by the
    /// mechanism and backend that `DROVER_DISPATCH` and `DROVER_FILES` name, so that the whole suite can be run over any pair of
    /// them. Reads the `n_addresses` lines that say that it accepts.
    pub(crate) fn start(mut command: Command, n_addresses: usize) -> Server {
        if !says(&command, "--workers") {
            command.args(["--workers", "1"]);
        }
        for (variable, flag) in [("DROVER_DISPATCH", "--dispatch"), ("DROVER_FILES", "--files")] {
            if let Some(value) = std::env::var_os(variable).filter(|_| !says(&command, flag)) {
                command.arg(flag).arg(value);
            }
        }
        if !says(&command, "--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        if tls::is_wanted() && !says(&command, "--tls-cert") && !says(&command, "--tls") {
            command.args(tls::flags());
        }
        if http2::is_wanted() && !says(&command, "--http2") {
            command.args(["--http2", "on"]);
        }
        Server::start_as_it_is(command, n_addresses)
    }

    /// Starts `command`, a `drover serve`, without another flag, and reads the `n_addresses` lines that say that it
    /// accepts.
    pub(crate) fn start_as_it_is(mut command: Command, n_addresses: usize) -> Server {
        Server::try_start(&mut command, n_addresses).unwrap_or_else(|what| panic!("{what}"))
    }

    /// As [`Server::start_as_it_is`], or what it said when it did not start, if its stderr is piped.
    pub(crate) fn try_start(command: &mut Command, n_addresses: usize) -> Result<Server, String> {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut addresses = Vec::new();
        while addresses.len() < n_addresses {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            let Some(address) = noted_address(&line) else {
                // stderr ends when the process does. Where there is no line, it is about to.
                if !line.is_empty() {
                    let _ = child.kill();
                }
                let mut log = String::new();
                let _ = child.stderr.as_mut().map(|it| it.read_to_string(&mut log));
                let _ = child.wait();
                return Err(format!("first line: {line:?}, and on stderr {log:?}"));
            };
            addresses.push(address);
        }
        let arguments: Vec<_> = command.get_args().collect();
        if arguments.windows(2).any(|pair| pair == ["--http2", "on"]) {
            addresses.iter().for_each(|address| tls::note_http2(*address));
        }
        Ok(Server { child, addresses, stdout })
    }

    /// Asks it to stop, and says what it has printed beyond the addresses.
    pub(crate) fn rest_of_stdout(mut self) -> String {
        self.terminate();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        rest
    }

    /// The next line that it prints.
    pub(crate) fn line_of_stdout(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// The address of `--admin`, which the server says after those at which it serves.
    pub(crate) fn admin_address(&mut self) -> SocketAddr {
        let line = self.line_of_stdout();
        let address = line.strip_prefix("status at http://").and_then(|it| it.split('/').next());
        let address =
            socket_address(address.unwrap_or_else(|| panic!("the line of --admin: {line:?}")));
        // A server that has ended may have spoken TLS there.
        tls::note(address, false);
        address
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The first address as the beginning of a URL.
    pub(crate) fn url(&self) -> String {
        tls::url(self.address())
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// One GET on a connection of its own.
    #[track_caller]
    pub(crate) fn get(&self, target: &str) -> Response {
        self.connect().get(target)
    }

    /// One request with extra fields, on a connection of its own.
    #[track_caller]
    pub(crate) fn ask(&self, target: &str, fields: &[&str]) -> Response {
        self.connect().ask(target, fields)
    }

    pub(crate) fn terminate(&self) {
        drover_sys::process::ask_to_stop(&self.child).unwrap();
    }

    pub(crate) fn interrupt(&self) {
        signal("INT", self.child.id());
    }

    /// The number of the process that keeps its rights, and gets the signals.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// The number of the process that serves, by as many threads as there are workers.
    #[track_caller]
    pub(crate) fn worker_process(&self) -> u32 {
        let children = self.children();
        assert_eq!(children.len(), 1, "it has one process of workers");
        children[0]
    }

    /// The processes with workers that it has started, in ascending order of their numbers.
    pub(crate) fn children(&self) -> Vec<u32> {
        self.children_named(|name| name != "drover-admin")
    }

    /// The process of `--admin`.
    pub(crate) fn admin_process(&self) -> u32 {
        self.children_named(|name| name == "drover-admin")[0]
    }

    fn children_named(&self, is: impl Fn(&str) -> bool) -> Vec<u32> {
        let named = |number: &u32| {
            let name = fs::read_to_string(format!("/proc/{number}/comm"));
            name.is_ok_and(|name| is(name.trim_end()))
        };
        let alive = children_of(self.child.id()).into_iter().filter(|(_, state)| *state != 'Z');
        let mut children: Vec<u32> = alive.map(|(number, _)| number).filter(named).collect();
        children.sort_unstable();
        children
    }

    /// So many clients, each of which has asked for its target before the server runs again: it is stopped meanwhile. A server
    /// that is full closes connections that have sent nothing.
    pub(crate) fn clients_that_have_asked(
        &self,
        count: usize,
        target: impl Fn(usize) -> String,
    ) -> Vec<Client> {
        let ask = |number| {
            let mut client = self.connect();
            client.send_ahead(request("GET", &target(number), &[]));
            client
        };
        self.while_stopped(|| (0..count).map(ask).collect())
    }

    /// Does something while all processes of the server are stopped. What clients send meanwhile is there at once when it
    /// runs again.
    pub(crate) fn while_stopped<R>(&self, work: impl FnOnce() -> R) -> R {
        let processes: Vec<u32> = [self.process()].into_iter().chain(self.children()).collect();
        for &process in &processes {
            stop(process);
        }
        let result = work();
        processes.into_iter().for_each(|process| signal("CONT", process));
        result
    }

    /// Ends the server as nothing can prevent.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// How much memory the process that serves has that is its own, in bytes.
    pub(crate) fn private_memory(&self) -> u64 {
        private_memory_of(self.worker_process())
    }

    /// How many descriptors the processes with workers have open.
    pub(crate) fn files_open(&self) -> usize {
        // One may end meanwhile.
        let of = |process| fs::read_dir(format!("/proc/{process}/fd")).map_or(0, |all| all.count());
        self.children().into_iter().map(of).sum()
    }

    /// Waits until the server's listening socket is gone, so that it has begun to stop. Looks into the kernel's table: who asked by
    /// connecting would disturb the server of another test that gets the port next.
    #[track_caller]
    pub(crate) fn until_it_refuses(&self) {
        let address = self.address();
        let table = if address.is_ipv4() { tcp_table::IPV4 } else { tcp_table::IPV6 };
        let listens = |row: tcp_table::SocketRow| {
            // Another server may have the port of another address.
            let row_address = SocketAddr::new(row.address, row.port);
            row.state == tcp_table::SocketState::Listening && row_address == address
        };
        wait_until("it refuses", || !tcp_table::rows(table).any(listens));
    }

    pub(crate) fn exit_status(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn stderr(&mut self) -> impl BufRead + use<> {
        BufReader::new(self.child.stderr.take().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in the line with which a server says that it listens there, and notes what it speaks there.
pub(crate) fn noted_address(line: &str) -> Option<SocketAddr> {
    let (scheme, address) = line.trim().strip_prefix("listening on ")?.split_once("://")?;
    let address = socket_address(address);
    tls::note(address, scheme == "https");
    Some(address)
}

/// The address of a URL. A zone there is the loopback interface's, which is number 1; std reads numbers alone.
fn socket_address(text: &str) -> SocketAddr {
    text.replace("%25lo", "%1").parse().unwrap()
}

/// How much memory a process has that is its own, in bytes.
pub(crate) fn private_memory_of(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Whether `command` has this flag, or its file has the key of this name. A file that says nothing of `listen` would have the
/// server take the port that people use.
fn says(command: &Command, flag: &str) -> bool {
    let arguments: Vec<_> = command.get_args().collect();
    if arguments.iter().any(|argument| *argument == flag) {
        return true;
    }
    let config = arguments.iter().position(|argument| *argument == "--config");
    let Some(file) = config.and_then(|at| arguments.get(at + 1)) else { return false };
    let text = fs::read_to_string(file).unwrap();
    // Keys of all hosts stand before the table of one.
    let keys = text.lines().take_while(|line| !line.starts_with('['));
    let named = |line: &str| Some(line.split_once('=')?.0.trim() == &flag[2..]);
    keys.filter_map(named).any(|is_it| is_it)
}

/// The state and the parent of the process, or thread, with this folder of /proc (proc_pid_stat(5)).
fn state_and_parent(folder: &str) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
    // They follow the name, which may contain anything.
    let mut words = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// The children of a process with their states, also those that it has not reaped (`Z`).
pub(crate) fn children_of(process: u32) -> Vec<(u32, char)> {
    let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
    let numbers = entries.filter_map(|name| name.to_str()?.parse().ok());
    let child = |number: u32| {
        let (state, parent) = state_and_parent(&format!("/proc/{number}"))?;
        (parent == process).then_some((number, state))
    };
    numbers.filter_map(child).collect()
}

/// Whether the kernel has closed the descriptors of a process that was killed: all its threads are gone, or wait for their parent
/// alone. Its memory, and with that /proc/PID/exe, goes before its descriptors do.
pub(crate) fn has_let_go(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    threads.filter_map(Result::ok).all(|thread| {
        let folder = thread.path();
        state_and_parent(folder.to_str().unwrap()).is_none_or(|(state, _)| state == 'Z')
    })
}

/// Stops a process, and returns when it does not run any more.
#[track_caller]
pub(crate) fn stop(process: u32) {
    signal("STOP", process);
    wait_until("it stops", || is_stopped(process));
}

/// Whether all threads of a process have stopped.
pub(crate) fn is_stopped(process: u32) -> bool {
    threads_are(process, 'T')
}

/// Whether all threads of a process are in a state (proc_pid_stat(5)).
pub(crate) fn threads_are(process: u32, state: char) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let folders = threads.map(|it| it.unwrap().path().display().to_string());
    let mut states = folders.map(|folder| state_and_parent(&folder));
    states.all(|it| it.is_some_and(|(found, _)| found == state))
}

/// What `look` returns, once that is so: a state that must come, as the name `what` says.
#[track_caller]
pub(crate) fn once<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "{what}: it does not come");
        // A look takes much of a processor, which the server needs to get there.
        pause(Duration::from_millis(5));
    }
}

/// Waits for a state that must come.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    once(what, || is_so().then_some(()));
}

/// Lets time pass, so that a test that asks again and again leaves the processor to the server. Nothing is ordered by it.
pub(crate) fn pause(time: Duration) {
    let (_sender, receiver) = mpsc::channel::<()>();
    let _ = receiver.recv_timeout(time);
}

/// Sends a signal to a process.
pub(crate) fn signal(name: &str, process: u32) {
    let script = format!("kill -{name} {process}");
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
}

/// The figure that stands before `what` in the line in which a server tells what it has done; those that are 0
/// are left out.
#[track_caller]
pub(crate) fn figure(log: &str, what: &str) -> u64 {
    let line = log.lines().find_map(|line| line.split_once("stopped: "));
    let figures = line.unwrap_or_else(|| panic!("{log}")).1.split(", ");
    figures
        .filter_map(|it| it.strip_suffix(what))
        .map(|it| it.split(' ').next().unwrap())
        .fold(0, |sum, it| sum + it.parse::<u64>().unwrap_or_else(|_| panic!("{log}")))
}

/// The binary under test, quiet unless a test wants to hear it.
pub(crate) fn drover() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.stderr(Stdio::null());
    command
}

/// Runs `case` on every mechanism that this kernel offers, on some of them at the same time, and prints why the others are
/// left out.
#[track_caller]
pub(crate) fn on_every_mechanism(case: impl Fn(&'static Mechanism) + Sync) {
    drover_testing::side_by_side(&usable_mechanisms(), |mechanism| case(mechanism));
}

/// The mechanisms that this kernel offers, or the one that `DROVER_MECHANISM` names; prints why the others are left out.
#[track_caller]
pub(crate) fn usable_mechanisms() -> Vec<&'static Mechanism> {
    let usable = |mechanism: &&'static Mechanism| match mechanism.probe() {
        Ok(()) => true,
        Err(reason) => {
            drover_testing::skip!("{}: {reason}", mechanism.name);
            false
        }
    };
    let chosen = std::env::var("DROVER_MECHANISM").ok();
    let is_chosen = |it: &&Mechanism| chosen.as_ref().is_none_or(|name| name == it.name);
    let usable: Vec<_> = mechanisms::ALL.iter().copied().filter(is_chosen).filter(usable).collect();
    assert!(!usable.is_empty(), "no mechanism works here");
    usable
}

/// The names of the file backends that this kernel offers, and `auto`; prints why the others are left
/// out.
pub(crate) fn usable_backends() -> Vec<&'static str> {
    let usable = |backend: &&&'static Backend| match backend.probe() {
        Ok(()) => true,
        Err(reason) => {
            drover_testing::skip!("{}: {reason}", backend.name);
            false
        }
    };
    let usable = fileio::ALL.iter().filter(usable).map(|backend| backend.name);
    usable.chain(["auto"]).collect()
}

/// Held by tests with hundreds of connections, which together could run out of descriptors.
pub(crate) fn many_connections() -> std::sync::MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    drover_sys::process::raise_open_files_limit().unwrap();
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

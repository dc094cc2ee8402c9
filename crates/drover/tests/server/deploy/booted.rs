//! The files in `deploy/` at work: installed as deploy/README.md says, and started by a systemd that is process 1 of a root of its own.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use drover_testing::BootedRoot;

use super::deployed;
use crate::harness::{Client, once, request, wait_until};
use crate::reloading::under_load;

const LARGE: u64 = 64 << 20;

/// A machine that is paused for minutes is no fault of the unit's.
const PATIENT: &str = "[Unit]\nStartLimitIntervalSec=0\n\
    [Service]\nWatchdogSec=10min\nTimeoutStartSec=10min\nTimeoutStopSec=10min\n";

/// A root with the service, which serves `/srv/www` on port 80.
struct Installed {
    root: BootedRoot,
}

impl Installed {
    /// Follows deploy/README.md. `None` where no root can be booted, which is noted.
    fn new() -> Option<Installed> {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_drover"));
        let folders = [(&*workspace, "/src/drover"), (program.parent().unwrap(), "/src/bin")];
        let root = match BootedRoot::boot(&folders) {
            Ok(root) => root,
            Err(cause) => {
                drover_testing::skip!("{cause}");
                return None;
            }
        };
        let installed = Installed { root };
        installed.file("/srv/www/index.html", "first");
        installed.file("/srv/www/a", "hello");
        installed.file("/srv/www/b", [b'b'; 100_000]);
        installed.file("/srv/www/large", "");
        let large = fs::File::create(installed.root.path("/srv/www/large")).unwrap();
        large.set_len(LARGE).unwrap();
        installed.drop_in(PATIENT);
        fs::create_dir(installed.root.path("/etc/logrotate.d")).unwrap();
        installed.root.run(&format!("cd /src/drover\n{}", how_to_install()));
        Some(installed)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.root.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Configures the service, with so much grace that no slow machine has idle clients cut.
    fn configure(&self, text: &str) {
        self.file("/etc/drover/drover.toml", format!("grace = '10min'\n{text}"));
    }

    /// Sets what the unit says otherwise.
    fn drop_in(&self, text: &str) {
        self.file("/etc/systemd/system/drover.service.d/patient.conf", text);
        self.root.run("systemctl daemon-reload");
    }

    #[track_caller]
    fn connect(&self) -> Client {
        Client::of(self.root.connect(PORT_80).unwrap())
    }

    /// A property of the service, as systemd knows it.
    fn property(&self, name: &str) -> String {
        let value = self.root.run(&format!("systemctl show --property {name} --value drover"));
        value.trim().to_owned()
    }

    /// The process that keeps the server's rights, by its number in the root.
    fn main_process(&self) -> u32 {
        self.property("MainPID").parse().unwrap()
    }

    /// All processes of the service, by their numbers in the root.
    fn processes(&self) -> Vec<u32> {
        // None while it is started again.
        let file = "/sys/fs/cgroup/system.slice/drover.service/cgroup.procs";
        let all = self.root.run(&format!("cat {file} || true"));
        all.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// A file of a process's folder in the root's procfs; empty if the process has ended.
    fn of_process(&self, process: u32, file: &str) -> String {
        let path = self.root.path(&format!("/proc/{process}/{file}"));
        fs::read_to_string(path).unwrap_or_default()
    }

    /// The processes that serve.
    fn workers(&self) -> Vec<u32> {
        let parent = format!("\nPPid:\t{}\n", self.main_process());
        let mut processes = self.processes();
        processes.retain(|&it| {
            let status = self.of_process(it, "status");
            status.contains(&parent) && !status.starts_with("Name:\tdrover-admin\n")
        });
        processes
    }

    fn log(&self) -> String {
        self.root.run("journalctl --unit 'drover*' --no-pager --output cat")
    }

    /// The log of the service, once it has these words. The journal takes lines when it can.
    #[track_caller]
    fn await_log(&self, words: &str) -> String {
        once(words, || Some(self.log()).filter(|log| log.contains(words)))
    }

    /// Does something while clients ask, all of which must be answered. Returns how many answers came.
    fn under_load(&self, work: impl FnOnce()) -> usize {
        under_load(|| self.connect(), work)
    }

    #[track_caller]
    fn await_restart(&self, number: u32) {
        wait_until("systemd has started it again", || {
            self.property("NRestarts") == number.to_string()
                && self.property("ActiveState") == "active"
        });
    }

    /// Stops the service while a client, which asks for one file, reads.
    fn stops_in_good_order(&self) {
        let mut under_way = self.connect();
        under_way.send(request("GET", "/large", &[]));
        assert_eq!(under_way.response_head().is(200).length(), LARGE);
        let mut stop = self.root.command("systemctl", &["stop", "drover"]).spawn().unwrap();
        wait_until("it refuses", || self.root.connect(PORT_80).is_err());
        under_way.read(LARGE as usize);
        // The server waits a while for another request on the connection.
        drop(under_way);
        assert!(stop.wait().unwrap().success());
        assert_eq!(self.property("ActiveState"), "inactive");
        assert_eq!(
            (&*self.property("Result"), &*self.property("ExecMainStatus")),
            ("success", "0")
        );
        self.await_log("stopped: ");
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("{}", self.log());
        }
    }
}

const PORT_80: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 80);

/// The only right that the service has, as a bit of a set (capabilities(7)).
const NET_BIND_SERVICE: u64 = 1 << 10;

const TAKE_OVER: &str = "take-over = '/run/drover/take-over'\n";

/// What the service has at some places, as lines of proc_pid_mountinfo(5) have it.
const MOUNTS: [(&str, &str); 13] = [
    ("/", " / ro,"),
    ("/usr", " /usr ro,"),
    ("/home", "inaccessible"),
    ("/root", "inaccessible"),
    ("/run/user", "inaccessible"),
    ("/tmp", "systemd-private"),
    ("/var/tmp", "systemd-private"),
    ("/dev", " /dev ro,nosuid,noexec"),
    ("/proc", "hidepid=invisible"),
    ("/proc/sys", " /proc/sys ro,"),
    ("/proc/kmsg", "inaccessible"),
    ("/sys/fs/cgroup", " /sys/fs/cgroup ro,"),
    ("/var/log/drover", " /var/log/drover rw,"),
];

/// The commands of deploy/README.md, with the program that is built already.
fn how_to_install() -> String {
    let text = deployed("README.md");
    let (_, from) = text.split_once("```sh\n").unwrap();
    let (commands, _) = from.split_once("```").unwrap();
    let (build, program) = ("cargo build --release\n", "target/release/drover");
    assert!(commands.contains(build) && commands.contains(program), "{commands}");
    commands.replace(build, "").replace(program, "/src/bin/drover")
}

#[test]
fn the_service_reloads_under_load_and_stops_in_good_order() {
    let Some(installed) = Installed::new() else { return };
    let asked = AtomicUsize::new(0);
    let index = || {
        asked.fetch_add(1, Ordering::Relaxed);
        installed.connect().get("/").is(200)
    };
    assert_eq!(index().text(), "first");
    let log = installed.await_log("sandbox: ");
    assert!(!log.contains(" WARN "), "{log}");
    let answers = installed.under_load(|| {
        for number in ["1", "2", "3"] {
            installed.file("/srv/www/index.html", number);
            let field = format!("header = [\n  '/** X-Reload: {number}',");
            installed.configure(&deployed("drover.toml").replace("header = [", &field));
            // As logrotate does it.
            installed.root.run(&format!("cd /var/log/drover; mv access.log access.log.{number}"));
            installed.root.run("systemctl reload drover");
            wait_until("the new configuration and the new log are in force", || {
                let response = index();
                response.field("X-Reload") == Some(number)
                    && response.text() == number
                    && installed.root.path("/var/log/drover/access.log").exists()
            });
        }
    });
    installed.stops_in_good_order();
    let lines = installed.root.run("cat /var/log/drover/access.log* | wc -l");
    // One more is that of the stop.
    assert_eq!(lines.trim().parse(), Ok(answers + asked.into_inner() + 1));
}

#[test]
fn a_server_that_is_killed_or_hangs_is_started_again() {
    let Some(installed) = Installed::new() else { return };
    let before = installed.processes();
    installed.root.run(&format!("kill -KILL {}", installed.main_process()));
    installed.await_restart(1);
    assert_eq!(installed.connect().get("/").is(200).text(), "first");
    let after = installed.processes();
    assert!(after.iter().all(|it| !before.contains(it)), "{before:?} {after:?}");
    // A worker alone is the server's own concern.
    let main = installed.main_process();
    let worker = installed.workers()[0];
    installed.root.run(&format!("kill -KILL {worker}"));
    wait_until("another worker", || {
        let now = installed.workers();
        !now.contains(&worker) && !now.is_empty()
    });
    assert_eq!(installed.connect().get("/").is(200).text(), "first");
    assert_eq!((installed.main_process(), &*installed.property("NRestarts")), (main, "1"));
    // One that hangs is found by the watchdog.
    installed.drop_in(&PATIENT.replace("WatchdogSec=10min", "WatchdogSec=1s"));
    installed.root.run("systemctl restart drover");
    wait_until("the watchdog bites", || {
        // Where the machine is slow it may have bitten already, and the worker is another one.
        for worker in installed.workers() {
            installed.root.run(&format!("kill -STOP {worker} || true"));
        }
        installed.log().contains("Watchdog timeout")
    });
}

#[test]
fn all_processes_of_the_service_are_in_its_sandbox() {
    let Some(installed) = Installed::new() else { return };
    let user = installed.root.run("id -u drover").trim().to_owned();
    let processes = installed.processes();
    assert!(processes.len() >= 3, "the supervisor, workers and --admin: {processes:?}");
    for process in processes {
        let status = installed.of_process(process, "status");
        let field = |name: &str| {
            let mut lines = status.lines().filter_map(|line| line.strip_prefix(name));
            lines.next().unwrap_or_else(|| panic!("{name} {status}")).trim().to_owned()
        };
        assert_eq!(field("Uid:").split('\t').collect::<Vec<_>>(), [&*user; 4]);
        assert_eq!((&*field("NoNewPrivs:"), &*field("Seccomp:")), ("1", "2"));
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            let rights = u64::from_str_radix(&field(set), 16).unwrap();
            assert_eq!(rights & !NET_BIND_SERVICE, 0, "{set} {status}");
        }
        for space in ["mnt", "uts"] {
            let [of_it, of_root] = [process, 1].map(|process| {
                fs::read_link(installed.root.path(&format!("/proc/{process}/ns/{space}"))).unwrap()
            });
            assert!(of_it != of_root, "{space}");
        }
        let mounts = installed.of_process(process, "mountinfo");
        for (place, expected) in MOUNTS {
            let mut of_place = mounts.lines().filter(|line| line.split(' ').nth(4) == Some(place));
            // The last one is in force.
            let mount = of_place.next_back().unwrap_or_else(|| panic!("{place}: {mounts}"));
            assert!(mount.contains(expected), "{place}: {mount}");
        }
    }
}

/// What needs a filter of system calls: an ordinary user may do all of it elsewhere.
#[test]
fn the_filters_of_the_unit_are_in_force() {
    let Some(installed) = Installed::new() else { return };
    let probe = "exec >/var/log/drover/probe 2>&1\n\
        for it in 'unshare --user true' 'setarch --addr-no-randomize true' 'touch /srv/www/written'; do\n\
        if $it; then echo \"allowed: $it\"; fi; done; echo end";
    installed.file("/src/probe", probe);
    let unit = deployed("drover.service").replace("Type=notify", "Type=oneshot").replace(
        "/usr/local/bin/drover serve --config /etc/drover/drover.toml",
        "/bin/sh /src/probe",
    );
    installed.file("/etc/systemd/system/probe.service", unit);
    installed.root.run("systemctl daemon-reload; systemctl start probe");
    let printed = installed.root.run("cat /var/log/drover/probe");
    assert!(printed.ends_with("end\n") && !printed.contains("allowed: "), "{printed}");
}

#[test]
fn a_restart_behind_the_socket_unit_refuses_nobody() {
    let Some(installed) = Installed::new() else { return };
    installed.root.run("systemctl stop drover");
    let listen = "listen = [\":80\", \"[::]:80\"]";
    let text = deployed("drover.toml");
    assert!(text.contains(listen));
    installed.configure(&text.replace(listen, ""));
    installed.root.run(
        "install -m 644 /src/drover/deploy/drover.socket /etc/systemd/system/\n\
         systemctl daemon-reload\n\
         systemctl enable --now drover.socket",
    );
    // The first connection starts the service.
    assert_eq!(installed.connect().get("/").is(200).text(), "first");
    let before = installed.main_process();
    let answers = installed.under_load(|| {
        installed.root.run("systemctl restart drover");
        installed.root.run("systemctl restart drover");
    });
    assert!(answers > 0 && installed.main_process() != before);
}

/// As deploy/README.md describes it.
#[test]
fn an_instance_of_the_unit_takes_over_from_another() {
    let Some(installed) = Installed::new() else { return };
    installed.root.run("systemctl disable --now drover");
    installed.configure(&(TAKE_OVER.to_owned() + &deployed("drover.toml")));
    let directory = "RuntimeDirectory=drover\n";
    let unit = deployed("drover.service");
    assert!(unit.contains(directory));
    let unit = unit.replace(directory, "RuntimeDirectory=drover\nRuntimeDirectoryPreserve=yes\n");
    installed.file("/etc/systemd/system/drover@.service", unit);
    installed.file("/etc/systemd/system/drover@.service.d/patient.conf", PATIENT);
    installed.root.run("systemctl daemon-reload; systemctl start drover@blue");
    let answers = installed.under_load(|| {
        for (old, new) in [("blue", "green"), ("green", "blue")] {
            installed.root.run(&format!("systemctl start drover@{new}"));
            wait_until("the old one ends by itself", || {
                let show = "systemctl show --property ActiveState --property Result";
                let state = installed.root.run(&format!("{show} drover@{old}"));
                assert!(state.contains("Result=success"), "{state}");
                state.contains("ActiveState=inactive")
            });
        }
    });
    assert!(answers > 0);
}

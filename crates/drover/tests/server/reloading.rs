//! SIGHUP: the configuration is read again, and other workers go on with it.

use std::fs;
use std::io::{BufRead, Read};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use drover_mech::accept::{self, Strategy};
use drover_mech::fileio;
use drover_mech::mechanisms::{self, Features};
use drover_testing::Finally;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::TempDir;

use crate::harness::{
    Client, PATIENCE, Server, Site, drover, on_every_mechanism, pause, request, signal, stop,
};
use crate::http2::wire as http2;
use crate::tls::wire as tls;

const LARGE: u64 = 64 << 20;

/// A server with a file of settings that can be changed.
pub(crate) struct Configured {
    pub(crate) folder: TempDir,
    pub(crate) server: Server,
    log: Box<dyn BufRead>,
    /// How many lines of the file are the same in all settings.
    kept: usize,
}

impl Configured {
    /// Serves `site` with these flags, and `settings` in its file.
    pub(crate) fn start(site: &Site, flags: &[&str], settings: &str) -> Configured {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("drover.toml");
        let site = site.path().to_str().unwrap();
        let is_own = !tls::is_wanted() || settings.contains("tls-cert");
        let tls = if is_own { String::new() } else { tls::settings() };
        let kept = format!("root = '{site}'\nlisten = '127.0.0.1:0'\n{tls}");
        fs::write(&file, format!("{kept}{settings}")).unwrap();
        let mut command = drover();
        command.args(["serve", "--config", file.to_str().unwrap()]).args(flags);
        if http2::is_wanted() && !flags.contains(&"--http2") {
            command.args(["--http2", "on"]);
        }
        command.stderr(Stdio::piped());
        let mut server = Server::start_as_it_is(command, 1);
        let mut log = Box::new(server.stderr());
        let mut told = String::new();
        while !told.contains("sandbox: ") {
            assert!(log.read_line(&mut told).unwrap() > 0, "{told}");
        }
        Configured { folder, server, log, kept: kept.lines().count() }
    }

    /// Changes the settings as editors do, by another file of the same name, and returns what the log says to SIGHUP.
    #[track_caller]
    pub(crate) fn reload(&mut self, change: impl FnOnce(&str) -> String) -> String {
        let [file, new] = ["drover.toml", "new"].map(|name| self.folder.path().join(name));
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&new, change(&text)).unwrap();
        fs::rename(&new, &file).unwrap();
        self.hang_up()
    }

    /// Sends SIGHUP, and returns what the log says to it.
    #[track_caller]
    pub(crate) fn hang_up(&mut self) -> String {
        signal("HUP", self.server.process());
        let mut told = String::new();
        while !["reloaded: ", "cannot reload: ", "is as it was"].iter().any(|it| told.contains(it))
        {
            assert!(self.log.read_line(&mut told).unwrap() > 0, "the server has ended: {told}");
        }
        told
    }

    /// Goes on with other settings. Returns what the log has said since the last reload.
    #[track_caller]
    pub(crate) fn set(&mut self, settings: &str) -> String {
        let kept = self.kept;
        let keep = |text: &str| text.split_inclusive('\n').take(kept).collect::<String>();
        let told = self.reload(|text| keep(text) + settings);
        assert!(told.contains("reloaded: "), "{settings}: {told}");
        told
    }

    pub(crate) fn stops_in_good_order(mut self) {
        self.server.terminate();
        let mut log = String::new();
        self.log.read_to_string(&mut log).unwrap();
        assert!(self.server.exit_status().success(), "{log}");
    }
}

fn site() -> Site {
    let site = Site::new();
    site.file("a", "hello");
    site.file("b", [b'b'; 100_000]);
    site.sparse("large", LARGE);
    site
}

/// Every choice of mechanism, strategy and backend, each at least once.
pub(crate) fn choices() -> Vec<String> {
    let usable = mechanisms::ALL.iter().filter(|it| it.probe().is_ok());
    let mechanisms: Vec<_> = usable.collect();
    let backends: Vec<_> = fileio::ALL.iter().filter(|it| it.probe().is_ok()).collect();
    let strategies = accept::ALL.iter().filter(|it| it.probe().is_ok());
    let strategies: Vec<_> = strategies.collect();
    let most = mechanisms.len().max(backends.len()).max(strategies.len());
    let choice = |number: usize| {
        let mechanism = mechanisms[number % mechanisms.len()];
        let goes = (0..).map(|more| strategies[(number + more) % strategies.len()]);
        let strategy = goes.into_iter().find(|it| it.goes_with(mechanism).is_ok()).unwrap();
        format!(
            "dispatch = '{}'\naccept = '{}'\nfiles = '{}'\nworkers = {}\n",
            mechanism.name,
            strategy.name,
            backends[number % backends.len()].name,
            1 + number % 3,
        )
    };
    (0..most).map(choice).collect()
}

/// Does something while clients ask again and again, by kept connections and by new ones. Returns how many answers came, which
/// is all of them.
pub(crate) fn under_load(connect: impl Fn() -> Client + Sync, work: impl FnOnce()) -> usize {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let asking = scope.spawn(|| keep_asking(&connect, &over));
        let ends = Finally(|| over.store(true, Ordering::Relaxed));
        work();
        drop(ends);
        asking.join().unwrap()
    })
}

/// Asks again and again until `over`. Returns how many answers came.
fn keep_asking(connect: impl Fn() -> Client + Sync, over: &AtomicBool) -> usize {
    let answers = AtomicUsize::new(0);
    let ask = |client: &mut Client| {
        for (target, len) in [("/a", 5), ("/b", 100_000)] {
            let response = client.get(target).is(200);
            assert_eq!(response.body.len(), len);
            answers.fetch_add(1, Ordering::Relaxed);
            if response.field("Connection") == Some("close") || client.is_sent_away() {
                *client = connect();
            }
        }
    };
    thread::scope(|scope| {
        let kept = || {
            let mut client = connect();
            while !over.load(Ordering::Relaxed) {
                ask(&mut client);
            }
        };
        let fresh = || {
            while !over.load(Ordering::Relaxed) {
                ask(&mut connect());
            }
        };
        let asking = [scope.spawn(kept), scope.spawn(kept), scope.spawn(fresh), scope.spawn(fresh)];
        for client in asking {
            client.join().unwrap();
        }
    });
    answers.into_inner()
}

fn changes_under_load(flags: &[&str]) {
    let site = site();
    // Retired workers close what is idle for a part of the grace.
    let flags = [&["--grace", "10m"], flags].concat();
    let mut configured = Configured::start(&site, &flags, "workers = 2\n");
    let address = configured.server.address();
    let answers = under_load(
        || Client::connect(address),
        || choices().iter().for_each(|choice| drop(configured.set(choice))),
    );
    assert!(answers > 0);
    configured.stops_in_good_order();
}

#[test]
fn threads_change_everything_under_load_and_every_request_is_answered() {
    changes_under_load(&[]);
}

#[test]
fn processes_change_everything_under_load_and_every_request_is_answered() {
    changes_under_load(&["--processes"]);
}

#[test]
fn connections_from_before_go_on() {
    let site = site();
    for flags in [&[][..], &["--processes"]] {
        let mut configured = Configured::start(&site, flags, "dispatch = 'epoll'\n");
        let mut idle = configured.server.connect();
        idle.get("/a").is(200);
        let mut begun = configured.server.connect();
        begun.send("GET /a HTTP/1.1\r\nHos");
        let mut under_way = configured.server.connect();
        under_way.send(request("GET", "/large", &[]));
        assert_eq!(under_way.response_head().is(200).length(), LARGE);
        configured.set("dispatch = 'poll'\nheader = ['* X-Of: the new']\n");
        // The workers of before answer until they have heard that they are to end, and by what they were started with.
        for (client, rest) in [
            (&mut idle, request("GET", "/a", &[])),
            (&mut begun, "t: localhost\r\n\r\n".to_owned()),
        ] {
            client.send(rest);
            let mut response = client.response().is(200);
            while response.field("Connection") != Some("close") {
                assert_eq!(response.field("X-Of"), None);
                response = client.get("/a").is(200);
            }
            assert_eq!(response.field("X-Of"), None);
            client.expect_end();
        }
        // Workers of before may have accepted another connection until now.
        let new = loop {
            let response = configured.server.get("/a").is(200);
            if response.field("Connection").is_none() {
                break response;
            }
        };
        assert_eq!(new.field("X-Of"), Some("the new"));
        under_way.read(LARGE as usize);
        configured.stops_in_good_order();
    }
}

/// Two reloads follow each other before a worker hears of the first. Workers that block in accept(2) have made its socket a
/// blocking one then, and it would sleep in its last look for connections.
#[test]
fn workers_that_hear_late_of_two_reloads_answer_what_they_have() {
    let site = site();
    on_every_mechanism(|mechanism| {
        let name = mechanism.name;
        let goes =
            |strategy: &&&Strategy| !strategy.blocks && strategy.goes_with(mechanism).is_ok();
        let strategy = accept::ALL.iter().find(goes).unwrap().name;
        let settings = format!("dispatch = '{name}'\naccept = '{strategy}'\nworkers = 1\n");
        let mut configured = Configured::start(&site, &["--grace", "10m"], &settings);
        let mut client = configured.server.connect();
        client.get("/a").is(200);
        let worker = configured.server.worker_process();
        stop(worker);
        thread::scope(|scope| {
            let wake_worker = || signal("CONT", worker);
            // Workers whose mechanism has each socket for one worker alone cannot have others beside them.
            let at_once = mechanism.features.contains(Features::ONE_OWNER);
            if at_once {
                wake_worker();
            }
            configured.set(&format!("{settings}header = ['* X-Reload: 1']\n"));
            scope.spawn(move || {
                // Others that did not wait for this worker would have started by then. Nothing else depends on it.
                pause(Duration::from_millis(if at_once { 0 } else { 500 }));
                wake_worker();
            });
            configured.set("accept = 'blocking'\ndispatch = 'epoll'\nworkers = 1\n");
        });
        client.get_until_it_closes("/a");
        configured.stops_in_good_order();
    });
}

#[test]
fn a_stop_ends_the_workers_of_before_too() {
    let site = site();
    for flags in [&[][..], &["--processes"]] {
        let mut configured = Configured::start(&site, flags, "workers = 2\n");
        let mut idle: Vec<Client> = (0..4).map(|_| configured.server.connect()).collect();
        idle.iter_mut().for_each(|client| drop(client.get("/a").is(200)));
        configured.set("workers = 1\n");
        configured.set("workers = 3\n");
        configured.stops_in_good_order();
        idle.iter_mut().for_each(Client::expect_end);
    }
}

#[test]
fn what_cannot_be_is_refused_aloud_and_the_server_goes_on() {
    let site = site();
    for flags in [&[][..], &["--processes"]] {
        let mut configured = Configured::start(&site, flags, "workers = 2\n");
        let line = configured.kept + 1;
        let no_key =
            format!("drover.toml:{line}:1: there is no key 'wokers'; the nearest is 'workers'");
        let no_number = format!("drover.toml:{line}:11: ");
        for (from, to, told) in [
            ("workers = 2", "wokers = 2", &*no_key),
            ("workers = 2", "workers = 'few'", &*no_number),
            ("workers = 2", "accept = 'shared'\ndispatch = 'rtsig'", "--accept shared"),
            ("127.0.0.1:0", "127.0.0.2:0", "--listen cannot change while the server runs"),
            ("workers = 2", "counters = '/nowhere/counters'", "--counters cannot change"),
            ("workers = 2", "no-sandbox = true", "--no-sandbox cannot change"),
            ("workers = 2", "trace = '/tmp/trace'", "--trace"),
        ] {
            let before = fs::read_to_string(configured.folder.path().join("drover.toml")).unwrap();
            let log = configured.reload(|text| text.replacen(from, to, 1));
            assert!(log.contains("cannot reload: ") && log.contains(told), "{to}: {log}");
            configured.server.get("/a").is(200);
            let log = configured.reload(|_| before);
            assert!(log.contains("is as it was"), "{log}");
        }
        configured.stops_in_good_order();
    }
}

#[test]
fn whoever_watches_sees_reloads_and_counters_that_go_on() {
    let site = site();
    for flags in [&["--admin", "127.0.0.1:0"][..], &["--admin", "127.0.0.1:0", "--processes"]] {
        let mut configured = Configured::start(&site, flags, "workers = 2\n");
        let admin = configured.server.admin_address();
        let metric = |name: &str| -> u64 {
            let response = Client::connect(admin).get("/metrics").is(200);
            let lines = response.text().lines().filter(|line| line.starts_with(name));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        (0..5).for_each(|_| drop(configured.server.get("/a").is(200)));
        configured.set("workers = 3\n");
        (0..5).for_each(|_| drop(configured.server.get("/a").is(200)));
        assert_eq!(metric("drover_requests_total"), 10);
        assert_eq!((metric("drover_workers "), metric("drover_reloads_total ")), (3, 1));
        assert_eq!(metric("drover_last_reload_successful "), 1);
        configured.reload(|text| text.replace("workers", "wokers"));
        assert_eq!(
            (metric("drover_last_reload_successful "), metric("drover_reloads_total ")),
            (0, 1)
        );
        configured.set("workers = 1\n");
        assert_eq!((metric("drover_workers "), metric("drover_reloads_total ")), (1, 2));
        assert_eq!(metric("drover_last_reload_successful "), 1);
        configured.stops_in_good_order();
    }
}

/// Processes, threads and descriptors of workers that have ended are given back.
#[test]
fn many_reloads_leave_nothing_behind() {
    let site = site();
    let mut configured = Configured::start(&site, &[], "workers = 2\n");
    // Processes, and threads and descriptors of the one that stays.
    let now = |configured: &Configured| {
        let own = format!("/proc/{}", configured.server.process());
        let count = |what: &str| fs::read_dir(format!("{own}/{what}")).unwrap().count();
        [configured.server.children().len(), count("task"), count("fd")]
    };
    let settle = |configured: &mut Configured, number: usize| {
        configured.set(&format!("workers = 2\nheader = ['* X-Reload: {number}']\n"));
        configured.server.get("/b").is(200);
    };
    (0..5).for_each(|number| settle(&mut configured, number));
    until_one_process(&configured.server);
    let before = now(&configured);
    (5..25).for_each(|number| settle(&mut configured, number));
    let since = std::time::Instant::now();
    // They end a moment after their connections.
    while now(&configured).iter().zip(before).any(|(now, before)| *now > before) {
        let now = now(&configured);
        assert!(since.elapsed() < PATIENCE, "processes, threads, descriptors {before:?} {now:?}");
        thread::yield_now();
    }
    configured.stops_in_good_order();
}

/// Waits until the workers from before a reload have ended.
fn until_one_process(server: &Server) {
    let since = std::time::Instant::now();
    while server.children().len() > 1 {
        assert!(since.elapsed() < PATIENCE, "{:?}", server.children());
        thread::yield_now();
    }
}

/// Connections from before hold descriptors: they are no reason to allow fewer new ones.
#[test]
fn workers_that_succeed_may_have_as_many_connections() {
    let site = site();
    let mut configured = Configured::start(&site, &[], "workers = 1\n");
    for process in [configured.server.process(), configured.server.worker_process()] {
        let limit = Rlimit { current: Some(200), maximum: Some(200) };
        prlimit(Pid::from_raw(process.cast_signed()), Resource::Nofile, limit).unwrap();
    }
    let ask = |clients: &mut Vec<Client>| {
        clients.iter_mut().for_each(|client| drop(client.get("/a").is(200)));
    };
    let connect = |server: &Server, count| -> Vec<Client> {
        let mut clients = (0..count).map(|_| server.connect()).collect();
        ask(&mut clients);
        clients
    };
    let before = connect(&configured.server, 80);
    configured.set("workers = 1\ndispatch = 'poll'\n");
    drop(before);
    until_one_process(&configured.server);
    let mut after = connect(&configured.server, 70);
    // The first of them has been idle longest: it would be closed first.
    ask(&mut after);
    configured.stops_in_good_order();
}

//! The laboratory from outside: whole experiments with real servers and loads, made tiny.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

#[path = "schema/mod.rs"]
mod checker;

const SCHEMA: &str = include_str!("../schemas/drover.lab-1.schema.json");
const LOAD_SCHEMA: &str = include_str!("../schemas/drover.load-1.schema.json");
const DROVER: &str = env!("CARGO_BIN_EXE_drover");

/// An experiment with a mechanism and a server of the user's own.
fn experiment(folder: &Path, server: &str) -> PathBuf {
    let text = format!(
        r#"
id = "tiny"
title = "A tiny experiment"
source = "nobody"
question = "Does it work?"
method = "By trying."
mechanisms = ["poll", "mine"]
[servers.mine]
command = "{server}"
[workload]
reply_bytes = 92
[presets.quick]
connections = [4, 8]
rates = [200]
window_s = 0.1
repeats = 3
budget_s = 60
[[figures]]
id = "Figure 1"
title = "CPU use"
metric = "cpu-percent"
x = "connections"
[[claims]]
id = "a"
text = "Every request is answered."
source = "§1"
metric = "reply-rate"
mechanisms = ["poll", "mine"]
judge = {{ kind = "equals-offered", within = 0.9 }}
"#
    );
    let path = folder.join("tiny.toml");
    fs::write(&path, text).unwrap();
    path
}

fn own_server() -> String {
    format!("{DROVER} serve --reply-size 10 --listen 127.0.0.1:{{port}}")
}

fn lab(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(DROVER);
    command.arg("lab").args(args).current_dir(folder);
    command
}

fn output(folder: &Path, args: &[&str]) -> Output {
    lab(folder, args).output().unwrap()
}

/// Runs the experiment of that name: `rest` is its file without the words that any needs.
fn run(folder: &Path, id: &str, rest: &str, args: &[&str]) -> Output {
    let words = r#"
title = "A test"
source = "nobody"
question = "Does it work?"
method = "By trying."
"#;
    let file = format!("{id}.toml");
    fs::write(folder.join(&file), format!("id = \"{id}\"{words}{rest}")).unwrap();
    output(folder, &[&["run", &file], args].concat())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The results of the only run in `drover-lab`, where the pool of files may be as well.
fn results(folder: &Path, id: &str) -> Value {
    let file = format!("{id}.json");
    let mut places = fs::read_dir(folder.join("drover-lab")).unwrap();
    let saved = places.find_map(|entry| fs::read_to_string(entry.unwrap().path().join(&file)).ok());
    serde_json::from_str(&saved.expect("no results were saved")).unwrap()
}

/// The same, of a run that has succeeded.
#[track_caller]
fn succeeded(folder: &Path, id: &str, output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results = results(folder, id);
    assert_conforms(&results, SCHEMA);
    results
}

/// Whether the run was skipped because there can be no modelled disk here.
#[track_caller]
fn was_skipped(runs: &[Value], output: &Output) -> bool {
    let Some(obstacle) = drover::lab::disk::obstacle() else { return false };
    assert!(runs.is_empty() && text(&output.stdout).contains(&obstacle));
    testing::skip!("{obstacle}");
    true
}

/// Whether there were replies, and all of them had the status 200.
#[track_caller]
fn assert_all_succeeded(run: &Value) {
    let by_status = run["sample"]["load"]["status"].as_object().unwrap();
    assert!(by_status.keys().eq(["200"]), "{run}");
}

#[track_caller]
fn assert_usage_error(output: &Output, mentions: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(mentions.iter().all(|part| stderr.contains(part)), "{stderr}");
}

#[test]
fn cold_files_are_served_from_the_modelled_disk() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = r#"
compares = "files"
mechanisms = ["sendfile", "threads"]
[workload]
metadata_ms = 0
[presets.quick]
connections = [8]
file_bytes = [4096, 20000]
pool_mb = 1
disk_speed = 10
window_s = 0.1
repeats = 3
budget_s = 60
[[figures]]
id = "Table 1"
title = "Throughput"
metric = "throughput"
[[claims]]
id = "a"
text = "Asynchronous reads serve something."
source = "§1"
metric = "throughput"
mechanisms = ["threads"]
judge = { kind = "at-least", times = 0.01, baseline = ["sendfile"], file_bytes = 20000 }
published = [{ mechanism = "threads", file_bytes = 20000, value = 15 }]
"#;
    let output = run(folder.path(), "cold", experiment, &[]);
    let results = succeeded(folder.path(), "cold", &output);
    let runs = results["runs"].as_array().unwrap();
    if was_skipped(runs, &output) {
        return;
    }
    assert_eq!(runs.len(), 2 * 2 * 3);
    runs.iter().for_each(assert_all_succeeded);
    // A machine that has other work to do may leave one window without a read.
    let reads = |run: &&Value| run["sample"]["disk"]["bytes"].as_u64().unwrap() > 0;
    for point in runs.iter().map(|run| &run["point"]) {
        let run = runs.iter().filter(reads).find(|run| &run["point"] == point).expect("a read");
        assert!(run["sample"]["disk"]["utilisation_percent"].as_f64().unwrap() > 0.0, "{run}");
    }
    assert!(results["notes"].to_string().contains("modelled disk: 2 spindles"));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("threads        holds"), "{stdout}");
    let page = fs::read_to_string(folder.path().join("drover-lab/report.html")).unwrap();
    assert!(page.contains("19.5 KiB files, 8 connections"), "bars per size");
    assert_eq!(fs::read_dir(folder.path().join("drover-lab/pools")).unwrap().count(), 2);
}

#[test]
fn files_in_memory_are_served_without_a_modelled_disk() {
    // Beside the program: a disk, where the folder for temporary files may be memory.
    let folder = tempfile::tempdir_in(Path::new(DROVER).parent().unwrap()).unwrap();
    let experiment = r#"
compares = "files"
mechanisms = ["sendfile", "threads", "mmap"]
[workload]
[presets.quick]
connections = [4]
file_bytes = [4096, 200000]
pool_mb = 1
disk = "cached"
window_s = 0.1
fetches = [{ file_bytes = 200000, count = 10 }]
mechanisms = ["sendfile", "threads"]
repeats = 3
budget_s = 60
[[figures]]
id = "Table 1"
title = "What a second of CPU time sends"
metric = "per-cpu-second"
[[claims]]
id = "a"
text = "Threads are no miracle."
source = "§1"
metric = "throughput"
mechanisms = ["threads"]
judge = { kind = "at-most", times = 1000, baseline = ["sendfile"], file_bytes = 200000 }
"#;
    let output = run(folder.path(), "warm", experiment, &["--keep-awake", "on"]);
    if text(&output.stderr).contains("cannot take") {
        return testing::skip!("{}", text(&output.stderr));
    }
    let results = succeeded(folder.path(), "warm", &output);
    assert!(kept_awake(&results));
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * 2 * 3);
    for run in runs {
        assert_eq!(run["sample"]["disk"], Value::Null, "{run}");
        let replies = run["sample"]["load"]["replies"].as_u64().unwrap();
        match run["point"]["file_bytes"].as_u64() {
            Some(200_000) => assert_eq!(replies, 10, "{run}"),
            _ => assert!(replies > 0, "{run}"),
        }
    }
    assert!(text(&output.stdout).contains("threads        holds"), "{}", text(&output.stdout));
}

#[test]
fn connections_of_one_request_go_round_as_fast_as_they_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = r#"
compares = { flag = "--accept" }
mechanisms = ["shared", "lock"]
[workload]
reply_bytes = 92
serve = ["--workers", "2", "--processes"]
calls_per_connection = 1
[presets.quick]
connections = [3]
window_s = 0.1
repeats = 3
budget_s = 60
[presets.standard]
connections = [3]
rates = [100]
window_s = 0.1
repeats = 1
budget_s = 60
[[figures]]
id = "Figure 1"
title = "Reply rate"
metric = "reply-rate"
x = "connections"
[[claims]]
id = "a"
text = "A lock is no miracle."
source = "§1"
metric = "reply-rate"
mechanisms = ["lock"]
judge = { kind = "at-least", times = 0.001, baseline = ["shared"] }
"#;
    let try_out = |args: &[&str]| {
        let output = run(folder.path(), "calls", experiment, args);
        let found = succeeded(folder.path(), "calls", &output);
        fs::remove_dir_all(folder.path().join("drover-lab")).unwrap();
        for run in found["runs"].as_array().unwrap() {
            let load = &run["sample"]["load"];
            let replies = load["replies"].as_u64().unwrap();
            assert!(replies > 0, "{run}");
            assert!(load["connections"]["opened"].as_u64().unwrap() >= replies, "{load}");
            let words = run["sample"]["server_command"].to_string();
            assert_eq!(words.matches("--workers").count(), 1, "{words}");
        }
        (found, text(&output.stdout).to_string())
    };
    let (found, stdout) = try_out(&[]);
    assert_eq!(found["runs"].as_array().unwrap().len(), 2 * 3);
    assert_eq!(found["runs"][0]["point"]["calls"], 1);
    assert!(stdout.contains("lock           holds"), "{stdout}");
    assert!(stdout.contains("at one request per connection"), "{stdout}");
    let (found, _) = try_out(&["--preset", "standard"]);
    assert_eq!(found["runs"][0]["point"]["rate"], 100.0);
}

#[test]
fn a_wait_queue_settles_in_the_lab() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["run", "settle-time", "--mechanisms", "select,blocking,wake-all,wake-one"];
    let sizes = ["--waiters", "4,16", "--window", "20ms", "--repeats", "3"];
    let output = output(folder.path(), &[&args[..], &sizes].concat());
    let results = succeeded(folder.path(), "settle-time", &output);
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4 * 2 * 3);
    for run in runs {
        let herd = &run["sample"]["herd"];
        assert_eq!(herd["waiters"], run["point"]["connections"], "{run}");
        let connections = herd["connect_us"].as_array().unwrap().len();
        // Of some hundred thousand sleeps one is not recorded.
        let settled = herd["settle_us"].as_array().unwrap().len();
        assert!(connections > 1 && (connections - 1..=connections).contains(&settled), "{run}");
    }
    // How many are woken is no matter of time.
    let stdout = text(&output.stdout);
    let claim = stdout.split("(c) ").nth(1).unwrap().split("(d) ").next().unwrap();
    assert!(claim.contains("wake-all       holds"), "{stdout}");
}

/// Whether processors were kept from going idle, as the results say.
fn kept_awake(results: &Value) -> bool {
    results["notes"].to_string().contains("No processor was idle")
}

#[test]
fn values_of_a_flag_are_compared_beside_readers_of_a_slow_disk() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = r#"
compares = { flag = "--read-threads" }
mechanisms = ["2", "8", "no threads"]
[servers."no threads"]
serve = ["--read-threads", "1"]
[workload]
metadata_ms = 0
serve = ["--files", "threads"]
beside = { small_bytes = 1000, small_rate = 100, cold_bytes = 20000 }
[presets.quick]
connections = [2]
cold_readers = [0, 4]
pool_mb = 1
disk_speed = 10
window_s = 0.5
repeats = 1
budget_s = 60
[[figures]]
id = "Figure 1"
title = "Response time"
metric = "latency-p99"
[[claims]]
id = "a"
text = "It rises."
source = "§1"
metric = "latency-p99"
mechanisms = ["2"]
judge = { kind = "rises-at-least", times = 1 }
"#;
    let output = run(folder.path(), "sweep", experiment, &[]);
    let results = succeeded(folder.path(), "sweep", &output);
    let runs = results["runs"].as_array().unwrap();
    if was_skipped(runs, &output) {
        return;
    }
    assert_eq!(runs.len(), 3 * 2);
    let mut read_beside = 0;
    for run in runs {
        let reads = run["sample"]["disk"]["bytes"].as_u64().unwrap();
        let has_readers = run["point"]["cold_readers"] == 4;
        assert!(has_readers || reads == 0, "small files are in memory: {run}");
        read_beside += reads;
        // Where the machine stands still they may come too late to be sent.
        let load = &run["sample"]["load"];
        let count = |key: &str| load[key].as_u64().unwrap();
        assert_eq!(count("requests") + count("unsent"), 50, "{run}");
        assert_eq!(load["bytes"]["body"], Value::from(count("replies") * 1000), "{run}");
        let command = run["sample"]["server_command"].to_string();
        let wanted = match run["point"]["mechanism"].as_str().unwrap() {
            "no threads" => "1",
            level => level,
        };
        assert!(command.contains(&format!("\"--read-threads\",\"{wanted}\"")), "{command}");
    }
    // They stand back for everybody else on the machine, and need not have come to it each time.
    assert!(read_beside > 0, "{runs:?}");
}

#[test]
fn where_the_time_of_requests_went_is_kept_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = r#"
compares = { flag = "--read-threads" }
mechanisms = ["1", "8"]
[workload]
metadata_ms = 0
serve = ["--files", "threads"]
late_s = 1e-5
[presets.quick]
connections = [4]
file_bytes = [200000]
pool_mb = 3
disk_speed = 10
window_s = 1
fetches = [{ file_bytes = 200000, count = 12 }]
repeats = 1
budget_s = 60
[[figures]]
id = "Figure 1"
title = "Late"
metric = "late-requests"
[[claims]]
id = "a"
text = "One thread is enough."
source = "§1"
metric = "longest-read"
mechanisms = ["1"]
judge = { kind = "at-most", times = 1000, baseline = ["8"] }
"#;
    let output = run(folder.path(), "stages", experiment, &[]);
    let results = succeeded(folder.path(), "stages", &output);
    let runs = results["runs"].as_array().unwrap();
    if was_skipped(runs, &output) {
        return;
    }
    assert_eq!(runs.len(), 2);
    for run in runs {
        let stages = &run["sample"]["stages"];
        assert_eq!(stages["late_us"], 1, "{run}");
        for column in ["start_us", "reads", "queue_us", "read_us", "longest_us"] {
            assert_eq!(stages[column].as_array().unwrap().len(), 12, "{column}: {run}");
        }
        let reads = stages["reads"].as_array().unwrap().iter().filter_map(Value::as_u64);
        assert!(reads.sum::<u64>() >= 12, "each file is read once: {run}");
    }
    let page = fs::read_to_string(folder.path().join("drover-lab/report.html")).unwrap();
    assert!(
        page.contains("Where the time of requests went") && page.contains("longest single read")
    );
    assert!(page.contains("Late requests [%]") && page.contains("100 <span"), "all are late");
}

#[test]
fn servers_of_ones_own_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let mine = format!("mine={DROVER} serve {{root}} --listen 127.0.0.1:{{port}}");
    let args = ["compare", &mine, "drover", "--window", "100ms", "--repeats", "3"];
    let done = output(folder.path(), &[&args[..], &["--file-bytes", "1K,20K"]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let stdout = text(&done.stdout);
    for size in ["1 KiB files, 64 connections", "20 KiB files, 64 connections"] {
        assert_eq!(stdout.matches(size).count(), 1, "{stdout}");
    }
    assert_eq!(stdout.matches(" replies/s, ").count(), 4, "{stdout}");
    assert_conforms(&results(folder.path(), "compare"), SCHEMA);
    let page = fs::read_to_string(folder.path().join("drover-lab/report.html")).unwrap();
    assert!(page.contains("data-series=\"mine\"") && !page.contains("Published claims"));
    let refused = |args: &[&str]| output(folder.path(), args);
    assert_usage_error(&refused(&["compare", "caddie"]), &["'caddie'", "NAME=COMMAND"]);
    assert_usage_error(&refused(&["compare", "drover", "--file-bytes", "0"]), &["--file-bytes"]);
}

#[test]
fn peers_are_measured_where_they_are_installed_and_named_where_not() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = r#"
compares = "files"
mechanisms = ["sendfile"]
[workload]
[presets.quick]
connections = [2]
file_bytes = [20000]
pool_mb = 1
disk = "cached"
window_s = 0.1
peers = ["nginx", "lighttpd", "h2o", "apache2"]
repeats = 1
budget_s = 60
[[figures]]
id = "Table 1"
title = "Throughput"
metric = "throughput"
[[claims]]
id = "a"
text = "It serves."
source = "§1"
metric = "throughput"
mechanisms = ["sendfile"]
judge = { kind = "at-least", times = 0.01, baseline = ["sendfile"], file_bytes = 20000 }
"#;
    let output = run(folder.path(), "peers", experiment, &[]);
    let results = succeeded(folder.path(), "peers", &output);
    let (runs, skipped) = (&results["runs"], &results["skipped"]);
    assert_eq!(runs.as_array().unwrap().len() + skipped.as_array().unwrap().len(), 5);
    runs.as_array().unwrap().iter().for_each(assert_all_succeeded);
    for peer in skipped.as_array().unwrap() {
        testing::skip!("{}: {}", peer["name"], peer["reason"]);
        assert!(peer["reason"].as_str().unwrap().contains("apt-get install"), "{peer}");
    }
    let mut left = fs::read_dir(folder.path().join("drover-lab")).unwrap();
    let run = left.find(|entry| entry.as_ref().unwrap().path().join("peers.json").exists());
    assert!(!run.unwrap().unwrap().path().join("peer").exists(), "nothing of a peer is left");
}

#[test]
fn a_tiny_experiment_runs_from_end_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = experiment(folder.path(), &own_server());
    let output = output(folder.path(), &["run", file.to_str().unwrap(), "--seed", "7"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert_eq!(stdout.lines().last(), Some("Report: drover-lab/report.html"), "{stdout}");
    assert_eq!(text(&output.stderr).lines().count(), 12, "a line per run");

    let results = results(folder.path(), "tiny");
    assert_conforms(&results, SCHEMA);
    assert!(!kept_awake(&results), "nobody asked for that");
    assert_eq!((&results["state"], &results["seed"]), (&Value::from("finished"), &Value::from(7)));
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * 2 * 3);
    for run in runs {
        assert_eq!(run["error"], Value::Null, "{run}");
        assert!(run["sample"]["server_cpu_s"].as_f64().unwrap() > 0.0, "{run}");
        assert!(run["sample"]["window_s"].as_f64().unwrap() >= 0.1, "{run}");
        assert_conforms(&run["sample"]["load"], LOAD_SCHEMA);
    }
    let page = fs::read_to_string(folder.path().join("drover-lab/report.html")).unwrap();
    assert!(page.contains("A tiny experiment") && page.contains("data-series=\"mine\""));
    report_is_written_anew(folder.path(), &page);
    report_is_served(folder.path(), &page);
}

#[track_caller]
fn assert_conforms(value: &Value, schema: &str) {
    let schema: Value = serde_json::from_str(schema).unwrap();
    checker::check(value, &schema, &schema, "").unwrap();
}

fn report_is_written_anew(folder: &Path, page: &str) {
    let output = output(folder, &["report"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let path = text(&output.stdout).trim().strip_prefix("Report: ").unwrap().to_string();
    assert_eq!(fs::read_to_string(folder.join(path)).unwrap(), page);
}

fn report_is_served(folder: &Path, page: &str) {
    let mut server = lab(folder, &["serve"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
    let address = url.trim().strip_prefix("http://").unwrap().strip_suffix("/report.html").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let request =
        format!("GET /report.html HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with(page));
    mech::process::ask_to_stop(&server).unwrap();
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_server_that_fails_is_reported_and_remembered_by_the_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    let file = experiment(folder.path(), "sh -c 'echo no such luck >&2; exit 3' {port}");
    let output = output(folder.path(), &["run", file.to_str().unwrap(), "--repeats", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let last = text(&output.stderr).lines().last().unwrap();
    assert_eq!(last, "drover: 2 of 4 runs failed: the report says why");
    assert_conforms(&results(folder.path(), "tiny"), SCHEMA);
    let page = fs::read_to_string(folder.path().join("drover-lab/report.html")).unwrap();
    assert!(page.contains("no such luck") && page.contains("data-series=\"poll\""));
}

#[test]
fn an_interrupted_run_leaves_a_report_and_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = LongRun::start(folder.path());
    let children = run.server_and_load();
    run.signal("INT");
    let (status, stdout, stderr) = run.end();
    assert_eq!(status, Some(1), "{stderr}");
    assert_eq!(stdout.lines().last(), Some("Report: drover-lab/report.html"));
    assert!(stderr.lines().last().unwrap().starts_with("drover: interrupted"), "{stderr}");
    let alive: Vec<&Process> = children.iter().filter(|child| child.is_alive()).collect();
    assert!(alive.is_empty(), "{alive:?}");

    let results = results(folder.path(), "dispatch-overhead");
    assert_eq!(results["state"], "interrupted");
    assert!(!results["runs"].as_array().unwrap().is_empty());
    let page = fs::read_to_string(folder.path().join("drover-lab/report.html")).unwrap();
    let rounds = page.split("The run was interrupted: ").nth(1).unwrap();
    let rounds = rounds.split(" of 50 rounds").next().unwrap();
    assert!(rounds.parse::<u32>().unwrap() < 50, "{rounds}");
}

#[test]
fn a_killed_lab_takes_its_children_along_and_leaves_its_results() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = LongRun::start(folder.path());
    let children = run.server_and_load();
    run.lab.kill().unwrap();
    run.lab.wait().unwrap();
    // Each is being killed by now; that takes as long as it takes.
    let deadline = Instant::now() + Duration::from_secs(20);
    while children.iter().any(Process::is_alive) {
        assert!(Instant::now() < deadline, "{children:?}");
        thread::yield_now();
    }
    assert_eq!(results(folder.path(), "dispatch-overhead")["state"], "running");
    assert!(output(folder.path(), &["report"]).status.success());
}

/// A lab that would run for minutes.
struct LongRun {
    lab: Child,
    stderr: BufReader<std::process::ChildStderr>,
}

impl LongRun {
    /// Starts it, and returns when its first run is complete.
    fn start(folder: &Path) -> LongRun {
        let args = ["run", "--mechanisms", "poll", "--connections", "4,8"];
        let more = ["--window", "300ms", "--repeats", "50"];
        let mut lab = lab(folder, &[&args[..], &more].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(lab.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert!(line.starts_with("1/200 poll"), "{line}");
        LongRun { lab, stderr }
    }

    /// Its children, once there are two.
    fn server_and_load(&self) -> Vec<Process> {
        loop {
            let children = Process::children_of(self.lab.id());
            if children.len() == 2 {
                return children;
            }
            thread::yield_now();
        }
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.lab.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Its exit status, and what it said.
    fn end(&mut self) -> (Option<i32>, String, String) {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.lab.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut stderr).unwrap();
        (self.lab.wait().unwrap().code(), stdout, stderr)
    }
}

/// A process, not to be taken for a later one of the same number.
#[derive(Debug)]
struct Process {
    pid: u32,
    start: String,
}

impl Process {
    fn children_of(parent: u32) -> Vec<Process> {
        fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid| stat(*pid).is_some_and(|stat| stat[1] == parent.to_string()))
            .filter_map(|pid| Some(Process { pid, start: stat(pid)?[19].clone() }))
            .collect()
    }

    fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat[19] == self.start && stat[0] != "Z")
    }
}

/// The fields of `/proc/PID/stat` after the name: state, parent, …, the 20th is the start time.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_string).collect())
}

#[test]
fn a_wish_that_cannot_be_met_is_answered_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |args: &[&str]| output(folder.path(), args);
    assert_usage_error(&refused(&["run", "--mechanisms", "epol"]), &["--mechanisms", "epoll-et"]);
    assert_usage_error(&refused(&["run", "no-such"]), &["'no-such'", "dispatch-overhead"]);
    assert_usage_error(&refused(&["run", "--preset", "fast"]), &["--preset fast", "quick"]);
    assert_usage_error(&refused(&["run", "--rate-scale", "0"]), &["--rate-scale", "above 0"]);
    assert_usage_error(&refused(&["report"]), &["drover-lab", "drover lab"]);
    assert_usage_error(&refused(&["serve", "."]), &["run 'drover lab' first"]);
    let file = folder.path().join("bad.toml");
    fs::write(&file, "id = 5\n").unwrap();
    assert_usage_error(&refused(&["run", "bad.toml"]), &["bad.toml:1: "]);
    assert!(!folder.path().join("drover-lab").exists(), "nothing was run, nothing was written");
}

#[test]
fn the_list_names_experiments_and_presets() {
    let folder = tempfile::tempdir().unwrap();
    let output = output(folder.path(), &["list"]);
    let list = text(&output.stdout);
    assert!(list.contains("dispatch-overhead") && list.contains("--preset paper"), "{list}");
}

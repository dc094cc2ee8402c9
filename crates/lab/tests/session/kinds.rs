//! A run of each kind of load, subject, wire and pool.

use drover_lab::model::Sample;
use drover_lab::process::Interrupt;

use super::{drover, experiment, run_in, samples};

/// Runs an experiment once; its samples, or nothing where Drover's binary is missing.
fn run(text: &str) -> Option<Vec<Sample>> {
    let drover = drover()?;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let text = format!(
        "schema = 'drover.experiment/2'\nid = 'kinds'\n{text}\n[presets.quick]\nrounds = 1\n"
    );
    run_in(&experiment(&text), &drover, folder.path(), false, Interrupt::default());
    Some(samples(folder.path()))
}

/// The value of a metric in a sample that must not have failed.
#[track_caller]
fn value(sample: &Sample, metric: &str) -> f64 {
    assert_eq!(sample.failure, None);
    *sample.values.get(metric).unwrap_or_else(|| panic!("no {metric} in {sample:?}"))
}

/// Whether a sample says that this machine cannot measure its cell; notes that then.
fn is_not_testable(sample: &Sample) -> bool {
    let why = sample.failure.as_deref().and_then(|why| why.strip_prefix("not testable here: "));
    if let Some(why) = why {
        drover_testing::skip!("{why}");
    }
    why.is_some()
}

#[test]
fn waiters_are_woken_all_or_one() {
    let Some(samples) = run(r#"
        [subject.select]
        waiters = { by = "select", count = "{n}" }
        [subject.exclusive]
        waiters = { by = "exclusive", count = "{n}", as = "processes" }
        [factor.n]
        levels = [8]
        [load.connects]
        count = 20
        [phases]
        measure = { at_least = "100ms" }
        "#)
    else {
        return;
    };
    for sample in &samples {
        assert!(value(sample, "connect-median") > 0.0);
        // A waiter that sleeps in select is woken by each connection, whoever takes it.
        let woken = value(sample, "wake-ups");
        let bound = if sample.cell.subject == "select" { 2.0..=9.0 } else { 0.5..=2.0 };
        assert!(bound.contains(&woken), "{}: {woken}", sample.cell.subject);
    }
    assert_eq!(samples.len(), 2);
}

#[test]
fn busy_waiters_are_told_and_not_woken() {
    let Some(samples) = run(r#"
        [subject.busy]
        waiters = { by = "exclusive", count = 8, as = "processes", busy = true }
        [load.connects]
        count = 10
        [phases]
        measure = { at_least = "10s" }
        "#)
    else {
        return;
    };
    assert!(value(&samples[0], "connect-median") > 0.0);
    assert_eq!((value(&samples[0], "wake-ups"), value(&samples[0], "returns")), (0.0, 8.0));
}

#[test]
fn tokens_pass_through_pipes() {
    let Some(samples) = run(r#"
        [subject.epoll]
        pipes = { by = "epoll-et", count = "{pipes}" }
        [subject.busy]
        pipes = { by = "busy", count = "{pipes}" }
        [factor.pipes]
        levels = [30]
        [load.tokens]
        active = 2
        writes = 3
        [phases]
        warmup = { until = "nothing", at_most = "1ms" }
        measure = { at_least = "20ms" }
        "#)
    else {
        return;
    };
    for sample in &samples {
        for metric in ["event-time", "event-rate", "cpu-per-event", "register-time"] {
            assert!(value(sample, metric) > 0.0, "{metric}: {sample:?}");
        }
        let copied = value(sample, "copied-per-event");
        assert_eq!(copied > 0.0, sample.cell.subject == "epoll", "{copied}");
    }
    assert_eq!(samples.len(), 2);
}

/// Where the queue has no room at all, each event is an overflow.
#[test]
fn overflows_are_counted_by_the_server() {
    let Some(samples) = run(r#"
        [subject.rtsig]
        serve = ["--dispatch", "rtsig", "--response-size", "1"]
        limits = { sigpending = 0 }
        [subject.poll]
        serve = ["--dispatch", "poll", "--response-size", "1"]
        [load.http]
        connections = 4
        requests = 40
        [phases]
        warmup = { until = "nothing" }
        [[figure]]
        id = "1"
        title = "Overflows"
        metric = "overflows"
        "#)
    else {
        return;
    };
    for sample in &samples {
        let overflows = value(sample, "overflows");
        assert_eq!(overflows > 0.0, sample.cell.subject == "rtsig", "{sample:?}");
    }
    assert_eq!(samples.len(), 2);
}

#[test]
fn recorded_events_are_replayed() {
    let Some(samples) = run(r#"
        [subject.recorded]
        serve = ["--dispatch", "rtsig-batch", "--response-size", "1", "--record-events", "{work}/events"]
        [subject.plain]
        serve = ["--dispatch", "rtsig-batch", "--response-size", "1"]
        [load.http]
        connections = 4
        requests = 40
        [phases]
        warmup = { until = "nothing" }
        "#)
    else {
        return;
    };
    for sample in samples.iter().filter(|sample| sample.cell.subject == "recorded") {
        let peak = value(sample, "queue-peak");
        assert!((1.0..=peak).contains(&value(sample, "queue-peak-per-fd")), "{sample:?}");
        assert!(value(sample, "queue-peak-ratio") <= 1.0);
    }
    for sample in samples.iter().filter(|sample| sample.cell.subject == "plain") {
        assert_eq!(sample.failure, None);
        assert!(!sample.values.contains_key("queue-peak"));
    }
    assert_eq!(samples.len(), 2);
}

#[test]
fn a_wire_of_a_rate_carries_no_more() {
    let Some(samples) = run(r#"
        wire = "{wire}"
        [subject.epoll]
        serve = ["--response-size", "64K"]
        [factor.wire]
        levels = ["10mbit"]
        [load.http]
        connections = 4
        requests = 20
        [phases]
        warmup = { until = "nothing" }
        "#)
    else {
        return;
    };
    if is_not_testable(&samples[0]) {
        return;
    }
    // 20 bodies are 1.3 MB, of which a burst of 66 kB passes at once.
    let throughput = value(&samples[0], "throughput");
    assert!(throughput > 0.0 && throughput < 1.4, "{throughput}");
}

#[test]
fn another_generator_is_read_by_pointers_and_words() {
    let Some(samples) = run(r#"
        [subject.epoll]
        serve = ["--response-size", "10"]
        [load.command]
        command = ["{sh}", "-c", "echo 'Requests/sec: 12.5'; echo took 3.5ms; echo asked $0", "{url}"]
        find = { sh = ["sh"] }
        metrics.response-rate = { after = "Requests/sec:" }
        metrics.latency-mean = { after = "took", times = 2 }
        [phases]
        measure = { at_least = "50ms" }
        "#)
    else {
        return;
    };
    assert_eq!(value(&samples[0], "response-rate"), 12.5);
    assert_eq!(value(&samples[0], "latency-mean"), 7.0);
}

#[test]
fn files_of_several_pools_are_read_beside_each_other() {
    let Some(samples) = run(r#"
        instruments = ["idle-guard", "stages"]
        [subject.threads]
        serve = ["--files", "threads", "--workers", "2"]
        [pool.small]
        bytes = 1000
        total = "100K"
        [pool.large]
        bytes = "64K"
        total = "640K"
        [load.http]
        pool = "small"
        connections = 2
        requests = 50
        expect_size = 1000
        [background.http]
        pool = "large"
        connections = 2
        expect_size = 65536
        [phases]
        warmup = { until = "nothing" }
        drain = true
        [metric.bodies]
        from = "load:/bytes/body"
        "#)
    else {
        return;
    };
    let sample = &samples[0];
    assert_eq!(value(sample, "bodies"), 50_000.0);
    assert_eq!(value(sample, "error-percent"), 0.0);
    assert!(value(sample, "imbalance") >= 0.0);
    assert!(value(sample, "write-time") >= 0.0 && value(sample, "machine-percent") >= 0.0);
}

#[test]
fn every_connection_is_used_before_the_window() {
    let Some(samples) = run(r#"
        [subject.epoll]
        serve = ["--response-size", "10"]
        [load.http]
        connections = 300
        rate = 400
        [phases]
        warmup = { at_most = "200ms" }
        measure = { at_least = "250ms" }
        "#)
    else {
        return;
    };
    // 100 requests are due in the window, and 300 before.
    let rate = value(&samples[0], "response-rate");
    assert!(rate > 0.0, "{rate}");
    assert!(samples[0].values.contains_key("latency-p99"), "{samples:?}");
}

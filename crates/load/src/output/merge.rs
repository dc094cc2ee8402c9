//! Joins the results of several generators into one, exactly: counts add up, histograms are added
//! bucket by bucket, series are laid side by side by the time of day, and what follows from them is
//! computed anew.
//!
//! It uses only what is in the results. So one function joins results of several machines, of several
//! days, and of the processes of one run. Between machines,
//! the alignment is as good as their clocks.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::account::counts::TimeHistogram;
use crate::account::errors::ErrorCounts;
use crate::account::histograms::{self, Histograms};
use crate::output::redact;
use crate::output::result::{
    Bytes, ConnectionCounts, Distribution, GeneratorState, LoadResult, ResponseRate, SCHEMA,
};
use crate::warning::{Warning, WarningCode};

/// Reads a result.
///
/// # Errors
/// One line, if `text` is no result or one of another version.
pub fn parse(text: &[u8]) -> Result<LoadResult, String> {
    let value: Value = serde_json::from_slice(text)
        .map_err(|error| format!("it is no JSON ({error}): give what --json has written"))?;
    match value.get("schema").and_then(Value::as_str) {
        Some(SCHEMA) => {}
        Some(other) => {
            return Err(format!(
                "its schema is {other} and not {SCHEMA}: results are joined by the version of \
                 drover that wrote them"
            ));
        }
        None => return Err("it is no result of drover load: give what --json has written".into()),
    }
    LoadResult::deserialize(value).map_err(|error| format!("it does not keep to {SCHEMA}: {error}"))
}

/// Joins `results`, of which each has a name for warnings.
///
/// # Errors
/// One line, if a histogram cannot be read, or there is nothing to join.
pub fn merge(results: Vec<(String, LoadResult)>) -> Result<LoadResult, String> {
    let mut sum = MergedSum::default();
    let mut results = results.into_iter();
    let Some((name, first)) = results.next() else {
        return Err("there is nothing to join".to_string());
    };
    let mut joined = first;
    sum.take(name, &mut joined)?;
    for (name, mut result) in results {
        sum.take(name, &mut result)?;
        add(&mut joined, result);
    }
    sum.conclude(&mut joined);
    Ok(joined)
}

/// What cannot be added up from result to result.
#[derive(Default)]
struct MergedSum {
    latency: Option<TimeHistogram>,
    service: Option<TimeHistogram>,
    connect: Option<TimeHistogram>,
    handshake: Option<TimeHistogram>,
    first_byte: Option<TimeHistogram>,
    transfer: Option<TimeHistogram>,
    slip: Option<TimeHistogram>,
    /// The window of each result.
    windows: Vec<ResultWindow>,
    warnings: Vec<(String, Vec<Warning>)>,
    offered_rate: f64,
    closed: bool,
}

struct ResultWindow {
    start: f64,
    length: f64,
    responses: f64,
    series: Vec<u64>,
}

impl MergedSum {
    fn take(&mut self, name: String, result: &mut LoadResult) -> Result<(), String> {
        let Histograms { service, connect, handshake, first_byte, transfer, slip } =
            std::mem::take(&mut result.histograms);
        for (sum, text) in [
            (&mut self.latency, result.histogram.take()),
            (&mut self.service, service),
            (&mut self.connect, connect),
            (&mut self.handshake, handshake),
            (&mut self.first_byte, first_byte),
            (&mut self.transfer, transfer),
            (&mut self.slip, slip),
        ] {
            let Some(text) = text else { continue };
            let times = histograms::decode(&text).map_err(|fault| format!("{name}: {fault}"))?;
            match sum {
                None => *sum = Some(times),
                Some(sum) => sum
                    .add(&times)
                    .map_err(|_| format!("{name}: its histograms have other bounds"))?,
            }
        }
        if let Some(start) = result.window_start {
            let length = result.duration_s;
            let responses = (result.achieved_rate.unwrap_or(0.0) * length).round();
            let series = result.response_rate.take().map_or_else(Vec::new, |rate| rate.series);
            self.windows.push(ResultWindow { start, length, responses, series });
        }
        match result.offered_rate {
            Some(rate) => self.offered_rate += rate,
            None => self.closed = true,
        }
        self.warnings.push((name, std::mem::take(&mut result.warnings)));
        Ok(())
    }

    fn conclude(mut self, joined: &mut LoadResult) {
        let start = self.windows.iter().map(|window| window.start).fold(f64::INFINITY, f64::min);
        let ends = self.windows.iter().map(|window| window.start - start + window.length);
        joined.duration_s = ends.fold(0.0, f64::max);
        joined.window_start = start.is_finite().then_some(start);
        let responses: f64 = self.windows.iter().map(|window| window.responses).sum();
        joined.achieved_rate = (joined.duration_s > 0.0).then(|| responses / joined.duration_s);
        joined.offered_rate = (!self.closed).then_some(self.offered_rate);
        joined.response_rate = self.series(start);
        joined.client.slip_p99_us = distribution(self.slip.as_ref()).map(|slip| slip.p99);
        joined.latency_us = distribution(self.latency.as_ref());
        joined.service_us = distribution(self.service.as_ref());
        joined.connect_us = distribution(self.connect.as_ref());
        joined.handshake_us = distribution(self.handshake.as_ref());
        joined.first_byte_us = distribution(self.first_byte.as_ref());
        joined.transfer_us = distribution(self.transfer.as_ref());
        joined.warnings = self.warnings(start, joined.duration_s);
        let encode = |times: Option<TimeHistogram>| times.as_ref().and_then(histograms::encode);
        joined.histogram = encode(self.latency.take());
        joined.histograms = Histograms {
            service: encode(self.service.take()),
            connect: encode(self.connect.take()),
            handshake: encode(self.handshake.take()),
            first_byte: encode(self.first_byte.take()),
            transfer: encode(self.transfer.take()),
            slip: encode(self.slip.take()),
        };
        joined.command = redact::command();
        joined.setting = format!("{} results joined", self.warnings.len());
    }

    /// The responses of each second in which any generator measured, by the time of day to the nearest
    /// second.
    fn series(&self, start: f64) -> Option<ResponseRate> {
        let mut seconds: BTreeMap<u64, u64> = BTreeMap::new();
        for window in &self.windows {
            let offset = (window.start - start).round() as u64;
            for (second, responses) in (offset..).zip(&window.series) {
                *seconds.entry(second).or_default() += responses;
            }
        }
        ResponseRate::of(seconds.into_values().collect())
    }

    /// The warnings of all results. The numbers in a text belong to one result, never to the sum: so each
    /// text names its result, or says that each of them has it. The counts of a code add up to all there are.
    fn warnings(&self, start: f64, duration: f64) -> Vec<Warning> {
        let mut warnings: Vec<Warning> = Vec::new();
        let results = self.warnings.len();
        for (number, (name, own)) in self.warnings.iter().enumerate() {
            for Warning { code, count, text } in own {
                let is_common = results > 1
                    && self
                        .warnings
                        .iter()
                        .all(|(_, other)| other.iter().any(|it| it.text == *text));
                let (count, text) = match is_common {
                    true if number > 0 => continue,
                    true => {
                        let times = if code.is_of_input() { 1 } else { results as u64 };
                        (count.map(|count| count * times), format!("each of the {results}: {text}"))
                    }
                    false if results == 1 => (*count, text.clone()),
                    false => (*count, format!("{name}: {text}")),
                };
                warnings.push(Warning { code: *code, count, text });
            }
        }
        let common = self.windows.iter().fold((0.0, f64::INFINITY), |(from, to), window| {
            let begun = window.start - start;
            (f64::max(from, begun), f64::min(to, begun + window.length))
        });
        let shared = common.1 - common.0;
        if shared < duration * 0.95 {
            let text = format!(
                "the windows of the generators have {:.1} s in common of {duration:.1} s from the \
                 first beginning to the last end, over which the rates are taken: start them \
                 together",
                shared.max(0.0)
            );
            warnings.push(Warning::uncounted(WarningCode::WindowsApart, text));
        }
        if self.closed && self.offered_rate > 0.0 {
            warnings.push(Warning::uncounted(
                WarningCode::SchedulesMixed,
                "some of the generators kept a schedule and some did not: there is no offered rate",
            ));
        }
        warnings
    }
}

fn distribution(times: Option<&TimeHistogram>) -> Option<Distribution> {
    times.and_then(Distribution::of)
}

/// Adds the counts of `other` to `sum`.
fn add(sum: &mut LoadResult, other: LoadResult) {
    if !sum.target.split(' ').any(|target| target == other.target) && sum.target != other.target {
        sum.target = format!("{} {}", sum.target, other.target);
    }
    for address in other.addresses {
        if !sum.addresses.contains(&address) {
            sum.addresses.push(address);
        }
    }
    sum.connect_error = sum.connect_error.take().or(other.connect_error);
    match (&mut sum.tls, other.tls) {
        (Some(tls), Some(more)) => tls.add(more),
        (tls, more) => *tls = tls.take().or(more),
    }
    match (&mut sum.http2, other.http2) {
        (Some(http2), Some(more)) => http2.add(more),
        (http2, more) => *http2 = http2.take().or(more),
    }
    sum.start = sum.start.min(other.start);
    sum.requests += other.requests;
    sum.responses += other.responses;
    sum.in_flight += other.in_flight;
    add_counts(&mut sum.status, other.status);
    add_counts(&mut sum.unexpected_status, other.unexpected_status);
    add_counts(&mut sum.protocol_errors, other.protocol_errors);
    sum.late_starts = known(sum.late_starts, other.late_starts);
    sum.unsent = known(sum.unsent, other.unsent);
    sum.interrupted |= other.interrupted;
    sum.bytes = Bytes {
        sent: sum.bytes.sent + other.bytes.sent,
        head: sum.bytes.head + other.bytes.head,
        body: sum.bytes.body + other.bytes.body,
    };
    sum.errors = errors(&sum.errors, &other.errors);
    let (a, b) = (&sum.connections, &other.connections);
    sum.connections = ConnectionCounts {
        attempted: a.attempted + b.attempted,
        opened: a.opened + b.opened,
        failed: a.failed + b.failed,
        reused: a.reused + b.reused,
        idle_held: known(a.idle_held, b.idle_held),
        closed_by_peer: a.closed_by_peer + b.closed_by_peer,
        unsolicited: a.unsolicited + b.unsolicited,
    };
    let (a, b) = (&sum.client, &other.client);
    sum.client = GeneratorState {
        cpu_s: a.cpu_s + b.cpu_s,
        threads: a.threads + b.threads,
        saturated: a.saturated || b.saturated,
        shares_cpus: if a.shares_cpus == b.shares_cpus { a.shares_cpus } else { None },
        slip_p99_us: None,
        // Pauses of several generators may overlap. The longest one is a lower bound.
        paused_us: worse(a.paused_us, b.paused_us),
        clock_error_us: worse(a.clock_error_us, b.clock_error_us),
        scheduler_error_us: worse(a.scheduler_error_us, b.scheduler_error_us),
    };
}

fn errors(a: &ErrorCounts, b: &ErrorCounts) -> ErrorCounts {
    ErrorCounts {
        client_timeout: a.client_timeout + b.client_timeout,
        connect_timeout: a.connect_timeout + b.connect_timeout,
        refused: a.refused + b.refused,
        reset: a.reset + b.reset,
        tls_failed: known(a.tls_failed, b.tls_failed),
        fd_unavailable: a.fd_unavailable + b.fd_unavailable,
        address_unavailable: a.address_unavailable + b.address_unavailable,
        truncated: a.truncated + b.truncated,
        bad_length: known(a.bad_length, b.bad_length),
        bad_body: known(a.bad_body, b.bad_body),
        protocol: a.protocol + b.protocol,
    }
}

fn worse(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

/// The sum of the known values; `None` if both are unknown.
fn known(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    if a.is_none() && b.is_none() { None } else { Some(a.unwrap_or(0) + b.unwrap_or(0)) }
}

fn add_counts(sum: &mut BTreeMap<String, u64>, other: BTreeMap<String, u64>) {
    for (key, count) in other {
        *sum.entry(key).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use drover_tls::client::{AgreedTls, Trust};
    use proptest::prelude::*;

    use super::*;
    use crate::account::counts::{Account, RequestFailure, record};
    use crate::plan::options::{LoadOptions, LoadPlan};
    use crate::plan::shape::{Arrivals, Rate, Schedule, Unit};
    use crate::plan::tls::TargetTlsOptions;
    use crate::run::coordinator::LoadRun;
    use crate::testing;

    const WINDOW: Duration = Duration::from_millis(5500);

    /// The plan of a run of four times 25 requests per second, or of one of the four.
    fn plan(open_loop: bool, process: Option<u32>) -> LoadPlan {
        let schedule = Schedule {
            rate: Rate::Constant(100.0),
            arrivals: Arrivals::Constant,
            unit: Unit::Request,
        };
        LoadPlan::new(LoadOptions {
            connections: 4,
            schedule: open_loop.then_some(schedule),
            tls: TargetTlsOptions { trust: Trust::Anybody, ..TargetTlsOptions::default() },
            duration: Some(WINDOW),
            processes: if process.is_some() { 4 } else { 1 },
            process,
            ..testing::options_for("https://127.0.0.1:9/")
        })
        .unwrap()
    }

    fn result(plan: &LoadPlan, account: Account) -> LoadResult {
        let begun = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let run = LoadRun { begun: Some(begun), ..testing::run(account, WINDOW) };
        LoadResult::new(plan, begun, run)
    }

    /// What happened to one request.
    #[derive(Clone, Debug)]
    struct Event {
        part: usize,
        micros: u64,
        second: u64,
        status: usize,
        fails: bool,
    }

    impl Event {
        fn count(&self, account: &mut Account) {
            let time = Duration::from_micros(self.micros);
            account.scheduled += 1;
            account.requests += 1;
            account.sent_bytes += 40;
            account.connections.opened += 1;
            record(&mut account.connect, time / 3);
            let (version, suite, group) = ("TLSv1.3", "AES_128_GCM_SHA256", "X25519");
            let is_resumed = self.part > 1;
            let agreed = AgreedTls { version, suite, group, protocol: String::new(), is_resumed };
            account.shook_hands(agreed, time / 5, self.second > 2);
            account.slipped(time / 2);
            if self.fails {
                return account.errors.add(RequestFailure::Reset);
            }
            account.responses += 1;
            account.statuses[self.status] += 1;
            account.body_bytes += self.micros;
            record(&mut account.latency, time * 2);
            record(&mut account.service, time);
            record(&mut account.first_byte, time / 4);
            record(&mut account.transfer, time - time / 4);
            account.response_in_window(Duration::from_secs(self.second));
        }
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = (0..4usize, 1..10_000_000u64, 0..6u64, 200..206usize, any::<bool>());
        let event = event.prop_map(|(part, micros, second, status, fails)| Event {
            part,
            micros,
            second,
            status,
            fails,
        });
        proptest::collection::vec(event, 0..200)
    }

    fn through_a_file(result: &LoadResult) -> LoadResult {
        parse(&serde_json::to_vec(result).unwrap()).unwrap()
    }

    proptest! {
        // Each case writes and reads 45 histograms of 33,000 buckets.
        #![proptest_config(ProptestConfig {
            cases: 12,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn the_shares_of_a_run_join_to_the_whole(events in events(), open_loop: bool) {
            let mut whole = Account::new();
            let mut parts = [(); 4].map(|()| Account::new());
            for event in &events {
                event.count(&mut whole);
                event.count(&mut parts[event.part]);
            }
            let whole = result(&plan(open_loop, None), whole);
            let parts = (0u32..).zip(parts).map(|(number, account)| {
                let part = result(&plan(open_loop, Some(number)), account);
                (format!("process {number}"), through_a_file(&part))
            });
            let joined = merge(parts.collect()).unwrap();
            // All but the generator itself, which there were four of.
            let mut expected = through_a_file(&whole);
            expected.client = joined.client.clone();
            prop_assert_eq!(joined.client.threads, 4);
            prop_assert_eq!(joined.client.slip_p99_us, whole.client.slip_p99_us);
            expected.warnings = joined.warnings.clone();
            expected.setting = joined.setting.clone();
            prop_assert_eq!(joined, expected);
        }
    }

    fn simple(responses: u64, begun: f64) -> LoadResult {
        let mut account = Account::new();
        for _ in 0..responses {
            account.requests += 1;
            account.responses += 1;
            record(&mut account.service, Duration::from_millis(1));
            account.response_in_window(Duration::ZERO);
        }
        LoadResult { window_start: Some(begun), ..result(&plan(false, None), account) }
    }

    #[test]
    fn series_are_laid_side_by_side_by_the_time_of_day() {
        let results = [("a", simple(3, 1000.0)), ("b", simple(4, 1001.9))];
        let joined =
            merge(results.map(|(name, result)| (name.to_string(), result)).into()).unwrap();
        let rate = joined.response_rate.unwrap();
        assert_eq!(rate.series, [3, 0, 4, 0, 0, 0, 0]);
        assert!((joined.duration_s - 7.4).abs() < 1e-9, "{}", joined.duration_s);
        assert!((joined.achieved_rate.unwrap() - 7.0 / 7.4).abs() < 1e-9);
        assert_eq!(joined.window_start, Some(1000.0));
        let [warning] = &joined.warnings[..] else { panic!("{:?}", joined.warnings) };
        assert_eq!((warning.code, warning.count), (WarningCode::WindowsApart, None));
        assert!(warning.text.contains("3.6 s in common of 7.4 s"), "{warning}");
    }

    /// Results of a version that spoke no TLS, and of runs without, have none.
    #[test]
    fn results_without_tls_are_joined_with_others() {
        let mut json = serde_json::to_value(simple(1, 0.0)).unwrap();
        for (object, field) in [("", "tls"), ("", "handshake_us"), ("/errors", "tls_failed")] {
            json.pointer_mut(object).unwrap().as_object_mut().unwrap().remove(field).unwrap();
        }
        json["histograms"].as_object_mut().unwrap().remove("handshake").unwrap();
        let old = parse(&serde_json::to_vec(&json).unwrap()).unwrap();
        assert_eq!((&old.tls, old.errors.tls_failed), (&None, None));
        let new = simple(1, 0.0);
        for pair in [[old.clone(), new.clone()], [new.clone(), old]] {
            let pair = pair.map(|result| ("a".to_string(), result));
            let joined = merge(pair.into()).unwrap();
            assert_eq!((joined.tls, joined.errors.tls_failed), (new.tls.clone(), Some(0)));
        }
    }

    /// Between two runs there may be years: nothing is kept for seconds in which nobody measured.
    #[test]
    fn seconds_between_windows_are_no_part_of_the_series() {
        let results = [("a", simple(3, 1_000_000_000.0)), ("b", simple(4, 1e15))];
        let joined =
            merge(results.map(|(name, result)| (name.to_string(), result)).into()).unwrap();
        let rate = joined.response_rate.unwrap();
        assert_eq!(rate.series, [3, 0, 0, 0, 0, 4, 0, 0, 0, 0]);
        assert_eq!(rate.avg, 0.7);
    }

    #[test]
    fn warnings_say_whose_numbers_theirs_are_and_their_counts_add_up() {
        let [mut a, mut b] = [simple(1, 0.0), simple(1, 0.0)];
        let failed = |count, text| Warning::of(WarningCode::RequestsFailed, count, text);
        let interrupted = |text| Warning::uncounted(WarningCode::Interrupted, text);
        a.warnings = vec![failed(5, "5 of 9 failed"), interrupted("early"), failed(2, "2 failed")];
        b.warnings = vec![failed(5, "5 of 9 failed"), failed(1, "1 failed")];
        let joined = merge(vec![("A".to_string(), a.clone()), ("B".to_string(), b)]).unwrap();
        let expected = [
            failed(10, "each of the 2: 5 of 9 failed"),
            interrupted("A: early"),
            failed(2, "A: 2 failed"),
            failed(1, "B: 1 failed"),
        ];
        assert_eq!(joined.warnings, expected);
        let entry = Warning::of(WarningCode::EntriesNotSent, 1, "file: entry 2");
        let alike = LoadResult { warnings: vec![entry], ..simple(1, 0.0) };
        let joined = merge(["A", "B"].map(|name| (name.to_string(), alike.clone())).into());
        assert_eq!(joined.unwrap().warnings[0].count, Some(1), "both read the same file");
        let alone = merge(vec![("A".to_string(), a.clone())]).unwrap();
        assert_eq!(alone.warnings, a.warnings);
    }

    #[test]
    fn what_cannot_be_joined_is_refused_with_the_reason() {
        let good = serde_json::to_value(simple(1, 0.0)).unwrap();
        let fault = |change: fn(&mut Value)| {
            let mut bad = good.clone();
            change(&mut bad);
            parse(&serde_json::to_vec(&bad).unwrap()).unwrap_err()
        };
        assert!(parse(b"no").unwrap_err().contains("no JSON"));
        assert!(fault(|json| json["schema"] = "drover.load/1".into()).contains("drover.load/1"));
        assert!(fault(|json| json["schema"] = Value::Null).contains("no result of drover load"));
        assert!(fault(|json| json["responses"] = "many".into()).contains("keep to drover.load/3"));
        assert!(fault(|json| json["more"] = 1.into()).contains("more"));

        let mut bad = simple(1, 0.0);
        bad.histogram = Some("AAAA".to_string());
        let error = merge(vec![("A.json".to_string(), bad)]).unwrap_err();
        assert!(error.contains("A.json: a histogram"), "{error}");
        merge(Vec::new()).unwrap_err();
    }
}

//! What a run tells people at its end.

use std::io::{self, Write};

use drover_usage::printable;

use crate::output::http2::Http2Result;
use crate::output::result::LoadResult;

/// Writes the summary of `result`: the rate first, and only rows that say something about this run.
///
/// # Errors
/// What `out` says.
pub fn print(result: &LoadResult, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}{}", printable(&result.target), addresses(result))?;
    writeln!(out, "  {}, {:.2} s", result.setting, result.duration_s)?;
    writeln!(out)?;
    print_rates(out, result)?;
    print_times(out, result)?;
    print_counts(out, result)?;
    print_client(out, result)?;
    for warning in &result.warnings {
        writeln!(out, "  warning: {}", printable(&warning.text))?;
    }
    Ok(())
}

/// The connected addresses that the target does not already show.
fn addresses(result: &LoadResult) -> String {
    let is_new = |address: &&str| {
        let shown = [(":80", "http:"), (":443", "https:")].map(|(port, scheme)| {
            let short = address.strip_suffix(port).unwrap_or(address);
            result.target.contains(&format!("{scheme}//{short}"))
        });
        !address.starts_with("unix:") && !shown.contains(&true)
    };
    let new: Vec<&str> = result.addresses.iter().map(String::as_str).filter(is_new).collect();
    if new.is_empty() { String::new() } else { format!(" at {}", new.join(", ")) }
}

fn print_rates(out: &mut impl Write, result: &LoadResult) -> io::Result<()> {
    let Some(rate) = result.achieved_rate else { return Ok(()) };
    write!(out, "  rate         {rate:.1} responses/s")?;
    if let Some(offered) = result.offered_rate {
        write!(out, " of {offered:.1} scheduled")?;
    }
    if let Some(series) = result.response_rate.as_ref().filter(|rate| rate.min < rate.max) {
        write!(out, ", {} to {} by second", series.min, series.max)?;
    }
    writeln!(out)?;
    let per_second = |bytes: u64| size(bytes as f64 / result.duration_s);
    let bytes = &result.bytes;
    writeln!(
        out,
        "  bytes        {}/s received, {}/s sent",
        per_second(bytes.head + bytes.body),
        per_second(bytes.sent)
    )
}

/// Writes the distributions of times, all in one unit.
fn print_times(out: &mut impl Write, result: &LoadResult) -> io::Result<()> {
    // Where nearly all responses come in one piece, the first byte and the last byte come together.
    let transfer = result.transfer_us.as_ref().filter(|transfer| transfer.p99 > 0.0);
    let scheduled = result.offered_rate.and(result.latency_us.as_ref());
    let sending = if scheduled.is_some() { "from sending" } else { "latency" };
    let rows = [
        ("from schedule", scheduled),
        (sending, result.service_us.as_ref()),
        ("first byte", transfer.and(result.first_byte_us.as_ref())),
        ("transfer", transfer),
        ("connect", result.connect_us.as_ref()),
        ("handshake", result.handshake_us.as_ref()),
    ];
    let rows: Vec<_> = rows.into_iter().filter_map(|(name, row)| Some((name, row?))).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let unit = Unit::of(rows.iter().map(|(_, times)| times.max).fold(0.0, f64::max));
    let names = ["p50", "p90", "p95", "p99", "p99.9", "max", "mean", "stddev"];
    write!(out, "\n  {:<13}", format!("in {}", unit.name))?;
    names.iter().try_for_each(|name| write!(out, " {name:>9}"))?;
    writeln!(out)?;
    for (name, t) in rows {
        write!(out, "  {name:<13}")?;
        for time in [t.p50, t.p90, t.p95, t.p99, t.p99_9, t.max, t.mean, t.stddev] {
            write!(out, " {:>9.*}", unit.decimals, time / unit.micros)?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

/// The unit of a table of times.
struct Unit {
    name: &'static str,
    micros: f64,
    decimals: usize,
}

impl Unit {
    /// The unit for a table whose longest time has so many microseconds.
    fn of(longest: f64) -> Unit {
        match longest {
            us if us < 10_000.0 => Unit { name: "us", micros: 1.0, decimals: 1 },
            us if us < 10_000_000.0 => Unit { name: "ms", micros: 1e3, decimals: 3 },
            _ => Unit { name: "s", micros: 1e6, decimals: 6 },
        }
    }
}

fn print_counts(out: &mut impl Write, result: &LoadResult) -> io::Result<()> {
    write!(out, "  responses    {}", result.responses)?;
    if result.requests != result.responses {
        write!(out, " to {} requests", result.requests)?;
    }
    match result.status.iter().next() {
        Some((status, _)) if result.status.len() == 1 => write!(out, ", all with status {status}")?,
        _ => print_parts(out, result.status.iter().map(|(status, n)| (*n, status_is(status))))?,
    }
    let unsent = result.unsent.unwrap_or(0);
    print_parts(out, [(result.in_flight, "in flight"), (unsent, "due and never sent")])?;
    writeln!(out)?;
    let mut errors = Vec::new();
    errors.extend(Some(result.errors_in_words()).filter(|errors| !errors.is_empty()));
    let unexpected = result.unexpected_status.iter();
    errors.extend(unexpected.map(|(status, count)| format!("{count} {}", status_is(status))));
    if !errors.is_empty() {
        writeln!(out, "  errors       {}", errors.join(", "))?;
    }
    let connections = &result.connections;
    write!(out, "  connections  {} opened", connections.opened)?;
    print_parts(
        out,
        [
            (connections.failed, "failed"),
            (connections.closed_by_peer, "closed by the server"),
            (connections.idle_held.unwrap_or(0), "held idle"),
        ],
    )?;
    writeln!(out)?;
    print_tls(out, result)?;
    match result.http2.as_ref().map(Http2Result::in_words) {
        Some(words) if !words.is_empty() => writeln!(out, "  http/2       {words}"),
        _ => Ok(()),
    }
}

/// Writes what was agreed upon with servers that speak TLS, and how fast.
fn print_tls(out: &mut impl Write, result: &LoadResult) -> io::Result<()> {
    let Some(tls) = result.tls.as_ref().filter(|tls| tls.handshakes > 0) else { return Ok(()) };
    write!(out, "  tls          ")?;
    if let [only] = &tls.agreed[..] {
        write!(out, "{}: ", only.in_words())?;
    }
    write!(out, "{} handshake{}", tls.handshakes, if tls.handshakes == 1 { "" } else { "s" })?;
    if tls.resumed > 0 {
        write!(out, " ({} resumed)", tls.resumed)?;
    }
    if let Some(times) = &result.handshake_us {
        write!(out, ", p50 {}, p99 {}", time(times.p50), time(times.p99))?;
    }
    if tls.handshakes_in_window > 0 && result.duration_s > 0.0 {
        let rate = tls.handshakes_in_window as f64 / result.duration_s;
        write!(out, ", {rate:.1} handshakes/s")?;
    }
    writeln!(out)?;
    for agreed in tls.agreed.iter().filter(|_| tls.agreed.len() > 1) {
        writeln!(out, "               {} with {}", agreed.count, agreed.in_words())?;
    }
    Ok(())
}

fn status_is(status: &str) -> String {
    format!("with status {status}")
}

/// Writes those of `parts` that are not 0.
fn print_parts<T: std::fmt::Display>(
    out: &mut impl Write,
    parts: impl IntoIterator<Item = (u64, T)>,
) -> io::Result<()> {
    let mut parts = parts.into_iter().filter(|(count, _)| *count > 0);
    parts.try_for_each(|(count, what)| write!(out, ", {count} {what}"))
}

/// Writes what the generator knows about itself: CPU time, lateness, how exact its times are.
fn print_client(out: &mut impl Write, result: &LoadResult) -> io::Result<()> {
    let client = &result.client;
    if result.duration_s <= 0.0 {
        return Ok(());
    }
    let used = client.cpu_s / result.duration_s * 100.0;
    write!(out, "  generator    {used:.1} % of one CPU")?;
    if client.threads > 1 {
        write!(out, " in {} threads", client.threads)?;
    }
    if client.shares_cpus == Some(true) {
        write!(out, ", shared with the server")?;
    }
    if let Some(slip) = client.slip_p99_us {
        write!(out, "; 99 % of its requests at most {} late", time(slip))?;
    }
    if let (Some(clock), Some(waits)) = (client.clock_error_us, client.scheduler_error_us) {
        write!(out, "; clock resolution {}, wake-up error {}", time(clock), time(waits))?;
    }
    writeln!(out)
}

/// Microseconds with a unit that leaves at most four digits.
pub(crate) fn time(microseconds: f64) -> String {
    match microseconds {
        us if us < 1.0 => format!("{:.0}ns", us * 1_000.0),
        us if us < 1_000.0 => format!("{us:.1}us"),
        us if us < 1_000_000.0 => format!("{:.2}ms", us / 1_000.0),
        us => format!("{:.2}s", us / 1_000_000.0),
    }
}

fn size(bytes: f64) -> String {
    match bytes {
        b if b < 1024.0 => format!("{b:.0} B"),
        b if b < 1024.0 * 1024.0 => format!("{:.1} KiB", b / 1024.0),
        b if b < 1024.0 * 1024.0 * 1024.0 => format!("{:.1} MiB", b / 1024.0 / 1024.0),
        b => format!("{:.2} GiB", b / 1024.0 / 1024.0 / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use drover_tls::client::{AgreedTls, Trust};

    use super::*;
    use crate::account::counts::{Account, RequestFailure, record};
    use crate::plan::http2::HttpProtocol;
    use crate::plan::options::{LoadOptions, LoadPlan};
    use crate::plan::shape::Schedule;
    use crate::plan::tls::TargetTlsOptions;
    use crate::run::coordinator::LoadRun;
    use crate::testing;

    /// The lines of the summary of a run of two seconds that counted `account`.
    fn lines(schedule: Option<Schedule>, account: Account) -> Vec<String> {
        lines_of(LoadOptions { schedule, ..testing::options() }, account)
    }

    fn lines_of(options: LoadOptions, mut account: Account) -> Vec<String> {
        account.conclude();
        let run = LoadRun {
            begun: Some(SystemTime::UNIX_EPOCH),
            ..testing::run(account, Duration::from_secs(2))
        };
        let plan = LoadPlan::new(options).unwrap();
        let mut out = Vec::new();
        print(&LoadResult::new(&plan, SystemTime::UNIX_EPOCH, run), &mut out).unwrap();
        String::from_utf8(out).unwrap().lines().map(String::from).collect()
    }

    fn responded(account: &mut Account, first_byte: Duration, end: Duration) {
        account.requests += 1;
        account.responses += 1;
        account.statuses[200] += 1;
        account.served(first_byte, end);
        account.response_in_window(Duration::ZERO);
    }

    /// The first words of the rows, without the head of two lines and the one that is empty.
    fn rows(lines: &[String]) -> Vec<&str> {
        lines[3..].iter().filter_map(|line| line.get(2..15)).map(str::trim_end).collect()
    }

    #[test]
    fn the_rate_comes_first_and_rows_that_say_nothing_are_left_out() {
        let mut account = Account::new();
        account.connections.opened = 1;
        for micros in [100, 200, 400] {
            let end = Duration::from_micros(micros);
            responded(&mut account, end, end);
        }
        let lines = lines(None, account);
        let wanted = ["rate", "bytes", "in us", "latency", "responses", "connections", "generator"];
        assert_eq!(rows(&lines), wanted, "{lines:#?}");
        assert_eq!(lines[3], "  rate         1.5 responses/s, 0 to 3 by second");
        assert_eq!(lines[9], "  responses    3, all with status 200");
        assert_eq!(lines[10], "  connections  1 opened");
    }

    #[test]
    fn what_happened_has_its_row() {
        let mut account = Account::new();
        responded(&mut account, Duration::from_micros(50), Duration::from_millis(20));
        account.scheduled = 5;
        account.requests += 2;
        account.in_flight = 1;
        account.statuses[404] += 1;
        account.errors.add(RequestFailure::Excess);
        for times in [&mut account.connect, &mut account.latency] {
            record(times, Duration::from_millis(30));
        }
        let lines = lines(Some(Schedule::every(Duration::from_secs(1), 1)), account);
        let text = lines.join("\n");
        for part in [
            "responses/s of 1.0 scheduled",
            "1 to 3 requests, 1 with status 200, 1 with status 404, 1 in flight, 2 due and never sent",
            "errors       protocol 1: excess 1, 1 with status 404",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // One unit, whatever is how long.
        let table = &rows(&lines)[2..8];
        let wanted =
            ["in ms", "from schedule", "from sending", "first byte", "transfer", "connect"];
        assert_eq!(table, wanted, "{text}");
        let first_byte = lines.iter().find(|line| line.contains("first byte")).unwrap();
        assert!(first_byte.starts_with("  first byte        0.050     0.050"), "{first_byte}");
        let columns = lines.iter().filter(|line| line.contains("p50") || line.contains(" byte "));
        assert!(columns.map(|line| line.len()).all(|length| length == first_byte.len()), "{text}");
    }

    #[test]
    fn tls_has_a_row_with_what_was_agreed_upon() {
        let agreed = |suite, is_resumed| {
            let (version, group) = ("TLSv1.3", "X25519MLKEM768");
            AgreedTls { version, suite, group, protocol: "http/1.1".to_string(), is_resumed }
        };
        let options = LoadOptions {
            tls: TargetTlsOptions { trust: Trust::Anybody, ..TargetTlsOptions::default() },
            ..testing::options_for("https://127.0.0.1/")
        };
        let mut account = Account::new();
        let time = Duration::from_micros(1200);
        for number in 0..4 {
            account.shook_hands(agreed("AES_128_GCM_SHA256", number > 0), time, number > 1);
        }
        let own = |lines: Vec<String>| {
            lines.into_iter().skip_while(|line| !line.starts_with("  tls ")).collect::<Vec<_>>()
        };
        let lines = |account| own(lines_of(options.clone(), account));
        let expected = "  tls          TLS 1.3, AES_128_GCM_SHA256, X25519MLKEM768: 4 handshakes (3 resumed), \
                        p50 1.20ms, p99 1.20ms, 1.0 handshakes/s";
        let mut other = Account::new();
        other.merge(&account);
        assert_eq!(lines(account)[0], expected);
        other.shook_hands(agreed("AES_256_GCM_SHA384", false), time, false);
        let lines = lines(other);
        assert!(lines[0].starts_with("  tls          5 handshakes (3 resumed), p50"), "{lines:?}");
        assert_eq!(lines[1], "               4 with TLS 1.3, AES_128_GCM_SHA256, X25519MLKEM768");
        assert_eq!(lines[2], "               1 with TLS 1.3, AES_256_GCM_SHA384, X25519MLKEM768");
    }

    #[test]
    fn a_run_over_http_2_tells_its_streams_and_what_only_http_2_has() {
        let protocol = HttpProtocol::Http2 { streams: 16 };
        let options = || LoadOptions { protocol, ..testing::options() };
        let quiet = lines_of(options(), Account::new());
        assert!(
            quiet[1].starts_with("  1 connection of 16 streams (HTTP/2), 1 thread"),
            "{quiet:?}"
        );
        assert!(!quiet.iter().any(|line| line.contains("http/2")), "{quiet:?}");
        let mut account = Account::new();
        account.http2.sent_again = 2;
        account.http2.takes_streams(10, 16);
        account.http2.resets.insert("CANCEL", 3);
        let lines = lines_of(options(), account);
        let expected = "  http/2       2 requests sent again; reset by the server: 3 CANCEL";
        assert!(lines.iter().any(|line| line == expected), "{lines:?}");
        let warning = "  warning: the server takes 10 streams per connection at once and not 16: the others wait";
        assert!(lines.iter().any(|line| line.starts_with(warning)), "{lines:?}");
    }

    #[test]
    fn an_address_that_the_url_shows_is_not_shown_again() {
        let mut result = {
            let plan = LoadPlan::new(testing::options()).unwrap();
            let run = testing::run(Account::new(), Duration::ZERO);
            LoadResult::new(&plan, SystemTime::UNIX_EPOCH, run)
        };
        for (target, address, shown) in [
            ("http://127.0.0.1/", "127.0.0.1:80", ""),
            ("https://127.0.0.1/", "127.0.0.1:443", ""),
            ("https://127.0.0.1:80/", "127.0.0.1:80", ""),
            ("http://localhost/", "127.0.0.1:80", " at 127.0.0.1:80"),
        ] {
            (result.target, result.addresses) = (target.to_string(), vec![address.to_string()]);
            assert_eq!(addresses(&result), shown, "{target}");
        }
    }

    #[test]
    fn a_table_has_the_unit_of_its_longest_time() {
        for (longest, name) in [(9_999.0, "us"), (10_000.0, "ms"), (9_999_999.0, "ms"), (1e7, "s")]
        {
            assert_eq!(Unit::of(longest).name, name, "{longest}");
        }
    }
}

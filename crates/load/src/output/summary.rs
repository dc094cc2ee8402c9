//! What a run tells people at its end.

use std::io::{self, Write};

use drover_usage::printable;

use crate::output::result::{Distribution, LoadResult};

/// Writes the summary of `result`.
///
/// # Errors
/// What `out` says.
pub fn print(result: &LoadResult, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}{}", printable(&result.target), addresses(result))?;
    writeln!(out, "  {}, {:.2} s", result.setting, result.duration_s)?;
    writeln!(out)?;
    if result.connect_us.is_some() {
        print_distributions(out, result)?;
    }
    print_rates(out, result)?;
    print_counts(out, result)?;
    print_client(out, result)?;
    for warning in &result.warnings {
        writeln!(out, "  warning: {}", printable(warning))?;
    }
    Ok(())
}

/// The addresses that connections went to, as far as the target does not name them.
fn addresses(result: &LoadResult) -> String {
    let is_new = |address: &&str| {
        let is_named = |host: &str| result.target.contains(&format!("//{host}"));
        !address.starts_with("unix:")
            && !is_named(address)
            && !is_named(address.trim_end_matches(":80"))
    };
    let new: Vec<&str> = result.addresses.iter().map(String::as_str).filter(is_new).collect();
    if new.is_empty() { String::new() } else { format!(" at {}", new.join(", ")) }
}

fn print_distributions(out: &mut impl Write, result: &LoadResult) -> io::Result<()> {
    writeln!(
        out,
        "  {:<12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "", "p50", "p90", "p95", "p99", "p99.9", "max", "mean", "stddev"
    )?;
    if result.offered_rate.is_some() {
        print_times(out, "from schedule", result.latency_us.as_ref())?;
    }
    print_times(out, "from sending", result.service_us.as_ref())?;
    print_times(out, "first byte", result.first_byte_us.as_ref())?;
    print_times(out, "transfer", result.transfer_us.as_ref())?;
    print_times(out, "connect", result.connect_us.as_ref())?;
    writeln!(out)
}

fn print_times(out: &mut impl Write, name: &str, times: Option<&Distribution>) -> io::Result<()> {
    let Some(t) = times else { return Ok(()) };
    write!(out, "  {name:<13}")?;
    let values = [t.p50, t.p90, t.p95, t.p99, t.p99_9, t.max, t.mean, t.stddev];
    for (index, value) in values.into_iter().enumerate() {
        write!(out, "{:>width$}", time(value), width = if index == 0 { 10 } else { 11 })?;
    }
    writeln!(out)
}

fn print_rates(out: &mut impl Write, result: &LoadResult) -> io::Result<()> {
    let Some(rate) = result.achieved_rate else { return Ok(()) };
    write!(out, "  replies/s    {rate:.1}")?;
    if let Some(offered) = result.offered_rate {
        write!(out, " of {offered:.1} scheduled")?;
    }
    if let Some(series) = &result.reply_rate {
        write!(out, ", by second {} to {}", series.min, series.max)?;
        if let Some(stddev) = series.stddev {
            write!(out, ", stddev {stddev:.1}")?;
        }
    }
    writeln!(out)?;
    let per_second = |bytes: u64| size(bytes as f64 / result.duration_s);
    let bytes = &result.bytes;
    writeln!(
        out,
        "  transfer/s   {} received, {} sent",
        per_second(bytes.head + bytes.body),
        per_second(bytes.sent)
    )
}

fn print_counts(out: &mut impl Write, result: &LoadResult) -> io::Result<()> {
    write!(out, "  requests     {} sent, {} replies", result.requests, result.replies)?;
    for (status, count) in &result.status {
        write!(out, ", {count} with status {status}")?;
    }
    for (count, what) in
        [(result.in_flight, "in flight"), (result.unsent.unwrap_or(0), "due and never sent")]
    {
        if count > 0 {
            write!(out, ", {count} {what}")?;
        }
    }
    writeln!(out)?;
    let connections = &result.connections;
    write!(out, "  connections  {} opened", connections.opened)?;
    for (count, what) in [
        (connections.failed, "failed"),
        (connections.closed_by_peer, "closed by the server"),
        (connections.idle_held.unwrap_or(0), "held idle"),
    ] {
        if count > 0 {
            write!(out, ", {count} {what}")?;
        }
    }
    writeln!(out, "; {} requests on used ones", connections.reused)?;
    let mut errors = Vec::new();
    errors.extend(Some(result.errors_in_words()).filter(|errors| !errors.is_empty()));
    let unexpected = result.unexpected_status.iter();
    errors.extend(unexpected.map(|(status, count)| format!("{count} with status {status}")));
    let errors = if errors.is_empty() { "none".to_string() } else { errors.join(", ") };
    writeln!(out, "  errors       {errors}")
}

/// Writes what the generator knows about itself: CPU time, lateness, pauses.
fn print_client(out: &mut impl Write, result: &LoadResult) -> io::Result<()> {
    let client = &result.client;
    if result.duration_s <= 0.0 {
        return Ok(());
    }
    let used = client.cpu_s / result.duration_s * 100.0;
    write!(out, "  generator    {used:.1} % of a processor")?;
    if client.threads > 1 {
        write!(out, " in {} threads", client.threads)?;
    }
    if let Some(slip) = client.slip_p99_us {
        write!(out, ", late by at most {} for 99 % of its requests", time(slip))?;
    }
    if let (Some(clock), Some(waits)) = (client.clock_error_us, client.scheduler_error_us) {
        write!(out, "; its clock is good to {}, a wait to {}", time(clock), time(waits))?;
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

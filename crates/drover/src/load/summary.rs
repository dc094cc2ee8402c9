//! What a run tells people at its end.

use std::io::{self, Write};

use super::result::{Distribution, LoadResult};

/// Writes the summary of `result`.
///
/// # Errors
/// What `out` says.
pub fn print(result: &LoadResult, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", result.target)?;
    writeln!(out, "  {}, {:.2} s", result.setting, result.duration_s)?;
    writeln!(out)?;
    writeln!(
        out,
        "  {:<12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "", "p50", "p90", "p99", "p99.9", "max", "mean"
    )?;
    if result.offered_rate.is_some() {
        print_times(out, "from schedule", result.latency_us.as_ref())?;
    }
    print_times(out, "from sending", result.service_us.as_ref())?;
    print_times(out, "first byte", result.first_byte_us.as_ref())?;
    print_times(out, "transfer", result.transfer_us.as_ref())?;
    print_times(out, "connect", result.connect_us.as_ref())?;
    writeln!(out)?;
    print_rates(out, result)?;
    print_counts(out, result)?;
    for warning in &result.warnings {
        writeln!(out, "  warning: {warning}")?;
    }
    Ok(())
}

fn print_times(out: &mut impl Write, name: &str, times: Option<&Distribution>) -> io::Result<()> {
    let Some(t) = times else { return Ok(()) };
    write!(out, "  {name:<13}")?;
    for (index, value) in [t.p50, t.p90, t.p99, t.p99_9, t.max, t.mean].into_iter().enumerate() {
        write!(out, "{:>width$}", time(value), width = if index == 0 { 10 } else { 11 })?;
    }
    writeln!(out)
}

fn print_rates(out: &mut impl Write, result: &LoadResult) -> io::Result<()> {
    if let Some(rate) = result.achieved_rate {
        write!(out, "  {rate:.1} replies/s")?;
        if let Some(offered) = result.offered_rate {
            write!(out, " of {offered:.1} scheduled")?;
        }
        if let Some(series) = &result.reply_rate {
            write!(out, " (by second: {} to {})", series.min, series.max)?;
        }
        let bytes = (result.bytes.head + result.bytes.body) as f64;
        writeln!(out, ", {}/s received", size(bytes / result.duration_s))?;
        let client = &result.client;
        write!(
            out,
            "  {:.1} % of a processor used here",
            client.cpu_s / result.duration_s * 100.0
        )?;
        if let (Some(clock), Some(waits)) = (client.clock_error_us, client.scheduler_error_us) {
            write!(
                out,
                ", where the clock is good to {} and a wait to {}",
                time(clock),
                time(waits)
            )?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn print_counts(out: &mut impl Write, result: &LoadResult) -> io::Result<()> {
    write!(out, "  {} requests, {} replies", result.requests, result.replies)?;
    for (status, count) in &result.status {
        write!(out, ", {count} with status {status}")?;
    }
    if result.in_flight > 0 {
        write!(out, ", {} in flight", result.in_flight)?;
    }
    writeln!(out)?;
    let connections = &result.connections;
    writeln!(
        out,
        "  {} connections opened, {} requests on used ones, {} closed by the server",
        connections.opened, connections.reused, connections.closed_by_peer
    )?;
    let errors = result.errors.to_string();
    if !errors.is_empty() {
        writeln!(out, "  errors: {errors}")?;
    }
    Ok(())
}

/// Microseconds with a unit that leaves at most four digits.
pub(super) fn time(microseconds: f64) -> String {
    match microseconds {
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

//! A comparison for terminals: tables of at most 80 columns, a line for each server.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::compare::{Ratio, ServerPoint};
use super::{IDLE, RATES, SATURATION};
use crate::digits::{ratio_words, three_digits};
use crate::model::{Cell, Level, Sample};
use crate::record::{MeasuredExperiment, SessionRecord};
use crate::report::terminal::plain;
use crate::spec::factor::CASE;

/// The columns of a terminal.
const WIDTH: usize = 80;

/// The longest name of a server that is shown in full.
const NAME: usize = 16;

/// A column: its head, and the metric whose median it shows.
type Column = (&'static str, &'static str);

/// The columns that are shown for an experiment.
struct Layout {
    title: &'static str,
    /// The metric whose ratio to the first server is shown.
    first: Column,
    more: &'static [Column],
}

const AT_SATURATION: Layout = Layout {
    title: "At saturation",
    first: ("responses/s", "response-rate"),
    more: &[
        ("p50 ms", "latency-median"),
        ("p99 ms", "latency-p99"),
        ("CPU µs", "cpu-per-response"),
    ],
};

const AT_RATES: Layout = Layout {
    title: "At a fixed rate",
    first: ("CPU µs", "cpu-per-response"),
    more: &[
        ("responses/s", "response-rate"),
        ("p50 ms", "latency-median"),
        ("p99 ms", "latency-p99"),
    ],
};

const WHEN_IDLE: Layout = Layout {
    title: "Memory per idle connection",
    first: ("KB", "memory-per-idle"),
    more: &[("whole MB", "memory")],
};

/// The tables of a comparison's session, with ratios to the first server.
#[must_use]
pub fn table(record: &SessionRecord, servers: &[&str]) -> String {
    let mut text = String::new();
    for measured in &record.measured {
        let layout = match measured.experiment.id.as_str() {
            SATURATION => &AT_SATURATION,
            RATES => &AT_RATES,
            IDLE => &WHEN_IDLE,
            _ => continue,
        };
        write_experiment(&mut text, measured, layout, servers).expect("a String takes everything");
    }
    text
}

fn write_experiment(
    out: &mut String,
    measured: &MeasuredExperiment,
    layout: &Layout,
    servers: &[&str],
) -> std::fmt::Result {
    let samples = measured.samples();
    let mut workloads: Vec<&BTreeMap<String, Level>> = Vec::new();
    for planned in &measured.header.plan.cells {
        if !workloads.contains(&&planned.cell.levels) {
            workloads.push(&planned.cell.levels);
        }
    }
    for levels in workloads {
        let name = match (levels.get(CASE), levels.get("idle")) {
            (Some(case), _) => case.to_string(),
            (None, Some(idle)) => format!("{idle} of them"),
            (None, None) => String::new(),
        };
        writeln!(out, "\n{}: {name}", layout.title)?;
        write!(out, "  {:NAME$} {:>9}  {:<20}", "", layout.first.0, "ratio (95 %)")?;
        layout.more.iter().try_for_each(|(head, _)| write!(out, "{head:>9}"))?;
        writeln!(out)?;
        write_servers(out, measured, &samples, levels, layout, servers)?;
    }
    Ok(())
}

fn write_servers(
    out: &mut String,
    measured: &MeasuredExperiment,
    samples: &[Sample],
    levels: &BTreeMap<String, Level>,
    layout: &Layout,
    servers: &[&str],
) -> std::fmt::Result {
    let side = |server: &&str| {
        let cell = Cell { subject: (*server).to_owned(), levels: levels.clone() };
        ServerPoint::of(&measured.experiment, samples, &cell)
    };
    let sides: Vec<ServerPoint<'_>> = servers.iter().map(side).collect();
    let mut doubts = Vec::new();
    for (at, (server, side)) in std::iter::zip(servers, &sides).enumerate() {
        let name = shortened(server);
        if let Some(why) = side.failure() {
            doubts.push(format!("{server}: {why}"));
            writeln!(out, "  {name:NAME$} {:>9}", "none")?;
            continue;
        }
        let value = |metric| side.median(metric).map_or("none".to_owned(), three_digits);
        let ratio =
            if at == 0 { String::new() } else { shown(&side.ratio(&sides[0], layout.first.1)) };
        write!(out, "  {name:NAME$} {:>9}  {ratio:<20}", value(layout.first.1))?;
        layout.more.iter().try_for_each(|(_, metric)| write!(out, "{:>9}", value(metric)))?;
        writeln!(out)?;
        doubts.extend(side.doubts().iter().map(|doubt| format!("{server}: {doubt}")));
        if measured.experiment.id != IDLE
            && closes(measured, &Cell { subject: (*server).to_owned(), levels: levels.clone() })
        {
            doubts.push(format!("{server}: closes each connection after its response"));
        }
    }
    doubts.iter().try_for_each(|doubt| write_wrapped(out, &plain(doubt)))
}

/// Whether the server has closed every connection after one response. Its figures then include the cost of opening
/// connections, and the figures of other servers do not.
fn closes(measured: &MeasuredExperiment, cell: &Cell) -> bool {
    let results = measured.runs.iter().filter(|run| run.sample.cell == *cell);
    let mut reused = results
        .filter_map(|run| run.artefacts.pointer("/load/result/connections/reused")?.as_f64())
        .peekable();
    reused.peek().is_some() && reused.all(|count| count == 0.0)
}

fn shortened(name: &str) -> String {
    match name.chars().count() > NAME {
        true => name.chars().take(NAME - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

fn shown(ratio: &Ratio) -> String {
    match ratio {
        Ratio::Unknown => "not comparable".to_owned(),
        Ratio::OfMedians(ratio) => format!("{} (< 6 rounds)", three_digits(*ratio)),
        Ratio::Of(interval) => ratio_words(interval),
    }
}

/// Writes a line, wrapped between words at the width of a terminal.
fn write_wrapped(out: &mut String, line: &str) -> std::fmt::Result {
    let mut length = 0;
    for word in line.split_whitespace() {
        let word_length = word.chars().count();
        if length == 0 {
            write!(out, "  ! {word}")?;
            length = 4 + word_length;
        } else if length + 1 + word_length > WIDTH {
            write!(out, "\n    {word}")?;
            length = 4 + word_length;
        } else {
            write!(out, " {word}")?;
            length += 1 + word_length;
        }
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::journal::{Environment, Header, Run};
    use crate::model::Mark;
    use crate::plan::{Plan, PlannedCell};
    use crate::record::RecordedSession;
    use crate::versus::{Comparison, PRESET};

    /// A record of the three experiments, with values by server.
    fn record(comparison: &Comparison, value: impl Fn(&str) -> Option<f64>) -> SessionRecord {
        let experiments = [
            comparison.saturation().unwrap(),
            comparison.fixed_rates(&comparison.given_rates(&[100_000.0])).unwrap(),
            comparison.idle_connections().unwrap(),
        ];
        let measured = experiments.map(|experiment| {
            let cells = experiment.cells(&experiment.presets[PRESET]);
            let mut runs = Vec::new();
            for (round, (number, cell)) in
                (1..=6).flat_map(|round| cells.iter().enumerate().map(move |cell| (round, cell)))
            {
                let mut sample = Sample::new(cell.clone(), round);
                match value(&cell.subject) {
                    Some(value) => {
                        sample.values.extend(
                            experiment.figure.iter().map(|figure| (figure.metric.clone(), value)),
                        );
                        sample.validity.insert(Mark::Errors);
                    }
                    None => sample.failure = Some("it ended at once, ".repeat(9)),
                }
                let artefacts = serde_json::Value::Null;
                runs.push(Run { cell: number, sample, artefacts, began: 0.0, took_s: 1.0 });
            }
            let planned = |cell: &Cell| PlannedCell {
                cell: cell.clone(),
                not_testable: None,
                takes_turns: false,
            };
            let plan = Plan {
                experiment: experiment.id.clone(),
                experiment_hash: String::new(),
                preset: PRESET.to_owned(),
                seed: 1,
                rounds: 6,
                cells: cells.iter().map(planned).collect(),
                turn_over: Vec::new(),
                notes: Vec::new(),
                estimate_s: 0.0,
            };
            let header =
                Header { schema: String::new(), plan, environment: Environment::default() };
            MeasuredExperiment::unjudged(experiment, header, runs)
        });
        let session = RecordedSession {
            schema: String::new(),
            version: String::new(),
            command: Vec::new(),
            preset: PRESET.to_owned(),
            seed: 1,
            began: 0.0,
            experiments: Vec::new(),
            refused: Vec::new(),
        };
        SessionRecord { folder: PathBuf::new(), session, measured: measured.into() }
    }

    #[test]
    fn tables_fit_a_terminal_and_have_a_line_for_each_server() {
        let long = "a server with a very long name";
        let servers =
            ["drover".to_owned(), format!("{long}=x {{port}}"), "dead=x {port}".to_owned()];
        let comparison = Comparison::new(&servers, Default::default()).unwrap();
        let record = record(&comparison, |server| match server {
            "drover" => Some(123_456.7),
            "dead" => None,
            _ => Some(2.0 * 123_456.7),
        });
        let text = table(&record, &comparison.names());
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{} columns: {line}", line.chars().count());
        }
        for expected in [
            "At saturation: files of 4096 B, 64 connections\n",
            "At a fixed rate: files of 4096 B, 64 connections, 100000 requests/s\n",
            "Memory per idle connection: 1000 of them\n",
            "\n  drover              123457                         123457",
            "\n  a server with a…    246913  2.00 (2.00 … 2.00)  ",
            "\n  dead                  none\n",
            "! dead: it ended at once, it ended",
            "! drover: requests failed in 6 of 6 runs",
        ] {
            assert!(text.contains(expected), "no {expected:?} in\n{text}");
        }
    }

    #[test]
    fn who_closes_connections_is_told_apart() {
        let servers = ["drover", "keeps=x {port}", "closes=x {port}"].map(str::to_owned);
        let comparison = Comparison::new(&servers, Default::default()).unwrap();
        let mut record = record(&comparison, |_| Some(100.0));
        for run in record.measured.iter_mut().flat_map(|one| &mut one.runs) {
            let reused = if run.sample.cell.subject == "closes" { 0 } else { 7 };
            run.artefacts = serde_json::json!({ "load": { "result": { "connections": { "reused": reused } } } });
            run.sample.values.insert("error-percent".to_owned(), 0.5 * f64::from(run.sample.round));
        }
        let text = table(&record, &comparison.names());
        assert!(text.contains("! closes: closes each connection after its response\n"), "{text}");
        assert!(!text.contains("keeps: closes") && !text.contains("drover: closes"), "{text}");
        assert!(text.contains("requests failed in 6 of 6 runs (0.50 to 3.0 % of them)"), "{text}");
    }

    #[test]
    fn bounds_are_told_as_bounds() {
        let interval = |low, high| {
            shown(&Ratio::Of(crate::analysis::Interval { value: 1.0, low, high, level: 0.95 }))
        };
        assert_eq!(interval(0.5, f64::INFINITY), "at least 0.500");
        assert_eq!(interval(0.0, 2.0), "at most 2.00");
        assert_eq!(interval(0.0, f64::INFINITY), "not comparable");
        assert_eq!(shown(&Ratio::OfMedians(0.333)), "0.333 (< 6 rounds)");
    }
}

//! The report: one HTML file that needs nothing else, not even a network.
//!
//! Everything is readable without the script; the script adds pointing and hiding.

use std::fmt::Write;

use serde_json::json;

use super::claims_html;
use super::number;
use super::svg::{self, Panel, Series};
use super::trace_html;
use crate::lab::experiment::{Experiment, Factor, Figure};
use crate::lab::metric::Metric;
use crate::lab::results::{Ask, Point, Results, Run, State};
use crate::lab::stats::{self, Estimate};

const STYLE: &str = include_str!("style.css");
/// The width of an interval, relative to the value, from which on a point counts as noisy.
const NOISY: f64 = 0.4;

const SCRIPT: &str = include_str!("script.js");

/// Renders the results of one or more experiments as a page.
///
/// # Errors
/// When the experiment that a result carries does not parse: it is from another version.
pub fn render(all: &[Results]) -> anyhow::Result<String> {
    let mut body = String::new();
    for results in all {
        let experiment = Experiment::parse(&results.experiment, &results.experiment_file)?;
        body.push_str(&Section { experiment: &experiment, results }.render());
    }
    Ok(page("Drover lab", &body))
}

/// A page that needs nothing else.
pub(super) fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// Makes `text` harmless in HTML text and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// `value (low … high)`.
pub(super) fn with_interval(estimate: &Estimate) -> String {
    format!(
        "{} <span class=\"dim\">({} … {})</span>",
        number(estimate.value),
        number(estimate.low),
        number(estimate.high)
    )
}

/// What is the same in a panel.
#[derive(Clone, Copy)]
enum Fixed {
    Ask(Ask),
    Connections(u32),
}

/// One experiment on the page.
pub(super) struct Section<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) results: &'a Results,
}

impl Section<'_> {
    fn render(&self) -> String {
        let mut out = String::new();
        self.head(&mut out);
        self.warnings(&mut out);
        claims_html::render(&mut out, self);
        self.ranking(&mut out);
        self.figures(&mut out);
        self.stages(&mut out);
        self.table_of_points(&mut out);
        self.differences(&mut out);
        self.machine(&mut out);
        self.reproduction(&mut out);
        out
    }

    fn head(&self, out: &mut String) {
        let Results { preset, started, elapsed_s, .. } = self.results;
        let _ = write!(
            out,
            "<h1>{}</h1>\n<p class=\"source\">{}</p>\n",
            escape(&self.experiment.title),
            escape(&self.experiment.source)
        );
        if let Some(banner) = banner(self.results) {
            let _ = writeln!(out, "<div class=\"banner\">{}</div>", escape(&banner));
        }
        let _ = write!(
            out,
            "<p><b>{}</b> {}</p>\n<p class=\"dim small\">Preset {}, {} runs in {}, started {}, on {}.</p>\n",
            escape(&self.experiment.question),
            escape(&self.experiment.method),
            escape(preset),
            self.results.runs.len(),
            duration(*elapsed_s),
            escape(started),
            escape(self.results.machine.kernel.as_deref().unwrap_or("an unknown kernel")),
        );
    }

    /// Whose requests cost least where it matters most: at the most connections and requests.
    fn ranking(&self, out: &mut String) {
        let (levels, asks) = (self.results.connection_levels(), self.results.asks());
        let (Some(&connections), Some(&ask)) = (levels.last(), asks.last()) else { return };
        if matches!(ask, Ask::ColdReaders(_)) {
            // The server's CPU time is that of other replies, too.
            return;
        }
        let (metric, what, ask) = match (ask, asks.first()) {
            // What everybody can do.
            (Ask::Descriptors(_), Some(&first)) => {
                (Metric::CpuPerConnection, "The waiters' CPU per connection", first)
            }
            _ => (Metric::CpuPerReply, "Server CPU per reply", ask),
        };
        let _ = writeln!(
            out,
            "<h2>Who wins here</h2>\n<p>{what}, with {connections} {} and {}: median and 95 % \
             interval. Where intervals overlap, the order may be chance.</p>",
            self.results.counted(),
            self.results.in_words(ask)
        );
        let mut bars = self.bars(metric, connections, ask);
        bars.sort_by(|a, b| a.2.value.total_cmp(&b.2.value));
        self.draw_bars(out, metric, &bars);
    }

    /// The place in the legend, the name and the value of each mechanism that has one.
    fn bars(&self, metric: Metric, connections: u32, ask: Ask) -> Vec<(usize, &str, Estimate)> {
        self.results
            .mechanisms
            .iter()
            .enumerate()
            .filter_map(|(place, mechanism)| {
                let point = Point { mechanism: mechanism.name.clone(), connections, ask };
                Some((place, mechanism.name.as_str(), self.estimate(metric, &point)?))
            })
            .collect()
    }

    fn draw_bars(&self, out: &mut String, metric: Metric, bars: &[(usize, &str, Estimate)]) {
        let widest = bars.iter().map(|bar| bar.2.high).fold(0.0, f64::max);
        out.push_str("<div class=\"scroll\"><table>\n");
        for (place, name, value) in bars {
            let share = |value: f64| 100.0 * value / widest;
            let _ = writeln!(
                out,
                "<tr data-series=\"{}\"><td>{}</td><td class=\"n\">{} {}</td><td>\
                 <div class=\"bar s{}\"><i style=\"width:{:.1}%\"></i>\
                 <b style=\"left:{:.1}%;width:{:.1}%\"></b></div></td></tr>",
                escape(name),
                self.name(name),
                with_interval(value),
                metric.unit(),
                svg::colour(*place),
                share(value.value),
                share(value.low),
                share(value.high - value.low)
            );
        }
        out.push_str("</table></div>\n");
    }

    fn figures(&self, out: &mut String) {
        out.push_str("<h2>Figures</h2>\n<p class=\"small dim\">Medians with 95 % intervals. Point at a \
                      figure for its values; click a name to hide it.</p>\n<div class=\"legend\">\n");
        for (place, mechanism) in self.results.mechanisms.iter().enumerate() {
            let _ = writeln!(
                out,
                "<button type=\"button\" aria-pressed=\"true\" data-series=\"{}\">{}{}</button>",
                escape(&mechanism.name),
                svg::key(place),
                self.name(&mechanism.name)
            );
        }
        out.push_str("</div>\n");
        for figure in &self.experiment.figures {
            self.figure(out, figure);
        }
    }

    /// Where the time of each request went, in the first run of each mechanism that wrote it down.
    fn stages(&self, out: &mut String) {
        let mut late_us = 0;
        let mut traces = Vec::new();
        for mechanism in &self.results.mechanisms {
            let mut runs =
                self.results.runs.iter().filter(|run| run.point.mechanism == mechanism.name);
            let stages = runs.find_map(|run| run.sample.as_ref()?.stages.as_ref());
            if let Some(stages) = stages {
                late_us = stages.late_us;
                traces.push((mechanism.name.clone(), stages.trace("reads")));
            }
        }
        if !traces.is_empty() {
            out.push_str("<h2>Where the time of requests went</h2>\n");
            out.push_str(&trace_html::sections(&traces, late_us));
        }
    }

    fn figure(&self, out: &mut String, figure: &Figure) {
        match figure.x {
            Some(x) => self.figure_of_lines(out, figure, x),
            None => self.figure_of_bars(out, figure),
        }
    }

    fn figure_of_bars(&self, out: &mut String, figure: &Figure) {
        let _ = writeln!(
            out,
            "<section class=\"card\"><h3>{} · {} [{}]</h3>",
            escape(&figure.id),
            escape(&figure.title),
            figure.metric.unit()
        );
        for ask in self.results.asks() {
            for connections in self.results.connection_levels() {
                let caption = self.results.in_words(ask);
                let counted = self.results.counted();
                let _ = writeln!(out, "<p>{caption}, {connections} {counted}</p>");
                let bars = self.bars(figure.metric, connections, ask);
                self.draw_bars(out, figure.metric, &bars);
            }
        }
        out.push_str("</section>\n");
    }

    fn figure_of_lines(&self, out: &mut String, figure: &Figure, x: Factor) {
        let _ = write!(
            out,
            "<section class=\"card\"><label class=\"scale\"><input type=\"checkbox\"{}> logarithmic</label>\
             <h3>{} · {}</h3>\n<div class=\"panels\">\n",
            if figure.logarithmic { " checked" } else { "" },
            escape(&figure.id),
            escape(&figure.title)
        );
        let (x_label, panels): (_, Vec<Fixed>) = match x {
            Factor::Connections => {
                (self.results.counted(), self.results.asks().into_iter().map(Fixed::Ask).collect())
            }
            Factor::Rate => {
                let levels = self.results.connection_levels();
                ("requests/s", levels.into_iter().map(Fixed::Connections).collect())
            }
        };
        for fixed in panels {
            let caption = match fixed {
                Fixed::Ask(ask) => self.results.in_words(ask),
                Fixed::Connections(level) => format!("{level} {}", self.results.counted()),
            };
            let series = self.series(figure, fixed);
            let y_label = format!("{} [{}]", figure.metric.title(), figure.metric.unit());
            let panel = |logarithmic| {
                svg::draw(&Panel { x_label, y_label: &y_label, logarithmic, series: &series })
            };
            let _ = writeln!(
                out,
                "<figure data-x=\"{x_label}\"><figcaption>{caption}</figcaption>\
                 <div class=\"lin\">{}</div><div class=\"log\">{}</div>\
                 <script type=\"application/json\">{}</script></figure>",
                panel(false),
                panel(true),
                data(&series)
            );
        }
        out.push_str("</div></section>\n");
    }

    /// A line for each mechanism in the panel in which that is the same.
    fn series(&self, figure: &Figure, fixed: Fixed) -> Vec<Series> {
        let points = self.results.points();
        let of = |name: &str| -> Vec<(f64, Estimate)> {
            let mut line: Vec<(f64, Estimate)> = points
                .iter()
                .filter(|point| point.mechanism == name)
                .filter_map(|point| {
                    let x = match fixed {
                        Fixed::Ask(ask) if ask == point.ask => f64::from(point.connections),
                        Fixed::Connections(level) if level == point.connections => {
                            self.results.offered_rate(point.ask)?
                        }
                        _ => return None,
                    };
                    Some((x, self.estimate(figure.metric, point)?))
                })
                .collect();
            line.sort_by(|a, b| a.0.total_cmp(&b.0));
            line
        };
        self.results
            .mechanisms
            .iter()
            .enumerate()
            .map(|(place, mechanism)| {
                let name = mechanism.name.clone();
                Series { place, points: of(&name), name }
            })
            .filter(|series| !series.points.is_empty())
            .collect()
    }

    /// Whether any run tells it.
    fn is_known(&self, metric: Metric) -> bool {
        let mut samples = self.results.runs.iter().filter_map(|run| run.sample.as_ref());
        samples.any(|sample| metric.of(sample).is_some())
    }

    fn estimate(&self, metric: Metric, point: &Point) -> Option<Estimate> {
        stats::median_estimate(&self.results.values(metric, point), self.results.seed)
    }

    fn warnings(&self, out: &mut String) {
        let warnings = warnings(self.results);
        if warnings.is_empty() {
            return;
        }
        out.push_str("<h2>Before you believe it</h2>\n<ul>\n");
        for warning in warnings {
            let _ = writeln!(out, "<li>{}</li>", escape(&warning));
        }
        out.push_str("</ul>\n");
    }

    fn table_of_points(&self, out: &mut String) {
        out.push_str(
            "<h2>All points</h2>\n<details><summary>Medians with 95 % intervals over the repeats\
             </summary>\n<div class=\"scroll\"><table>\n<tr><th>Mechanism</th>\
             <th class=\"n\">Load</th>",
        );
        let counted = self.results.counted();
        let _ =
            write!(out, "<th class=\"n\">{}{}</th>", counted[..1].to_uppercase(), &counted[1..]);
        let metrics: Vec<Metric> = Metric::ALL.into_iter().filter(|m| self.is_known(*m)).collect();
        for metric in &metrics {
            let _ = write!(out, "<th class=\"n\">{} [{}]</th>", metric.title(), metric.unit());
        }
        out.push_str("<th class=\"n\">Runs</th><th class=\"n\">Errors</th><th></th></tr>\n");
        for point in self.results.points() {
            self.row_of_point(out, &point, &metrics);
        }
        out.push_str("</table></div></details>\n");
    }

    fn row_of_point(&self, out: &mut String, point: &Point, metrics: &[Metric]) {
        let _ = write!(
            out,
            "<tr data-series=\"{}\"><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>",
            escape(&point.mechanism),
            self.name(&point.mechanism),
            self.results.in_words(point.ask),
            point.connections
        );
        for metric in metrics {
            let cell = self.estimate(*metric, point);
            let cell = cell.map_or("–".to_string(), |estimate| with_interval(&estimate));
            let _ = write!(out, "<td class=\"n\">{cell}</td>");
        }
        let runs: Vec<&Run> = self.results.runs_of(point).collect();
        let samples = || runs.iter().filter_map(|run| run.sample.as_ref());
        let saturated = samples().filter(|sample| sample.is_saturated()).count();
        let note = match saturated {
            0 => String::new(),
            n => format!("load generator was the limit in {n}"),
        };
        let _ = writeln!(
            out,
            "<td class=\"n\">{}</td><td class=\"n\">{}</td><td>{note}</td></tr>",
            samples().count(),
            samples().map(|sample| sample.errors()).sum::<u64>()
        );
    }

    fn differences(&self, out: &mut String) {
        if self.experiment.differences.is_empty() {
            return;
        }
        out.push_str("<h2>What differs from the published experiment</h2>\n<ul>\n");
        for difference in &self.experiment.differences {
            let _ = writeln!(out, "<li><p>{}</p></li>", escape(difference));
        }
        out.push_str("</ul>\n");
    }

    fn machine(&self, out: &mut String) {
        out.push_str("<h2>The machine</h2>\n<div class=\"scroll\"><table>\n");
        for (label, value) in self.results.machine.rows() {
            let _ = writeln!(out, "<tr><th>{label}</th><td>{}</td></tr>", escape(&value));
        }
        out.push_str("</table></div>\n");
    }

    fn reproduction(&self, out: &mut String) {
        let line = |words: &[String]| escape(&for_a_shell(words));
        let _ = write!(
            out,
            "<h2>To run it again</h2>\n<p>The same points in the same order with the same loads: add \
             <code>--seed {}</code>. Every raw sample, histogram and command line lies beside this page \
             as JSON.</p>\n<pre>{}</pre>\n",
            self.results.seed,
            line(&self.results.command)
        );
        if let Some(sample) = self.results.runs.iter().find_map(|run| run.sample.as_ref()) {
            let _ = write!(
                out,
                "<p>The first run's server and load generator:</p>\n<pre>{}\n\n{}</pre>\n",
                line(&sample.server_command),
                line(&sample.load_command)
            );
        }
        let _ = writeln!(
            out,
            "<details><summary>The experiment file ({})</summary><pre>{}</pre></details>",
            escape(&self.results.experiment_file),
            escape(&self.results.experiment)
        );
    }

    /// A mechanism's name, marked if it is a model.
    pub(super) fn name(&self, name: &str) -> String {
        let is_model = self.results.mechanisms.iter().any(|m| m.name == name && m.model);
        format!("<span{}>{}</span>", if is_model { " class=\"model\"" } else { "" }, escape(name))
    }
}

/// What a panel shows, for the page's script.
fn data(series: &[Series]) -> String {
    let lines: Vec<_> = series
        .iter()
        .map(|line| {
            let points: Vec<[f64; 4]> = line
                .points
                .iter()
                .map(|(x, estimate)| [*x, estimate.value, estimate.low, estimate.high])
                .collect();
            json!({"name": line.name, "place": svg::colour(line.place), "points": points})
        })
        .collect();
    // No text inside the element may look like its end.
    json!(lines).to_string().replace('<', "\\u003c")
}

fn banner(results: &Results) -> Option<String> {
    let Results { rounds_done, rounds_planned, .. } = results;
    let cause = match results.state {
        State::Finished => return None,
        State::Running => "The run has not ended",
        State::OutOfTime => "The preset's time was used up",
        State::Interrupted => "The run was interrupted",
    };
    Some(format!("{cause}: {rounds_done} of {rounds_planned} rounds are complete."))
}

/// What a reader should know before believing a number.
fn warnings(results: &Results) -> Vec<String> {
    let mut warnings = results.notes.clone();
    for skipped in &results.skipped {
        warnings.push(format!("{} was not measured: {}", skipped.name, skipped.reason));
    }
    let samples = || results.runs.iter().filter_map(|run| run.sample.as_ref());
    let saturated = samples().filter(|sample| sample.is_saturated()).count();
    if saturated > 0 {
        let has_rates = results.asks().iter().any(|ask| results.offered_rate(*ask).is_some());
        let remedy = match has_rates {
            true => "Try a lower --rate-scale.",
            false => "What a reply or a megabyte costs the server is right all the same.",
        };
        warnings.push(format!(
            "In {saturated} of {} runs the load generator was the limit, not the server: their reply \
             rates and response times speak of the load generator. {remedy}",
            results.runs.len()
        ));
    }
    let errors: u64 = samples().map(|sample| sample.errors()).sum();
    if errors > 0 {
        warnings.push(format!("{errors} requests ended in an error; the table shows where."));
    }
    for run in results.runs.iter().filter(|run| run.error.is_some()) {
        let Point { mechanism, connections, ask } = &run.point;
        warnings.push(format!(
            "Round {}: {mechanism} with {connections} {} at {} failed: {}",
            run.round,
            results.counted(),
            ask.in_words(),
            run.error.as_deref().unwrap_or_default()
        ));
    }
    let disturbed = samples().filter(|sample| sample.is_disturbed()).count();
    if disturbed > 0 {
        warnings.push(format!(
            "In {disturbed} of {} runs other processes kept the server off its processor for more than \
             5 % of the window.",
            results.runs.len()
        ));
    }
    if let Some(warning) = noise(results) {
        warnings.push(warning);
    }
    let processors = results.machine.usable_cpus.unwrap_or(1);
    if results.machine.load_average.is_some_and(|load| load > 0.5 * processors as f64) {
        warnings.push(
            "The machine was busy when the run began: intervals may be wide. Close other programs \
             and run it again."
                .to_string(),
        );
    }
    warnings
}

/// Whether the repeats of many points disagree.
fn noise(results: &Results) -> Option<String> {
    let (metric, what) = match results.asks().first() {
        Some(Ask::Descriptors(_)) => (Metric::ConnectMedian, "duration of connect()"),
        _ => (Metric::CpuPercent, "CPU use"),
    };
    let widths: Vec<f64> = results
        .points()
        .iter()
        .filter_map(|point| {
            let values = results.values(metric, point);
            Some(stats::median_estimate(&values, results.seed)?.relative_width())
        })
        .collect();
    let noisy = widths.iter().filter(|width| **width > NOISY).count();
    (4 * noisy > widths.len()).then(|| {
        format!(
            "At {noisy} of {} points the interval of the {what} is wider than {:.0} % of its value: \
             leave the machine alone meanwhile, or take more repeats (--preset standard, or --repeats).",
            widths.len(),
            100.0 * NOISY
        )
    })
}

fn duration(seconds: f64) -> String {
    if seconds < 120.0 { format!("{seconds:.0} s") } else { format!("{:.1} min", seconds / 60.0) }
}

/// The words of a command line as one that a POSIX shell splits into them again. What no command line
/// can hold, a NUL, is left out.
fn for_a_shell(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| word.replace('\0', "")).collect();
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::results::Skipped;
    use crate::lab::runner::Failure;
    use crate::lab::runner::tests::{results_of, sample};
    use serde_json::json;

    const TEXT: &str = include_str!("../lab/test-experiment.toml");

    fn page(change: impl FnOnce(&mut Results)) -> String {
        let mut results =
            results_of(TEXT, |point, _| Ok(sample(100.0, f64::from(point.connections), 100.0)));
        change(&mut results);
        render(&[results]).unwrap()
    }

    #[test]
    fn the_page_has_claims_figures_legend_points_and_machine() {
        let page = page(|_| {});
        for part in [
            "does not hold",
            "Figure 1 · CPU use",
            "data-series=\"epoll\"",
            "Mean response time [ms]",
            "Cheapest system call",
            "--seed 42",
            "6.67",
        ] {
            assert!(page.contains(part), "{part} is missing");
        }
        assert_eq!(page.matches("<button").count(), 3);
        // Two rates, each linear and logarithmic.
        assert_eq!(page.matches("<svg class=\"panel\"").count(), 4);
        assert!(!page.contains("class=\"banner\""));
    }

    #[test]
    fn the_page_asks_nobody_for_anything() {
        let page = page(|results| results.machine = Default::default());
        for asks in ["http://", "https://", "src=", "@import", "url(", "<link"] {
            assert!(!page.contains(asks), "{asks}");
        }
    }

    #[test]
    fn whatever_comes_from_outside_is_escaped() {
        let evil = "</script><script>alert('x')</script>\"&";
        let page = page(|results| {
            results.machine.cpu_model = Some(evil.to_string());
            results.notes.push(evil.to_string());
            results.command.push(evil.to_string());
            results.runs[0].error = Some(evil.to_string());
            results.skipped.push(Skipped { name: evil.to_string(), reason: evil.to_string() });
            results.mechanisms[0].name = evil.to_string();
            for run in &mut results.runs {
                if run.point.mechanism == "poll" {
                    run.point.mechanism = evil.to_string();
                }
            }
        });
        assert!(!page.contains("<script>alert"));
        assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)"));
    }

    #[test]
    fn the_command_can_be_pasted_into_a_shell() {
        let command = ["drover", "lab", "compare", "it's=serve {port} \"$x\"", "", "a b;c"];
        let command = command.map(str::to_string).to_vec();
        let page = page(|results| results.command = command.clone());
        let (_, after) = page.split_once("To run it again").unwrap();
        let pasted = after.split("<pre>").nth(1).unwrap().split("</pre>").next().unwrap();
        let pasted = pasted.replace("&quot;", "\"").replace("&#39;", "'").replace("&amp;", "&");
        assert_eq!(shlex::split(&pasted), Some(command), "{pasted}");
    }

    #[test]
    fn what_limits_belief_is_said() {
        let page = page(|results| {
            results.state = State::Interrupted;
            results.mechanisms[0].model = true;
            results.skipped.push(Skipped { name: "devpoll".into(), reason: "no memory".into() });
            results.machine.load_average = Some(99.0);
            let sample = results.runs[0].sample.as_mut().unwrap();
            sample.server_wait_s = Some(0.06);
            sample.load["client"] = json!({"saturated": true});
            sample.load["errors"] = json!({"reset": 2, "refused": 1});
        });
        for part in [
            "The run was interrupted: 3 of 3 rounds are complete.",
            "class=\"model\">poll",
            "devpoll was not measured: no memory",
            "The machine was busy",
            "In 1 of 36 runs other processes kept the server off",
            "In 1 of 36 runs the load generator was the limit",
            "3 requests ended in an error",
        ] {
            assert!(page.contains(part), "{part} is missing");
        }
    }

    #[test]
    fn repeats_that_disagree_are_a_warning() {
        let steady = results_of(TEXT, |_, _| Ok(sample(1.0, 10.0, 1.0)));
        assert!(!render(&[steady]).unwrap().contains("of its value"));
        let noisy = results_of(TEXT, |_, round| Ok(sample(1.0, f64::from(round), 1.0)));
        assert!(render(&[noisy]).unwrap().contains("At 12 of 12 points the interval"));
    }

    #[test]
    fn a_run_that_was_stopped_at_once_still_has_a_page() {
        let results = results_of(TEXT, |_, _| Err(Failure::Interrupted));
        let page = render(&[results]).unwrap();
        assert!(page.contains("The run was interrupted: 0 of 3 rounds"));
    }

    #[test]
    fn a_failed_run_is_named_with_its_error() {
        let results = results_of(TEXT, |_, _| Err(Failure::Failed("port taken".to_string())));
        let page = render(&[results]).unwrap();
        assert!(page.contains("failed: port taken"));
    }
}

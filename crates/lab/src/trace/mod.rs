//! `drover lab trace`: reads files of `drover serve --trace`, and draws them on a page.
//!
//! The page shows where the time of each request went, drawn as in the *thread starvation* post, and as a table.

mod axes;
mod page;
mod read;
mod scatter;

use std::fmt::Write;

use crate::spec::metric::Stage;
use page::{escaped, page};
use scatter::{Points, Scatter};

pub use read::{Summary, TraceFile, TracedResponse};

/// What the first line of a trace names, as the server writes it (docs/trace.md).
pub const FORMAT: &str = "drover.trace/1";

#[cfg(test)]
const COLUMNS: &str = "start_us,stat_us,queue_us,read_us,return_us,write_us,total_us,longest_us,\
                       reads,status,bytes,end,worker,connection,backend";

/// Where logarithmic axes begin, in milliseconds: a trace has microseconds.
const LEAST_MS: f64 = 0.001;

/// Renders traces, each with its name, on one page with common scales. The tables count responses that took longer
/// than `limit_us` microseconds.
#[must_use]
pub fn render(traces: &[(String, TraceFile)], limit_us: u64) -> String {
    let body = format!("<h1>Where the time of requests went</h1>\n{}", sections(traces, limit_us));
    page("Drover: where the time of requests went", &body)
}

/// The sections of all traces.
fn sections(traces: &[(String, TraceFile)], limit_us: u64) -> String {
    let mut backends: Vec<&str> = Vec::new();
    for name in traces.iter().flat_map(|(_, trace)| &trace.backends) {
        if !backends.contains(&name.as_str()) {
            backends.push(name);
        }
    }
    let mut body = String::new();
    let _ = writeln!(
        body,
        "<p>A dot is a request: what a stage took against the time at which the request was there. \
         The first five stages follow each other and sum up to the total; panels of one stage have \
         one scale. The dashed line is at {} s.</p>\n<div class=\"legend\">",
        limit_us as f64 / 1e6
    );
    for (place, name) in backends.iter().enumerate() {
        let _ = writeln!(
            body,
            "<button type=\"button\" aria-pressed=\"true\" data-series=\"{0}\">\
             <svg class=\"key s{place}\" viewBox=\"0 0 36 12\" aria-hidden=\"true\">\
             <path class=\"dots\" d=\"M18 6h0\"/></svg>{0}</button>",
            escaped(name)
        );
    }
    body.push_str("</div>\n");
    let scale = Scale::of(traces);
    for (name, trace) in traces {
        section(&mut body, name, trace, &backends, &scale, limit_us);
    }
    body
}

/// The ends of the axes.
struct Scale {
    seconds: f64,
    /// The longest time, in milliseconds, by stage.
    most_ms: Vec<f64>,
}

impl Scale {
    fn of(traces: &[(String, TraceFile)]) -> Scale {
        let responses = || traces.iter().flat_map(|(_, trace)| &trace.responses);
        let most = |stage| responses().map(|response| response.stage_us(stage)).max().unwrap_or(0);
        let last = responses().map(|response| response.start_us).max().unwrap_or(0);
        Scale {
            seconds: last as f64 / 1e6,
            most_ms: Stage::ALL.map(|stage| most(stage) as f64 / 1e3).to_vec(),
        }
    }
}

fn section(
    out: &mut String,
    name: &str,
    trace: &TraceFile,
    backends: &[&str],
    scale: &Scale,
    limit_us: u64,
) {
    let _ = write!(
        out,
        "<h2>{}</h2>\n<p class=\"dim small\">{}</p>\n",
        escaped(name),
        escaped(&trace.about)
    );
    table(out, trace, limit_us);
    out.push_str(
        "<section class=\"card\"><label class=\"scale\"><input type=\"checkbox\"> logarithmic\
         </label>\n<div class=\"panels\">\n",
    );
    for (stage, &y_most) in Stage::ALL.iter().zip(&scale.most_ms) {
        if y_most == 0.0 {
            continue;
        }
        let series = series(trace, *stage, backends);
        let y_label = format!("{} [ms]", stage.title());
        let panel = |logarithmic| {
            scatter::draw(&Scatter {
                x_label: "start of the request [s]",
                y_label: &y_label,
                logarithmic,
                least: LEAST_MS,
                mark: limit_us as f64 / 1e3,
                x_most: scale.seconds,
                y_most,
                series: &series,
            })
        };
        let _ = writeln!(
            out,
            "<figure><figcaption>{}</figcaption><div class=\"lin\">{}</div><div class=\"log\">{}</div>\
             </figure>",
            escaped(stage.title()),
            panel(false),
            panel(true)
        );
    }
    out.push_str("</div></section>\n");
}

fn series(trace: &TraceFile, stage: Stage, backends: &[&str]) -> Vec<Points> {
    let points = |(index, name): (usize, &String)| {
        let own = trace.responses.iter().filter(|response| response.backend == index);
        Points {
            place: backends.iter().position(|known| known == name).unwrap_or(0),
            name: name.clone(),
            points: own
                .map(|response| {
                    (response.start_us as f64 / 1e6, response.stage_us(stage) as f64 / 1e3)
                })
                .collect(),
        }
    };
    trace.backends.iter().enumerate().map(points).collect()
}

fn table(out: &mut String, trace: &TraceFile, limit_us: u64) {
    let total = trace.responses.len();
    let _ = write!(
        out,
        "<p>{total} responses, {} of them not sent to their end{}.</p>\n\
         <div class=\"scroll\"><table><tr><th>ms</th><th class=\"n\">mean</th>",
        trace.unsent(),
        if trace.cut { "; the last line was cut" } else { "" }
    );
    for percentile in Summary::PERCENTILES {
        let _ = write!(out, "<th class=\"n\">{percentile} %</th>");
    }
    let _ = writeln!(
        out,
        "<th class=\"n\">longest</th><th class=\"n\">share past {} s</th></tr>",
        limit_us as f64 / 1e6
    );
    for stage in Stage::ALL {
        let Some(summary) = trace.summary(stage) else { continue };
        let _ = write!(out, "<tr><td>{}</td>", escaped(stage.title()));
        for value in [&[summary.mean][..], &summary.percentiles, &[summary.max]].concat() {
            let _ = write!(out, "<td class=\"n\">{:.3}</td>", value * 1e3);
        }
        let past = trace.past(stage, limit_us) as f64 / total as f64;
        let _ = writeln!(out, "<td class=\"n\">{:.2} %</td></tr>", past * 100.0);
    }
    out.push_str("</table></div>\n");
}

/// The table for a terminal.
#[must_use]
pub fn text(name: &str, trace: &TraceFile, limit_us: u64) -> String {
    let total = trace.responses.len();
    let cut = if trace.cut { "; the last line was cut" } else { "" };
    let mut out = format!(
        "{name}: {total} responses, {} of them not sent to their end{cut} ({})\n",
        trace.unsent(),
        trace.about
    );
    let _ = write!(out, "{:21}{:>12}", "ms", "mean");
    for percentile in Summary::PERCENTILES {
        let _ = write!(out, "{:>12}", format!("{percentile} %"));
    }
    let _ = writeln!(out, "{:>12}{:>12}", "longest", format!("past {} s", limit_us as f64 / 1e6));
    for stage in Stage::ALL {
        let Some(summary) = trace.summary(stage) else { continue };
        let _ = write!(out, "{:21}", stage.title());
        for value in [&[summary.mean][..], &summary.percentiles, &[summary.max]].concat() {
            let _ = write!(out, "{:>12.3}", value * 1e3);
        }
        let past = trace.past(stage, limit_us) as f64 / total as f64;
        let _ = writeln!(out, "{:>10.2} %", past * 100.0);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> TraceFile {
        let lines = "0,0,10,20,30,40,100,60,1,200,1234,sent,0,1,threads\n\
                     1000000,0,0,0,0,5000000,5000000,0,0,200,9,gone,0,2,<b>\n";
        let text = format!("# {FORMAT} files=<auto>\n{COLUMNS}\n{lines}");
        TraceFile::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_page_has_a_panel_for_each_stage_that_took_time_and_asks_nobody() {
        let page = render(&[("one".to_owned(), trace()), ("two".to_owned(), trace())], 4_000_000);
        // All stages but the one without time, for two traces, on a linear and on a logarithmic scale.
        assert_eq!(page.matches("<svg class=\"panel\"").count(), 6 * 2 * 2);
        assert!(page.contains("50.00 %") && page.contains("class=\"mark\""));
        assert!(!page.contains("<b>") && !page.contains("<auto>"));
        assert!(!page.contains("http:") && !page.contains("https:"));
    }

    #[test]
    fn the_table_has_a_line_for_each_stage() {
        let text = text("one", &trace(), 4_000_000);
        assert!(
            text.starts_with("one: 2 responses, 1 of them not sent to their end (files=<auto>)")
        );
        assert_eq!(text.lines().count(), 2 + Stage::ALL.len());
        let total = text.lines().find(|line| line.starts_with("total")).unwrap();
        assert!(total.contains("0.100") && total.ends_with("50.00 %"), "{total}");
    }
}

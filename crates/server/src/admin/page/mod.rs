//! `/status`: the state of a server as a page for people. It is whole without a script, and then loads itself again;
//! with its script it is kept up to date by `/status/events`. Nothing comes from elsewhere.

use std::fmt::Write;

use serde_json::Value;

use crate::lookup::listings::page::escape_html;

/// How a number is written.
#[derive(Clone, Copy, Debug)]
enum Form {
    Text,
    Count,
    Rate,
    Ratio,
    Seconds,
    /// A length of time that may be short, in the unit that fits it.
    Time,
    Bytes,
}

/// What stands first, by its key in the JSON.
const CARDS: &[(&str, Form, &str)] = &[
    ("open", Form::Count, "Connections"),
    ("rates.requests", Form::Rate, "Requests per s"),
    ("rates.bytes_sent", Form::Bytes, "Sent per s"),
    ("rates.connections", Form::Rate, "Accepted per s"),
    ("rates.responses_2xx", Form::Rate, "2xx per s"),
    ("rates.responses_3xx", Form::Rate, "3xx per s"),
    ("rates.responses_4xx", Form::Rate, "4xx per s"),
    ("rates.responses_5xx", Form::Rate, "5xx per s"),
    ("response_times.p50_s", Form::Time, "Half within"),
    ("response_times.p99_s", Form::Time, "99 % within"),
    ("all.cache_hits", Form::Count, "Found in the cache"),
    ("all.cache_misses", Form::Count, "Looked up"),
];

/// The rows of the table of workers: key of a worker in the JSON, name, and what it tells.
const ROWS: &[(&str, Form, &str, &str)] = &[
    ("open", Form::Count, "Connections open", ""),
    ("requests_rate", Form::Rate, "Requests per s", "over the last second"),
    ("requests", Form::Count, "Requests", ""),
    ("connections", Form::Count, "Connections accepted", ""),
    ("waits", Form::Count, "Waits", "for events of the dispatch mechanism"),
    ("events_per_wait", Form::Ratio, "Events per wait", "over a ring: completions"),
    ("accepts_per_batch", Form::Ratio, "Accepts per wake", "connections per wait of a listener"),
    ("accepts_lost", Form::Count, "Accepts lost", "another worker was faster"),
    ("would_block", Form::Count, "EAGAIN", "calls that found nothing or no room"),
    ("short_sends", Form::Count, "Short sends", "of which the socket took a part"),
    ("opened_elsewhere", Form::Count, "Cold opens", "by other threads: a disk may be needed"),
    ("file_reads", Form::Count, "File reads", "apart from sending"),
    ("reads_at_once", Form::Count, "… at once", "of them from the page cache"),
    ("overflows", Form::Count, "Queue overflows", "events lost by the kernel and found again"),
    ("context_switches", Form::Count, "Sleeps", "voluntary context switches"),
    ("cpu_s", Form::Seconds, "CPU time", "user and system"),
];

/// The page for a state, as `live` tells it. All texts in it are names and numbers of our own, so that none needs to
/// be escaped, but for paths of sockets.
pub(super) fn write(status: &Value) -> String {
    let workers = status["workers"].as_array().map_or(0, Vec::len);
    let kind = if status["processes"] == true { "worker processes" } else { "worker threads" };
    let text = |key: &str| shown(&status[key], Form::Text);
    let urls = status["addresses"].as_array().into_iter().flatten();
    let url = |address: &Value| {
        let text = address.as_str().unwrap_or_default();
        let scheme = if text.starts_with("unix:") { "" } else { "http://" };
        format!("{scheme}{}", escape_html(text))
    };
    let urls: Vec<_> = urls.map(url).collect();
    let facts = format!(
        "{} · {workers} {kind} · dispatch <b>{}</b> · accept <b>{}</b> · files <b>{}</b> · Drover {}",
        urls.join(", "),
        text("dispatch"),
        text("accept"),
        text("files"),
        text("version")
    );
    let state = format!(
        "<span data-key=\"state\" data-form=\"text\" data-is=\"{0}\">{0}</span>",
        text("state")
    );
    let mut cards = String::new();
    for (key, form, name) in CARDS {
        let _ = write!(cards, "<div><dt>{name}</dt><dd {}</dd></div>", place(status, key, *form));
    }
    let (mut heads, mut rows) = (String::new(), String::new());
    for worker in 0..workers {
        let _ = write!(heads, "<th scope=\"col\">worker {worker}</th>");
    }
    for (key, form, name, note) in ROWS {
        let _ = write!(rows, "<tr><th scope=\"row\">{name} <small>{note}</small></th>");
        for worker in 0..workers {
            let key = format!("workers.{worker}.{key}");
            let _ = write!(rows, "<td {}</td>", place(status, &key, *form));
        }
        rows.push_str("</tr>");
    }
    let mut all = String::new();
    for name in status["all"].as_object().into_iter().flat_map(|all| all.keys()) {
        let form = if name == "bytes_sent" { Form::Bytes } else { Form::Count };
        let value = place(status, &format!("all.{name}"), form);
        let _ = write!(all, "<div><dt>{}</dt><dd {value}</dd></div>", name.replace('_', " "));
    }
    let most = format!("<span {}</span>", place(status, "rates.history_most", Form::Rate));
    // The script comes last: nothing is replaced in it.
    let parts = [
        ("{{style}}", include_str!("page.css")),
        ("{{state}}", &state),
        ("{{facts}}", &facts),
        ("{{cards}}", &cards),
        ("{{most}}", &most),
        ("{{points}}", &points(&status["rates"])),
        ("{{heads}}", &heads),
        ("{{workers}}", &rows),
        ("{{all}}", &all),
        ("{{script}}", include_str!("page.js")),
    ];
    let page = include_str!("page.html").to_owned();
    parts.iter().fold(page, |page, (name, part)| page.replacen(name, part, 1))
}

/// An element's attributes and content, by which the script finds it again: the end of its first tag is in it.
fn place(status: &Value, key: &str, form: Form) -> String {
    let value = status.pointer(&format!("/{}", key.replace('.', "/"))).unwrap_or(&Value::Null);
    let name = format!("{form:?}").to_lowercase();
    format!("data-key=\"{key}\" data-form=\"{name}\">{}", shown(value, form))
}

/// A value in words, as `forms` in `page.js` has it.
fn shown(value: &Value, form: Form) -> String {
    if let Some(text) = value.as_str() {
        return text.to_owned();
    }
    let Some(number) = value.as_f64() else { return "–".to_owned() };
    match form {
        Form::Rate if number < 100.0 => format!("{number:.1}"),
        Form::Ratio => format!("{number:.2}"),
        Form::Seconds => format!("{number:.2} s"),
        Form::Time if number < 1e-3 => format!("{:.1} µs", number * 1e6),
        Form::Time if number < 1.0 => format!("{:.1} ms", number * 1e3),
        Form::Time => format!("{number:.1} s"),
        Form::Bytes => {
            let units = ["B", "KiB", "MiB", "GiB", "TiB"];
            let (mut number, mut unit) = (number, 0);
            while number >= 1024.0 && unit < units.len() - 1 {
                (number, unit) = (number / 1024.0, unit + 1);
            }
            format!("{number:.*} {}", usize::from(unit > 0), units[unit])
        }
        Form::Text | Form::Count | Form::Rate => grouped(number.round() as u64),
    }
}

/// The digits of a number in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The points of the curve, the newest at the right end: 600 units wide, 100 high.
fn points(rates: &Value) -> String {
    let most = rates["history_most"].as_f64().unwrap_or(0.0);
    let history = rates["history"].as_array().map_or(&[][..], Vec::as_slice);
    let mut text = String::new();
    for (place, rate) in history.iter().enumerate() {
        let x = 600 - 10 * (history.len() - 1 - place);
        let rate = rate.as_f64().unwrap_or(0.0);
        let y = if most > 0.0 { 98.0 - 96.0 * rate / most } else { 98.0 };
        let _ = write!(text, "{x},{y:.1} ");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        let written = |number: f64, form| shown(&number.into(), form);
        assert_eq!(written(1234567.0, Form::Count), "1,234,567");
        assert_eq!(written(123.0, Form::Count), "123");
        assert_eq!(
            (written(99.94, Form::Rate), written(1999.6, Form::Rate)),
            ("99.9".into(), "2,000".into())
        );
        assert_eq!(
            (written(0.0, Form::Bytes), written(1536.0, Form::Bytes)),
            ("0 B".into(), "1.5 KiB".into())
        );
        let times = [0.000_122, 0.25, 64.0].map(|time| written(time, Form::Time));
        assert_eq!(times, ["122.0 µs", "250.0 ms", "64.0 s"]);
        assert_eq!(written(1e18, Form::Bytes), "909494.7 TiB");
        assert_eq!(shown(&Value::Null, Form::Ratio), "–");
    }

    #[test]
    fn the_curve_ends_at_the_right_and_its_peak_is_at_the_line() {
        let rates = serde_json::json!({ "history": [0.0, 4.0, 2.0], "history_most": 4.0 });
        assert_eq!(points(&rates), "580,98.0 590,2.0 600,50.0 ");
    }
}

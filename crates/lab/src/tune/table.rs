//! A ruling as text: what is taken and why, with the figures of the last candidates, in 80 columns.

use std::fmt::Write;

use super::ruling::{Finalist, Ruling, RulingReason};
use crate::analysis::Interval;
use crate::digits::{ratio_words, three_digits};
use crate::report::model::words::list;
use crate::report::terminal::wrapped;

/// The columns of the names, at least: `linux-aio-sendfile` has 18 characters.
const NAME: usize = 18;

/// The columns of the names, at most: with these a line has 80.
const LONGEST_NAME: usize = 23;

impl Ruling {
    /// What is taken and by which rule, in a sentence or two.
    #[must_use]
    pub fn sentence(&self) -> String {
        let taken = self.taken.as_deref().or(self.auto.as_deref()).unwrap_or("auto");
        let auto = match (&self.auto, self.change()) {
            // The file backend `auto` is a candidate itself, with a line of its own.
            (Some(auto), Some(_)) if auto != "auto" => format!(" auto takes {auto}."),
            _ => String::new(),
        };
        let kept = match self.change() {
            // Among file backends, `auto` is a candidate.
            None if taken == "auto" => "the default",
            None => "what auto takes",
            Some(_) => "the simpler one",
        };
        let also = |names: &[String]| match names {
            [] => String::new(),
            names => format!("{}: ", list(names)),
        };
        match &self.rule {
            RulingReason::NotMeasured(why) => format!("left as it is: {why}."),
            RulingReason::Only => format!("{taken}: the only one that could be measured.{auto}"),
            RulingReason::Best => format!(
                "{taken}: each of the others costs more CPU per response or gives fewer responses.{auto}"
            ),
            RulingReason::Tie(names) => format!(
                "{taken}, {kept}: it is a tie with {}no difference of 3 % or more is beyond noise.{auto}",
                also(names)
            ),
            RulingReason::Trade => format!(
                "{taken}: none is best in both measures, and it gives most responses for its CPU and time \
                 together.{auto}"
            ),
            RulingReason::TradeTie(names) => format!(
                "{taken}, {kept}: none is best in both measures, and both together are a tie with {}no \
                 difference of 3 % or more is beyond noise.{auto}",
                also(names)
            ),
        }
    }
}

/// The lines of a ruling: its sentence, the last candidates with their ratios to the one that is taken, and the
/// candidates that were removed earlier. Lines have at most `width` columns; the table needs 80.
#[must_use]
pub fn table(ruling: &Ruling, width: usize) -> String {
    let mut text = wrapped("", 2, &format!("{}: {}", ruling.knob.name(), ruling.sentence()), width);
    let names = ruling.places.iter().map(|it| &it.name).chain(ruling.out.iter().map(|it| &it.name));
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(NAME);
    let columns = longest.clamp(NAME, LONGEST_NAME);
    if !ruling.places.is_empty() {
        let _ = writeln!(
            text,
            "  {:columns$} {:>6} {:<19} {:>7} {:<19}",
            "", "CPU µs", "ratio (95 %)", "resp./s", "ratio (95 %)"
        );
        ruling.places.iter().for_each(|place| text.push_str(&row(place, columns)));
        if ruling.places.iter().any(is_bounded) {
            text += &wrapped("  ", 2, LIMITED, width);
        }
    }
    for out in &ruling.out {
        text +=
            &wrapped(&format!("  {:columns$} ", out.name), 4, &format!("out: {}", out.why), width);
    }
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Explains a ratio without an end.
const LIMITED: &str = "(A ratio without an end: the load generator was the limit.)";

fn is_bounded(place: &Finalist) -> bool {
    let has_no_end = |it: &Interval| it.low <= 0.0 || it.high.is_infinite();
    [&place.cost_ratio, &place.speed_ratio].into_iter().flatten().any(has_no_end)
}

fn row(place: &Finalist, columns: usize) -> String {
    let ratio = |ratio: &Option<Interval>| ratio.as_ref().map_or(String::new(), ratio_words);
    let (cost, speed) = (three_digits(place.cost), three_digits(place.speed));
    let (of_cost, of_speed) = (ratio(&place.cost_ratio), ratio(&place.speed_ratio));
    format!("  {:columns$} {cost:>6} {of_cost:<19} {speed:>7} {of_speed:<19}\n", place.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::halving::Out;
    use crate::tune::reading::for_test;
    use crate::tune::{Knob, rule};

    #[test]
    fn a_ruling_fits_a_terminal_and_says_why() {
        let contender = |name: &str, cost: f64, speed: f64| {
            let about = |value: f64| [0.99, 1.01, 1.0, 0.98, 1.02, 1.0].map(|it| it * value);
            for_test(name, &about(cost), &about(speed))
        };
        let out = Out {
            name: "posix-aio".to_owned(),
            why: "1.31 × the CPU and 0.800 × the responses of sendfile in 2 rounds".to_owned(),
        };
        let auto = Some("auto".to_owned());
        let finalists =
            [contender("auto", 31.2, 123_456.0), contender("linux-aio-sendfile", 90.0, 30_000.0)];
        let ruling = rule(Knob::Files, auto.clone(), &finalists, vec![out]);
        let text = table(&ruling, 80);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
        }
        for expected in [
            "files: auto: each of the others costs more CPU per response or gives fewer\n",
            "\n  auto                 31.2                      123456\n",
            "\n  linux-aio-sendfile   90.0 2.88 (2.88 … 2.88)    30000 0.243 (0.243 … 0.243)\n",
            "\n  posix-aio          out: 1.31 × the CPU and 0.800 × the responses of sendfile",
        ] {
            assert!(text.contains(expected), "{expected:?} in\n{text}");
        }
        let finalists =
            [contender("auto", 31.2, 123_456.0), contender("a-name-of-20-letters", 90.0, 30_000.0)];
        let ruling = rule(Knob::Files, auto.clone(), &finalists, Vec::new());
        let text = table(&ruling, 80);
        for expected in [
            "\n  auto                   31.2                      123456\n",
            "\n  a-name-of-20-letters   90.0 2.88 (2.88 … 2.88)    30000 0.243 (0.243 … 0.243)\n",
        ] {
            assert!(text.contains(expected), "{expected:?} in\n{text}");
        }
        let why = Ruling::not_measured(Knob::Accept, auto, "one worker has nobody");
        assert_eq!(table(&why, 80), "accept: left as it is: one worker has nobody.\n");
    }

    #[test]
    fn a_change_tells_what_auto_takes() {
        let finalists =
            [for_test("uring", &[2.0; 6], &[1.0; 6]), for_test("epoll", &[1.0; 6], &[2.0; 6])];
        let ruling = rule(Knob::Dispatch, Some("uring".to_owned()), &finalists, Vec::new());
        assert!(ruling.sentence().ends_with("fewer responses. auto takes uring."), "{ruling:?}");
    }
}

//! Tables for other programs (RFC 4180): the samples and the claims of an experiment.

use super::model::claim::RowReport;
use super::model::experiment::ExperimentReport;
use super::model::words;

/// A field. It is quoted if it has to be.
fn field(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn line(out: &mut String, fields: &[String]) {
    let fields: Vec<String> = fields.iter().map(|it| field(it)).collect();
    out.push_str(&fields.join(","));
    out.push_str("\r\n");
}

/// A number as it was measured; empty for a missing number and for an open end.
fn number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or(String::new(), |value| value.to_string())
}

/// A line for each run, in the order in which they ran: the cell, the round, the time, the marks, the failure, and a
/// column for each metric. An empty field is a value that the run does not have.
#[must_use]
pub fn samples(experiment: &ExperimentReport) -> String {
    let samples = &experiment.samples;
    let factors: Vec<&String> =
        experiment.cells.first().map_or(Vec::new(), |cell| cell.levels.keys().collect());
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let head = [
        names(&["subject"]),
        factors.iter().map(|factor| (*factor).clone()).collect(),
        names(&["round", "at-s", "took-s", "marks", "failure"]),
        samples.values.keys().cloned().collect(),
    ];
    let mut out = String::new();
    line(&mut out, &head.concat());
    for run in 0..samples.len() {
        let Some(cell) = experiment.cells.get(samples.cell[run]) else { continue };
        let level =
            |factor: &&String| cell.levels.get(*factor).map_or(String::new(), |it| it.to_string());
        let marks: Vec<&str> = samples.marks[run].iter().map(|mark| words::mark(*mark)).collect();
        let fields = [
            vec![cell.subject.clone()],
            factors.iter().map(level).collect(),
            vec![
                samples.round[run].to_string(),
                number(Some(samples.at[run])),
                number(Some(samples.took[run])),
                marks.join(";"),
                samples.failures.get(&run).cloned().unwrap_or_default(),
            ],
            samples.values.values().map(|column| number(column[run])).collect(),
        ];
        line(&mut out, &fields.concat());
    }
    out
}

/// The columns of [`claims`].
const CLAIM_COLUMNS: [&str; 21] = [
    "experiment",
    "claim",
    "by",
    "text",
    "effect",
    "criterion",
    "verdict",
    "why",
    "published-low",
    "published-high",
    "part",
    "decides",
    "of",
    "against",
    "place",
    "value",
    "low",
    "high",
    "bound",
    "rounds",
    "row-verdict",
];

/// A line for each effect of each claim. `decides` is yes in the line of the effect that decides the verdict. A claim
/// without effects has one line.
#[must_use]
pub fn claims(experiment: &ExperimentReport) -> String {
    let mut out = String::new();
    line(&mut out, &CLAIM_COLUMNS.map(str::to_owned));
    for claim in &experiment.claims {
        let published = |at: usize| number(claim.published.map(|ends| ends[at]));
        let first = [
            experiment.id.clone(),
            claim.id.clone(),
            format!("{:?}", claim.by).to_lowercase(),
            claim.text.clone(),
            claim.effect.clone(),
            claim.criterion.clone(),
            claim.verdict.word.clone(),
            claim.verdict.why.clone(),
            published(0),
            published(1),
        ];
        let mut row = |part: &str, decides: bool, row: &RowReport| {
            let ends = row.interval;
            let more = [
                part.to_owned(),
                if decides { "yes" } else { "no" }.to_owned(),
                row.of.join(";"),
                row.against.join(";"),
                row.place.clone(),
                number(ends.map(|it| it.value)),
                number(ends.map(|it| it.low)),
                number(ends.map(|it| it.high)),
                words::sign(row.bound).trim().to_owned(),
                row.rounds.to_string(),
                row.verdict.word.clone(),
            ];
            line(&mut out, &[first.to_vec(), more.to_vec()].concat());
        };
        for (at, effect) in claim.rows.iter().enumerate() {
            row("claim", claim.deciding == Some(at), effect);
        }
        claim.also.iter().for_each(|effect| row("further", false, effect));
        if claim.rows.is_empty() && claim.also.is_empty() {
            let nothing = vec![String::new(); CLAIM_COLUMNS.len() - first.len()];
            line(&mut out, &[first.to_vec(), nothing].concat());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Mark;
    use crate::report::model::Report;
    use crate::report::testing::{Builder, rates, ratio, text};

    /// Parses the output of [`line`].
    fn read(text: &str) -> Vec<Vec<String>> {
        let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
        let (mut is_quoted, mut letters) = (false, text.chars().peekable());
        while let Some(letter) = letters.next() {
            match letter {
                '"' if is_quoted && letters.peek() == Some(&'"') => {
                    letters.next();
                    field.push('"');
                }
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => row.push(std::mem::take(&mut field)),
                '\r' if !is_quoted => {}
                '\n' if !is_quoted => {
                    row.push(std::mem::take(&mut field));
                    rows.push(std::mem::take(&mut row));
                }
                other => field.push(other),
            }
        }
        rows
    }

    fn experiment() -> ExperimentReport {
        let text =
            text("one", &ratio("x", "{ above = 1.5 }")).replace("Claim x.", "One, \"two\"\\n.");
        let text = text.replace("text = 'One, \"two\"\\n.'", "text = \"One, \\\"two\\\"\\n.\"");
        let record = Builder::new()
            .experiment(&text, 6, |cell, round, sample| {
                rates([200.0, 100.0, 100.0], 0.01)(cell, round, sample);
                if cell.subject == "c" {
                    sample.values.clear();
                    sample.failure = Some("a, \"b\"\nand c".to_owned());
                }
                if round == 2 {
                    sample.validity.extend([Mark::Late, Mark::Warned]);
                }
            })
            .judged();
        Report::of(&record).experiments.remove(0)
    }

    #[test]
    fn samples_are_read_back_as_they_were() {
        let experiment = experiment();
        let rows = read(&samples(&experiment));
        assert_eq!(rows.len(), 1 + experiment.samples.len());
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
        let at = |name: &str| rows[0].iter().position(|column| column == name).unwrap();
        for (run, row) in rows[1..].iter().enumerate() {
            let cell = &experiment.cells[experiment.samples.cell[run]];
            assert_eq!(row[at("subject")], cell.subject);
            assert_eq!(row[at("n")], cell.levels["n"].to_string());
            let value = experiment.samples.values["response-rate"][run];
            assert_eq!(row[at("response-rate")].parse::<f64>().ok(), value);
            let failure = experiment.samples.failures.get(&run).cloned().unwrap_or_default();
            assert_eq!(row[at("failure")], failure);
        }
        assert_eq!(rows[7][at("marks")], "sent late;with a warning");
    }

    #[test]
    fn claims_have_a_line_for_each_effect_and_one_decides() {
        let experiment = experiment();
        let rows = read(&claims(&experiment));
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
        let at = |name: &str| rows[0].iter().position(|column| column == name).unwrap();
        assert_eq!(rows[1][at("text")], "One, \"two\"\n.");
        let deciding: Vec<_> = rows.iter().filter(|row| row[at("decides")] == "yes").collect();
        assert_eq!(deciding.len(), 1);
        let value = experiment.claims[0].deciding_row().unwrap().interval.unwrap().value;
        assert_eq!(deciding[0][at("value")].parse::<f64>().unwrap(), value);
    }
}

//! The generated parts of the documentation. Each experiment's page has its facts, which come from the experiment
//! file, and a table of its claims with the results of one session.
//!
//! The results of a session are kept beside the pages as [`SessionResults`], so that the pages can be written again, and
//! tested, without the session.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::model::Report;
use super::model::claim::{ClaimReport, Tone};
use super::model::experiment::{ExperimentReport, ExperimentState};
use super::model::words;
use super::terminal::tone_sign;
use crate::spec::built_in;
use crate::spec::claim::By;
use crate::spec::experiment::Experiment;
use crate::spec::preset::Preset;
use crate::spec::subject::SubjectSpec;

/// The marker at the end of a generated part.
const END: &str = "<!-- end -->";

/// The results of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionResults {
    /// The machine in a line.
    pub machine: String,
    /// A remark on the machine; may be empty.
    pub note: String,
    /// The version of Drover.
    pub version: String,
    /// The hash of the session's binary.
    pub program: String,
    /// The preset.
    pub preset: String,
    /// When the session began (UTC, RFC 3339), and how long it took, in words.
    pub began: String,
    /// See `began`.
    pub took: String,
    /// The runs.
    pub runs: usize,
    /// The verdicts, by experiment and by the claim's id.
    pub experiments: BTreeMap<String, BTreeMap<String, ClaimFinding>>,
}

/// The verdict on a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimFinding {
    /// The effect that was judged, in words, and the region in which the claim is true. If the words of the claim
    /// have changed since, the claim counts as not measured.
    pub effect: String,
    /// See `effect`.
    pub criterion: String,
    /// The effect that decides, with its interval of 95 %; a dash if there is none.
    pub here: String,
    /// The subjects and levels of that effect.
    pub of: String,
    /// The verdict in a word or two.
    pub verdict: String,
    /// The meaning of the verdict for the claim.
    pub tone: Tone,
    /// The reason of the verdict.
    pub why: String,
}

impl ClaimFinding {
    pub(crate) fn of(claim: &ClaimReport) -> ClaimFinding {
        let row = claim.deciding_row();
        let place = row.map(|row| [row.subject_words(), row.place.clone()]);
        let place = place.into_iter().flatten().filter(|it| !it.is_empty());
        ClaimFinding {
            effect: claim.effect.clone(),
            criterion: claim.criterion.clone(),
            here: row.map_or_else(|| "–".to_owned(), |row| row.value_words()),
            of: place.collect::<Vec<_>>().join(", "),
            verdict: claim.verdict.word.clone(),
            tone: claim.verdict.tone,
            why: claim.verdict.why.clone(),
        }
    }

    /// Whether the claim is still judged by the effect and the region of this result.
    fn is_of(&self, claim: &ClaimReport) -> bool {
        self.effect == claim.effect && self.criterion == claim.criterion
    }

    /// The effect with its subjects and levels, in words.
    fn found(&self) -> String {
        match self.of.as_str() {
            "" => self.here.clone(),
            of => format!("{}, {of}", self.here),
        }
    }

    /// The verdict in words; an open verdict with its reason.
    fn outcome(&self) -> String {
        let verdict = format!("{} {}", tone_sign(self.tone), self.verdict);
        match self.tone {
            Tone::Open if self.verdict != "not measured" => format!("{verdict}: {}", self.why),
            _ => verdict,
        }
    }
}

impl SessionResults {
    /// The results that a report has. `note` is a remark on the machine.
    #[must_use]
    pub fn of(report: &Report, note: &str) -> SessionResults {
        let machine = report.machine.as_ref();
        let claims = |one: &ExperimentReport| {
            one.claims.iter().map(|claim| (claim.id.clone(), ClaimFinding::of(claim))).collect()
        };
        SessionResults {
            machine: machine.map_or_else(String::new, |it| it.line.clone()),
            note: note.to_owned(),
            version: report.session.version.clone(),
            program: machine.map_or_else(String::new, |it| it.program.clone()),
            preset: report.session.preset.clone(),
            began: report.session.began.clone(),
            took: words::duration(report.session.took_s),
            runs: report.session.runs,
            experiments: report
                .experiments
                .iter()
                .map(|one| (one.id.clone(), claims(one)))
                .collect(),
        }
    }

    pub(crate) fn finding(&self, experiment: &str, claim: &ClaimReport) -> Option<&ClaimFinding> {
        self.experiments.get(experiment)?.get(&claim.id).filter(|found| found.is_of(claim))
    }

    /// The results of the session that the documentation is about.
    ///
    /// # Panics
    /// The file that is part of the program cannot be read. A test makes the pages of it.
    #[must_use]
    pub fn published() -> SessionResults {
        let text = include_str!("../../../../docs/experiments/results.json");
        serde_json::from_str(text).expect("a test reads it")
    }

    /// The machine and the time of the session, as a paragraph.
    #[must_use]
    pub fn machine(&self) -> String {
        let note = if self.note.is_empty() { String::new() } else { format!("; {}", self.note) };
        format!(
            "{}{note}. Preset `{}`, {} runs in {}, begun {}, Drover {} (binary {}).\n",
            self.machine, self.preset, self.runs, self.took, self.began, self.version, self.program
        )
    }
}

/// The page with `text` as the content of the generated part `part`.
///
/// # Errors
/// The marker that is missing.
pub fn fill(page: &str, part: &str, text: &str) -> Result<String, String> {
    let begin = format!("<!-- generated: {part} -->\n");
    let start = page.find(&begin).ok_or_else(|| format!("no line {}", begin.trim_end()))?;
    let start = start + begin.len();
    let length = page[start..].find(END).ok_or_else(|| format!("no {END} after {part}"))?;
    Ok(format!("{}\n{}\n\n{}", &page[..start], text.trim_end(), &page[start + length..]))
}

/// The text of every page of the built-in experiments, with its path; the index is the first. The hand-written parts
/// come from the pages in `folder`.
///
/// # Errors
/// A page that cannot be read, or lacks its markers.
pub fn pages(folder: &Path, results: &SessionResults) -> Result<Vec<(PathBuf, String)>, String> {
    let read = |name: &str| {
        let path = folder.join(format!("{name}.md"));
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok((path, text)),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    };
    let fill_all = |name: &str, parts: &[(&str, String)]| {
        let (path, mut page) = read(name)?;
        for (part, text) in parts {
            page = fill(&page, part, text).map_err(|why| format!("{}: {why}", path.display()))?;
        }
        Ok((path, page))
    };
    let all = built_in::names().into_iter().filter_map(built_in::experiment);
    let all: Vec<Experiment> = all.collect::<Result<_, _>>().map_err(|it| it.to_string())?;
    let index = [("machine", results.machine()), ("index", index(&all, results))];
    let experiments = all
        .iter()
        .map(|one| fill_all(&one.id, &[("claims", claims(one, results)), ("facts", facts(one))]));
    std::iter::once(fill_all("README", &index)).chain(experiments).collect()
}

/// The claims of an experiment, with the published results and those of the session.
#[must_use]
pub fn claims(experiment: &Experiment, results: &SessionResults) -> String {
    let mut text =
        String::from("| claim | published | measured here | verdict |\n|---|---|---|---|\n");
    for claim in report(experiment).claims {
        let ours = if claim.by == By::Ours { " (ours)" } else { "" };
        let finding = results.finding(&experiment.id, &claim);
        let found = finding.map_or_else(|| "–".to_owned(), ClaimFinding::found);
        let outcome = finding.map_or_else(|| "? not measured".to_owned(), ClaimFinding::outcome);
        let cells = [
            format!("**{}**{ours} {} *True at {}.*", claim.id, claim.text, claim.criterion),
            claim.published_words(),
            found,
            outcome,
        ];
        row(&mut text, &cells.map(|it| cell(&it)));
    }
    text
}

/// The facts of an experiment, and its differences from the document.
#[must_use]
pub fn facts(experiment: &Experiment) -> String {
    let mut text = String::new();
    let mut fact = |name: &str, words: &str| {
        writeln!(text, "- **{name}:** {}", plain(words)).expect("it is memory");
    };
    if let Some(source) = &experiment.source {
        fact("Source", source);
    }
    if let Some(method) = &experiment.method {
        fact("How", method);
    }
    let subjects = experiment.subject.iter().map(|(name, it)| subject(name, it));
    fact("Subjects", &subjects.collect::<Vec<_>>().join("; "));
    let levels = levels(experiment);
    if !levels.is_empty() {
        fact("Levels", &levels.join("; "));
    }
    fact("Run it", &commands(experiment));
    let id = &experiment.id;
    let file = format!("[`{id}.toml`](../../crates/lab/experiments/{id}.toml)");
    fact("File", &file);
    if !experiment.differences.is_empty() {
        text.push_str("\nWhat differs from the source, or limits what the figures say:\n\n");
        for difference in &experiment.differences {
            writeln!(text, "- {}", plain(difference)).expect("it is memory");
        }
    }
    text
}

/// All experiments, with the verdicts on their claims.
#[must_use]
pub fn index(experiments: &[Experiment], results: &SessionResults) -> String {
    let mut text =
        String::from("| experiment | what it asks | ✓ | ✗ | ? |\n|---|---|---|---|---|\n");
    for experiment in experiments {
        let report = report(experiment);
        let tone = |claim| {
            results.finding(&experiment.id, claim).map_or(Tone::Open, |finding| finding.tone)
        };
        let count =
            |wanted| report.claims.iter().filter(|claim| tone(claim) == wanted).count().to_string();
        let id = &experiment.id;
        let cells = [
            format!("[{id}]({id}.md)"),
            cell(experiment.question.as_deref().unwrap_or_default()),
            count(Tone::For),
            count(Tone::Against),
            count(Tone::Open),
        ];
        row(&mut text, &cells);
    }
    text
}

fn report(experiment: &Experiment) -> ExperimentReport {
    ExperimentReport::without_runs(experiment, &ExperimentState::NotBegun)
}

fn row(text: &mut String, cells: &[String]) {
    writeln!(text, "| {} |", cells.join(" | ")).expect("it is memory");
}

/// Text, escaped as a cell of a table.
fn cell(text: &str) -> String {
    plain(text).replace('|', "\\|")
}

/// Text of an experiment's file, escaped so that nothing in it is an HTML element.
fn plain(text: &str) -> String {
    text.trim().replace('\n', " ").replace('<', "&lt;")
}

fn subject(name: &str, subject: &SubjectSpec) -> String {
    let mut words: Vec<&str> = subject.title.iter().map(String::as_str).collect();
    if subject.model && !words.iter().any(|it| it.contains("model")) {
        words.push("a model");
    }
    if subject.unavailable.is_some() {
        words.push("not to be had");
    }
    match words.as_slice() {
        [] => format!("`{name}`"),
        words => format!("`{name}` ({})", words.join(", ")),
    }
}

/// The factors with their levels, and the names of the cases.
fn levels(experiment: &Experiment) -> Vec<String> {
    let axis = |(name, factor): (&String, &crate::spec::factor::Factor)| {
        let levels: Vec<String> = factor.levels.iter().map(ToString::to_string).collect();
        let unit = factor.unit.as_deref().unwrap_or_default();
        format!("`{name}` {} {unit}", levels.join(", ")).trim_end().to_owned()
    };
    let axes = experiment.factor.iter().filter(|(_, factor)| !factor.levels.is_empty()).map(axis);
    let cases: Vec<String> =
        experiment.case.iter().map(|case| format!("“{}”", case.name)).collect();
    let cases = (!cases.is_empty()).then(|| format!("`case` {}", cases.join(", ")));
    cases.into_iter().chain(axes).collect()
}

/// The command for each preset, with its estimated time.
fn commands(experiment: &Experiment) -> String {
    let limit = |preset: &Preset| {
        let budget = preset.budget.as_ref()?.resolve(&BTreeMap::new()).ok()?;
        Some(format!(" (at most {})", humantime::format_duration(budget)))
    };
    let command = |(name, preset): (&String, &Preset)| {
        let flag = if name == "quick" { String::new() } else { format!(" --preset {name}") };
        let limit = limit(preset).unwrap_or_default();
        format!("`drover lab run {}{flag}`{limit}", experiment.id)
    };
    experiment.presets.iter().map(command).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{Builder, rates, ratio, text};

    fn experiment(holds: &str) -> Experiment {
        let differences = "differences = ['Less <b> than there.']\n[subject.a]";
        let text = text("one", &ratio("x", holds)).replacen("[subject.a]", differences, 1);
        toml::from_str(&text).unwrap()
    }

    fn results() -> SessionResults {
        let text = text("one", &ratio("x", "{ above = 1.5 }"));
        let record = Builder::new().experiment(&text, 6, rates([200.0, 100.0, 100.0], 0.01));
        SessionResults::of(&Report::of(&record.judged()), "nobody else on it")
    }

    #[test]
    fn a_claim_stands_beside_what_was_found() {
        let (results, experiment) = (results(), experiment("{ above = 1.5 }"));
        let table = claims(&experiment, &results);
        assert!(table.contains("| **x** Claim x. *True at ≥ 1.5.* | – | 1.99 ("), "{table}");
        assert!(table.contains("a ÷ b") && table.contains("| ✓ holds |"), "{table}");
        let index = index(&[experiment], &results);
        assert!(index.contains("| [one](one.md) |  | 1 | 0 | 0 |"), "{index}");
        assert!(results.machine().contains("nobody else on it"));
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<SessionResults>(&text).unwrap(), results);
    }

    #[test]
    fn a_claim_that_has_changed_was_not_measured() {
        let table = claims(&experiment("{ above = 1.6 }"), &results());
        assert!(table.contains("| – | – | ? not measured |"), "{table}");
    }

    #[test]
    fn facts_are_those_of_the_file() {
        let facts = facts(&experiment("{ above = 1.5 }"));
        for expected in
            ["`a`; `b`; `c`", "`n` 10, 100 things", "[`one.toml`]", "- Less &lt;b> than there."]
        {
            assert!(facts.contains(expected), "{expected}: {facts}");
        }
    }

    #[test]
    fn only_the_generated_part_is_written() {
        let page = "before\n<!-- generated: facts -->\nold\n<!-- end -->\nafter\n";
        let filled = fill(page, "facts", "new\n").unwrap();
        assert_eq!(filled, "before\n<!-- generated: facts -->\n\nnew\n\n<!-- end -->\nafter\n");
        assert_eq!(fill(&filled, "facts", "new").unwrap(), filled);
        assert!(fill(page, "claims", "new").is_err());
        assert!(fill("<!-- generated: facts -->\n", "facts", "new").is_err());
    }
}

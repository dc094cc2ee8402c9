//! The generated parts of the documentation. Each experiment's page has its facts, which come from the experiment
//! file, and a table of its claims with the results of one session.
//!
//! The results of a session are kept beside the pages as [`SessionResults`] and [`SessionMedians`], so that the pages can be
//! written again, and tested, without the session. Numbers in prose come from there too ([`super::prose`]).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::findings::{ClaimFinding, SessionResults};
use super::model::claim::{ClaimReport, Tone};
use super::model::experiment::{ExperimentReport, ExperimentState};
use super::prose::{self, SessionMedians};
use super::verdicts::{self, Conclusion, DecidedBy, OpenReason};
use crate::spec::built_in;
use crate::spec::claim::By;
use crate::spec::experiment::Experiment;
use crate::spec::preset::Preset;
use crate::spec::subject::SubjectSpec;

/// The marker at the end of a generated part.
const END: &str = "<!-- end -->";

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

/// The pages about several experiments, beside the folder of the experiments' own.
const ABOUT_SEVERAL: [&str; 1] = ["../which-mechanism"];

/// The text of every page of the built-in experiments, with its path; the index is the first, and pages about several experiments
/// are the last. The hand-written parts come from the pages in `folder`.
///
/// # Errors
/// A page that cannot be read, or lacks its markers.
pub fn pages(
    folder: &Path,
    results: &SessionResults,
    medians: &SessionMedians,
) -> Result<Vec<(PathBuf, String)>, String> {
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
    let experiments = all.iter().map(|one| {
        let parts = [
            ("today", today(one, results)),
            ("claims", claims(one, results)),
            ("facts", facts(one)),
        ];
        let (path, page) = fill_all(&one.id, &parts)?;
        let page = prose::fill(&page, &one.id, results, medians);
        Ok((path.clone(), page.map_err(|why| format!("{}: {why}", path.display()))?))
    });
    let several = ABOUT_SEVERAL.iter().map(|name| {
        let (path, page) = read(name)?;
        let page = prose::fill(&page, "", results, medians);
        Ok((path.clone(), page.map_err(|why| format!("{}: {why}", path.display()))?))
    });
    std::iter::once(fill_all("README", &index)).chain(experiments).chain(several).collect()
}

/// Which of the document's claims are true today: what a reader of the page wants to know first.
#[must_use]
pub fn today(experiment: &Experiment, results: &SessionResults) -> String {
    let claims = report(experiment).claims;
    let has_document = claims.iter().any(|claim| claim.by == By::Document);
    let of = |claim: &ClaimReport| !has_document || claim.by == By::Document;
    let (mut holds, mut others) = (Vec::new(), Vec::new());
    for claim in claims.into_iter().filter(of) {
        let said = format!("**{}** {}", claim.id, plain(claim.text.trim_end_matches('.')));
        match verdicts::verdict(&experiment.id, claim.clone(), results).conclusion {
            Conclusion::Decided { tone: Tone::For, .. } => holds.push(claim.id),
            Conclusion::Decided { tone, word, .. } => {
                others.push(format!("{} {said}: *{word}*.", tone.sign()));
            }
            Conclusion::Open { why, .. } => others.push(format!("? {said}: *{}*.", why.words())),
        }
    }
    let whose = if has_document { "the document" } else { "this project" };
    let count = holds.len() + others.len();
    let hold = match (holds.len(), count) {
        (1, 1) => format!("The one claim of {whose} holds."),
        (all, count) if all == count => format!("All {count} claims of {whose} hold."),
        (0, 1) => format!("The one claim of {whose} is not shown to hold."),
        (0, count) => format!("Of {count} claims of {whose} none is shown to hold."),
        (some, count) => {
            let verb = if some == 1 { "holds" } else { "hold" };
            format!("Of {count} claims of {whose}, {some} {verb} (✓ {}).", holds.join(", "))
        }
    };
    let lines = others.iter().map(|line| format!("- {line}"));
    let rest: Vec<String> = lines.collect();
    format!("**Is it true today?** {hold}\n\n{}", rest.join("\n")).trim_end().to_owned()
}

/// The claims of an experiment, with the published results, those of the session, and those of the emulated machine.
#[must_use]
pub fn claims(experiment: &Experiment, results: &SessionResults) -> String {
    let mut text = String::from(
        "| claim | published | measured here | emulated machine | verdict |\n|---|---|---|---|---|\n",
    );
    for claim in report(experiment).claims {
        let ours = if claim.by == By::Ours { " (ours)" } else { "" };
        let said = format!("**{}**{ours} {} *True at {}.*", claim.id, claim.text, claim.criterion);
        let one = verdicts::verdict(&experiment.id, claim, results);
        let here = one.here.as_ref();
        let counted = one.emulated.as_ref().map_or_else(|| "–".to_owned(), |it| it.words());
        let outcome = match &one.conclusion {
            Conclusion::Decided { tone, word, by } => {
                let by = if *by == DecidedBy::Emulated { ", as counted" } else { "" };
                format!("{} {word}{by}", tone.sign())
            }
            Conclusion::Open { why: OpenReason::Disagree, .. } => {
                format!("? {}", OpenReason::Disagree.words())
            }
            Conclusion::Open { .. } => {
                here.map_or_else(|| "? not measured".to_owned(), ClaimFinding::outcome)
            }
        };
        let found = here.map_or_else(|| "–".to_owned(), ClaimFinding::found);
        let cells = [said, one.published, found, counted, outcome];
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
        let tone =
            |claim: &ClaimReport| match verdicts::verdict(&experiment.id, claim.clone(), results)
                .conclusion
            {
                Conclusion::Decided { tone, .. } => tone,
                Conclusion::Open { .. } => Tone::Open,
            };
        let tones: Vec<Tone> = report.claims.iter().map(tone).collect();
        let count = |wanted| tones.iter().filter(|tone| **tone == wanted).count().to_string();
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
    use crate::report::model::Report;
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
        assert!(table.contains("a ÷ b") && table.contains("| – | ✓ holds |"), "{table}");
        let index = index(&[experiment], &results);
        assert!(index.contains("| [one](one.md) |  | 1 | 0 | 0 |"), "{index}");
        assert!(results.machine().contains("nobody else on it"));
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<SessionResults>(&text).unwrap(), results);
    }

    #[test]
    fn a_page_begins_with_what_is_true_today() {
        let told = today(&experiment("{ above = 1.5 }"), &results());
        assert_eq!(told, "**Is it true today?** The one claim of the document holds.");
        let told = today(&experiment("{ above = 1.6 }"), &results());
        let none = "The one claim of the document is not shown to hold.";
        assert_eq!(
            told,
            format!("**Is it true today?** {none}\n\n- ? **x** Claim x: *not measured*.")
        );
    }

    #[test]
    fn a_claim_that_has_changed_was_not_measured() {
        let table = claims(&experiment("{ above = 1.6 }"), &results());
        assert!(table.contains("| – | – | – | ? not measured |"), "{table}");
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

//! The report of a claim: the published value, the value found here, the verdict, and its reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::words;
use crate::analysis::{Bound, Interval};
use crate::claims::{EffectRow, Judgement, Size, Verdict, published};
use crate::model::{Cell, Level, Mark};
use crate::spec::claim::{By, Claim, Effect};
use crate::spec::experiment::Experiment;

/// The report of a claim.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimReport {
    /// Its letter.
    pub id: String,
    /// The part of links that names it on the page.
    pub anchor: String,
    /// The statement.
    pub text: String,
    /// Who makes the claim.
    pub by: By,
    /// The place in the document.
    pub source: Option<String>,
    /// The metric that decides.
    pub metric: String,
    /// The effect that decides, in words.
    pub effect: String,
    /// The region of the effect in which the claim is true, in words.
    pub criterion: String,
    /// The lower end of the region.
    pub above: Option<f64>,
    /// The upper end of the region.
    pub below: Option<f64>,
    /// The null value: the effect's value if there is no effect.
    pub null: Option<f64>,
    /// Whether effects are positive numbers, for example ratios, that vary by factors.
    pub is_log: bool,
    /// Whether effects are what one side has, divided by what the other has at the same levels: no change from one level to
    /// another, for example. The page's data lack it.
    #[serde(skip)]
    pub is_ratio: bool,
    /// The effect that the document measured; of several values the lowest and the highest.
    pub published: Option<[f64; 2]>,
    /// A remark on the published value.
    pub published_note: Option<String>,
    /// A remark on the verdict.
    pub note: Option<String>,
    /// The verdict as one of the report's claims.
    pub verdict: VerdictReport,
    /// The verdict as if the claim were the only one, if that verdict differs.
    pub alone: Option<VerdictReport>,
    /// The p-value, adjusted for the other claims of the report.
    pub adjusted_p: Option<f64>,
    /// The number of the row that decides.
    pub deciding: Option<usize>,
    /// The effects that decide.
    pub rows: Vec<RowReport>,
    /// The effects of further subjects. They decide nothing.
    pub also: Vec<RowReport>,
}

/// A verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerdictReport {
    /// The verdict in as few words as distinguish it from the other verdicts.
    pub word: String,
    /// The meaning of the verdict for the claim.
    pub tone: Tone,
    /// The reason of the verdict.
    pub why: String,
    /// The number of rounds that would decide.
    pub rounds_needed: Option<usize>,
}

/// The meaning of a verdict for its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tone {
    /// The claim was found to be true.
    For,
    /// The claim was found not to be true.
    Against,
    /// It is open.
    Open,
}

impl Tone {
    /// A sign that distinguishes verdicts without colour.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Tone::For => "✓",
            Tone::Against => "✗",
            Tone::Open => "?",
        }
    }
}

/// An effect.
#[derive(Clone, Debug, Serialize)]
pub struct RowReport {
    /// Whether the effect is a difference (for example of exponents) and not a ratio.
    pub is_difference: bool,
    /// The unit of the effect; empty for a ratio.
    pub unit: String,
    /// The subjects in the numerator.
    pub of: Vec<String>,
    /// The subjects in the denominator.
    pub against: Vec<String>,
    /// The levels in words.
    pub place: String,
    /// The estimate with its interval of 95 %; infinite ends are open.
    pub interval: Option<Interval>,
    /// Whether the estimate is exact, or a bound.
    pub bound: Bound,
    /// The number of rounds of the estimate.
    pub rounds: usize,
    /// The document's value of the same effect.
    pub published: Option<f64>,
    /// The indices of the cells of the effect.
    pub cells: Vec<usize>,
    /// The number of runs of these cells.
    pub runs: usize,
    /// The number of runs that failed.
    pub failed: usize,
    /// The number of runs with each mark.
    pub marks: BTreeMap<Mark, usize>,
    /// The verdict on this effect.
    pub verdict: VerdictReport,
}

impl VerdictReport {
    /// Whether nothing was measured for the claim.
    #[must_use]
    pub fn is_not_measured(&self) -> bool {
        self.word == Verdict::NotMeasured.word()
    }

    /// The verdict on a claim, or on one of its effects.
    #[must_use]
    pub fn of(verdict: &Verdict, claim: &Claim) -> VerdictReport {
        let tone = match verdict {
            Verdict::Holds => Tone::For,
            verdict if verdict.is_decided() => Tone::Against,
            _ => Tone::Open,
        };
        let rounds_needed = match verdict {
            Verdict::TooNoisy { rounds, .. } => *rounds,
            _ => None,
        };
        let word = verdict.word().to_owned();
        VerdictReport { word, tone, why: why(verdict, claim), rounds_needed }
    }
}

/// The reason of a verdict that differs from the verdict of the effect alone. The shown interval is that of the
/// effect alone, so that the reason has to explain the difference.
fn beside(verdict: &Verdict, alone: &Verdict, claim: &Claim) -> VerdictReport {
    let mut report = VerdictReport::of(verdict, claim);
    if let (Verdict::TooNoisy { rounds, .. }, true) = (verdict, alone.is_decided()) {
        report.why = format!(
            "by itself “{}”; as one of the report's claims it has a wider interval, which reaches across an \
             end of {}; {}",
            alone.word(),
            words::region(claim.holds),
            needed(*rounds)
        );
    }
    report
}

fn needed(rounds: Option<usize>) -> String {
    match rounds {
        Some(rounds) => format!("about {rounds} rounds would decide"),
        None => "a thousand rounds would not decide".to_owned(),
    }
}

/// The verdict's reason in words.
fn why(verdict: &Verdict, claim: &Claim) -> String {
    let region = words::region(claim.holds);
    let said = match verdict {
        Verdict::Holds => return format!("the whole interval is {region}"),
        Verdict::SameDirection { size: Size::Smaller } => "the effect is there, but smaller: not",
        Verdict::SameDirection { size: Size::Larger } => "the effect is there, and larger: not",
        Verdict::SmallerOrNone => "whether there is an effect is open, but it is not",
        Verdict::NoEffect => "there is no effect worth the name; the claim needs",
        Verdict::Opposite => "the effect goes the other way; the claim needs",
        Verdict::Differs { size: Size::Smaller } => "the effect is less: not",
        Verdict::Differs { size: Size::Larger } => "the effect is more: not",
        Verdict::Fails { runs, of, reason } => {
            return format!("the subject failed in {runs} of {of} runs: {reason}");
        }
        Verdict::TooNoisy { rounds, direction_shown } => {
            let needed = needed(*rounds);
            let direction = match direction_shown {
                true => "the direction is shown, the size is open: ",
                false => "",
            };
            return format!("{direction}the interval reaches across an end of {region}; {needed}");
        }
        Verdict::NotTestable(reason) => return reason.to_string(),
        Verdict::NotMeasured => {
            return "no run has what the claim is about: the preset, --subjects or --levels leave it out"
                .to_owned();
        }
    };
    format!("{said} {region}")
}

/// The report of a claim; `cells` are the planned ones.
#[must_use]
pub fn claim(
    experiment: &Experiment,
    cells: &[Cell],
    claim: &Claim,
    judgement: Option<&Judgement>,
) -> ClaimReport {
    let of_document = of_document(experiment, claim);
    let row = |row: &EffectRow| row_report(experiment, cells, claim, row, of_document.as_ref());
    let alone = judgement.filter(|one| one.alone.word() != one.verdict.word());
    let deciding = judgement.and_then(|one| {
        let deciding = one.deciding()?;
        one.rows.iter().position(|row| std::ptr::eq(row, deciding))
    });
    let is_linear = |it: &Effect| matches!(it, Effect::Exponent(_) | Effect::Offered(_));
    let mut verdict = judgement.map_or_else(
        || VerdictReport::of(&Verdict::NotMeasured, claim),
        |one| beside(&one.verdict, &one.alone, claim),
    );
    let is_measured = |row: &EffectRow| row.verdict != Verdict::NotMeasured;
    if judgement
        .is_some_and(|one| one.verdict == Verdict::NotMeasured && one.rows.iter().any(is_measured))
    {
        verdict.why = "a part of what the claim is about has no run: the preset, --subjects or --levels leave \
                       it out"
            .to_owned();
    }
    ClaimReport {
        id: claim.id.clone(),
        anchor: format!("{}--claim-{}", experiment.id, words::slug(&claim.id)),
        text: claim.text.clone(),
        by: claim.by,
        source: claim.source.clone(),
        metric: claim.effect.metric().to_owned(),
        effect: words::effect(experiment, claim),
        criterion: words::quantity(&words::region(claim.holds), &unit(experiment, claim)),
        above: claim.holds.above,
        below: claim.holds.below,
        null: claim.null(),
        is_log: !is_linear(&claim.effect),
        is_ratio: matches!(claim.effect, Effect::Ratio(_)),
        published: published_effect(claim, of_document.as_ref()),
        published_note: published_note(claim),
        note: claim.note.clone(),
        verdict,
        alone: alone.map(|one| VerdictReport::of(&one.alone, claim)),
        adjusted_p: judgement.and_then(|one| one.adjusted_p),
        deciding,
        rows: judgement.map_or(Vec::new(), |one| one.rows.iter().map(row).collect()),
        also: judgement.map_or(Vec::new(), |one| one.also.iter().map(row).collect()),
    }
}

/// The unit of the claim's effect; empty for ratios and other pure numbers.
fn unit(experiment: &Experiment, claim: &Claim) -> String {
    let Effect::Value(_) = &claim.effect else { return String::new() };
    experiment.metric(claim.effect.metric()).map_or(String::new(), |it| it.unit.to_owned())
}

fn published_note(claim: &Claim) -> Option<String> {
    use crate::spec::claim::Published;
    match claim.published.as_ref()? {
        Published::Rows(_) => None,
        Published::Data(data) => {
            let figure = data.figure.as_ref().map(|figure| match figure.parse::<u32>() {
                Ok(number) => format!("figure {number}"),
                Err(_) => figure.clone(),
            });
            let said: Vec<String> = figure.into_iter().chain(data.note.clone()).collect();
            (!said.is_empty()).then(|| said.join(": "))
        }
    }
}

/// The document's numbers, judged. Their effects are shown beside the effects found here.
fn of_document(experiment: &Experiment, claim: &Claim) -> Option<Judgement> {
    let rows = claim.published.as_ref().map_or(&[][..], |published| published.rows());
    let better = experiment.metric(claim.effect.metric())?.better;
    (!rows.is_empty()).then(|| published::judge(claim, better, rows))
}

fn published_effect(claim: &Claim, of_document: Option<&Judgement>) -> Option<[f64; 2]> {
    if let Some(effect) = claim.published.as_ref().and_then(|published| published.effect()) {
        return Some(effect.ends());
    }
    let rows = of_document?.rows.iter();
    let values: Vec<f64> = rows.filter_map(|row| Some(row.interval?.value)).collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (!values.is_empty()).then_some([low, high])
}

fn row_report(
    experiment: &Experiment,
    cells: &[Cell],
    claim: &Claim,
    row: &EffectRow,
    of_document: Option<&Judgement>,
) -> RowReport {
    let is_same = |other: &&EffectRow| {
        // A document gives fewer levels than a cell of an experiment.
        let place = &other.place;
        other.of == row.of
            && other.against == row.against
            && place.iter().all(|(factor, level)| row.place.get(factor) == Some(level))
    };
    let is_behind = |cell: &Cell| {
        (row.of.contains(&cell.subject) || row.against.contains(&cell.subject))
            && claim.covers(cell)
            && row.place.iter().all(|(factor, level)| {
                cell.levels.get(factor) == Some(level) || is_base(claim, factor, cell, cells)
            })
            && is_end(claim, cell)
    };
    let published = of_document.and_then(|judged| judged.rows.iter().find(is_same)?.interval);
    RowReport {
        is_difference: matches!(claim.effect, Effect::Exponent(_)),
        unit: unit(experiment, claim),
        of: row.of.clone(),
        against: row.against.clone(),
        place: words::place(&row.place, experiment),
        interval: row.interval,
        bound: row.bound,
        rounds: row.rounds,
        published: published.map(|interval| interval.value),
        cells: (0..cells.len()).filter(|number| is_behind(&cells[*number])).collect(),
        runs: row.tally.runs,
        failed: row.tally.failed,
        marks: row.tally.marks.clone(),
        verdict: beside(&row.verdict, &row.alone, claim),
    }
}

/// Whether the cell is at the lowest level of the factor of a profile. A profile compares every level with the lowest
/// one.
fn is_base(claim: &Claim, factor: &str, cell: &Cell, cells: &[Cell]) -> bool {
    let Effect::Profile(profile) = &claim.effect else { return false };
    let covered = cells.iter().filter(|other| claim.covers(other));
    let levels = covered.filter_map(|other| other.levels.get(factor)?.number());
    let lowest = levels.fold(f64::INFINITY, f64::min);
    profile.over == factor
        && cell.levels.get(factor).and_then(Level::number).is_some_and(|own| own == lowest)
}

/// Whether the cell is at one of the two levels of a change. `true` for every cell of another effect.
fn is_end(claim: &Claim, cell: &Cell) -> bool {
    let Effect::Change(change) = &claim.effect else { return true };
    cell.levels.get(&change.over).is_none_or(|own| *own == change.from || *own == change.to)
}

impl ClaimReport {
    /// The effect that decides.
    #[must_use]
    pub fn deciding_row(&self) -> Option<&RowReport> {
        self.rows.get(self.deciding?)
    }

    /// The published effect in words; a dash if there is none.
    #[must_use]
    pub fn published_words(&self) -> String {
        match self.published {
            None => "–".to_owned(),
            Some([low, high]) if words::number(low) == words::number(high) => words::number(low),
            Some([low, high]) => format!("{} to {}", words::number(low), words::number(high)),
        }
    }
}

impl RowReport {
    /// The estimate and its interval in words; a dash if there is none.
    #[must_use]
    pub fn value_words(&self) -> String {
        self.interval.map_or("–".to_owned(), |it| {
            let sign = words::sign(self.bound);
            let range = words::range(it.low, it.high);
            format!("{sign}{} ({range})", words::quantity(&words::number(it.value), &self.unit))
        })
    }

    /// The subjects: `a ÷ b`, `the best of a, b ÷ c`.
    #[must_use]
    pub fn subject_words(&self) -> String {
        let side = |names: &[String]| match names {
            [one] => one.clone(),
            several => format!("best of {}", several.join(", ")),
        };
        match self.against.is_empty() {
            true => side(&self.of),
            false => {
                let sign = if self.is_difference { "−" } else { "÷" };
                format!("{} {sign} {}", side(&self.of), side(&self.against))
            }
        }
    }

    /// The marks in words: `generator-limited in 3 of 12 runs`.
    #[must_use]
    pub fn mark_words(&self) -> String {
        marks_words(&self.marks, self.failed, self.runs)
    }
}

/// Marks and failures of some runs in words; empty if there are none.
#[must_use]
pub fn marks_words(marks: &BTreeMap<Mark, usize>, failed: usize, runs: usize) -> String {
    let failed = (failed > 0).then(|| format!("{failed} of {runs} runs failed"));
    // Where that everything was answered matters, the verdict says so.
    let is_told = |mark: Mark| !matches!(mark, Mark::Unavailable | Mark::AnsweredAll);
    let marked = marks.iter().filter(|(mark, _)| is_told(**mark));
    let marked = marked.map(|(mark, count)| format!("{} in {count} of {runs}", words::mark(*mark)));
    failed.into_iter().chain(marked).collect::<Vec<_>>().join("; ")
}

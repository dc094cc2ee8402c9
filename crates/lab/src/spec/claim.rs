//! Claims: what a document, or this project, says of an experiment's result, and the region in which an
//! effect has to lie for that to be true here.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{Cell, Level};
use crate::old_names::read_metric;

/// One statement about the result. Each claim has a verdict of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim's letter in the report, unique within the experiment: `a`, `b1`.
    pub id: String,
    /// The claim's statement, in a sentence.
    pub text: String,
    /// Who makes the statement: the document that the experiment repeats, or the authors of the experiment file
    /// (`ours`). The report counts the claims of each apart. `ours` if the key is missing.
    #[serde(default)]
    pub by: By,
    /// Where the document makes the statement: the section, table or figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The claim of a built-in experiment that this one judges by another instrument: `"dispatch-overhead/c1"`. The
    /// report shows both verdicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judges: Option<String>,
    /// The number that decides whether the claim holds.
    pub effect: Effect,
    /// The cells that the effect is computed from: for each factor, a level or a list of levels. A factor that
    /// is not named has all its levels. The name `case` stands for the case, in an experiment that has cases.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub cells: BTreeMap<String, Levels>,
    /// The region in which the effect lies if the statement is true.
    pub holds: Region,
    /// What has to be so for the claim to be put to the test: regions of other metrics, by name, as in
    /// `given = { busy-percent = { above = 95 } }`. Where the median of a cell's rounds is outside, the claim is
    /// *not testable*.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub given: BTreeMap<String, Region>,
    /// The effect's value where there is no difference to see. If the key is missing: 0 for `exponent`, 1 for
    /// the other effects, and none for `value` and for `knee` without `against`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null: Option<f64>,
    /// Further subjects, such as successors of the document's subjects. The report shows the effect of each of
    /// these subjects, with the subject in place of `of`. These effects do not decide the verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The values that the document measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// What the reader of the report has to know about the verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Claim {
    /// The effect's value where there is nothing to see, if the effect has one.
    pub fn null(&self) -> Option<f64> {
        self.null.or_else(|| self.effect.null())
    }

    /// Whether the claim is about a cell with these levels.
    pub fn covers(&self, cell: &Cell) -> bool {
        self.cells.iter().all(|(factor, levels)| {
            cell.levels.get(factor).is_some_and(|level| levels.contains(level))
        })
    }
}

/// Who makes a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The document that the experiment repeats. The document's own numbers, where it has any, meet the
    /// claim's criterion; a test of the built-in experiments checks that.
    Document,
    /// The authors of the experiment file.
    #[default]
    Ours,
}

/// One level of a factor, or several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Levels {
    /// One level.
    One(Level),
    /// Any of these levels.
    Any(Vec<Level>),
}

impl Levels {
    /// The levels, one or several.
    pub fn as_slice(&self) -> &[Level] {
        match self {
            Levels::One(level) => std::slice::from_ref(level),
            Levels::Any(levels) => levels,
        }
    }

    /// Whether the level is one of them.
    pub fn contains(&self, level: &Level) -> bool {
        self.as_slice().contains(level)
    }
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Side {
    /// One subject.
    One(String),
    /// Several subjects: the claim holds if the claim holds for each subject (intersection–union test).
    Every(Vec<String>),
    /// The best of several subjects, chosen anew in each round.
    Best(Best),
}

impl Side {
    /// The names of the subjects.
    pub fn subjects(&self) -> &[String] {
        match self {
            Side::One(subject) => std::slice::from_ref(subject),
            Side::Every(subjects) | Side::Best(Best { best: subjects }) => subjects,
        }
    }
}

/// The best of several subjects: the highest or the lowest value, as the metric's key `better` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// The subjects to choose from in each round.
    #[schemars(length(min = 1))]
    pub best: Vec<String>,
}

/// How many of the levels have to agree with the claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    /// All levels: the level that agrees least is reported.
    #[default]
    Every,
    /// At least one level: the level that agrees best is reported.
    Some,
    /// The mean of the levels on a logarithmic scale, taken in each round. Single levels may disagree.
    Mean,
}

/// The number that decides a claim: one kind of effect, of one metric.
///
/// Rounds are the units of every estimate. A ratio is taken within a round, on a logarithmic scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Effect {
    /// The metric itself, in every cell.
    Value(ValueEffect),
    /// `of` ÷ `against`, in cells of equal levels.
    Ratio(RatioEffect),
    /// The metric at level `to` of the factor `over` ÷ the metric at level `from` of this factor.
    Change(ChangeEffect),
    /// The metric at every level of the factor `over` ÷ the metric at the lowest level of this factor, with
    /// simultaneous bounds.
    Profile(ProfileEffect),
    /// The slope of the metric's logarithm over the logarithm of the factor `over`: 0 is constant,
    /// 1 linear.
    Exponent(ExponentEffect),
    /// The metric ÷ the level of the factor `over`, in each cell: 1 where every request is answered.
    Offered(OfferedEffect),
    /// The first level of the factor `over` at which the metric is below 0.97 times the level.
    Knee(KneeEffect),
    /// The highest value of `of` over the levels of the factor `over` ÷ the highest value of `against`.
    Peak(PeakEffect),
    /// The standard deviation of the metric's logarithm for `of` ÷ the standard deviation for `against`.
    Spread(SpreadEffect),
}

impl Effect {
    /// The name of the metric.
    pub fn metric(&self) -> &str {
        match self {
            Effect::Value(it) => &it.metric,
            Effect::Ratio(it) => &it.metric,
            Effect::Change(it) => &it.metric,
            Effect::Profile(it) => &it.metric,
            Effect::Exponent(it) => &it.metric,
            Effect::Offered(it) => &it.metric,
            Effect::Knee(it) => &it.metric,
            Effect::Peak(it) => &it.metric,
            Effect::Spread(it) => &it.metric,
        }
    }

    /// The subjects that the claim is about.
    pub fn of(&self) -> &Side {
        match self {
            Effect::Value(it) => &it.of,
            Effect::Ratio(it) => &it.of,
            Effect::Change(it) => &it.of,
            Effect::Profile(it) => &it.of,
            Effect::Exponent(it) => &it.of,
            Effect::Offered(it) => &it.of,
            Effect::Knee(it) => &it.of,
            Effect::Peak(it) => &it.of,
            Effect::Spread(it) => &it.of,
        }
    }

    /// The subjects that those are compared with, if there are any.
    pub fn against(&self) -> Option<&Side> {
        match self {
            Effect::Ratio(it) => Some(&it.against),
            Effect::Peak(it) => Some(&it.against),
            Effect::Spread(it) => Some(&it.against),
            Effect::Change(it) => it.against.as_ref(),
            Effect::Exponent(it) => it.against.as_ref(),
            Effect::Knee(it) => it.against.as_ref(),
            Effect::Value(_) | Effect::Profile(_) | Effect::Offered(_) => None,
        }
    }

    /// The factor along which the effect looks, if it looks along one.
    pub fn over(&self) -> Option<&str> {
        match self {
            Effect::Change(it) => Some(&it.over),
            Effect::Profile(it) => Some(&it.over),
            Effect::Exponent(it) => Some(&it.over),
            Effect::Offered(it) => Some(&it.over),
            Effect::Knee(it) => Some(&it.over),
            Effect::Peak(it) => Some(&it.over),
            Effect::Value(_) | Effect::Ratio(_) | Effect::Spread(_) => None,
        }
    }

    /// Whether every one of several effects has to agree, or some, or their mean.
    pub fn which(&self) -> Which {
        match self {
            Effect::Value(it) => it.which,
            Effect::Ratio(it) => it.which,
            Effect::Profile(it) => it.which,
            Effect::Offered(it) => it.which,
            _ => Which::Every,
        }
    }

    /// The same effect of another subject.
    pub fn of_subject(&self, subject: &str) -> Effect {
        let mut effect = self.clone();
        let of = match &mut effect {
            Effect::Value(it) => &mut it.of,
            Effect::Ratio(it) => &mut it.of,
            Effect::Change(it) => &mut it.of,
            Effect::Profile(it) => &mut it.of,
            Effect::Exponent(it) => &mut it.of,
            Effect::Offered(it) => &mut it.of,
            Effect::Knee(it) => &mut it.of,
            Effect::Peak(it) => &mut it.of,
            Effect::Spread(it) => &mut it.of,
        };
        *of = Side::One(subject.to_owned());
        effect
    }

    /// The value of the effect where there is nothing to see: 1 for ratios, 0 for exponents; a value
    /// and the place of a knee have none.
    pub fn null(&self) -> Option<f64> {
        match self {
            Effect::Value(_) => None,
            Effect::Exponent(_) => Some(0.0),
            Effect::Knee(knee) => knee.against.as_ref().map(|_| 1.0),
            _ => Some(1.0),
        }
    }
}

/// The metric itself, in every cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValueEffect {
    /// The metric.
    #[serde(rename = "value", deserialize_with = "read_metric")]
    pub metric: String,
    /// The subjects.
    pub of: Side,
    /// Whether every cell has to agree, or some cell.
    #[serde(default)]
    pub which: Which,
}

/// One subject ÷ another one, paired by round, in cells of equal levels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RatioEffect {
    /// The metric.
    #[serde(rename = "ratio", deserialize_with = "read_metric")]
    pub metric: String,
    /// The subjects above the line.
    pub of: Side,
    /// The subjects below the line.
    pub against: Side,
    /// Whether every pair of cells has to agree, or some pair.
    #[serde(default)]
    pub which: Which,
}

/// One level of a factor ÷ another level, paired by round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeEffect {
    /// The metric.
    #[serde(rename = "change", deserialize_with = "read_metric")]
    pub metric: String,
    /// The subjects.
    pub of: Side,
    /// Subjects to compare with: the effect is then the change of `of` ÷ the change of these subjects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Side>,
    /// The factor.
    pub over: String,
    /// The level below the line.
    pub from: Level,
    /// The level above the line.
    pub to: Level,
}

/// Every level of a factor ÷ its lowest level, paired by round, with simultaneous (max-t) bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileEffect {
    /// The metric.
    #[serde(rename = "levels", deserialize_with = "read_metric")]
    pub metric: String,
    /// The subjects.
    pub of: Side,
    /// The factor.
    pub over: String,
    /// Whether every level has to agree, or some level.
    #[serde(default)]
    pub which: Which,
}

/// The slope of a log–log fit, one fit per round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExponentEffect {
    /// The metric.
    #[serde(rename = "exponent", deserialize_with = "read_metric")]
    pub metric: String,
    /// The subjects.
    pub of: Side,
    /// Subjects to compare with: the effect is then the exponent of the ratio `of` ÷ `against`, which is the
    /// exponent of `of` minus the exponent of `against`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Side>,
    /// The factor.
    pub over: String,
}

/// The metric ÷ the offered load, which is a factor's level: 1 where every request is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfferedEffect {
    /// The metric.
    #[serde(rename = "offered", deserialize_with = "read_metric")]
    pub metric: String,
    /// The subjects.
    pub of: Side,
    /// The factor whose level is what was offered.
    pub over: String,
    /// Whether every cell has to agree, or some cell.
    #[serde(default)]
    pub which: Which,
}

/// The offered load at which a subject stops keeping up: the metric falls below 0.97 of the factor's level. The
/// place between two levels is interpolated in each round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KneeEffect {
    /// The metric.
    #[serde(rename = "knee", deserialize_with = "read_metric")]
    pub metric: String,
    /// The subjects.
    pub of: Side,
    /// Subjects to compare with: the effect is then the knee of `of` ÷ the knee of these subjects. If the key
    /// is missing, the effect is the level at which the knee of `of` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Side>,
    /// The factor whose level is what was offered.
    pub over: String,
}

/// The highest value of one subject along a factor ÷ the highest value of another subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeakEffect {
    /// The metric.
    #[serde(rename = "peak", deserialize_with = "read_metric")]
    pub metric: String,
    /// The subjects above the line.
    pub of: Side,
    /// The subjects below the line.
    pub against: Side,
    /// The factor.
    pub over: String,
}

/// The standard deviation of the metric's logarithm over rounds, of one subject ÷ of another subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpreadEffect {
    /// The metric.
    #[serde(rename = "spread", deserialize_with = "read_metric")]
    pub metric: String,
    /// The subjects above the line.
    pub of: Side,
    /// The subjects below the line.
    pub against: Side,
}

/// An interval of effects; at least one end is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("anyOf" = [{"required": ["above"]}, {"required": ["below"]}]))]
pub struct Region {
    /// The lowest effect that is in the region. The region has no lower end if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    /// The highest effect that is in the region. The region has no upper end if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.above, self.below) {
            (Some(above), Some(below)) => write!(f, "of {above} to {below}"),
            (Some(above), None) => write!(f, "of at least {above}"),
            (None, Some(below)) => write!(f, "of at most {below}"),
            (None, None) => f.write_str("of any value"),
        }
    }
}

impl Region {
    /// Whether the effect lies in the region.
    pub fn contains(&self, effect: f64) -> bool {
        self.above.is_none_or(|above| effect >= above)
            && self.below.is_none_or(|below| effect <= below)
    }
}

/// What a document measured, as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Published {
    /// Values of the metric.
    Rows(Vec<PublishedValue>),
    /// Values of the metric, or the effect, with their figure or table in the document and a note.
    Data(PublishedData),
}

impl Published {
    /// The values that stand in the experiment file itself.
    pub fn rows(&self) -> &[PublishedValue] {
        match self {
            Published::Rows(rows) | Published::Data(PublishedData { rows, .. }) => rows,
        }
    }

    /// The published effect, where the document gives it in place of values.
    pub fn effect(&self) -> Option<PublishedEffect> {
        match self {
            Published::Rows(_) => None,
            Published::Data(data) => data.effect,
        }
    }
}

/// Published values with their place in the document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedData {
    /// The figure or table of the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<String>,
    /// Values of the metric.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<PublishedValue>,
    /// A CSV file of values, relative to the experiment file, with a column `subject`, a column for each
    /// factor, and a column `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csv: Option<String>,
    /// The effect, if the document states the effect and not the values of the metric: a number, or the two
    /// ends of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<PublishedEffect>,
    /// Where the values come from, if the document does not have them; how the values were changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// An effect as a document states it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PublishedEffect {
    /// One number.
    One(f64),
    /// A range: the effect lies between the first number and the second number.
    Range([f64; 2]),
}

impl PublishedEffect {
    /// The lowest and the highest effect that the document's words allow.
    pub fn ends(self) -> [f64; 2] {
        match self {
            PublishedEffect::One(effect) => [effect; 2],
            PublishedEffect::Range(ends) => ends,
        }
    }
}

/// One published value of the metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedValue {
    /// The subject.
    pub subject: String,
    /// The levels at which the value was measured. A factor that is missing here has the level that the key
    /// `where` of the claim gives.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub levels: BTreeMap<String, Level>,
    /// The value, in the metric's unit.
    pub value: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(effect: &str) -> Claim {
        let text = format!("id = 'a'\ntext = 't'\neffect = {effect}\nholds = {{ above = 1.2 }}\n");
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn the_metric_s_key_names_the_kind_of_effect() {
        let effect =
            "{ knee = 'response-rate', over = 'offered', of = 'rtsig', against = 'select' }";
        let claim = claim(effect);
        assert!(matches!(claim.effect, Effect::Knee(_)));
        assert_eq!(claim.effect.metric(), "response-rate");
        assert_eq!(claim.effect.over(), Some("offered"));
        assert_eq!(claim.effect.against().unwrap().subjects(), ["select"]);
        assert_eq!((claim.by, claim.null()), (By::Ours, Some(1.0)));
    }

    #[test]
    fn a_side_is_a_subject_or_each_of_several_or_their_best() {
        let effect = "{ ratio = 'm', of = ['a', 'b'], against = { best = ['c', 'd'] } }";
        let Effect::Ratio(ratio) = claim(effect).effect else { panic!("not a ratio") };
        assert_eq!(ratio.of, Side::Every(vec!["a".into(), "b".into()]));
        assert_eq!(ratio.against, Side::Best(Best { best: vec!["c".into(), "d".into()] }));
    }

    #[test]
    fn a_claim_covers_the_cells_that_where_names() {
        let mut claim = claim("{ value = 'm', of = 'a' }");
        let levels = [("offered", 500.0), ("idle", 6000.0)];
        let levels = levels.map(|(factor, level)| (factor.to_owned(), Level::Number(level))).into();
        let cell = Cell { subject: "a".into(), levels };
        assert!(claim.covers(&cell));
        let some = [500.0, 1000.0].map(Level::Number).to_vec();
        claim.cells.insert("offered".into(), Levels::Any(some));
        assert!(claim.covers(&cell));
        claim.cells.insert("idle".into(), Levels::One(Level::Number(252.0)));
        assert!(!claim.covers(&cell));
    }

    #[test]
    fn only_an_effect_with_a_neutral_value_has_a_null() {
        assert_eq!(claim("{ value = 'm', of = 'a' }").null(), None);
        assert_eq!(claim("{ exponent = 'm', of = 'a', over = 'n' }").null(), Some(0.0));
        assert_eq!(claim("{ knee = 'm', of = 'a', over = 'n' }").null(), None);
        assert_eq!(claim("{ levels = 'm', of = 'a', over = 'n' }").null(), Some(1.0));
    }

    #[test]
    fn a_region_contains_its_ends() {
        let region = Region { above: Some(0.9), below: Some(1.1) };
        assert!(region.contains(0.9) && region.contains(1.1));
        assert!(!region.contains(0.89) && !region.contains(1.11));
        assert!(Region { above: None, below: Some(0.5) }.contains(-3.0));
    }
}

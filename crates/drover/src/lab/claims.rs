//! Judging a published claim by the interval of its effect.

use std::num::{NonZeroU32, NonZeroU64};

use super::experiment::{Claim, Judge};
use super::metric::Metric;
use super::results::{Ask, Point, Results, Run};
use super::stats::{self, Estimate};
use crate::report::number;

/// Fewer repeats of a point than this have no interval worth the name.
pub(super) const FEWEST_REPEATS: usize = 3;

/// What became of a claim on this machine, in ascending order of weight: of several verdicts about
/// one claim, the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The whole interval of the effect agrees with it.
    Holds,
    /// The interval reaches both sides, or there are too few repeats to have one.
    TooNoisy,
    /// The whole interval contradicts it.
    DoesNotHold,
}

impl Verdict {
    /// The verdict in words.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "does not hold",
            Verdict::TooNoisy => "too noisy to say",
        }
    }
}

/// A claim, judged for one mechanism.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The mechanism.
    pub mechanism: String,
    /// Whether the source says it of this mechanism; otherwise it is a successor.
    pub in_source: bool,
    /// Whether it holds everywhere: at each rate, for instance.
    pub verdict: Verdict,
    /// The effects that it was judged by.
    pub effects: Vec<Effect>,
    /// Published values, each beside the median over all points at that rate.
    pub compared: Vec<Comparison>,
}

/// One effect, and what it says of the claim.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Where it was seen: `500 req/s`.
    pub place: String,
    /// Its size; `None` if too little was measured.
    pub estimate: Option<Estimate>,
    /// The verdict at this place.
    pub verdict: Verdict,
}

/// A published value and the measured one.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What was asked for, as published.
    pub ask: Ask,
    /// By how many connections or waiters, where the value is of one level.
    pub connections: Option<u32>,
    /// What the source says.
    pub published: f64,
    /// What was measured here.
    pub measured: Option<Estimate>,
}

/// Judges `claim` for each of its mechanisms that was measured where it says something.
pub fn judge(claim: &Claim, results: &Results) -> Vec<Judgement> {
    let named = |names: &[toml::Spanned<String>], in_source: bool| -> Vec<(String, bool)> {
        names.iter().map(|name| (name.get_ref().clone(), in_source)).collect()
    };
    named(&claim.mechanisms, true)
        .into_iter()
        .chain(named(&claim.successors, false))
        .filter(|(name, _)| results.runs.iter().any(|run| run.point.mechanism == *name))
        .filter_map(|(mechanism, in_source)| {
            let judge = Judging { claim, results, mechanism: &mechanism };
            let effects = judge.effects();
            if effects.is_empty() {
                return None;
            }
            let compared = judge.comparisons();
            let verdicts = effects.iter().map(|effect| effect.verdict);
            let verdict = verdicts.max().unwrap_or(Verdict::TooNoisy);
            Some(Judgement { mechanism, in_source, verdict, effects, compared })
        })
        .collect()
}

/// How a claim is judged, in words that go with [`Effect::estimate`].
pub fn criterion(judge: &Judge, results: &Results) -> String {
    let levels = results.connection_levels();
    let counted = results.counted();
    let ends = match (levels.first(), levels.last()) {
        (Some(first), Some(last)) => format!("at {last} {counted} ÷ at {first}"),
        _ => format!("over the range of {counted}"),
    };
    match judge {
        Judge::EqualsOffered { within } => format!(
            "Effect: reply rate ÷ request rate at the point that speaks most against equality. Holds if \
             every point's interval lies within ±{}.",
            percent(within.0)
        ),
        Judge::Grows { by_more_than, .. } => format!(
            "Effect: value {ends}, along the Theil–Sen line. Holds if the interval lies above {:.2}.",
            1.0 + by_more_than.0
        ),
        Judge::Flat { within } => format!(
            "Effect: value {ends}, along the Theil–Sen line of its logarithm through all repeats, \
             all panels together. Holds if the interval lies within {:.2} … {:.2}; a slope that merely cannot \
             be told from zero is not enough.",
            1.0 / (1.0 + within.0),
            1.0 + within.0
        ),
        Judge::Ratio { expected, within } => format!(
            "Effect: value at the highest rate ÷ at the lowest, round by round, mean over connections. Holds if \
             the interval lies within {:.2} … {:.2}.",
            expected / (1.0 + within.0),
            expected * (1.0 + within.0)
        ),
        Judge::RisesAtMost { times } | Judge::RisesAtLeast { times } => {
            let asks = results.asks();
            let words = |ask: Option<&Ask>| ask.map_or(String::new(), |ask| results.in_words(*ask));
            let side = match judge {
                Judge::RisesAtMost { .. } => "below",
                _ => "above",
            };
            format!(
                "Effect: value with {} ÷ with {}, the median of the rounds, mean over connections. \
                 Holds if the interval lies {side} {}.",
                words(asks.last()),
                words(asks.first()),
                number(times.0)
            )
        }
        Judge::Equals { value, within } => format!(
            "Effect: the value at the point that speaks most against it. Holds if every point's \
             interval lies within {} … {}.",
            number(value.0 / (1.0 + within.0)),
            number(value.0 * (1.0 + within.0))
        ),
        Judge::Multiplies { by_more_than } => format!(
            "Effect: value with the most descriptors ÷ with the fewest, at the most {counted} that \
             have both. Holds if the interval lies above {}.",
            number(by_more_than.0)
        ),
        Judge::AtLeast { times, baseline, .. } => format!(
            "Effect: value ÷ that of the best of {}, round by round, mean over connections. Holds if the interval \
             lies above {}.",
            baseline.join(", "),
            number(times.0)
        ),
        Judge::AtMost { times, baseline, .. } => format!(
            "Effect: value ÷ that of the best of {}, round by round, mean over connections. Holds if the interval \
             lies below {}.",
            baseline.join(", "),
            number(times.0)
        ),
    }
}

fn percent(fraction: f64) -> String {
    format!("{} %", (fraction * 1000.0).round() / 10.0)
}

/// One claim about one mechanism.
struct Judging<'a> {
    claim: &'a Claim,
    results: &'a Results,
    mechanism: &'a str,
}

impl Judging<'_> {
    fn effects(&self) -> Vec<Effect> {
        match &self.claim.judge {
            Judge::EqualsOffered { within } => {
                self.at_each_ask(|ask| self.worst_share_of_offered(ask, within.0))
            }
            Judge::Grows { by_more_than, until_cpu_percent } => self.at_each_ask(|ask| {
                let factor = self.growth(ask, *until_cpu_percent)?;
                let threshold = 1.0 + by_more_than.0;
                Some((factor, verdict_within(&factor, threshold, f64::INFINITY)))
            }),
            Judge::Flat { within } => {
                let margin = 1.0 + within.0;
                let found = self
                    .common_growth()
                    .map(|factor| (factor, verdict_within(&factor, 1.0 / margin, margin)));
                vec![effect(self.everything(), found)]
            }
            Judge::Ratio { expected, within } => {
                let margin = 1.0 + within.0;
                let found = self.ratio_of_rates(stats::ratio).map(|ratio| {
                    (ratio, verdict_within(&ratio, expected / margin, expected * margin))
                });
                let asks = self.results.asks();
                let rate = |ask: Option<&Ask>| {
                    number(ask.and_then(|ask| self.results.offered_rate(*ask)).unwrap_or_default())
                };
                let place = format!("{} ÷ {} req/s", rate(asks.last()), rate(asks.first()));
                vec![effect(place, found)]
            }
            Judge::RisesAtMost { times } => self.rise(0.0, times.0),
            Judge::RisesAtLeast { times } => self.rise(times.0, f64::INFINITY),
            Judge::Equals { value, within } => {
                let margin = 1.0 + within.0;
                self.at_each_ask(|ask| self.worst_beside(ask, value.0, margin))
            }
            Judge::Multiplies { by_more_than } => {
                let asks = self.results.asks();
                let (Some(&least), Some(&most)) = (asks.first(), asks.last()) else {
                    return Vec::new();
                };
                if least == most {
                    return Vec::new();
                }
                let found = self.ratio_at_the_most(least, most);
                let judged = found
                    .map(|ratio| (ratio, verdict_within(&ratio, by_more_than.0, f64::INFINITY)));
                vec![effect(format!("{} ÷ {}", most.in_words(), least.in_words()), judged)]
            }
            Judge::AtLeast { times, baseline, file_bytes } => {
                self.beside_the_best(baseline, *file_bytes, times.0, f64::INFINITY)
            }
            Judge::AtMost { times, baseline, file_bytes } => {
                self.beside_the_best(baseline, *file_bytes, 0.0, times.0)
            }
        }
    }

    fn comparisons(&self) -> Vec<Comparison> {
        let mine = |ask: Ask, only: Option<u32>| -> Vec<f64> {
            let levels = self.levels(ask).into_iter();
            let levels = levels.filter(|(level, _)| only.is_none_or(|only| only == *level));
            levels.flat_map(|(_, values)| values).collect()
        };
        self.claim
            .published
            .iter()
            .filter(|published| published.mechanism == self.mechanism)
            .filter_map(|published| {
                let ask = published.ask()?;
                let connections = published.connections.map(NonZeroU32::get);
                let mine = mine(ask, connections);
                Some(Comparison {
                    ask,
                    connections,
                    published: published.value,
                    measured: stats::median_estimate(&mine, self.results.seed),
                })
            })
            .collect()
    }

    fn at_each_ask(&self, judge: impl Fn(Ask) -> Option<(Estimate, Verdict)>) -> Vec<Effect> {
        let asks = self.asks().into_iter();
        asks.map(|ask| effect(self.results.in_words(ask), judge(ask))).collect()
    }

    /// What was asked of this mechanism.
    fn asks(&self) -> Vec<Ask> {
        let mine = |run: &&Run| run.point.mechanism == self.mechanism;
        let mut asks = self.results.asks();
        asks.retain(|ask| self.results.runs.iter().filter(mine).any(|run| run.point.ask == *ask));
        asks
    }

    /// All of that, in words.
    fn everything(&self) -> String {
        let asks = self.asks();
        if asks.iter().all(|ask| matches!(ask, Ask::Rate(_))) {
            return "all request rates".to_string();
        }
        let words: Vec<String> = asks.iter().map(|ask| self.results.in_words(*ask)).collect();
        words.join(" and ")
    }

    /// The values at each number of connections, ascending; points without any value left out.
    fn levels(&self, ask: Ask) -> Vec<(u32, Vec<f64>)> {
        self.levels_of(self.claim.metric, ask)
    }

    fn levels_of(&self, metric: Metric, ask: Ask) -> Vec<(u32, Vec<f64>)> {
        self.results
            .connection_levels()
            .into_iter()
            .map(|connections| (connections, self.values(metric, connections, ask)))
            .filter(|(_, values)| !values.is_empty())
            .collect()
    }

    fn values(&self, metric: Metric, connections: u32, ask: Ask) -> Vec<f64> {
        self.values_of(self.mechanism, metric, connections, ask)
    }

    fn values_of(&self, name: &str, metric: Metric, connections: u32, ask: Ask) -> Vec<f64> {
        self.results.values(metric, &Point { mechanism: name.to_string(), connections, ask })
    }

    /// The only effect of a claim about the lowest and the highest level of what is asked for.
    fn rise(&self, from: f64, to: f64) -> Vec<Effect> {
        let found = self
            .ratio_of_rates(stats::median_ratio)
            .map(|ratio| (ratio, verdict_within(&ratio, from, to)));
        let last = self.results.asks().last().map_or(String::new(), |ask| ask.in_words());
        vec![effect(last, found)]
    }

    /// The only effect of a claim that compares servers of files of one size, if that was measured.
    fn beside_the_best(
        &self,
        baseline: &[String],
        file_bytes: Option<NonZeroU64>,
        from: f64,
        to: f64,
    ) -> Vec<Effect> {
        let asks = self.results.asks();
        let wanted = file_bytes.map(|bytes| Ask::FileBytes(bytes.get()));
        let Some(ask) = wanted.or(asks.last().copied()).filter(|ask| asks.contains(ask)) else {
            return Vec::new();
        };
        let found = self.times_the_best(baseline, ask);
        let judged = found.map(|found| (found, verdict_within(&found, from, to)));
        vec![effect(ask.in_words(), judged)]
    }

    /// The metric over that of the best of `baseline`, mean over connections.
    fn times_the_best(&self, baseline: &[String], ask: Ask) -> Option<Estimate> {
        let values = |name: &str, level| self.values_of(name, self.claim.metric, level, ask);
        let point =
            |name: &str, connections| Point { mechanism: name.to_string(), connections, ask };
        let levels = self.results.connection_levels().into_iter().filter_map(|level| {
            let others = baseline.iter().map(|name| (name, values(name, level)));
            let (best, _) = others.filter(|(_, values)| values.len() >= FEWEST_REPEATS).max_by(
                |(_, a), (_, b)| stats::median(a).partial_cmp(&stats::median(b)).expect("numbers"),
            )?;
            self.pairs(&point(best, level), &point(self.mechanism, level))
        });
        stats::ratio(&levels.collect::<Vec<_>>(), self.results.seed)
    }

    /// The metric at two points, round by round; `None`: too few rounds have both.
    fn pairs(&self, before: &Point, after: &Point) -> Option<Vec<(f64, f64)>> {
        let pairs = self.results.pairs(self.claim.metric, before, after);
        (pairs.len() >= FEWEST_REPEATS).then_some(pairs)
    }

    /// The same of this mechanism, asked for one thing and for another.
    fn pairs_of_asks(&self, connections: u32, before: Ask, after: Ask) -> Option<Vec<(f64, f64)>> {
        let point = |ask| Point { mechanism: self.mechanism.to_string(), connections, ask };
        self.pairs(&point(before), &point(after))
    }

    /// The metric as a share of the offered rate, at the point that speaks most against equality.
    fn worst_share_of_offered(&self, ask: Ask, within: f64) -> Option<(Estimate, Verdict)> {
        let offered = self.results.offered_rate(ask)?;
        let levels = self.levels(ask);
        if !levels.iter().all(|(_, values)| values.len() >= FEWEST_REPEATS) {
            return None;
        }
        let distance = |e: &Estimate| (e.low - 1.0).abs().max((e.high - 1.0).abs());
        levels
            .iter()
            .filter_map(|(_, values)| {
                let shares: Vec<f64> = values.iter().map(|value| value / offered).collect();
                stats::median_estimate(&shares, self.results.seed)
            })
            .map(|share| (share, verdict_within(&share, 1.0 - within, 1.0 + within)))
            .max_by(|(a, of_a), (b, of_b)| of_a.cmp(of_b).then(distance(a).total_cmp(&distance(b))))
    }

    /// The metric at the point that speaks most against its being `value`.
    fn worst_beside(&self, ask: Ask, value: f64, margin: f64) -> Option<(Estimate, Verdict)> {
        let levels = self.levels(ask);
        if !levels.iter().all(|(_, values)| values.len() >= FEWEST_REPEATS) {
            return None;
        }
        let distance = |e: &Estimate| (e.low - value).abs().max((e.high - value).abs());
        levels
            .iter()
            .filter_map(|(_, values)| stats::median_estimate(values, self.results.seed))
            .map(|found| (found, verdict_within(&found, value / margin, value * margin)))
            .max_by(|(a, of_a), (b, of_b)| of_a.cmp(of_b).then(distance(a).total_cmp(&distance(b))))
    }

    /// The metric with `most` over that with `least`, at the highest level that has both.
    fn ratio_at_the_most(&self, least: Ask, most: Ask) -> Option<Estimate> {
        let mut levels = self.results.connection_levels().into_iter().rev();
        let pairs = levels.find_map(|level| self.pairs_of_asks(level, least, most))?;
        stats::ratio(&[pairs], self.results.seed)
    }

    fn growth(&self, ask: Ask, until_cpu_percent: Option<f64>) -> Option<Estimate> {
        let mut levels = self.levels(ask);
        if let Some(limit) = until_cpu_percent {
            let cpu = self.levels_of(Metric::CpuPercent, ask);
            let is_saturated = |connections: u32| {
                let found = cpu.iter().find(|(level, _)| *level == connections);
                found.and_then(|(_, values)| stats::median(values)).is_some_and(|cpu| cpu >= limit)
            };
            if let Some(first) = levels.iter().position(|(level, _)| is_saturated(*level)) {
                levels.truncate(first + 1);
            }
        }
        stats::growth_factor(&points(&levels)?, self.results.seed)
    }

    fn common_growth(&self) -> Option<Estimate> {
        let asks = self.results.asks();
        let levels = asks.into_iter().map(|ask| self.levels(ask));
        let levels: Vec<_> = levels.filter(|levels| !levels.is_empty()).collect();
        let series: Vec<_> = levels.iter().map(|levels| points(levels)).collect::<Option<_>>()?;
        stats::common_growth(&series, self.results.seed)
    }

    /// The metric at the highest level of what is asked for over that at the lowest.
    fn ratio_of_rates(
        &self,
        ratio: impl Fn(&[Vec<(f64, f64)>], u64) -> Option<Estimate>,
    ) -> Option<Estimate> {
        let asks = self.results.asks();
        let (lowest, highest) = (*asks.first()?, *asks.last()?);
        if lowest == highest {
            return None;
        }
        let levels = self.results.connection_levels().into_iter();
        let levels = levels.filter_map(|level| self.pairs_of_asks(level, lowest, highest));
        ratio(&levels.collect::<Vec<_>>(), self.results.seed)
    }
}

/// The levels as the statistics take them; `None` if one of them has too few repeats.
fn points(levels: &[(u32, Vec<f64>)]) -> Option<Vec<(f64, &[f64])>> {
    levels
        .iter()
        .map(|(level, values)| {
            (values.len() >= FEWEST_REPEATS).then_some((f64::from(*level), values.as_slice()))
        })
        .collect()
}

fn effect(place: String, found: Option<(Estimate, Verdict)>) -> Effect {
    let verdict = found.map_or(Verdict::TooNoisy, |(_, verdict)| verdict);
    Effect { place, estimate: found.map(|(estimate, _)| estimate), verdict }
}

fn verdict_within(estimate: &Estimate, from: f64, to: f64) -> Verdict {
    if estimate.is_within(from, to) {
        Verdict::Holds
    } else if estimate.is_outside(from, to) {
        Verdict::DoesNotHold
    } else {
        Verdict::TooNoisy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::experiment::Experiment;
    use crate::lab::runner::tests::{results_of, sample};

    /// Judges the claim of the test experiment with `judge` in place of its own, over runs whose
    /// reply rate and CPU use (in %) are functions of connections, rate and repeat.
    fn verdict_of(judge: &str, measured: impl Fn(f64, f64, u32) -> (f64, f64)) -> Vec<Judgement> {
        let text = include_str!("test-experiment.toml")
            .replace("{ kind = \"flat\", within = 0.25 }", judge);
        let text = match judge.contains("equals-offered") {
            true => text.replacen(
                "metric = \"cpu-percent\"\nmechanisms",
                "metric = \"reply-rate\"\nmechanisms",
                1,
            ),
            false => text,
        };
        let results = results_of(&text, |point, round| {
            let Ask::Rate(rate) = point.ask else { panic!("{point:?}") };
            let (rate, cpu) = measured(f64::from(point.connections), rate, round);
            Ok(sample(rate, cpu, 100.0))
        });
        let experiment = Experiment::parse(&text, "test").unwrap();
        super::judge(&experiment.claims[0], &results)
    }

    #[test]
    fn a_rise_is_below_its_bound_or_above() {
        let twice = |_, rate: f64, round| (rate, rate / 50.0 * jitter(round));
        let verdict = |judge: &str| verdict_of(judge, twice)[0].verdict;
        assert_eq!(verdict("{ kind = \"rises-at-most\", times = 3 }"), Verdict::Holds);
        assert_eq!(verdict("{ kind = \"rises-at-most\", times = 1.5 }"), Verdict::DoesNotHold);
        assert_eq!(verdict("{ kind = \"rises-at-least\", times = 1.5 }"), Verdict::Holds);
    }

    /// A few per cent up and down.
    fn jitter(round: u32) -> f64 {
        1.0 + 0.02 * (f64::from(round) - 2.0)
    }

    const GROWS: &str = "{ kind = \"grows\", by_more_than = 0.5, until_cpu_percent = 95 }";
    const FLAT: &str = "{ kind = \"flat\", within = 0.25 }";
    const RATIO: &str = "{ kind = \"ratio\", expected = 2, within = 0.15 }";
    const EQUALS: &str = "{ kind = \"equals-offered\", within = 0.02 }";

    #[test]
    fn a_doubled_cpu_grows_and_is_not_flat() {
        let doubles = |connections: f64, rate: f64, round| (rate, connections * jitter(round));
        assert_eq!(verdict_of(GROWS, doubles)[0].verdict, Verdict::Holds);
        assert_eq!(verdict_of(FLAT, doubles)[0].verdict, Verdict::DoesNotHold);
    }

    #[test]
    fn a_steady_cpu_is_flat_and_does_not_grow() {
        let steady = |_, rate: f64, round| (rate, 10.0 * jitter(round));
        assert_eq!(verdict_of(GROWS, steady)[0].verdict, Verdict::DoesNotHold);
        assert_eq!(verdict_of(FLAT, steady)[0].verdict, Verdict::Holds);
    }

    #[test]
    fn noise_is_rewarded_by_neither() {
        let noisy = |_, rate: f64, round| (rate, [5.0, 10.0, 40.0][round as usize - 1]);
        assert_eq!(verdict_of(GROWS, noisy)[0].verdict, Verdict::TooNoisy);
        assert_eq!(verdict_of(FLAT, noisy)[0].verdict, Verdict::TooNoisy);
    }

    #[test]
    fn growth_at_one_rate_only_does_not_hold_for_all() {
        let partly =
            |connections: f64, rate: f64, _| (rate, if rate > 150.0 { connections } else { 10.0 });
        let judgement = &verdict_of(GROWS, partly)[0];
        assert_eq!(judgement.verdict, Verdict::DoesNotHold);
        let verdicts: Vec<Verdict> = judgement.effects.iter().map(|e| e.verdict).collect();
        assert_eq!(verdicts, [Verdict::DoesNotHold, Verdict::Holds]);
    }

    #[test]
    fn a_server_saturated_from_the_start_cannot_be_judged() {
        let saturated = |_, rate: f64, _| (rate, 99.0);
        let judgement = &verdict_of(GROWS, saturated)[0];
        assert_eq!(judgement.verdict, Verdict::TooNoisy);
        assert_eq!(judgement.effects[0].estimate, None);
    }

    #[test]
    fn twice_the_rate_is_twice_the_cpu_or_not() {
        let twice = |_, rate: f64, round| (rate, rate / 50.0 * jitter(round));
        assert_eq!(verdict_of(RATIO, twice)[0].verdict, Verdict::Holds);
        let once = |_, rate: f64, round| (rate, 10.0 * jitter(round));
        let judgement = &verdict_of(RATIO, once)[0];
        assert_eq!(judgement.verdict, Verdict::DoesNotHold);
        assert_eq!(judgement.effects[0].place, "200 ÷ 100 req/s");
    }

    #[test]
    fn one_point_below_the_offered_rate_is_enough() {
        let all = |_, rate: f64, _| (rate, 5.0);
        assert_eq!(verdict_of(EQUALS, all)[0].verdict, Verdict::Holds);
        let short = |connections: f64, rate: f64, _| {
            (if connections > 15.0 { rate * 0.9 } else { rate }, 5.0)
        };
        let judgement = &verdict_of(EQUALS, short)[0];
        assert_eq!(judgement.verdict, Verdict::DoesNotHold);
        assert!((judgement.effects[0].estimate.unwrap().value - 0.9).abs() < 1e-9);
    }

    /// Judges that `poll` serves at least 2.4 times what `epoll` and `mine` do, by their throughputs.
    fn times_the_best(size: u64, throughput: impl Fn(&str, u32) -> f64) -> Vec<Judgement> {
        times_the_best_by("at-least", size, throughput)
    }

    fn times_the_best_by(
        kind: &str,
        size: u64,
        throughput: impl Fn(&str, u32) -> f64,
    ) -> Vec<Judgement> {
        let judge = &format!(
            "{{ kind = \"{kind}\", times = 2.4, baseline = [\"epoll\", \"mine\"], \
             file_bytes = 4096 }}"
        );
        let text = include_str!("test-experiment.toml")
            .replace("reply_bytes = 92", "")
            .replace("rates = [100, 200]", &format!("file_bytes = [{size}]"))
            .replace("{ kind = \"flat\", within = 0.25 }", judge)
            .replace("rate = 100, value", "file_bytes = 4096, value");
        let results = results_of(&text, |point, round| {
            Ok(sample(1.0, throughput(&point.mechanism, round), 1.0))
        });
        let experiment = Experiment::parse(&text, "test").unwrap();
        super::judge(&experiment.claims[0], &results)
    }

    #[test]
    fn the_best_of_the_others_counts() {
        let of = |mine: f64| {
            move |name: &str, round| match name {
                "poll" => 250.0 * jitter(round),
                "epoll" => 40.0 * jitter(round),
                _ => mine * jitter(round),
            }
        };
        assert_eq!(times_the_best(4096, of(50.0))[0].verdict, Verdict::Holds);
        assert_eq!(times_the_best(4096, of(150.0))[0].verdict, Verdict::DoesNotHold);
        let judgement = &times_the_best(4096, of(100.0))[0];
        assert!((judgement.effects[0].estimate.unwrap().value - 2.5).abs() < 0.1);
        assert_eq!(judgement.compared[0].measured.unwrap().value, 250.0);
    }

    #[test]
    fn at_most_is_at_least_from_the_other_side() {
        let verdict = |mine: f64| {
            let measured = move |name: &str, round| match name {
                "poll" => 100.0 * jitter(round),
                _ => mine * jitter(round),
            };
            times_the_best_by("at-most", 4096, measured)[0].verdict
        };
        assert_eq!(verdict(50.0), Verdict::Holds);
        assert_eq!(verdict(30.0), Verdict::DoesNotHold);
    }

    #[test]
    fn a_claim_about_files_that_were_not_served_is_not_judged() {
        assert!(times_the_best(8192, |_, _| 1.0).is_empty());
    }

    #[test]
    fn published_values_stand_beside_measured_ones_and_successors_are_marked() {
        let judgements = verdict_of(FLAT, |_, rate, _| (rate, 8.0));
        let roles: Vec<(&str, bool)> =
            judgements.iter().map(|j| (j.mechanism.as_str(), j.in_source)).collect();
        assert_eq!(roles, [("poll", true), ("epoll", false)]);
        let compared = &judgements[0].compared[0];
        assert_eq!((compared.published, compared.measured.unwrap().value), (6.67, 8.0));
        assert!(judgements[1].compared.is_empty());
    }
}

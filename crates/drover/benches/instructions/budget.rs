//! The numbers that lie in the repository, and the judgement of new ones.

use std::collections::BTreeMap;
use std::process::Command;
use std::{fmt, fs};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Where the budget lies, from the package's directory, in which `cargo bench` runs its targets.
const FILE: &str = "benches/instructions/budget.toml";

const HEADING: &str = "\
# User-space instructions and system calls per request: the cheapest of a few, one at a time.
# Written by `cargo bench -p drover --bench instructions -- --accept`; compared with without --accept.
";

/// How much more than the budget is tolerated: layout and hash seeds move a count by less.
const TOLERANCE: f64 = 0.03;

/// The same when another compiler built it, or another processor has libc take other routines.
const WIDE_TOLERANCE: f64 = 0.10;

/// What a request may cost.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Cost {
    pub(crate) instructions: u64,
    /// The names of the system calls, sorted.
    pub(crate) calls: String,
}

/// Costs by case and mechanism, and what they were measured with.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Budget {
    rustc: String,
    processor: String,
    #[serde(flatten)]
    pub(crate) costs: BTreeMap<String, BTreeMap<String, Cost>>,
}

impl Budget {
    /// A budget of nothing yet, of this compiler and this processor.
    pub(crate) fn here() -> anyhow::Result<Budget> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let version = Command::new(rustc).arg("--version").output().context("no rustc to ask")?;
        Ok(Budget {
            rustc: String::from_utf8(version.stdout)?.trim().to_owned(),
            processor: vectors().to_owned(),
            costs: BTreeMap::new(),
        })
    }

    /// The recorded one.
    pub(crate) fn recorded() -> anyhow::Result<Budget> {
        let text = fs::read_to_string(FILE).with_context(|| format!("cannot read {FILE}"))?;
        toml::from_str(&text).with_context(|| format!("cannot understand {FILE}"))
    }

    /// Replaces the recorded one. What could not be measured here stays as it was.
    pub(crate) fn accept(mut self) -> anyhow::Result<()> {
        for (case, costs) in Budget::recorded().map(|budget| budget.costs).unwrap_or_default() {
            let new = self.costs.entry(case).or_default();
            for (mechanism, cost) in costs {
                new.entry(mechanism).or_insert(cost);
            }
        }
        fs::write(FILE, HEADING.to_owned() + &toml::to_string(&self)?)?;
        println!("written to {FILE}");
        Ok(())
    }

    /// Whether `cost` is within the budget; so is any cost of which there is none.
    pub(crate) fn allows(&self, case: &str, mechanism: &str, cost: &Cost, tolerance: f64) -> bool {
        let known = self.costs.get(case).and_then(|costs| costs.get(mechanism));
        known.is_none_or(|known| !matches!(cost.judge(known, tolerance), Judgement::Worse))
    }

    /// What `new` exceeds, one line each. Prints what is better than it was.
    pub(crate) fn exceeded_by(&self, new: &Budget, tolerance: f64) -> Vec<String> {
        let mut faults = Vec::new();
        for (case, costs) in &new.costs {
            for (mechanism, cost) in costs {
                let known = self.costs.get(case).and_then(|costs| costs.get(mechanism));
                let judgement =
                    known.map_or(Judgement::Worse, |known| cost.judge(known, tolerance));
                let budget = known.map_or("none".to_owned(), Cost::to_string);
                let line = format!("{case} on {mechanism}: {cost}; budget {budget}");
                match judgement {
                    Judgement::Worse => faults.push(line),
                    Judgement::Better => println!("better: {line}"),
                    Judgement::Same => {}
                }
            }
        }
        faults
    }

    /// The part of a budget by which `new` may exceed it. Prints why it is wide.
    pub(crate) fn tolerance(&self, new: &Budget) -> f64 {
        if self.rustc == new.rustc && self.processor == new.processor {
            return TOLERANCE;
        }
        println!(
            "the budget is of {} on {}, this is {} on {}: tolerance {:.0} %",
            self.rustc,
            self.processor,
            new.rustc,
            new.processor,
            100.0 * WIDE_TOLERANCE,
        );
        WIDE_TOLERANCE
    }
}

/// How a cost compares with its budget.
enum Judgement {
    Worse,
    Same,
    Better,
}

impl Cost {
    pub(crate) fn number_of_calls(&self) -> usize {
        self.calls.split(' ').count()
    }

    fn judge(&self, budget: &Cost, tolerance: f64) -> Judgement {
        let ratio = self.instructions as f64 / budget.instructions as f64;
        if ratio > 1.0 + tolerance || self.number_of_calls() > budget.number_of_calls() {
            Judgement::Worse
        } else if ratio < 1.0 - tolerance || self.calls != budget.calls {
            Judgement::Better
        } else {
            Judgement::Same
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} instructions, {}", self.instructions, self.calls)
    }
}

/// The vector instructions that libc and httparse choose their routines by.
fn vectors() -> &'static str {
    if is_x86_feature_detected!("avx512vl") {
        "avx512"
    } else if is_x86_feature_detected!("avx2") {
        "avx2"
    } else {
        "sse"
    }
}

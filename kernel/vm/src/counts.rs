//! What a wait costs in instructions, with one ready descriptor of many.
//!
//! The guest has one processor, whose clock advances by a nanosecond per instruction, so that the length of a wait is the number
//! of its instructions, in the kernel and in user space. There are no caches and there is no contention: shapes can be told
//! from these numbers, and no times.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::boot::Machine;
use crate::packages::Kernel;
use crate::run::{Guest, SETTLING, StepResult};
use crate::{cargo, modules};

/// Who waits: the name in the table, and the flags of `drover lab pipes`.
const FORMS: [(&str, &str); 10] = [
    ("poll", "--mechanism poll"),
    ("/dev/poll, all files", "--mechanism devpoll"),
    ("… over the hash table", "--mechanism devpoll --devpoll-model walk"),
    ("… under a global lock", "--mechanism devpoll --devpoll-model lock"),
    ("… with hints", "--mechanism devpoll --devpoll-model hints"),
    ("… as the patch: hints, table, lock", "--mechanism devpoll --devpoll-model hints,walk,lock"),
    ("… with a ready list", "--mechanism devpoll --devpoll-model ready-list"),
    ("/dev/epoll", "--mechanism devepoll"),
    ("epoll", "--mechanism epoll"),
    ("epoll, edge-triggered", "--mechanism epoll-et"),
];

/// How many descriptors there are.
const COUNTS: [u32; 5] = [100, 500, 1000, 2000, 4000];

/// How far a second guest's counts may be from the first's.
const SPREAD: f64 = 0.01;

/// Measures in two guests, and prints a table of the first's counts. Returns whether the second's are the same.
///
/// # Errors
/// A program or module that cannot be built, or a guest that does not end well.
pub fn compare(kernel: &Kernel, sources: &Path, folder: &Path) -> anyhow::Result<bool> {
    let guest = guest(cargo::release_binary("drover")?, steps());
    let modules = modules::build_all(sources, kernel, folder)?;
    let (first, second) = in_two_guests(&Guest { modules, ..guest }, kernel, folder)?;
    print!("{}", table(&first));
    Ok(agree(kernel, &first, &second))
}

/// Measures two waits in two guests, by the program that tests use. Returns whether they are the same: what each change can be asked.
///
/// # Errors
/// A program that cannot be built, or a guest that does not end well.
pub fn compare_few(kernel: &Kernel, folder: &Path) -> anyhow::Result<bool> {
    let program = cargo::test_program("drover", "mechanisms")?.binary;
    let drover = program.context("cargo names no program of drover")?;
    let few =
        steps().into_iter().filter(|(name, _)| ["poll, 500", "epoll, 500"].contains(&&**name));
    let (first, second) = in_two_guests(&guest(drover, few.collect()), kernel, folder)?;
    println!(
        "{}: instructions of a wait over 500 descriptors: poll {}, epoll {}",
        kernel.release,
        grouped(first[0]),
        grouped(first[1])
    );
    Ok(agree(kernel, &first, &second))
}

/// A guest that runs the steps by this binary of drover, when it has settled.
fn guest(drover: PathBuf, steps: Vec<(String, String)>) -> Guest {
    Guest {
        programs: vec![("drover".to_owned(), drover)],
        steps: [("settle".to_owned(), SETTLING.to_owned())].into_iter().chain(steps).collect(),
        ..Guest::default()
    }
}

fn in_two_guests(
    guest: &Guest,
    kernel: &Kernel,
    folder: &Path,
) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let machine = Machine { processors: 1, counts_instructions: true, ..Machine::default() };
    let measure = || -> anyhow::Result<Vec<f64>> {
        let results = guest.run(kernel, &machine, folder)?;
        // The first is no measurement.
        results.iter().skip(1).map(instructions).collect()
    };
    Ok((measure()?, measure()?))
}

fn agree(kernel: &Kernel, first: &[f64], second: &[f64]) -> bool {
    let spread = spread(first, second);
    println!("{}: a second guest differs by {:.2} % at most", kernel.release, 100.0 * spread);
    spread <= SPREAD
}

fn steps() -> Vec<(String, String)> {
    let mut steps = Vec::new();
    for (name, flags) in FORMS {
        for count in COUNTS {
            let fixed = "--warmup 5ms --window 50ms --time-waits";
            let command =
                format!("ulimit -n 16384; drover lab pipes {flags} --pipes {count} {fixed}");
            steps.push((format!("{name}, {count}"), command));
        }
    }
    steps
}

/// The mean length of a wait, which the step's result tells.
fn instructions(step: &StepResult) -> anyhow::Result<f64> {
    let result = step.lines.iter().find(|line| line.starts_with('{'));
    let told = || {
        let result: serde_json::Value = serde_json::from_str(result?).ok()?;
        result["wait_mean_ns"].as_f64()
    };
    told().with_context(|| format!("{} has no result:\n{}", step.name, step.lines.join("\n")))
}

/// The counts in the order of [`steps`], as a table.
fn table(counts: &[f64]) -> String {
    let mut table = String::from("| instructions per wait, 1 ready of n |");
    COUNTS.iter().for_each(|count| table += &format!(" n = {count} |"));
    table += "\n|---|";
    table += &"--:|".repeat(COUNTS.len());
    table.push('\n');
    for ((name, _), counts) in FORMS.iter().zip(counts.chunks(COUNTS.len())) {
        table += &format!("| {name} |");
        for count in counts {
            let _ = write!(table, " {} |", grouped(*count));
        }
        table.push('\n');
    }
    table
}

/// A whole number with commas.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// The greatest difference of two lists of counts, as a part of the first's.
fn spread(first: &[f64], second: &[f64]) -> f64 {
    let pairs = first.iter().zip(second);
    pairs.map(|(first, second)| (second / first - 1.0).abs()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_become_a_table_with_a_row_for_each_form() {
        let counts: Vec<f64> = (0..steps().len()).map(|at| 999.0 + at as f64).collect();
        let table = table(&counts);
        assert!(table.contains("| poll | 999 | 1,000 | 1,001 | 1,002 | 1,003 |\n"), "{table}");
        assert_eq!(table.lines().count(), 2 + FORMS.len());
        assert_eq!(grouped(1_234_567.0), "1,234,567");
    }

    #[test]
    fn the_greatest_difference_counts() {
        assert_eq!(spread(&[100.0, 200.0, 50.0], &[100.0, 150.0, 51.0]), 0.25);
    }

    #[test]
    fn a_step_without_a_result_is_an_error_with_what_it_said() {
        let said = |line: &str| StepResult {
            name: "poll, 100".to_owned(),
            status: Some(0),
            lines: vec![line.to_owned()],
        };
        assert_eq!(instructions(&said("{\"wait_mean_ns\": 15000.0}")).unwrap(), 15000.0);
        let error = instructions(&said("Killed")).unwrap_err().to_string();
        assert!(error.contains("poll, 100") && error.contains("Killed"), "{error}");
    }
}

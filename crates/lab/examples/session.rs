//! Runs an experiment file and prints its samples as they come:
//! `cargo run -p drover-lab --example session -- FILE DROVER FOLDER [--resume] [--preset NAME] [--repeats N]`.

use std::path::PathBuf;

use drover_lab::plan::limits::MachineLimits;
use drover_lab::plan::{Overrides, Plan, Selection};
use drover_lab::process::Interrupt;
use drover_lab::run::{self, RunEvent, RunOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let mut next =
        || words.next().ok_or("usage: FILE DROVER FOLDER [--resume] [--preset NAME] [--repeats N]");
    let file = PathBuf::from(next()?);
    let drover = PathBuf::from(next()?).canonicalize()?;
    let folder = PathBuf::from(next()?);
    let (mut resumes, mut preset, mut overrides) =
        (false, "quick".to_string(), Overrides::default());
    while let Ok(word) = next() {
        match word.as_str() {
            "--resume" => resumes = true,
            "--preset" => preset = next()?,
            "--repeats" => overrides.rounds = Some(next()?.parse()?),
            other => return Err(format!("{other}: unknown").into()),
        }
    }
    let experiment = drover_lab::spec::read(&file).map_err(|faults| faults.to_string())?;
    let selection = Selection::new(&experiment, &preset, &overrides)?;
    let plan = Plan::new(&experiment, &selection, 1, &MachineLimits::look()?)?;
    println!("{} runs, about {:.0} s", plan.runs(), plan.estimate_s);
    let options = RunOptions {
        guest: None,
        drover,
        pools: folder.join("pools"),
        folder: folder.join("session"),
        resumes,
        is_forced: false,
        interrupt: Interrupt::on_signals()?,
    };
    let end = run::run(&experiment, &selection, &plan, &options, &mut |event| match event {
        RunEvent::Ended { run, done, of } => {
            let sample = &run.sample;
            let levels: Vec<String> =
                sample.cell.levels.iter().map(|(name, level)| format!("{name}={level}")).collect();
            println!(
                "{done}/{of} {} {} round {}",
                sample.cell.subject,
                levels.join(" "),
                sample.round
            );
            match &sample.failure {
                Some(why) => println!("    {why}"),
                None => println!("    {:?} {:?}", sample.validity, sample.values),
            }
        }
        RunEvent::NotTestable { cell, why } => {
            println!("not testable here: {}: {why}", plan.cells[cell].cell.subject);
        }
        RunEvent::Note(note) => println!("{note}"),
        RunEvent::Resumed { runs } => println!("{runs} runs are there"),
        RunEvent::Round { .. } | RunEvent::Begins { .. } => {}
    })?;
    println!("{end:?}");
    Ok(())
}

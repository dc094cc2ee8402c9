//! Sends 100 requests per second for five seconds: `cargo run -p drover-load --example run_load -- URL`.

use std::time::Duration;

use anyhow::{Context, anyhow};
use drover_load::LoadListener;
use drover_load::plan::options::LoadOptions;
use drover_load::plan::request::{RequestContent, RequestTemplate};
use drover_load::plan::shape::{Arrivals, Rate, Schedule, Unit};

/// A listener that follows no events.
struct Quiet;
impl LoadListener for Quiet {}

fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).context("give a URL: http://127.0.0.1:8080/")?;
    let url = url.parse().map_err(|fault| anyhow!("{url}: {fault}"))?;
    let mechanism = drover_mech::mechanisms::auto(1).context("no mechanism is usable here")?;
    let rate = Rate::Constant(100.0);
    let schedule = Schedule { rate, arrivals: Arrivals::Poisson, unit: Unit::Request };
    let mut options = LoadOptions::new(
        vec![RequestTemplate { url, content: RequestContent::default().into() }],
        mechanism,
    );
    options.connections = 10;
    options.schedule = Some(schedule);
    options.duration = Some(Duration::from_secs(5));
    let result = drover_load::run(options, &mut Quiet)?;
    drover_load::print_summary(&result, &mut std::io::stdout())?;
    result.failure().map_or(Ok(()), |failure| Err(anyhow!(failure)))
}

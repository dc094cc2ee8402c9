//! Makes the report of a session's folder again and prints its summary:
//! `cargo run -p drover-lab --example report -- FOLDER`.

use std::path::PathBuf;

use drover_lab::record::SessionRecord;
use drover_lab::report;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: FOLDER")?);
    let record = SessionRecord::read(&folder)?;
    let page = report::write(&folder, None, &record)?;
    print!("{}", report::terminal::summary(&report::model::Report::of(&record), 80, false));
    println!("\n{}", page.display());
    Ok(())
}

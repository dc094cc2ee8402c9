//! Writes what ships with Drover of sessions of the emulated machine: `cargo run -p drover-lab --example claims -- FOLDER…`.
//!
//! Each experiment of these sessions becomes `crates/lab/claims/ID.json`. `just claims` runs the sessions first.

use std::error::Error;
use std::fs;
use std::path::Path;

use drover_lab::record::SessionRecord;
use drover_lab::report::verdicts::shipped::ShippedSession;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("claims");
    fs::create_dir_all(&folder)?;
    for session in std::env::args().skip(1) {
        let session = drover_lab::session::newest(session.as_ref()).ok_or(session)?;
        let record = SessionRecord::read(&session)?;
        for measured in &record.measured {
            let shipped = ShippedSession::of(&record.session, measured);
            let path = folder.join(format!("{}.json", measured.experiment.id));
            fs::write(&path, shipped.text()?)?;
            println!("{}: {} samples", path.display(), shipped.samples.len());
        }
    }
    Ok(())
}

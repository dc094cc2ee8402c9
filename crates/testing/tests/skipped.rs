//! Not a test: the last target of `cargo test --workspace`, which says what the others have skipped.

fn main() -> std::io::Result<()> {
    // How libtest is asked for its tests: there are none here.
    if std::env::args().any(|argument| argument == "--list") {
        return Ok(());
    }
    println!("\n{}", drover_testing::SkipNotes::of_this_run()?.take()?);
    Ok(())
}

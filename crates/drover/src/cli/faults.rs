//! Faults of files that a command reads.

use std::io::Write;

use lab::document::Faults;

use usage::UsageError;

/// Tells faults on stderr, a line each, as a compiler writes them. The error says how many there are, in what,
/// and what therefore is not done.
pub(super) fn refuse(faults: &Faults, of: &str, so: &str) -> UsageError {
    let mut err = std::io::stderr();
    // Nobody is left to tell when stderr is gone.
    faults.0.iter().for_each(|fault| drop(writeln!(err, "{fault}")));
    let many = if faults.0.len() == 1 { "fault" } else { "faults" };
    UsageError::new(format!("{} {many} in {of}, see above: {so}", faults.0.len()))
}

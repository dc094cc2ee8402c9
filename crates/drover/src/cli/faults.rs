//! Faults of files that a command reads.

use std::fmt::Display;
use std::io::Write;

use drover_usage::{UsageError, printable};

/// Prints faults on stderr, a line each, in the form in which compilers print them. The returned error says how many
/// faults there are, where (`of`), and what the command therefore does not do (`so`).
pub(super) fn refuse(faults: &[impl Display], of: &str, so: &str) -> UsageError {
    let mut err = std::io::stderr();
    // An error of stderr is ignored: there is no other place for the message.
    for fault in faults {
        for line in fault.to_string().lines() {
            let _ = writeln!(err, "{}", printable(line));
        }
    }
    let many = if faults.len() == 1 { "fault" } else { "faults" };
    UsageError::new(format!("{} {many} in {of}, see above: {so}", faults.len()))
}

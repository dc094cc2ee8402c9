//! Programs that a test makes and then runs.

use std::path::Path;
use std::process::Command;

/// Has a shell make a program at `path`: `script` writes it to its output, and its arguments are `$1` and so on.
///
/// A test must not write a program itself. The kernel runs none that somebody has open for writing (execve(2), `ETXTBSY`), and a
/// process that another thread starts meanwhile has all that is open here until it becomes another program.
///
/// # Panics
/// If the shell fails.
#[track_caller]
pub fn make_program(path: &Path, script: &str, arguments: &[&str]) {
    let made = format!("{{ {script}\n}} >\"$0\"; chmod 755 \"$0\"");
    let status = Command::new("sh").args(["-euc", &made]).arg(path).args(arguments).status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "{script}: {status:?}");
}

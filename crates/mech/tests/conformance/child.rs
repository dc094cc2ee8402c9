//! Cases that need a process of their own: for its limits, or because it may be
//! killed.

use std::process::{Command, Output};

const ROLE: &str = "DROVER_CONFORMANCE_ROLE";

/// What this process is to do instead of the whole test, if it is a child.
pub(crate) fn role() -> Option<String> {
    let role = std::env::var(ROLE).ok()?;
    println!("child: {role}");
    Some(role)
}

/// Runs `test` (its full name) again in a child whose [`role`] is `role`.
#[track_caller]
pub(crate) fn run(test: &str, role: &str) -> Output {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(ROLE, role)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains(&format!("child: {role}")), "no test is called {test}:\n{said}");
    output
}

/// Fails with what the child said, unless it did well.
#[track_caller]
pub(crate) fn check(output: &Output) {
    assert!(
        output.status.success(),
        "the child: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

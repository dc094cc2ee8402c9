//! What one request costs the worker in user space: instructions and system calls, counted exactly,
//! compared with a budget that lies in the repository (`budget.toml`).
//!
//! A real `drover serve` is stepped through instruction by instruction (ptrace(2),
//! `PTRACE_SINGLESTEP`) while one client sends it one request at a time. Neither the machine's speed
//! nor its load changes the result, every mechanism can be counted, and the cheapest of a few requests
//! leaves out what the clock causes: timers, the date of a new second.
//!
//! `cargo bench -p drover --bench instructions` compares, and fails where the budget is exceeded;
//! with `-- --accept` it writes the new numbers down instead, and with `-- --flags` it prints what flags cost.

#[cfg(target_arch = "x86_64")]
mod budget;
#[cfg(target_arch = "x86_64")]
mod costs;
#[cfg(target_arch = "x86_64")]
mod exchange;
#[cfg(target_arch = "x86_64")]
mod run;
#[cfg(target_arch = "x86_64")]
mod tracer;

#[cfg(target_arch = "x86_64")]
fn main() -> std::process::ExitCode {
    run::main()
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("skipped: the budget is one of x86-64 instructions");
}

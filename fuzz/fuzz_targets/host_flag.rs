//! A value of `--host` that is taken means the same again as the table that `--check` prints of it.
#![no_main]

use drover::cli::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    // No word of a command line has a NUL.
    let Ok(read) = fuzzing::of_host(&input.replace('\0', "")) else { return };
    let printed = read.printed.expect("a host goes with the defaults");
    let again = fuzzing::of_file("d.toml", &printed).expect("it has keys of hosts alone");
    let again = again.unwrap_or_else(|faults| panic!("{faults:?} in\n{printed}"));
    assert_eq!(again.values, read.values, "{printed}");
});

//! Every fault of a configuration file has its place in the file. A file without faults means the same again as the one that
//! `--check` prints of it, whatever its name is.
//!
//! What stands before a NUL in an input is the name of the file.
#![no_main]

use drover::cli::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    let (name, text) = input.split_once('\0').unwrap_or(("d.toml", input));
    let read = match fuzzing::of_file(name, text) {
        None => return,
        Some(Ok(read)) => read,
        Some(Err(faults)) => {
            assert!(!faults.is_empty());
            for (line, column, message) in faults {
                let count = text.split('\n').count();
                assert!(!message.is_empty() && (1..=count).contains(&line), "{line}: {message}");
                let width = text.split('\n').nth(line - 1).map_or(0, |it| it.chars().count());
                assert!((1..=width + 1).contains(&column), "{line}:{column}: {message}");
            }
            return;
        }
    };
    let Ok(printed) = read.printed else { return };
    let again = fuzzing::of_file("again.toml", &printed).expect("its keys ask for nothing");
    let again = again.unwrap_or_else(|faults| panic!("{faults:?} in\n{printed}"));
    assert_eq!(again.values, read.values, "{printed}");
});

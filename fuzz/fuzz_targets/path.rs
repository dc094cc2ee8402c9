//! A resolved name has no NUL and no empty, `.` or `..` segment, so it is relative and stays below
//! the root; and what the name held before does not show.
#![no_main]

use http1::path;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut name = Vec::new();
    let Ok(resolved) = path::resolve(input, &mut name) else {
        return;
    };
    assert!(!name.contains(&0));
    if name.is_empty() {
        assert!(resolved.directory);
    } else {
        for segment in name.split(|byte| *byte == b'/') {
            assert!(!matches!(segment, b"" | b"." | b".."));
        }
    }
    let mut used = b"../left/from/before".to_vec();
    assert_eq!(path::resolve(input, &mut used), Ok(resolved));
    assert_eq!(used, name);
});

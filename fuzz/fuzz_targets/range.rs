//! Satisfiable ranges are not longer than the representation. One is not empty and lies within the representation, and asking for it in the
//! plainest words gives it again.
#![no_main]

use drover_http1::range::{self, Ranges};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, &[u8])| {
    let (length, value) = input;
    if let Ranges::Several(parts) = range::parse(value, length) {
        assert!(parts.len() > 1 && parts.iter().all(|it| it.start < it.end && it.end <= length));
        assert!(parts.iter().map(|it| it.len()).sum::<u64>() <= length);
    }
    if let Ranges::Satisfiable(part) = range::parse(value, length) {
        assert!(part.start < part.end && part.end <= length);
        let plain = format!("bytes={}-{}", part.start, part.end - 1);
        assert_eq!(range::parse(plain.as_bytes(), length), Ranges::Satisfiable(part));
    }
});

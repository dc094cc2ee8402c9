//! A resolved name has no NUL and no empty, `.` or `..` segment, so it is relative and stays below
//! the root; what the name held before does not show; and the name, escaped byte by byte, means itself.
#![no_main]

use drover_http1::path;
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
    let escape = |byte: &u8| if *byte == b'/' { "/".to_owned() } else { format!("%{byte:02x}") };
    let escaped: String = name.iter().map(escape).collect();
    let again = path::resolve(escaped.as_bytes(), &mut used).expect("a name has a path");
    assert_eq!((&used, again.hidden), (&name, resolved.hidden));
    let dot = |segment: &[u8]| segment.first() == Some(&b'.');
    let hidden = name.split(|byte| *byte == b'/').enumerate();
    let hidden = hidden.filter(|(at, it)| dot(it) && (*at > 0 || *it != path::WELL_KNOWN)).count();
    assert_eq!(resolved.hidden, hidden > 0);
});

//! A header of the PROXY protocol is found alike however much of it is there: fewer bytes ask for more, until there are
//! enough; more bytes change neither a header nor a refusal. So many bytes as are needed at most always decide.
#![no_main]

use drover_http1::proxy_protocol::{NEEDED_MOST, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let whole = parse(input);
    if input.len() >= NEEDED_MOST {
        assert_ne!(whole, Ok(None));
    }
    let mut decided = None;
    for end in 0..=input.len() {
        match (parse(&input[..end]), &decided) {
            (Ok(None), None) => {}
            (now, None) => decided = Some(now),
            (now, Some(before)) => assert_eq!(now, *before, "at {end}"),
        }
    }
    assert_eq!(whole, decided.unwrap_or(Ok(None)));
});

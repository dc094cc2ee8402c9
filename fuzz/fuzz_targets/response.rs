//! A prefix of a response is incomplete or gives the answer of the whole; a connection persists only
//! if the body's end is known; HEAD changes nothing but the body.
#![no_main]

use drover_http1::response::{self, BodyLength};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let whole = response::parse(input, false);
    for end in 0..input.len().min(600) {
        let part = response::parse(&input[..end], false);
        assert!(part == Ok(None) || part == whole, "at {end}: {part:?}, not {whole:?}");
    }
    let to_head = response::parse(input, true);
    match (whole, to_head) {
        (Ok(Some(response)), Ok(Some(to_head))) => {
            assert!(response.head_len <= input.len());
            assert!(!response.keep_alive || response.body != BodyLength::UntilClose);
            assert_eq!(to_head.body, BodyLength::None);
            assert_eq!((to_head.status, to_head.head_len), (response.status, response.head_len));
        }
        (whole, to_head) => assert_eq!(whole, to_head),
    }
});

//! A prefix of a reply is incomplete or gives the answer of the whole; a connection persists only
//! if the body's end is known; HEAD changes nothing but the body.
#![no_main]

use http1::reply::{self, Body};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let whole = reply::parse(input, false);
    for end in 0..input.len().min(600) {
        let part = reply::parse(&input[..end], false);
        assert!(part == Ok(None) || part == whole, "at {end}: {part:?}, not {whole:?}");
    }
    let to_head = reply::parse(input, true);
    match (whole, to_head) {
        (Ok(Some(reply)), Ok(Some(to_head))) => {
            assert!(reply.head_len <= input.len());
            assert!(!reply.keep_alive || reply.body != Body::UntilClose);
            assert_eq!(to_head.body, Body::None);
            assert_eq!((to_head.status, to_head.head_len), (reply.status, reply.head_len));
        }
        (whole, to_head) => assert_eq!(whole, to_head),
    }
});

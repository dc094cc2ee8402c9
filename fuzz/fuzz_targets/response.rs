//! A prefix of a response is incomplete or gives the answer of the whole; a connection persists only
//! if the body's end is known; HEAD changes nothing but the body; a folded field means what it means in one line.
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
            assert!((100..1000).contains(&response.status));
            let head = unfolded(&input[..response.head_len]);
            assert_eq!(response::parse(&head, false), Ok(Some(response)));
            assert_eq!(response.fields(&head).count(), response.fields(input).count());
            assert!(!response.keep_alive || response.body != BodyLength::UntilClose);
            assert_eq!(to_head.body, BodyLength::None);
            assert_eq!((to_head.status, to_head.head_len), (response.status, response.head_len));
        }
        (whole, to_head) => assert_eq!(whole, to_head),
    }
});

/// `head` with spaces in place of the line ends before white space.
fn unfolded(head: &[u8]) -> Vec<u8> {
    let mut head = head.to_vec();
    for at in 1..head.len() {
        if let [b'\n', b' ' | b'\t'] = head[at - 1..=at] {
            head[at - 1] = b' ';
            if at > 1 && head[at - 2] == b'\r' {
                head[at - 2] = b' ';
            }
        }
    }
    head
}

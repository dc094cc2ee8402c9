//! A chunked body gives the same end, length and error however it is cut, and the data are never
//! more than the bytes that carried them.
#![no_main]

use drover_http1::chunked::Decoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, input) = input;
    let mut whole = Decoder::new();
    let at_once = whole.advance(input);
    let mut piecewise = Decoder::new();
    let mut taken = Ok(0);
    for piece in input.chunks(usize::from(cut).max(1)) {
        let before = taken.unwrap_or(0);
        taken = piecewise.advance(piece).map(|length| before + length);
        if taken.is_err() || piecewise.is_done() {
            break;
        }
    }
    assert_eq!(taken, at_once);
    assert_eq!(piecewise.is_done(), whole.is_done());
    assert_eq!(piecewise.body_len(), whole.body_len());
    assert!(whole.body_len() <= input.len() as u64);
    assert!(at_once.is_err() || whole.is_done() || at_once == Ok(input.len()));
});

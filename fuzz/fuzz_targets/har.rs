//! Whatever is recorded, each request that is sent of a recording is one request, and there are no more of them than entries. To
//! leave requests out that lack their bodies gives some of those that are sent with none.
#![no_main]

mod one_request;

use drover_load::input::har::{self, MissingBody};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let server = "http://127.0.0.1:8".parse().expect("a URL");
    let read = |missing| har::parse(input, Some(&server), missing);
    let [refused, skipped, empty] =
        [MissingBody::Refuse, MissingBody::Skip, MissingBody::Empty].map(read);
    if let Ok(recording) = &empty {
        let json = input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input);
        // A number that is too large for this parser may stand where nobody looks.
        if let Ok(value) = serde_json::from_slice::<serde_json::Value>(json) {
            let entries = value["log"]["entries"].as_array().map_or(0, Vec::len);
            assert!((1..=entries).contains(&recording.requests.len()));
        }
        assert!(recording.warnings.len() <= 6);
        recording.requests.iter().for_each(one_request::is_one_request);
        assert!(recording.requests.iter().all(|it| it.url.authority == "127.0.0.1:8"));
    }
    if let Ok(skipped) = &skipped {
        let empty = &empty.as_ref().expect("some can be sent").requests;
        let mut all = empty.iter();
        assert!(skipped.requests.iter().all(|request| all.any(|it| it == request)));
    }
    if let Ok(refused) = &refused {
        assert_eq!(refused.requests, skipped.as_ref().expect("nothing is left out").requests);
        assert_eq!(refused.requests, empty.as_ref().expect("nothing is lacking").requests);
    }
});

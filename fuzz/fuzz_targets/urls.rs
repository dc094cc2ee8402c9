//! A list has a URL for each line that is not empty and no comment. Each is safe to send, and reads back as the same URL.
#![no_main]

use drover_load::input::{text, urls};
use drover_load::plan::target::Url;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = text::decode(input) else { return };
    let server: Url = "http://127.0.0.1:8".parse().expect("a URL");
    for server in [None, Some(&server)] {
        let list = match urls::parse(text, server) {
            Ok(list) => list,
            // Messages quote what they have read; who prints them makes it safe.
            Err(told) => {
                assert!(!told.is_empty());
                continue;
            }
        };
        let lines = text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#'));
        assert_eq!(list.urls.len(), lines.count());
        if let Some(weights) = &list.weights {
            assert_eq!(weights.len(), list.urls.len());
            let sum: f64 = weights.iter().sum();
            assert!(
                weights.iter().all(|it| *it >= 0.0) && sum > 0.0 && sum.is_finite(),
                "{weights:?}"
            );
        }
        for url in &list.urls {
            for sent in [&url.authority, &url.path] {
                assert!(!sent.is_empty() && sent.bytes().all(|it| it.is_ascii_graphic()), "{url}");
            }
            assert!(
                !url.authority.contains(['/', '?', '#', '@']) && !url.path.contains('#'),
                "{url}"
            );
            let again: Url = url.to_string().parse().expect("a URL that was shown is one");
            assert_eq!((&again.authority, &again.path), (&url.authority, &url.path));
            assert!(server.is_none_or(|server| url.authority == server.authority));
        }
    }
});

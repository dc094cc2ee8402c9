//! Whatever a client asks for, a rule sends it to the host that the rule names, as a browser reads URLs, and there beneath the
//! path that the rule names. What is sent has no byte that ends a line or that a browser leaves out.
//!
//! The first line of an input is the rule, the second one the path, the third one the query.
#![no_main]

use drover_server::{Redirect, fuzzing};
use libfuzzer_sys::fuzz_target;

/// Where a URL leads to, as the URL standard has it (section 4.4); empty: to the same host.
fn authority(url: &[u8]) -> String {
    let url = String::from_utf8_lossy(url).into_owned();
    let url: String = url.chars().filter(|it| !"\t\r\n".contains(*it)).collect();
    let url = url.trim_start_matches(|it: char| it <= ' ').replace('\\', "/").to_lowercase();
    let behind = ["http:", "https:"].into_iter().find_map(|it| url.strip_prefix(it));
    let rest = match behind {
        Some(rest) => rest.trim_start_matches('/'),
        None if url.starts_with("//") => url.trim_start_matches('/'),
        None => return String::new(),
    };
    rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned()
}

fuzz_target!(|input: &[u8]| {
    let mut lines = input.splitn(3, |byte| *byte == b'\n');
    let rule = std::str::from_utf8(lines.next().unwrap_or_default()).unwrap_or_default();
    let path = [b"/", lines.next().unwrap_or_default()].concat();
    let query = lines.next();
    let Ok(redirect) = rule.parse::<Redirect>() else { return };
    let mut words = rule.split_whitespace();
    let [from, to] = [(); 2].map(|()| words.next().expect("a rule has two words at least"));
    let location = fuzzing::location(&redirect, &path, query);

    let rest = match from.strip_suffix('*') {
        Some(beginning) => path.strip_prefix(beginning.as_bytes()),
        None => (path == from.as_bytes()).then_some(&[][..]),
    };
    assert_eq!(location.is_some(), rest.is_some());
    let Some(location) = location else { return };
    let shown = location.escape_ascii();
    assert!(location.iter().all(u8::is_ascii_graphic), "{shown}");
    let place = to.strip_suffix('*').unwrap_or(to);
    assert_eq!(authority(&location), authority(place.as_bytes()), "{shown}");
    let before = place.split('#').next().unwrap_or_default();
    assert!(location.starts_with(before.as_bytes()), "{shown}");
    let has_own_query = before.contains('?');
    let sent: Vec<u8> = query.into_iter().flatten().copied().filter(u8::is_ascii_graphic).collect();
    if query.is_some() && !has_own_query {
        let asked = [b"?", &sent[..]].concat();
        assert!(location.windows(asked.len()).any(|it| it == asked), "{shown}");
    }
    // A query does not reach into the fragment, unless the client has put a fragment's sign there.
    let fragment =
        |url: &[u8]| url.iter().position(|byte| *byte == b'#').map(|at| url[at..].to_vec());
    let without = fuzzing::location(&redirect, &path, None).expect("the path has moved");
    if !sent.contains(&b'#') {
        assert_eq!(fragment(&location), fragment(&without), "{shown}");
    }
});

//! The outcome of several preconditions is that of the first that decides, in the order of RFC 9110 section 13.2.2; a list of
//! entity tags matches only if the file's stands in it, and strongly only if it stands there without W/.
#![no_main]

use drover_http1::conditional::{
    self, Conditions, FileTimes, ListField, PreconditionOutcome, Validators,
};
use drover_http1::{HeadLimits, date, request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (i64, u32, u64, u64, &[u8])| {
    let (seconds, nanoseconds, size, now, fields) = input;
    let written = (seconds, nanoseconds % 1_000_000_000);
    let times = FileTimes { size, modified: written, changed: written };
    let file = Validators::of_times(&times, None, now);
    let is_weak = file.etag.is_some_and(|tag| tag.is_weak());
    let tag = file.etag.map_or(Vec::new(), |tag| tag.as_bytes().to_vec());
    let opaque = tag.strip_prefix(b"W/").unwrap_or(&tag);
    // `$` and `@` stand for what the file has, which nobody would find by chance.
    let moment = date::format(file.modified.unwrap_or(1).min(253_402_300_799));
    let mut head = b"GET / HTTP/1.0\r\n".to_vec();
    for byte in fields {
        match byte {
            b'$' => head.extend_from_slice(&tag),
            b'@' => head.extend_from_slice(moment.as_ref()),
            byte => head.push(*byte),
        }
    }
    head.extend_from_slice(b"\r\n\r\n");
    let Ok(Some(request)) = request::parse(&head, &HeadLimits::default()) else { return };
    let all = request.conditions;
    let outcome = |conditions: Conditions<'_>| conditional::evaluate(&conditions, &file, now);

    assert_eq!(outcome(Conditions::default()), PreconditionOutcome::Proceed);
    let first = if all.if_match.is_some() {
        Conditions { if_match: all.if_match, ..Conditions::default() }
    } else {
        Conditions { if_unmodified_since: all.if_unmodified_since, ..Conditions::default() }
    };
    let second = if all.if_none_match.is_some() {
        Conditions { if_none_match: all.if_none_match, ..Conditions::default() }
    } else {
        Conditions { if_modified_since: all.if_modified_since, ..Conditions::default() }
    };
    let third = Conditions { if_range: all.if_range, ..Conditions::default() };
    let steps = [first, second, third].map(outcome);
    let decided = steps.into_iter().find(|it| *it != PreconditionOutcome::Proceed);
    assert_eq!(outcome(all), decided.unwrap_or(PreconditionOutcome::Proceed));

    // A tag that stands nowhere in the list does not match; `*` matches every file.
    for list in [all.if_match, all.if_none_match].into_iter().flatten() {
        let strong = Conditions { if_match: Some(list), ..Conditions::default() };
        let weak = Conditions { if_none_match: Some(list), ..Conditions::default() };
        let matches = (
            outcome(strong) == PreconditionOutcome::Proceed,
            outcome(weak) == PreconditionOutcome::NotModified,
        );
        if list == ListField::Line(b"*") {
            assert_eq!(matches, (true, true));
            continue;
        }
        let places = |line: &[u8]| -> Vec<bool> {
            let at =
                (0..line.len()).filter(|at| !opaque.is_empty() && line[*at..].starts_with(opaque));
            at.map(|at| line[..at].ends_with(b"W/")).collect()
        };
        let weak: Vec<bool> = list.lines().flat_map(places).collect();
        assert!(!matches.0 || (!is_weak && weak.contains(&false)), "a weak tag matches strongly");
        assert!(!matches.1 || !weak.is_empty(), "another tag matches");
        assert!(matches.1 || !matches.0, "who matches strongly matches weakly");
    }
});

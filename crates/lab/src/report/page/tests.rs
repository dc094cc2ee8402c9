//! Tests of the page from synthetic records.

use super::*;
use crate::model::Mark;
use crate::record::SessionRecord;
use crate::report::testing::{Builder, quick, rates, ratio, text};

fn page(record: &SessionRecord) -> String {
    render(&Report::of(record))
}

/// The page without its libraries, scripts and data.
fn body(record: &SessionRecord) -> String {
    let page = page(record);
    let end = page.find("<script").unwrap();
    page[..end].to_owned()
}

/// A comparison of a user's own servers does not answer which dispatch mechanism to use.
#[test]
fn questions_and_claims_are_on_the_page_where_there_are_some() {
    let without =
        Builder::new().experiment(&text("one", ""), 6, rates([200.0, 100.0, 100.0], 0.01)).judged();
    let page = body(&without);
    assert!(!page.contains("What to use here") && !page.contains("All claims"));
    let page = body(&quick(&["completion-or-readiness"], 6));
    assert!(page.contains("What to use here") && page.contains("All claims"));
    assert!(
        page.contains("put to the test are decided")
            && page.contains("are not measured: the preset")
    );
}

/// The first screen: sentences with bars, what is decided, and what decides the rest. What follows is folded.
#[test]
fn a_page_begins_with_what_was_found() {
    let one = text("one", &ratio("x", "{ above = 1.5 }"));
    let record = Builder::new().experiment(&one, 6, rates([400.0, 100.0, 100.0], 0.0001)).judged();
    let page = body(&record);
    let [found, claims, experiment] = [" id=\"found\"", " id=\"claims\"", " id=\"one\""]
        .map(|id| page.find(id).unwrap_or_else(|| panic!("{id}: {page}")));
    assert!(found < claims && claims < experiment);
    let opening = &page[found..claims];
    assert!(opening.contains("a gets 4 ×") && opening.contains("class=\"bar\""), "{opening}");
    assert!(opening.contains("<b>1 of 1 claims"), "{opening}");
    assert_eq!(page.matches("<details class=\"fold\">").count(), 4, "claims, machine, method, one");
    assert!(!page.contains("<details class=\"fold\" open"));
}

#[test]
fn the_page_says_how_each_server_was_started() {
    let text = text("one", "").replace(
        "[subject.b]\nserve = []",
        "[subject.b]\ncommand = ['srv', '-c', 'a b', '{conf}']\nenv = { LOG = 'off' }\n\
         files.conf = '<port {port}>'",
    );
    let text =
        text.replace("[subject.a]\nserve = []", "[subject.a]\nserve = ['--dispatch', 'poll']");
    let record = Builder::new().experiment(&text, 6, rates([200.0, 100.0, 100.0], 0.01)).judged();
    let page = body(&record);
    assert!(page.contains("drover serve --dispatch poll</pre>"), "{page}");
    assert!(
        page.contains("LOG=off srv -c 'a b' '{conf}'\n\n# conf\n&lt;port {port}&gt;</pre>"),
        "{page}"
    );
}

#[test]
fn commands_are_told_as_a_shell_takes_them() {
    let mut record = Builder::new().judged();
    record.session.command =
        ["drover", "lab", "versus", "mine=./srv -p {port}"].map(str::to_owned).to_vec();
    let page = body(&record);
    assert!(page.contains("drover lab versus 'mine=./srv -p {port}'"), "{page}");
}

#[test]
fn hostile_names_stay_text() {
    let hostile = "<script>alert(1)</script>\\\"' onload=x";
    let text = text("one", &ratio("x", "{ above = 1.5 }"))
        .replace("Title of one", "</title><img src=x>")
        .replace("Claim x.", "<b>bold</b> & \\\"quoted\\\"")
        .replace("'a'", &format!("\"{hostile}\""))
        .replace("[subject.a]", &format!("[subject.\"{hostile}\"]"));
    let text =
        text.replace("text = '<b>bold</b> & \\\"quoted\\\"'", "text = '<b>bold</b> & \"quoted\"'");
    let record = Builder::new()
        .experiment(&text, 6, |cell, round, sample| {
            rates([200.0, 100.0, 100.0], 0.01)(cell, round, sample);
            if cell.subject == "c" {
                sample.values.clear();
                sample.failure = Some("</script><script>alert(2)".to_owned());
            }
        })
        .refused("<i>x</i>", "</details><script>alert(3)</script>")
        .judged();
    let page = page(&record);
    for tag in ["<script>alert", "<img src=x", "<b>bold", "<i>x"] {
        assert!(!page.contains(tag), "{tag}");
    }
    assert!(page.contains("&lt;b&gt;bold&lt;/b&gt;"));
    // Every script element is closed: data, libraries and the page's own scripts.
    let count = |what: &str| page.matches(what).count();
    assert_eq!(count("<script"), count("</script>"));
    assert_eq!(count("</script>"), 1 + LIBRARIES.len() + SCRIPTS.len());
}

#[test]
fn every_kind_of_verdict_is_shown_with_its_reason() {
    let claims = [
        ratio("holds", "{ above = 1.5 }"),
        ratio("smaller", "{ above = 3 }"),
        ratio("larger", "{ above = 1.2, below = 1.4 }"),
        ratio("opposite", "{ below = 0.9 }"),
    ];
    let of = |id: &str, of: &str, against: &str, holds: &str| {
        ratio(id, holds)
            .replace("of = 'a'", &format!("of = '{of}'"))
            .replace("against = 'b'", &format!("against = '{against}'"))
    };
    let more = [
        of("none", "b", "c", "{ above = 1.5 }"),
        of("more", "a", "b", "{ above = 0.9, below = 1.1 }"),
    ];
    let measured = text("one", &(claims.concat() + &more.concat()));
    let noisy = text("two", &ratio("noisy", "{ above = 1.9 }"));
    let limited = text("three", &(ratio("limited", "{ below = 3 }") + &fails()));
    let record = Builder::new()
        .experiment(&measured, 10, rates([200.0, 100.0, 100.0], 0.004))
        .experiment(&noisy, 10, rates([200.0, 100.0, 100.0], 0.3))
        .experiment(&limited, 10, |cell, round, sample| {
            rates([200.0, 100.0, 100.0], 0.01)(cell, round, sample);
            if cell.subject == "a" {
                sample.validity.insert(Mark::GeneratorLimited);
            }
            if cell.subject == "c" {
                sample.values.clear();
                sample.failure = Some("refused".to_owned());
            }
        })
        .experiment(&text("four", &ratio("rounds", "{ above = 2 }")), 3, rates([200.0; 3], 0.01))
        .pending("pipes")
        .judged();
    let body = body(&record);
    for (word, reason) in [
        ("holds", "the whole interval is ≥ 1.5"),
        ("same direction, smaller", "the effect is there, but smaller: not ≥ 3"),
        ("same direction, larger", "the effect is there, and larger: not 1.2 to 1.4"),
        ("opposite", "the effect goes the other way; the claim needs ≤ 0.9"),
        ("no effect", "there is no effect worth the name; the claim needs ≥ 1.5"),
        ("differs: more", "the effect is more: not 0.9 to 1.1"),
        ("too noisy", "the interval reaches across an end of ≥ 1.9"),
        ("not testable", "the load generator was at its limit in 10 of 20 runs"),
        ("not testable", "3 complete rounds, 6 are needed"),
        ("fails", "the subject failed in 10 of 10 runs: refused"),
        ("not measured", "no run has what the claim is about"),
    ] {
        assert!(body.contains(&format!(" {word}</span>")), "{word}");
        assert!(body.contains(reason), "{word}: {reason}");
    }
}

/// A claim about a subject that fails.
fn fails() -> String {
    "[[claim]]\nid = 'f'\ntext = 'It serves.'\n\
     effect = { value = 'response-rate', of = 'c' }\nholds = { above = 10 }\n"
        .to_owned()
}

#[test]
fn every_link_within_the_page_has_a_target() {
    let body = body(&quick(&["pipes", "raw-file-io", "settle-time"], 6));
    let targets: std::collections::BTreeSet<&str> =
        body.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let ids = body.matches(" id=\"").count();
    assert_eq!(targets.len(), ids, "an id is there twice");
    for link in body.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(targets.contains(link) || is_elsewhere(link), "{link}");
    }
}

/// Whether a link leads to an experiment that is not part of the session.
fn is_elsewhere(link: &str) -> bool {
    crate::spec::built_in::names().contains(&link)
}

#[test]
fn nothing_is_fetched() {
    let body = body(&quick(&["pipes"], 6));
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!body.contains(outside), "{outside}");
    }
}

#[test]
fn answers_name_their_experiment_and_their_figure() {
    let record = quick(&["settle-time"], 8);
    let body = body(&record);
    assert!(body.contains("CPU per connection"));
    assert!(body.contains("href=\"#settle-time\""));
}

/// Real runs have fewer metrics than these samples, and no more runs.
#[test]
fn a_quick_session_is_a_small_file() {
    let record = quick(&crate::spec::built_in::names(), 6);
    let size = page(&record).len();
    assert!(size < 1_500_000, "{size} bytes");
}

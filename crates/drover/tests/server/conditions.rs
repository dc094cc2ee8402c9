//! Preconditions.

use std::time::{Duration, SystemTime};

use crate::harness::{Server, Site};

#[test]
fn a_copy_that_is_still_good_is_a_304_without_body() {
    let site = Site::new();
    site.file("a", "hello");
    let server = Server::on(&site, &[]);
    let mut client = server.connect();
    let first = client.get("/a").is(200);
    let (tag, date) = (first.field("ETag").unwrap(), first.field("Last-Modified").unwrap());
    for field in [
        format!("If-None-Match: {tag}"),
        format!("If-None-Match: \"x\", W/{tag}"),
        "If-None-Match: *".to_string(),
        format!("If-Modified-Since: {date}"),
    ] {
        let response = client.ask("/a", &[&field]).is(304);
        assert_eq!(response.field("ETag"), Some(tag), "{field}");
        assert_eq!(response.field("Content-Length"), None, "{field}");
        assert!(response.field("Date").is_some(), "{field}");
    }
}

#[test]
fn a_copy_that_is_not_good_any_more_is_replaced() {
    let site = Site::new();
    site.file("a", "hello");
    let server = Server::on(&site, &[]);
    for field in ["If-None-Match: \"x\"", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"] {
        assert_eq!(server.ask("/a", &[field]).is(200).text(), "hello");
    }
    let fields = ["If-None-Match: \"x\"", "If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT"];
    server.ask("/a", &fields).is(200);
}

#[test]
fn a_precondition_that_does_not_hold_is_a_412() {
    let site = Site::new();
    site.file("a", "hello");
    let server = Server::on(&site, &[]);
    let first = server.get("/a");
    let tag = first.field("ETag").unwrap();
    server.ask("/a", &[&format!("If-Match: {tag}")]).is(200);
    server.ask("/a", &["If-Match: \"x\""]).is(412);
    server.ask("/a", &["If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"]).is(412);
}

/// RFC 9110 section 5.6.7: what is sent has the first form, and what is received may have any.
#[test]
fn a_date_may_be_written_in_three_ways() {
    let site = Site::new();
    let file = std::fs::File::open(site.file("a", "hello")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)).unwrap();
    let server = Server::on(&site, &[]);
    for (date, status) in [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 304),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 304),
        ("Sun Nov  6 08:49:37 1994", 304),
        ("Sun, 06 Nov 1994 08:49:36 GMT", 200),
        ("Sunday, 06-Nov-94 08:49:36 GMT", 200),
        ("Sun Nov  6 08:49:36 1994", 200),
        // What is no date does not count.
        ("1994-11-06T08:49:37Z", 200),
    ] {
        let response = server.ask("/a", &[&format!("If-Modified-Since: {date}")]).is(status);
        assert_eq!(response.field("Last-Modified"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        let if_range = format!("If-Range: {date}");
        let status = if status == 304 { 206 } else { 200 };
        server.ask("/a", &["Range: bytes=0-1", &if_range]).is(status);
    }
}

/// In the order of RFC 9110 section 13.2.2, and all of them before a range.
#[test]
fn preconditions_have_their_order_and_come_before_ranges() {
    let site = Site::new();
    site.file("a", "hello");
    let server = Server::on(&site, &[]);
    let first = server.get("/a");
    let (own, other) = (first.field("ETag").unwrap(), "\"x\"");
    let (past, future) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Fri, 31 Dec 9999 23:59:59 GMT");
    for (fields, status) in [
        // A tag counts, and the date beside it does not.
        ([format!("If-Match: {own}"), format!("If-Unmodified-Since: {past}")], 206),
        ([format!("If-Match: {other}"), format!("If-Unmodified-Since: {future}")], 412),
        ([format!("If-None-Match: {own}"), format!("If-Modified-Since: {past}")], 304),
        ([format!("If-None-Match: {other}"), format!("If-Modified-Since: {future}")], 206),
        // 412 before 304, and 304 before If-Range.
        ([format!("If-Match: {other}"), format!("If-None-Match: {own}")], 412),
        ([format!("If-None-Match: {own}"), format!("If-Range: {other}")], 304),
        ([format!("If-Match: {own}"), format!("If-Range: {other}")], 200),
        // A weak tag is none for If-Match and If-Range.
        ([format!("If-Match: W/{own}"), String::from("X: y")], 412),
        ([format!("If-Range: W/{own}"), String::from("X: y")], 200),
    ] {
        server.ask("/a", &["Range: bytes=0-1", &fields[0], &fields[1]]).is(status);
    }
}

/// Several lines of one name are one list (RFC 9110 section 5.3).
#[test]
fn a_list_of_tags_may_come_in_several_lines() {
    let site = Site::new();
    site.file("a", "hello");
    let server = Server::on(&site, &[]);
    let mut client = server.connect();
    let first = client.get("/a").is(200);
    let tag = first.field("ETag").unwrap();
    for lines in [["\"x\"", tag], [tag, "\"x\""]] {
        for (name, status) in [("If-None-Match", 304), ("If-Match", 200)] {
            let fields = lines.map(|tags| format!("{name}: {tags}"));
            client.ask("/a", &[&fields[0], "X: y", &fields[1]]).is(status);
        }
    }
}

/// A file that was modified in this second may change once more without another date: its date is no
/// strong validator, with which alone `If-Range` goes (RFC 9110 sections 13.1.5 and 8.8.2.2).
#[test]
fn a_part_is_not_sent_for_a_date_whose_second_is_not_over() {
    let site = Site::new();
    let file = std::fs::File::open(site.file("a", "hello")).unwrap();
    let modified = |time: SystemTime| {
        file.set_modified(time).unwrap();
        httpdate(time)
    };
    let long = Duration::from_secs(1000);
    let server = Server::on(&site, &["--cache", "off"]);
    let part_for = |date: &str| {
        let fields = ["Range: bytes=1-2", &format!("If-Range: {date}")];
        server.ask("/a", &fields)
    };
    assert_eq!(part_for(&modified(SystemTime::now() - long)).is(206).text(), "el");
    // Both the date of a file from the future and the one that its responses carry meanwhile.
    let date = modified(SystemTime::now() + long);
    assert_eq!(part_for(&date).is(200).text(), "hello");
    let first = server.get("/a");
    let shown = first.field("Last-Modified").unwrap();
    assert_eq!(part_for(shown).is(200).text(), "hello");
    let tag = first.field("ETag").unwrap();
    assert_eq!(part_for(tag).is(200).text(), "hello");
}

/// A time as it stands in a field.
fn httpdate(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    String::from_utf8(drover_http1::date::format(seconds).to_vec()).unwrap()
}

/// Images of containers and packages set every file's time to 0 or 1: only the bytes of a file tell its versions
/// apart.
#[test]
fn a_file_whose_time_was_never_set_has_no_date() {
    let site = Site::new();
    let old = std::fs::File::open(site.file("old", "0123456789")).unwrap();
    let server = Server::on(&site, &[]);
    for (seconds, has_date) in [(0, false), (1, false), (2, true)] {
        old.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        let server = Server::on(&site, &[]);
        let response = server.get("/old").is(200);
        assert!(response.field("ETag").unwrap().starts_with('"'), "it is of the bytes");
        assert_eq!(response.field("Last-Modified").is_some(), has_date, "{seconds}");
        server.ask("/old", &["Range: bytes=0-1"]).is(206);
    }
    old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    server.ask("/old", &["If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"]).is(200);
    let fields = ["Range: bytes=0-1", "If-Range: Thu, 01 Jan 1970 00:00:00 GMT"];
    server.ask("/old", &fields).is(200);
}

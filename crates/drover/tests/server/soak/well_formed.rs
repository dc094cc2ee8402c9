//! Clients that ask as they should, and hold every byte to what the file has.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::{RngExt, SeedableRng, rngs::SmallRng};

use crate::harness::{Client, Site, request};
use crate::http2::wire as http2;

/// A file that takes long to be sent.
pub(super) const LARGE: &str = "/large";

/// A file of the site, and what it holds.
pub(super) struct Page {
    pub(super) target: String,
    pub(super) content: Vec<u8>,
}

/// Files of all sizes: those that are kept in memory, those that are sent from their descriptor, and an empty one.
pub(super) fn site() -> (Site, Vec<Page>) {
    let site = Site::new();
    let mut random = SmallRng::seed_from_u64(1);
    let page = |number: usize| {
        let most = [10, 1000, 10_000, 50_000, 300_000][number % 5];
        let mut content = vec![0; if number == 0 { 0 } else { random.random_range(1..most) }];
        random.fill(&mut content[..]);
        let target = format!("/{}/page-{number}.bin", number % 7);
        site.file(&target[1..], &content);
        Page { target, content }
    };
    let pages = (0..100).map(page).collect();
    site.sparse(&LARGE[1..], 64 << 20);
    (site, pages)
}

/// Asks for one page after the other on a connection that stays open, a part of it, and whether it has changed.
pub(super) fn keep_asking(address: SocketAddr, pages: &[Page], over: &AtomicBool) -> u64 {
    let mut client = Client::connect(address);
    let mut answers = 0;
    for page in pages.iter().cycle() {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let mut ask = |fields: &[&str]| {
            let response = client.ask(&page.target, fields);
            answers += 1;
            if response.field("Connection") == Some("close") || client.is_sent_away() {
                client.expect_end();
                client = Client::connect(address);
            }
            response
        };
        let response = ask(&[]).is(200);
        assert!(response.body == page.content, "{}", page.target);
        let tag = format!("If-None-Match: {}", response.field("ETag").unwrap());
        let again = ask(&[&tag]);
        // Configurations in between may differ in what tags are made of.
        if again.status != 304 {
            assert_ne!(again.is(200).field("ETag"), response.field("ETag"));
        }
        if page.content.len() > 10 {
            assert!(ask(&["Range: bytes=3-9"]).is(206).body == page.content[3..10]);
        }
    }
    answers
}

/// Asks for four pages at once on a connection that is then half closed: all of them are answered, or those up to one that says
/// that it is the last.
pub(super) fn ask_anew(address: SocketAddr, pages: &[Page], over: &AtomicBool) -> u64 {
    let mut answers = 0;
    for four in pages.chunks(4).cycle() {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let mut client = Client::connect(address);
        let requests: String = four.iter().map(|page| request("GET", &page.target, &[])).collect();
        client.send(requests);
        client.end_sending();
        for page in four {
            let response = client.response().is(200);
            assert!(response.body == page.content, "{}", page.target);
            answers += 1;
            // Over HTTP/2 GOAWAY may come first, and those that were asked for are answered behind it.
            if response.field("Connection") == Some("close") && !http2::is_wanted() {
                break;
            }
        }
        client.expect_end();
    }
    answers
}

//! HTTP/2, against a scripted server: what the generator says is what that server has seen.

mod counts;
mod ends;
mod refused;
pub(crate) mod server;
mod times;
mod windows;

use crate::certificate::CERTIFICATE;
use crate::run::{Run, load};
use server::{Http2Server, StreamAction};

/// The mechanisms that differ in how they wait: readiness by level, by edge, and completions.
const MECHANISMS: [&str; 4] = ["epoll", "epoll-et", "poll", "uring"];

/// Calls `test` with each of the mechanisms that the kernel has.
fn over_mechanisms(test: impl Fn(&'static str)) {
    for mechanism in drover_mech::mechanisms::ALL {
        match mechanism.probe() {
            _ if !MECHANISMS.contains(&mechanism.name) => {}
            Ok(()) => test(mechanism.name),
            Err(reason) => drover_testing::skip!("{}: {reason}", mechanism.name),
        }
    }
}

/// Runs a load of a server, and checks what holds for every run.
#[track_caller]
fn load_http2(server: &Http2Server, arguments: &[&str]) -> Run {
    let [flag, url] = server.target();
    let trust = ["--cacert", CERTIFICATE.authority()];
    let trust = if flag == "--http2" { &trust[..] } else { &[] };
    let run = load(&[&[&*flag, &*url], trust, arguments].concat());
    let excess = server.counts.excess.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(excess, 0, "more was sent than the windows allowed");
    run
}

/// What both sides can count of a run in which every request was sent once, and whole.
#[track_caller]
fn agree(run: &Run, server: &Http2Server) {
    let opened = run.number("/connections/opened");
    crate::server::wait_until(|| server.connections() >= opened);
    assert_eq!(server.connections(), opened);
    let sent_again = run.number("/http2/sent_again");
    assert_eq!(server.requests(), run.number("/requests") + sent_again, "{}", run.json);
    if sent_again == 0 {
        let bytes: u64 = server.log().iter().map(|request| request.bytes).sum();
        assert_eq!(run.number("/bytes/sent"), bytes, "{}", run.json);
    }
}

/// 200 with a body of so many bytes.
fn ok(length: usize) -> StreamAction {
    StreamAction::Respond(200, vec![b'x'; length])
}

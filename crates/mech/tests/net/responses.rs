//! Responses of which the sending is left to the worker ([`Answer::expects_input`]).

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread;

use drover_mech::mechanisms;
use drover_mech::net::{Answer, Body, Conn, Executor, Net, NetOptions, Remote};
use rustix::net::sockopt;

use crate::{PATIENCE, cramped, on_every_mechanism};

/// More than the send buffer of [`serve`]'s socket, and not so much that a worker would not try to
/// send it at once.
const BODY: &[u8] = &[b'b'; 20_000];

/// A head for each byte that the peer sends, and [`BODY`] if it is a question mark.
async fn answer_each_byte(conn: Conn<'_>) {
    let body: Rc<[u8]> = Rc::from(BODY);
    loop {
        let (answered, progress) = conn.respond(|io| {
            let consumed = io.input.len().min(1);
            io.output.extend_from_slice(&b"head"[..4 * consumed]);
            let asked = io.input.starts_with(b"?");
            let body = if asked { Body::Shared(Rc::clone(&body)) } else { Body::None };
            (Answer { consumed, body, expects_input: true }, consumed > 0)
        });
        let Ok(done) = progress.done else { return };
        if !done && conn.flush(None).await.is_err() {
            return;
        }
        if answered && conn.input_len() > 0 {
            continue;
        }
        let Ok(1..) = conn.fill_idle().await else { return };
    }
}

/// Runs a worker that serves the other end of what `peer` gets, until that connection has ended.
fn serve<R: Send>(options: &NetOptions, peer: impl FnOnce(UnixStream, Remote) -> R + Send) -> R {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_read_timeout(Some(PATIENCE)).unwrap();
    sockopt::set_socket_send_buffer_size(&ours, 4096).unwrap();
    let net = Net::open(options).unwrap();
    let remote = net.remote();
    thread::scope(|scope| {
        let peer = scope.spawn(|| peer(theirs, remote));
        net.adopt(OwnedFd::from(ours)).unwrap();
        Executor::new(&net, PATIENCE).run(answer_each_byte).unwrap();
        peer.join().unwrap()
    })
}

fn on_every_mechanism_and_cramped(case: impl Fn(&NetOptions)) {
    on_every_mechanism(|mechanism| {
        for dispatch in [mechanisms::MechanismOptions::default(), cramped()] {
            case(&NetOptions { dispatch, ..NetOptions::new(mechanism) });
        }
    });
}

fn assert_responses(received: &[u8], count: usize) {
    assert_eq!(received.len(), count * (4 + BODY.len()));
    for response in received.chunks(4 + BODY.len()) {
        assert!(response.starts_with(b"head") && response[4..] == *BODY);
    }
}

#[test]
fn what_does_not_fit_goes_before_the_next_and_before_the_end() {
    on_every_mechanism_and_cramped(|options| {
        for count in [1, 5, 30] {
            let received = serve(options, |mut peer, _| {
                for _ in 0..count {
                    peer.write_all(b"?").unwrap();
                }
                peer.shutdown(Shutdown::Write).unwrap();
                let mut received = Vec::new();
                peer.read_to_end(&mut received).unwrap();
                received
            });
            assert_responses(&received, count);
        }
    });
}

/// Nothing that could wake the worker comes after them.
#[test]
fn those_that_fit_do_not_wait_for_one_another() {
    on_every_mechanism_and_cramped(|options| {
        serve(options, |mut peer, _| {
            peer.write_all(b".....").unwrap();
            let mut received = [0; 20];
            peer.read_exact(&mut received).unwrap();
            assert_eq!(&received, b"headheadheadheadhead");
        });
    });
}

#[test]
fn one_after_the_other_comes_whole() {
    on_every_mechanism_and_cramped(|options| {
        serve(options, |mut peer, _| {
            let mut response = vec![0; 4 + BODY.len()];
            for _ in 0..20 {
                peer.write_all(b"?").unwrap();
                peer.read_exact(&mut response).unwrap();
                assert_responses(&response, 1);
            }
        });
    });
}

#[test]
fn a_stop_waits_for_what_is_left() {
    on_every_mechanism_and_cramped(|options| {
        let received = serve(options, |mut peer, remote| {
            peer.write_all(b"?").unwrap();
            let mut first = [0];
            peer.read_exact(&mut first).unwrap();
            remote.stop().unwrap();
            let mut received = first.to_vec();
            peer.read_to_end(&mut received).unwrap();
            received
        });
        assert_responses(&received, 1);
    });
}

/// The worker would run for ever if the coroutine did not hear of it.
#[test]
fn a_peer_that_goes_away_in_the_middle_ends_the_connection() {
    on_every_mechanism_and_cramped(|options| {
        serve(options, |mut peer, _| {
            peer.write_all(b"???").unwrap();
            peer.read_exact(&mut [0; 100]).unwrap();
        });
    });
}

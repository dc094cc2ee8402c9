//! A listener that cannot accept leaves its worker to the others.

use std::net::UdpSocket;
use std::sync::mpsc;
use std::thread;

use mech::net::{AcceptBatch, Executor, Listener, Net, NetOptions};

use crate::{PATIENCE, echo, on_every_mechanism};

/// accept(2) of a socket that is not for connections fails with `EOPNOTSUPP`, as often as it is called.
#[test]
fn an_error_that_lasts_does_not_keep_the_worker_from_stopping() {
    on_every_mechanism(|mechanism| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .send_to(b"?", socket.local_addr().unwrap())
            .unwrap();
        let (ready, worker) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            let net = Net::open(&NetOptions::new(mechanism)).unwrap();
            ready.send(net.remote()).unwrap();
            let mut executor = Executor::new(&net, PATIENCE);
            let listener = Listener::open(&net, socket.into()).unwrap();
            executor.listen(listener, |listener| async move {
                let trouble = |error: &std::io::Error| {
                    // Nobody listens any more once the worker has been stopped.
                    let _ = tell.send(error.raw_os_error());
                    false
                };
                listener.run(AcceptBatch::All, trouble).await.unwrap();
            });
            executor.run(echo).unwrap();
            end.send(()).unwrap();
        });
        let remote = worker.recv_timeout(PATIENCE).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Some(libc::EOPNOTSUPP));
        remote.stop().unwrap();
        ended.recv_timeout(PATIENCE).expect("the worker hears that it is to stop");
        thread.join().unwrap();
    });
}

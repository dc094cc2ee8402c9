//! A worker that cannot take connections does not keep them from the others.

use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::thread;

use drover_mech::accept::{self, ListenPlan, ListenerHandle, ObeyedFields, Strategy};
use drover_mech::mechanisms;
use drover_mech::net::{AcceptBatch, Body, Conn, Executor, Listener, Net, NetOptions};

use crate::crew::{Client, Crew, plan, unix_plan};
use crate::{PATIENCE, on_every_pair, seccomp};

/// Whether each worker has a socket of its own, in which connections wait for it alone.
fn keeps_its_share(strategy: &Strategy) -> bool {
    let handles = strategy.open(&plan()).unwrap().handles;
    let file = |handle: &ListenerHandle| {
        handle.descriptors().next().map(|fd| rustix::fs::fstat(fd).unwrap().st_ino)
    };
    file(&handles[0]) != file(&handles[1])
}

/// The first worker to register is told by accept4(2) that its table of descriptors is full.
#[test]
fn connections_go_to_workers_that_have_descriptors() {
    on_every_pair(|strategy, mechanism| {
        if keeps_its_share(strategy) {
            println!(
                "left out: each worker has a socket of its own, and its connections wait there"
            );
            return;
        }
        if strategy.settings.contains(ObeyedFields::WAKE_POLICY) {
            println!("left out: one thread accepts for all, and is nobody's");
            return;
        }
        let full = |number: usize| {
            if number == 0
                && let Err(error) = seccomp::refuse(&[libc::SYS_accept4], libc::EMFILE)
            {
                drover_testing::skip!("no seccomp: {error}");
            }
        };
        let folder = tempfile::tempdir().unwrap();
        for plan in [plan(), unix_plan(folder.path())] {
            let crew = Crew::with(strategy, mechanism, &plan, full);
            for round in 0..10 {
                let mut client = crew.connect();
                client.send("alone");
                client.expect("alone");
                let mut clients: Vec<Client> = (0..5).map(|_| crew.connect()).collect();
                clients.iter_mut().for_each(|client| client.send(&format!("{round}")));
                for client in &mut clients {
                    client.expect(&format!("{round}"));
                }
            }
        }
    });
}

/// A worker that has won many connections puts its listener behind those of the others, by
/// epoll_ctl(2), which may fail for want of memory.
#[test]
fn a_connection_is_kept_though_its_listener_cannot_give_way() {
    let Some(exclusive) = accept::by_name("exclusive") else { return };
    for &mechanism in mechanisms::ALL {
        let by_epoll = mechanism.waits_with.contains(&"epoll_pwait2");
        if !by_epoll || exclusive.goes_with(mechanism).is_err() {
            continue;
        }
        // Connections come with their first bytes, and need not be registered to be answered.
        let mut plan = ListenPlan { workers: NonZeroUsize::MIN, ..plan() };
        plan.listen.defer = true;
        let mut made = exclusive.open(&plan).unwrap();
        let handle = made.handles.remove(0);
        let (ready, worker) = mpsc::channel();
        let thread = thread::spawn(move || {
            let net = Net::open(&NetOptions::new(mechanism)).unwrap();
            let mut executor = Executor::new(&net, PATIENCE);
            let listener = Listener::enter(&net, handle).unwrap();
            let refused = seccomp::refuse(&[libc::SYS_epoll_ctl], libc::ENOMEM);
            executor.listen(listener, |listener| async move {
                listener.run(AcceptBatch::All, |_| false).await.unwrap();
            });
            ready.send((net.remote(), refused.map_err(|error| error.to_string()))).unwrap();
            executor.run(answer_once).unwrap();
        });
        let (remote, refused) = worker.recv_timeout(PATIENCE).unwrap();
        match refused {
            Ok(()) => {
                for number in 0..40 {
                    let mut client = Client::of(made.address.ip().unwrap());
                    client.send(&format!("{number}"));
                    client.expect(&format!("{number}"));
                }
            }
            Err(error) => drover_testing::skip!("no seccomp: {error}"),
        }
        remote.stop().unwrap();
        thread.join().unwrap();
    }
}

async fn answer_once(conn: Conn<'_>) {
    if let Ok(1..) = conn.fill().await {
        conn.io(|io| {
            io.output.push(0);
            io.output.extend_from_slice(io.input);
            (io.input.len(), ())
        });
        // A client that has gone finds out by itself.
        let _ = conn.send(Body::None, None).await;
    }
}

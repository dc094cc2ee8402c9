//! One connection: a coroutine that stays idle, or sends requests over one of the protocols.
//!
//! One coroutine serves every dispatch mechanism.

mod connect;
pub(crate) mod link;

use drover_mech::net::Conn;

use crate::run::worker::{Phase, Worker};
use crate::run::{client, http2};
use link::{Attempts, LONGEST_REST, Link};

/// The coroutine of connection `number` of a worker. The idle connections have the lowest numbers.
pub(crate) async fn run(conn: Conn<'_>, worker: &Worker<'_>, number: u32) {
    let link = Link::new(conn, worker, number);
    match number.checked_sub(worker.idle) {
        None => stay_idle(link).await,
        // In memory of its own: a connection of HTTP/1 needs much less.
        Some(index) if worker.plan.is_http2() => Box::pin(http2::run(link, index)).await,
        Some(index) => client::run(link, index).await,
    }
}

/// Keeps an idle connection open, and sends nothing on it.
async fn stay_idle(mut link: Link<'_, '_>) {
    let worker = link.worker;
    let mut opened = link.connect().await;
    worker.held_idle(opened);
    worker.opened();
    let mut attempts = Attempts::new();
    loop {
        let since = worker.net.now();
        if opened {
            let heard = link.stay().await;
            if worker.window.phase() == Phase::Over {
                return;
            }
            link.closed_by_peer(heard);
            worker.lost_idle();
        }
        if !worker.plan.reopen_idle {
            return;
        }
        let now = worker.net.now();
        if now - since >= LONGEST_REST {
            attempts.reset();
        }
        attempts.sleep(&link).await;
        if worker.window.phase() == Phase::Over {
            return;
        }
        opened = link.connect().await;
        let connections = &mut worker.account.borrow_mut().connections;
        connections.idle_held += u64::from(opened);
        connections.reopened += u64::from(opened);
    }
}

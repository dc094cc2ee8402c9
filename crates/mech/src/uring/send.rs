//! Replies that nobody waits for.
//!
//! A post is a send that the kernel either makes whole while it is submitted, without a word, or
//! ends with a completion that says how far it came (`MSG_DONTWAIT`, `MSG_WAITALL` and
//! `IOSQE_CQE_SKIP_SUCCESS` together). So a reply that fits into the socket's buffer, as nearly
//! every small one does, costs no completion and no second look of its coroutine, and the worker's
//! wait ends with what clients send, not with what it has sent itself.
//!
//! To the coroutine a post is over at once, as a send(2) is over when the kernel has copied. What is
//! left of one that fell short goes by an ordinary send; until that is over the connection receives
//! nothing, not even its end, so that nobody closes it before.

use std::io;

use super::state::{Armed, CompletionDriver, Post, STREAM_OPEN, descriptor};
use crate::key::Key;
use crate::net::buffers::{Body, Output};
use crate::net::slot::Slot;
use crate::uring::in_flight::{Extent, NONE, Sending, Work};

/// The most bytes of a body worth trying to send without waiting for room.
const POST_MOST: u64 = 32 * 1024;

impl CompletionDriver {
    /// See [`crate::net::contract::Driver::post`].
    pub(super) fn try_post(&mut self, key: Key, slot: &Slot, output: &mut Output) -> u64 {
        let small = match &output.body {
            Body::None | Body::Shared(_) => output.body_left() <= POST_MOST,
            Body::File { .. } => false,
        };
        let Ok(fd) = descriptor(slot) else { return 0 };
        if !small || output.is_empty() || self.states[key.slot as usize].send != NONE {
            return 0;
        }
        let len = output.left();
        let sending = self.sending(output);
        let state = &mut self.states[key.slot as usize];
        state.post = Post::UnderWay;
        state.send = self.requests.post(key, fd, sending);
        len
    }

    /// The connection asks for bytes behind a post that may not be over: a receive is armed if there
    /// is none, and what is there is held back.
    pub(super) fn receive_behind_post(
        &mut self,
        index: u32,
        slot: &mut Slot,
        last: bool,
    ) -> io::Result<()> {
        let full = slot.input.as_mut().is_some_and(|input| input.spare().is_empty());
        let kept = self.overflow.contains_key(&index);
        let state = &mut self.states[index as usize];
        if full || kept || last || state.fresh > 0 || state.end != STREAM_OPEN {
            self.await_post(index);
        } else if state.armed == Armed::Nothing {
            self.arm_receive(index, slot, Extent::All)?;
        }
        Ok(())
    }

    /// The coroutine asks again when its post is over. Nobody but the next turn says that of one that
    /// it submits: it must not wait for something else.
    pub(super) fn await_post(&mut self, index: u32) {
        self.states[index as usize].post = Post::Awaited;
        self.awaited = true;
    }

    /// A send behind a post, or a post that fell short, has ended with `result`: the rest follows.
    pub(super) fn post_ended(
        &mut self,
        key: Key,
        slot: &Slot,
        mut sending: Box<Sending>,
        result: i32,
    ) {
        sending.output.sent(u64::try_from(result).unwrap_or(0));
        let over = sending.output.is_empty();
        let state = &mut self.states[key.slot as usize];
        if over || (result < 0 && result != -libc::EAGAIN) {
            state.post = Post::Over;
            if !over {
                state.end = result as i16;
            }
            self.recycle(sending);
        } else if let Ok(fd) = descriptor(slot) {
            state.send = self.requests.submit(key, fd, Work::Send(sending));
        }
    }

    /// The posts that have had no completion are over.
    pub(super) fn settle_posts(&mut self, slots: &[Slot], resume: &mut Vec<u32>) {
        if !self.requests.posts_are_over() {
            return;
        }
        self.awaited = false;
        while let Some(id) = self.requests.take_post() {
            let (key, _) = self.requests.get(id);
            if let Work::Post(sending) = self.requests.retire(id) {
                self.recycle(sending);
            }
            let state = &mut self.states[key.slot as usize];
            if state.send == id && slots[key.slot as usize].generation == key.generation {
                state.send = NONE;
                if std::mem::replace(&mut state.post, Post::Over) == Post::Awaited {
                    resume.push(key.slot);
                }
            }
        }
    }
}

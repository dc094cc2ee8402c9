//! Posts: sends of small responses that no coroutine waits for.
//!
//! A post is a send with `MSG_DONTWAIT`, `MSG_WAITALL` and `IOSQE_CQE_SKIP_SUCCESS`. If all its bytes
//! fit into the socket's buffer, as nearly every small response does, the kernel sends them when the
//! request is submitted, and there is no completion. Otherwise a completion says how many bytes were
//! sent. So a small response costs no completion and does not resume its coroutine, and the worker's
//! wait ends only when clients send something.
//!
//! For the coroutine a post is over at once, as a send(2) is over when the kernel has copied the bytes.
//! If bytes of a post are left, an ordinary send sends them. Until that send is over the driver reports
//! nothing that the connection receives, not even the end of the stream, so that the coroutine does not
//! close the connection too early.

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
        let in_memory = !matches!(output.body, Body::File { .. });
        let small = in_memory && output.body_left() <= POST_MOST;
        let Ok(fd) = descriptor(slot) else { return 0 };
        if !small || output.is_empty() || self.states[key.slot as usize].request != NONE {
            return 0;
        }
        let len = output.left();
        let sending = self.sending(output);
        let state = &mut self.states[key.slot as usize];
        state.post = Post::UnderWay;
        state.request = self.requests.post(key, fd, sending);
        len
    }

    /// Handles a fill of a connection with a post that may not be over. Arms a receive if none is armed;
    /// received bytes are not reported until the post is over.
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

    /// Has the coroutine resumed when its post is over. The next turn submits the post and then knows
    /// whether it is over, so that turn must not wait for an event.
    pub(super) fn await_post(&mut self, index: u32) {
        self.states[index as usize].post = Post::Awaited;
        self.awaited = true;
    }

    /// Handles the end of a post with bytes left, or of the send that follows such a post. `result` is the
    /// number of bytes sent, or −errno. Sends the bytes that are left.
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
            self.counts.short_sends += u64::from(result >= 0);
            state.request = self.requests.submit(key, fd, Work::Send(sending));
        }
    }

    /// Ends the posts that have had no completion, once all completions have been taken.
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
            if state.request == id && slots[key.slot as usize].generation == key.generation {
                state.request = NONE;
                if std::mem::replace(&mut state.post, Post::Over) == Post::Awaited {
                    resume.push(key.slot);
                }
            }
        }
    }
}

//! The buffers of a connection: owned by its slot, lent from a pool, and given
//! back as soon as they are empty, so that an idle connection owns none.

use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Received bytes that the coroutine has not consumed yet.
pub(crate) struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    fn new(capacity: usize) -> Input {
        Input { bytes: vec![0; capacity].into_boxed_slice(), start: 0, end: 0 }
    }

    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The room behind the received bytes, after moving them to the front if
    /// there is none. Empty when the buffer is full.
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    /// Copies as much of `bytes` as there is room for, and says how much that was.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> usize {
        let spare = self.spare();
        let count = spare.len().min(bytes.len());
        spare[..count].copy_from_slice(&bytes[..count]);
        self.received(count);
        count
    }

    pub(crate) fn received(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.bytes.len());
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }
}

/// What follows the head of a message.
#[derive(Clone, Debug, Default)]
pub enum Body {
    /// Nothing, or it stands behind the head already.
    #[default]
    None,
    /// Bytes in memory, sent from where they are.
    Shared(Rc<[u8]>),
    /// `len` bytes of a file from `offset` on, moved by the worker's file backend.
    File {
        /// The open file; it stays open until the last byte is sent.
        file: Rc<OwnedFd>,
        /// First byte to send.
        offset: u64,
        /// How many bytes to send. A file that turns out shorter ends the
        /// connection.
        len: u64,
    },
}

impl Body {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Body::None => 0,
            Body::Shared(bytes) => bytes.len() as u64,
            Body::File { len, .. } => *len,
        }
    }
}

/// Bytes to send that the kernel has not taken yet: heads (and small bodies
/// behind them), then at most one [`Body`].
#[derive(Default)]
pub(crate) struct Output {
    pub(crate) head: Vec<u8>,
    pub(crate) head_sent: usize,
    pub(crate) body: Body,
    pub(crate) body_sent: u64,
}

impl Output {
    pub(crate) fn head_left(&self) -> &[u8] {
        &self.head[self.head_sent..]
    }

    pub(crate) fn body_left(&self) -> u64 {
        self.body.len() - self.body_sent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head_left().is_empty() && self.body_left() == 0
    }

    pub(crate) fn left(&self) -> u64 {
        self.head_left().len() as u64 + self.body_left()
    }

    /// Accounts for `count` bytes that the kernel took.
    pub(crate) fn sent(&mut self, count: u64) {
        let head = count.min(self.head_left().len() as u64);
        self.head_sent += head as usize;
        self.body_sent += count - head;
    }

    pub(crate) fn reset(&mut self) {
        self.head.clear();
        self.head_sent = 0;
        self.body = Body::None;
        self.body_sent = 0;
    }
}

/// A worker's buffers that no connection needs now. They are boxed because a
/// slot holds the pointer: moving one in or out moves no buffer.
#[expect(clippy::vec_box)]
pub(crate) struct Pool {
    input_capacity: usize,
    inputs: Vec<Box<Input>>,
    outputs: Vec<Box<Output>>,
}

/// Buffers kept for reuse; what a burst needed beyond it goes back to the allocator.
const KEPT: usize = 256;
/// An output that grew beyond this is not worth keeping.
const OUTPUT_KEPT_CAPACITY: usize = 64 * 1024;

impl Pool {
    pub(crate) fn new(input_capacity: usize) -> Pool {
        Pool { input_capacity, inputs: Vec::new(), outputs: Vec::new() }
    }

    pub(crate) fn take_input(&mut self) -> Box<Input> {
        self.inputs.pop().unwrap_or_else(|| Box::new(Input::new(self.input_capacity)))
    }

    pub(crate) fn give_input(&mut self, mut input: Box<Input>) {
        if self.inputs.len() < KEPT {
            (input.start, input.end) = (0, 0);
            self.inputs.push(input);
        }
    }

    pub(crate) fn take_output(&mut self) -> Box<Output> {
        self.outputs.pop().unwrap_or_default()
    }

    pub(crate) fn give_output(&mut self, mut output: Box<Output>) {
        output.reset();
        if self.outputs.len() < KEPT && output.head.capacity() <= OUTPUT_KEPT_CAPACITY {
            self.outputs.push(output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_moves_to_the_front_when_it_runs_out_of_room() {
        let mut input = Input::new(4);
        input.spare().copy_from_slice(b"abcd");
        input.received(4);
        assert!(input.spare().is_empty());
        input.consume(3);
        assert_eq!(input.filled(), b"d");
        assert_eq!(input.spare().len(), 3);
        assert_eq!(input.filled(), b"d");
        input.consume(1);
        assert!(input.is_empty());
        assert_eq!(input.spare().len(), 4);
    }

    #[test]
    fn output_accounts_over_the_border_of_head_and_body() {
        let mut output = Output { head: b"head".to_vec(), ..Output::default() };
        output.body = Body::Shared(Rc::from(&b"body"[..]));
        output.sent(3);
        assert_eq!((output.head_left(), output.body_left()), (&b"d"[..], 4));
        output.sent(3);
        assert_eq!((output.head_left(), output.body_left()), (&b""[..], 2));
        output.sent(2);
        assert!(output.is_empty());
    }
}

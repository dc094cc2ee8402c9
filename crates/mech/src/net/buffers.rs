//! The buffers of a connection. A slot takes them from a pool, and gives them
//! back as soon as they are empty, so an idle connection has none.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use drover_sys::reserve::{make_room, try_zeroed};

use crate::files::served::ServedFile;
use crate::net::shared_bytes::SharedBytes;

/// Received bytes that the coroutine has not consumed yet. If the connection has a layer ([`super::Layer`]), plain bytes stand in front,
/// and behind them what it has not opened yet.
pub(crate) struct Input {
    bytes: Box<[u8]>,
    start: usize,
    /// Where the plain bytes end: `end`, unless a layer opens what is received.
    plain: usize,
    end: usize,
    /// Whether a layer opens what is received.
    is_sealed: bool,
}

impl Input {
    fn new(capacity: usize) -> io::Result<Input> {
        Ok(Input { bytes: try_zeroed(capacity)?, start: 0, plain: 0, end: 0, is_sealed: false })
    }

    /// A buffer that is exactly as long as `parts` together, and filled with them.
    fn of(parts: [&[u8]; 2]) -> io::Result<Input> {
        let mut bytes = Vec::new();
        make_room(&mut bytes, parts[0].len() + parts[1].len())?;
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let bytes = bytes.into_boxed_slice();
        let end = bytes.len();
        Ok(Input { bytes, start: 0, plain: end, end, is_sealed: false })
    }

    /// The plain bytes.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.plain]
    }

    /// All bytes.
    fn all(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The bytes that the layer has not opened.
    pub(crate) fn sealed(&mut self) -> &mut [u8] {
        &mut self.bytes[self.plain..self.end]
    }

    /// Of the sealed bytes, the first `used` have been opened, and `plain` bytes stand in their place.
    pub(crate) fn opened(&mut self, used: usize, plain: usize) {
        debug_assert!(plain <= used && self.plain + used <= self.end);
        self.bytes.copy_within(self.plain + used..self.end, self.plain + plain);
        self.end -= used - plain;
        self.plain += plain;
    }

    /// From now on a layer opens what is received, and what is here already.
    pub(crate) fn seal(&mut self) {
        (self.is_sealed, self.plain) = (true, self.start);
    }

    /// Takes over how much of `other`, whose bytes these are the first of, is plain.
    fn divide_as(&mut self, other: &Input) {
        if other.is_sealed {
            (self.is_sealed, self.plain) = (true, self.start + other.filled().len());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The room behind the received bytes. If there is none, the bytes are moved to
    /// the front first. Empty if the buffer is full.
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.plain, self.end) = (0, 0, 0);
        } else if self.end == self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.plain, self.end) = (self.plain - self.start, self.end - self.start);
            self.start = 0;
        }
        &mut self.bytes[self.end..]
    }

    /// Copies as many of `bytes` as there is room for, and returns how many.
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
        if !self.is_sealed {
            self.plain = self.end;
        }
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.plain);
    }
}

/// The body of a message, which follows its head.
#[derive(Clone, Debug, Default)]
pub enum Body {
    /// No body, or one that stands in the output behind the head.
    #[default]
    None,
    /// Bytes in memory, which are sent without a copy into the output.
    Shared(Rc<[u8]>),
    /// Bytes in memory that connections of all workers may send.
    ProcessWide(Arc<SharedBytes>),
    /// `len` bytes of a file from `offset` on, sent by the worker's file backend.
    File {
        /// The open file. It stays open until the last byte is sent.
        file: Rc<ServedFile>,
        /// The first byte to send.
        offset: u64,
        /// How many bytes to send. If the file is shorter, the connection fails.
        len: u64,
    },
}

impl Body {
    /// How many bytes the body has.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self {
            Body::File { len, .. } => *len,
            _ => self.in_memory().len() as u64,
        }
    }

    /// The bytes that are in memory; none for a file.
    pub(crate) fn in_memory(&self) -> &[u8] {
        match self {
            Body::Shared(bytes) => bytes,
            Body::ProcessWide(bytes) => bytes.as_bytes(),
            Body::None | Body::File { .. } => &[],
        }
    }
}

/// The bytes that a connection has to send: heads and small bodies, then at most
/// one [`Body`].
pub(crate) struct Output {
    pub(crate) head: Vec<u8>,
    pub(crate) head_sent: usize,
    pub(crate) body: Body,
    pub(crate) body_sent: u64,
    /// How many bytes of the body may be sent at once: [`crate::fileio::Transfer::at_once`].
    pub(crate) at_once: u64,
}

impl Default for Output {
    fn default() -> Output {
        Output { head: Vec::new(), head_sent: 0, body: Body::None, body_sent: 0, at_once: u64::MAX }
    }
}

impl Output {
    pub(crate) fn head_left(&self) -> &[u8] {
        &self.head[self.head_sent..]
    }

    pub(crate) fn body_left(&self) -> u64 {
        self.body.size() - self.body_sent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head_left().is_empty() && self.body_left() == 0
    }

    pub(crate) fn left(&self) -> u64 {
        self.head_left().len() as u64 + self.body_left()
    }

    /// The bytes of a body in memory to send next, at most [`Output::at_once`]; none for a file.
    pub(crate) fn next_in_memory(&self) -> &[u8] {
        // A file's body is not in memory, however much of it is sent.
        let left = self.body.in_memory().get(self.body_sent as usize..).unwrap_or_default();
        &left[..left.len().min(usize::try_from(self.at_once).unwrap_or(usize::MAX))]
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
        self.at_once = u64::MAX;
    }
}

/// A worker's free buffers. They are boxed, so that moving one between the pool and
/// a slot moves only a pointer.
#[expect(clippy::vec_box)]
pub(crate) struct BufferPool {
    input_capacity: usize,
    /// [`super::NetOptions::buffers_kept`].
    kept: usize,
    inputs: Vec<Box<Input>>,
    /// How many input buffers of full size exist, in the pool and in slots.
    large: usize,
    outputs: Vec<Box<Output>>,
    /// Those for sealed pieces.
    sealed: Vec<Box<Output>>,
    /// How many outputs slots have: this many connections are sending.
    outputs_lent: u64,
    /// How many bytes of outputs were freed.
    outputs_freed: usize,
}

/// How many outputs of any capacity the pool keeps for sealed pieces. Where sockets take a piece at once, one is in use at a time.
const SEALED_KEPT: usize = 4;

/// The largest capacity, in bytes, of an output that the pool keeps.
const OUTPUT_KEPT_CAPACITY: usize = 64 * 1024;

impl BufferPool {
    pub(crate) fn new(input_capacity: usize, kept: usize) -> BufferPool {
        BufferPool {
            input_capacity,
            kept,
            inputs: Vec::new(),
            large: 0,
            outputs: Vec::new(),
            sealed: Vec::new(),
            outputs_lent: 0,
            outputs_freed: 0,
        }
    }

    /// Takes an empty buffer of full size, if the pool has one.
    #[inline]
    pub(crate) fn free_input(&mut self) -> Option<Box<Input>> {
        self.inputs.pop()
    }

    /// Takes an empty buffer of full size.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn take_input(&mut self) -> io::Result<Box<Input>> {
        if let Some(free) = self.free_input() {
            return Ok(free);
        }
        let input = Box::new(Input::new(self.input_capacity)?);
        self.large += 1;
        Ok(input)
    }

    pub(crate) fn give_input(&mut self, mut input: Box<Input>) {
        if self.is_small(&input) {
            return;
        }
        if self.inputs.len() < self.kept {
            (input.start, input.plain, input.end) = (0, 0, 0);
            input.is_sealed = false;
            self.inputs.push(input);
        } else {
            self.large -= 1;
        }
    }

    /// Whether an input buffer is only as large as its content ([`BufferPool::shrink`]).
    pub(crate) fn is_small(&self, input: &Input) -> bool {
        input.bytes.len() < self.input_capacity
    }

    /// Replaces `input` by a buffer that is only as large as its content, for a connection that waits in
    /// the middle of a message. A buffer that is more than half full is returned unchanged, and so is each if there is no
    /// memory for another one.
    pub(crate) fn shrink(&mut self, input: Box<Input>) -> Box<Input> {
        if self.is_small(&input) || input.all().len() > self.input_capacity / 2 {
            return input;
        }
        let Ok(mut small) = Input::of([input.all(), &[]]) else { return input };
        small.divide_as(&input);
        self.give_input(input);
        Box::new(small)
    }

    /// A small buffer with what was received `before` and `bytes` behind it, if the pool has no free large buffer and may not keep
    /// another one. So a burst of short messages does not allocate large buffers. `None` also if there is no memory for it.
    pub(crate) fn small_of(&self, before: Option<&Input>, bytes: &[u8]) -> Option<Box<Input>> {
        let earlier = before.map_or(&[][..], Input::all);
        let scarce = self.inputs.is_empty() && self.large >= self.kept;
        if !scarce || earlier.len() + bytes.len() >= self.input_capacity {
            return None;
        }
        let mut small = Input::of([earlier, bytes]).ok()?;
        before.into_iter().for_each(|before| small.divide_as(before));
        Some(Box::new(small))
    }

    /// A buffer of full size with the content of `small`.
    ///
    /// # Errors
    /// `ENOMEM`.
    #[cold]
    pub(crate) fn grow(&mut self, small: &Input) -> io::Result<Box<Input>> {
        let mut input = self.take_input()?;
        input.append(small.all());
        input.divide_as(small);
        Ok(input)
    }

    /// Frees the buffers that are kept for later.
    pub(crate) fn shrink_to_used(&mut self) {
        self.large -= self.inputs.len();
        (self.inputs, self.outputs, self.sealed) = (Vec::new(), Vec::new(), Vec::new());
    }

    pub(crate) fn take_output(&mut self) -> Box<Output> {
        self.outputs_lent += 1;
        self.outputs.pop().unwrap_or_default()
    }

    /// How many connections have something to send, or are about to write it.
    pub(crate) fn outputs_lent(&self) -> u64 {
        self.outputs_lent
    }

    pub(crate) fn give_output(&mut self, mut output: Box<Output>) {
        self.outputs_lent -= 1;
        output.reset();
        if self.outputs.len() < self.kept && output.head.capacity() <= OUTPUT_KEPT_CAPACITY {
            self.outputs.push(output);
        } else {
            self.outputs_freed += output.head.capacity();
        }
    }

    /// Counts bytes of outputs that a driver has freed.
    pub(crate) fn add_freed(&mut self, bytes: usize) {
        self.outputs_freed += bytes;
    }

    /// Whether `most` bytes of outputs were freed since this was last so.
    pub(crate) fn has_freed_outputs(&mut self, most: usize) -> bool {
        let has = self.outputs_freed >= most;
        if has {
            self.outputs_freed = 0;
        }
        has
    }

    /// Takes an output for a piece that is to be sealed, which may be larger than others.
    pub(crate) fn take_sealed(&mut self) -> Box<Output> {
        self.outputs_lent += 1;
        self.sealed.pop().unwrap_or_default()
    }

    /// Gives back what [`BufferPool::take_sealed`] has taken.
    pub(crate) fn give_sealed(&mut self, mut output: Box<Output>) {
        if self.sealed.len() < SEALED_KEPT {
            self.outputs_lent -= 1;
            output.reset();
            self.sealed.push(output);
        } else {
            self.give_output(output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: usize = 256;

    #[test]
    fn input_moves_to_the_front_when_it_runs_out_of_room() {
        let mut input = Input::new(4).unwrap();
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

    /// The plain bytes, and those that the layer has not opened.
    fn halves(input: &Input) -> (&[u8], &[u8]) {
        (input.filled(), &input.bytes[input.plain..input.end])
    }

    #[test]
    fn what_a_layer_has_opened_stands_in_front_of_what_it_has_not() {
        let mut pool = BufferPool::new(8, KEPT);
        let mut input = pool.take_input().unwrap();
        input.seal();
        input.append(b"<a><b");
        assert_eq!(halves(&input), (&b""[..], &b"<a><b"[..]));
        input.sealed()[0] = b'a';
        input.opened(3, 1);
        assert_eq!(halves(&input), (&b"a"[..], &b"<b"[..]));
        let mut small = pool.shrink(input);
        assert_eq!(halves(&small), (&b"a"[..], &b"<b"[..]));
        let mut input = pool.grow(&small).unwrap();
        input.append(b">");
        assert_eq!(halves(&input), (&b"a"[..], &b"<b>"[..]));
        input.consume(9);
        assert!(input.filled().is_empty() && !input.is_empty());
        input.spare();
        assert_eq!(&*input.sealed(), b"<b>");
        pool.give_input(input);
        let mut input = pool.take_input().unwrap();
        input.append(b"plain");
        assert_eq!(input.filled(), b"plain", "a buffer is as good as new");
        small.seal();
        assert_eq!(&*small.sealed(), b"a<b");
    }

    #[test]
    fn an_input_shrinks_to_what_it_holds_and_grows_again() {
        let mut pool = BufferPool::new(8, KEPT);
        let mut input = pool.take_input().unwrap();
        input.append(b"abcd");
        input.consume(1);
        let small = pool.shrink(input);
        assert_eq!((small.filled(), small.bytes.len()), (&b"bcd"[..], 3));
        assert_eq!(pool.inputs.len(), 1);
        let mut input = pool.grow(&small).unwrap();
        assert_eq!((input.append(b"efghij"), input.filled()), (5, &b"bcdefghi"[..]));
        input = pool.shrink(input);
        assert_eq!(input.bytes.len(), 8, "it is more than half full");
        pool.give_input(small);
        assert!(pool.inputs.is_empty(), "a small one is not kept");
    }

    #[test]
    fn bursts_beyond_what_is_kept_have_small_buffers() {
        let mut pool = BufferPool::new(8, KEPT);
        let large: Vec<_> = (0..KEPT).map(|_| pool.take_input().unwrap()).collect();
        let before = Input::of([b"abc", b""]).unwrap();
        assert_eq!(pool.small_of(Some(&before), b"de").unwrap().filled(), b"abcde");
        assert!(pool.small_of(Some(&before), b"defgh").is_none(), "it would be no small one");
        let beyond = pool.take_input().unwrap();
        large.into_iter().chain([beyond]).for_each(|input| pool.give_input(input));
        assert_eq!((pool.inputs.len(), pool.large), (KEPT, KEPT));
        assert!(pool.small_of(None, b"a").is_none(), "large ones are free");
    }

    #[test]
    fn a_body_in_memory_is_sent_in_pieces_of_the_budget() {
        let fill = |bytes: &mut [u8]| {
            bytes.copy_from_slice(b"abcdefgh");
            Ok(())
        };
        let process_wide = Body::ProcessWide(SharedBytes::new(8, (), fill).unwrap());
        for body in [Body::Shared(Rc::from(&b"abcdefgh"[..])), process_wide] {
            let mut output = Output { body, ..Output::default() };
            assert_eq!((output.body_left(), output.next_in_memory()), (8, &b"abcdefgh"[..]));
            output.at_once = 3;
            output.sent(3);
            assert_eq!(output.next_in_memory(), b"def");
            output.sent(4);
            assert_eq!(output.next_in_memory(), b"h");
        }
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

//! What one worker serves: it turns the bytes that a connection has received into the bytes that it
//! is to send. No I/O on sockets here, so the same site serves over every mechanism.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use http1::response::{Common, Connection};
use http1::{Framing, Limits, Method, Refusal, Request, Status, request};
use mech::Key;
use mech::net::{Answer, Body, Io, Net};
use mech::opening::Opening;
use tracing::warn;

use super::clock::{Clock, Throttle};
use super::files::{Asker, Files, Found, Lost};
use super::memo::Memo;
use super::reply::{self, Fixed, Reply, SERVER};
use super::stats::{Counters, Tally};
use super::trace::Tracer;
use super::watch::Watcher;

/// The longest heads that are read; the input buffer is as long as the longest.
pub(super) const LIMITS: Limits = Limits { target: 8 * 1024, head: 16 * 1024 };

/// A request's body is passed over up to this length; behind a longer one the connection is closed.
const SKIPPED_MOST: u64 = 64 * 1024;

/// Replies of pipelined requests are gathered up to this length, then sent: with one more behind it
/// the buffer stays within what its pool keeps for reuse.
const GATHERED_MOST: usize = 32 * 1024;

/// How long a connection may take for what; `None`: as long as it likes.
#[derive(Clone, Copy)]
pub(super) struct TimeOuts {
    /// From the first byte of a request to the end of its head (or of its body).
    pub(super) header: Option<Duration>,
    /// Between requests, and for taking any byte of a reply.
    pub(super) idle: Option<Duration>,
}

/// What is to be done after the requests in the input were answered.
pub(super) struct Step {
    /// Whether there is a reply to send.
    pub(super) answered: bool,
    pub(super) next: Next,
}

/// A request that was answered.
struct Answered {
    reply: Reply,
    /// How much of the input is done with.
    len: usize,
    next: Next,
}

/// What comes after the output is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Receive: the input holds no complete request.
    Receive,
    /// Look at the input again.
    Again,
    /// Wait until a file is open, then look at the input again.
    Open,
    /// Pass over so many bytes that have not been received yet: a request's body.
    Skip(u64),
    /// Close.
    Close,
    /// Close, after reading what the client may still be sending: closing with unread input makes
    /// the kernel send a reset, which can destroy the reply on its way (RFC 9112 section 9.6).
    Linger,
}

/// What is served.
pub(super) enum Content {
    /// Files; of those not kept, parts of at most `in_memory` bytes are read, and the others left to
    /// the file backend.
    Files { files: Box<Files>, in_memory: u64 },
    /// Always the same bytes.
    Fixed(Fixed),
}

/// A worker's site.
pub(super) struct Site<'w> {
    state: RefCell<State>,
    pub(super) counters: &'w Counters,
    pub(super) time_outs: TimeOuts,
    /// Where the time of replies is written down, if it is.
    pub(super) tracer: Option<Tracer>,
}

struct State {
    clock: Clock,
    memo: Memo,
    content: Content,
    complaints: Throttle,
}

impl<'w> Site<'w> {
    pub(super) fn new(
        content: Content,
        time_outs: TimeOuts,
        counters: &'w Counters,
        net: &Net,
        tracer: Option<Tracer>,
    ) -> Site<'w> {
        let clock = Clock::new(net.now());
        let mut state =
            State { clock, memo: Memo::default(), content, complaints: Throttle::default() };
        state.prepare();
        Site { state: RefCell::new(state), counters, time_outs, tracer }
    }

    /// Answers the complete requests in the input, as far as one send can carry the replies, and
    /// says how much of the input that was, and what is to be sent behind the output.
    ///
    /// `opening` holds the file that the first request has waited for, and afterwards, if the step is
    /// [`Next::Open`], the one that it is to wait for.
    pub(super) fn answer(
        &self,
        key: Key,
        io: Io<'_>,
        net: &Net,
        opening: &mut Option<Opening>,
    ) -> (Answer, Step) {
        let Io { input, output } = io;
        let state = &mut *self.state.borrow_mut();
        if state.clock.tick(net.now()) {
            state.prepare();
        }
        let mut step = Step { answered: false, next: Next::Receive };
        let mut body = Body::None;
        let mut consumed = 0;
        let (given, counters) = (opening.take(), self.counters);
        let mut asker = Asker { net, key, counters, given, asked: opening };
        while consumed < input.len() && step.next == Next::Receive {
            let before = output.len();
            let answered = match state.repeat(&input[consumed..], net, output) {
                Some((head_len, reply)) => {
                    self.note(&reply);
                    Some(Answered { reply, len: head_len, next: Next::Receive })
                }
                None => self.answer_one(state, &input[consumed..], &mut asker, output),
            };
            let Some(Answered { reply, len, next }) = answered else { break };
            if let Some(tracer) = &self.tracer {
                let written = output.len() - before;
                tracer.note(key, net.now(), reply.status, written, &reply.body);
            }
            consumed += len;
            (step.answered, step.next, body) = (true, next, reply.body);
            if !matches!(body, Body::None) || output.len() >= GATHERED_MOST {
                if consumed < input.len() && step.next == Next::Receive {
                    step.next = Next::Again;
                }
                break;
            }
        }
        if asker.asked.is_some() {
            step.next = Next::Open;
            if let Some(tracer) = &self.tracer {
                tracer.opening(key, net.now());
            }
        }
        let goes_on = matches!(step.next, Next::Receive | Next::Skip(_));
        (Answer { consumed, body, goes_on }, step)
    }

    /// Answers the first request in the input; `None`: it holds no complete request, or its file has to
    /// be waited for.
    fn answer_one(
        &self,
        state: &mut State,
        input: &[u8],
        asker: &mut Asker<'_>,
        output: &mut Vec<u8>,
    ) -> Option<Answered> {
        let all = |reply, next| Some(Answered { reply, len: input.len(), next });
        let request = match request::parse(input, &LIMITS) {
            Ok(request) => request?,
            Err(refusal) => return all(self.refuse_with(state, refusal, output), Next::Linger),
        };
        let skipped = body_to_skip(&request);
        let persists = request.keep_alive && skipped.is_some() && !asker.net.stopping();
        let (head, rest) = input.split_at(request.head_len);
        let reply = state.reply(&request, head, rest.is_empty(), persists, asker, output)?;
        self.note(&reply);
        let Some(skipped) = skipped.filter(|_| persists) else {
            let silent = rest.is_empty() && request.framing == Framing::None;
            return all(reply, if silent { Next::Close } else { Next::Linger });
        };
        match skipped.checked_sub(rest.len() as u64) {
            Some(left @ 1..) => all(reply, Next::Skip(left)),
            _ => {
                let len = request.head_len + skipped as usize;
                Some(Answered { reply, len, next: Next::Receive })
            }
        }
    }

    /// Counts a reply.
    fn note(&self, reply: &Reply) {
        self.counters.add(Tally::Requests, 1);
        self.counters.reply(reply.status);
    }

    /// What is readable when there are changes of files to [`Site::hear`], if any are heard of.
    pub(super) fn changes(&self) -> io::Result<Option<OwnedFd>> {
        self.with_watcher(|watcher| watcher.descriptor()).transpose()
    }

    /// Takes in what was reported of files.
    pub(super) fn hear(&self) -> io::Result<()> {
        self.with_watcher(Watcher::hear).unwrap_or(Ok(()))
    }

    fn with_watcher<R>(&self, work: impl FnOnce(&mut Watcher) -> R) -> Option<R> {
        match &mut self.state.borrow_mut().content {
            Content::Files { files, .. } => files.watcher().map(work),
            Content::Fixed(_) => None,
        }
    }

    /// Whether one more complaint may be logged: the number of those that were not.
    pub(super) fn may_complain(&self, now: Instant) -> Option<u64> {
        self.state.borrow_mut().complaints.ask(now)
    }

    /// Makes room for other descriptors; `false`: there was nothing to give.
    pub(super) fn give_back_descriptors(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        state.memo = Memo::default();
        match &mut state.content {
            Content::Files { files, .. } => files.give_back_descriptors(),
            Content::Fixed(_) => false,
        }
    }

    /// Answers a client that was not heard out.
    pub(super) fn refuse(&self, key: Key, refusal: Refusal, output: &mut Vec<u8>, net: &Net) {
        let (status, before) = (refusal.status, output.len());
        self.refuse_with(&self.state.borrow(), refusal, output);
        if let Some(tracer) = &self.tracer {
            tracer.note(key, net.now(), status, output.len() - before, &Body::None);
        }
    }

    fn refuse_with(&self, state: &State, refusal: Refusal, output: &mut Vec<u8>) -> Reply {
        let common = state.common(Connection::Close);
        let reply = reply::refusal(refusal, &common, true, output);
        self.counters.reply(reply.status);
        reply
    }
}

impl State {
    fn common(&self, connection: Connection) -> Common<'_> {
        Common { server: SERVER, date: self.clock.date(), connection }
    }

    /// Another second has begun.
    fn prepare(&mut self) {
        if let Content::Fixed(fixed) = &mut self.content {
            let date = self.clock.date();
            fixed.prepare(&Common { server: SERVER, date, connection: Connection::Implied });
        }
    }

    /// Answers what was asked in this turn before, in the same words, and says how long those are.
    fn repeat(&self, input: &[u8], net: &Net, out: &mut Vec<u8>) -> Option<(usize, Reply)> {
        let (len, entry) = self.memo.recall(input, net.now()).filter(|_| !net.stopping())?;
        let usual = entry.usual()?;
        let alone = len == input.len();
        Some((len, reply::usual(entry, usual, &self.clock, Connection::Implied, alone, out)))
    }

    /// `alone`: nothing stands behind the request. `None`: its file has to be waited for.
    fn reply(
        &mut self,
        request: &Request<'_>,
        head: &[u8],
        alone: bool,
        persists: bool,
        asker: &mut Asker<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Reply> {
        let connection = Connection::new(request.version, persists);
        let common = Common { server: SERVER, date: self.clock.date(), connection };
        let with_body = request.method != Method::Head;
        if request.method == Method::Other {
            let refusal = Refusal { status: Status::MethodNotAllowed, reason: "" };
            return Some(reply::refusal(refusal, &common, with_body, out));
        }
        let (files, in_memory) = match &mut self.content {
            Content::Fixed(fixed) if connection == Connection::Implied && with_body => {
                return Some(fixed.usual(out));
            }
            Content::Fixed(fixed) => return Some(fixed.unusual(&common, with_body, out)),
            Content::Files { files, in_memory } => (files, *in_memory),
        };
        let now = asker.net.now();
        let found = match files.recall(request.path, now) {
            Some(entry) => Ok(Found::File(entry)),
            None => files.find(request.path, &self.clock, asker),
        };
        Some(match found {
            Ok(Found::Later) => return None,
            Ok(Found::File(entry)) => match entry.usual() {
                Some(usual) if is_plain(request) => {
                    if connection == Connection::Implied && request.framing == Framing::None {
                        self.memo.note(head, &entry, now);
                    }
                    reply::usual(&entry, usual, &self.clock, connection, alone, out)
                }
                _ => reply::file(&entry, request, &common, self.clock.seconds(), in_memory, out),
            },
            Ok(Found::Redirect { name, query }) => {
                reply::redirect(name, query, &common, with_body, out)
            }
            Err(Lost::Refused(refusal)) => reply::refusal(refusal, &common, with_body, out),
            Err(Lost::Failed(refusal, error)) => {
                if let Some(others) = self.complaints.ask(now) {
                    let path = request.path.escape_ascii();
                    warn!("cannot open {path}: {error} ({others} like this were not logged)");
                }
                reply::refusal(refusal, &common, with_body, out)
            }
        })
    }
}

/// Whether the answer is all of the file, unconditionally.
fn is_plain(request: &Request<'_>) -> bool {
    request.method == Method::Get && request.range.is_none() && request.conditions.is_empty()
}

/// How many bytes of body separate this request from the next; `None`: too many to read, a number
/// that is not known, or a body that may or may not come (the client waits for a 100).
fn body_to_skip(request: &Request<'_>) -> Option<u64> {
    match request.framing {
        Framing::None => Some(0),
        Framing::Length(len) if len <= SKIPPED_MOST && !request.expect_continue => Some(len),
        Framing::Length(_) | Framing::Chunked => None,
    }
}

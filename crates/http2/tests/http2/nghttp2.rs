//! Side by side with nghttp2: its decoder of header blocks, its client and its server. They run in a process of their own
//! (`tests/nghttp2/oracle.c`), which the tests compile; without a C compiler or nghttp2's headers they are skipped.
//!
//! `DROVER_HPACK_STORIES` names a folder of HPACK stories (github.com/http2jp/hpack-test-case); without it they are skipped.

use std::fs;
use std::io::{BufRead, BufReader, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, mpsc};

use drover_http2::hpack::{self, FieldSink, HpackDecoder};
use drover_http2::{ClientConnection, ClientEvent};
use drover_testing::skip;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::support::*;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Default)]
struct List(Fields);

impl FieldSink for List {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.0.push((name.to_vec(), value.to_vec()));
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// The program that speaks nghttp2; `None`: it cannot be compiled here.
static ORACLE: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nghttp2/oracle.c");
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("oracle-{}", std::process::id()));
    let made = Command::new("cc")
        .arg("-O1")
        .arg("-o")
        .arg(&program)
        .arg(source)
        .arg("-lnghttp2")
        .output()
        .ok()?;
    made.status.success().then_some(program)
});

/// What an oracle writes, taken by a thread at once: it never waits for one that waits to write to it.
struct WrittenParts {
    parts: mpsc::Receiver<Vec<u8>>,
    part: Cursor<Vec<u8>>,
}

impl WrittenParts {
    fn of(mut from: ChildStdout) -> WrittenParts {
        let (taken, parts) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 16 * 1024];
            while let Ok(count @ 1..) = from.read(&mut bytes)
                && taken.send(bytes[..count].to_vec()).is_ok()
            {}
        });
        WrittenParts { parts, part: Cursor::default() }
    }
}

impl Read for WrittenParts {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.part.position() == self.part.get_ref().len() as u64 {
            let Ok(part) = self.parts.recv() else { return Ok(0) };
            self.part = Cursor::new(part);
        }
        self.part.read(into)
    }
}

/// A running oracle.
struct Oracle {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<WrittenParts>,
    seen: ChildStderr,
}

impl Oracle {
    fn start(words: &[&str]) -> Option<Oracle> {
        let Some(program) = &*ORACLE else {
            skip!("nghttp2's headers or a C compiler are missing (Debian: libnghttp2-dev)");
            return None;
        };
        let pipe = Stdio::piped;
        let mut child = Command::new(program)
            .args(words)
            .stdin(pipe())
            .stdout(pipe())
            .stderr(pipe())
            .spawn()
            .unwrap();
        let from = WrittenParts::of(child.stdout.take().unwrap());
        let (to, from) = (child.stdin.take(), BufReader::new(from));
        let seen = child.stderr.take().unwrap();
        Some(Oracle { child, to, from, seen })
    }

    fn say(&mut self, bytes: &[u8]) {
        self.to.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Sends all of `out`, waits for bytes to put behind `input`, and says how many: none at the end.
    fn exchange(&mut self, out: &mut Vec<u8>, input: &mut Vec<u8>) -> usize {
        self.say(out);
        out.clear();
        let part = self.from.fill_buf().unwrap();
        let len = part.len();
        input.extend_from_slice(part);
        self.from.consume(len);
        len
    }

    /// What nghttp2 decodes from a block; `None`: it refuses it.
    fn inflated(&mut self, block: &[u8]) -> Option<Fields> {
        self.say(format!("B {}\n", hex(block)).as_bytes());
        let mut fields = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "the oracle has ended");
            match line.trim_end() {
                "ok" => return Some(fields),
                "bad" => return None,
                field => {
                    let (name, value) = field.split_once('=').unwrap();
                    fields.push((unhex(name), unhex(value)));
                }
            }
        }
    }

    /// Waits for the end, and returns what the session has seen.
    fn end(mut self) -> String {
        self.to.take();
        let mut seen = String::new();
        self.seen.read_to_string(&mut seen).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {seen}");
        seen
    }
}

fn ours(decoder: &mut HpackDecoder, block: &[u8]) -> Option<Fields> {
    let mut list = List::default();
    decoder.decode(block, true, &mut list).ok().map(|_| list.0)
}

/// Pieces of blocks: representations as they should be, and bytes that break them.
fn some_block() -> impl Strategy<Value = Vec<u8>> {
    let index =
        prop_oneof![24 => 0x81u8..0xbe, 4 => 0xbeu8..0xc1, 1 => Just(0x80u8), 1 => Just(0xffu8)]
            .prop_map(|it| vec![it]);
    let plain = vec(any::<u8>(), 0..12).prop_map(|text| [vec![text.len() as u8], text].concat());
    // The encoder's own Huffman code, perhaps with a byte changed.
    let coded = (
        "[a-z0-9/.-]{4,40}",
        any::<prop::sample::Index>(),
        select(&[0u8, 0, 0, 0, 1, 0x80, 0xff][..]),
    )
        .prop_map(|(text, at, change)| {
            let mut block = Vec::new();
            hpack::push_field(&mut block, "q", text.as_bytes());
            let mut text = block[3..].to_vec();
            if text.len() > 1 {
                let at = 1 + at.index(text.len() - 1);
                text[at] ^= change;
            }
            text
        });
    let string = prop_oneof![plain, coded].boxed();
    let named = (select(&[0x40u8, 0x00, 0x10][..]), string.clone(), string.clone())
        .prop_map(|(kind, name, value)| [vec![kind], name, value].concat());
    let indexed =
        (select(&[0x41u8, 0x7e, 0x44, 0x01, 0x0f, 0x1f][..]), string).prop_map(|(kind, value)| {
            [vec![kind], if kind & 0x0f == 0x0f { vec![0x20] } else { vec![] }, value].concat()
        });
    let updates: [&[u8]; 5] =
        [&[0x20], &[0x3f, 0xe1, 0x1f], &[0x3f, 0xe2, 0x1f], &[0x3f, 0x21], &[0x30]];
    let update = select(updates.map(<[u8]>::to_vec).to_vec());
    let noise = vec(any::<u8>(), 1..4);
    let piece = prop_oneof![8 => index, 6 => named, 6 => indexed, 2 => noise];
    (vec(update, 0..2), vec(piece, 0..8))
        .prop_map(|(updates, pieces)| [updates.concat(), pieces.concat()].concat())
}

#[test]
fn both_decode_the_same_blocks() {
    let Some(mut oracle) = Oracle::start(&["inflate"]) else { return };
    let mut runner = TestRunner::deterministic();
    let (mut good, mut bad) = (0, 0);
    for _ in 0..3_000 {
        let blocks = vec(some_block(), 1..6).new_tree(&mut runner).unwrap().current();
        let mut decoder = HpackDecoder::new(hpack::TABLE_SIZE);
        oracle.say(b"N\n");
        for block in &blocks {
            let (expected, found) = (oracle.inflated(block), ours(&mut decoder, block));
            assert_eq!(
                found,
                expected,
                "{} of {:?}",
                hex(block),
                blocks.iter().map(|it| hex(it)).collect::<Vec<_>>()
            );
            if found.is_none() {
                bad += 1;
                break;
            }
            good += 1;
        }
    }
    assert!(good > 1_500 && bad > 500, "{good} good, {bad} bad");
    oracle.end();
}

#[test]
fn every_huffman_string_is_the_same() {
    let Some(mut oracle) = Oracle::start(&["inflate"]) else { return };
    let mut runner = TestRunner::deterministic();
    let strings = vec(prop_oneof![2 => any::<u8>(), 1 => 0xf0u8..=0xff], 0..8);
    let mut good = 0;
    for _ in 0..20_000 {
        let coded = strings.new_tree(&mut runner).unwrap().current();
        let block = [&[0u8, 1, b'a', 0x80 | coded.len() as u8][..], &coded].concat();
        oracle.say(b"N\n");
        let found = ours(&mut HpackDecoder::new(hpack::TABLE_SIZE), &block);
        good += u32::from(found.is_some());
        assert_eq!(found, oracle.inflated(&block), "{}", hex(&block));
    }
    assert!(good > 1_000, "{good}");
    oracle.end();
}

#[test]
fn stories_are_decoded() {
    let Some(folder) = std::env::var_os("DROVER_HPACK_STORIES") else {
        skip!("DROVER_HPACK_STORIES names no folder of HPACK stories");
        return;
    };
    let encoders =
        fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).filter(|it| it.is_dir());
    let mut blocks = 0;
    for file in encoders.flat_map(|encoder| fs::read_dir(encoder).unwrap()) {
        let path = file.unwrap().path();
        let story: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let mut decoder = HpackDecoder::new(hpack::TABLE_SIZE);
        for case in story["cases"].as_array().unwrap() {
            if let Some(size) = case["header_table_size"].as_u64() {
                decoder.set_most(size as usize);
            }
            let expected =
                case["headers"].as_array().unwrap().iter().flat_map(|it| it.as_object().unwrap());
            let expected: Fields = expected
                .map(|(name, value)| (name.clone().into_bytes(), value.as_str().unwrap().into()))
                .collect();
            let block = unhex(case["wire"].as_str().unwrap());
            assert_eq!(
                ours(&mut decoder, &block),
                Some(expected),
                "{} {}",
                path.display(),
                case["seqno"]
            );
            blocks += 1;
        }
    }
    assert!(blocks > 1_000, "{blocks}");
}

/// Lengths of bodies: none, one byte, around a frame, and more than all windows.
const LENGTHS: [usize; 6] = [0, 1, 16_384, 16_385, 100, 200_000];

#[test]
fn nghttp2_as_a_client_gets_every_response() {
    let paths = LENGTHS.map(|length| format!("/{length}"));
    let words: Vec<&str> =
        ["client", "40"].into_iter().chain(paths.iter().map(|it| &**it)).collect();
    let Some(mut oracle) = Oracle::start(&words) else { return };
    let (mut server, mut input) = (LengthServer::new(), Vec::new());
    let long = "{}".repeat(9_000);
    loop {
        if oracle.exchange(&mut server.out, &mut input) == 0 {
            break;
        }
        server.serve(&mut input, &[("x-long", &long)]);
    }
    let end = " HTTP/1.1\r\nHost: localhost\r\nuser-agent: oracle\r\ncookie: a=b; c=d\r\n\r\n";
    assert!(server.requests.iter().all(|(_, head)| head.ends_with(end)), "{:?}", server.requests);
    let seen = oracle.end();
    let mut lines: Vec<(usize, &str)> = seen
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(id, rest)| (id.parse().unwrap(), rest))
        .collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 240);
    for (at, (id, rest)) in lines.iter().enumerate() {
        assert_eq!((*id, *rest), (2 * at + 1, &*format!("200 {} 0", LENGTHS[at % LENGTHS.len()])));
    }
    assert_eq!(server.connection.streams(), 0);
}

#[test]
fn nghttp2_as_a_server_answers_every_request() {
    let Some(mut oracle) = Oracle::start(&["server"]) else { return };
    let mut out = Vec::new();
    let mut client: ClientConnection<usize> = ClientConnection::new(&mut out);
    let (mut input, mut asked, mut done, mut got) = (Vec::new(), 0, 0, vec![0; 481]);
    while done < 240 {
        while asked < 240 && client.can_request() {
            let length = LENGTHS[asked % LENGTHS.len()];
            client.request(&get(&format!("/{length}"), &[]), length, &mut out).unwrap();
            asked += 1;
        }
        assert!(oracle.exchange(&mut out, &mut input) > 0, "the server has ended");
        let mut at = 0;
        loop {
            let (used, event) = client.receive(&input[at..], &mut out);
            at += used;
            let ended = match event {
                ClientEvent::Incomplete => break,
                ClientEvent::Head { stream, status: 200, head, ends, .. } => {
                    assert!(str::from_utf8(head).unwrap().contains("\r\nserver: nghttp2\r\n"));
                    ends.then_some(stream)
                }
                ClientEvent::Data { stream, bytes, ends } => {
                    got[stream.get() as usize] += bytes.len();
                    ends.then_some(stream)
                }
                other => panic!("{other:?}"),
            };
            if let Some(stream) = ended {
                assert_eq!(client.finished(stream), Some(got[stream.get() as usize]));
                done += 1;
            }
        }
        input.drain(..at);
    }
    assert_eq!(client.open_streams(), 0);
    oracle.end();
}

/// Each body is as long as what is asked for.
#[test]
fn nghttp2_as_a_server_takes_every_body() {
    let Some(mut oracle) = Oracle::start(&["server"]) else { return };
    let mut out = Vec::new();
    let mut client: ClientConnection<usize> = ClientConnection::new(&mut out);
    let (mut input, mut asked, mut done) = (Vec::new(), 0, 0);
    while done < 60 {
        while asked < 60 && client.can_request() {
            let length = LENGTHS[asked % LENGTHS.len()];
            let block = get(&format!("/{length}"), &[("content-length", &length.to_string())]);
            client.request_with_body(&block, length, &mut out).unwrap();
            asked += 1;
        }
        while let Some(turn) = client.next() {
            let left = client.stream(turn.stream).unwrap();
            let len = turn.most.min(*left);
            *left -= len;
            let ends = *left == 0;
            client.push_data(turn.stream, len, ends, &mut out);
            out.resize(out.len() + len, b'x');
        }
        assert!(oracle.exchange(&mut out, &mut input) > 0, "the server has ended");
        let mut at = 0;
        loop {
            let (used, event) = client.receive(&input[at..], &mut out);
            at += used;
            let ended = match event {
                ClientEvent::Incomplete => break,
                ClientEvent::Head { stream, status: 200, ends, .. }
                | ClientEvent::Data { stream, ends, .. } => ends.then_some(stream),
                other => panic!("{other:?}"),
            };
            done += ended.map_or(0, |stream| client.finished(stream).map_or(0, |_| 1));
        }
        input.drain(..at);
    }
    drop(client);
    let seen = oracle.end();
    let mut bytes: Vec<(usize, usize)> = seen
        .lines()
        .map(|line| line.split(' ').map(|it| it.parse().unwrap()).collect::<Vec<usize>>())
        .map(|line| (line[0], line[2]))
        .collect();
    bytes.sort_unstable();
    let expected: Vec<_> = (0..60).map(|at| (2 * at + 1, LENGTHS[at % LENGTHS.len()])).collect();
    assert_eq!(bytes, expected);
}

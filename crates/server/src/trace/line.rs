//! A line of the trace, written by hand: formatting costs several times as much.

use std::time::{Duration, Instant};

use drover_http1::Status;
use drover_mech::fileio::ReadTimes;

/// The name of the format.
pub const FORMAT: &str = "drover.trace/1";

/// The names of the columns, as the file's second line has them. Times are microseconds.
pub const COLUMNS: &str = "start_us,stat_us,queue_us,read_us,return_us,write_us,total_us,\
                           longest_us,reads,status,bytes,end,worker,connection,backend";

/// Longer than any line: ten numbers of 20 digits, and a few words.
pub(crate) const MOST: usize = 400;

/// The contents of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceLine {
    /// When the request was here.
    pub(crate) start: Instant,
    /// How long it then waited for its file to be opened.
    pub(crate) stat: Duration,
    pub(crate) status: Status,
    /// Those of the response, its head included.
    pub(crate) bytes: u64,
    /// When the last byte had left, or never would.
    pub(crate) done: Instant,
    pub(crate) times: ReadTimes,
    pub(crate) end: &'static str,
    pub(crate) worker: usize,
    pub(crate) connection: u64,
    pub(crate) backend: &'static str,
}

impl TraceLine {
    /// Appends the line, with its end, by way of `scratch`; `began` is the zero of its times.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>, began: Instant, scratch: &mut [u8; MOST]) {
        let TraceLine { start, stat, status, bytes, .. } = *self;
        let total = micros(self.done.saturating_duration_since(start));
        let mut text = Text { bytes: scratch, start: MOST };
        text.word(self.backend, b'\n');
        text.number(self.connection);
        text.number(self.worker as u64);
        text.word(self.end, b',');
        text.number(bytes);
        text.number(status.code().into());
        let ReadTimes { reads, queue, read, back, longest, .. } = self.times;
        if reads == 0 && stat.is_zero() {
            text.word("0,0", b',');
            let end = text.start;
            text.number(total);
            text.repeat(end);
            text.word("0,0,0,0", b',');
        } else {
            let stages = [stat, queue, read, back].map(micros);
            // The rest of the total time is the last stage: the way to the socket.
            let write = total.saturating_sub(stages.iter().sum());
            text.number(reads.into());
            text.number(micros(longest));
            text.number(total);
            text.number(write);
            stages.into_iter().rev().for_each(|stage| text.number(stage));
        }
        text.number(micros(start.saturating_duration_since(began)));
        out.extend_from_slice(&text.bytes[text.start..]);
    }
}

fn micros(time: Duration) -> u64 {
    time.as_secs() * 1_000_000 + u64::from(time.subsec_micros())
}

/// The line so far. It is written from the end, because digits come out in reverse order.
struct Text<'s> {
    bytes: &'s mut [u8; MOST],
    start: usize,
}

/// The digits of 0 … 99, two each: half the divisions.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

impl Text<'_> {
    #[inline]
    fn number(&mut self, mut number: u64) {
        self.push(b',');
        while number >= 100 {
            self.push_pair(PAIRS[(number % 100) as usize]);
            number /= 100;
        }
        if number >= 10 {
            self.push_pair(PAIRS[number as usize]);
        } else {
            self.push(b'0' + number as u8);
        }
    }

    /// Once more what was written since the line began at `end`.
    fn repeat(&mut self, end: usize) {
        let (start, len) = (self.start, end - self.start);
        self.start -= len;
        for at in (0..len).rev() {
            self.bytes[self.start + at] = self.bytes[start + at];
        }
    }

    fn word(&mut self, word: &str, end: u8) {
        self.push(end);
        // A copy of so few bytes costs less than the call of one.
        word.bytes().rev().for_each(|byte| self.push(byte));
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        self.start -= 1;
        self.bytes[self.start] = byte;
    }

    #[inline]
    fn push_pair(&mut self, pair: [u8; 2]) {
        self.start -= 2;
        self.bytes[self.start..self.start + 2].copy_from_slice(&pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_they_have_elsewhere() {
        let powers = (0..20).map(|exponent| 10_u64.pow(exponent));
        let around = powers.flat_map(|power| [power - 1, power, power + 1, power / 9 * 8]);
        for number in around.chain([u64::MAX]) {
            let mut bytes = [0; MOST];
            let mut text = Text { bytes: &mut bytes, start: MOST };
            text.number(number);
            let digits = std::str::from_utf8(&text.bytes[text.start..]).unwrap();
            assert_eq!(digits, format!("{number},"));
        }
    }

    #[test]
    fn a_line_has_a_field_for_each_column_and_its_stages_sum_up() {
        let us = Duration::from_micros;
        let times = ReadTimes {
            backend: Some("x"),
            reads: 7,
            queue: us(200),
            read: us(3000),
            back: us(40),
            longest: us(900),
        };
        let began = Instant::now();
        let start = began + Duration::from_secs(1_000_000);
        let line = TraceLine {
            start,
            stat: us(10_000),
            status: Status::Ok,
            bytes: u64::MAX,
            done: start + us(100_000),
            times,
            end: "sent",
            worker: 0,
            connection: 12,
            backend: "x",
        };
        let mut out = b"before\n".to_vec();
        line.append_to(&mut out, began, &mut [0; MOST]);
        let expected = "before\n1000000000000,10000,200,3000,40,86760,100000,900,7,200,\
                        18446744073709551615,sent,0,12,x\n";
        assert_eq!(std::str::from_utf8(&out).unwrap(), expected);
        assert_eq!(COLUMNS.split(',').count(), 15);
        out.clear();
        let (stat, times) = (Duration::ZERO, ReadTimes::default());
        let line = TraceLine { stat, times, backend: "memory", ..line };
        line.append_to(&mut out, began, &mut [0; MOST]);
        let expected = "1000000000000,0,0,0,0,100000,100000,0,0,200,18446744073709551615,sent,0,12,\
                        memory\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

//! Which stream's turn it is (RFC 9218 section 10).
//!
//! The most urgent come first. Among streams of one urgency those that are of use as a whole only are sent one after the other,
//! the oldest first; incremental ones share what is left. One frame in eight goes to another stream than these rules choose, so
//! that none starves.

use crate::frame::StreamId;
use crate::streams::StreamTable;

/// Whose turn it is to send DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataTurn {
    /// The stream.
    pub stream: StreamId,
    /// How many bytes it may send: what both windows allow, up to [`FRAME_MOST`](crate::FRAME_MOST), and never 0.
    pub most: usize,
}

/// One frame in so many goes to a stream that would have to wait.
const ONE_IN: u32 = 8;

/// The stream that may send next; `turn` counts the frames that were sent. Streams without a window of their own have no turn.
pub(crate) fn choose<S>(streams: &StreamTable<S>, turn: u32) -> Option<StreamId> {
    let key = |record: &crate::streams::StreamRecord<S>| {
        let priority = record.priority;
        // Incremental ones take turns: who has waited longest is first.
        let waited = if priority.is_incremental { record.turn } else { 0 };
        (priority.urgency, priority.is_incremental, waited, record.id)
    };
    let ready = || streams.iter().filter(|it| it.offers_data() && it.send_window > 0);
    let first = ready().min_by_key(|record| key(record))?;
    if turn % ONE_IN != ONE_IN - 1 {
        return Some(StreamId(first.id));
    }
    let others = ready().filter(|record| record.id != first.id);
    let longest = others.min_by_key(|record| (record.turn, key(record)));
    Some(StreamId(longest.unwrap_or(first).id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::StreamPriority;
    use crate::streams::{StreamRecord, state};

    fn table(streams: &[(u32, u8, bool)]) -> StreamTable<()> {
        let mut table = StreamTable::new();
        for (id, urgency, is_incremental) in streams {
            table.add(StreamRecord {
                id: *id,
                send_window: 1,
                receive_window: 0,
                turn: 0,
                content_left: None,
                state: state::HAS_BODY,
                priority: StreamPriority { urgency: *urgency, is_incremental: *is_incremental },
                kept: None,
            });
        }
        table
    }

    /// Whose turn it is, for so many frames.
    fn turns(table: &mut StreamTable<()>, count: u32) -> Vec<u32> {
        let turn = |at| {
            let id = choose(table, at).unwrap();
            table.get(id).unwrap().turn = at + 1;
            id.0
        };
        (0..count).map(turn).collect()
    }

    #[test]
    fn the_most_urgent_and_then_the_oldest() {
        let mut all = table(&[(1, 3, false), (3, 1, false), (5, 1, false), (7, 7, false)]);
        assert_eq!(turns(&mut all, 7), [3; 7]);
        all.remove(StreamId(3));
        assert_eq!(turns(&mut all, 7), [5; 7]);
    }

    #[test]
    fn incremental_streams_share() {
        let mut all = table(&[(1, 3, true), (3, 3, true), (5, 3, true), (7, 4, false)]);
        assert_eq!(turns(&mut all, 7), [1, 3, 5, 1, 3, 5, 1]);
    }

    #[test]
    fn none_starves() {
        let mut all = table(&[(1, 0, false), (3, 3, false), (5, 7, true), (7, 7, false)]);
        let seen = turns(&mut all, 800);
        for other in [3, 5, 7] {
            let count = seen.iter().filter(|id| **id == other).count();
            assert!((32..=35).contains(&count), "{other}: {count}");
        }
    }

    #[test]
    fn a_stream_that_cannot_send_has_no_turn() {
        let mut all = table(&[(1, 0, false), (3, 3, false)]);
        all.get(StreamId(1)).unwrap().send_window = 0;
        assert_eq!(turns(&mut all, 1), [3]);
        all.get(StreamId(3)).unwrap().state |= state::PAUSED;
        assert_eq!(choose(&all, 0), None);
    }
}

//! How long a queue of events would have become. It is computed from the events that Drover's own server has recorded
//! (`serve --record-events FILE`).
//!
//! A server that takes all events of its queue at each turn finds there what has happened since its previous turn.
//! The recorded turns are replayed through two models of a queue: one with an entry for each event, as in the
//! kernel's queue of real-time signals, and one with at most one entry for each descriptor, as in the signal-per-fd
//! patches.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;

use crate::failure::Failure;

/// The greatest lengths of the two queues, in entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// The queue with an entry for each event.
    pub of_events: usize,
    /// The queue with at most one entry for each descriptor.
    pub per_descriptor: usize,
}

/// Replays turns. A turn is the list of its events' descriptors, in the order in which the events were queued. Each
/// turn empties the queue.
pub fn replay<T: AsRef<[u32]>>(turns: impl IntoIterator<Item = T>) -> Peaks {
    let mut peaks = Peaks::default();
    let mut queued: HashSet<u32> = HashSet::new();
    for turn in turns {
        let turn = turn.as_ref();
        queued.clear();
        queued.extend(turn.iter().copied());
        peaks.of_events = peaks.of_events.max(turn.len());
        peaks.per_descriptor = peaks.per_descriptor.max(queued.len());
    }
    peaks
}

/// Reads the turns within `times` (seconds since 1970), and replays them.
///
/// # Errors
/// [`Failure::Failed`] if the file is no record of events.
pub fn read(path: &Path, times: Range<f64>) -> Result<Peaks, Failure> {
    let failed = |why: String| Failure::failed(format!("the events {}: {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    parse(BufReader::new(file), times).map_err(failed)
}

fn parse(lines: impl BufRead, times: Range<f64>) -> Result<Peaks, String> {
    let mut lines = lines.lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    let started = first.strip_prefix("# drover.events/1 ").and_then(|words| {
        let started = words.split(' ').find_map(|word| word.strip_prefix("started="))?;
        started.parse::<f64>().ok()
    });
    let started = started.ok_or("it does not begin like a drover.events/1")?;
    let turns = lines.filter_map(|line| {
        let mut words = line.split(' ');
        let at = started + words.next()?.parse::<f64>().ok()? / 1e6;
        let turn: Option<Vec<u32>> = words.map(|word| word.parse().ok()).collect();
        // The last line may be incomplete.
        turn.filter(|_| times.contains(&at))
    });
    Ok(replay(turns))
}

impl Peaks {
    /// The metrics of the queues; none without events.
    #[must_use]
    pub fn values(&self) -> BTreeMap<String, f64> {
        let (of_events, per_descriptor) = (self.of_events as f64, self.per_descriptor as f64);
        let named = [
            ("queue-peak", of_events),
            ("queue-peak-per-fd", per_descriptor),
            ("queue-peak-ratio", per_descriptor / of_events),
        ];
        let any = self.of_events > 0;
        named.into_iter().filter(|_| any).map(|(name, value)| (name.to_string(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_events_of_the_window_are_replayed() {
        let text = "# drover.events/1 started=100.5 dispatch=rtsig-batch\n\
                    0 1 1 1 1 1 1 1\n\
                    600000 3 4 3 3\n\
                    700000 5\n\
                    1600000 1 2 3 4 5 6\n\
                    900000 7 x";
        let peaks = parse(text.as_bytes(), 101.0..102.0).unwrap();
        assert_eq!(peaks, Peaks { of_events: 4, per_descriptor: 2 });
        assert_eq!(peaks.values()["queue-peak-ratio"], 0.5);
        let nothing = parse(text.as_bytes(), 200.0..300.0).unwrap();
        assert!(nothing.values().is_empty());
        assert!(parse("# drover.trace/1 started=1\n".as_bytes(), 0.0..1.0).is_err());
    }

    proptest! {
        #[test]
        fn a_queue_per_descriptor_is_never_longer_and_never_longer_than_descriptors(
            turns in prop::collection::vec(prop::collection::vec(0_u32..40, 0..200), 0..20),
        ) {
            let Peaks { of_events, per_descriptor } = replay(&turns);
            let descriptors: HashSet<u32> = turns.iter().flatten().copied().collect();
            prop_assert!(per_descriptor <= of_events);
            prop_assert!(per_descriptor <= descriptors.len());
            prop_assert_eq!(per_descriptor == 0, descriptors.is_empty());
        }

        #[test]
        fn without_repetition_both_are_as_long(
            turn in prop::collection::hash_set(any::<u32>(), 0..200),
        ) {
            let turn: Vec<u32> = turn.into_iter().collect();
            let peaks = replay([&turn]);
            prop_assert_eq!(peaks, Peaks { of_events: turn.len(), per_descriptor: turn.len() });
        }
    }
}

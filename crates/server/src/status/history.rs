//! The counters of all workers that a server has had: those that serve, and those that they have succeeded.
//!
//! A worker counts in a row of its own, so that adding needs no locked instruction. Worker 2 after a reload is another
//! thread than worker 2 before, which may have connections left. Whoever reads the counters sees one worker 2, whose
//! counters never go back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::statistics::{CounterRow, CounterTable, Statistics, WorkerStatistics};

/// The counters of a server since its start.
#[derive(Clone, Debug)]
pub(crate) struct CounterHistory(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The sums over all workers of a number that have ended.
    ended: Vec<CounterRow>,
    /// The tables of workers that others have succeeded, and that have not ended yet.
    succeeded: Vec<CounterTable>,
    current: CounterTable,
    /// Whether the workers that count in `current` have ended.
    current_ended: bool,
}

impl State {
    /// Adds what workers that others have succeeded have counted to the sums, and gives their table back.
    fn end(&mut self, table: &CounterTable) {
        if self.succeeded.iter().any(|it| it.is(table)) {
            self.succeeded.retain(|it| !it.is(table));
            let rows = table.rows().into_iter().map(CounterRow::succeeded);
            self.ended = added(std::mem::take(&mut self.ended), rows);
        }
    }
}

impl CounterHistory {
    /// Of workers that count in `current`.
    pub(crate) fn new(current: CounterTable) -> CounterHistory {
        let (ended, succeeded) = (Vec::new(), Vec::new());
        let state = State { ended, succeeded, current, current_ended: false };
        CounterHistory(Arc::new(Mutex::new(state)))
    }

    /// Of workers that count in the last of `tables`; those of the others have not ended yet. `ended`: the sums over those that
    /// have. `None`: there is no table.
    pub(crate) fn of(
        ended: Option<Vec<CounterRow>>,
        tables: impl IntoIterator<Item = CounterTable>,
    ) -> Option<CounterHistory> {
        let mut succeeded: Vec<_> = tables.into_iter().collect();
        let (current, ended) = (succeeded.pop()?, ended.unwrap_or_default());
        let state = State { ended, succeeded, current, current_ended: false };
        Some(CounterHistory(Arc::new(Mutex::new(state))))
    }

    /// The sums over all workers of a number that have ended.
    pub(crate) fn ended(&self) -> Vec<CounterRow> {
        self.lock().ended.clone()
    }

    /// Workers that count in `next` serve from now on.
    pub(crate) fn succeed(&self, next: CounterTable) {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.current, next);
        state.succeeded.push(before.clone());
        if std::mem::take(&mut state.current_ended) {
            state.end(&before);
        }
    }

    /// All workers that count in `table` have ended: after others have succeeded them, or, where no two mechanisms can
    /// wait for one socket, before.
    pub(crate) fn end(&self, table: &CounterTable) {
        let mut state = self.lock();
        if state.current.is(table) {
            state.current_ended = true;
        } else {
            state.end(table);
        }
    }

    /// All counters, by the number of the worker.
    pub(crate) fn rows(&self) -> Vec<CounterRow> {
        let state = self.lock();
        let succeeded = state.succeeded.iter().map(|table| {
            let rows = table.rows().into_iter();
            rows.map(CounterRow::succeeded).collect()
        });
        let tables = succeeded.chain([state.current.rows()]);
        tables.fold(state.ended.clone(), |sums, rows: Vec<CounterRow>| added(sums, rows))
    }

    /// How many workers serve.
    pub(crate) fn serving(&self) -> usize {
        self.lock().current.rows().len()
    }

    /// What the workers of each number have done.
    pub(crate) fn workers(&self) -> Vec<WorkerStatistics> {
        self.rows().iter().map(CounterRow::worker_statistics).collect()
    }

    /// The sums over all workers. Each number is exact; they are not read at one instant.
    pub(crate) fn sum(&self) -> Statistics {
        CounterRow::sum(&self.rows()).statistics()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `sums`, with a row for each worker added.
fn added(mut sums: Vec<CounterRow>, rows: impl IntoIterator<Item = CounterRow>) -> Vec<CounterRow> {
    for (worker, row) in rows.into_iter().enumerate() {
        match sums.get_mut(worker) {
            Some(sum) => *sum = sum.plus(&row),
            None => sums.push(row),
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::statistics::Counter;

    #[test]
    fn counters_never_go_back_whoever_succeeds_whom() {
        let requests = |history: &CounterHistory| -> Vec<u64> {
            history.rows().iter().map(|row| row.get(Counter::Requests)).collect()
        };
        let tables = [2, 3, 1].map(|workers| CounterTable::new(workers).unwrap());
        let history = CounterHistory::new(tables[0].clone());
        tables[0].of(1).add(Counter::Requests, 2);
        history.succeed(tables[1].clone());
        tables[0].of(0).add(Counter::Requests, 1);
        tables[1].of(2).add(Counter::Requests, 4);
        assert_eq!((requests(&history), history.serving()), (vec![1, 2, 4], 3));
        history.succeed(tables[2].clone());
        history.end(&tables[0]);
        // Again changes nothing.
        history.end(&tables[0]);
        tables[2].of(0).add(Counter::Requests, 8);
        assert_eq!((requests(&history), history.serving()), (vec![9, 2, 4], 1));
        assert_eq!(history.sum().requests, 15);
    }

    #[test]
    fn workers_may_end_before_others_succeed_them() {
        let tables = [1, 1].map(|workers| CounterTable::new(workers).unwrap());
        let history = CounterHistory::new(tables[0].clone());
        tables[0].of(0).add(Counter::Requests, 2);
        history.end(&tables[0]);
        assert_eq!((history.sum().requests, history.serving()), (2, 1));
        history.succeed(tables[1].clone());
        assert!(history.lock().succeeded.is_empty());
        tables[1].of(0).add(Counter::Requests, 1);
        assert_eq!(history.sum().requests, 3);
    }

    #[test]
    fn the_thread_of_a_worker_is_the_one_that_serves() {
        let tables = [1, 1].map(|workers| CounterTable::new(workers).unwrap());
        let history = CounterHistory::new(tables[0].clone());
        tables[0].of(0).begin();
        let waits = history.workers()[0].waits;
        history.succeed(tables[1].clone());
        assert_eq!(history.rows()[0].thread(), None);
        assert!(history.workers()[0].waits >= waits);
        tables[1].of(0).begin();
        assert_eq!(history.rows()[0].thread(), Some(drover_sys::process::thread_number()));
    }
}

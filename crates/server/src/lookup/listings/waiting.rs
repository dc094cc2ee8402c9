//! The lists for which there is no memory yet.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;

use super::{ListKey, ListQuery, abandoned_error, no_room};

/// How many different lists may wait. A waiting one is no more than its name: its directory is read again.
pub(super) const WAITING_MOST: usize = 64;

/// The lists that wait for memory, and who waits for them, in the order in which they were wanted.
#[derive(Default)]
pub(super) struct WaitingLists(VecDeque<WaitingList>);

struct WaitingList {
    key: ListKey,
    /// What it needed when it was tried, in bytes.
    cost: u64,
    queries: Vec<ListQuery>,
}

impl WaitingLists {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Has `queries` wait. Returns those that may not, and why.
    pub(super) fn push(
        &mut self,
        key: &ListKey,
        cost: u64,
        queries: Vec<ListQuery>,
    ) -> Vec<(ListQuery, io::Error)> {
        if let Some(same) = self.0.iter_mut().find(|it| it.key == *key) {
            same.queries.extend(queries);
            return Vec::new();
        }
        let mut turned_away = Vec::new();
        if self.0.len() >= WAITING_MOST {
            turned_away.extend(self.take_abandoned().into_iter().map(|it| (it, abandoned_error())));
        }
        match self.0.len() {
            WAITING_MOST.. => turned_away.extend(queries.into_iter().map(|it| (it, no_room()))),
            _ => self.0.push_back(WaitingList { key: key.clone(), cost, queries }),
        }
        turned_away
    }

    /// Takes the first if there is room for what it costs.
    pub(super) fn pop_if(
        &mut self,
        has_room: impl FnOnce(u64) -> bool,
    ) -> Option<(u64, Vec<ListQuery>)> {
        let cost = self.0.front()?.cost;
        let first = has_room(cost).then(|| self.0.pop_front()).flatten()?;
        Some((cost, first.queries))
    }

    /// Takes the questions out whose clients have given up.
    pub(super) fn take_abandoned(&mut self) -> Vec<ListQuery> {
        let mut abandoned = Vec::new();
        self.0.retain_mut(|list| {
            let is_abandoned = |query: &mut ListQuery| !query.is_wanted.load(Ordering::SeqCst);
            abandoned.extend(list.queries.extract_if(.., is_abandoned));
            !list.queries.is_empty()
        });
        abandoned
    }
}

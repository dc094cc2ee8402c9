//! A worker's cache: entries by site and name, within a limit of bytes.
//!
//! Two queues, after *FIFO queues are all you need for cache eviction* (S3-FIFO, Yang et al., SOSP
//! 2023): a new item waits in a short queue. Only an item that is requested again before it comes to the
//! end of the short queue gets into the long one. A client that requests many names once, or more files
//! than fit, changes the short queue only. A hit moves nothing: it increments a count in its item.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::rc::Rc;
use std::time::Instant;

use drover_sys::reserve;
use foldhash::quality::RandomState;
use hashbrown::HashTable;

/// The share of the short queue in the limit: one part in this many.
const NEW_SHARE: usize = 10;

/// The highest count of requests that an item keeps.
const USED_MOST: u8 = 3;

/// The bytes that an item costs beside its value and its name: its place, its key, its part of the table.
const OVERHEAD: usize = 160;

/// An odd number with bits everywhere (the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Vacant places are removed from the queues when they outnumber the items by more than this.
const VACANT_MOST: usize = 256;

/// Values by site and name.
pub struct Cache<V> {
    limit: usize,
    /// Clients choose the names (one file has many spellings): the hash has a random key, so that nobody can
    /// choose names of one hash.
    hasher: RandomState,
    /// The place of each item, by the hash of its name. It is small, so that a look-up finds it in
    /// the processor's cache, and waits for memory twice: for the item, then for what that leads to.
    places: HashTable<u32>,
    /// The items by place; `None`: removed, but the place is still in a queue.
    items: Vec<Option<Item<V>>>,
    free: Vec<u32>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    /// Where the next [`Cache::sweep`] begins.
    swept: usize,
    /// What the items of each queue cost.
    new_cost: usize,
    old_cost: usize,
}

struct Item<V> {
    hash: u64,
    site: u32,
    name: Box<[u8]>,
    value: Rc<V>,
    cost: usize,
    used: u8,
    is_new: bool,
    checked: Instant,
}

impl<V> std::fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("limit", &self.limit)
            .field("items", &self.places.len())
            .finish_non_exhaustive()
    }
}

impl<V> Cache<V> {
    /// A cache whose items cost at most `limit` together.
    pub fn new(limit: usize) -> Cache<V> {
        Cache {
            limit,
            hasher: RandomState::default(),
            places: HashTable::new(),
            items: Vec::new(),
            free: Vec::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            swept: 0,
            new_cost: 0,
            old_cost: 0,
        }
    }

    /// The value of a site's `name`, and when it was last known to be right: the caller may move that.
    pub fn get(&mut self, site: u32, name: &[u8]) -> Option<(&Rc<V>, &mut Instant)> {
        let place = self.place(self.hash(site, name), site, name)?;
        let item = self.items[place as usize].as_mut()?;
        item.used = (item.used + 1).min(USED_MOST);
        Some((&item.value, &mut item.checked))
    }

    /// Puts a value of `cost` bytes in, in place of any that has its site and name. A value that costs a tenth
    /// of the limit or more is not kept, nor one for whose place there is no memory.
    pub fn insert(&mut self, site: u32, name: &[u8], value: Rc<V>, cost: usize, now: Instant) {
        self.remove(site, name);
        let cost = cost + name.len() + OVERHEAD;
        if cost > self.limit / NEW_SHARE {
            return;
        }
        while self.new_cost + self.old_cost + cost > self.limit && self.evict() {}
        self.free_vacant();
        if !self.has_room_for_one() {
            return;
        }
        let (hash, name) = (self.hash(site, name), name.into());
        let item = Item { hash, site, name, value, cost, used: 0, is_new: true, checked: now };
        let place = self.free.pop().unwrap_or_else(|| {
            self.items.push(None);
            (self.items.len() - 1) as u32
        });
        self.items[place as usize] = Some(item);
        let items = &self.items;
        self.places.insert_unique(hash, place, |&place| hash_of(items, place));
        self.new.push_back(place);
        self.new_cost += cost;
    }

    /// Makes room for another item in the table, and in the lists of places; `false`: there is no memory. For many items each of
    /// them is larger than what the reserve gives.
    fn has_room_for_one(&mut self) -> bool {
        let Cache { places, items, free, new, old, .. } = self;
        // An item may move to the other queue, and its place to those that are free.
        reserve::without_reserve(|| {
            items.try_reserve(1).is_ok()
                && places.try_reserve(1, |&place| hash_of(items, place)).is_ok()
                && [new, old].into_iter().all(|queue| queue.try_reserve(1).is_ok())
                && free.try_reserve(1).is_ok()
        })
    }

    /// Takes a site's `name` out. Its place is free again once it has left its queue: by eviction, or with
    /// other vacant places (`free_vacant`).
    pub fn remove(&mut self, site: u32, name: &[u8]) {
        if let Some(place) = self.place(self.hash(site, name), site, name) {
            self.vacate(place);
        }
    }

    /// Sites are few and not chosen by clients: their names are only spread apart.
    fn hash(&self, site: u32, name: &[u8]) -> u64 {
        self.hasher.hash_one(name) ^ u64::from(site).wrapping_mul(SPREAD)
    }

    fn place(&self, hash: u64, site: u32, name: &[u8]) -> Option<u32> {
        let is = |&place: &u32| {
            let item = self.items[place as usize].as_ref();
            item.is_some_and(|item| item.hash == hash && item.site == site && *item.name == *name)
        };
        self.places.find(hash, is).copied()
    }

    fn vacate(&mut self, place: u32) {
        let Some(item) = self.items[place as usize].take() else { return };
        if let Ok(entry) = self.places.find_entry(item.hash, |&other| other == place) {
            entry.remove();
        }
        *self.cost_of(item.is_new) -= item.cost;
    }

    /// Frees the vacant places in the queues if they are many. Where everything fits, nothing is
    /// evicted, and what is taken out and put in again would otherwise need a new place each time.
    fn free_vacant(&mut self) {
        let queued = self.new.len() + self.old.len();
        if queued <= 2 * self.places.len() + VACANT_MOST {
            return;
        }
        let Cache { items, free, new, old, .. } = self;
        for queue in [new, old] {
            queue.retain(|&place| {
                let taken = items[place as usize].is_some();
                if !taken {
                    free.push(place);
                }
                taken
            });
        }
    }

    /// Takes out every value that is `unwanted`, told with its site, and says whether there was one.
    pub(crate) fn remove_where(&mut self, unwanted: impl Fn(u32, &V) -> bool) -> bool {
        let before = self.places.len();
        for place in 0..self.items.len() {
            if self.items[place].as_ref().is_some_and(|item| unwanted(item.site, &item.value)) {
                self.vacate(place as u32);
            }
        }
        self.places.len() < before
    }

    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Looks at `places` places, from where the last call has ended, and removes the `unwanted` values
    /// in them.
    pub(crate) fn sweep(&mut self, places: usize, unwanted: impl Fn(&V) -> bool) {
        for _ in 0..places.min(self.items.len()) {
            self.swept = (self.swept + 1) % self.items.len();
            if self.items[self.swept].as_ref().is_some_and(|item| unwanted(&item.value)) {
                self.vacate(self.swept as u32);
            }
        }
    }

    /// Goes one step towards more room; `false`: there is nothing left to take out.
    fn evict(&mut self) -> bool {
        let from_new = self.new_cost > self.limit / NEW_SHARE || self.old.is_empty();
        let queue = if from_new { &mut self.new } else { &mut self.old };
        let Some(place) = queue.pop_front() else { return false };
        let Some(item) = &mut self.items[place as usize] else {
            self.free.push(place);
            return true;
        };
        if item.used == 0 {
            self.vacate(place);
            self.free.push(place);
            return true;
        }
        // The item was requested again: it stays in the long queue, or moves there, and its count
        // begins anew.
        let cost = item.cost;
        item.used = if item.is_new { 0 } else { item.used - 1 };
        item.is_new = false;
        *self.cost_of(from_new) -= cost;
        self.old_cost += cost;
        self.old.push_back(place);
        true
    }

    fn cost_of(&mut self, is_new: bool) -> &mut usize {
        if is_new { &mut self.new_cost } else { &mut self.old_cost }
    }
}

fn hash_of<V>(items: &[Option<Item<V>>], place: u32) -> u64 {
    items[place as usize].as_ref().map_or(0, |item| item.hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(cache: &mut Cache<u32>, number: u32, cost: usize) {
        cache.insert(0, &number.to_le_bytes(), Rc::new(number), cost, Instant::now());
    }

    fn get(cache: &mut Cache<u32>, number: u32) -> Option<u32> {
        cache.get(0, &number.to_le_bytes()).map(|(value, _)| **value)
    }

    fn cost(cache: &Cache<u32>) -> usize {
        let kept = cache.items.iter().flatten().map(|item| item.cost).sum::<usize>();
        assert_eq!(kept, cache.new_cost + cache.old_cost);
        assert_eq!(cache.places.len(), cache.items.iter().flatten().count());
        assert_eq!(cache.items.len(), cache.new.len() + cache.old.len() + cache.free.len());
        kept
    }

    #[test]
    fn returns_what_was_put_in_and_the_latest_of_a_name() {
        let mut cache = Cache::new(100_000);
        insert(&mut cache, 1, 10);
        assert_eq!(get(&mut cache, 1), Some(1));
        cache.insert(0, &1u32.to_le_bytes(), Rc::new(7), 10, Instant::now());
        assert_eq!(get(&mut cache, 1), Some(7));
        assert_eq!(get(&mut cache, 2), None);
        cache.remove(0, &1u32.to_le_bytes());
        assert_eq!(get(&mut cache, 1), None);
        assert_eq!(cost(&cache), 0);
    }

    #[test]
    fn a_name_is_another_one_at_each_site() {
        let mut cache = Cache::new(100_000);
        for site in 0..3 {
            cache.insert(site, b"a", Rc::new(site), 10, Instant::now());
        }
        cache.remove_where(|site, _| site == 1);
        let found = [0, 1, 2].map(|site| cache.get(site, b"a").map(|(value, _)| **value));
        assert_eq!(found, [Some(0), None, Some(2)]);
        cache.remove(0, b"a");
        assert!(cache.get(0, b"a").is_none() && cache.get(2, b"a").is_some());
    }

    #[test]
    fn never_costs_more_than_its_limit_and_its_queues_do_not_grow() {
        let mut cache = Cache::new(100_000);
        for number in 0..50_000u32 {
            insert(&mut cache, number, (number as usize * 7919) % 9_000);
            if number % 3 == 0 {
                get(&mut cache, number);
            }
            if number % 5 == 0 {
                cache.remove(0, &number.to_le_bytes());
            }
            if number % 1000 == 0 {
                assert!(cost(&cache) <= 100_000);
            }
        }
        assert!(cache.items.len() < 2_000, "{} places", cache.items.len());
    }

    #[test]
    fn a_walk_over_names_that_nobody_else_asks_for_leaves_what_is_hot() {
        let mut cache = Cache::new(100_000);
        for number in 0..100 {
            insert(&mut cache, number, 100);
            get(&mut cache, number);
        }
        for walker in 1_000..20_000 {
            insert(&mut cache, walker, 100);
            let hot = walker % 100;
            assert_eq!(get(&mut cache, hot), Some(hot), "after {walker}");
        }
    }

    #[test]
    fn what_is_no_longer_asked_for_makes_room() {
        let mut cache = Cache::new(100_000);
        for number in 0..300 {
            insert(&mut cache, number, 100);
            get(&mut cache, number);
        }
        for number in 1_000..3_000 {
            insert(&mut cache, number, 100);
            get(&mut cache, number);
        }
        assert!((0..300).all(|number| get(&mut cache, number).is_none()));
    }

    #[test]
    fn what_is_unwanted_goes_and_the_rest_stays() {
        let mut cache = Cache::new(100_000);
        for number in 0..100 {
            insert(&mut cache, number, 100);
        }
        assert!(cache.remove_where(|_, number| number % 2 == 0));
        assert!((0..100).all(|number| get(&mut cache, number).is_some() == (number % 2 == 1)));
        assert!(!cache.remove_where(|_, number| number % 2 == 0));
        cost(&cache);
    }

    #[test]
    fn what_is_taken_out_and_put_in_again_takes_no_more_places() {
        let mut cache = Cache::new(100_000);
        for number in 0..10 {
            insert(&mut cache, number, 100);
        }
        for _ in 0..10_000 {
            insert(&mut cache, 7, 100);
            cache.remove_where(|_, number| *number == 7);
            insert(&mut cache, 7, 100);
        }
        cost(&cache);
        assert!((0..10).all(|number| get(&mut cache, number) == Some(number)));
        assert!(cache.items.len() < 1_000, "{} places", cache.items.len());
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        let mut cache = Cache::new(100_000);
        insert(&mut cache, 1, 20_000);
        assert_eq!(get(&mut cache, 1), None);
    }
}

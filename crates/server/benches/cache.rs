//! The file cache of a worker among 10,000 names: a look-up that hits, one that misses, and what is
//! put in when there is no more room.

use std::rc::Rc;
use std::time::Instant;

use divan::Bencher;
use drover_server::lookup::cache::Cache;

const NAMES: usize = 10_000;

fn main() {
    divan::main();
}

fn names() -> Vec<String> {
    (0..NAMES).map(|number| format!("/w7/{:02}/{number:04}.html", number / 100)).collect()
}

fn full(names: &[String], cost: usize, limit: usize) -> Cache<usize> {
    let mut cache = Cache::new(limit);
    for (number, name) in names.iter().enumerate() {
        cache.insert(0, name.as_bytes(), Rc::new(number), cost, Instant::now());
    }
    cache
}

/// Steps through the names so that neighbours in time are none in memory.
fn next(at: &mut usize) -> usize {
    *at = (*at + 7_919) % NAMES;
    *at
}

#[divan::bench(sample_size = 1000)]
fn hit(bencher: Bencher<'_, '_>) {
    let names = names();
    let mut cache = full(&names, 100, 64 << 20);
    let mut at = 0;
    bencher.bench_local(|| cache.get(0, names[next(&mut at)].as_bytes()).is_some());
}

#[divan::bench(sample_size = 1000)]
fn miss(bencher: Bencher<'_, '_>) {
    let mut cache = full(&names(), 100, 64 << 20);
    let strangers: Vec<String> = names().iter().map(|name| name.clone() + ".gz").collect();
    let mut at = 0;
    bencher.bench_local(|| cache.get(0, strangers[next(&mut at)].as_bytes()).is_none());
}

/// Half of the names fit: each that comes in has another leave.
#[divan::bench]
fn insert_and_evict(bencher: Bencher<'_, '_>) {
    const COST: usize = 10_000;
    let names = names();
    let mut cache = full(&names, COST, NAMES * COST / 2);
    let now = Instant::now();
    let mut at = 0;
    bencher.bench_local(|| {
        let number = next(&mut at);
        cache.insert(0, names[number].as_bytes(), Rc::new(number), COST, now);
    });
}

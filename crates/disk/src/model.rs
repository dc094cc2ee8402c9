//! The modelled disk without a clock: spindles, their queues, and service times.
//!
//! The model computes times and never waits. The mounted disk sleeps until the computed times; tests run through
//! hours of disk time at once.

use std::collections::VecDeque;
use std::time::Duration;

/// The parameters of the disk. The default is the RAID 1 of two disks of the lighttpd measurements (2007). It is
/// fitted to the published throughput of 1 to 64 threads that read files of 100 KB.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The number of disks that seek independently. Each disk has a copy of everything.
    pub spindles: usize,
    /// How long a seek takes while nothing else is queued.
    pub seek: Duration,
    /// How long it takes to look up a name, or to ask for a file's attributes.
    pub metadata: Duration,
    /// Bytes per second once the head is in place.
    pub bandwidth: f64,
    /// By which part the speed of seeking grows whenever the queue doubles: with a longer queue the elevator finds
    /// shorter ways.
    pub gain: f64,
    /// The share of reads that only one certain spindle can do, however busy it is. (The iostat output of the post
    /// shows one disk at 77 % and its mirror at 99 %.)
    pub bound: f64,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            spindles: 2,
            seek: Duration::from_micros(13_300),
            metadata: Duration::from_micros(13_300),
            bandwidth: 60e6,
            gain: 0.02,
            bound: 0.5,
        }
    }
}

impl Model {
    /// A disk that is `factor` times as fast in every parameter, for a shorter experiment of the same shape.
    #[must_use]
    pub fn faster(&self, factor: f64) -> Model {
        Model {
            seek: self.seek.div_f64(factor),
            metadata: self.metadata.div_f64(factor),
            bandwidth: self.bandwidth * factor,
            ..self.clone()
        }
    }

    /// The parameters, in words.
    pub fn in_words(&self) -> String {
        format!(
            "{} spindles, seek {:?}, metadata {:?}, {} MB/s each, gain {}, bound {}",
            self.spindles,
            self.seek,
            self.metadata,
            self.bandwidth / 1e6,
            self.gain,
            self.bound
        )
    }

    /// How long a request takes. `queued` is the number of queued requests, including this one. `follows`: the
    /// request begins where the head is, so that no seek is needed.
    fn service(&self, what: &DiskRequest, queued: usize, follows: bool) -> Duration {
        let elevator = 1.0 + self.gain * (queued as f64).log2();
        match *what {
            DiskRequest::Metadata => self.metadata.div_f64(elevator),
            DiskRequest::Read { bytes, .. } => {
                let seek = if follows { Duration::ZERO } else { self.seek.div_f64(elevator) };
                seek + Duration::from_secs_f64(bytes as f64 / self.bandwidth)
            }
        }
    }
}

/// A request to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskRequest {
    /// A look-up of a name, or of a file's attributes.
    Metadata,
    /// A read of bytes of a file. Files are contiguous: a read that begins where the previous read ended needs no
    /// seek.
    Read {
        /// The number of the file.
        file: u64,
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes.
        bytes: u64,
    },
}

impl DiskRequest {
    /// The position of the head after the request: file and offset. `None`: no read continues there.
    fn end(&self) -> Option<(u64, u64)> {
        match *self {
            DiskRequest::Metadata => None,
            DiskRequest::Read { file, offset, bytes } => Some((file, offset + bytes)),
        }
    }

    /// Whether the request begins where the head is.
    fn follows(&self, head: Option<(u64, u64)>) -> bool {
        matches!(*self, DiskRequest::Read { file, offset, .. } if head == Some((file, offset)))
    }

    /// A number that looks random, and is always the same for the same place on the disk (the finaliser of
    /// SplitMix64).
    fn place(&self) -> u64 {
        let (file, offset) = match *self {
            DiskRequest::Metadata => (0, 0),
            DiskRequest::Read { file, offset, .. } => (file, offset),
        };
        let mut z = file.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(offset);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A request that a spindle has begun.
#[derive(Debug)]
pub struct Service<T> {
    /// The value that came with the request.
    pub asker: T,
    /// When the disk has done it.
    pub end: Duration,
}

/// What the disk did from its beginning, or from an earlier moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskAccount {
    /// The time it covers.
    pub elapsed: Duration,
    /// Requests that were done.
    pub requests: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// The time that all spindles together were busy.
    pub busy: Duration,
    /// The sum, over all requests, of the time from arrival to end. Divided by `elapsed`, it is the mean number of
    /// requests in the disk (Little's law).
    pub inside: Duration,
}

/// The spindles and their queues. `T` is a value of the caller that comes back with the request.
#[derive(Debug)]
pub struct Spindles<T> {
    model: Model,
    spindles: Vec<Spindle<T>>,
    requests: u64,
    bytes: u64,
    busy: Duration,
    inside: Duration,
}

#[derive(Debug)]
struct Spindle<T> {
    waiting: VecDeque<(Duration, DiskRequest, T)>,
    is_busy: bool,
    /// When the last request that was begun ends.
    free_at: Duration,
    head: Option<(u64, u64)>,
    /// The position of the head after all queued requests.
    tail: Option<(u64, u64)>,
}

impl<T> Spindles<T> {
    /// Spindles without requests.
    pub fn new(model: Model) -> Spindles<T> {
        let idle = || Spindle {
            waiting: VecDeque::new(),
            is_busy: false,
            free_at: Duration::ZERO,
            head: None,
            tail: None,
        };
        Spindles {
            spindles: (0..model.spindles).map(|_| idle()).collect(),
            model,
            requests: 0,
            bytes: 0,
            busy: Duration::ZERO,
            inside: Duration::ZERO,
        }
    }

    /// Queues a request. Returns the index of the spindle.
    pub fn arrive(&mut self, now: Duration, what: DiskRequest, asker: T) -> usize {
        let chosen = self.choose(&what);
        let spindle = &mut self.spindles[chosen];
        spindle.tail = what.end();
        spindle.waiting.push_back((now, what, asker));
        chosen
    }

    /// The spindle that continues at the request's place, or the spindle that is bound to the request, or the spindle
    /// with the shortest queue.
    fn choose(&self, what: &DiskRequest) -> usize {
        if let Some(next) = self.spindles.iter().position(|spindle| what.follows(spindle.tail)) {
            return next;
        }
        let place = what.place();
        let share = (place >> 32) as f64 / f64::from(u32::MAX);
        if *what != DiskRequest::Metadata && share < self.model.bound {
            return place as usize % self.spindles.len();
        }
        let load = |spindle: &Spindle<T>| spindle.waiting.len() + usize::from(spindle.is_busy);
        let least = self.spindles.iter().enumerate().min_by_key(|(_, spindle)| load(spindle));
        least.map_or(0, |(index, _)| index)
    }

    /// Begins the next request of a spindle; `None`: the queue is empty, or the spindle is busy.
    pub fn start(&mut self, spindle: usize) -> Option<Service<T>> {
        let spindle = &mut self.spindles[spindle];
        if spindle.is_busy {
            return None;
        }
        let queued = spindle.waiting.len();
        let (arrived, what, asker) = spindle.waiting.pop_front()?;
        let begin = spindle.free_at.max(arrived);
        let service = self.model.service(&what, queued, what.follows(spindle.head));
        let end = begin + service;
        spindle.head = what.end();
        spindle.free_at = end;
        spindle.is_busy = true;
        self.requests += 1;
        self.busy += service;
        self.inside += end - arrived;
        if let DiskRequest::Read { bytes, .. } = what {
            self.bytes += bytes;
        }
        Some(Service { asker, end })
    }

    /// Ends the request that the spindle has begun.
    pub fn finish(&mut self, spindle: usize) {
        self.spindles[spindle].is_busy = false;
    }

    /// What the disk did from its beginning until `now`.
    pub fn account(&self, now: Duration) -> DiskAccount {
        DiskAccount {
            elapsed: now,
            requests: self.requests,
            bytes: self.bytes,
            busy: self.busy,
            inside: self.inside,
        }
    }
}

impl DiskAccount {
    /// What the disk did between `earlier` and this account.
    #[must_use]
    pub fn since(&self, earlier: &DiskAccount) -> DiskAccount {
        DiskAccount {
            elapsed: self.elapsed.saturating_sub(earlier.elapsed),
            requests: self.requests - earlier.requests,
            bytes: self.bytes - earlier.bytes,
            busy: self.busy.saturating_sub(earlier.busy),
            inside: self.inside.saturating_sub(earlier.inside),
        }
    }

    /// The share of the time that a spindle was busy, the mean over `spindles`, in %.
    pub fn utilisation(&self, spindles: usize) -> f64 {
        100.0 * self.busy.as_secs_f64() / self.elapsed.as_secs_f64() / spindles as f64
    }

    /// Requests per second.
    pub fn iops(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }

    /// The mean number of requests in the disk.
    pub fn mean_queue(&self) -> f64 {
        self.inside.as_secs_f64() / self.elapsed.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 100_000;

    /// Lets `readers` read whole files, one after the other, until `files` files are read. Returns what the disk did.
    fn read_files(model: &Model, readers: usize, files: u64) -> DiskAccount {
        let mut disk = Spindles::new(model.clone());
        let mut running: Vec<(Duration, usize)> = Vec::new();
        let mut next_file = 0;
        let mut ask = |disk: &mut Spindles<()>, running: &mut Vec<_>, now| {
            next_file += 1;
            let what = DiskRequest::Read { file: next_file, offset: 0, bytes: FILE };
            let spindle = disk.arrive(now, what, ());
            running.extend(disk.start(spindle).map(|service| (service.end, spindle)));
        };
        for _ in 0..readers {
            ask(&mut disk, &mut running, Duration::ZERO);
        }
        let mut now = Duration::ZERO;
        for _ in 0..files {
            let first =
                (0..running.len()).min_by_key(|i| running[*i].0).expect("all spindles idle");
            let (end, spindle) = running.swap_remove(first);
            now = end;
            disk.finish(spindle);
            running.extend(disk.start(spindle).map(|service| (service.end, spindle)));
            ask(&mut disk, &mut running, now);
        }
        disk.account(now)
    }

    #[test]
    fn the_default_reproduces_the_published_sweep_of_read_threads() {
        let published =
            [(1, 6.83), (2, 11.61), (4, 13.02), (8, 13.61), (16, 13.81), (32, 14.04), (64, 14.87)];
        for (readers, megabytes) in published {
            let account = read_files(&Model::default(), readers, 5000);
            let here = account.bytes as f64 / 1e6 / account.elapsed.as_secs_f64();
            let far = (here / megabytes - 1.0).abs();
            assert!(far < 0.05, "{readers} readers: {megabytes} MB/s published, {here:.2} here");
        }
    }

    #[test]
    fn a_single_reader_waits_for_each_seek_and_uses_half_of_two_spindles() {
        let model = Model { bound: 0.0, ..Model::default() };
        let account = read_files(&model, 1, 100);
        let each = model.seek + Duration::from_secs_f64(FILE as f64 / model.bandwidth);
        let error = account.elapsed.as_secs_f64() / (100.0 * each.as_secs_f64()) - 1.0;
        assert!(error.abs() < 1e-6, "{error}");
        let busy = account.utilisation(2);
        assert!((49.0..52.0).contains(&busy), "{busy}");
    }

    #[test]
    fn a_faster_disk_does_the_same_in_less_time() {
        let slow = read_files(&Model::default(), 8, 1000);
        let fast = read_files(&Model::default().faster(10.0), 8, 1000);
        let ratio = slow.elapsed.as_secs_f64() / fast.elapsed.as_secs_f64();
        assert!((ratio - 10.0).abs() < 0.01, "{ratio}");
        assert!((slow.mean_queue() - fast.mean_queue()).abs() < 0.1);
    }

    #[test]
    fn what_continues_where_the_head_stands_needs_no_seek() {
        let model = Model { bandwidth: 1e6, ..Model::default() };
        let mut disk = Spindles::new(model.clone());
        let read = |offset| DiskRequest::Read { file: 1, offset, bytes: 1000 };
        let first = disk.arrive(Duration::ZERO, read(0), ());
        let begun = disk.start(first).unwrap();
        assert_eq!(begun.end, model.seek + Duration::from_millis(1));
        disk.finish(first);
        assert_eq!(disk.arrive(begun.end, read(1000), ()), first);
        let second = disk.start(first).unwrap();
        assert_eq!(second.end, begun.end + Duration::from_millis(1));
        disk.finish(first);
        let third = disk.arrive(second.end, read(5000), ());
        assert!(disk.start(third).unwrap().end >= second.end + model.seek);
    }

    #[test]
    fn a_busy_spindle_begins_nothing_and_metadata_costs_what_it_is_said_to() {
        let metadata = Duration::from_millis(5);
        let model = Model { spindles: 1, metadata, ..Model::default() };
        let mut disk = Spindles::new(model);
        disk.arrive(Duration::ZERO, DiskRequest::Metadata, 'a');
        disk.arrive(Duration::ZERO, DiskRequest::Metadata, 'b');
        let first = disk.start(0).unwrap();
        assert_eq!(first.asker, 'a');
        assert!(disk.start(0).is_none());
        disk.finish(0);
        let second = disk.start(0).unwrap();
        assert_eq!((second.asker, second.end), ('b', first.end + metadata));
    }
}

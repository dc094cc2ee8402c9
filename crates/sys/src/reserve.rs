//! A reserve of memory for the time when the kernel gives no more, and what may fail instead of using it.
//!
//! An allocation that cannot fail aborts the process when there is no memory: most code allocates so, the standard library
//! too. With [`ReserveAllocator`] as the global allocator, such an allocation comes from a reserve that the process has from
//! its start. Its owner learns that by [`take_need`], ends what needed memory, and so fills the reserve again. Only when
//! the reserve is used up too is the process aborted.
//!
//! What is large, or may fail at little cost, leaves the reserve to others: [`without_reserve`], [`try_zeroed`],
//! [`make_room`].
//!
//! The reserve consists of zeroed pages of the program itself (`.bss`). Pages that were never used cost no memory. They count
//! for `RLIMIT_AS` and `RLIMIT_DATA` from the start, so that these limits cannot take them back.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The allocator of the system, with the reserve behind it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReserveAllocator;

/// The most that one allocation gets of the reserve, in bytes.
pub const LARGEST: usize = 1 << 20;

/// All cells of the reserve.
#[repr(C, align(4096))]
struct Reserve {
    /// 4096 cells of 512 bytes each.
    small: Cells<{ 2 << 20 }, 64>,
    /// 512 cells of 16 KiB each.
    large: Cells<{ 8 << 20 }, 8>,
}

static RESERVE: Reserve = Reserve { small: Cells::new(), large: Cells::new() };

thread_local! {
    /// How many allocations more this thread has put into the reserve than it has given back, since [`take_need`].
    static NEEDED: Cell<u32> = const { Cell::new(0) };
    /// Whether allocations of this thread fail rather than use the reserve.
    static MAY_FAIL: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread has put more into the reserve than it has given back since the last [`take_need`]. What was given back at
/// once needs nothing any more. This is one load.
#[inline]
#[must_use]
pub fn is_needed() -> bool {
    NEEDED.get() > 0
}

/// The same; a new count begins.
#[must_use]
pub fn take_need() -> bool {
    NEEDED.take() > 0
}

/// Whether these bytes are in the reserve. For what is kept for long: it should be elsewhere, or not at all.
#[must_use]
pub fn holds(bytes: &[u8]) -> bool {
    RESERVE.holds(bytes.as_ptr().cast_mut())
}

/// Calls `work`, whose allocations on this thread fail rather than use the reserve. An allocation in `work` that cannot fail
/// aborts the process.
pub fn without_reserve<R>(work: impl FnOnce() -> R) -> R {
    let before = MAY_FAIL.replace(true);
    let result = work();
    MAY_FAIL.set(before);
    result
}

/// The error of an allocation that has failed: `ENOMEM`.
#[must_use]
pub fn out_of_memory() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOMEM)
}

/// Makes room for `more` items behind those of `items`.
///
/// # Errors
/// `ENOMEM`; then nothing has changed.
#[inline]
pub fn make_room<T>(items: &mut Vec<T>, more: usize) -> io::Result<()> {
    if items.capacity() - items.len() >= more {
        return Ok(());
    }
    without_reserve(|| items.try_reserve(more)).map_err(|_| out_of_memory())
}

/// Like [`Vec::resize`].
///
/// # Errors
/// `ENOMEM`; then nothing has changed.
#[inline]
pub fn try_resize<T: Clone>(items: &mut Vec<T>, len: usize, value: T) -> io::Result<()> {
    make_room(items, len.saturating_sub(items.len()))?;
    items.resize(len, value);
    Ok(())
}

/// `len` bytes, all of them 0.
///
/// # Errors
/// `ENOMEM`.
pub fn try_zeroed(len: usize) -> io::Result<Box<[u8]>> {
    if len == 0 {
        return Ok(Box::default());
    }
    let layout = Layout::array::<u8>(len).map_err(|_| out_of_memory())?;
    // SAFETY: the layout is not empty.
    let bytes = without_reserve(|| unsafe { std::alloc::alloc_zeroed(layout) });
    let bytes = NonNull::new(bytes).ok_or_else(out_of_memory)?;
    let bytes = std::ptr::slice_from_raw_parts_mut(bytes.as_ptr(), len);
    // SAFETY: the global allocator has just made these bytes for this layout, and nobody else has them.
    Ok(unsafe { Box::from_raw(bytes) })
}

/// Fails unless `bytes` bytes can be had now, or the reserve has so many easily. For what makes many allocations, which this
/// thread then probably gets; if others are faster, there is still the reserve.
///
/// # Errors
/// `ENOMEM`.
pub fn probe(bytes: usize) -> io::Result<()> {
    // A vector: the compiler may leave out an allocation that nobody looks at, but not one whose failure is asked for.
    let mut room = Vec::<u8>::new();
    if bytes > 64 << 10 {
        make_room(&mut room, bytes)?;
    }
    std::hint::black_box(&mut room);
    Ok(())
}

/// Memory in cells of one size, `64 * WORDS` of them.
struct Cells<const LEN: usize, const WORDS: usize> {
    bytes: UnsafeCell<[u8; LEN]>,
    /// A bit for each cell that is taken.
    taken: [AtomicU64; WORDS],
}

// SAFETY: the bytes of a cell are used only by whoever has taken the cell, and each cell is taken by one at a time (`taken`).
unsafe impl<const LEN: usize, const WORDS: usize> Sync for Cells<LEN, WORDS> {}

impl<const LEN: usize, const WORDS: usize> Cells<LEN, WORDS> {
    /// The size of a cell.
    const SIZE: usize = LEN / (64 * WORDS);

    const fn new() -> Self {
        Cells { bytes: UnsafeCell::new([0; LEN]), taken: [const { AtomicU64::new(0) }; WORDS] }
    }

    fn start(&self) -> *mut u8 {
        self.bytes.get().cast()
    }

    /// The bits of `cells` cells, 1 to 64, from the first of a word on.
    fn run(cells: usize) -> u64 {
        u64::MAX >> (64 - cells)
    }

    fn cells_for(len: usize) -> usize {
        len.div_ceil(Self::SIZE)
    }

    /// Takes `len` bytes in a row, at least 1.
    fn take(&self, len: usize) -> Option<NonNull<u8>> {
        let cells = Self::cells_for(len);
        if cells > 64 {
            return None;
        }
        for (number, word) in self.taken.iter().enumerate() {
            let mut taken = word.load(Ordering::Relaxed);
            let mut first = 0;
            while first + cells <= 64 {
                let run = Self::run(cells) << first;
                if taken & run != 0 {
                    first += 1;
                    continue;
                }
                let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
                match word.compare_exchange_weak(taken, taken | run, order, failed) {
                    Ok(_) => {
                        let offset = (64 * number + first) * Self::SIZE;
                        // SAFETY: the run lies within the word's cells, so the offset lies within the bytes.
                        return NonNull::new(unsafe { self.start().add(offset) });
                    }
                    Err(now) => (taken, first) = (now, 0),
                }
            }
        }
        None
    }

    /// Gives the `len` bytes at `start` back; `false`: they are not of these cells.
    fn give_back(&self, start: *mut u8, len: usize) -> bool {
        let offset = start.addr().wrapping_sub(self.start().addr());
        if offset >= LEN {
            return false;
        }
        let cell = offset / Self::SIZE;
        let run = Self::run(Self::cells_for(len)) << (cell % 64);
        self.taken[cell / 64].fetch_and(!run, Ordering::Release);
        true
    }
}

impl Reserve {
    fn holds(&self, start: *mut u8) -> bool {
        start.addr().wrapping_sub((&raw const *self).addr()) < size_of::<Reserve>()
    }

    /// Memory for an allocation that the system has refused; null: there is none, or the thread does without.
    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        if MAY_FAIL.get() {
            return std::ptr::null_mut();
        }
        let (len, align) = (layout.size(), layout.align());
        let small = if align <= 512 && len <= 2048 { self.small.take(len) } else { None };
        let large = || if align <= 4096 { self.large.take(len) } else { None };
        let Some(start) = small.or_else(large) else { return std::ptr::null_mut() };
        NEEDED.set(NEEDED.get() + 1);
        start.as_ptr()
    }

    #[cold]
    fn give_back(&self, start: *mut u8, len: usize) {
        if self.small.give_back(start, len) || self.large.give_back(start, len) {
            NEEDED.set(NEEDED.get().saturating_sub(1));
        }
    }
}

// SAFETY: an allocation is the system allocator's, or a run of cells of the reserve that is nobody else's until it is given
// back. The addresses tell which. No function panics: indices follow from addresses within the reserve.
unsafe impl GlobalAlloc for ReserveAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that the system's allocator needs.
        let start = unsafe { System.alloc(layout) };
        if start.is_null() { RESERVE.take(layout) } else { start }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let start = unsafe { System.alloc_zeroed(layout) };
        if !start.is_null() {
            return start;
        }
        let start = RESERVE.take(layout);
        if !start.is_null() {
            // SAFETY: so many bytes were taken.
            unsafe { start.write_bytes(0, layout.size()) };
        }
        start
    }

    #[inline]
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if RESERVE.holds(start) {
            return RESERVE.give_back(start, layout.size());
        }
        // SAFETY: what is not in the reserve is the system's.
        unsafe { System.dealloc(start, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        if !RESERVE.holds(start) {
            // SAFETY: what is not in the reserve is the system's.
            let moved = unsafe { System.realloc(start, layout, len) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller's promises are those of this function.
        unsafe { move_elsewhere(start, layout, len) }
    }
}

/// Moves an allocation that is in the reserve, or that the system cannot make larger.
///
/// # Safety
/// As [`GlobalAlloc::realloc`].
#[cold]
unsafe fn move_elsewhere(start: *mut u8, layout: Layout, len: usize) -> *mut u8 {
    let allocator = ReserveAllocator;
    // SAFETY: `realloc` demands that the length is not 0, and does not overflow when rounded up to the alignment.
    let to = unsafe { Layout::from_size_align_unchecked(len, layout.align()) };
    // SAFETY: the layout is valid and not empty; both allocations have the bytes that are copied, and do not overlap.
    unsafe {
        let moved = allocator.alloc(to);
        if !moved.is_null() {
            moved.copy_from_nonoverlapping(start, layout.size().min(len));
            allocator.dealloc(start, layout);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, 8).unwrap()
    }

    fn reserve() -> Box<Reserve> {
        // SAFETY: zeroes are a valid reserve, of which nothing is taken.
        unsafe { Box::<Reserve>::new_zeroed().assume_init() }
    }

    #[test]
    fn each_gets_bytes_of_its_own_and_all_come_back() {
        let reserve = reserve();
        let lens = [1, 512, 513, 2048, 2049, 65_536, 65_537, LARGEST];
        for _ in 0..3 {
            let taken: Vec<_> = lens.iter().map(|&len| (reserve.take(layout(len)), len)).collect();
            let mut ranges: Vec<_> =
                taken.iter().map(|(start, len)| start.addr()..start.addr() + len).collect();
            ranges.sort_by_key(|range| range.start);
            assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?}");
            for (start, len) in taken {
                assert!(reserve.holds(start) && start.addr().is_multiple_of(8));
                // SAFETY: so many bytes were taken.
                unsafe { start.write_bytes(1, len) };
                reserve.give_back(start, len);
            }
            let words = reserve.small.taken.iter().chain(&reserve.large.taken);
            assert!(words.map(|word| word.load(Ordering::Relaxed)).all(|taken| taken == 0));
        }
        assert!(!take_need(), "all of it was given back");
        reserve.take(layout(1));
        assert!(take_need() && !take_need());
    }

    #[test]
    fn what_may_fail_and_what_is_too_large_gets_nothing() {
        let reserve = reserve();
        assert!(reserve.take(layout(LARGEST + 1)).is_null());
        assert!(without_reserve(|| reserve.take(layout(1))).is_null());
        assert!(!take_need());
        let taken: Vec<_> = (0..8).map(|_| reserve.take(layout(LARGEST))).collect();
        assert!(taken.iter().all(|start| !start.is_null()));
        assert!(reserve.take(layout(65_536)).is_null() && !reserve.take(layout(1)).is_null());
    }

    #[test]
    fn an_allocation_that_cannot_be_is_an_error() {
        let is_missing = |error: io::Error| error.kind() == io::ErrorKind::OutOfMemory;
        assert!(is_missing(try_zeroed(usize::MAX >> 1).unwrap_err()));
        assert!(is_missing(make_room(&mut Vec::<u64>::new(), usize::MAX >> 4).unwrap_err()));
        assert!(is_missing(probe(usize::MAX >> 1).unwrap_err()));
        assert_eq!(try_zeroed(3).unwrap()[..], [0, 0, 0]);
        assert!(try_zeroed(0).unwrap().is_empty());
    }

    #[test]
    fn what_is_in_the_reserve_grows_and_shrinks_with_its_bytes() {
        let start = RESERVE.take(layout(100));
        // SAFETY: each call has the layout of the one before, and the bytes are there.
        unsafe {
            start.write_bytes(7, 100);
            let grown = ReserveAllocator.realloc(start, layout(100), 10_000);
            assert!(!RESERVE.holds(grown) && *grown.add(99) == 7);
            let small = ReserveAllocator.realloc(grown, layout(10_000), 10);
            assert_eq!(*small.add(9), 7);
            ReserveAllocator.dealloc(small, layout(10));
        }
    }
}

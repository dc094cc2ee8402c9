//! How much faster a disk is if it is asked for many blocks at once: the most that asynchronous reads can gain over
//! blocking reads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// How many reads are under way at once in the second half of the probe.
pub(super) const DEPTH: usize = 16;

/// A disk with a lower factor cannot show the effect of asynchronous reads.
pub(super) const WORTH_WHILE: f64 = 1.5;

/// How long each half takes.
const WINDOW: Duration = Duration::from_millis(300);

/// The bytes of each read.
const BLOCK: usize = 4096;

/// A buffer for a read, aligned as O_DIRECT requires.
#[repr(align(4096))]
struct Block([u8; BLOCK]);

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// Random reads per second, one at a time.
    pub alone: f64,
    /// Random reads per second, sixteen at a time.
    pub together: f64,
}

impl Gain {
    /// Reads random blocks of `files` past the page cache, one at a time and sixteen at a time.
    ///
    /// # Errors
    /// `EINVAL` from file systems that cannot read past the page cache; what else the kernel says.
    pub fn probe(files: &[std::path::PathBuf]) -> io::Result<Gain> {
        let files: Vec<File> = files
            .iter()
            .map(|path| drover_mech::files::bytes::open_direct(path))
            .collect::<io::Result<_>>()?;
        Ok(Gain { alone: reads_per_second(&files, 1)?, together: reads_per_second(&files, DEPTH)? })
    }

    /// The most that asynchronous reads can gain.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.together / self.alone
    }

    /// Whether this disk can show what asynchronous reads gain.
    #[must_use]
    pub fn is_worth_while(&self) -> bool {
        self.factor() >= WORTH_WHILE
    }

    /// The finding in a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!(
            "This disk does {:.0} random reads/s one at a time and {:.0} with {DEPTH} at a time: \
             asynchronous reads can gain at most × {:.2}{}.",
            self.alone,
            self.together,
            self.factor(),
            match self.is_worth_while() {
                true => "",
                false => ", which is too little to show it",
            }
        )
    }
}

fn reads_per_second(files: &[File], readers: usize) -> io::Result<f64> {
    let done = AtomicU64::new(0);
    let begin = Instant::now();
    thread::scope(|scope| {
        let reader = |number: usize| {
            let done = &done;
            move || -> io::Result<()> {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(number as u64);
                let mut block = Box::new(Block([0; BLOCK]));
                while begin.elapsed() < WINDOW {
                    let file = &files[random.random_range(0..files.len())];
                    let blocks = (file.metadata()?.len() / BLOCK as u64).max(1);
                    file.read_at(&mut block.0, random.random_range(0..blocks) * BLOCK as u64)?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
        };
        let readers: Vec<_> = (0..readers).map(|number| scope.spawn(reader(number))).collect();
        readers.into_iter().try_for_each(|reader| reader.join().expect("a reader does not panic"))
    })?;
    Ok(done.into_inner() as f64 / begin.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_gains_nothing_is_told_as_such() {
        let flat = Gain { alone: 100.0, together: 149.0 };
        assert!(!flat.is_worth_while());
        assert!(flat.in_words().contains("× 1.49, which is too little"), "{}", flat.in_words());
        let deep = Gain { alone: 100.0, together: 150.0 };
        assert!(deep.is_worth_while() && !deep.in_words().contains("too little"));
    }
}

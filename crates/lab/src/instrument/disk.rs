//! The work of the block device below the pools in the window.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{Instrument, Readings};
use crate::failure::Failure;
use crate::subject::Running;

/// Bytes of a sector in the kernel's counters. The unit does not depend on the device (Documentation/block/stat.rst).
const SECTOR: u64 = 512;

/// Reads the counters of the block device that a folder is on.
#[derive(Debug)]
pub struct DiskCounters {
    folder: PathBuf,
    statistics: PathBuf,
    before: Counters,
}

/// The device's counters since the machine's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    sectors_read: u64,
    sectors_written: u64,
    busy_ms: u64,
}

impl DiskCounters {
    /// The device that `folder` is on.
    ///
    /// # Errors
    /// [`Failure::NotTestable`] if the folder is on no block device, but on a file system in memory, on a network
    /// file system, or on an overlay.
    pub fn below(folder: &Path) -> Result<DiskCounters, Failure> {
        let failed = |error| Failure::failed(format!("{}: {error}", folder.display()));
        let device = fs::metadata(folder).map_err(failed)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let statistics = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        let disk =
            DiskCounters { folder: folder.to_path_buf(), statistics, before: Counters::default() };
        disk.read()?;
        Ok(disk)
    }

    fn read(&self) -> Result<Counters, Failure> {
        let text = fs::read_to_string(&self.statistics).ok();
        text.and_then(|text| Counters::parse(&text)).ok_or_else(|| {
            Failure::not_testable(format!(
                "{} is on no block device that the kernel counts the accesses of",
                self.folder.display()
            ))
        })
    }

    /// Writes all dirty data of the file system to the device.
    fn sync(&self) -> Result<(), Failure> {
        let failed =
            |error: std::io::Error| Failure::failed(format!("{}: {error}", self.folder.display()));
        let folder = File::open(&self.folder).map_err(failed)?;
        rustix::fs::syncfs(folder).map_err(|error| failed(error.into()))
    }
}

impl Counters {
    fn parse(text: &str) -> Option<Counters> {
        let numbers: Vec<u64> =
            text.split_whitespace().map_while(|word| word.parse().ok()).collect();
        Some(Counters {
            sectors_read: *numbers.get(2)?,
            sectors_written: *numbers.get(6)?,
            busy_ms: *numbers.get(9)?,
        })
    }
}

impl Instrument for DiskCounters {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn begin(&mut self, _: &mut Running) -> Result<(), Failure> {
        self.sync()?;
        self.before = self.read()?;
        Ok(())
    }

    fn end(&mut self, _: &mut Running, seconds: f64) -> Result<Readings, Failure> {
        // Reads and busy time are read before sync(2), which writes what the window has left in memory.
        let now = self.read()?;
        self.sync()?;
        let written = self.read()?.sectors_written.saturating_sub(self.before.sectors_written);
        let read = now.sectors_read.saturating_sub(self.before.sectors_read);
        let busy = now.busy_ms.saturating_sub(self.before.busy_ms) as f64 / 1e3;
        let mut readings = Readings::default();
        let rate = |sectors: u64| (sectors * SECTOR) as f64 / 1024.0 / seconds;
        readings.set("disk-percent", (100.0 * busy / seconds).min(100.0));
        readings.set("disk-reads", rate(read));
        // At least one sector, so that ratios exist.
        readings.set("disk-writes", rate(written.max(1)));
        readings.notes = json!({ "device": self.statistics });
        Ok(readings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_places() {
        let text =
            "   9688     3   734722   1812   5518   4100  190464  7110   0   4176   8922 0 0\n";
        let expected = Counters { sectors_read: 734_722, sectors_written: 190_464, busy_ms: 4176 };
        assert_eq!(Counters::parse(text), Some(expected));
        assert_eq!(Counters::parse("1 2 3"), None);
    }

    #[test]
    fn a_folder_without_a_disk_is_named() {
        let failure = DiskCounters::below(Path::new("/proc")).unwrap_err();
        assert!(
            matches!(&failure, Failure::NotTestable(why) if why.contains("/proc")),
            "{failure}"
        );
    }
}

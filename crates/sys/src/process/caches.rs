//! The sizes of this processor's caches, read from sysfs
//! (Documentation/ABI/testing/sysfs-devices-system-cpu).

use std::fs;
use std::path::Path;

/// The size in bytes that is assumed for a second-level cache where sysfs does not give one: in a
/// container without sysfs, and on some processors. Most caches have between half and twice this size.
const SECOND_LEVEL_USUAL: u64 = 1 << 20;

/// The size, in bytes, of one processor's second-level cache.
#[must_use]
pub fn second_level_cache() -> u64 {
    second_level(Path::new("/sys/devices/system/cpu/cpu0/cache")).unwrap_or(SECOND_LEVEL_USUAL)
}

/// The size of the second-level cache, in bytes, from the folder of a processor's caches. Each cache has
/// a folder in it with the files `level`, `type` and `size`.
fn second_level(caches: &Path) -> Option<u64> {
    let text = |folder: &Path, name| fs::read_to_string(folder.join(name)).ok();
    fs::read_dir(caches).ok()?.flatten().find_map(|entry| {
        let folder = entry.path();
        let is_second = text(&folder, "level")?.trim() == "2";
        let holds_data = text(&folder, "type")?.trim() != "Instruction";
        if is_second && holds_data { parse(text(&folder, "size")?.trim()) } else { None }
    })
}

/// Reads a size as the kernel writes it: `2048K`.
fn parse(size: &str) -> Option<u64> {
    size.strip_suffix('K')?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_level_is_found_among_the_others() {
        let caches = tempfile::tempdir().unwrap();
        let levels = [("1", "Data", "48K"), ("2", "Unified", "2048K"), ("3", "Unified", "32768K")];
        for (number, (level, kind, size)) in levels.into_iter().enumerate() {
            let folder = caches.path().join(format!("index{number}"));
            fs::create_dir(&folder).unwrap();
            for (name, value) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(folder.join(name), format!("{value}\n")).unwrap();
            }
        }
        assert_eq!(second_level(caches.path()), Some(2 << 20));
        assert_eq!(second_level(&caches.path().join("nowhere")), None);
        assert!(second_level_cache() >= 64 << 10);
    }
}

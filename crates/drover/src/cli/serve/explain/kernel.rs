//! Settings of the kernel, as /proc/sys has them.

use std::fs;
use std::path::Path;

/// The value of a setting, by its path beneath /proc/sys; `None`: the kernel has no such setting, or this process may
/// not read it.
pub(super) fn setting(path: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/proc/sys").join(path)).ok()?;
    Some(text.trim().to_owned())
}

/// The value of a setting that is a number.
pub(super) fn number(path: &str) -> Option<u64> {
    setting(path)?.parse().ok()
}

/// A setting by its name for sysctl(8), and its value, for people.
pub(super) fn told(path: &str) -> String {
    let name = path.replace('/', ".");
    match setting(path) {
        Some(value) => format!("{name} is {value}"),
        None => format!("{name} cannot be read here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_told_with_their_values_or_not_at_all() {
        assert!(setting("kernel/osrelease").is_some_and(|it| it.contains('.')));
        assert_eq!(told("kernel/no_such_thing"), "kernel.no_such_thing cannot be read here");
        assert!(number("fs/nr_open").is_some_and(|it| it > 0));
        assert_eq!(number("kernel/osrelease"), None);
    }
}

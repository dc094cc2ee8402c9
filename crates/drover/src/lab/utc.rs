//! Points in time, written for people and for names of folders.

use std::time::{SystemTime, UNIX_EPOCH};

/// UTC as RFC 3339 writes it: `2001-06-25T09:00:00Z`.
pub fn rfc3339(time: SystemTime) -> String {
    let [year, month, day, hour, minute, second] = parts(time);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// UTC as it sorts in a file name: `20010625-090000`.
pub fn compact(time: SystemTime) -> String {
    let [year, month, day, hour, minute, second] = parts(time);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// Year, month, day, hour, minute and second; times before 1970 count as its beginning.
fn parts(time: SystemTime) -> [u64; 6] {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's civil_from_days: years begin in March, so that the leap day comes last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    [year, month, day, rest / 3_600, rest / 60 % 60, rest % 60]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[track_caller]
    fn assert_reads(seconds: u64, expected: &str) {
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
    }

    #[test]
    fn known_times_are_written_right() {
        assert_reads(0, "1970-01-01T00:00:00Z");
        assert_reads(951_782_400, "2000-02-29T00:00:00Z");
        assert_reads(993_459_600, "2001-06-25T09:00:00Z");
        assert_reads(4_107_542_399, "2100-02-28T23:59:59Z");
        assert_reads(4_107_542_400, "2100-03-01T00:00:00Z");
    }

    #[test]
    fn names_of_folders_sort_by_time() {
        assert_eq!(compact(UNIX_EPOCH + Duration::from_secs(993_459_600)), "20010625-090000");
    }
}

//! What a report says of a session.

use crate::record::Record;

/// What a report says of a session.
#[derive(Clone, Debug)]
pub struct Report<'r> {
    /// The session.
    pub record: &'r Record,
}

impl Report<'_> {
    /// The report of a session.
    #[must_use]
    pub fn of(record: &Record) -> Report<'_> {
        Report { record }
    }
}

//! Names and what they led to, to see whether they still do.

use std::io;

use super::{Cause, Root, Stamp};

/// A name beneath a root, and the stamp of the file that it led to; `None`: there was none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedName {
    /// The name, relative to the root.
    pub name: Box<[u8]>,
    /// The stamp of the file with that name.
    pub stamp: Option<Stamp>,
}

impl ExpectedName {
    /// The name and the stamp.
    #[must_use]
    pub fn pair(&self) -> (&[u8], Option<Stamp>) {
        (&self.name, self.stamp)
    }
}

impl Root {
    /// Whether all names lead to what they led to. May wait for a disk.
    #[must_use]
    pub fn still_has<'n>(
        &self,
        names: impl IntoIterator<Item = (&'n [u8], Option<Stamp>)>,
    ) -> bool {
        // `stamp` never says that it would wait.
        lead_to(names, |name| self.stamp(name)).unwrap_or(false)
    }

    /// Like [`Root::still_has`], but never waits for a disk.
    ///
    /// # Errors
    /// `WouldBlock`: a disk may be needed.
    pub fn try_still_has<'n>(
        &self,
        names: impl IntoIterator<Item = (&'n [u8], Option<Stamp>)>,
    ) -> io::Result<bool> {
        lead_to(names, |name| self.try_stamp_cached(name))
    }
}

fn lead_to<'n>(
    names: impl IntoIterator<Item = (&'n [u8], Option<Stamp>)>,
    stamp: impl Fn(&[u8]) -> io::Result<Stamp>,
) -> io::Result<bool> {
    for (name, before) in names {
        match (stamp(name), before) {
            (Ok(now), Some(before)) if now == before => {}
            (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            (Err(error), None) if Cause::of(&error) == Cause::Missing => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

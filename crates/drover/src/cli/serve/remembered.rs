//! Answers of name services and results of `drover tune`, which a server keeps for its life: after its start it cannot
//! ask again, and a reload of its configuration goes by the same answers.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What was found, by what was asked for.
pub(super) struct Remembered<T>(Mutex<BTreeMap<String, T>>);

impl<T: Clone> Remembered<T> {
    pub(super) const fn new() -> Remembered<T> {
        Remembered(Mutex::new(BTreeMap::new()))
    }

    /// What was found for `asked`, or what `find` finds now.
    ///
    /// # Errors
    /// Those of `find`, which are not remembered.
    pub(super) fn find<E>(&self, asked: &str, find: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.get(asked) {
            return Ok(found.clone());
        }
        let found = find()?;
        all.insert(asked.to_owned(), found.clone());
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_not_looked_for_again_and_what_was_not_is() {
        let remembered = Remembered::new();
        assert_eq!(remembered.find("a", || Err("no")), Err("no"));
        assert_eq!(remembered.find("a", || Ok::<_, &str>(1)), Ok(1));
        assert_eq!(remembered.find("a", || Err("no")), Ok(1));
        assert_eq!(remembered.find("b", || Err("no")), Err("no"));
    }
}

//! Something that is done at the end of a block, also of one that panics.

use std::fmt;

/// Calls its function when it is dropped. A test that has clients ask until it is over tells them by one, because a scope waits
/// for its threads also when the test has failed.
pub struct Finally<F: FnMut()>(pub F);

impl<F: FnMut()> fmt::Debug for Finally<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finally").finish_non_exhaustive()
    }
}

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

//! How long a kept file is served without a look, and who is told of a root that is out of reach.

use std::sync::Arc;
use std::time::Duration;

/// How long a kept file is served without a look whether its name still leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revalidate {
    /// For a file that is not watched.
    pub after: Duration,
    /// For a file that is watched by inotify(7), which reports a change at once; `None`: files are not
    /// watched.
    pub watched_after: Option<Duration>,
}

impl Default for Revalidate {
    fn default() -> Revalidate {
        Revalidate { after: Duration::from_secs(1), watched_after: None }
    }
}

/// Who is told when the path of a root leads to another directory that the sandbox keeps from a worker: in a worker process the
/// supervisor, which opens it and starts other workers. The default is told nothing.
#[derive(Clone, Default)]
pub struct RootWatch(Option<Arc<dyn Fn() + Send + Sync>>);

impl RootWatch {
    /// `tell` is called.
    pub(crate) fn new(tell: impl Fn() + Send + Sync + 'static) -> RootWatch {
        RootWatch(Some(Arc::new(tell)))
    }

    /// Tells that a root is out of reach; `false`: there is nobody to tell.
    pub(crate) fn tell(&self) -> bool {
        self.0.iter().for_each(|tell| tell());
        self.0.is_some()
    }
}

impl std::fmt::Debug for RootWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RootWatch").field(&self.0.is_some()).finish()
    }
}

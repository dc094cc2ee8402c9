//! Ways to save work before the first byte of a file is read, as data. `drover mechanisms` lists them.

use rustix::fs::Advice;

use crate::files::root::OpenOptions;

/// A way to save work before the first byte of a file is read.
pub struct Preparation {
    /// The name of the flag that switches the preparation.
    pub name: &'static str,
    /// What the preparation does, in one line.
    pub summary: &'static str,
    /// Whether a server does the preparation by default.
    pub auto: bool,
    probe: fn() -> Result<(), String>,
}

impl Preparation {
    /// Checks that this kernel supports the preparation, by trying it.
    ///
    /// # Errors
    /// What the kernel answered, as a message for the user.
    pub fn probe(&self) -> Result<(), String> {
        (self.probe)()
    }
}

impl std::fmt::Debug for Preparation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preparation").field("name", &self.name).finish()
    }
}

/// Every preparation, in the order in which help texts list them.
pub static PREPARATIONS: &[&Preparation] = &[
    &Preparation {
        name: "stat-threads",
        summary: "names and attributes not at hand (RESOLVE_CACHED) are asked for by other threads",
        auto: true,
        probe: || match crate::files::root::Root::open("/".as_ref())
            .and_then(|root| root.try_open_cached(b"", OpenOptions::default()))
        {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("all go to the threads: RESOLVE_CACHED: {error}")),
        },
    },
    &Preparation {
        name: "noatime",
        summary: "reading leaves the access time as it is (O_NOATIME), for this user's own files",
        auto: false,
        probe: || Ok(()),
    },
    &Preparation {
        name: "advise",
        summary: "the kernel is told of reads to come (posix_fadvise): sequential, or willneed",
        auto: false,
        probe: || {
            let told = std::fs::File::open("/proc/self/exe")
                .and_then(|file| Ok(rustix::fs::fadvise(file, 0, None, Advice::Sequential)?));
            told.map_err(|error| format!("posix_fadvise(2): {error}"))
        },
    },
    &Preparation {
        name: "cached-reads",
        summary: "what backends read apart, workers read at once if it is cached (RWF_NOWAIT)",
        auto: true,
        probe: crate::fileio::can_ask_for_cached,
    },
];

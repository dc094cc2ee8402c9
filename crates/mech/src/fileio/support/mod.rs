//! What several file backends share: reads on other threads or in the kernel, the memory and the threads
//! for these reads, and questions to the page cache.

pub(crate) mod advise;
pub(crate) mod buffer;
pub(crate) mod counted;
pub(crate) mod memory;
pub(crate) mod notifier;
pub(crate) mod page_cache;
pub(crate) mod readers;
pub(crate) mod reads;
pub(crate) mod results;
pub(crate) mod times;

//! What several file backends share: reads apart from sending, the memory and threads for them, and what is known of
//! the page cache.

pub(crate) mod advise;
pub(crate) mod buffer;
pub(crate) mod memory;
pub(crate) mod notifier;
pub(crate) mod page_cache;
pub(crate) mod readers;
pub(crate) mod reads;
pub(crate) mod results;
pub(crate) mod times;

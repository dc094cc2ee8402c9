//! Files beneath a root: opened by the kernel's own rule, by threads where a disk may have to be asked, and watched for
//! changes.

pub mod open_pool;
pub mod preparation;
pub mod root;
pub mod watch;

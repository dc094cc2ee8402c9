//! Files beneath a root: opened by openat2(2), which enforces the root; opened on other threads if a disk may
//! have to be asked; read; and watched for changes by inotify(7).

pub mod bytes;
pub mod open_pool;
pub mod preparation;
pub mod root;
pub mod served;
mod stamp;
pub mod watch;

//! How a Linux server waits for I/O.

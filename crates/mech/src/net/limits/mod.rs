//! Limits of a transfer: how much is sent before it is another connection's turn, and how slow a client may be.

pub(in crate::net) mod min_rate;
pub(in crate::net) mod send_budget;

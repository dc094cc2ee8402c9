//! Which mechanisms a suite runs over: all, or the one that `DROVER_MECHANISM` names.

use drover_mech::mechanisms::{self, Mechanism};

/// The value of `DROVER_MECHANISM`.
pub(crate) fn filter() -> Option<String> {
    std::env::var("DROVER_MECHANISM").ok()
}

pub(crate) fn mechanisms() -> Vec<&'static Mechanism> {
    let Some(name) = filter() else { return mechanisms::ALL.to_vec() };
    let mechanism = mechanisms::by_name(&name);
    vec![mechanism.unwrap_or_else(|| panic!("DROVER_MECHANISM={name} is no mechanism's name"))]
}

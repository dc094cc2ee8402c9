//! From a request to a response: what there is to answer, and its bytes.

pub(crate) mod extras;
pub(crate) mod listing;
pub(crate) mod parts;
pub(crate) mod repeated;
pub(crate) mod response;
pub(crate) mod site;
pub(crate) mod sites;

//! What there is to answer to a request: its status, its fields and its content, in no protocol's form.

pub(crate) mod answer;
mod listing;
mod response;
pub(crate) mod site;
pub(crate) mod sites;

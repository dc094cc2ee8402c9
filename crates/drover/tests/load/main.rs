//! Black-box tests of `drover load` and `drover idle`, against a server that does what a script
//! says and knows what happened.

mod accounts;
mod addresses;
mod broken_tls;
mod certificate;
#[path = "../schema/mod.rs"]
mod checker;
mod curl;
mod ends;
mod failures;
mod faults;
mod honesty;
mod http2;
mod idle;
mod people;
mod precision;
mod processes;
mod recorder;
mod recordings;
mod run;
mod schedules;
mod schema;
mod seconds;
mod server;
mod shapes;
mod stalls;
mod timeouts;
mod tls;
mod together;
mod truth;
mod usage;
mod what;
mod wire;

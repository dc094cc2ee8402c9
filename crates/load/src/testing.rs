//! A run in which little happened, for tests of what is made of runs.

use std::time::Duration;

use crate::account::counts::Account;
use crate::plan::options::LoadOptions;
use crate::plan::request::RequestTemplate;
use crate::run::coordinator::LoadRun;

/// The options of a run whose server is never asked.
pub(crate) fn options() -> LoadOptions {
    options_for("http://127.0.0.1:9/")
}

/// The same, with another URL.
pub(crate) fn options_for(url: &str) -> LoadOptions {
    let url = url.parse().unwrap();
    let asked = vec![RequestTemplate { url, content: Default::default() }];
    LoadOptions::new(asked, drover_mech::mechanisms::auto_of_readiness().unwrap())
}

/// A run over `window` that counted `account`.
pub(crate) fn run(account: Account, window: Duration) -> LoadRun {
    LoadRun {
        account,
        begun: None,
        window,
        cpu: Duration::from_secs(1),
        busiest: 0.5,
        delay: Duration::ZERO,
        watched: Default::default(),
        interrupted: false,
        all_lost: false,
    }
}

//! What flags cost: the instructions that each adds to a request, or takes from it, under one mechanism.

use std::path::Path;

use drover_mech::mechanisms::Mechanism;

use crate::exchange::Case;
use crate::run::{CONNECTION, KEPT, Measured, measure};

/// Two cases, each with the same flags: what is kept, and a connection of its own, whose request is parsed.
const FLAGS: &[&[&str]] = &[
    &["--header-timeout", "0"],
    &["--idle-timeout", "0"],
    &["--min-rate", "0"],
    &["--header-timeout", "0", "--idle-timeout", "0", "--min-rate", "0"],
    &["--max-line", "1M", "--max-head", "1M"],
    &["--max-fields", "256"],
    &["--max-requests", "1000000"],
    &["--max-per-address", "1000"],
    &["--max-connections", "1000"],
    &["--server-timing"],
    &["--access-log", "/dev/null"],
    &["--access-log", "/dev/null", "--log-format", "json"],
    &["--access-log", "/dev/null", "--log-format", "json-stages"],
    &["--access-log", "/dev/null", "--log-format", "%h %t \"%r\" %>s %b %D"],
    &["--trace", "/dev/null"],
    &["--admin", "127.0.0.1:0"],
];

/// Prints what each of the flags costs under `mechanism`.
pub(crate) fn print(root: &Path, mechanism: &Mechanism) -> anyhow::Result<()> {
    println!(
        "{:<60} {:>9} {:>11}",
        format!("{}, with", mechanism.name),
        KEPT.name,
        CONNECTION.name
    );
    let mut without: Option<[i64; 2]> = None;
    for flags in [&[][..]].iter().chain(FLAGS) {
        let mut costs = [0; 2];
        for (cost, case) in costs.iter_mut().zip([KEPT, CONNECTION]) {
            let case = Case { flags, ..case };
            let Measured::Cost(it) = measure(root, mechanism, &case, |_| true)? else {
                println!("skipped: cannot be counted here");
                return Ok(());
            };
            *cost = it.instructions as i64;
        }
        match without {
            None => println!("{:<60} {:>9} {:>11}", "the defaults", costs[0], costs[1]),
            Some([kept, connection]) => {
                let more = [costs[0] - kept, costs[1] - connection];
                println!("{:<60} {:>+9} {:>+11}", flags.join(" "), more[0], more[1]);
            }
        }
        without.get_or_insert(costs);
    }
    Ok(())
}

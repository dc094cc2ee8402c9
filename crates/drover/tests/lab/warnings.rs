//! The load generator and the lab agree on the codes of warnings.

use std::collections::BTreeSet;

use drover_lab::model::Mark;
use drover_load::warning::{Warning, WarningCode};

/// Every code that the generator writes has a mark, and the lab knows no other code.
#[test]
fn the_lab_knows_the_codes_of_the_generator_and_no_others() {
    let mut written = BTreeSet::new();
    for code in WarningCode::ALL {
        let warning = serde_json::to_value(Warning::of(*code, 1, "text")).unwrap();
        let code = warning["code"].as_str().unwrap();
        assert!(Mark::of(code).is_some(), "the lab does not know '{code}'");
        written.insert(code.to_owned());
    }
    for (code, _) in Mark::OF_WARNINGS {
        assert!(written.contains(*code), "no warning has the code '{code}'");
    }
}

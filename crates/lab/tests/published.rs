//! Every built-in claim whose document gives numbers, judged on those numbers by its own criterion: what
//! a document measured is what the document says.

use drover_lab::claims::{Verdict, published};
use drover_lab::spec::built_in;

#[test]
fn the_documents_own_numbers_meet_their_claims() {
    let (mut judged, mut wrong) = (0, Vec::new());
    for name in built_in::names() {
        let experiment = built_in::experiment(name).unwrap().unwrap();
        for claim in &experiment.claim {
            let Some(numbers) = &claim.published else { continue };
            let better = experiment.metric(claim.effect.metric()).unwrap().better;
            match published::verdict(claim, better, numbers.rows()) {
                Some(Verdict::Holds) => judged += 1,
                other => wrong.push(format!("{name} ({}): {other:?}", claim.id)),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(judged >= 40, "{judged}");
}

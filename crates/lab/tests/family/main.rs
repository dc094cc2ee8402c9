//! How often a report of many claims finds something where there is nothing. `cargo bench -p drover-lab
//! --bench coverage` does the same with 10,000 reports.

#[path = "../../benches/null_report/mod.rs"]
mod null_report;

use drover_lab::analysis::noise::Noise;
use drover_lab::claims::Verdict;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

#[test]
fn equal_subjects_give_no_report_a_finding() {
    let claims = null_report::claims();
    for (noise, rounds) in [(Noise::TYPICAL, 7), (Noise::ROUGH, 6)] {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(u64::from(rounds));
        let samples = null_report::samples(&mut random, noise, rounds);
        let report = null_report::judge(&claims, &samples);
        for (claim, judgement) in std::iter::zip(&claims, &report) {
            let verdict = &judgement.verdict;
            assert!(!null_report::is_false(claim, verdict), "{:?}: {verdict}", claim.effect);
        }
    }
}

/// What is there is still found beside forty claims of which none is true.
#[test]
fn a_fourfold_rate_is_found_among_forty_claims() {
    let claims = null_report::claims();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut samples = null_report::samples(&mut random, Noise::TYPICAL, 10);
    for sample in
        samples.iter_mut().filter(|sample| ["a", "b", "c"].contains(&&*sample.cell.subject))
    {
        *sample.values.get_mut("throughput").unwrap() *= 4.0;
    }
    let report = null_report::judge(&claims, &samples);
    let of_1_4 = claims.iter().position(|claim| claim.holds.above == Some(1.4)).unwrap();
    assert_eq!(report[of_1_4].verdict, Verdict::Holds, "{:?}", report[of_1_4].verdict);
}

//! The store, in memory and on a file side by side, against a model: see `keyclaim_tests::proofs::model`.

use keyclaim_tests::proofs::Budget;
use keyclaim_tests::proofs::model::{ANSWERS, model};
use keyclaim_tests::seeded::{number, seed};

#[test]
fn the_stores_answer_as_the_design_says() {
    let report = model(&Budget { seed: seed("model"), cases: number("KEYCLAIM_CASES").unwrap_or(200) });
    report.check();
    // A handful of histories, asked for by hand, need not meet everything.
    if number("KEYCLAIM_CASES").is_none() {
        for answer in ANSWERS {
            assert!(report.count(answer) > 0, "no history met {answer:?}: {report:?}");
        }
    }
}

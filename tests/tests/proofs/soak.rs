//! The soak sees what it is for. That a store left to itself does not grow takes minutes: `make proofs LONG=...`.

use std::time::Duration;

use keyclaim_tests::proofs::Report;
use keyclaim_tests::proofs::soak::{Plan, Plant, run};
use keyclaim_tests::seeded::seed;

fn soak(lasting: u64, plant: Plant) -> Report {
    run(&Plan {
        seed: seed("soak") >> 16,
        lasting: Duration::from_secs(lasting),
        sample_every: Duration::from_millis(50),
        reopen_every: Duration::from_secs(2),
        plant: Some(plant),
    })
}

#[test]
fn a_leak_of_descriptors_is_seen() {
    let report = soak(7, Plant::Descriptors);
    let seen = report.violations.iter().find(|line| line.starts_with("descriptors grew from "));
    assert!(seen.is_some_and(|line| line.contains("; replay: cargo run")), "{report:?}");
}

#[test]
fn an_outcome_that_is_not_what_was_asked_for_is_seen() {
    let report = soak(3, Plant::OtherBody);
    assert!(report.violations.iter().any(|line| line.contains("the replay of key")), "{report:?}");
}

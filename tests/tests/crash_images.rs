//! The whole store on a simulated disk (P1 to P5, P8): power cut at every change, and every operation failing.

use keyclaim_tests::proofs::{Budget, disk};
use keyclaim_tests::seeded::{number, seed};

/// `KEYCLAIM_SEED` and `KEYCLAIM_CASES` in place of a new seed and of `cases`.
fn budget(test: &str, cases: u64) -> Budget {
    // Small enough to be counted up from, run by run.
    let seed = number("KEYCLAIM_SEED").unwrap_or_else(|| seed(test) >> 16);
    Budget { seed, cases: number("KEYCLAIM_CASES").unwrap_or(cases) }
}

#[test]
fn every_crash_leaves_what_was_told() {
    disk::crash_images(&budget("every_crash", 20_000)).check();
}

#[test]
fn every_fault_is_told_and_healed_by_reopening() {
    disk::fault_points(&budget("every_fault", 1_000)).check();
}

/// One process, in the engine's mode for several.
#[test]
fn every_crash_of_a_shared_store_leaves_what_was_told() {
    disk::crash_images_shared(&budget("every_crash_of_a_shared", 8_000)).check();
}

#[test]
fn every_fault_of_a_shared_store_is_told_and_healed() {
    disk::fault_points_shared(&budget("every_fault_of_a_shared", 1_000)).check();
}

#[test]
fn a_disk_that_lies_about_a_sync_is_noticed() {
    let report = disk::crash_images_of_a_lying_disk(&budget("lying_disk", 1));
    println!("{}", report.violations.join("\n"));
    assert!(report.count("violations") > 0, "of {} images none is wrong", report.cases);
}

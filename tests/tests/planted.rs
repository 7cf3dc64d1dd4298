//! Each planted mistake is seen by the harness that is named for it, and none of them sees one where none is.

use std::time::Instant;

use keyclaim::store::plant::Plant;
use keyclaim_tests::kills;
use keyclaim_tests::proofs::kills::kill_loops_planted;
use keyclaim_tests::proofs::planted::{JUDGES, PAIRS};
use keyclaim_tests::proofs::{Budget, Report};
use keyclaim_tests::seeded::number;

fn budget(cases: u64) -> Budget {
    // Always the same by default: whether a mistake is seen is no matter of luck.
    Budget { seed: number("KEYCLAIM_SEED").unwrap_or(1), cases }
}

/// What was seen, as one line, and what replays it.
fn told(what: &str, report: &Report, start: Instant) {
    let first =
        report.violations.first().map_or("NOT SEEN", |first| first.lines().next().unwrap_or_default());
    let first: String = first.chars().take(160).collect();
    println!(
        "{what} by {}: case {}, {:.1} s: {first}; replay: KEYCLAIM_SEED={} KEYCLAIM_PLANT={what} cargo test -p \
         keyclaim-tests --test planted each_mistake",
        report.harness,
        report.cases,
        start.elapsed().as_secs_f64(),
        report.seed
    );
}

/// Whether `KEYCLAIM_PLANT` names another one.
fn is_left_out(plant: &str) -> bool {
    std::env::var("KEYCLAIM_PLANT").is_ok_and(|asked| asked != plant)
}

#[test]
fn each_mistake_is_seen_by_its_harness() {
    let mut survived = Vec::new();
    for (plant, judge) in PAIRS {
        let name = format!("{plant:?}");
        if is_left_out(&name) {
            continue;
        }
        let start = Instant::now();
        let report = (judge.run)(&budget(judge.cases), Some(plant));
        told(&name, &report, start);
        if report.violations.is_empty() {
            survived.push(format!("{name} survives {} ({} cases)", judge.name, report.cases));
        }
    }
    assert!(survived.is_empty(), "{survived:?}");
}

#[test]
fn each_mistake_of_the_kill_loops_is_seen() {
    for plant in kills::Plant::ALL {
        if is_left_out(plant.name()) {
            continue;
        }
        let start = Instant::now();
        let report = kill_loops_planted(&budget(100), env!("CARGO_BIN_EXE_kills").into(), Some(plant));
        told(plant.name(), &report, start);
        assert!(!report.violations.is_empty(), "{} survives kills", plant.name());
    }
}

#[test]
fn no_harness_sees_a_mistake_where_none_is() {
    for judge in JUDGES {
        (judge.run)(&budget(judge.cases / 5), None).check();
    }
    kill_loops_planted(&budget(20), env!("CARGO_BIN_EXE_kills").into(), None).check();
}

#[test]
fn every_mistake_has_a_harness() {
    for plant in Plant::ALL {
        let count = PAIRS.iter().filter(|(named, _)| *named == plant).count();
        assert_eq!(count, 1, "{plant:?}");
    }
}

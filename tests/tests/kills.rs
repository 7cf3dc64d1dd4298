//! kill -9 of real processes: see `keyclaim_tests::kills`.

use keyclaim_tests::kills::{Plan, Plant, run};
use keyclaim_tests::seeded::{number, seed};

fn plan(kills: u64, plant: Option<Plant>) -> Plan {
    let program = env!("CARGO_BIN_EXE_kills").into();
    Plan { program, seed: seed("kills"), kills: number("KEYCLAIM_KILLS").unwrap_or(kills), plant }
}

#[test]
fn what_a_killed_process_was_answered_is_there_whole_and_once() {
    let plan = plan(300, None);
    let start = std::time::Instant::now();
    let report = run(&plan);
    eprintln!("seed {}, {:.1} s: {report:?}", plan.seed, start.elapsed().as_secs_f64());
    assert!(report.violations.is_empty(), "{}", report.violations.join("\n"));
    assert_eq!(report.kills, plan.kills);
    // Otherwise it has not tested what it is for.
    assert!(report.acks > 3 * plan.kills && report.looks > 3 * plan.kills, "{report:?}");
    assert!(report.takeovers > 0 && report.kills_in_opening > 0, "{report:?}");
}

#[test]
fn each_planted_mistake_is_seen() {
    for plant in Plant::ALL {
        let report = run(&plan(100, Some(plant)));
        assert!(!report.violations.is_empty(), "{} was not seen in {} kills", plant.name(), report.kills);
        eprintln!("{}: after {} kills: {}", plant.name(), report.kills, report.violations.join("\n"));
    }
}

//! What threads were told is what one key could have answered one command at a time, over crashes, faults and clock
//! steps; and the search that says so is right.

#[path = "linear/by_hand.rs"]
mod by_hand;
#[path = "linear/other.rs"]
mod other;

use std::{env, fs};

use keyclaim_tests::proofs::Budget;
use keyclaim_tests::proofs::linear::history::{Answer, History};
use keyclaim_tests::proofs::linear::mutate::with_a_mistake;
use keyclaim_tests::proofs::linear::search::linearize;
use keyclaim_tests::proofs::linear::{RULES, histories, recorded, told};
use keyclaim_tests::seeded::{Draws, number, seed};

#[test]
fn every_history_has_an_order() {
    let cases = number("KEYCLAIM_CASES").unwrap_or(3_000);
    histories(&Budget { seed: seed("every_history"), cases }).check();
}

/// What a failure of the test above names; without one, a history that is known to have an order.
#[test]
fn a_history_that_was_kept() {
    let (path, lines) = match env::var("KEYCLAIM_HISTORY") {
        Ok(path) => (path.clone(), fs::read_to_string(path).expect("it was kept there")),
        Err(_) => ("none".to_owned(), by_hand::in_order().lines()),
    };
    let history = History::parse(&lines).expect("as it was kept");
    if let Err(wrong) = linearize(&history.operations, RULES) {
        panic!("{}", told(&wrong, &path));
    }
}

/// The search and stateright's tester, which shares nothing with it but the rules, say the same of real histories
/// and of such with a mistake.
#[test]
fn another_search_says_the_same() {
    let seed = seed("another_search");
    let mut draws = Draws::new(seed);
    let (mut right, mut wrong) = (0, 0);
    for round in 0..number("KEYCLAIM_CASES").unwrap_or(150) {
        for history in recorded(draws.below(u64::MAX)) {
            // The other one remembers nothing, and so takes ever longer.
            let first = history.operations.iter().take(11).cloned().collect();
            let mut first = History { operations: first };
            if draws.below(3) > 0 {
                let Some(changed) = with_a_mistake(&first, &mut draws) else { continue };
                first = changed;
            }
            let ours = linearize(&first.operations, RULES).is_ok();
            let theirs = other::linearize(&first.operations, RULES);
            assert_eq!(ours, theirs, "replay: KEYCLAIM_SEED={seed}, round {round}:\n{}", first.lines());
            *if ours { &mut right } else { &mut wrong } += 1;
        }
    }
    println!("{right} histories with an order, {wrong} without");
    assert!(right > wrong / 4 && wrong > right / 4, "{right} and {wrong} prove little");
}

/// One wrong answer in a whole history is nearly always one that no order explains.
#[test]
fn a_mistake_is_found() {
    let mut draws = Draws::new(seed("a_mistake"));
    let (mut found, mut all) = (0, 0);
    for _ in 0..40 {
        for history in recorded(draws.below(u64::MAX)) {
            let Some(changed) = with_a_mistake(&history, &mut draws) else { continue };
            all += 1;
            found += u64::from(linearize(&changed.operations, RULES).is_err());
        }
    }
    println!("{found} of {all} mistakes were found");
    assert!(all > 40 && found * 2 > all, "{found} of {all}");
}

#[test]
fn two_owners_at_a_time_are_found() {
    let ours = by_hand::in_order();
    for (what, changed) in by_hand::broken() {
        assert!(linearize(&changed.operations, RULES).is_err(), "{what}:\n{}", changed.lines());
        assert!(!other::linearize(&changed.operations, RULES), "{what}");
    }
    assert!(linearize(&ours.operations, RULES).is_ok());
    // A call that was told nothing has happened, or has not.
    for (what, open) in by_hand::in_doubt() {
        assert!(open.operations.iter().any(|operation| operation.answer == Answer::Unknown));
        assert!(linearize(&open.operations, RULES).is_ok(), "{what}:\n{}", open.lines());
        assert!(other::linearize(&open.operations, RULES), "{what}");
    }
}

//! Every history of two owners, a person and the upkeep to depth 6, over a small clock; what must
//! hold is asked of every state that is reached.
//!
//! Owners do what a claim object does: they number their commands, count the steps they have met,
//! and go on with an old token after they were overtaken. The invariants are kept by a second book,
//! [`Ghost`], which is written from what was answered and never from the record.

#[path = "histories/ghost.rs"]
mod ghost;
#[path = "histories/moves.rs"]
mod moves;

use std::collections::HashSet;
use std::time::Instant;

use keyclaim::Abandoned;

use moves::{Move, Node};

const DEPTH: usize = 6;

#[test]
fn no_history_of_two_owners_breaks_a_promise_under_rerun() {
    assert!(explore(Abandoned::Rerun) > STATES_MIN);
}

#[test]
fn no_history_of_two_owners_breaks_a_promise_under_hold() {
    assert!(explore(Abandoned::Hold) > STATES_MIN);
}

/// What was reached when this was written is in the output; far less would mean that moves are lost.
const STATES_MIN: usize = 60_000;

/// Returns how many distinct states were judged, each reached by at most [`DEPTH`] moves.
fn explore(abandoned: Abandoned) -> usize {
    let began = Instant::now();
    let (mut level, mut seen, mut moves) = (vec![Node::new(abandoned)], HashSet::new(), 0_usize);
    for depth in 1..=DEPTH {
        let mut next = Vec::new();
        for node in &level {
            for step in Move::all() {
                let Some(after) = node.after(*step) else { continue };
                moves += 1;
                if seen.insert(after.key()) {
                    after.judge();
                    if depth < DEPTH {
                        next.push(after);
                    }
                }
            }
        }
        level = next;
    }
    println!("{abandoned:?}: {moves} moves, {} distinct states, {:?}", seen.len(), began.elapsed());
    seen.len()
}

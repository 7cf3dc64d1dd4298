//! The store, in memory and on a file side by side, against a model that reads like the design (P1, P3, P6, P7).
//!
//! `rules` is the model, `stores` drives the real ones; both put an answer into words, and the words
//! are compared after every command, with what the keys hold.

#![allow(clippy::unwrap_used, reason = "a harness fails by panicking, and its runner tells of it")]

mod rules;
mod stores;
mod words;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use keyclaim::store::plant::Plant;
use proptest::test_runner::Config;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

use super::{Budget, Report};
use crate::seeded;
use rules::Model;
use stores::Stores;

/// The name of this harness.
pub const HARNESS: &str = "model";

thread_local! {
    /// How often each answer was met, by its first words.
    static MET: RefCell<BTreeMap<String, u64>> = RefCell::default();
    /// The mistake that the stores of this thread make.
    static PLANT: Cell<Option<Plant>> = const { Cell::new(None) };
}

/// What some of many histories must have met, or they have checked less than they say.
pub const ANSWERS: [&str; 24] = [
    "won Fresh",
    "won Again",
    "won Takeover",
    "won Reattempt",
    "won ReusedAfterWindow",
    "replay",
    "in flight",
    "mismatch",
    "held Owner",
    "held Abandoned",
    "held StepInDoubt",
    "held StepsChanged",
    "expired",
    "run",
    "Done",
    "Refused",
    "settling",
    "reconcile",
    "lease",
    "ok",
    "token",
    "INVALID",
    "FENCED in",
    "FENCED complete",
];

/// Histories of commands on both stores. A case is a history. How often each of [`ANSWERS`] was met is counted.
pub fn model(budget: &Budget) -> Report {
    model_planted(budget, None)
}

/// The same of stores that make this mistake, to see that it is noticed.
pub fn model_planted(budget: &Budget, plant: Option<Plant>) -> Report {
    let mut report = Report::new(HARNESS, budget.seed);
    let cases = Cell::new(0);
    PLANT.set(plant);
    let histories = Model::sequential_strategy(20..80);
    let search = seeded::Search { seed: budget.seed, cases: budget.cases, shrinks: plant.is_none() };
    let found = search.run(&histories, |(model, commands, seen)| {
        cases.set(cases.get() + 1);
        // What was seen of a history serves its shrinking, and must be left alone without.
        let seen = seen.filter(|_| search.shrinks);
        Stores::test_sequential(Config::default(), model, commands, seen);
        Ok(())
    });
    PLANT.set(None);
    report.cases = cases.get();
    for (met, count) in MET.take() {
        for answer in ANSWERS.iter().filter(|answer| met.starts_with(**answer)) {
            report.add(answer, count);
        }
    }
    if let Err(what) = found {
        report.violation(format!(
            "{what}\nreplay: KEYCLAIM_SEED={} KEYCLAIM_CASES={} cargo test -p keyclaim-tests --test model",
            budget.seed, budget.cases
        ));
    }
    report
}

fn planted() -> Option<Plant> {
    PLANT.get()
}

fn note(answer: &str) {
    let words: Vec<&str> = answer.split(' ').take(2).collect();
    MET.with_borrow_mut(|met| *met.entry(words.join(" ")).or_default() += 1);
}

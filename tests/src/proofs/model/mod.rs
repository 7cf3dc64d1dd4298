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
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

use super::{Budget, Report};
use crate::seeded;
use rules::Model;
use stores::Stores;

/// The name of this harness.
pub const HARNESS: &str = "model";
/// Of a history that is spelled. Arbitrary: some milliseconds.
const COMMANDS_MAX: usize = 80;
/// How many bytes spell a command: enough to spell each, few enough that a fuzzer moves whole commands about.
const COMMAND_LEN: usize = 2;

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

/// One history, spelled by these bytes, on a store in memory.
///
/// # Panics
/// If the store and the model differ.
pub fn model_spelled(bytes: &[u8]) {
    model_spelled_planted(bytes, None);
}

/// The same of a store that makes this mistake.
///
/// # Panics
/// If it is noticed.
pub fn model_spelled_planted(bytes: &[u8], plant: Option<Plant>) {
    PLANT.set(plant);
    let (mut model, mut stores) = (Model::default(), Stores::in_memory());
    for command in bytes.chunks(COMMAND_LEN).take(COMMANDS_MAX) {
        let mut runner = spelling(command);
        let Ok(ask) = Model::transitions(&model).new_tree(&mut runner).map(|tree| tree.current()) else {
            break;
        };
        if !Model::preconditions(&model, &ask) {
            continue;
        }
        model = Model::apply(model, &ask);
        stores = Stores::apply(stores, &model, ask);
        Stores::check_invariants(&stores, &model);
    }
    MET.take();
    PLANT.set(None);
}

/// Draws a command for these bytes, the same each time. They are its seed, and not what is drawn: proptest can take
/// its draws from bytes too, but halves them for each part of a strategy, and loops for ever behind the last one.
fn spelling(command: &[u8]) -> TestRunner {
    let mut seed = [0; 32];
    seed.iter_mut().zip(command).for_each(|(to, from)| *to = *from);
    let config = Config { failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

fn planted() -> Option<Plant> {
    PLANT.get()
}

fn note(answer: &str) {
    let words: Vec<&str> = answer.split(' ').take(2).collect();
    MET.with_borrow_mut(|met| *met.entry(words.join(" ")).or_default() += 1);
}

//! Histories: what threads were told, over crashes, faults and clock steps, must be what one key could have answered
//! one command at a time (P1, P2, P6, P7).
//!
//! ```text
//! threads on one store -> who asked what when, and what it was told -> split by key -> is there an order?
//! ```

mod client;
pub mod history;
pub mod mutate;
pub mod processes;
mod run;
pub mod search;
pub mod spec;

use std::collections::BTreeMap;
use std::{env, fs};

use super::{Budget, Report, in_parts};
use crate::seeded::Draws;
use history::{Answer, History, Kind, Operation};
use keyclaim::store::plant::Plant;
use search::{Wrong, linearize};

pub use run::RULES;

/// The name of this harness.
pub const HARNESS: &str = "histories";

/// Runs threads, and looks for an order of what each key was told. A case is the history of one key. Threads race
/// anew each time: a failure is replayed from the file that its line names.
pub fn histories(budget: &Budget) -> Report {
    histories_planted(budget, None)
}

/// The same of a store that makes this mistake, to see that it is noticed.
pub fn histories_planted(budget: &Budget, plant: Option<Plant>) -> Report {
    let mut report = Report::new(HARNESS, budget.seed);
    in_parts(&mut report, |(part, parts), report| {
        let mut draws = Draws::new(budget.seed ^ (part as u64) << 40);
        let mine = budget.cases.div_ceil(parts as u64);
        while report.cases < mine && report.violations.is_empty() {
            let seed = draws.below(u64::MAX);
            let (keys, counts) = run::run(seed, plant);
            for (what, count) in counts {
                report.add(what, count);
            }
            judge(&keys, seed, report);
        }
    });
    report
}

/// What the keys of one run were asked and told.
pub fn recorded(seed: u64) -> Vec<History> {
    run::run(seed, None).0.into_values().collect()
}

/// Holds the histories of all keys of one store against the rules.
fn judge(keys: &BTreeMap<u64, History>, seed: u64, report: &mut Report) {
    for (key, history) in keys {
        report.cases += 1;
        report.add("operations", history.operations.len() as u64);
        let unknown = history.operations.iter().filter(|op| op.answer == Answer::Unknown).count();
        report.add("unknown", unknown as u64);
        match linearize(&history.operations, RULES) {
            Ok(states) => report.add("states", states as u64),
            Err(wrong) => report.violation(told(&wrong, &keep(history, seed, *key))),
        }
    }
    let mut tokens: Vec<u64> =
        keys.values().flat_map(|history| &history.operations).filter_map(issued).collect();
    let count = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    if tokens.len() < count {
        report.violation(format!("{} tokens were given out twice; seed {seed}", count - tokens.len()));
    }
}

/// The token that this answer gave out.
fn issued(operation: &Operation) -> Option<u64> {
    match operation.answer {
        Answer::Won { token, kind, .. } if kind != Kind::Again => Some(token),
        Answer::Resolved { token } => Some(token),
        _ => None,
    }
}

/// Writes a history down, to be looked at again.
fn keep(history: &History, seed: u64, key: u64) -> String {
    let path = env::temp_dir().join(format!("keyclaim-history-{seed}-{key}.jsonl"));
    match fs::write(&path, history.lines()) {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("(not written: {error})"),
    }
}

/// One line for people, with what replays it.
pub fn told(wrong: &Wrong, path: &str) -> String {
    format!(
        "no order explains this key: {} operations have one, and then none of these comes next: {:?}; replay: \
         KEYCLAIM_HISTORY={path} cargo test -p keyclaim-tests --test linear a_history_that_was_kept",
        wrong.ordered, wrong.stuck
    )
}

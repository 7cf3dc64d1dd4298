//! kill -9 of real processes, as one of the harnesses.

use std::path::PathBuf;

use super::{Budget, Report};
use crate::kills::{Plan, Plant, run};

/// Kills as many processes as there are cases.
///
/// # Panics
/// If this is not a program whose first argument `child` leads to
/// [`child_main`](crate::kills::child_main): it starts itself.
pub fn kill_loops(budget: &Budget) -> Report {
    let program = std::env::current_exe().expect("this program has a path");
    kill_loops_planted(budget, program, None)
}

/// The same with that program for a child, and a mistake that is made around the store, to see that it is noticed.
pub fn kill_loops_planted(budget: &Budget, program: PathBuf, plant: Option<Plant>) -> Report {
    let plan = Plan { program, seed: budget.seed, kills: budget.cases, plant };
    let done = run(&plan);
    let mut report = Report::new("kills", budget.seed);
    report.cases = done.kills;
    report.add("kills while opening", done.kills_in_opening);
    report.add("acks", done.acks);
    report.add("takeovers", done.takeovers);
    report.add("looks", done.looks);
    done.violations.into_iter().for_each(|line| report.violation(line));
    report
}

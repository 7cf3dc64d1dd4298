//! All harnesses, and what is said of each. Adding one is a line in [`ALL`].

use super::{Budget, Report, disk, kills, linear, soak};

/// A harness, its budgets, and how the table speaks of it.
#[derive(Clone, Copy, Debug)]
pub struct Harness {
    /// Its name on the command line, in the ledger and in the table.
    pub name: &'static str,
    /// What runs it.
    pub run: fn(&Budget) -> Report,
    /// How many cases it is run for by default: about what `make test` runs.
    pub cases: u64,
    /// What a case is, as words behind a number.
    pub case: &'static str,
    /// Counts that the table shows as well, and the words behind them.
    pub also: &'static [(&'static str, &'static str)],
    /// How a long run fills its time.
    pub pace: Pace,
    /// Its share of the minutes of a long run, relative to the others.
    pub weight: u32,
}

/// How a long run fills its time.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// Turn after turn of so many cases, each with a seed of its own, until the time is over. A turn should take
    /// less than a minute: the last one is not cut off.
    Turns(u64),
    /// In one turn: a case takes a second.
    Seconds,
}

/// Every harness, in the order of the table.
pub const ALL: &[Harness] = &[
    Harness::new("crash-images", disk::crash_images, 20_000, "images of a power cut", Pace::Turns(4_000), 6)
        .also(&[("double", "of another one while opening")]),
    Harness::new("fault-points", disk::fault_points, 1_000, "failed operations", Pace::Turns(1_000), 2)
        .also(&[("images", "images of a power cut after one")]),
    Harness::new(linear::HARNESS, linear::histories, 3_000, "histories of a key", Pace::Turns(2_000), 2)
        .also(&[("operations", "operations"), ("unknown", "of them told nothing")]),
    Harness::new("kills", kills::kill_loops, 300, "processes killed", Pace::Turns(100), 2)
        .also(&[("acks", "acknowledgements checked")]),
    Harness::new("soak", soak::soak, 10, "seconds", Pace::Seconds, 5)
        .also(&[("claims", "claims"), ("judged", "runs judged for growth")]),
];

/// What other tools do and note with `proofs --record`: fuzzing by target, mutation testing. All lines whose name
/// begins so are one row of the table.
pub const RECORDED: &[(&str, &str)] = &[("fuzz", "executions"), ("mutants", "mutants of the pure core")];

impl Harness {
    /// A harness without further counts.
    pub const fn new(
        name: &'static str,
        run: fn(&Budget) -> Report,
        cases: u64,
        case: &'static str,
        pace: Pace,
        weight: u32,
    ) -> Self {
        Self { name, run, cases, case, also: &[], pace, weight }
    }

    /// With these further counts in the table.
    #[must_use]
    pub const fn also(mut self, counts: &'static [(&'static str, &'static str)]) -> Self {
        self.also = counts;
        self
    }

    /// The harness of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|harness| harness.name == name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_words_without_spaces_and_each_is_there_once() {
        let names: BTreeSet<&str> =
            ALL.iter().map(|harness| harness.name).chain(RECORDED.iter().map(|(name, _)| *name)).collect();
        assert_eq!(names.len(), ALL.len() + RECORDED.len());
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')));
    }

    #[test]
    fn every_harness_gets_a_share_of_a_long_run() {
        assert!(ALL.iter().all(|harness| harness.weight > 0 && harness.cases > 0));
    }
}

//! Harnesses that prove the promises at length: each is a function of a budget, so that a test, a long run and
//! the check that it notices a bug call the same code.

pub mod disk;
pub mod flips;
pub mod kills;
pub mod ledger;
pub mod linear;
mod main;
pub mod model;
pub mod place;
pub mod planted;
pub mod registry;
pub mod soak;
pub mod table;

use std::collections::BTreeMap;
use std::thread;

pub use main::main;

/// How much to do, as counts and not as seconds: the same budget does the same again.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Where the cases come from.
    pub seed: u64,
    /// How many cases to reach at least; the harness says what a case is.
    pub cases: u64,
}

/// What a harness did and found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Which harness.
    pub harness: &'static str,
    /// Where its cases came from.
    pub seed: u64,
    /// How many cases there were.
    pub cases: u64,
    /// Other things that were counted.
    pub counts: BTreeMap<&'static str, u64>,
    /// Promises seen broken: each is one line, with what replays it. The first few only.
    pub violations: Vec<String>,
}

/// Arbitrary: enough to see a pattern.
const VIOLATIONS_MAX: usize = 20;

impl Report {
    /// Nothing done yet.
    pub fn new(harness: &'static str, seed: u64) -> Self {
        Self { harness, seed, ..Self::default() }
    }

    /// Counts.
    pub fn add(&mut self, what: &'static str, count: u64) {
        *self.counts.entry(what).or_default() += count;
    }

    /// How often this was counted.
    pub fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    /// Notes a broken promise.
    pub fn violation(&mut self, line: String) {
        self.add("violations", 1);
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(line);
        }
    }

    /// Takes in what another part of the same run did.
    pub fn take_in(&mut self, other: Self) {
        self.cases += other.cases;
        other.counts.into_iter().for_each(|(what, count)| self.add(what, count));
        let room = VIOLATIONS_MAX.saturating_sub(self.violations.len());
        self.violations.extend(other.violations.into_iter().take(room));
    }

    /// Ends a test: fails if a promise was seen broken.
    ///
    /// # Panics
    /// With the lines that replay what was found.
    pub fn check(&self) {
        println!("{}: seed {}, {} cases, {:?}", self.harness, self.seed, self.cases, self.counts);
        assert!(self.violations.is_empty(), "{}\n{}", self.harness, self.violations.join("\n"));
    }
}

/// Shares a run out among the cores: `check` is called once for each, with the number of its part and how many
/// there are.
///
/// # Panics
/// If `check` does.
pub fn in_parts(report: &mut Report, check: impl Fn((usize, usize), &mut Report) + Sync) {
    let parts = thread::available_parallelism().map_or(1, usize::from);
    let (check, harness, seed) = (&check, report.harness, report.seed);
    let reports: Vec<_> = thread::scope(|scope| {
        let spawn = |part| {
            scope.spawn(move || {
                let mut report = Report::new(harness, seed);
                check((part, parts), &mut report);
                report
            })
        };
        let threads: Vec<_> = (0..parts).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().expect("as documented")).collect()
    });
    for part in reports {
        report.take_in(part);
    }
}

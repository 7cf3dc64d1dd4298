//! Properties that say how to run them again.

use std::env;
use std::hash::{BuildHasher, RandomState};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

/// Checks a property for `cases` inputs drawn from the strategy.
///
/// `KEYCLAIM_SEED` sets where the inputs come from (a new place each time, if it is not set), and
/// `KEYCLAIM_CASES` how many there are in place of `cases`. A failure prints the smallest input
/// found and the line that runs the property again. Threads race anew each time: the same inputs
/// may need several runs.
///
/// # Panics
/// If the property does not hold.
pub fn check<S: Strategy>(
    test: &str,
    cases: u32,
    strategy: &S,
    property: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let (seed, cases) = (seed(test), number("KEYCLAIM_CASES").unwrap_or(u64::from(cases)));
    if let Err(error) = (Search { seed, cases, shrinks: true }).run(strategy, property) {
        panic!(
            "{error}\nreplay: KEYCLAIM_SEED={seed} KEYCLAIM_CASES={cases} cargo test -p keyclaim-tests {test}"
        );
    }
}

/// A search for an input for which a property does not hold.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Where the inputs come from.
    pub seed: u64,
    /// How many there are.
    pub cases: u64,
    /// Whether a smaller input is looked for once one is found.
    pub shrinks: bool,
}

impl Search {
    /// Fails with the smallest input found and what does not hold for it; a panic is such a failure.
    pub fn run<S: Strategy>(
        self,
        strategy: &S,
        property: impl Fn(S::Value) -> Result<(), TestCaseError>,
    ) -> Result<(), String> {
        let config = Config {
            cases: u32::try_from(self.cases).unwrap_or(u32::MAX),
            rng_seed: RngSeed::Fixed(self.seed),
            failure_persistence: None,
            // Enough for a history of some tens of commands; a race that is hard to lose is not shrunk for minutes.
            max_shrink_iters: if self.shrinks { 1_000 } else { 0 },
            max_shrink_time: 30_000,
            ..Config::default()
        };
        TestRunner::new(config).run(strategy, property).map_err(|error| error.to_string())
    }
}

/// Numbers that look random, the same ones again for the same seed (splitmix64); or those that bytes spell.
#[derive(Clone, Debug)]
pub struct Draws {
    state: u64,
    /// The last one first.
    spelled: Vec<u8>,
}

impl Draws {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed, spelled: Vec::new() }
    }

    /// What a fuzzer wrote, a byte for a small number and eight for the largest. Behind the last byte come the
    /// numbers of the seed 0: of zeros alone some draws would never end.
    pub fn spelled(bytes: &[u8]) -> Self {
        Self { state: 0, spelled: bytes.iter().rev().copied().collect() }
    }

    /// Whether bytes are left.
    pub fn has_bytes(&self) -> bool {
        !self.spelled.is_empty()
    }

    /// The next one, below `end`; 0 if there is none below.
    pub fn below(&mut self, end: u64) -> u64 {
        if let Some(number) = self.spelled_below(end) {
            return number.checked_rem(end).unwrap_or_default();
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).checked_rem(end).unwrap_or_default()
    }

    fn spelled_below(&mut self, end: u64) -> Option<u64> {
        let len = match end {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 8,
        };
        let mut number = self.spelled.pop()?.into();
        for _ in 1..len {
            number = number << 8 | u64::from(self.spelled.pop().unwrap_or_default());
        }
        Some(number)
    }

    /// One of these.
    ///
    /// # Panics
    /// If there is none.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        let at = self.below(choices.len() as u64);
        *choices.get(usize::try_from(at).expect("below a length")).expect("there is one")
    }
}

/// The seed that `KEYCLAIM_SEED` sets, or a new one.
pub fn seed(test: &str) -> u64 {
    number("KEYCLAIM_SEED").unwrap_or_else(|| RandomState::new().hash_one(test))
}

/// A number that the environment sets.
pub fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

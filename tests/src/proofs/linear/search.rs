//! Is there an order of all operations, each between its call and its answer, in which every answer is right? A
//! search with backtracking (Wing and Gong) that never looks twice at the same operations and the same state behind
//! them (Lowe).

use std::collections::HashSet;

use super::history::{Answer, Operation};
use super::spec::{Rules, Spec};

/// As many operations fit into the set of those that have their place.
pub const OPERATIONS_MAX: usize = 512;

/// Which operations have their place in the order.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
struct Ordered([u128; OPERATIONS_MAX / 128]);

impl Ordered {
    fn has(self, at: usize) -> bool {
        self.0.get(at / 128).is_some_and(|bits| bits & (1 << (at % 128)) != 0)
    }

    fn with(mut self, at: usize) -> Self {
        if let Some(bits) = self.0.get_mut(at / 128) {
            *bits |= 1 << (at % 128);
        }
        self
    }

    fn count(self) -> usize {
        self.0.iter().map(|bits| bits.count_ones() as usize).sum()
    }
}

/// As many states are looked at before the search gives up: a history with an order needs about as many as it has
/// operations, and one without may need more than there is time for.
const STATES_MAX: usize = 500_000;

/// Why a history is none of one key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wrong {
    /// How many operations the longest order that was found has.
    pub ordered: usize,
    /// Those that could not come next.
    pub stuck: Vec<Operation>,
}

/// Looks for an order. An operation that was told nothing may come anywhere behind its call, or nowhere.
///
/// Returns how many states were looked at.
///
/// Errors: there is none, or it was not found among half a million states.
///
/// # Panics
/// With more than [`OPERATIONS_MAX`] operations.
pub fn linearize(operations: &[Operation], rules: Rules) -> Result<usize, Wrong> {
    assert!(operations.len() <= OPERATIONS_MAX, "{} operations are too many", operations.len());
    let mut search = Search { operations, seen: HashSet::new(), longest: 0, wrong: Vec::new() };
    if search.go(Ordered::default(), &Spec::new(rules)) {
        Ok(search.seen.len())
    } else {
        let stuck = search.wrong.iter().filter_map(|at| operations.get(*at).cloned()).collect();
        Err(Wrong { ordered: search.longest, stuck })
    }
}

struct Search<'a> {
    operations: &'a [Operation],
    seen: HashSet<(Ordered, Spec)>,
    longest: usize,
    wrong: Vec<usize>,
}

impl Search<'_> {
    fn go(&mut self, ordered: Ordered, spec: &Spec) -> bool {
        let rest = || self.operations.iter().enumerate().filter(|(at, _)| !ordered.has(*at));
        // Whoever is next was called before the first of the others was answered.
        let told = rest().filter(|(_, op)| op.answer != Answer::Unknown).map(|(_, op)| op.told_at).min();
        let Some(first_told_at) = told else { return true };
        let next: Vec<usize> =
            rest().filter(|(_, op)| op.called_at < first_told_at).map(|(at, _)| at).collect();
        for at in &next {
            let Some(operation) = self.operations.get(*at) else { continue };
            for after in spec.after(operation) {
                let ordered = ordered.with(*at);
                let is_new = self.seen.len() < STATES_MAX && self.seen.insert((ordered, after.clone()));
                if is_new && self.go(ordered, &after) {
                    return true;
                }
            }
        }
        let count = ordered.count();
        if self.wrong.is_empty() || count > self.longest {
            (self.longest, self.wrong) = (count, next);
        }
        false
    }
}

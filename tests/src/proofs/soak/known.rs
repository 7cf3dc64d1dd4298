//! What the threads were answered: the ledger that later answers are held against. It is as large as a few horizons
//! are long, or it would be what grows.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use keyclaim::Token;

use super::super::Report;
use super::{HORIZON, WINDOW};
use crate::seeded::Draws;

/// How long what was completed is asked for again: within its window, with room for a slow machine.
const ASKED: Duration = Duration::from_secs(12);
/// After this long an abandoned request is finished, with room for a slow machine.
const FINISHED: Duration = Duration::from_secs(6);
/// Arbitrary: more old keys than are used again.
const OLD_MAX: usize = 4_000;

#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// One bit for each token that was won with.
    tokens: Vec<u64>,
    done: VecDeque<Done>,
    abandoned: VecDeque<Done>,
    old: VecDeque<Done>,
    /// Events that are emitted, or are about to be, and have not been published.
    unpublished: HashSet<(u64, u64)>,
    claims_us: Vec<u64>,
    counts: BTreeMap<&'static str, u64>,
    violations: Vec<String>,
}

/// A key whose attempt with this token has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) key: u64,
    pub(super) token: u64,
    /// Before its end was said.
    pub(super) since: Instant,
}

impl Done {
    /// Whether it must still be answered again.
    pub(super) fn is_in_window(&self) -> bool {
        self.since.elapsed() < WINDOW
    }
}

impl Known {
    pub(super) fn count(&self, what: &'static str) {
        *self.lock().counts.entry(what).or_default() += 1;
    }

    pub(super) fn wrong(&self, what: String) {
        let mut known = self.lock();
        *known.counts.entry("violations").or_default() += 1;
        if known.violations.len() < 20 {
            known.violations.push(what);
        }
    }

    /// A claim was answered after this long.
    pub(super) fn claimed(&self, took: Duration) {
        let mut known = self.lock();
        known.claims_us.push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        *known.counts.entry("claims").or_default() += 1;
    }

    /// How long the claims since the last call took.
    pub(super) fn claims_since(&self) -> Vec<u64> {
        std::mem::take(&mut self.lock().claims_us)
    }

    /// Somebody won with this token: nobody else ever did.
    pub(super) fn won(&self, token: Token) {
        let (word, bit) = (usize::try_from(token.0 / 64).unwrap_or(usize::MAX), 1 << (token.0 % 64));
        let mut known = self.lock();
        // A store that counts tokens up in the millions within one soak is wrong by itself.
        if word > 1 << 20 {
            drop(known);
            return self.wrong(format!("token {token} is out of all proportion"));
        }
        let len = known.tokens.len().max(word + 1);
        known.tokens.resize(len, 0);
        let is_new = known.tokens[word] & bit == 0;
        known.tokens[word] |= bit;
        drop(known);
        if !is_new {
            self.wrong(format!("token {token} was given out twice"));
        }
    }

    pub(super) fn completed(&self, done: Done) {
        let mut known = self.lock();
        *known.counts.entry("completions").or_default() += 1;
        known.done.push_back(done);
        while known.done.front().is_some_and(|done| done.since.elapsed() > ASKED) {
            let done = known.done.pop_front();
            known.old.extend(done);
            if known.old.len() > OLD_MAX {
                known.old.pop_front();
            }
        }
    }

    /// One that was completed not long ago.
    pub(super) fn any_done(&self, draws: &mut Draws) -> Option<Done> {
        let known = self.lock();
        let at = usize::try_from(draws.below(known.done.len() as u64)).ok()?;
        known.done.get(at).copied().filter(Done::is_in_window)
    }

    pub(super) fn abandoned(&self, done: Done) {
        let mut known = self.lock();
        *known.counts.entry("abandoned").or_default() += 1;
        known.abandoned.push_back(done);
    }

    /// One that should have been finished by now, and not so long ago that it is over: to be looked at once.
    pub(super) fn take_abandoned(&self) -> Option<Done> {
        let mut known = self.lock();
        while known.abandoned.pop_front_if(|done| done.since.elapsed() > ASKED).is_some() {}
        known.abandoned.pop_front_if(|done| done.since.elapsed() > FINISHED)
    }

    /// One whose record should be gone, to be used again once.
    pub(super) fn take_old(&self) -> Option<Done> {
        self.lock().old.pop_front_if(|done| done.since.elapsed() > HORIZON + FINISHED)
    }

    /// The event of this outcome is about to be committed.
    pub(super) fn emitting(&self, key: u64, token: u64) {
        self.lock().unpublished.insert((key, token));
    }

    /// It never will be. False if it was published all the same.
    pub(super) fn not_emitted(&self, key: u64, token: u64) -> bool {
        self.lock().unpublished.remove(&(key, token))
    }

    /// It was handed to the relay's handler, perhaps once more.
    pub(super) fn published(&self, key: u64, token: u64) {
        let mut known = self.lock();
        let is_first = known.unpublished.remove(&(key, token));
        *known.counts.entry(if is_first { "published" } else { "published again" }).or_default() += 1;
    }

    pub(super) fn unpublished(&self) -> usize {
        self.lock().unpublished.len()
    }

    pub(super) fn report(&self, seed: u64) -> Report {
        let mut known = self.lock();
        Report {
            counts: std::mem::take(&mut known.counts),
            violations: std::mem::take(&mut known.violations),
            ..Report::new("soak", seed)
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

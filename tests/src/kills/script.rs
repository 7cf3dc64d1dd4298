//! What becomes of a key follows from its number: the child does it, and the parent knows what must be there.

use std::time::Duration;

use keyclaim::{Abandoned, ClaimRequest, Policy};

use crate::request::request;
use crate::seeded::Draws;

/// Where a claim's own row, a recovery point's and an outcome's are.
pub(super) const CLAIMED: &str = "claimed";
pub(super) const POINTED: &str = "pointed";
pub(super) const DONE: &str = "done";
/// Where the counters are.
pub(super) const COUNTERS: &str = "counters";
/// How many counters there are: few, so that threads meet on them.
pub(super) const COUNTERS_LEN: u64 = 2;
/// How many accounts money moves between.
pub(super) const ACCOUNTS: u64 = 4;
/// The lease: what a killed child leaves in flight is taken over some kills later.
pub(super) const LEASE: Duration = Duration::from_millis(100);
/// The replay window of keys that are used again.
const SHORT: Duration = Duration::from_millis(20);

/// What kind of request a key stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Steps, points, an outcome that is kept.
    Long,
    /// The first attempt abandons; otherwise like `Long`.
    Abandoned,
    /// Its replay window is over soon: it is used again, or reaped.
    Short,
    /// Held for a person in the end.
    Held,
    /// Claimed and completed in one transaction in which money moves.
    Moved,
    /// Claimed without rows, and released as if it had never been, every second time.
    Released,
}

/// One thing that an owner does before it ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Act {
    Step(String),
    Point(String),
    Renew,
}

impl Kind {
    pub(super) fn of(key: u64) -> Self {
        match key % 10 {
            5 => Self::Abandoned,
            6 => Self::Released,
            7 => Self::Moved,
            8 => Self::Held,
            9 => Self::Short,
            _ => Self::Long,
        }
    }

    /// Whether its record stays for ever once a win was acknowledged, in one generation.
    pub(super) fn stays(self) -> bool {
        !matches!(self, Self::Short | Self::Released)
    }

    /// Whether a claim brings a row of its own.
    pub(super) fn has_claimed_row(self) -> bool {
        self != Self::Released
    }
}

/// What the owner of this key does, in this order, in every attempt.
pub(super) fn acts(key: u64) -> Vec<Act> {
    if matches!(Kind::of(key), Kind::Moved | Kind::Released) {
        return Vec::new();
    }
    let mut draws = Draws::new(key);
    (0..=draws.below(4))
        .map(|at| match draws.below(5) {
            0 | 1 => Act::Step(format!("s{at}")),
            2 | 3 => Act::Point(format!("p{at}")),
            _ => Act::Renew,
        })
        .collect()
}

/// The request under this key.
pub(super) fn ask(key: u64) -> ClaimRequest<'static> {
    request(&name(key)).policy(policy(Kind::of(key)))
}

pub(super) fn name(key: u64) -> String {
    format!("k{key}")
}

/// What the store is opened with, and what most keys are claimed with.
pub(super) fn policy(kind: Kind) -> Policy {
    let policy = Policy::new(Abandoned::Rerun).lease(LEASE).expect("in bounds");
    match kind {
        Kind::Short => {
            let policy = policy.replay_window(SHORT).expect("in bounds");
            policy.reaper_horizon(SHORT).expect("in bounds")
        }
        _ => policy,
    }
}

/// What a step of this key results in.
pub(super) fn result(key: u64, step: &str) -> Vec<u8> {
    format!("{key} {step}").into_bytes()
}

/// What this attempt completes with, some of it over the 16 KiB that fit beside a record.
pub(super) fn body(key: u64, token: u64) -> Vec<u8> {
    let mut draws = Draws::new(key.rotate_left(32) ^ token);
    let len = if draws.below(12) == 0 { 20_000 } else { 20 + draws.below(600) };
    let filler = (0..len).map(|_| u8::try_from(draws.below(256)).unwrap_or_default());
    format!("{key} {token} ").into_bytes().into_iter().chain(filler).collect()
}

/// The attempt that completed with this body, if it is one.
pub(super) fn completer(key: u64, bytes: &[u8]) -> Option<u64> {
    let head = bytes.get(..bytes.len().min(48))?;
    let mut words = head.split(|byte| *byte == b' ');
    let number = |word: Option<&[u8]>| std::str::from_utf8(word?).ok()?.parse::<u64>().ok();
    let (of, token) = (number(words.next())?, number(words.next())?);
    (of == key && body(key, token) == bytes).then_some(token)
}

/// From which account to which, and how much.
pub(super) fn movement(key: u64) -> (u64, u64, i64) {
    let mut draws = Draws::new(key);
    let from = draws.below(ACCOUNTS);
    let to = (from + 1 + draws.below(ACCOUNTS - 1)) % ACCOUNTS;
    (from, to, i64::try_from(1 + draws.below(99)).unwrap_or(1))
}

//! How a request ended, and what the store is told about it: one table.

use std::fmt;
use std::ops::RangeInclusive;

use crate::limits::{ENDINGS_MAX, STATUS_FINAL, STATUS_MAX};
use crate::machine::OutcomeClass;
use crate::policy::Policy;
use crate::{Error, Result};

/// How the handler's part of a request ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Ended {
    /// It answered with this status.
    Status(u16),
    /// It panicked or threw.
    Panic,
    /// It was stopped because it took too long.
    TimeOut,
    /// Its answer broke off, or it was cancelled.
    CutOff,
}

/// What a row of the table, a route or the handler itself says about an ending.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// The answer is stored and given again.
    Store,
    /// No effect happened: the key is free again if nothing was recorded, else as `Abandon`.
    Release,
    /// There is no outcome: the abandoned policy decides what follows.
    Abandon,
    /// The outcome is not known: nobody may run it until a person resolves it.
    Hold,
}

/// What the owner says to the store.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Ending {
    /// `complete`, with an outcome of this class.
    Complete(OutcomeClass),
    /// `release`, which abandons if anything was recorded.
    Release,
    /// `abandon`.
    Abandon,
    /// `hold`.
    Hold,
}

/// What a row is about.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum When {
    /// Every status from the first to the last.
    Status(RangeInclusive<u16>),
    /// [`Ended::Panic`].
    Panic,
    /// [`Ended::TimeOut`].
    TimeOut,
    /// [`Ended::CutOff`].
    CutOff,
}

/// One row: the first that fits an ending decides.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    /// What it is about.
    pub when: When,
    /// What is done.
    pub rule: Rule,
    /// Whether the route set it.
    pub set_by_route: bool,
}

/// The table of a route: its own rows before the common ones.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Endings {
    own: Vec<Row>,
}

impl Endings {
    /// The common table, without rows of a route.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what is done about these statuses; what is set last is asked first.
    ///
    /// Invalid if the range is empty or beyond 200..=999, or is the 65th row.
    pub fn on_status(self, range: RangeInclusive<u16>, rule: Rule) -> Result<Self> {
        if range.is_empty() || *range.start() < STATUS_FINAL || *range.end() > STATUS_MAX {
            return Err(Error::invalid("a rule for statuses needs a range within 200 to 999; correct it"));
        }
        self.put(When::Status(range), rule)
    }

    /// Sets what is done when there is no answer.
    ///
    /// Invalid if `when` is a status (see [`on_status`](Self::on_status)), or if the rule is to store:
    /// there is nothing that could be given again.
    pub fn on(self, when: When, rule: Rule) -> Result<Self> {
        if let When::Status(range) = when {
            return self.on_status(range, rule);
        }
        if rule == Rule::Store {
            return Err(Error::invalid("a request that ended without an answer cannot be stored; hold it"));
        }
        self.put(when, rule)
    }

    /// What to tell the store: what the handler said, else the first row that fits.
    ///
    /// A handler that says `Store` without a final answer is not heeded. Whether a failure is given
    /// again or may be attempted again is the claim's policy.
    pub fn ending(&self, ended: Ended, said: Option<Rule>, policy: &Policy) -> Ending {
        let said = said.filter(|rule| *rule != Rule::Store || has_answer(ended));
        match said.unwrap_or_else(|| self.rule(ended)) {
            Rule::Store => Ending::Complete(class(ended, policy)),
            Rule::Release => Ending::Release,
            Rule::Abandon => Ending::Abandon,
            Rule::Hold => Ending::Hold,
        }
    }

    /// All rows in the order they are asked, for the contract with clients.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let common =
            COMMON.iter().map(|(when, rule)| Row { when: when.clone(), rule: *rule, set_by_route: false });
        self.own.iter().rev().cloned().chain(common)
    }

    fn rule(&self, ended: Ended) -> Rule {
        // What fits no row is no status at all: nothing that could be given again.
        self.rows().find(|row| row.when.fits(ended)).map_or(Rule::Abandon, |row| row.rule)
    }

    fn put(mut self, when: When, rule: Rule) -> Result<Self> {
        if self.own.len() >= ENDINGS_MAX {
            return Err(Error::invalid("a route has over 64 rules for endings; use ranges of statuses"));
        }
        self.own.push(Row { when, rule, set_by_route: true });
        Ok(self)
    }
}

/// What the common table tells the store about an ending.
pub fn outcome(ended: Ended, policy: &Policy) -> Ending {
    Endings::new().ending(ended, None, policy)
}

fn class(ended: Ended, policy: &Policy) -> OutcomeClass {
    match ended {
        Ended::Status(200..=399) => OutcomeClass::Success,
        _ => OutcomeClass::Failure(policy.after_failure),
    }
}

fn has_answer(ended: Ended) -> bool {
    matches!(ended, Ended::Status(STATUS_FINAL..=STATUS_MAX))
}

impl When {
    fn fits(&self, ended: Ended) -> bool {
        match (self, ended) {
            (Self::Status(range), Ended::Status(status)) => range.contains(&status),
            (Self::Panic, Ended::Panic) | (Self::TimeOut, Ended::TimeOut) | (Self::CutOff, Ended::CutOff) => {
                true
            }
            _ => false,
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(range) if range.start() == range.end() => write!(f, "{}", range.start()),
            Self::Status(range) => write!(f, "{}-{}", range.start(), range.end()),
            Self::Panic => f.write_str("panic"),
            Self::TimeOut => f.write_str("time-out"),
            Self::CutOff => f.write_str("cut off"),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Store => "stored and replayed",
            Self::Release => "released if nothing is recorded, else abandoned",
            Self::Abandon => "abandoned",
            Self::Hold => "held",
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.when, self.rule)
    }
}

/// Statuses that say "not now" or "not you" come before any effect, and the same request may
/// succeed later: storing them would pin a moment to a key for a day. A gateway's 502 and 504 say
/// that whoever did the work did not answer, so nobody knows. A 1xx is no final answer, and beyond
/// 599 clients read a 5xx (RFC 9110, section 15).
const COMMON: [(When, Rule); 15] = [
    (When::Status(401..=401), Rule::Release),
    (When::Status(403..=403), Rule::Release),
    (When::Status(408..=408), Rule::Release),
    (When::Status(421..=421), Rule::Release),
    (When::Status(425..=425), Rule::Release),
    (When::Status(429..=429), Rule::Release),
    (When::Status(503..=503), Rule::Release),
    (When::Status(502..=502), Rule::Abandon),
    (When::Status(504..=504), Rule::Abandon),
    (When::Status(200..=399), Rule::Store),
    (When::Status(400..=499), Rule::Store),
    (When::Status(500..=999), Rule::Store),
    (When::Panic, Rule::Abandon),
    (When::TimeOut, Rule::Abandon),
    (When::CutOff, Rule::Abandon),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Abandoned, AfterFailure};

    const FAILURE: Ending = Ending::Complete(OutcomeClass::Failure(AfterFailure::Replay));

    fn policy() -> Policy {
        Policy::new(Abandoned::Hold)
    }

    #[test]
    fn every_status_has_the_ending_of_the_table() {
        for status in 0..=1_100 {
            let expected = match status {
                401 | 403 | 408 | 421 | 425 | 429 | 503 => Ending::Release,
                0..=199 | 502 | 504 | 1_000.. => Ending::Abandon,
                200..=399 => Ending::Complete(OutcomeClass::Success),
                400..=999 => FAILURE,
            };
            assert_eq!(outcome(Ended::Status(status), &policy()), expected, "{status}");
        }
        for ended in [Ended::Panic, Ended::TimeOut, Ended::CutOff] {
            assert_eq!(outcome(ended, &policy()), Ending::Abandon, "{ended:?}");
        }
    }

    #[test]
    fn a_failure_is_attempted_again_if_the_policy_says_so() {
        let policy = policy().after_failure(AfterFailure::Reattempt);
        let again = Ending::Complete(OutcomeClass::Failure(AfterFailure::Reattempt));
        assert_eq!(outcome(Ended::Status(500), &policy), again);
        assert_eq!(outcome(Ended::Status(200), &policy), Ending::Complete(OutcomeClass::Success));
    }

    #[test]
    fn a_route_decides_before_the_table_and_the_handler_before_the_route() -> Result<()> {
        let route = Endings::new()
            .on_status(500..=599, Rule::Hold)?
            .on_status(501..=501, Rule::Release)?
            .on(When::Panic, Rule::Hold)?;
        let ending = |status, said| route.ending(Ended::Status(status), said, &policy());
        assert_eq!(ending(500, None), Ending::Hold);
        assert_eq!(ending(501, None), Ending::Release);
        assert_eq!(ending(501, Some(Rule::Store)), FAILURE);
        assert_eq!(ending(499, None), FAILURE);
        assert_eq!(route.ending(Ended::Panic, None, &policy()), Ending::Hold);
        assert_eq!(route.ending(Ended::CutOff, Some(Rule::Release), &policy()), Ending::Release);
        Ok(())
    }

    #[test]
    fn what_has_no_answer_is_never_stored() {
        for when in [When::Panic, When::TimeOut, When::CutOff] {
            assert!(Endings::new().on(when, Rule::Store).is_err());
        }
        for ended in [Ended::Panic, Ended::TimeOut, Ended::CutOff, Ended::Status(101)] {
            let ending = Endings::new().ending(ended, Some(Rule::Store), &policy());
            assert_eq!(ending, Ending::Abandon, "{ended:?}");
        }
    }

    #[test]
    #[allow(clippy::reversed_empty_ranges, reason = "a caller's mistake")]
    fn rules_for_no_status_or_too_many_rules_are_refused() {
        for range in [100..=299, 500..=1_000, 300..=299] {
            assert!(Endings::new().on_status(range.clone(), Rule::Hold).is_err(), "{range:?}");
            assert!(Endings::new().on(When::Status(range), Rule::Hold).is_err());
        }
        let full = (0..ENDINGS_MAX).try_fold(Endings::new(), |all, _| all.on(When::Panic, Rule::Hold));
        assert!(full.expect("64 rules are allowed").on(When::Panic, Rule::Hold).is_err());
    }

    #[test]
    fn rows_print_in_the_order_they_are_asked() -> Result<()> {
        let route = Endings::new().on_status(500..=501, Rule::Hold)?.on(When::TimeOut, Rule::Hold)?;
        let printed: Vec<String> = route.rows().map(|row| row.to_string()).take(3).collect();
        let first = "401: released if nothing is recorded, else abandoned";
        assert_eq!(printed, ["time-out: held", "500-501: held", first]);
        assert_eq!(route.rows().count(), COMMON.len() + 2);
        Ok(())
    }
}

//! What the machine answers.

use std::fmt;

use super::record::{Blob, HoldReason, OutcomeClass, Point, Record, Response, Step};
use crate::fingerprint::{Fingerprint, Prefix};
use crate::policy::Millis;
use crate::token::{Generation, Token};
use crate::writes::Conflict;

/// The answer to a claim. Every value is an answer, none an error.
///
/// Complete on purpose: whoever matches on it must handle every case. `W` is what a winner gets:
/// [`Won`] from the machine, a claim object from a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Decision<W = Won> {
    /// You run it.
    Won(W),
    /// It ran; this was the answer.
    Replay(Replay),
    /// Another runs it now; ask again later.
    InFlight {
        /// When to ask again: above zero, at most the lease.
        retry_after_ms: Millis,
        /// When the lease is over; none if it ends only by command.
        lease_until_ms: Option<Millis>,
    },
    /// The key was used for another request: a new intent needs a new key.
    Mismatch {
        /// What begins the fingerprint of the request that used it.
        stored: Prefix,
        /// What begins the fingerprint of this one.
        asked: Prefix,
    },
    /// The outcome is not known; a person has to resolve it.
    Held {
        /// Why.
        reason: HoldReason,
        /// The token an operator names to resolve it.
        token: Token,
    },
    /// It ran, but its replay window is over and the key may not be used again yet.
    Expired,
}

impl<W> Decision<W> {
    /// The same decision with something else in the winner's hands.
    pub fn map_won<V>(self, give: impl FnOnce(W) -> V) -> Decision<V> {
        match self {
            Self::Won(won) => Decision::Won(give(won)),
            Self::Replay(replay) => Decision::Replay(replay),
            Self::InFlight { retry_after_ms, lease_until_ms } => {
                Decision::InFlight { retry_after_ms, lease_until_ms }
            }
            Self::Mismatch { stored, asked } => Decision::Mismatch { stored, asked },
            Self::Held { reason, token } => Decision::Held { reason, token },
            Self::Expired => Decision::Expired,
        }
    }

    /// The decision's stable name, such as `in_flight`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Won(_) => "won",
            Self::Replay(_) => "replay",
            Self::InFlight { .. } => "in_flight",
            Self::Mismatch { .. } => "mismatch",
            Self::Held { .. } => "held",
            Self::Expired => "expired",
        }
    }
}

/// A win: the right to run, as this attempt of this generation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Won {
    /// The fencing number of the attempt.
    pub token: Token,
    /// The intent.
    pub generation: Generation,
    /// Which attempt of the generation this is, from 1.
    pub attempt: u32,
    /// How it was won.
    pub kind: WonKind,
    /// When the lease is over; none if it ends only by command.
    pub lease_until_ms: Option<Millis>,
    /// Where to resume.
    pub point: Option<Point>,
    /// The steps recorded by earlier attempts, or by this one if it asked again.
    pub steps: Vec<Step>,
    /// The number of the last command applied for this token, 0 if there was none; go on from there.
    pub last_seq: u64,
}

/// How a claim was won.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum WonKind {
    /// The key was new.
    Fresh,
    /// The caller asked again for what it had won before.
    Again,
    /// The attempt before it was abandoned.
    Takeover,
    /// The attempt before it failed, and failures may be attempted again.
    Reattempt,
    /// The key had been used, and its replay window is over.
    ReusedAfterWindow,
}

/// A finished request, answered again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Replay {
    /// Which intent it was.
    pub generation: Generation,
    /// Whether it succeeded.
    pub class: OutcomeClass,
    /// The answer, byte for byte.
    pub response: Response,
    /// When it was completed.
    pub completed_ms: Millis,
    /// When its replay window is over.
    pub window_until_ms: Millis,
}

/// What the machine answers to any command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// To a claim, and to whoever takes an abandoned one.
    Decision(Decision),
    /// To a claim whose fingerprint is of another scheme than the record's, which is this one: make it
    /// again under that scheme, and ask again.
    OtherScheme(Fingerprint),
    /// To an owner whose command was applied.
    Owner(OwnerAnswer),
    /// To a command whose writes rest on a condition that does not hold: it did not happen.
    Conflict(Conflict),
    /// To an operator whose command was applied: the token that is current from now on.
    Operator(Token),
    /// To a sweep: what was done.
    Swept(Swept),
    /// To [`Command::TakeAbandoned`](super::Command::TakeAbandoned) and
    /// [`Command::Untold`](super::Command::Untold): there was nothing to do.
    Nothing,
    /// To [`Command::Untold`](super::Command::Untold): the win is undone.
    Undone,
}

/// What an owner is told once its command is applied.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OwnerAnswer {
    /// The lease now runs until then.
    Renewed {
        /// When the lease is over; none if it ends only by command.
        lease_until_ms: Option<Millis>,
    },
    /// The recovery point is recorded.
    Checkpointed,
    /// What to do about the step.
    Effect(EffectAnswer),
    /// The step's result is recorded.
    EffectFinished,
    /// The outcome is recorded.
    Completed,
    /// The key is absent again.
    Released,
    /// The attempt is over; the abandoned policy decides what follows.
    Abandoned,
    /// The claim is held.
    Held,
}

/// What to do about a step that the owner is about to run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EffectAnswer {
    /// Run it; the intent is recorded. `place` is its index among the recorded steps.
    Run {
        /// The index of the step among the recorded ones.
        place: u32,
        /// When it must have ended.
        until_ms: Millis,
    },
    /// It happened before; this was its result. Do not run it.
    Done {
        /// The index of the step among the recorded ones.
        place: u32,
        /// Its result.
        result: Blob,
    },
    /// It was refused before; this was its result. Do not run it.
    Refused {
        /// The index of the step among the recorded ones.
        place: u32,
        /// Its result.
        result: Blob,
    },
    /// It is in doubt and must settle first: ask again at this time.
    Settling {
        /// When to ask again.
        until_ms: Millis,
    },
    /// It is in doubt: ask the other side what happened, then finish it.
    Reconcile {
        /// The index of the step among the recorded ones.
        place: u32,
    },
    /// It is in doubt and the claim is now held: stop.
    Held(HoldReason),
}

/// What a sweep of one record did.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Swept {
    /// Nothing was due.
    NotDue,
    /// The body was dropped at the end of the replay window; a tombstone stays.
    Tombstone,
    /// The record is gone.
    Removed,
    /// It is unfinished past its horizon: it stays, and a person should look.
    Unfinished,
}

/// Why a command was refused; nothing changed, unless it says so.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// The token is not the current one.
    Fenced(Present),
    /// The command makes no sense here; the text says what to do.
    Invalid(&'static str),
    /// The handler's steps are not the recorded ones; the claim is now held.
    StepsChanged,
}

/// What a key holds, told to whoever was overtaken.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Present {
    /// Nothing.
    Absent,
    /// An attempt with this token.
    InFlight(Token),
    /// A held record.
    Held(Token),
    /// An outcome.
    Complete(Token),
}

impl fmt::Display for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::InFlight(token) => write!(f, "in flight with token {token}"),
            Self::Held(token) => write!(f, "held with token {token}"),
            Self::Complete(token) => write!(f, "complete with token {token}"),
        }
    }
}

/// What a command does to the rows of its key, in full before the first is written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Changes {
    /// What becomes of the record.
    pub record: Change,
    /// A finished failure that its key no longer shows, kept until the reaper horizon.
    pub archive: Option<Box<Record>>,
    /// Whether the command used up [`Facts::next_token`](super::Facts::next_token).
    pub took_token: bool,
    /// Whether the command's own writes are applied with it, if their conditions hold.
    pub with_writes: bool,
}

/// What becomes of a record.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Change {
    /// It stays as it is.
    #[default]
    Keep,
    /// It becomes this.
    Put(Box<Record>),
    /// It goes.
    Delete,
}

/// The machine's whole answer: what is said, and what is written before it may be said.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Verdict {
    /// What is said once the changes are durable.
    pub answer: Result<Answer, Refusal>,
    /// What is written.
    pub changes: Changes,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::record::Body;

    /// They are in the logs and scripts of every language.
    #[test]
    fn names_stay_as_they_are() {
        let response = Response { status: 201, headers: Vec::new(), body: Body::Here(Blob(Vec::new())) };
        let replay = Replay {
            generation: Generation(1),
            class: OutcomeClass::Success,
            response,
            completed_ms: Millis(1),
            window_until_ms: Millis(2),
        };
        let decisions = [
            Decision::Won("claim"),
            Decision::Replay(replay),
            Decision::InFlight { retry_after_ms: Millis(1), lease_until_ms: None },
            Decision::Mismatch { stored: Prefix([1; 4]), asked: Prefix([2; 4]) },
            Decision::Held { reason: HoldReason::Owner, token: Token(1) },
            Decision::Expired,
        ];
        let names = decisions.map(|decision| decision.name());
        assert_eq!(names, ["won", "replay", "in_flight", "mismatch", "held", "expired"]);
        let present = [
            Present::Absent,
            Present::InFlight(Token(1)),
            Present::Held(Token(2)),
            Present::Complete(Token(3)),
        ];
        let names = present.map(|present| present.to_string());
        assert_eq!(names, ["absent", "in flight with token 1", "held with token 2", "complete with token 3"]);
    }
}

//! What can be asked of the machine.

use serde::{Deserialize, Serialize};

use super::record::{Blob, Body, HoldReason, Outcome, Record};
use crate::backoff::Backoff;
use crate::fingerprint::Fingerprint;
use crate::policy::{Millis, Policy};
use crate::token::{Nonce, Token};
use crate::writes::Writes;

/// What the machine is told beside the record and the command. Nothing else is looked up.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Store time, one reading per commit group.
    pub now_ms: Millis,
    /// The token that the next win would get.
    pub next_token: Token,
    /// Whether the current owner is a claim that lives in this process.
    pub owner_lives_here: bool,
}

/// One request to the machine about one key.
#[derive(Clone, Debug)]
pub enum Command {
    /// May I run this?
    Claim(ClaimCommand),
    /// The owner of an attempt says something.
    Owner(OwnerCommand),
    /// A person decides.
    Operator(OperatorCommand),
    /// Take over, for whoever finishes abandoned requests, a claim that stored its request.
    TakeAbandoned {
        /// The nonce of this call.
        nonce: Nonce,
        /// Give up into held after this many tries.
        tries_max: u32,
        /// How long the next try waits after this one, should it come to nothing. What is chosen is kept with
        /// the record from now on: the death of the process is followed by it as well.
        backoff: Backoff,
        /// Any number, chosen at random for this try.
        random: u64,
    },
    /// Nobody was told of the win with this token: let go of it.
    Untold {
        /// The token of the win.
        token: Token,
        /// The record as it was before the win, if it was a takeover or a reattempt.
        before: Option<Box<Record>>,
    },
    /// Do whatever is due on this record, if anything is.
    Sweep,
}

/// A claim: everything that the request brings along.
#[derive(Clone, Debug)]
pub struct ClaimCommand {
    /// The nonce of this call.
    pub nonce: Nonce,
    /// The token of an attempt that the caller already owns, if it says so.
    pub token: Option<Token>,
    /// What is asked for.
    pub fingerprint: Fingerprint,
    /// The settings, should this claim begin a generation; a takeover uses its lease only.
    pub policy: Policy,
    /// The operation's name.
    pub operation: Option<String>,
    /// The request, for whoever has to finish it.
    pub request: Option<Body>,
    /// What commits with the win; applied once in a generation.
    pub writes: Writes,
}

impl Command {
    /// What is to commit with the command.
    pub(crate) fn writes(&self) -> Option<&Writes> {
        match self {
            Self::Claim(claim) => Some(&claim.writes),
            Self::Owner(OwnerCommand {
                act: Act::Checkpoint { writes, .. } | Act::Complete { writes, .. },
                ..
            }) => Some(writes),
            _ => None,
        }
    }
}

/// An owner's command: who says it, as which of its commands, and what.
#[derive(Clone, Debug)]
pub struct OwnerCommand {
    /// The token of the attempt.
    pub token: Token,
    /// The number of the command within the attempt, increasing from 1. A renewal needs none and has 0.
    pub seq: u64,
    /// The digest of `act`, see [`codec::digest`](crate::codec::digest).
    pub digest: [u8; 16],
    /// What is said.
    pub act: Act,
}

/// What an owner may say.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Act {
    /// I am still here: the lease runs anew from now.
    Renew {
        /// Its length, the record's own if none.
        lease_ms: Option<Millis>,
    },
    /// Whoever comes after me resumes here.
    Checkpoint {
        /// The recovery point's name.
        name: String,
        /// Data for whoever resumes.
        data: Blob,
        /// How many steps this attempt has met.
        met: u32,
        /// What commits with it.
        writes: Writes,
    },
    /// I am about to do something outside.
    BeginEffect(BeginEffect),
    /// This is how it ended.
    FinishEffect {
        /// The step's name.
        name: String,
        /// Its result.
        result: StepResult,
    },
    /// The request has an outcome.
    Complete {
        /// The outcome.
        outcome: Outcome,
        /// How many steps this attempt has met.
        met: u32,
        /// What commits with it.
        writes: Writes,
    },
    /// No effect happened: as if I had never claimed.
    Release,
    /// My attempt ended without an outcome.
    Abandon,
    /// I do not know the outcome: nobody may run this.
    Hold {
        /// Why.
        reason: HoldReason,
    },
    /// My attempt ended without an outcome, and a try before this instant cannot succeed.
    Postpone {
        /// Whoever finishes abandoned requests waits until then, a week at most. A caller may come earlier.
        until_ms: Millis,
    },
}

/// The intent of one step.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct BeginEffect {
    /// The step's name.
    pub name: String,
    /// Its longest duration.
    pub limit_ms: Millis,
    /// What to do should an earlier attempt have left it in doubt.
    pub in_doubt: InDoubt,
    /// How many steps this attempt has met before.
    pub met: u32,
}

/// What to do about a step that began and whose outcome nobody knows.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum InDoubt {
    /// Run it again: it carries its downstream key, and the other side collapses duplicates.
    Repeat,
    /// Ask the other side what happened, after its limit and this settling time.
    Reconcile {
        /// The settling time.
        settle_ms: Millis,
    },
    /// Hold the claim for a person.
    Hold,
}

/// How a step ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum StepResult {
    /// It happened, with this result.
    Done(Blob),
    /// It was refused for good, with this result.
    Refused(Blob),
    /// It was never sent: the intent is removed.
    NotSent,
}

/// A person's command, which names the token it saw and loses if that has changed.
#[derive(Clone, Debug)]
pub struct OperatorCommand {
    /// The token that the person saw.
    pub seen: Token,
    /// What is decided.
    pub act: OperatorAct,
}

/// What a person may decide.
#[derive(Clone, Debug)]
pub enum OperatorAct {
    /// Held: this was the outcome.
    ResolveComplete(Outcome),
    /// Held: nothing happened; the key is new.
    ResolveAbsent,
    /// Held: the next claim may resume it, with this result of the step in doubt if there is one.
    ResolveResumable(Option<StepResult>),
    /// Whatever it is: the key is new.
    Forget,
    /// Finished: answer it again until this long from now.
    ExtendWindow(Millis),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::record::{HoldReason, OutcomeClass, Response};

    fn owner(act: Act) -> Command {
        Command::Owner(OwnerCommand { token: Token(1), seq: 1, digest: [0; 16], act })
    }

    /// What brings writes has them committed; what has no place for any brings none.
    #[test]
    fn writes_come_with_a_claim_a_recovery_point_and_an_outcome() {
        let writes = || Writes::new().put("orders", b"5", b"new");
        let claim = ClaimCommand {
            nonce: Nonce([1; 16]),
            token: None,
            fingerprint: Fingerprint { scheme: crate::fingerprint::Scheme::Raw, hash: [1; 32] },
            policy: Policy::new(crate::Abandoned::Rerun),
            operation: None,
            request: None,
            writes: writes(),
        };
        let response = Response { status: 201, headers: Vec::new(), body: Body::Here(Blob(Vec::new())) };
        let outcome = Outcome { class: OutcomeClass::Success, response };
        let point = Act::Checkpoint { name: "half".into(), data: Blob(Vec::new()), met: 0, writes: writes() };
        for command in
            [Command::Claim(claim), owner(point), owner(Act::Complete { outcome, met: 0, writes: writes() })]
        {
            assert_eq!(command.writes().map(|writes| writes.rows.len()), Some(1), "{command:?}");
        }
        for act in [Act::Release, Act::Abandon, Act::Hold { reason: HoldReason::Owner }] {
            assert!(owner(act).writes().is_none());
        }
    }
}

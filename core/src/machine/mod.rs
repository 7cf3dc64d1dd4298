//! The rules, as one plain function: no clock, no I/O, no randomness, nothing looked up.
//!
//! ```text
//!                      claim                          complete
//!           +---------> IN FLIGHT --------------------------------> COMPLETE
//!           |            | ^  ^                                      |  |
//!   ABSENT -+    release | |  | takeover, reattempt                  |  | window over
//!     ^  ^               | |  +--------------------------------------+  | (claim: new generation)
//!     |  +---------------+ |                                            |
//!     |                    | resolve resumable                          |
//!     |    hold, in doubt, v                                            |
//!     |    abandoned      HELD --- complete by owner or operator -----> |
//!     |                    | resolve absent, forget                     |
//!     +--------------------+------------------ horizon over ------------+
//! ```
//!
//! Every engine (redb, the edge's SQL rows) calls [`decide`] inside its own atomic
//! read-decide-write step, writes the [`Changes`] and only then gives the answer. Intervals are
//! half-open: at the instant it ends a lease, window or horizon is over. The answer never depends
//! on whether a sweep happened to run.

pub mod command;
pub mod decision;
pub mod record;

mod bounds;
mod claim;
mod invariant;
mod operator;
mod owner;
mod steps;
mod sweep;

pub use command::{
    Act, BeginEffect, ClaimCommand, Command, Facts, InDoubt, OperatorAct, OperatorCommand, OwnerCommand,
    StepResult,
};
pub use decision::{
    Answer, Change, Changes, Decision, EffectAnswer, OwnerAnswer, Present, Refusal, Replay, Swept, Verdict,
    Won, WonKind,
};
pub use record::{
    Applied, Blob, Body, DropReason, HoldReason, Outcome, OutcomeClass, Point, Record, Response, State, Step,
    StepProgress,
};

pub use sweep::is_past;

use crate::writes::Writes;

/// Decides one command on one key: what to answer, and what to write before answering.
///
/// `record` is what is stored, as it is; a finished one past its horizon counts as absent whether
/// or not a sweep removed it. A refusal changes nothing, except that
/// [`Refusal::StepsChanged`] leaves the record held.
pub fn decide(record: Option<&Record>, command: &Command, facts: Facts) -> Verdict {
    let record = record.filter(|record| !sweep::is_past(record, facts.now_ms));
    match command {
        Command::Claim(claim) => claim::claim(record, claim, facts),
        Command::Owner(command) => owner::owner(record, command, facts),
        Command::Operator(command) => operator::operator(record, command, facts),
        Command::TakeAbandoned { nonce, tries_max, backoff, random } => {
            let pause_ms = |tries| backoff.delay_ms(tries, *random);
            claim::take_abandoned(record, *nonce, *tries_max, pause_ms, facts)
        }
        Command::Untold { token, before } => claim::untold(record, *token, before.as_deref(), facts),
        Command::Sweep => sweep::sweep(record, facts),
    }
}

impl Verdict {
    fn says(answer: Answer) -> Self {
        Self { answer: Ok(answer), changes: Changes::default() }
    }

    fn refuses(refusal: Refusal) -> Self {
        Self { answer: Err(refusal), changes: Changes::default() }
    }

    fn puts(record: Record, answer: Result<Answer, Refusal>) -> Self {
        let record = Change::Put(Box::new(record));
        Self { answer, changes: Changes { record, ..Changes::default() } }
    }

    fn deletes(answer: Answer) -> Self {
        Self { answer: Ok(answer), changes: Changes { record: Change::Delete, ..Changes::default() } }
    }

    fn taking_token(mut self) -> Self {
        self.changes.took_token = true;
        self
    }

    /// Applies these writes with the command. Their rows and events are named by the token it takes.
    fn with(mut self, writes: &Writes) -> Self {
        let Change::Put(record) = &mut self.changes.record else { return self };
        if writes.is_empty() {
            return self;
        }
        record.events = record.events.saturating_add(writes.events_len());
        self.changes.with_writes = true;
        self.taking_token()
    }
}

//! What clients did to one key and what they were told, with the order in which calls began and answers came.

use serde::{Deserialize, Serialize};

/// One command on the key.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub enum Op {
    /// Claims it for the request that this payload makes.
    Claim {
        /// The caller's own.
        nonce: u64,
        /// Another payload is another request.
        payload: u8,
    },
    /// What the owner with this token says; `number` tells its commands apart, and one that is asked again has the
    /// number it had.
    Own {
        /// Of the claim that says so.
        token: u64,
        /// Different for each command, but the same if it is asked again.
        number: u64,
        /// What it says.
        act: Act,
    },
    /// The store itself renews the win of this nonce, because its commit came late. Nobody asks it, and only behind
    /// a claim that was told nothing it stands for itself.
    RenewLate {
        /// Of the claim that may have won.
        nonce: u64,
    },
    /// A person resolves a held claim that was seen with this token.
    Resolve {
        /// As it was seen.
        seen: u64,
        /// Whether nothing happened; else the next claim goes on with it.
        absent: bool,
    },
    /// Looks without changing anything.
    Inspect,
}

/// What an owner says.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub enum Act {
    /// Lets the lease run anew.
    Renew,
    /// Records a recovery point of this name.
    Checkpoint(u64),
    /// Records this outcome.
    Complete(u64),
    /// Ends the attempt.
    Release,
    /// Ends the attempt.
    Abandon,
    /// Nobody knows what happened.
    Hold,
}

/// What was told. Times are store time in milliseconds.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub enum Answer {
    /// Nothing that tells whether it happened.
    Unknown,
    /// The right to run. The end of the lease that is told is a renewal of its own behind it, within the same call:
    /// a win that is told late has been renewed meanwhile.
    Won {
        /// Of the attempt.
        token: u64,
        /// Of the intent.
        generation: u64,
        /// Counted from one.
        attempt: u32,
        /// How.
        kind: Kind,
        /// When the lease is over.
        until_ms: u64,
        /// The recovery point it goes on from.
        point: Option<u64>,
    },
    /// Another attempt runs until then.
    InFlight {
        /// When its lease is over.
        until_ms: u64,
    },
    /// The recorded outcome.
    Replay {
        /// As it was completed.
        body: u64,
        /// When.
        completed_ms: u64,
    },
    /// The key was used for another request.
    Mismatch,
    /// A person has to resolve it.
    Held {
        /// Which the person names.
        token: u64,
    },
    /// The owner was obeyed.
    Done,
    /// The lease is over then.
    Renewed {
        /// When.
        until_ms: u64,
    },
    /// The owner was overtaken, or what was seen has changed.
    Fenced,
    /// The person was obeyed, under this token.
    Resolved {
        /// New.
        token: u64,
    },
    /// There is nothing to resolve.
    NotHeld,
    /// What is there; none if the key is new.
    Seen(Option<Look>),
}

/// How a claim was won.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub enum Kind {
    /// The key was new.
    Fresh,
    /// Its replay window was over.
    Reused,
    /// By the same caller as before.
    Again,
    /// From an attempt whose lease was over.
    Takeover,
}

/// What a look shows.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct Look {
    /// The current one.
    pub token: u64,
    /// Of the intent.
    pub generation: u64,
    /// Counted from one.
    pub attempt: u32,
    /// The recovery point.
    pub point: Option<u64>,
    /// Where it stands.
    pub stands: Stands,
}

/// Where the key stands in a look.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub enum Stands {
    /// Until then.
    InFlight(u64),
    /// Nobody may run it.
    Held,
    /// Since then.
    Complete(u64),
}

/// One call and what became of it.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct Operation {
    /// Who asked.
    pub client: u64,
    /// What.
    pub op: Op,
    /// What it was told.
    pub answer: Answer,
    /// Place of the call in the order of all calls and answers.
    pub called_at: u64,
    /// Place of the answer. An answer of nothing has a place too, and its effect may come later or never.
    pub told_at: u64,
    /// Store time before the call.
    pub from_ms: u64,
    /// Store time behind the answer: it was decided in between, or never.
    pub to_ms: u64,
}

/// All that was done to one key.
#[derive(Clone, Debug, Default, Eq, PartialEq, Deserialize, Serialize)]
pub struct History {
    /// In the order of their calls.
    pub operations: Vec<Operation>,
}

impl Operation {
    /// A win is two operations: itself, and the renewal that what is told of its lease may be. A claim that was told
    /// nothing may have done both, or only the first.
    pub fn and_its_renewal(self) -> Vec<Self> {
        let (op, answer) = match (&self.op, &self.answer) {
            (_, Answer::Won { token, until_ms, .. }) => (
                Op::Own { token: *token, number: self.called_at, act: Act::Renew },
                Answer::Renewed { until_ms: *until_ms },
            ),
            (Op::Claim { nonce, .. }, Answer::Unknown) => (Op::RenewLate { nonce: *nonce }, Answer::Unknown),
            _ => return vec![self],
        };
        let renewal = Self { op, answer, ..self.clone() };
        vec![self, renewal]
    }
}

impl History {
    /// One line an operation, to be read again by [`History::parse`].
    ///
    /// # Panics
    /// Never: an operation is plain data.
    pub fn lines(&self) -> String {
        self.operations.iter().map(|op| serde_json::to_string(op).expect("plain data") + "\n").collect()
    }

    /// Reads what [`History::lines`] wrote.
    ///
    /// Errors: the first line that is none of those.
    pub fn parse(lines: &str) -> Result<Self, String> {
        let read = |line| serde_json::from_str(line).map_err(|error| format!("{line}: {error}"));
        Ok(Self { operations: lines.lines().map(read).collect::<Result<_, _>>()? })
    }
}

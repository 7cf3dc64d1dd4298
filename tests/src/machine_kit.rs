//! One key, its record and its clock, for tests of the pure machine; and short words for its commands.

use std::time::Duration;

use keyclaim::fingerprint::{Fingerprint, Scheme};
use keyclaim::machine::{
    Act, Answer, BeginEffect, Blob, Body, Change, ClaimCommand, Command, Decision, EffectAnswer, Facts,
    HoldReason, InDoubt, OperatorAct, OperatorCommand, Outcome, OutcomeClass, OwnerAnswer, OwnerCommand,
    Record, Refusal, Response, StepResult, Verdict, Won, decide,
};
use keyclaim::outbox::Backoff;
use keyclaim::{Abandoned, Event, Millis, Nonce, Policy, Token, Writes};

/// When every history begins.
pub const T0: u64 = 100_000;
/// The lease of [`policy`].
pub const LEASE: u64 = 5_000;
/// The replay window of [`policy`].
pub const WINDOW: u64 = 10_000;
/// The reaper horizon of [`policy`].
pub const HORIZON: u64 = 30_000;
/// The limit of [`begin`].
pub const LIMIT: u64 = 2_000;
/// The settling time of [`ask_back`].
pub const SETTLE: u64 = 700;

/// One key in an engine that does nothing but what the machine says.
#[derive(Clone, Debug)]
pub struct World {
    /// What is stored.
    pub record: Option<Record>,
    /// What was archived.
    pub archive: Vec<Record>,
    /// Store time.
    pub now_ms: u64,
    /// The next token.
    pub next: u64,
    /// Whether the owner lives in this process.
    pub owner_here: bool,
}

impl World {
    /// An absent key at [`T0`], whose first win gets token 1.
    #[must_use]
    pub fn new() -> Self {
        Self { record: None, archive: Vec::new(), now_ms: T0, next: 1, owner_here: false }
    }

    /// What the machine is told.
    pub fn facts(&self) -> Facts {
        Facts { now_ms: Millis(self.now_ms), next_token: Token(self.next), owner_lives_here: self.owner_here }
    }

    /// Decides, checks that only a sound record is written, and writes.
    ///
    /// # Panics
    /// If the record to be written breaks a rule.
    pub fn ask(&mut self, command: &Command) -> Result<Answer, Refusal> {
        self.verdict(command).answer
    }

    /// As [`World::ask`], with the changes that were made.
    ///
    /// # Panics
    /// If the record to be written breaks a rule.
    pub fn verdict(&mut self, command: &Command) -> Verdict {
        let verdict = decide(self.record.as_ref(), command, self.facts());
        match &verdict.changes.record {
            Change::Keep => {}
            Change::Delete => self.record = None,
            Change::Put(record) => {
                if let Err(rule) = record.check() {
                    panic!("{command:?} writes a record that breaks: {rule}\n{record:#?}");
                }
                self.record = Some((**record).clone());
            }
        }
        self.archive.extend(verdict.changes.archive.iter().map(|record| (**record).clone()));
        self.next += u64::from(verdict.changes.took_token);
        verdict
    }

    /// Claims with a nonce of this number, for the request of [`claim`].
    pub fn claim(&mut self, nonce: u8) -> Decision {
        self.decision(&claim(nonce))
    }

    /// Claims, and must win.
    ///
    /// # Panics
    /// If it does not win.
    pub fn win(&mut self, nonce: u8) -> Won {
        match self.claim(nonce) {
            Decision::Won(won) => won,
            other => panic!("expected to win, was told {other:?}"),
        }
    }

    /// Asks what must be answered with a decision.
    ///
    /// # Panics
    /// If it is not.
    pub fn decision(&mut self, command: &Command) -> Decision {
        match self.ask(command) {
            Ok(Answer::Decision(decision)) => decision,
            other => panic!("expected a decision, was told {other:?}"),
        }
    }

    /// Says something as the owner of this token.
    ///
    /// # Panics
    /// If the answer is none to an owner.
    pub fn say(&mut self, token: Token, seq: u64, act: Act) -> Result<OwnerAnswer, Refusal> {
        match self.ask(&say(token, seq, act))? {
            Answer::Owner(answer) => Ok(answer),
            other => panic!("expected an owner's answer, was told {other:?}"),
        }
    }

    /// Begins a step as the owner of this token.
    ///
    /// # Panics
    /// If the answer is none to a step.
    pub fn begin(&mut self, token: Token, seq: u64, begin: BeginEffect) -> Result<EffectAnswer, Refusal> {
        match self.say(token, seq, Act::BeginEffect(begin))? {
            OwnerAnswer::Effect(answer) => Ok(answer),
            other => panic!("expected an answer to a step, was told {other:?}"),
        }
    }

    /// Decides as an operator who saw this token.
    pub fn operate(&mut self, seen: Token, act: OperatorAct) -> Result<Answer, Refusal> {
        self.ask(&Command::Operator(OperatorCommand { seen, act }))
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// Short, distinct times: lease 5 s, window 10 s, horizon 30 s.
///
/// # Panics
/// Never: the times are in range.
pub fn policy(abandoned: Abandoned) -> Policy {
    Policy::new(abandoned)
        .lease(Duration::from_millis(LEASE))
        .and_then(|policy| policy.replay_window(Duration::from_millis(WINDOW)))
        .and_then(|policy| policy.reaper_horizon(Duration::from_millis(HORIZON)))
        .expect("the times are in range")
}

/// The fingerprint of a request told by a number.
pub fn print(request: u8) -> Fingerprint {
    Fingerprint { scheme: Scheme::Raw, hash: [request; 32] }
}

/// A nonce told by a number.
pub fn nonce(number: u8) -> Nonce {
    Nonce([number; 16])
}

/// A claim of request 1 under the policy that reruns what was abandoned.
pub fn claim(nonce: u8) -> Command {
    Command::Claim(claim_with(nonce, policy(Abandoned::Rerun)))
}

/// A claim of request 1 under this policy, to be changed further.
pub fn claim_with(number: u8, policy: Policy) -> ClaimCommand {
    ClaimCommand {
        nonce: nonce(number),
        token: None,
        fingerprint: print(1),
        policy,
        operation: None,
        request: None,
        writes: Writes::new(),
    }
}

/// The bound of the pause after the first try of [`take`].
pub const PAUSE: u64 = 800;
/// The bound of every pause of [`take`].
pub const PAUSE_MAX: u64 = 3_000;

/// A takeover by whoever finishes abandoned requests, as nonce 9; its random number is in the middle.
///
/// # Panics
/// Never: the times are in range.
pub fn take(tries_max: u32) -> Command {
    let span = Duration::from_millis;
    let backoff = Backoff::new(span(PAUSE), span(PAUSE_MAX)).expect("the times are in range");
    Command::TakeAbandoned { nonce: nonce(9), tries_max, backoff, random: 1 << 63 }
}

/// An owner's command.
///
/// # Panics
/// Never: every act can be encoded.
pub fn say(token: Token, seq: u64, act: Act) -> Command {
    let digest = keyclaim::codec::digest(&act).expect("an act can be encoded");
    Command::Owner(OwnerCommand { token, seq, digest, act })
}

/// An intent to run this step after having met so many.
pub fn begin(name: &str, in_doubt: InDoubt, met: u32) -> BeginEffect {
    BeginEffect { name: name.into(), limit_ms: Millis(LIMIT), in_doubt, met }
}

/// The other side can be asked what happened, [`SETTLE`] after the limit.
pub fn ask_back() -> InDoubt {
    InDoubt::Reconcile { settle_ms: Millis(SETTLE) }
}

/// The step of this name is done.
pub fn done(name: &str) -> Act {
    Act::FinishEffect { name: name.into(), result: StepResult::Done(bytes("receipt")) }
}

/// A recovery point after having met so many steps.
pub fn checkpoint(met: u32) -> Act {
    Act::Checkpoint { name: "half".into(), data: bytes("data"), met, writes: Writes::new() }
}

/// A completion after having met so many steps.
pub fn complete(class: OutcomeClass, met: u32) -> Act {
    Act::Complete { outcome: outcome(class), met, writes: Writes::new() }
}

/// The owner does not know the outcome.
pub fn hold() -> Act {
    Act::Hold { reason: HoldReason::Owner }
}

/// A renewal by the record's own lease.
pub fn renew() -> Act {
    Act::Renew { lease_ms: None }
}

/// An outcome with a repeated header and a body that is no text.
pub fn outcome(class: OutcomeClass) -> Outcome {
    let header = |name: &str, value: &str| (bytes(name), bytes(value));
    let headers = vec![header("Link", "<b>"), header("Location", "/1"), header("Link", "<a>")];
    let body = Body::Here(Blob(vec![0, 0xff, 0xc3, 0x28]));
    Outcome { class, response: Response { status: 201, headers, body } }
}

/// The bytes of a text.
pub fn bytes(text: &str) -> Blob {
    Blob(text.as_bytes().to_vec())
}

/// One row and one event.
pub fn some_writes() -> Writes {
    Writes::new().put("orders", b"5", b"new").emit(Event::new("orders", "5"))
}

//! The commands of the table, by their names.

use keyclaim::fingerprint::{Fingerprint, Scheme};
use keyclaim::machine::{
    Act, BeginEffect, Blob, ClaimCommand, Command, HoldReason, InDoubt, OperatorAct, OperatorCommand,
    OutcomeClass, OwnerCommand, Record, State, StepResult,
};
use keyclaim::{Abandoned, AfterFailure, Millis, Policy, Token};
use keyclaim_tests::machine_kit::{T0, ask_back, bytes, claim_with, nonce, outcome, policy, print, take};

use super::states::{OWN, OWN_NONCE};

/// The lease that newcomers ask for: neither the record's nor the default.
pub(crate) const NEW_LEASE: u64 = 4_000;
/// The lease that an owner asks for when it names one.
pub(crate) const NAMED_LEASE: u64 = 3_100;
/// By how much an operator extends.
pub(crate) const EXTENSION: u64 = 20_000;

/// Until when an owner postpones the next try: later than any instant of the table.
pub(crate) const POSTPONED: u64 = T0 + 100_000;

/// A command, and whether the owner lives in the process that is asked.
pub(crate) struct Asked {
    pub(crate) name: String,
    pub(crate) owner_here: bool,
    make: Make,
}

enum Make {
    Command(Command),
    Act { token: u64, seq: u64, digest: u8, act: Act },
    UntoldBefore,
}

impl Asked {
    /// The command as it is given about this record.
    pub(crate) fn about(&self, record: Option<&Record>) -> Command {
        match &self.make {
            Make::Command(command) => command.clone(),
            Make::Act { token, seq, digest, act } => Command::Owner(OwnerCommand {
                token: Token(*token),
                seq: *seq,
                digest: [*digest; 16],
                act: with_met(act.clone(), record),
            }),
            Make::UntoldBefore => {
                Command::Untold { token: Token(OWN), before: record.map(|record| Box::new(before(record))) }
            }
        }
    }
}

/// The record as it may have been before its win: an abandoned earlier attempt without writes.
pub(crate) fn before(record: &Record) -> Record {
    let mut before = record.clone();
    (before.generation, before.token) = (keyclaim::Generation(5), Token(5));
    before.wrote = false;
    before.state = State::InFlight { lease_until_ms: Some(Millis(T0)), resumable: false };
    before
}

pub(crate) fn all() -> Vec<Asked> {
    let mut all = claims();
    for (name, act) in acts() {
        all.push(owner("own", name, (OWN, 3, 3), act.clone()));
        all.push(owner("again", name, (OWN, 2, 2), act.clone()));
        all.push(owner("clash", name, (OWN, 2, 0xee), act.clone()));
        all.push(owner("late", name, (OWN, 1, 1), act.clone()));
        all.push(owner("stale", name, (OWN - 1, 3, 3), act));
    }
    for (name, act) in operator_acts() {
        for (who, seen) in [("seen", OWN), ("moved", OWN - 1)] {
            let command = OperatorCommand { seen: Token(seen), act: act.clone() };
            all.push(plain(&format!("{who}-{name}"), Command::Operator(command)));
        }
    }
    all.extend(upkeep());
    all
}

fn claims() -> Vec<Asked> {
    let command = |name: &str, change: fn(&mut ClaimCommand)| {
        let newcomers: Policy = policy(Abandoned::Rerun)
            .lease(std::time::Duration::from_millis(NEW_LEASE))
            .expect("the lease is in range");
        let mut claim = claim_with(1, newcomers);
        change(&mut claim);
        plain(name, Command::Claim(claim))
    };
    vec![
        command("claim", |_| {}),
        command("claim-other", |claim| claim.fingerprint = print(2)),
        command("claim-other-nonce", |claim| {
            (claim.fingerprint, claim.nonce) = (print(2), nonce(OWN_NONCE));
        }),
        command("claim-scheme", |claim| {
            claim.fingerprint = Fingerprint { scheme: Scheme::Json { without: vec![] }, hash: [1; 32] };
        }),
        command("claim-nonce", |claim| claim.nonce = nonce(OWN_NONCE)),
        command("claim-token", |claim| claim.token = Some(Token(OWN))),
    ]
}

fn acts() -> Vec<(&'static str, Act)> {
    let pay = |in_doubt| Act::BeginEffect(effect("pay", in_doubt, 0));
    let finish = |result| Act::FinishEffect { name: "pay".into(), result };
    let complete =
        |class, met| Act::Complete { outcome: outcome(class), met, writes: keyclaim::Writes::new() };
    vec![
        ("renew", Act::Renew { lease_ms: None }),
        ("renew-named", Act::Renew { lease_ms: Some(Millis(NAMED_LEASE)) }),
        (
            "checkpoint",
            Act::Checkpoint {
                name: "half".into(),
                data: bytes("data"),
                met: ALL,
                writes: keyclaim::Writes::new(),
            },
        ),
        ("begin", Act::BeginEffect(effect("mail", InDoubt::Repeat, ALL))),
        ("begin-skip", Act::BeginEffect(effect("mail", InDoubt::Repeat, 0))),
        ("pay-safe", pay(InDoubt::Repeat)),
        ("pay-ask", pay(ask_back())),
        ("pay-hold", pay(InDoubt::Hold)),
        ("done", finish(StepResult::Done(bytes("receipt")))),
        ("refused", finish(StepResult::Refused(bytes("declined")))),
        ("unsent", finish(StepResult::NotSent)),
        ("done-other", Act::FinishEffect { name: "mail".into(), result: StepResult::Done(bytes("receipt")) }),
        ("complete", complete(OutcomeClass::Success, ALL)),
        ("fail", complete(OutcomeClass::Failure(AfterFailure::Replay), ALL)),
        ("complete-skip", complete(OutcomeClass::Success, 0)),
        ("complete-over", complete(OutcomeClass::Success, 9)),
        ("release", Act::Release),
        ("abandon", Act::Abandon),
        ("hold", Act::Hold { reason: HoldReason::Owner }),
        ("postpone", Act::Postpone { until_ms: Millis(POSTPONED) }),
    ]
}

fn operator_acts() -> Vec<(&'static str, OperatorAct)> {
    vec![
        ("complete", OperatorAct::ResolveComplete(outcome(OutcomeClass::Success))),
        ("absent", OperatorAct::ResolveAbsent),
        ("resumable", OperatorAct::ResolveResumable(None)),
        ("resumable-done", OperatorAct::ResolveResumable(Some(StepResult::Done(Blob(vec![1]))))),
        ("forget", OperatorAct::Forget),
        ("extend", OperatorAct::ExtendWindow(Millis(EXTENSION))),
    ]
}

fn upkeep() -> Vec<Asked> {
    let here = |name: &str, command| Asked { owner_here: true, ..plain(name, command) };
    vec![
        plain("take", take(3)),
        here("take-here", take(3)),
        plain("take-last", take(2)),
        plain("take-none", take(0)),
        plain("untold", Command::Untold { token: Token(OWN), before: None }),
        Asked { name: "untold-back".into(), owner_here: false, make: Make::UntoldBefore },
        plain("untold-stale", Command::Untold { token: Token(OWN - 1), before: None }),
        plain("sweep", Command::Sweep),
        here("sweep-here", Command::Sweep),
    ]
}

/// Stands for the number of steps on record.
const ALL: u32 = u32::MAX;

fn with_met(mut act: Act, record: Option<&Record>) -> Act {
    if let Act::Checkpoint { met, .. } | Act::Complete { met, .. } | Act::BeginEffect(BeginEffect { met, .. }) =
        &mut act
        && *met == ALL
    {
        *met = record.map_or(0, |record| u32::try_from(record.steps.len()).expect("few steps"));
    }
    act
}

fn effect(name: &str, in_doubt: InDoubt, met: u32) -> BeginEffect {
    // A limit of 1 ms extends a lease only where that lease is over already.
    BeginEffect { name: name.into(), limit_ms: Millis(1), in_doubt, met }
}

fn owner(who: &str, name: &str, (token, seq, digest): (u64, u64, u8), act: Act) -> Asked {
    Asked { name: format!("{who}-{name}"), owner_here: false, make: Make::Act { token, seq, digest, act } }
}

fn plain(name: &str, command: Command) -> Asked {
    Asked { name: name.to_owned(), owner_here: false, make: Make::Command(command) }
}

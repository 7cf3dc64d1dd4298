//! Random commands, and the words for what is answered.

use keyclaim::machine::{
    Act, Answer, BeginEffect, Blob, Body, Command, Decision, EffectAnswer, HoldReason, InDoubt, OperatorAct,
    OperatorCommand, OutcomeClass, OwnerAnswer, Refusal, StepResult, WonKind,
};
use keyclaim::{Abandoned, AfterFailure, AfterWindow, Millis, Token, Writes};
use keyclaim_tests::machine_kit::{
    HORIZON, LEASE, LIMIT, SETTLE, T0, WINDOW, World, claim_with, outcome, policy, print, say, some_writes,
    take,
};
use proptest::prelude::*;

/// Longer than every setting, so that each can pass in one wait.
pub(crate) const LONGEST_WAIT: u64 = 2 * HORIZON;

/// One command and the time before it.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) wait_ms: u64,
    pub(crate) owner_here: bool,
    pub(crate) shape: Shape,
    /// How far behind the last token the command's token is.
    pub(crate) behind: u64,
    pub(crate) ask: Ask,
}

/// The settings that a claim may bring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) abandoned: Abandoned,
    pub(crate) after_window: AfterWindow,
}

#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Claim { nonce: u8, request: u8, with_token: bool, writes: bool, endless: bool, finishable: bool },
    Say { seq: u64, act: Act },
    Operate(OperatorAct),
    Take { tries_max: u32 },
    Untold,
    Sweep,
}

impl Turn {
    pub(crate) fn command(&self, world: &World) -> Command {
        let token = Token((world.next - 1).saturating_sub(self.behind));
        match &self.ask {
            Ask::Claim { nonce, request, with_token, writes, endless, finishable } => {
                let settings = policy(self.shape.abandoned).after_window(self.shape.after_window);
                let mut claim = claim_with(*nonce, if *endless { settings.no_lease() } else { settings });
                claim.fingerprint = print(*request);
                claim.token = with_token.then_some(token);
                claim.writes = if *writes { some_writes() } else { Writes::new() };
                if *finishable {
                    claim.operation = Some("charge".into());
                    claim.request = Some(Body::Here(Blob(vec![1])));
                }
                Command::Claim(claim)
            }
            Ask::Say { seq, act } => say(token, *seq, act.clone()),
            Ask::Operate(act) => Command::Operator(OperatorCommand { seen: token, act: act.clone() }),
            Ask::Take { tries_max } => take(*tries_max),
            Ask::Untold => Command::Untold { token, before: None },
            Ask::Sweep => Command::Sweep,
        }
    }
}

/// The instants at which a history may begin: also so late that every deadline is the end of time.
pub(crate) fn start() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(T0), (0..=LONGEST_WAIT).prop_map(|before| u64::MAX - before)]
}

pub(crate) fn turn() -> impl Strategy<Value = Turn> {
    (wait(), any::<bool>(), shape(), prop_oneof![8 => Just(0), 1 => 1..3_u64], ask()).prop_map(
        |(wait_ms, owner_here, shape, behind, ask)| Turn { wait_ms, owner_here, shape, behind, ask },
    )
}

fn wait() -> impl Strategy<Value = u64> {
    let exact = prop_oneof![Just(LIMIT), Just(LEASE), Just(WINDOW), Just(HORIZON), Just(LIMIT + SETTLE)];
    prop_oneof![6 => Just(0), 3 => exact, 3 => 1..LIMIT, 1 => 0..LONGEST_WAIT, 1 => Just(1)]
}

fn shape() -> impl Strategy<Value = Shape> {
    (
        prop_oneof![Just(Abandoned::Rerun), Just(Abandoned::Hold)],
        prop_oneof![Just(AfterWindow::Reuse), Just(AfterWindow::Refuse)],
    )
        .prop_map(|(abandoned, after_window)| Shape { abandoned, after_window })
}

fn ask() -> impl Strategy<Value = Ask> {
    let often = |yes: u32| prop_oneof![yes => Just(true), 6 => Just(false)];
    let claim = (1..3_u8, prop_oneof![9 => Just(1), 1 => Just(2_u8)], often(1), often(1), often(1), often(6))
        .prop_map(|(nonce, request, with_token, writes, endless, finishable)| Ask::Claim {
            nonce,
            request,
            with_token,
            writes,
            endless,
            finishable,
        });
    prop_oneof![
        6 => claim,
        12 => (0..7_u64, act()).prop_map(|(seq, act)| Ask::Say { seq, act }),
        2 => operator_act().prop_map(Ask::Operate),
        2 => (0..4_u32).prop_map(|tries_max| Ask::Take { tries_max }),
        1 => Just(Ask::Untold),
        1 => Just(Ask::Sweep),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let name = || prop_oneof![4 => Just("pay"), 3 => Just("mail"), 1 => Just("")].prop_map(str::to_owned);
    let met = || prop_oneof![3 => Just(0), 3 => Just(1), 1 => Just(2), 1 => Just(u32::MAX)];
    let limit_ms = prop_oneof![9 => Just(Millis(LIMIT)), 1 => any::<u64>().prop_map(Millis)];
    let in_doubt = prop_oneof![
        2 => Just(InDoubt::Repeat),
        1 => Just(InDoubt::Hold),
        1 => Just(InDoubt::Reconcile { settle_ms: Millis(SETTLE) }),
    ];
    prop_oneof![
        prop_oneof![4 => Just(None), 1 => any::<u64>().prop_map(Some), 2 => (1..LEASE).prop_map(Some)]
            .prop_map(|lease_ms| Act::Renew { lease_ms: lease_ms.map(Millis) }),
        (name(), met(), writes()).prop_map(|(name, met, writes)| Act::Checkpoint {
            name,
            data: Blob(vec![1]),
            met,
            writes
        }),
        (name(), limit_ms, in_doubt, met()).prop_map(|(name, limit_ms, in_doubt, met)| {
            Act::BeginEffect(BeginEffect { name, limit_ms, in_doubt, met })
        }),
        (name(), step_result()).prop_map(|(name, result)| Act::FinishEffect { name, result }),
        (class(), met(), writes()).prop_map(|(class, met, writes)| Act::Complete {
            outcome: outcome(class),
            met,
            writes
        }),
        Just(Act::Release),
        Just(Act::Abandon),
        prop_oneof![Just(0), 0..4 * HORIZON, Just(u64::MAX)]
            .prop_map(|until_ms| Act::Postpone { until_ms: Millis(until_ms) }),
        Just(Act::Hold { reason: HoldReason::Owner }),
    ]
}

fn writes() -> impl Strategy<Value = Writes> {
    prop_oneof![2 => Just(Writes::new()), 1 => Just(some_writes())]
}

fn step_result() -> impl Strategy<Value = StepResult> {
    prop_oneof![
        3 => Just(StepResult::Done(Blob(vec![1]))),
        1 => Just(StepResult::Refused(Blob(vec![2]))),
        1 => Just(StepResult::NotSent),
    ]
}

fn class() -> impl Strategy<Value = OutcomeClass> {
    prop_oneof![
        Just(OutcomeClass::Success),
        Just(OutcomeClass::Failure(AfterFailure::Replay)),
        Just(OutcomeClass::Failure(AfterFailure::Reattempt)),
    ]
}

fn operator_act() -> impl Strategy<Value = OperatorAct> {
    prop_oneof![
        class().prop_map(|class| OperatorAct::ResolveComplete(outcome(class))),
        Just(OperatorAct::ResolveAbsent),
        proptest::option::of(step_result()).prop_map(OperatorAct::ResolveResumable),
        Just(OperatorAct::Forget),
        prop_oneof![Just(0), 1..HORIZON, any::<u64>()].prop_map(|ms| OperatorAct::ExtendWindow(Millis(ms))),
    ]
}

/// What is answered, in one word; places, tokens and times are for the state table.
pub(crate) fn word(answer: &Result<Answer, Refusal>) -> &'static str {
    match answer {
        Err(Refusal::Fenced(_)) => "fenced",
        Err(Refusal::Invalid(_)) => "invalid",
        Err(Refusal::StepsChanged) => "steps changed",
        Ok(Answer::Decision(decision)) => match decision {
            Decision::Won(won) => match won.kind {
                WonKind::Fresh => "fresh",
                WonKind::Again => "again",
                WonKind::Takeover => "takeover",
                WonKind::Reattempt => "reattempt",
                WonKind::ReusedAfterWindow => "reused",
                _ => "another win",
            },
            decision => decision.name(),
        },
        Ok(Answer::Owner(answer)) => match answer {
            OwnerAnswer::Renewed { .. } => "renewed",
            OwnerAnswer::Checkpointed => "checkpointed",
            OwnerAnswer::Effect(EffectAnswer::Run { .. }) => "run",
            OwnerAnswer::Effect(EffectAnswer::Done { .. }) => "done",
            OwnerAnswer::Effect(EffectAnswer::Refused { .. }) => "refused",
            OwnerAnswer::Effect(EffectAnswer::Settling { .. }) => "settling",
            OwnerAnswer::Effect(EffectAnswer::Reconcile { .. }) => "reconcile",
            OwnerAnswer::Effect(EffectAnswer::Held(_)) => "step held",
            OwnerAnswer::EffectFinished => "finished",
            OwnerAnswer::Completed => "completed",
            OwnerAnswer::Released => "released",
            OwnerAnswer::Abandoned => "abandoned",
            OwnerAnswer::Held => "owner held",
        },
        Ok(Answer::OtherScheme(_)) => "other scheme",
        Ok(Answer::Operator(_)) => "operator",
        Ok(Answer::Swept(swept)) => match swept {
            keyclaim::machine::Swept::NotDue => "not due",
            keyclaim::machine::Swept::Tombstone => "tombstone",
            keyclaim::machine::Swept::Removed => "removed",
            keyclaim::machine::Swept::Unfinished => "unfinished",
            _ => "another sweep",
        },
        Ok(Answer::Nothing) => "nothing",
        Ok(Answer::Undone) => "undone",
        Ok(Answer::Conflict(_)) => "conflict",
    }
}

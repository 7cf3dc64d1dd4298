//! What the owner of an attempt may say, and what becomes of it.

use super::claim::{ended_at, lease_until};
use super::command::{Act, Facts, OwnerCommand};
use super::decision::{Answer, EffectAnswer, OwnerAnswer, Present, Refusal, Verdict};
use super::record::{Applied, HoldReason, Outcome, OutcomeClass, Point, Record, State};
use super::{bounds, steps};
use crate::limits::POSTPONE_MS_MAX;
use crate::policy::Millis;

pub(super) fn owner(record: Option<&Record>, command: &OwnerCommand, facts: Facts) -> Verdict {
    let Some(record) = record else {
        // A release asked again finds what it asked for; whatever else it was, it changes nothing.
        return match command.act {
            Act::Release => says(OwnerAnswer::Released),
            _ => Verdict::refuses(Refusal::Fenced(Present::Absent)),
        };
    };
    if record.token != command.token {
        return Verdict::refuses(Refusal::Fenced(record.present()));
    }
    if let Some(verdict) = repeated(record, command) {
        return verdict;
    }
    if !may_say(&record.state, &command.act) {
        return Verdict::refuses(Refusal::Fenced(record.present()));
    }
    let in_order = match command.act {
        Act::Renew { .. } => true,
        _ => command.seq > record.last.map_or(0, |last| last.seq),
    };
    if !in_order {
        return Verdict::refuses(Refusal::Invalid(
            "the command's number is not above the last one applied; number commands upwards from 1",
        ));
    }
    if let Err(reason) = bounds::act(&command.act) {
        return Verdict::refuses(Refusal::Invalid(reason));
    }
    apply(record, command, facts)
}

/// The same command asked again gets the same answer and writes nothing; its number with other
/// content is refused. A renewal has no number: it records an instant and may be repeated freely.
fn repeated(record: &Record, command: &OwnerCommand) -> Option<Verdict> {
    let last = record.last.filter(|last| last.seq > 0 && last.seq == command.seq)?;
    if matches!(command.act, Act::Renew { .. }) {
        return None;
    }
    if last.digest != command.digest {
        return Some(Verdict::refuses(Refusal::Invalid(
            "this command's number was used for another command; give every command its own number",
        )));
    }
    let steps_changed = matches!(record.state, State::Held { reason: HoldReason::StepsChanged });
    Some(match &command.act {
        Act::Renew { .. } => return None,
        Act::BeginEffect(_) | Act::Checkpoint { .. } | Act::Complete { .. } if steps_changed => {
            Verdict::refuses(Refusal::StepsChanged)
        }
        Act::Checkpoint { .. } => says(OwnerAnswer::Checkpointed),
        Act::BeginEffect(begin) => says(OwnerAnswer::Effect(steps::begun_before(record, &begin.name))),
        Act::FinishEffect { .. } => says(OwnerAnswer::EffectFinished),
        Act::Complete { .. } => says(OwnerAnswer::Completed),
        Act::Release | Act::Abandon | Act::Postpone { .. } => says(OwnerAnswer::Abandoned),
        Act::Hold { .. } => says(OwnerAnswer::Held),
    })
}

fn may_say(state: &State, act: &Act) -> bool {
    match state {
        State::InFlight { .. } => true,
        State::Held { .. } => {
            matches!(act, Act::Complete { .. } | Act::FinishEffect { .. } | Act::Hold { .. })
        }
        State::Complete { .. } => false,
    }
}

fn apply(record: &Record, command: &OwnerCommand, facts: Facts) -> Verdict {
    let mut next = record.clone();
    next.applied_ms = facts.now_ms;
    next.last = Some(Applied { seq: command.seq, digest: command.digest });
    if let Act::Checkpoint { met, .. } | Act::Complete { met, .. } = command.act
        && let Err(refusal) = may_settle(&next, met)
    {
        return refuse(next, refusal);
    }
    match &command.act {
        Act::Renew { lease_ms } => renew(record.clone(), *lease_ms, facts),
        Act::Checkpoint { name, data, writes, .. } => {
            let covers = u32::try_from(next.steps.len()).unwrap_or(u32::MAX);
            next.point = Some(Point { name: name.clone(), data: data.clone(), covers });
            puts(next, OwnerAnswer::Checkpointed).with(writes)
        }
        Act::BeginEffect(begin) => match steps::begin(&mut next, begin, facts) {
            Err(refusal) => refuse(next, refusal),
            Ok(answer @ (EffectAnswer::Run { .. } | EffectAnswer::Held(_))) => {
                puts(next, OwnerAnswer::Effect(answer))
            }
            // What is only told is not written, so the command used no number either.
            Ok(answer) => says(OwnerAnswer::Effect(answer)),
        },
        Act::FinishEffect { name, result } => match steps::finish(&mut next, Some(name), result) {
            Err(refusal) => refuse(next, refusal),
            Ok(()) => puts(next, OwnerAnswer::EffectFinished),
        },
        Act::Complete { outcome, writes, .. } => {
            complete(&mut next, outcome, facts.now_ms);
            puts(next, OwnerAnswer::Completed).with(writes)
        }
        Act::Release if next.attempt == 1 && !next.has_recorded() => {
            Verdict::deletes(Answer::Owner(OwnerAnswer::Released))
        }
        Act::Release | Act::Abandon => {
            end_attempt(&mut next, facts.now_ms);
            puts(next, OwnerAnswer::Abandoned)
        }
        Act::Postpone { until_ms } => {
            let over_ms = end_attempt(&mut next, facts.now_ms);
            next.pause_ms = next.pause_ms.max(until_ms.since(over_ms).min(Millis(POSTPONE_MS_MAX)));
            puts(next, OwnerAnswer::Abandoned)
        }
        Act::Hold { reason } => {
            if !matches!(next.state, State::Held { .. }) {
                next.state = State::Held { reason: *reason };
            }
            puts(next, OwnerAnswer::Held)
        }
    }
}

fn renew(mut next: Record, asked_ms: Option<Millis>, facts: Facts) -> Verdict {
    if let Err(reason) = bounds::lease(asked_ms) {
        return Verdict::refuses(Refusal::Invalid(reason));
    }
    if let State::InFlight { lease_until_ms, .. } = next.state
        && next.nonce.is_none()
        && asked_ms.is_none()
    {
        // It was abandoned: a renewal that the store had under way must not put off what follows.
        return says(OwnerAnswer::Renewed { lease_until_ms });
    }
    let open_until_ms = next.open_step().map(|(_, until_ms)| until_ms).unwrap_or_default();
    if asked_ms.is_some() {
        next.policy.lease_ms = asked_ms;
    }
    let lease_ms = next.policy.lease_ms;
    if let State::InFlight { lease_until_ms, .. } = &mut next.state {
        let renewed_ms = lease_until(facts.now_ms, lease_ms).map(|until_ms| until_ms.max(open_until_ms));
        // Only an owner that names a length may shorten its lease; a plain renewal never does.
        *lease_until_ms = match (renewed_ms, *lease_until_ms) {
            (Some(renewed_ms), Some(until_ms)) if asked_ms.is_none() => Some(renewed_ms.max(until_ms)),
            (None, until_ms) => until_ms,
            (renewed_ms, _) => renewed_ms,
        };
        let answer = OwnerAnswer::Renewed { lease_until_ms: *lease_until_ms };
        return puts(next, answer);
    }
    Verdict::refuses(Refusal::Fenced(next.present()))
}

/// Whether everything recorded is accounted for: no step is open, and none was left out.
fn may_settle(record: &Record, met: u32) -> Result<(), Refusal> {
    if record.open_step().is_some() {
        return Err(Refusal::Invalid("a step is not finished; finish it or hold the claim first"));
    }
    steps::all_met(record, met)
}

pub(super) fn complete(record: &mut Record, outcome: &Outcome, now_ms: Millis) {
    record.request = None;
    record.reported_ms = None;
    (record.tries, record.pause_ms) = (0, Millis(0));
    if outcome.class == OutcomeClass::Success {
        record.steps = Vec::new();
        record.point = None;
    }
    record.state = State::Complete {
        outcome: outcome.clone(),
        completed_ms: now_ms,
        window_until_ms: now_ms.plus(record.policy.window_ms),
    };
}

/// The attempt ends, so that nobody owns it by its nonce any more: when it is over.
fn end_attempt(record: &mut Record, now_ms: Millis) -> Millis {
    record.nonce = None;
    let over_ms = ended_at(record, now_ms);
    if let State::InFlight { lease_until_ms, .. } = &mut record.state {
        *lease_until_ms = Some(over_ms);
    }
    over_ms
}

/// A refusal changes nothing, except that steps which changed leave the claim held.
fn refuse(mut record: Record, refusal: Refusal) -> Verdict {
    if refusal != Refusal::StepsChanged {
        return Verdict::refuses(refusal);
    }
    record.state = State::Held { reason: HoldReason::StepsChanged };
    Verdict::puts(record, Err(refusal))
}

fn puts(record: Record, answer: OwnerAnswer) -> Verdict {
    Verdict::puts(record, Ok(Answer::Owner(answer)))
}

fn says(answer: OwnerAnswer) -> Verdict {
    Verdict::says(Answer::Owner(answer))
}

//! Effects outside the store: an intent before, a result after, and never a silent second run.

use super::command::{BeginEffect, Facts, InDoubt, StepResult};
use super::decision::{EffectAnswer, Refusal};
use super::record::{HoldReason, Record, State, Step, StepProgress};
use crate::limits::STEPS_MAX;
use crate::policy::Millis;

/// Where a step stands among the recorded ones.
enum Place {
    Recorded(usize),
    New,
    Changed,
}

/// Records the intent of a step, or says what became of it before.
pub(super) fn begin(record: &mut Record, begin: &BeginEffect, facts: Facts) -> Result<EffectAnswer, Refusal> {
    let at = match place(record, &begin.name, begin.met) {
        Place::Changed => return Err(Refusal::StepsChanged),
        Place::New => return begin_new(record, begin, facts),
        Place::Recorded(at) => at,
    };
    let place = index(at);
    let step = record.steps.get(at).expect("place() found the step at this index");
    match &step.progress {
        StepProgress::Done(result) => Ok(EffectAnswer::Done { place, result: result.clone() }),
        StepProgress::Refused(result) => Ok(EffectAnswer::Refused { place, result: result.clone() }),
        StepProgress::Begun { token, until_ms } => {
            let (mine, until_ms) = (*token == record.token, *until_ms);
            // Both the deploy that began it and the one that meets it again must call it safe.
            let in_doubt = match begin.in_doubt {
                InDoubt::Repeat if !step.repeatable => InDoubt::Hold,
                in_doubt => in_doubt,
            };
            Ok(begin_in_doubt(record, begin, at, in_doubt, (mine, until_ms), facts))
        }
    }
}

/// Records how the open step ended. `name` must be its name, if one is given.
pub(super) fn finish(record: &mut Record, name: Option<&str>, result: &StepResult) -> Result<(), Refusal> {
    let open = record.open_step().is_some_and(|(step, _)| name.is_none_or(|name| name == step.name));
    if !open {
        return Err(Refusal::Invalid("no step of this name is open; begin the step before finishing it"));
    }
    let step = record.steps.last_mut().expect("open_step() found the last step");
    match result {
        StepResult::Done(bytes) => step.progress = StepProgress::Done(bytes.clone()),
        StepResult::Refused(bytes) => step.progress = StepProgress::Refused(bytes.clone()),
        StepResult::NotSent => drop(record.steps.pop()),
    }
    Ok(())
}

/// Whether an attempt that has met this many steps has met all, but for those its recovery point covers.
pub(super) fn all_met(record: &Record, met: u32) -> Result<(), Refusal> {
    let recorded = index(record.steps.len());
    if met > recorded {
        return Err(Refusal::Invalid(
            "more steps are said to be met than are recorded; count recorded steps",
        ));
    }
    if met.max(covered(record)) < recorded { Err(Refusal::StepsChanged) } else { Ok(()) }
}

/// What a begin that was applied as the last command answered.
pub(super) fn begun_before(record: &Record, name: &str) -> EffectAnswer {
    if let State::Held { reason } = record.state {
        return EffectAnswer::Held(reason);
    }
    match record.open_step() {
        Some((step, until_ms)) if step.name == name => {
            EffectAnswer::Run { place: index(record.steps.len() - 1), until_ms }
        }
        // Cannot be: the begin was the last command applied, so its step is still open.
        _ => EffectAnswer::Held(HoldReason::StepsChanged),
    }
}

/// Recorded steps are met in their order. An attempt may enter at its start or at its recovery
/// point; any other step than the expected one means that the handler changed.
fn place(record: &Record, name: &str, met: u32) -> Place {
    let named = |at: usize| record.steps.get(at).is_some_and(|step| step.name == name);
    let (met, covered) = (met as usize, covered(record) as usize);
    for at in [Some(met), (met < covered).then_some(covered)].into_iter().flatten() {
        if named(at) {
            return Place::Recorded(at);
        }
        if at == record.steps.len() && !record.steps.iter().any(|step| step.name == name) {
            return Place::New;
        }
    }
    Place::Changed
}

fn begin_new(record: &mut Record, begin: &BeginEffect, facts: Facts) -> Result<EffectAnswer, Refusal> {
    if record.open_step().is_some() {
        return Err(Refusal::Invalid("another step is not finished; finish it before the next one"));
    }
    if record.steps.len() >= STEPS_MAX {
        return Err(Refusal::Invalid("the claim has as many steps as one may have; split the request"));
    }
    record.steps.push(Step {
        name: begin.name.clone(),
        repeatable: begin.in_doubt == InDoubt::Repeat,
        progress: StepProgress::Begun { token: record.token, until_ms: facts.now_ms },
    });
    Ok(run(record, record.steps.len() - 1, begin, facts))
}

fn begin_in_doubt(
    record: &mut Record,
    begin: &BeginEffect,
    at: usize,
    in_doubt: InDoubt,
    (mine, until_ms): (bool, Millis),
    facts: Facts,
) -> EffectAnswer {
    match in_doubt {
        // An attempt may repeat its own call at once; another's may still be under way until its limit.
        InDoubt::Repeat if mine || facts.now_ms >= until_ms => run(record, at, begin, facts),
        InDoubt::Repeat => EffectAnswer::Settling { until_ms },
        InDoubt::Reconcile { settle_ms } if facts.now_ms < until_ms.plus(settle_ms) => {
            EffectAnswer::Settling { until_ms: until_ms.plus(settle_ms) }
        }
        InDoubt::Reconcile { .. } => EffectAnswer::Reconcile { place: index(at) },
        InDoubt::Hold => {
            record.state = State::Held { reason: HoldReason::StepInDoubt };
            EffectAnswer::Held(HoldReason::StepInDoubt)
        }
    }
}

/// Marks the step as begun by this attempt, and lets the lease cover its limit.
fn run(record: &mut Record, at: usize, begin: &BeginEffect, facts: Facts) -> EffectAnswer {
    let step_until_ms = facts.now_ms.plus(begin.limit_ms);
    let token = record.token;
    if let Some(step) = record.steps.get_mut(at) {
        step.progress = StepProgress::Begun { token, until_ms: step_until_ms };
    }
    if let State::InFlight { lease_until_ms: Some(lease_until_ms), .. } = &mut record.state {
        *lease_until_ms = (*lease_until_ms).max(step_until_ms);
    }
    EffectAnswer::Run { place: index(at), until_ms: step_until_ms }
}

fn covered(record: &Record) -> u32 {
    record.point.as_ref().map_or(0, |point| point.covers)
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("a record has at most STEPS_MAX steps")
}

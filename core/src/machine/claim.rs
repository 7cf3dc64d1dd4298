//! What a claim finds: the table of decisions, first row that fits.

use super::bounds;
use super::command::{ClaimCommand, Facts};
use super::decision::{Answer, Changes, Decision, Refusal, Replay, Verdict, Won, WonKind};
use super::record::{Applied, HoldReason, OutcomeClass, Record, State};
use crate::limits::POLL_HINT_MS;
use crate::policy::{Abandoned, AfterWindow, Millis};
use crate::token::{Generation, Nonce, Token};

pub(super) fn claim(record: Option<&Record>, claim: &ClaimCommand, facts: Facts) -> Verdict {
    if let Err(reason) = bounds::claim(claim) {
        return Verdict::refuses(Refusal::Invalid(reason));
    }
    let Some(record) = record else {
        return win_generation(claim, WonKind::Fresh, facts);
    };
    if let State::Complete { outcome, window_until_ms, .. } = &record.state
        && facts.now_ms >= *window_until_ms
    {
        return match record.policy.after_window {
            AfterWindow::Refuse => decided(Decision::Expired),
            AfterWindow::Reuse => {
                let mut verdict = win_generation(claim, WonKind::ReusedAfterWindow, facts);
                if matches!(outcome.class, OutcomeClass::Failure(_)) {
                    verdict.changes.archive = Some(Box::new(record.clone()));
                }
                verdict
            }
        };
    }
    // The check stands before every row that hands anything out, the repeat of a nonce included:
    // whoever asks for something else is never given this record's right or answer (P7).
    if record.fingerprint.scheme != claim.fingerprint.scheme {
        return Verdict::says(Answer::OtherScheme(record.fingerprint.clone()));
    }
    if record.fingerprint != claim.fingerprint {
        let (stored, asked) = (record.fingerprint.prefix(), claim.fingerprint.prefix());
        return decided(Decision::Mismatch { stored, asked });
    }
    match &record.state {
        State::Complete { outcome, .. } if outcome.may_be_reattempted() => {
            win_attempt(record, claim, WonKind::Reattempt, facts)
        }
        State::Complete { outcome, completed_ms, window_until_ms } => decided(Decision::Replay(Replay {
            generation: record.generation,
            class: outcome.class,
            response: outcome.response.clone(),
            completed_ms: *completed_ms,
            window_until_ms: *window_until_ms,
        })),
        // Held comes before the repeat of a nonce: nobody may run it, not even whoever won it.
        State::Held { reason } => decided(Decision::Held { reason: *reason, token: record.token }),
        State::InFlight { .. } if is_asked_again(record, claim) => win_again(record, facts),
        State::InFlight { lease_until_ms, resumable } => match *lease_until_ms {
            None => decided(in_flight(None, facts)),
            Some(until_ms) if facts.now_ms < until_ms => decided(in_flight(Some(until_ms), facts)),
            Some(_) if may_be_taken_over(record, *resumable) => {
                win_attempt(record, claim, WonKind::Takeover, facts)
            }
            Some(_) => hold(record, HoldReason::Abandoned, facts),
        },
    }
}

/// Takes over for whoever finishes abandoned requests; loses quietly to anyone else.
pub(super) fn take_abandoned(
    record: Option<&Record>,
    nonce: Nonce,
    tries_max: u32,
    pause_ms: impl Fn(u32) -> Millis,
    facts: Facts,
) -> Verdict {
    let Some(record) = record else {
        return Verdict::says(Answer::Nothing);
    };
    let (State::InFlight { resumable, .. }, Some(from_ms)) = (&record.state, record.abandoned_from_ms())
    else {
        return Verdict::says(Answer::Nothing);
    };
    // A claim that lives in this process is only late with its renewal, not abandoned.
    if facts.now_ms < from_ms || facts.owner_lives_here {
        return Verdict::says(Answer::Nothing);
    }
    if !may_be_taken_over(record, *resumable) {
        return hold(record, HoldReason::Abandoned, facts);
    }
    if record.tries >= tries_max {
        return hold(record, HoldReason::TriedTooOften, facts);
    }
    let mut next = next_attempt(record, nonce, record.policy.lease_ms, facts);
    next.tries = record.tries.saturating_add(1);
    // Never none at all: a pass at one instant must not meet it twice.
    next.pause_ms = pause_ms(next.tries).max(Millis(1));
    won(next, WonKind::Takeover)
}

/// Lets go of a win that nobody was told of: as if it had not happened.
pub(super) fn untold(
    record: Option<&Record>,
    token: Token,
    before: Option<&Record>,
    facts: Facts,
) -> Verdict {
    // Only a win has a nonce: an operator's token was never won, so it cannot be let go of.
    let untold = |record: &&Record| record.token == token && record.nonce.is_some() && record.last.is_none();
    let Some(record) = record.filter(untold) else {
        return Verdict::says(Answer::Nothing);
    };
    if !matches!(record.state, State::InFlight { .. }) {
        return Verdict::says(Answer::Nothing);
    }
    // Going back would forget the writes that this win committed.
    if let Some(before) = before.filter(|before| before.wrote == record.wrote) {
        return Verdict::puts(before.clone(), Ok(Answer::Undone));
    }
    if record.attempt == 1 && !record.has_recorded() {
        return Verdict::deletes(Answer::Undone);
    }
    // Nobody ran this attempt, so whatever the abandoned policy says, the next one may run.
    let mut record = record.clone();
    record.state = State::InFlight { lease_until_ms: Some(ended_at(&record, facts.now_ms)), resumable: true };
    Verdict::puts(record, Ok(Answer::Undone))
}

fn win_generation(claim: &ClaimCommand, kind: WonKind, facts: Facts) -> Verdict {
    let record = Record {
        generation: Generation(facts.next_token.0),
        token: facts.next_token,
        attempt: 1,
        nonce: Some(claim.nonce),
        fingerprint: claim.fingerprint.clone(),
        policy: claim.policy,
        created_ms: facts.now_ms,
        applied_ms: facts.now_ms,
        reported_ms: None,
        last: None,
        operation: claim.operation.clone(),
        request: claim.request.clone(),
        point: None,
        steps: Vec::new(),
        wrote: !claim.writes.is_empty(),
        tries: 0,
        pause_ms: Millis(0),
        events: 0,
        state: State::InFlight {
            lease_until_ms: lease_until(facts.now_ms, claim.policy.lease_ms),
            resumable: false,
        },
    };
    won(record, kind).with(&claim.writes)
}

fn win_attempt(record: &Record, claim: &ClaimCommand, kind: WonKind, facts: Facts) -> Verdict {
    let mut record = next_attempt(record, claim.nonce, claim.policy.lease_ms, facts);
    record.operation = record.operation.or_else(|| claim.operation.clone());
    record.request = record.request.or_else(|| claim.request.clone());
    // What the generation has written it has written: another attempt goes on behind it (P3).
    let writes_now = !record.wrote && !claim.writes.is_empty();
    record.wrote |= writes_now;
    let verdict = won(record, kind);
    if writes_now { verdict.with(&claim.writes) } else { verdict }
}

fn next_attempt(record: &Record, nonce: Nonce, lease_ms: Option<Millis>, facts: Facts) -> Record {
    let mut record = record.clone();
    record.token = facts.next_token;
    record.attempt = record.attempt.saturating_add(1);
    record.nonce = Some(nonce);
    record.policy.lease_ms = lease_ms;
    record.applied_ms = facts.now_ms;
    record.last = None;
    record.state = State::InFlight { lease_until_ms: lease_until(facts.now_ms, lease_ms), resumable: false };
    record
}

/// The same win told again. The lease moves, never backwards, and from now on somebody was told.
fn win_again(record: &Record, facts: Facts) -> Verdict {
    let mut again = record.clone();
    // The first call may still be reported as untold; that must not undo what this call is told (P1).
    again.last = again.last.or(Some(Applied::TOLD_AGAIN));
    if let State::InFlight { lease_until_ms, resumable } = &mut again.state {
        *resumable = false;
        if let (Some(until_ms), Some(lease_ms)) = (*lease_until_ms, record.policy.lease_ms) {
            *lease_until_ms = Some(facts.now_ms.plus(lease_ms).max(until_ms));
        }
    }
    let answer = Answer::Decision(Decision::Won(told(&again, WonKind::Again)));
    if again == *record { Verdict::says(answer) } else { Verdict::puts(again, Ok(answer)) }
}

fn won(record: Record, kind: WonKind) -> Verdict {
    let answer = Answer::Decision(Decision::Won(told(&record, kind)));
    Verdict::puts(record, Ok(answer)).taking_token()
}

fn told(record: &Record, kind: WonKind) -> Won {
    let lease_until_ms = match record.state {
        State::InFlight { lease_until_ms, .. } => lease_until_ms,
        State::Held { .. } | State::Complete { .. } => None,
    };
    Won {
        token: record.token,
        generation: record.generation,
        attempt: record.attempt,
        kind,
        lease_until_ms,
        point: record.point.clone(),
        steps: record.steps.clone(),
        last_seq: record.last.map_or(0, |last| last.seq),
    }
}

fn hold(record: &Record, reason: HoldReason, facts: Facts) -> Verdict {
    let mut record = record.clone();
    record.state = State::Held { reason };
    record.applied_ms = facts.now_ms;
    let answer = Answer::Decision(Decision::Held { reason, token: record.token });
    Verdict::puts(record, Ok(answer))
}

/// Whether the caller owns the attempt that runs. One that ended by command runs no more and has no
/// nonce: what follows it is for the abandoned policy, even if its own caller asks.
fn is_asked_again(record: &Record, claim: &ClaimCommand) -> bool {
    let Some(nonce) = record.nonce else { return false };
    nonce == claim.nonce || claim.token == Some(record.token)
}

fn may_be_taken_over(record: &Record, resumable: bool) -> bool {
    resumable || record.has_recorded() || record.policy.abandoned == Abandoned::Rerun
}

fn in_flight(lease_until_ms: Option<Millis>, facts: Facts) -> Decision {
    let hint_ms = Millis(POLL_HINT_MS);
    let retry_after_ms = lease_until_ms.map_or(hint_ms, |until_ms| until_ms.since(facts.now_ms).min(hint_ms));
    Decision::InFlight { retry_after_ms, lease_until_ms }
}

pub(super) fn lease_until(now_ms: Millis, lease_ms: Option<Millis>) -> Option<Millis> {
    lease_ms.map(|lease_ms| now_ms.plus(lease_ms))
}

/// When an attempt that ends now is over: not before the step that may still be running must have ended.
pub(super) fn ended_at(record: &Record, now_ms: Millis) -> Millis {
    record.open_step().map_or(now_ms, |(_, until_ms)| until_ms.max(now_ms))
}

fn decided(decision: Decision) -> Verdict {
    Verdict { answer: Ok(Answer::Decision(decision)), changes: Changes::default() }
}

//! What a person may decide: compare the token it saw, then act under a new one.

use super::claim::ended_at;
use super::command::{Facts, OperatorAct, OperatorCommand};
use super::decision::{Answer, Present, Refusal, Verdict};
use super::record::{Record, State};
use super::{bounds, owner, steps};
use crate::policy::Millis;

pub(super) fn operator(record: Option<&Record>, command: &OperatorCommand, facts: Facts) -> Verdict {
    let Some(record) = record else {
        return Verdict::refuses(Refusal::Fenced(Present::Absent));
    };
    if record.token != command.seen {
        return Verdict::refuses(Refusal::Fenced(record.present()));
    }
    if let Err(reason) = bounds::operator(&command.act) {
        return Verdict::refuses(Refusal::Invalid(reason));
    }
    match apply(record, &command.act, facts) {
        Ok(Some(mut next)) => {
            next.token = facts.next_token;
            next.nonce = None;
            next.last = None;
            next.applied_ms = facts.now_ms;
            next.reported_ms = None;
            // A person who lets it go on gives it all its tries back, at once.
            (next.tries, next.pause_ms) = (0, Millis(0));
            Verdict::puts(next, Ok(Answer::Operator(facts.next_token))).taking_token()
        }
        Ok(None) => Verdict::deletes(Answer::Operator(facts.next_token)).taking_token(),
        Err(refusal) => Verdict::refuses(refusal),
    }
}

/// The record as decided, or none if the key is to be absent.
fn apply(record: &Record, act: &OperatorAct, facts: Facts) -> Result<Option<Record>, Refusal> {
    let held = matches!(record.state, State::Held { .. });
    let mut next = record.clone();
    match act {
        OperatorAct::ResolveComplete(_) | OperatorAct::ResolveAbsent | OperatorAct::ResolveResumable(_)
            if !held =>
        {
            return Err(Refusal::Invalid("only a held claim can be resolved; look it up first"));
        }
        OperatorAct::Forget | OperatorAct::ResolveAbsent => return Ok(None),
        OperatorAct::ResolveComplete(outcome) => owner::complete(&mut next, outcome, facts.now_ms),
        OperatorAct::ResolveResumable(result) => {
            if let Some(result) = result {
                steps::finish(&mut next, None, result)?;
            }
            let over_ms = ended_at(&next, facts.now_ms);
            next.state = State::InFlight { lease_until_ms: Some(over_ms), resumable: true };
        }
        OperatorAct::ExtendWindow(span_ms) => match &mut next.state {
            State::Complete { window_until_ms, .. } if facts.now_ms < *window_until_ms => {
                *window_until_ms = facts.now_ms.plus(*span_ms).max(*window_until_ms);
            }
            _ => {
                return Err(Refusal::Invalid(
                    "only a finished request whose replay window is not over can be extended; look it up first",
                ));
            }
        },
    }
    Ok(Some(next))
}

//! Lengths and counts of what comes from outside, checked before any of it is stored (P9).

use super::command::{Act, BeginEffect, ClaimCommand, InDoubt, OperatorAct, StepResult};
use super::record::{Blob, Body, Outcome};
use crate::limits::{
    BODY_LEN_MAX, HEADERS_LEN_MAX, HEADERS_MAX, HORIZON_MS_MAX, LEASE_MS_MAX, NAME_LEN_MAX,
    OPERATION_LEN_MAX, POINT_DATA_LEN_MAX, STEP_MS_MAX, STEP_RESULT_LEN_MAX,
};
use crate::policy::Millis;

type Bounded = Result<(), &'static str>;

pub(super) fn claim(claim: &ClaimCommand) -> Bounded {
    let operation_fits =
        claim.operation.as_ref().is_none_or(|name| (1..=OPERATION_LEN_MAX).contains(&name.len()));
    check(operation_fits, "the operation's name must have 1 to 255 bytes")?;
    claim.request.as_ref().map_or(Ok(()), body)?;
    claim.writes.check()
}

pub(super) fn act(act: &Act) -> Bounded {
    match act {
        Act::Renew { lease_ms } => lease(*lease_ms),
        Act::Checkpoint { name: point, data, writes, .. } => {
            name(point)?;
            writes.check()?;
            check(
                data.0.len() <= POINT_DATA_LEN_MAX,
                "the recovery point's data is over 16 KiB; store it elsewhere",
            )
        }
        Act::BeginEffect(begin) => effect(begin),
        Act::FinishEffect { name: step, result: outcome } => {
            name(step)?;
            result(outcome)
        }
        Act::Complete { outcome: ending, writes, .. } => {
            writes.check()?;
            outcome(ending)
        }
        Act::Release | Act::Abandon | Act::Hold { .. } | Act::Postpone { .. } => Ok(()),
    }
}

pub(super) fn operator(act: &OperatorAct) -> Bounded {
    match act {
        OperatorAct::ResolveComplete(ending) => outcome(ending),
        OperatorAct::ResolveResumable(Some(ending)) => result(ending),
        OperatorAct::ExtendWindow(span_ms) => {
            check(in_range(*span_ms, HORIZON_MS_MAX), "the replay window must be between 1 ms and ten years")
        }
        OperatorAct::ResolveResumable(None) | OperatorAct::ResolveAbsent | OperatorAct::Forget => Ok(()),
    }
}

pub(super) fn lease(lease_ms: Option<Millis>) -> Bounded {
    let fits = lease_ms.is_none_or(|lease_ms| in_range(lease_ms, LEASE_MS_MAX));
    check(fits, "the lease must be between 1 ms and a week")
}

fn effect(begin: &BeginEffect) -> Bounded {
    name(&begin.name)?;
    check(in_range(begin.limit_ms, STEP_MS_MAX), "the step's limit must be between 1 ms and a day")?;
    match begin.in_doubt {
        InDoubt::Reconcile { settle_ms } => {
            check(settle_ms.0 <= STEP_MS_MAX, "the settling time must be at most a day")
        }
        InDoubt::Repeat | InDoubt::Hold => Ok(()),
    }
}

fn result(result: &StepResult) -> Bounded {
    match result {
        StepResult::Done(bytes) | StepResult::Refused(bytes) => check(
            bytes.0.len() <= STEP_RESULT_LEN_MAX,
            "the step's result is over 16 KiB; store it elsewhere",
        ),
        StepResult::NotSent => Ok(()),
    }
}

fn outcome(outcome: &Outcome) -> Bounded {
    let headers = &outcome.response.headers;
    let len = |(name, value): &(Blob, Blob)| name.0.len() + value.0.len();
    check(
        headers.len() <= HEADERS_MAX,
        "the response has over 100 header lines; name those worth replaying",
    )?;
    check(
        headers.iter().map(len).sum::<usize>() <= HEADERS_LEN_MAX,
        "the response's headers are over 32 KiB; name those worth replaying",
    )?;
    body(&outcome.response.body)
}

fn body(body: &Body) -> Bounded {
    match body {
        Body::Here(bytes) => {
            check(bytes.0.len() <= BODY_LEN_MAX, "the body is over 64 MiB; store it without its bytes")
        }
        Body::Apart { .. } | Body::Dropped { .. } => Ok(()),
    }
}

fn name(name: &str) -> Bounded {
    check(
        (1..=NAME_LEN_MAX).contains(&name.len()),
        "a step's or recovery point's name must have 1 to 64 bytes",
    )
}

fn in_range(span_ms: Millis, max: u64) -> bool {
    (1..=max).contains(&span_ms.0)
}

fn check(fits: bool, reason: &'static str) -> Bounded {
    if fits { Ok(()) } else { Err(reason) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::record::{OutcomeClass, Response};

    /// That `fits` is taken and one more is not.
    fn edge(what: &str, of: impl Fn(usize) -> Bounded, fits: usize) {
        assert_eq!(of(fits), Ok(()), "{what} of {fits}");
        assert!(of(fits + 1).is_err(), "{what} of {}", fits + 1);
    }

    fn ending(headers: Vec<(Blob, Blob)>, body: usize) -> Outcome {
        let body = Body::Here(Blob(vec![0; body]));
        Outcome { class: OutcomeClass::Success, response: Response { status: 201, headers, body } }
    }

    #[test]
    fn lengths_end_where_they_say() {
        edge("a name", |len| name(&"n".repeat(len)), NAME_LEN_MAX);
        assert!(name("").is_err());
        edge("a result", |len| result(&StepResult::Done(Blob(vec![0; len]))), STEP_RESULT_LEN_MAX);
        edge("a refusal", |len| result(&StepResult::Refused(Blob(vec![0; len]))), STEP_RESULT_LEN_MAX);
        edge("a body", |len| outcome(&ending(Vec::new(), len)), BODY_LEN_MAX);
        edge(
            "headers",
            |lines| outcome(&ending(vec![(Blob(vec![b'n']), Blob(Vec::new())); lines], 0)),
            HEADERS_MAX,
        );
    }

    /// Name and value count, of all lines together.
    #[test]
    fn the_length_of_headers_is_that_of_their_names_and_values() {
        let of = |value: usize| {
            let short = (Blob(vec![b'n'; 3]), Blob(vec![b'v'; 5]));
            outcome(&ending(vec![short, (Blob(vec![b'n'; 10]), Blob(vec![b'v'; value]))], 0))
        };
        edge("headers", of, HEADERS_LEN_MAX - 18);
        let of = |name: usize| outcome(&ending(vec![(Blob(vec![b'n'; name]), Blob(vec![b'v'; 7]))], 0));
        edge("headers", of, HEADERS_LEN_MAX - 7);
    }

    #[test]
    fn spans_begin_at_one_millisecond_and_end_where_they_say() {
        let window = |ms: usize| operator(&OperatorAct::ExtendWindow(Millis(ms as u64)));
        edge("a window", window, usize::try_from(HORIZON_MS_MAX).expect("64 bits"));
        edge("a lease", |ms| lease(Some(Millis(ms as u64))), usize::try_from(LEASE_MS_MAX).expect("64 bits"));
        assert!(window(0).is_err() && lease(Some(Millis(0))).is_err());
        assert_eq!(lease(None), Ok(()));
    }
}

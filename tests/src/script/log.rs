//! How answers are logged: a word, then `name=value`, in a fixed order.

use std::fmt::{Display, Write};

use keyclaim::machine::{Body, Replay, Response};
use keyclaim::machine::{
    Decision, DropReason, EffectAnswer, HoldReason, OutcomeClass, Step, StepProgress, WonKind,
};
use keyclaim::store::{Inspection, Page, Standing, StepStanding};
use keyclaim::{AfterFailure, Claim, Millis};

/// When the script's store was first opened: all times are logged from here.
#[derive(Clone, Copy)]
pub(super) struct Times(pub(super) Millis);

/// One line in the making.
pub(super) struct Log(String);

impl Log {
    pub(super) fn new(word: &str) -> Self {
        Self(word.into())
    }

    pub(super) fn put(mut self, name: &str, value: impl Display) -> Self {
        write!(self.0, " {name}={value}").expect("a string takes all");
        self
    }

    pub(super) fn time(self, name: &str, at: Option<Millis>, times: Times) -> Self {
        match at {
            Some(at) => self.put(name, at.since(times.0).0),
            None => self.put(name, "-"),
        }
    }

    pub(super) fn end(self) -> String {
        self.0
    }
}

pub(super) fn decision(decision: &Decision<Claim>, times: Times) -> String {
    let log = Log::new(decision.name());
    match decision {
        Decision::Won(claim) => {
            let point = claim.point().map(|point| format!("{}:{}", point.name, bytes(&point.data.0)));
            log.put("token", claim.token())
                .put("generation", claim.generation())
                .put("attempt", claim.attempt())
                .put("kind", kind(claim.kind()))
                .time("lease_until", claim.lease_until_ms(), times)
                .put("point", point.as_deref().unwrap_or("-"))
                .put("steps", list(claim.steps().iter().map(|step| recorded(step, times))))
        }
        Decision::Replay(replay) => replayed(log, replay, times),
        Decision::InFlight { retry_after_ms, lease_until_ms } => {
            log.put("retry_after", retry_after_ms.0).time("lease_until", *lease_until_ms, times)
        }
        Decision::Held { reason, token } => log.put("reason", why(*reason)).put("token", token),
        Decision::Mismatch { .. } | Decision::Expired => log,
    }
    .end()
}

fn replayed(log: Log, replay: &Replay, times: Times) -> Log {
    let Response { status, headers, body } = &replay.response;
    let headers = headers.iter().map(|(name, value)| format!("{}:{}", bytes(&name.0), bytes(&value.0)));
    let body = match body {
        Body::Here(here) => bytes(&here.0),
        Body::Dropped { len, why, .. } => format!("dropped:{}:{len}", dropped(*why)),
        Body::Apart { .. } => panic!("a replay has its body, wherever it is stored"),
    };
    log.put("generation", replay.generation)
        .put("class", class(replay.class))
        .put("status", status)
        .put("headers", list(headers))
        .put("body", body)
        .time("completed", Some(replay.completed_ms), times)
        .time("window_until", Some(replay.window_until_ms), times)
}

pub(super) fn effect(answer: &EffectAnswer, times: Times) -> String {
    match answer {
        EffectAnswer::Run { place, until_ms } => {
            Log::new("run").put("place", place).time("until", Some(*until_ms), times)
        }
        EffectAnswer::Done { place, result } => {
            Log::new("done").put("place", place).put("result", bytes(&result.0))
        }
        EffectAnswer::Refused { place, result } => {
            Log::new("refused").put("place", place).put("result", bytes(&result.0))
        }
        EffectAnswer::Settling { until_ms } => Log::new("settling").time("until", Some(*until_ms), times),
        EffectAnswer::Reconcile { place } => Log::new("reconcile").put("place", place),
        EffectAnswer::Held(reason) => Log::new("held").put("reason", why(*reason)),
    }
    .end()
}

pub(super) fn inspection(found: Option<&Inspection>, times: Times) -> String {
    let Some(found) = found else { return "absent".into() };
    let log = Log::new(standing(found.standing))
        .put("token", found.token)
        .put("generation", found.generation)
        .put("attempt", found.attempt);
    let log = match found.standing {
        Standing::InFlight { lease_until_ms } => log.time("lease_until", lease_until_ms, times),
        Standing::Held { reason } => log.put("reason", why(reason)),
        Standing::Complete { class: ending, status, body_len, completed_ms, window_until_ms } => log
            .put("class", class(ending))
            .put("status", status)
            .put("body_len", body_len)
            .time("completed", Some(completed_ms), times)
            .time("window_until", Some(window_until_ms), times),
        _ => panic!("this standing has no line in the log yet"),
    };
    let steps = found.steps.iter().map(|(name, step)| match step {
        StepStanding::Begun { until_ms } => format!("{name}:begun:{}", until_ms.since(times.0).0),
        StepStanding::Done => format!("{name}:done"),
        StepStanding::Refused => format!("{name}:refused"),
        _ => panic!("this step has no line in the log yet"),
    });
    log.put("operation", found.operation.as_deref().unwrap_or("-"))
        .time("created", Some(found.created_ms), times)
        .time("applied", Some(found.applied_ms), times)
        .time("horizon_until", Some(found.horizon_until_ms), times)
        .put("point", found.point.as_deref().unwrap_or("-"))
        .put("steps", list(steps))
        .end()
}

pub(super) fn page(page: &Page) -> String {
    let rows = page.rows.iter();
    let rows = rows.map(|(key, found)| format!("{}:{}", bytes(key.as_bytes()), standing(found.standing)));
    let next = page.next.as_ref().map(|key| bytes(key.as_bytes()));
    Log::new("ok")
        .put("rows", list(rows))
        .put("next", next.as_deref().unwrap_or("-"))
        .put("damaged", list(page.damaged.iter().map(|key| bytes(key.as_bytes()))))
        .end()
}

/// Bytes as they are if they are a plain word; else in hex, many equal ones as their number.
fn bytes(bytes: &[u8]) -> String {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_./-".contains(byte);
    match bytes {
        [first, rest @ ..] if rest.len() >= 64 && rest.iter().all(|byte| byte == first) => {
            format!("{}*{first:02x}", bytes.len())
        }
        _ if !bytes.is_empty() && bytes != b"-" && !bytes.starts_with(b"0x") && bytes.iter().all(is_word) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        _ => bytes.iter().fold("0x".to_owned(), |hex, byte| hex + &format!("{byte:02x}")),
    }
}

fn list(entries: impl Iterator<Item = String>) -> String {
    let all: Vec<_> = entries.collect();
    if all.is_empty() { "-".into() } else { all.join(",") }
}

fn recorded(step: &Step, times: Times) -> String {
    match &step.progress {
        StepProgress::Begun { until_ms, .. } => format!("{}:begun:{}", step.name, until_ms.since(times.0).0),
        StepProgress::Done(result) => format!("{}:done:{}", step.name, bytes(&result.0)),
        StepProgress::Refused(result) => format!("{}:refused:{}", step.name, bytes(&result.0)),
    }
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::InFlight { .. } => "in_flight",
        Standing::Held { .. } => "held",
        Standing::Complete { .. } => "complete",
        _ => panic!("this standing has no word in the log yet"),
    }
}

fn kind(kind: WonKind) -> &'static str {
    match kind {
        WonKind::Fresh => "fresh",
        WonKind::Again => "again",
        WonKind::Takeover => "takeover",
        WonKind::Reattempt => "reattempt",
        WonKind::ReusedAfterWindow => "reused_after_window",
        _ => panic!("this win has no word in the log yet"),
    }
}

fn why(reason: HoldReason) -> &'static str {
    match reason {
        HoldReason::Owner => "owner",
        HoldReason::Abandoned => "abandoned",
        HoldReason::StepInDoubt => "step_in_doubt",
        HoldReason::StepsChanged => "steps_changed",
        HoldReason::TriedTooOften => "tried_too_often",
        _ => panic!("this reason has no word in the log yet"),
    }
}

fn dropped(reason: DropReason) -> &'static str {
    match reason {
        DropReason::TooLarge => "too_large",
        DropReason::WindowOver => "window_over",
        _ => panic!("this reason has no word in the log yet"),
    }
}

fn class(class: OutcomeClass) -> &'static str {
    match class {
        OutcomeClass::Success => "success",
        OutcomeClass::Failure(AfterFailure::Replay) => "failure",
        OutcomeClass::Failure(AfterFailure::Reattempt) => "failure_reattempt",
    }
}

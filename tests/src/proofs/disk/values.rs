//! What is written, emitted and answered: all of it follows from a number, so that half of it, or another's, is seen.

use keyclaim::machine::{Blob, Outcome, Response, StepProgress, StepResult};
use keyclaim::{Event, Millis, Writes};

use super::drive::{HORIZON_MS, WINDOW_MS};
use super::look::{TABLE, answer_bytes, name};
use super::world::{Bytes, Delta, Stands, StepTold, Told};

/// Larger bodies than 16 KiB lie in a row of their own.
const LARGE_LEN: usize = 20_000;

pub(super) fn text(number: u64) -> String {
    format!("number {number}")
}

pub(super) fn row(key: u64, number: u64) -> Writes {
    Writes::new().put(TABLE, name(key).as_bytes(), text(number).as_bytes())
}

/// A row of the key, an event, and a condition that holds.
pub(super) fn writes(key: u64, number: u64) -> Writes {
    row(key, number).require(TABLE, b"never", None).emit(event(key, number))
}

pub(super) fn payload(key: u64, number: u64) -> String {
    let kind = if number.is_multiple_of(3) { "free" } else { "ordered" };
    format!("{kind}-{key}-{number:06}")
}

pub(super) fn event(key: u64, number: u64) -> Event {
    let event = Event::new("payments", payload(key, number));
    if number.is_multiple_of(3) { event } else { event.ordering_key(name(key)) }
}

pub(super) fn with_writes(delta: &mut Delta, key: u64, number: u64) {
    delta.rows.push((name(key), Bytes(text(number).into_bytes())));
    delta.emitted = Some(payload(key, number));
}

pub(super) fn outcome(number: u64) -> Outcome {
    let len = if number.is_multiple_of(5) { LARGE_LEN } else { 32 };
    let body: Vec<u8> = number.to_be_bytes().into_iter().cycle().take(len).collect();
    Outcome::success(Response::new(201, body).header("location", text(number)))
}

pub(super) fn complete(number: u64, now_ms: Millis) -> Stands {
    Stands::Complete {
        body: answer_bytes(&outcome(number).response),
        completed_ms: now_ms,
        window_until_ms: now_ms.plus(Millis(WINDOW_MS)),
        horizon_until_ms: now_ms.plus(Millis(HORIZON_MS)),
    }
}

impl Told {
    /// The outcome stands for all that was recorded on the way to it.
    pub(super) fn complete(&mut self, number: u64, now_ms: Millis) {
        self.stands = complete(number, now_ms);
        (self.steps, self.point) = (Vec::new(), None);
    }
}

pub(super) fn done(number: u64) -> StepResult {
    StepResult::Done(Blob(number.to_be_bytes().to_vec()))
}

pub(super) fn step_told(progress: &StepProgress) -> StepTold {
    match progress {
        StepProgress::Begun { .. } => StepTold::Begun,
        StepProgress::Done(bytes) | StepProgress::Refused(bytes) => StepTold::Done(bytes.0.clone()),
    }
}

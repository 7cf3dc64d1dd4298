//! From decisions and errors to answers.

use std::borrow::Cow;

use super::code::{Code, Preset};
use super::headers::{is_replayable, outlives_body};
use super::problem::{self, Extras, Original};
use super::wire::{HeaderLine, HttpAnswer, HttpResponse, Unrecorded, has_no_body, line};
use super::{REPLAY_WINDOW, REPLAYED, STORE, STORED_MARK};
use crate::limits::{POLL_HINT_MS, STORE_DOWN_HINT_MS};
use crate::machine::{Blob, Body, Decision, DropReason, Present, Replay};
use crate::policy::{Millis, Policy};
use crate::token::StoreId;
use crate::{Error, ErrorKind, Result};

/// How one service answers: the statuses of a preset, with what it sets otherwise.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Mapping {
    preset: Preset,
    statuses: Vec<(Code, u16)>,
    documented_at: Option<String>,
    store: Option<StoreId>,
    tells_window: bool,
}

impl Mapping {
    /// The statuses of this preset and no optional header.
    pub fn new(preset: Preset) -> Self {
        Self { preset, ..Self::default() }
    }

    /// Answers this code with another status: 400 to 599. Invalid otherwise: what was not done now
    /// must never look as if it had been.
    pub fn with_status(mut self, code: Code, status: u16) -> Result<Self> {
        if !(400..=599).contains(&status) {
            return Err(Error::invalid("the status of a problem must be from 400 to 599; correct it"));
        }
        self.statuses.retain(|(other, _)| *other != code);
        self.statuses.push((code, status));
        Ok(self)
    }

    /// Says in the `type` of each problem where it is explained: this URI, `#` and the code. Without
    /// it the type is `urn:keyclaim:` and the code.
    ///
    /// Invalid unless it is an absolute `https` or `http` URI of visible ASCII without a fragment.
    pub fn documented_at(mut self, uri: &str) -> Result<Self> {
        let is_web = ["https://", "http://"].iter().any(|scheme| {
            uri.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        });
        let is_plain = uri.bytes().all(|byte| byte.is_ascii_graphic() && !b"#\"<>\\^`{|}".contains(&byte));
        if !is_web || !is_plain {
            return Err(Error::invalid(
                "problems are documented at an http(s) URI without a fragment; correct it",
            ));
        }
        self.documented_at = Some(uri.to_owned());
        Ok(self)
    }

    /// Adds `Keyclaim-Store` to every answer: a client that sees two values has met two stores,
    /// which may each let one request win.
    #[must_use]
    pub fn telling_store(mut self, store: StoreId) -> Self {
        self.store = Some(store);
        self
    }

    /// Adds `Idempotency-Replay-Window` to first answers and replays.
    #[must_use]
    pub fn telling_window(mut self) -> Self {
        self.tells_window = true;
        self
    }

    /// The status of this code.
    pub fn status(&self, code: Code) -> u16 {
        let set = self.statuses.iter().find(|(other, _)| *other == code);
        set.map_or_else(|| code.status(self.preset), |(_, status)| *status)
    }

    /// All codes with their statuses, for the contract with clients.
    pub fn rows(&self) -> impl Iterator<Item = (Code, u16)> {
        Code::ALL.into_iter().map(|code| (code, self.status(code)))
    }

    /// What is done about a decision: the handler runs, or this is sent and nothing runs.
    pub fn answer<'a, W>(&self, decision: &'a Decision<W>) -> HttpAnswer<'a> {
        HttpAnswer::Send(match decision {
            Decision::Won(_) => return HttpAnswer::Run,
            Decision::Replay(replay) => self.replay(replay),
            Decision::InFlight { retry_after_ms, .. } => self.waiting(Code::Concurrent, *retry_after_ms),
            Decision::Mismatch { .. } => self.problem(Code::Mismatch),
            Decision::Held { .. } => self.problem(Code::OutcomeUnknown),
            Decision::Expired => self.problem(Code::KeyExpired),
        })
    }

    /// A stored answer given again, verbatim; or, if it was not kept in full, a problem that says so.
    pub fn replay<'a>(&self, replay: &'a Replay) -> HttpResponse<'a> {
        let response = &replay.response;
        let mut answer = match &response.body {
            Body::Here(bytes) => HttpResponse {
                status: response.status,
                headers: replayed_lines(&response.headers, |_| true),
                body: Cow::Borrowed(if has_no_body(response.status) { &[] } else { &bytes.0 }),
                code: None,
            },
            Body::Dropped { len, why, .. } => self.not_kept(replay, *len, *why),
            // An engine puts the bytes back before it answers; without them there is no answer.
            Body::Apart { .. } => return self.waiting(Code::StoreUnavailable, Millis(STORE_DOWN_HINT_MS)),
        };
        answer.headers.push(line(REPLAYED, "true"));
        answer.headers.extend(self.window_line(replay.window_until_ms.since(replay.completed_ms)));
        self.stamped(answer)
    }

    /// The answer of a code that needs nothing further, such as [`Code::MissingKey`].
    ///
    /// Codes that a client is to wait for carry Retry-After here too.
    pub fn problem(&self, code: Code) -> HttpResponse<'static> {
        let extras = match code {
            Code::Concurrent => Extras { retry_after_ms: Some(Millis(POLL_HINT_MS)), ..Extras::default() },
            Code::StoreBusy | Code::StoreUnavailable => {
                Extras { retry_after_ms: Some(Millis(STORE_DOWN_HINT_MS)), ..Extras::default() }
            }
            _ => Extras::default(),
        };
        self.problem_with(code, extras)
    }

    /// The answer when the claim failed: nothing may run (fail closed).
    pub fn failure(&self, error: &Error) -> HttpResponse<'static> {
        match error.kind() {
            ErrorKind::Invalid => self.problem(Code::ClaimRefused),
            ErrorKind::Busy => {
                let retry_after_ms = error.retry_after().map_or(Millis(POLL_HINT_MS), Millis::from_duration);
                self.waiting(Code::StoreBusy, retry_after_ms)
            }
            ErrorKind::Fenced => self.overtaken(error.present()),
            ErrorKind::Unknown
            | ErrorKind::Closed
            | ErrorKind::Poisoned
            | ErrorKind::Corrupt
            | ErrorKind::Incompatible
            | ErrorKind::Internal => self.problem(Code::StoreUnavailable),
        }
    }

    /// What becomes of the handler's own answer when the store did not record how it ended.
    ///
    /// An overtaken attempt's result never counts, so it is not sent. Otherwise the effect has
    /// happened and the answer is sent, marked `Idempotent-Stored: false`, or `unknown` if it may yet
    /// have been stored. The caller reports the error and asks the store again.
    pub fn unrecorded(&self, error: &Error) -> Unrecorded<'static> {
        let mark = match error.kind() {
            ErrorKind::Fenced => return Unrecorded::SendInstead(self.overtaken(error.present())),
            ErrorKind::Unknown | ErrorKind::Poisoned => "unknown",
            ErrorKind::Invalid
            | ErrorKind::Busy
            | ErrorKind::Closed
            | ErrorKind::Corrupt
            | ErrorKind::Incompatible
            | ErrorKind::Internal => "false",
        };
        let lines = std::iter::once(line(STORED_MARK, mark)).chain(self.store_line());
        Unrecorded::SendOwn(lines.collect())
    }

    /// The lines added to the handler's own answer once it is stored.
    pub fn first_answer_lines(&self, policy: &Policy) -> Vec<HeaderLine<'static>> {
        self.window_line(policy.window_ms).into_iter().chain(self.store_line()).collect()
    }

    /// Where a retry finds what happened; where it would find nothing, nobody can say what did.
    fn overtaken(&self, present: Option<Present>) -> HttpResponse<'static> {
        self.problem(match present {
            Some(Present::InFlight(_) | Present::Complete(_)) => Code::Concurrent,
            Some(Present::Held(_) | Present::Absent) | None => Code::OutcomeUnknown,
        })
    }

    fn not_kept<'a>(&self, replay: &'a Replay, len: u64, why: DropReason) -> HttpResponse<'a> {
        let reason = match why {
            DropReason::TooLarge => "too_large",
            DropReason::WindowOver => "window_over",
        };
        let original = Some(Original { status: replay.response.status, len, reason });
        let mut answer = self.bare_problem(Code::ResponseNotKept, Extras { original, ..Extras::default() });
        answer.headers.extend(replayed_lines(&replay.response.headers, outlives_body));
        answer
    }

    fn waiting(&self, code: Code, retry_after_ms: Millis) -> HttpResponse<'static> {
        self.problem_with(code, Extras { retry_after_ms: Some(retry_after_ms), ..Extras::default() })
    }

    fn problem_with(&self, code: Code, extras: Extras) -> HttpResponse<'static> {
        self.stamped(self.bare_problem(code, extras))
    }

    fn bare_problem(&self, code: Code, extras: Extras) -> HttpResponse<'static> {
        problem::response(code, self.status(code), self.documented_at.as_deref(), extras)
    }

    fn stamped<'a>(&self, mut answer: HttpResponse<'a>) -> HttpResponse<'a> {
        answer.headers.extend(self.store_line());
        answer
    }

    fn store_line(&self) -> Option<HeaderLine<'static>> {
        self.store.map(|store| line(STORE, store.to_string().chars().take(8).collect::<String>()))
    }

    /// Whole seconds, rounded down: no client is promised more than there is.
    fn window_line(&self, window_ms: Millis) -> Option<HeaderLine<'static>> {
        self.tells_window.then(|| line(REPLAY_WINDOW, (window_ms.0 / 1_000).to_string()))
    }
}

fn replayed_lines(headers: &[(Blob, Blob)], is_wanted: impl Fn(&[u8]) -> bool) -> Vec<HeaderLine<'_>> {
    headers
        .iter()
        .filter(|(name, value)| is_wanted(&name.0) && is_replayable(&name.0, &value.0))
        .map(|(name, value)| HeaderLine { name: Cow::Borrowed(&name.0), value: Cow::Borrowed(&value.0) })
        .collect()
}

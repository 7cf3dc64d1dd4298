//! What is stored behind a key.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::decision::Present;
use crate::fingerprint::Fingerprint;
use crate::policy::{AfterFailure, Millis, Policy};
use crate::rows::{Lane, Slot};
use crate::token::{Generation, Nonce, Token};

/// Everything the store knows of one key. Whether it is in flight or complete is its [`State`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Record {
    /// The intent: the token of its first attempt.
    pub generation: Generation,
    /// The only token whose commands are obeyed.
    pub token: Token,
    /// Which attempt of the generation this is, from 1.
    pub attempt: u32,
    /// The nonce of the claim call that won the current attempt; none once it ended by command.
    pub nonce: Option<Nonce>,
    /// What was asked for, so that another request with the same key is told apart.
    pub fingerprint: Fingerprint,
    /// The settings the generation was claimed with.
    pub policy: Policy,
    /// When the generation began.
    pub created_ms: Millis,
    /// When a command last changed this record (a renewal does not); the reaper horizon counts from here.
    pub applied_ms: Millis,
    /// When it was last reported as unfinished past its horizon; the next report is one horizon later.
    pub reported_ms: Option<Millis>,
    /// The last numbered command, so that the same one asked again gets the same answer.
    pub last: Option<Applied>,
    /// The operation's name, for whoever has to finish an abandoned request.
    pub operation: Option<String>,
    /// The stored request, kept until complete.
    pub request: Option<Body>,
    /// The last recovery point.
    pub point: Option<Point>,
    /// The steps recorded so far, in the order they were begun.
    pub steps: Vec<Step>,
    /// Whether the claim itself committed writes, which alone makes a generation worth resuming.
    pub wrote: bool,
    /// How many outbox events this generation has emitted; the next one's number.
    pub events: u32,
    /// How often whoever finishes abandoned requests has tried, since a person last decided.
    pub tries: u32,
    /// How long after the end of an attempt whoever finishes abandoned requests waits.
    pub pause_ms: Millis,
    /// In flight, held or complete.
    pub state: State,
}

/// The number and digest of the last command applied for the current token.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Applied {
    /// The owner's number of the command.
    pub seq: u64,
    /// What was commanded, as 16 bytes of BLAKE3.
    pub digest: [u8; 16],
}

/// Where a record stands.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum State {
    /// An attempt runs, or ran until its lease ended.
    InFlight {
        /// When the lease is over; none means it ends only by command.
        lease_until_ms: Option<Millis>,
        /// An operator said that the next attempt may run, whatever the abandoned policy says.
        resumable: bool,
    },
    /// The outcome is not known; nobody may run it until it is resolved.
    Held {
        /// Why.
        reason: HoldReason,
    },
    /// There is an outcome.
    Complete {
        /// What is answered again.
        outcome: Outcome,
        /// When it was completed.
        completed_ms: Millis,
        /// When the replay window is over.
        window_until_ms: Millis,
    },
}

/// Why a record is held.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[non_exhaustive]
pub enum HoldReason {
    /// Its owner said so.
    Owner,
    /// Its attempt ended having recorded nothing, and the abandoned policy is hold.
    Abandoned,
    /// A step is in doubt and can neither be repeated nor reconciled.
    StepInDoubt,
    /// The handler's steps are not those that were recorded.
    StepsChanged,
    /// It was tried too often.
    TriedTooOften,
}

/// How a request ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Outcome {
    /// Whether it succeeded or failed; both are stored and answered again.
    pub class: OutcomeClass,
    /// What was answered.
    pub response: Response,
}

/// The class of a stored outcome.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum OutcomeClass {
    /// The request did what it asked for.
    Success,
    /// It did not, for good or until attempted again.
    Failure(AfterFailure),
}

/// An answer as it goes over the wire: verbatim, headers in order with repeats.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Response {
    /// The status, such as 201. The machine gives it no meaning.
    pub status: u16,
    /// Header names and values, as bytes, in order.
    pub headers: Vec<(Blob, Blob)>,
    /// The body.
    pub body: Body,
}

/// A body, or what is left of it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Body {
    /// The bytes themselves.
    Here(Blob),
    /// The bytes are in a row of their own; an engine puts them back before it answers.
    Apart {
        /// Their number.
        len: u64,
        /// Their BLAKE3.
        hash: [u8; 32],
    },
    /// The bytes were not kept; the protection is.
    Dropped {
        /// Their number.
        len: u64,
        /// Their BLAKE3.
        hash: [u8; 32],
        /// Why.
        why: DropReason,
    },
}

/// Why a body was not kept.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[non_exhaustive]
pub enum DropReason {
    /// It was larger than the limit.
    TooLarge,
    /// Its replay window is over.
    WindowOver,
}

/// Where a later attempt resumes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Point {
    /// Its name.
    pub name: String,
    /// What the owner stored with it.
    pub data: Blob,
    /// How many steps it covers: an attempt that resumes here need not meet them again.
    pub covers: u32,
}

/// An effect outside the store: its intent, and its result once that is known.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Step {
    /// Its name, used once per generation.
    pub name: String,
    /// Whether it was declared safe to run again with its downstream key.
    pub repeatable: bool,
    /// What is known of it.
    pub progress: StepProgress,
}

/// What is known of a step.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum StepProgress {
    /// Begun; in doubt from `until_ms` on.
    Begun {
        /// The attempt that began it.
        token: Token,
        /// When it must have ended.
        until_ms: Millis,
    },
    /// It happened.
    Done(Blob),
    /// It was refused for good.
    Refused(Blob),
}

/// Bytes, encoded in one piece.
#[derive(Clone, Default, Eq, Hash, PartialEq)]
pub struct Blob(pub Vec<u8>);

impl Applied {
    /// No command yet, but the win was told a second time. No command has the number 0.
    pub(crate) const TOLD_AGAIN: Self = Self { seq: 0, digest: [0; 16] };
}

impl Record {
    /// Whether anything was recorded that a rerun would lose: a recovery point, a step or writes.
    pub fn has_recorded(&self) -> bool {
        self.wrote || self.point.is_some() || !self.steps.is_empty()
    }

    /// The step whose outcome nobody has recorded, if there is one. It is always the last.
    pub fn open_step(&self) -> Option<(&Step, Millis)> {
        let step = self.steps.last()?;
        match step.progress {
            StepProgress::Begun { until_ms, .. } => Some((step, until_ms)),
            StepProgress::Done(_) | StepProgress::Refused(_) => None,
        }
    }

    /// When the reaper horizon of this record is over.
    pub fn horizon_until_ms(&self) -> Millis {
        match self.state {
            // A window that was extended moves the horizon with it: it is never the shorter one.
            State::Complete { window_until_ms, .. } => {
                self.applied_ms.plus(self.policy.horizon_ms).max(window_until_ms)
            }
            State::InFlight { .. } | State::Held { .. } => {
                self.applied_ms.max(self.reported_ms.unwrap_or_default()).plus(self.policy.horizon_ms)
            }
        }
    }

    /// When this record next needs somebody's attention, and whose; an engine keeps it in its due index.
    pub fn due(&self) -> Slot {
        let (lane, when) = match &self.state {
            State::Complete { outcome, window_until_ms, .. } if outcome.outlives_window() => {
                (Lane::Finished, *window_until_ms)
            }
            State::Complete { .. } => (Lane::Finished, self.horizon_until_ms()),
            State::InFlight { .. } | State::Held { .. } => {
                let horizon_ms = self.horizon_until_ms();
                (
                    Lane::Unfinished,
                    self.abandoned_from_ms().map_or(horizon_ms, |from_ms| from_ms.min(horizon_ms)),
                )
            }
        };
        Slot { lane, when }
    }

    /// Whether it carries all that is needed to finish it without its caller.
    pub fn can_be_finished(&self) -> bool {
        self.operation.is_some() && self.request.is_some()
    }

    /// From when on whoever finishes abandoned requests may take it over, unless its owner renews before; none
    /// if it is not in flight, ends only by command or lacks what is needed to finish it.
    pub fn abandoned_from_ms(&self) -> Option<Millis> {
        match self.state {
            State::InFlight { lease_until_ms: Some(lease_until_ms), .. } if self.can_be_finished() => {
                Some(lease_until_ms.plus(self.pause_ms))
            }
            State::InFlight { .. } | State::Held { .. } | State::Complete { .. } => None,
        }
    }

    /// What the key holds, for whoever was overtaken.
    pub fn present(&self) -> Present {
        match self.state {
            State::InFlight { .. } => Present::InFlight(self.token),
            State::Held { .. } => Present::Held(self.token),
            State::Complete { .. } => Present::Complete(self.token),
        }
    }
}

impl Outcome {
    /// A success with this response.
    pub fn success(response: Response) -> Self {
        Self { class: OutcomeClass::Success, response }
    }

    /// A failure with this response, and what a later claim finds.
    pub fn failure(response: Response, after: AfterFailure) -> Self {
        Self { class: OutcomeClass::Failure(after), response }
    }

    /// The same outcome, without its body if that is over the limit: what ran stays protected.
    #[must_use]
    pub fn bounded(mut self, body_len_max: usize) -> Self {
        if matches!(&self.response.body, Body::Here(bytes) if bytes.0.len() > body_len_max) {
            self.response.body = self.response.body.dropped(DropReason::TooLarge);
        }
        self
    }

    /// Whether it is a failure that the next claim may attempt again.
    pub fn may_be_reattempted(&self) -> bool {
        self.class == OutcomeClass::Failure(AfterFailure::Reattempt)
    }

    /// Whether a sweep has something to take from it when its window is over: a success keeps a tombstone.
    pub(crate) fn outlives_window(&self) -> bool {
        self.class == OutcomeClass::Success
            && !matches!(self.response.body, Body::Dropped { why: DropReason::WindowOver, .. })
    }
}

impl Response {
    /// A response with this status and body, and no headers.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: Body::Here(Blob(body.into())) }
    }

    /// Adds a header line behind those it has.
    #[must_use]
    pub fn header(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((Blob::from(name.as_ref()), Blob::from(value.as_ref())));
        self
    }
}

impl Body {
    /// The bytes, if they are here.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Here(bytes) => Some(&bytes.0),
            Self::Apart { .. } | Self::Dropped { .. } => None,
        }
    }

    /// The number of bytes the body has or had.
    pub fn len(&self) -> u64 {
        match self {
            Self::Here(bytes) => bytes.0.len() as u64,
            Self::Apart { len, .. } | Self::Dropped { len, .. } => *len,
        }
    }

    /// Whether the body has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same body without its bytes.
    #[must_use]
    pub fn dropped(&self, why: DropReason) -> Self {
        match self {
            Self::Here(bytes) => {
                Self::Dropped { len: bytes.0.len() as u64, hash: *blake3::hash(&bytes.0).as_bytes(), why }
            }
            Self::Apart { len, hash } | Self::Dropped { len, hash, .. } => {
                Self::Dropped { len: *len, hash: *hash, why }
            }
        }
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Stored bytes are customer data: a log may learn their number, never their content.
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Blob;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Blob, E> {
                Ok(Blob(bytes.to_vec()))
            }

            fn visit_byte_buf<E: serde::de::Error>(self, bytes: Vec<u8>) -> Result<Blob, E> {
                Ok(Blob(bytes))
            }
        }
        deserializer.deserialize_byte_buf(Visitor)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde::de::IntoDeserializer;
    use serde::de::value::{BytesDeserializer, Error};

    use super::*;
    use crate::fingerprint::{Fingerprint, Scheme};
    use crate::{Abandoned, AfterFailure, codec};

    /// As small as every number may be.
    pub(in crate::machine) fn sound() -> Record {
        let mut policy = Policy::new(Abandoned::Rerun);
        (policy.window_ms, policy.horizon_ms, policy.lease_ms) = (Millis(1), Millis(1), Some(Millis(1)));
        Record {
            generation: Generation(1),
            token: Token(1),
            attempt: 1,
            nonce: Some(Nonce([1; 16])),
            fingerprint: Fingerprint { scheme: Scheme::Raw, hash: [1; 32] },
            policy,
            created_ms: Millis(5),
            applied_ms: Millis(5),
            reported_ms: None,
            last: None,
            operation: None,
            request: Some(Body::Here(Blob(Vec::new()))),
            point: None,
            steps: Vec::new(),
            wrote: false,
            events: 0,
            tries: 0,
            pause_ms: Millis(0),
            state: State::InFlight { lease_until_ms: None, resumable: false },
        }
    }

    fn complete(class: OutcomeClass, body: Body) -> Record {
        let outcome = Outcome { class, response: Response { status: 201, headers: Vec::new(), body } };
        let (completed_ms, window_until_ms) = (Millis(7), Millis(8));
        Record { state: State::Complete { outcome, completed_ms, window_until_ms }, ..sound() }
    }

    fn dropped(why: DropReason) -> Body {
        Body::Dropped { len: 3, hash: [1; 32], why }
    }

    /// A sweep has work at the end of the window only if there is an answer to take away and protection to leave.
    #[test]
    fn the_end_of_the_window_is_due_if_there_is_an_answer_to_drop() {
        let here = || Body::Here(Blob(vec![1]));
        let horizon_ms = Millis(1_000);
        let policy = Policy { horizon_ms, ..sound().policy };
        let due = |class, body| Record { policy, ..complete(class, body) }.due();
        let at = |when| Slot { lane: Lane::Finished, when };
        let horizon = at(sound().applied_ms.plus(horizon_ms));
        assert_eq!(due(OutcomeClass::Success, here()), at(Millis(8)));
        assert_eq!(due(OutcomeClass::Success, dropped(DropReason::TooLarge)), at(Millis(8)));
        assert_eq!(due(OutcomeClass::Success, dropped(DropReason::WindowOver)), horizon);
        assert_eq!(due(OutcomeClass::Failure(AfterFailure::Replay), here()), horizon);
    }

    #[test]
    fn what_can_be_finished_has_an_operation_and_a_request() {
        let (operation, request) = (Some("order".to_owned()), sound().request);
        let can = |operation, request| Record { operation, request, ..sound() }.can_be_finished();
        assert!(can(operation.clone(), request.clone()));
        assert!(!can(operation, None) && !can(None, request) && !can(None, None));
    }

    #[test]
    fn a_body_tells_its_bytes_if_it_has_them_and_its_length_always() {
        let (here, empty) = (Body::Here(Blob(vec![1, 2, 3])), Body::Here(Blob(Vec::new())));
        let apart = Body::Apart { len: 3, hash: [1; 32] };
        assert_eq!((here.bytes(), empty.bytes()), (Some(&[1, 2, 3][..]), Some(&[][..])));
        assert_eq!((apart.bytes(), dropped(DropReason::TooLarge).bytes()), (None, None));
        for body in [&here, &apart, &dropped(DropReason::WindowOver)] {
            assert_eq!((body.len(), body.is_empty()), (3, false));
        }
        assert_eq!((empty.len(), empty.is_empty()), (0, true));
    }

    #[test]
    fn bytes_are_read_as_they_were_written_and_never_shown() {
        let blob = Blob::from(vec![1, 2, 3]);
        assert_eq!(blob, Blob(vec![1, 2, 3]));
        assert_eq!(format!("{blob:?}"), "3 bytes");
        let owned = codec::encode_plain(&blob).expect("plain data");
        assert_eq!(codec::decode_plain::<Blob>(&owned).expect("just written"), blob);
        // By a deserializer that only lends.
        assert_eq!(Blob::deserialize(BytesDeserializer::<Error>::new(&[1, 2, 3])), Ok(blob));
        let error =
            Blob::deserialize(IntoDeserializer::<Error>::into_deserializer(7_u8)).expect_err("no bytes");
        assert!(error.to_string().ends_with("expected bytes"), "{error}");
    }
}

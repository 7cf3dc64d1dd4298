//! The codes of every answer that is not the handler's own, with their status and wording.

use std::fmt;

use crate::key::header::HeaderError;

/// Which published convention the statuses follow.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Preset {
    /// Another request under a used key is a conflict: 409.
    #[default]
    Default,
    /// As draft-ietf-httpapi-idempotency-key-header has it: another request under a used key is 422.
    Ietf,
}

/// What a client can switch on: one code for one thing to do next, never reused.
///
/// Complete on purpose: a new code is a new duty for every client and needs a design note.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Code {
    /// The route asks for a key and there is none.
    MissingKey,
    /// There is a header, but it holds no key.
    InvalidKey,
    /// Another attempt runs now, or overtook this one. Ask again with the same key.
    Concurrent,
    /// The key was used for another request.
    Mismatch,
    /// Nobody knows how the request ended; a person has to say.
    OutcomeUnknown,
    /// The request ended, and its replay window is over.
    KeyExpired,
    /// The request ended, but its answer was not kept in full.
    ResponseNotKept,
    /// The store refused the claim as malformed.
    ClaimRefused,
    /// The store has too much to do; nothing happened.
    StoreBusy,
    /// The store cannot be asked, so nothing may run.
    StoreUnavailable,
}

impl Code {
    /// All codes, in the order of the table in the documentation.
    pub const ALL: [Self; 10] = [
        Self::MissingKey,
        Self::InvalidKey,
        Self::Concurrent,
        Self::Mismatch,
        Self::OutcomeUnknown,
        Self::KeyExpired,
        Self::ResponseNotKept,
        Self::ClaimRefused,
        Self::StoreBusy,
        Self::StoreUnavailable,
    ];

    /// The stable name on the wire, such as `concurrent_idempotent_requests`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MissingKey => "missing_idempotency_key",
            Self::InvalidKey => "invalid_idempotency_key",
            Self::Concurrent => "concurrent_idempotent_requests",
            Self::Mismatch => "invalid_idempotent_request",
            Self::OutcomeUnknown => "idempotent_request_outcome_unknown",
            Self::KeyExpired => "idempotency_key_expired",
            Self::ResponseNotKept => "idempotent_response_not_kept",
            Self::ClaimRefused => "idempotency_claim_refused",
            Self::StoreBusy => "idempotency_store_busy",
            Self::StoreUnavailable => "idempotency_store_unavailable",
        }
    }

    /// The status under this preset; a [`Mapping`](super::Mapping) can override it.
    pub const fn status(self, preset: Preset) -> u16 {
        match (self, preset) {
            (Self::MissingKey | Self::InvalidKey | Self::ClaimRefused, _) => 400,
            (Self::Mismatch, Preset::Ietf) => 422,
            (Self::Concurrent | Self::Mismatch | Self::OutcomeUnknown | Self::ResponseNotKept, _) => 409,
            (Self::KeyExpired, _) => 410,
            (Self::StoreBusy | Self::StoreUnavailable, _) => 503,
        }
    }

    /// A short summary for people; the same for every occurrence.
    pub const fn title(self) -> &'static str {
        match self {
            Self::MissingKey => "Idempotency-Key is missing",
            Self::InvalidKey => "Idempotency-Key is malformed",
            Self::Concurrent => "The request is already being processed",
            Self::Mismatch => "Idempotency-Key was used for another request",
            Self::OutcomeUnknown => "The outcome of the request is not known",
            Self::KeyExpired => "Idempotency-Key is expired",
            Self::ResponseNotKept => "The request is done, its answer was not kept",
            Self::ClaimRefused => "The request cannot be processed under an Idempotency-Key",
            Self::StoreBusy => "Too many requests are waiting",
            Self::StoreUnavailable => "Requests with an Idempotency-Key cannot be processed now",
        }
    }

    /// What the client does next. Fixed text: it can hold neither a key nor a body.
    pub const fn detail(self) -> &'static str {
        match self {
            Self::MissingKey => {
                "This operation needs an Idempotency-Key header. Send one key per intent, and the same key \
                 with every retry of it."
            }
            Self::InvalidKey => {
                "Send one line of the Idempotency-Key header with one key of printable ASCII within the \
                 documented length, in double quotes. The request was not processed."
            }
            Self::Concurrent => {
                "Wait as long as Retry-After says, then send the same request with the same key: it will get \
                 the answer of the attempt that counts."
            }
            Self::Mismatch => {
                "The same key came with another method, target or payload before. Send the first request \
                 unchanged, or a new key for a new intent. This request was not processed."
            }
            Self::OutcomeUnknown => {
                "The request may have been carried out. Do not send it with another key; find out what \
                 happened, or ask the operator of this service to resolve it."
            }
            Self::KeyExpired => {
                "The request was finished and is no longer answered again. Look up its result; use a new key \
                 only for a new intent."
            }
            Self::ResponseNotKept => {
                "The request was carried out once and ended with original_status, but its answer was not \
                 kept. Do not send it with another key; read the result from its resource."
            }
            Self::ClaimRefused => {
                "The request is outside the documented limits for requests with a key. It was not processed; \
                 change it before sending it again."
            }
            Self::StoreBusy => {
                "The request was not processed. Wait as long as Retry-After says, then send it again with \
                 the same key."
            }
            Self::StoreUnavailable => {
                "The request was not run, because it could not be protected from running twice. Send it \
                 again with the same key after the time Retry-After says."
            }
        }
    }
}

impl From<&HeaderError> for Code {
    fn from(error: &HeaderError) -> Self {
        match error {
            HeaderError::Missing => Self::MissingKey,
            HeaderError::Invalid(_) => Self::InvalidKey,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_plain() {
        for (at, code) in Code::ALL.iter().enumerate() {
            assert!(code.name().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
            assert!(Code::ALL.iter().skip(at + 1).all(|other| other.name() != code.name()));
        }
    }

    #[test]
    fn presets_differ_in_the_mismatch_only() {
        let differ = |code: &&Code| code.status(Preset::Default) != code.status(Preset::Ietf);
        assert_eq!(Code::ALL.iter().filter(differ).collect::<Vec<_>>(), [&Code::Mismatch]);
        assert_eq!(Code::Mismatch.status(Preset::Default), 409);
        assert_eq!(Code::Mismatch.status(Preset::Ietf), 422);
    }
}

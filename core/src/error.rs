//! What can go wrong, as few kinds, each of which tells the caller what to do next.
//!
//! Answers such as in flight, mismatch or held are decisions and no errors: see
//! [`Decision`](crate::machine::Decision).

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Nonce;
use crate::machine::{Present, Refusal};

/// The result of everything in keyclaim that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure this is; its number is the same in every language and never reused.
///
/// Complete on purpose: a new kind would be a new duty for every caller and needs a design note.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(i32)]
pub enum ErrorKind {
    /// The call is wrong. Nothing happened; fix the call.
    Invalid = 1,
    /// Too much is going on. Nothing happened; wait `retry_after` and call again.
    Busy = 2,
    /// The token is no longer the current one. Nothing happened; stop working, drop the result.
    Fenced = 3,
    /// The command may or may not have been made durable. Ask again with the same token.
    Unknown = 4,
    /// The handle is closed, or belongs to the parent of a forked process. Open a new one.
    Closed = 5,
    /// The medium failed. Call `reopen`, then ask again whatever was answered `Unknown`.
    Poisoned = 6,
    /// Stored bytes are damaged. Stop, run the check, restore.
    Corrupt = 7,
    /// The file is no store, or one of another format. Upgrade, or name the right file.
    Incompatible = 8,
    /// A bug in keyclaim. Report it.
    Internal = 9,
}

impl ErrorKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [Self; 9] = [
        Self::Invalid,
        Self::Busy,
        Self::Fenced,
        Self::Unknown,
        Self::Closed,
        Self::Poisoned,
        Self::Corrupt,
        Self::Incompatible,
        Self::Internal,
    ];

    /// The stable number of this kind, 1..=9.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The stable name of this kind in capitals, such as `BUSY`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "INVALID",
            Self::Busy => "BUSY",
            Self::Fenced => "FENCED",
            Self::Unknown => "UNKNOWN",
            Self::Closed => "CLOSED",
            Self::Poisoned => "POISONED",
            Self::Corrupt => "CORRUPT",
            Self::Incompatible => "INCOMPATIBLE",
            Self::Internal => "INTERNAL",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A failure: its kind, a message for the person on call, and what caused it.
///
/// One pointer wide. The message never holds a key, a scope or a body.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    retry_after: Option<Duration>,
    present: Option<Present>,
    nonce: Option<Nonce>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// How long to wait before calling again; only [`ErrorKind::Busy`] has it.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// What the key holds now; only [`ErrorKind::Fenced`] has it.
    pub fn present(&self) -> Option<Present> {
        self.0.present
    }

    /// What a claim that was answered [`ErrorKind::Unknown`] is to be asked again with.
    pub fn nonce(&self) -> Option<Nonce> {
        self.0.nonce
    }

    /// The message without the kind in front of it.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            retry_after: None,
            present: None,
            nonce: None,
            source: None,
        }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    #[allow(dead_code, reason = "the edge build has no queue that could be full")]
    pub(crate) fn busy(message: impl Into<String>, retry_after: Duration) -> Self {
        let mut error = Self::new(ErrorKind::Busy, message);
        error.0.retry_after = Some(retry_after);
        error
    }

    /// Whoever asked one thing was answered another: a bug of ours.
    #[allow(dead_code, reason = "only a store hands answers to those who wait")]
    pub(crate) fn misdelivered(to: &str) -> Self {
        Self::new(ErrorKind::Internal, format!("{to} was given another command's answer; report it"))
    }

    pub(crate) fn fenced(present: Present) -> Self {
        let mut error = Self::new(
            ErrorKind::Fenced,
            format!("this claim was overtaken and changed nothing; the key is now {present}"),
        );
        error.0.present = Some(present);
        error
    }

    #[allow(dead_code, reason = "only a store leaves a claim in doubt")]
    pub(crate) fn asked_with(mut self, nonce: Nonce) -> Self {
        self.0.nonce = Some(nonce);
        self
    }

    /// The same error for another caller of the same commit group.
    #[allow(dead_code, reason = "only a store answers several callers at once")]
    pub(crate) fn share(&self) -> Self {
        let inner = &self.0;
        Self(Box::new(Inner {
            kind: inner.kind,
            message: inner.message.clone(),
            retry_after: inner.retry_after,
            present: inner.present,
            nonce: inner.nonce,
            source: inner.source.clone(),
        }))
    }

    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Fenced(present) => Self::fenced(present),
            Refusal::Invalid(reason) => Self::invalid(reason),
            Refusal::StepsChanged => Self::invalid(
                "the handler's steps are not those its earlier attempt recorded, so the claim is held; \
                 resolve it, and give a changed handler another operation or new step names",
            ),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind, self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_word_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn codes_are_one_to_nine_in_order() {
        let codes: Vec<i32> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes, (1..=9).collect::<Vec<i32>>());
    }
}

//! As much of core's errors as the files ask for.

use std::time::Duration;

pub use keyclaim::ErrorKind;

/// An error of a kind.
#[derive(Debug)]
pub struct Error(ErrorKind);

/// Core's own shape.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, _message: impl Into<String>) -> Self {
        Self(kind)
    }

    pub(crate) fn busy(_message: impl Into<String>, _retry_after: Duration) -> Self {
        Self(ErrorKind::Busy)
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0
    }
}

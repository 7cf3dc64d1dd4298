//! redb's errors as ours: one place that decides what each means for the caller.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::limits::WRITE_WAIT_MS_DEFAULT;
use crate::{Error, ErrorKind};

/// Why an operation was refused to a forked child: its handle belongs to its parent.
///
/// Travels through redb inside an [`io::Error`] and is found again by [`before_commit`].
#[derive(Debug)]
pub(crate) struct Inherited {
    pub(crate) opener_pid: u32,
}

/// Why a whole group was given up; nothing of it happened.
pub(super) enum GroupFault {
    /// The rows of one command could not be written.
    Put { at: usize, error: Error },
    /// It concerns all.
    All(Error),
}

impl GroupFault {
    pub(super) fn is_of_the_medium(&self) -> bool {
        let (Self::Put { error, .. } | Self::All(error)) = self;
        error.kind() == ErrorKind::Poisoned
    }
}

impl From<Error> for GroupFault {
    fn from(error: Error) -> Self {
        Self::All(error)
    }
}

/// Another process holds a lock of the store for longer than is waited for.
///
/// Travels through redb as [`Inherited`] does. Nothing of what was asked has begun.
#[derive(Debug)]
pub(crate) struct Stuck;

/// What whoever waited in vain is told.
pub(crate) fn stuck() -> Error {
    Error::busy(Stuck.to_string(), Duration::from_millis(WRITE_WAIT_MS_DEFAULT))
}

/// Maps an error that came before the commit: nothing of this transaction is durable.
///
/// Takes any of redb's error types.
pub(crate) fn before_commit(error: impl Into<redb::Error>) -> Error {
    use redb::Error as E;
    match error.into() {
        E::Io(error) => io_fault(error),
        error @ E::Backend(_) => {
            Error::new(ErrorKind::Poisoned, "the storage under the store failed; reopen the store")
                .caused_by(error)
        }
        error @ (E::PreviousIo | E::LockPoisoned(_)) => {
            Error::new(ErrorKind::Poisoned, "the store failed earlier and refuses all work since; reopen it")
                .caused_by(error)
        }
        error @ E::Corrupted(_) => Error::new(
            ErrorKind::Corrupt,
            "the store's file is damaged; stop, check the disk, restore a copy",
        )
        .caused_by(error),
        error @ E::UpgradeRequired(_) => Error::new(
            ErrorKind::Incompatible,
            "the file has an older redb format; upgrade it with the redb that wrote it",
        )
        .caused_by(error),
        error @ E::DatabaseClosed => {
            Error::new(ErrorKind::Closed, "the store is closed; open it again").caused_by(error)
        }
        error => Error::new(
            ErrorKind::Internal,
            "redb refused a call that keyclaim should not have made; report this",
        )
        .caused_by(error),
    }
}

/// Maps an error of the commit itself: what it wrote may or may not be durable.
///
/// In a forked child nothing was written, and nothing is in doubt.
pub(crate) fn at_commit(error: impl Into<redb::Error>) -> Error {
    let cause = before_commit(error);
    if cause.kind() == ErrorKind::Closed {
        return cause;
    }
    Error::new(
        ErrorKind::Unknown,
        "the commit failed and may still be durable; reopen the store and ask again with the same token",
    )
    .caused_by(cause)
}

/// Maps an I/O error of the store's own file.
pub(crate) fn io_fault(error: io::Error) -> Error {
    if let Some(inherited) = error.get_ref().and_then(|inner| inner.downcast_ref::<Inherited>()) {
        return Error::new(ErrorKind::Closed, inherited.to_string());
    }
    if error.get_ref().and_then(|inner| inner.downcast_ref::<Stuck>()).is_some() {
        return stuck();
    }
    let (kind, message) = match error.kind() {
        // A store's own reads stay within the length it has: the file became shorter.
        io::ErrorKind::UnexpectedEof => {
            (ErrorKind::Corrupt, "the store's file was cut short; stop, check the disk, restore a copy")
        }
        // redb's word for a file that it never wrote.
        io::ErrorKind::InvalidData => (ErrorKind::Incompatible, "the file is no store; name the right file"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => (
            ErrorKind::Poisoned,
            "there is no room for the store's file; make room (disk, quota, file size limit), then reopen it",
        ),
        _ => (ErrorKind::Poisoned, "reading or writing the store's file failed; reopen the store"),
    };
    Error::new(kind, message).caused_by(error)
}

impl fmt::Display for Inherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this handle was opened by process {} and is of no use after fork; open the store in this process",
            self.opener_pid
        )
    }
}

impl StdError for Inherited {}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "another process has been writing to the store for too long; ask again, and look for a process that is \
             stopped or starved",
        )
    }
}

impl StdError for Stuck {}

#[cfg(test)]
mod tests {
    use redb::{CommitError, DatabaseError, StorageError, TableError, TransactionError};

    use super::*;

    fn eio() -> io::Error {
        io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())
    }

    #[test]
    fn each_error_before_a_commit_tells_what_to_do() {
        let kind = |error: StorageError| before_commit(TransactionError::Storage(error)).kind();
        assert_eq!(kind(StorageError::Io(eio())), ErrorKind::Poisoned);
        assert_eq!(kind(StorageError::PreviousIo), ErrorKind::Poisoned);
        assert_eq!(kind(StorageError::Backend("x".into())), ErrorKind::Poisoned);
        assert_eq!(kind(StorageError::Corrupted(String::new())), ErrorKind::Corrupt);
        assert_eq!(kind(StorageError::Io(io::ErrorKind::UnexpectedEof.into())), ErrorKind::Corrupt);
        assert_eq!(kind(StorageError::DatabaseClosed), ErrorKind::Closed);
        assert_eq!(kind(StorageError::ValueTooLarge(1)), ErrorKind::Internal);
        assert_eq!(before_commit(TableError::TableIsMultimap(String::new())).kind(), ErrorKind::Internal);
        assert_eq!(before_commit(DatabaseError::UpgradeRequired(2)).kind(), ErrorKind::Incompatible);
    }

    #[test]
    fn an_error_of_the_commit_is_doubt_and_keeps_its_cause() {
        let error = at_commit(CommitError::Storage(StorageError::Io(eio())));
        assert_eq!(error.kind(), ErrorKind::Unknown);
        let cause = error.source().expect("ours");
        let cause = cause.source().expect("the system's").downcast_ref::<io::Error>().expect("an io::Error");
        assert_eq!(cause.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    }

    #[test]
    fn a_forked_child_is_told_to_open_its_own() {
        let refused = || StorageError::Io(io::Error::other(Inherited { opener_pid: 7 }));
        assert_eq!(before_commit(refused()).kind(), ErrorKind::Closed);
        assert_eq!(at_commit(CommitError::Storage(refused())).kind(), ErrorKind::Closed);
        assert!(before_commit(refused()).message().contains("process 7"));
    }
}

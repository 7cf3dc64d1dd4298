//! What makes a commit durable: a seam of its own, apart from the transaction that decides.
//!
//! Today it is redb's own commit. A log in front of it would stand here, and nothing else in the
//! store would know: see `docs/adr/0004-durability-is-a-seam.md`.

use std::time::Duration;

use redb::{Database, TransactionError, WriteTransaction};

use super::fault::{at_commit, before_commit, stuck};
use super::pauses::Pauses;
use crate::{Error, ErrorKind, Result};

/// How a store makes its groups durable.
#[derive(Debug)]
pub(super) struct Durable {
    /// How long another process's write is waited for, if there can be one.
    shared_wait: Option<Duration>,
}

impl Durable {
    pub(super) fn new(shared_wait: Option<Duration>) -> Self {
        Self { shared_wait }
    }

    /// Begins the transaction that decides one group.
    ///
    /// Errors: `Busy`: another process writes, and has not ended within the wait; nothing has begun.
    pub(super) fn begin(&self, db: &Database) -> Result<WriteTransaction> {
        let mut txn = match self.shared_wait {
            None => db.begin_write().map_err(before_commit)?,
            Some(wait) => begin_beside_others(db, wait)?,
        };
        // Two-phase, because keys are hostile input and one-phase trusts a checksum over them; with
        // quick-repair, because a crashed store has to open at once, however large it is.
        txn.set_two_phase_commit(true);
        txn.set_quick_repair(true);
        Ok(txn)
    }

    /// Makes the group durable. When this returns, the changes survive a power cut (P2).
    ///
    /// Errors: `Unknown`: the changes may or may not have become durable.
    #[allow(clippy::unused_self, reason = "a log in front of redb has state, and comes in through this door")]
    pub(super) fn commit(&self, txn: WriteTransaction) -> Result<()> {
        txn.commit().map_err(at_commit)
    }

    /// Gives up the group: nothing of it happened.
    #[allow(clippy::unused_self, reason = "as above")]
    pub(super) fn abort(&self, txn: WriteTransaction) -> Result<()> {
        txn.abort().map_err(|error| {
            Error::new(ErrorKind::Poisoned, "a transaction could not be given up; reopen the store")
                .caused_by(error)
        })
    }
}

/// redb's own wait has no end, and a process that was stopped in the middle of a write would stop all others.
fn begin_beside_others(db: &Database, wait: Duration) -> Result<WriteTransaction> {
    let mut pauses = Pauses::new(wait);
    loop {
        match db.try_begin_write() {
            Err(TransactionError::WouldBlock) if pauses.take() => {}
            Err(TransactionError::WouldBlock) => return Err(stuck()),
            begun => return begun.map_err(before_commit),
        }
    }
}

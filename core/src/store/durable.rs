//! What makes a commit durable: a seam of its own, apart from the transaction that decides.
//!
//! Today it is redb's own commit. A log in front of it would stand here, and nothing else in the
//! store would know: see `docs/adr/0004-durability-is-a-seam.md`.

use redb::{Database, WriteTransaction};

use super::fault::{at_commit, before_commit};
use crate::{Error, ErrorKind, Result};

/// How a store makes its groups durable.
#[derive(Debug)]
pub(super) struct Durable;

#[allow(clippy::unused_self, reason = "a log in front of redb has state, and comes in through this door")]
impl Durable {
    /// Begins the transaction that decides one group.
    pub(super) fn begin(&self, db: &Database) -> Result<WriteTransaction> {
        let mut txn = db.begin_write().map_err(before_commit)?;
        // Two-phase, because keys are hostile input and one-phase trusts a checksum over them; with
        // quick-repair, because a crashed store has to open at once, however large it is.
        txn.set_two_phase_commit(true);
        txn.set_quick_repair(true);
        Ok(txn)
    }

    /// Makes the group durable. When this returns, the changes survive a power cut (P2).
    ///
    /// Errors: `Unknown`: the changes may or may not have become durable.
    pub(super) fn commit(&self, txn: WriteTransaction) -> Result<()> {
        txn.commit().map_err(at_commit)
    }

    /// Gives up the group: nothing of it happened.
    pub(super) fn abort(&self, txn: WriteTransaction) -> Result<()> {
        txn.abort().map_err(|error| {
            Error::new(ErrorKind::Poisoned, "a transaction could not be given up; reopen the store")
                .caused_by(error)
        })
    }
}

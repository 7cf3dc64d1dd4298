//! The open database and its health: healthy, poisoned or closed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use redb::ReadableDatabase;

use super::backend::{Counts, FileState};
use super::durable::Durable;
use super::fault::before_commit;
use super::file::{self, Handle};
use super::health::{Health, poisoned};
use super::meta::{self, Now};
use super::plant::{Plant, Planted};
use super::queue::closed;
use super::tables::{self, ReadRows};
use crate::clock::Saved;
use crate::{Error, ErrorKind, Result, StoreId, Token};

/// What a store's file holds at its beginning, and how it is recognised.
pub(super) struct StoreFormat {
    pub(super) new_id: StoreId,
    /// The only store that will do, when a store is opened again.
    pub(super) same: Option<StoreId>,
    pub(super) time: Saved,
}

impl file::Format for StoreFormat {
    type Found = StoreId;

    fn begin(&self, txn: &redb::WriteTransaction) -> Result<()> {
        tables::create_all(txn)?;
        meta::create(txn, self.new_id, Now { token: Token(0), time: self.time })
    }

    fn recognise(&self, db: &redb::Database) -> Result<StoreId> {
        let id = meta::check(db)?;
        tables::check_all(db)?;
        // Refused in here, so that another's file stays as it is.
        if self.same.is_some_and(|same| same != id) {
            return Err(Error::new(
                ErrorKind::Incompatible,
                "another store is now at the path; close this one and open that, knowing that it has other keys",
            ));
        }
        Ok(id)
    }
}

/// An open database.
pub(super) struct Open {
    pub(super) db: Handle,
    pub(super) file: Arc<FileState>,
    pub(super) durable: Durable,
}

pub(super) struct Engine {
    open: RwLock<Option<Open>>,
    health: Health,
    opener_pid: u32,
    reopens: AtomicU64,
    /// What was done to the file before it was last reopened.
    counts_before: Mutex<Counts>,
    planted: Planted,
}

impl Engine {
    pub(super) fn new(open: Open, planted: Planted) -> Self {
        Self {
            open: RwLock::new(Some(open)),
            health: Health::new(),
            opener_pid: std::process::id(),
            reopens: AtomicU64::new(0),
            counts_before: Mutex::default(),
            planted,
        }
    }

    /// Whether this process only inherited the store from its parent. Asked before any lock is
    /// touched: another thread of the parent may have held it at the fork.
    pub(super) fn is_inherited(&self) -> bool {
        std::process::id() != self.opener_pid
    }

    /// Whether commands can be served.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_inherited() {
            return Err(Error::new(
                ErrorKind::Closed,
                "the store was opened before this process was forked; open it in this process",
            ));
        }
        self.health.check()
    }

    /// The open database, kept open as long as the guard lives.
    pub(super) fn open(&self) -> Result<RwLockReadGuard<'_, Option<Open>>> {
        self.check()?;
        let guard = self.open.read();
        if guard.is_none() {
            // Reopening has failed, or the store was closed, between the check and the lock.
            self.check()?;
            return Err(poisoned());
        }
        Ok(guard)
    }

    /// One short snapshot, never handed out. An I/O error poisons, since it latches redb.
    pub(super) fn read<R>(&self, look: impl FnOnce(&ReadRows) -> Result<R>) -> Result<R> {
        let guard = self.open()?;
        let open = guard.as_ref().ok_or_else(poisoned)?;
        // redb checks no checksum when it reads, and panics on some damaged pages.
        let result = catch_unwind(AssertUnwindSafe(|| {
            let txn = open.db.begin_read().map_err(before_commit)?;
            look(&ReadRows::open(txn, self.planted)?)
        }))
        .unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::Corrupt,
                "the store's file is damaged; stop, check the disk, restore a copy",
            ))
        });
        if let Err(error) = &result {
            self.poison_if_failed(error);
        }
        self.poison_if_file_failed(&open.file);
        result
    }

    /// Poisons the store if this error is of the medium; whatever else went wrong concerns one command.
    pub(super) fn poison_if_failed(&self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Unknown) {
            self.poison(error.message());
        }
    }

    /// Poisons the store if its file has failed under the hands of a caller, who was told by redb and not by us.
    pub(super) fn poison_if_file_failed(&self, file: &FileState) {
        if file.failed() {
            self.poison("reading or writing the store's file failed inside a caller's transaction or view");
        }
    }

    pub(super) fn poison(&self, why: &str) {
        if self.planted.is(Plant::PoisonLeftOut) {
            return;
        }
        if self.health.poison() {
            tracing::error!(target: "keyclaim", why, "store poisoned; reopen it");
        }
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.health.is_poisoned()
    }

    /// Closes the database and opens it again by `open`. On failure the store stays poisoned, and
    /// reopening can be tried again.
    pub(super) fn reopen(&self, open: impl FnOnce() -> Result<Open>) -> Result<()> {
        let mut guard = self.open.write();
        if self.health.is_closed() {
            return Err(closed());
        }
        // Until it is open again nothing can be served, whatever it was before.
        self.health.poison_quietly();
        // Closed first: the lock on the file would refuse us. What redb says on closing a latched
        // database is about the fault that poisoned it, and the next opening finds out for itself.
        if let Some(failed) = guard.take() {
            let file = failed.file.clone();
            drop(failed);
            self.counts_before.lock().add(file.counts());
        }
        *guard = Some(open()?);
        self.reopens.fetch_add(1, Ordering::Relaxed);
        self.health.heal();
        Ok(())
    }

    /// Closes for good; the error is redb's, should its last commit fail.
    pub(super) fn close(&self) -> Result<()> {
        self.health.close();
        match self.open.write().take() {
            Some(open) => open.db.close(),
            None => Ok(()),
        }
    }

    /// What was done to the file since it was first opened.
    pub(super) fn counts(&self) -> Result<Counts> {
        let guard = self.open()?;
        let mut counts = guard.as_ref().ok_or_else(poisoned)?.file.counts();
        counts.add(*self.counts_before.lock());
        Ok(counts)
    }

    /// How often it was poisoned, and how often reopened.
    pub(super) fn faults(&self) -> (u64, u64) {
        (self.health.poisonings(), self.reopens.load(Ordering::Relaxed))
    }
}

//! What redb reads and writes through: redb's own file or memory backend, guarded.
//!
//! The guard refuses a forked child everything, including unlocking and closing: a child that merely
//! drops a handle it inherited would otherwise commit, unlock and destroy its parent's store. It
//! latches every I/O error, so that nothing is written after one, and it counts.

use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redb::{BackendError, StorageBackend};

use super::fault::{Inherited, Stuck};
#[cfg(any(test, feature = "testing"))]
use super::inject::Faults;
use super::journal::{Change, Journal};
use super::pauses::Pauses;
use super::plant::{Plant, Planted};
use crate::limits::WRITE_WAIT_MS_DEFAULT;
use crate::{Error, ErrorKind, Result};

/// Which file it is, whatever its name: device and inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FileId {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

/// What the backend is asked to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(unreachable_pub, reason = "public with the feature testing, through inject")]
pub enum Op {
    /// Read bytes.
    Read,
    /// Write bytes.
    Write,
    /// Change the length.
    SetLen,
    /// Make everything written durable.
    Sync,
    /// Take a lock.
    Lock,
}

/// How much a store's file has been used since it was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) bytes_written: u64,
    pub(crate) resizes: u64,
    pub(crate) syncs: u64,
}

impl Counts {
    /// Adds what was done to the same file in an earlier opening.
    pub(crate) fn add(&mut self, earlier: Self) {
        self.reads += earlier.reads;
        self.writes += earlier.writes;
        self.bytes_written += earlier.bytes_written;
        self.resizes += earlier.resizes;
        self.syncs += earlier.syncs;
    }
}

/// What is known about an open store's file; shared by its backend and whoever watches it.
#[derive(Debug)]
pub(crate) struct FileState {
    opener_pid: u32,
    file: Option<(PathBuf, FileId)>,
    failed: AtomicBool,
    locked: AtomicBool,
    reads: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
    resizes: AtomicU64,
    syncs: AtomicU64,
}

impl FileState {
    fn new(file: Option<(PathBuf, FileId)>) -> Arc<Self> {
        Arc::new(Self {
            opener_pid: process::id(),
            file,
            failed: AtomicBool::new(false),
            locked: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            resizes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        })
    }

    /// Where the file was opened, absolute; `None` in memory.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|(path, _)| path.as_path())
    }

    /// The open file's identity; `None` in memory.
    pub(crate) fn id(&self) -> Option<FileId> {
        self.file.as_ref().map(|(_, id)| *id)
    }

    /// Whether any I/O on the file has failed; it stays so until the store is opened anew.
    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Whether redb got a lock on the file.
    pub(crate) fn locked(&self) -> bool {
        self.locked.load(Ordering::Acquire)
    }

    /// What has been done to the file so far.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            resizes: self.resizes.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
        }
    }

    /// Whether this process is not the one that opened the store: it was forked since.
    pub(crate) fn is_inherited(&self) -> bool {
        process::id() != self.opener_pid
    }

    /// Fails with `Closed` in a process that was forked since the opening.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_inherited() {
            return Err(Error::new(ErrorKind::Closed, self.inherited().to_string()));
        }
        Ok(())
    }

    /// Fails with `Poisoned` if the file at the path is no longer the open one.
    ///
    /// Commits into an unlinked file succeed, and a second store opens happily at its path: two owners.
    /// Called in every group after the sync and before the answers.
    pub(crate) fn check_identity(&self) -> Result<()> {
        let Some((path, id)) = &self.file else { return Ok(()) };
        let poisoned = |what| {
            let message = format!(
                "{} was {what} while the store was open; put the store's own file back, then reopen it",
                path.display()
            );
            Error::new(ErrorKind::Poisoned, message)
        };
        match fs::metadata(path) {
            Ok(meta) if FileId::of(&meta) == *id => Ok(()),
            Ok(_) => Err(poisoned("replaced")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(poisoned("unlinked").caused_by(error))
            }
            Err(error) => Err(poisoned("made unreachable").caused_by(error)),
        }
    }

    fn inherited(&self) -> Inherited {
        Inherited { opener_pid: self.opener_pid }
    }
}

impl FileId {
    pub(super) fn of(meta: &fs::Metadata) -> Self {
        Self { dev: meta.dev(), ino: meta.ino() }
    }
}

/// The guarded backend; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Backend(Arc<Guarded>);

#[derive(Debug)]
struct Guarded {
    inner: Box<dyn StorageBackend>,
    state: Arc<FileState>,
    // While this is set, changes go to the journal. It is cleared once and never set again.
    staged: AtomicBool,
    journal: Mutex<Journal>,
    /// How long another process's lock is waited for.
    lock_wait: Option<Duration>,
    planted: Planted,
    #[cfg(any(test, feature = "testing"))]
    faults: Faults,
}

impl Backend {
    /// Guards a file, which stays open until redb closes it.
    pub(super) fn file(file: File, path: &Path) -> io::Result<Self> {
        let id = FileId::of(&file.metadata()?);
        let inner = redb::backends::FileBackend::new(file).map_err(io::Error::other)?;
        Ok(Self::new(Box::new(inner), FileState::new(Some((path.to_path_buf(), id)))))
    }

    /// Guards anything else that redb can work on.
    pub(super) fn other(inner: Box<dyn StorageBackend>) -> Self {
        Self::new(inner, FileState::new(None))
    }

    fn new(inner: Box<dyn StorageBackend>, state: Arc<FileState>) -> Self {
        Self(Arc::new(Guarded {
            inner,
            state,
            staged: AtomicBool::new(false),
            journal: Mutex::default(),
            lock_wait: None,
            planted: Planted::default(),
            #[cfg(any(test, feature = "testing"))]
            faults: Faults::default(),
        }))
    }

    /// Makes these mistakes. Called before the backend is used.
    pub(super) fn with_planted(mut self, planted: Planted) -> Self {
        if let Some(guarded) = Arc::get_mut(&mut self.0) {
            guarded.planted = planted;
        }
        self
    }

    /// Lets these faults happen. Called before the backend is used.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn with_faults(mut self, faults: &Faults) -> Self {
        if let Some(guarded) = Arc::get_mut(&mut self.0) {
            guarded.faults = faults.clone();
        }
        self
    }

    /// Waits this long for locks of other processes. Called before the backend is used.
    pub(super) fn with_lock_wait(mut self, wait: Option<Duration>) -> Self {
        if let Some(guarded) = Arc::get_mut(&mut self.0) {
            guarded.lock_wait = wait;
        }
        self
    }

    /// Keeps all changes back until [`go_live`](Self::go_live). Called before the backend is used.
    pub(super) fn staged(self) -> Self {
        self.0.staged.store(true, Ordering::Release);
        self
    }

    pub(super) fn state(&self) -> &Arc<FileState> {
        &self.0.state
    }

    /// Makes the changes that were kept back, in their order, and from now on every change at once.
    ///
    /// After an error nothing more is written: what is on the disk is what a crash at that point had left.
    pub(super) fn go_live(&self) -> io::Result<()> {
        let mut journal = self.0.journal.lock();
        for change in std::mem::take(&mut *journal).into_changes() {
            match change {
                Change::Write { offset, data } => self.0.write_now(offset, &data)?,
                Change::SetLen(len) => self.0.set_len_now(len)?,
                Change::Sync => self.0.sync_now()?,
            }
        }
        self.0.staged.store(false, Ordering::Release);
        Ok(())
    }

    /// Forgets the changes that were kept back and refuses all others: redb's attempts to tidy up
    /// while it closes fail at once.
    pub(super) fn discard(&self) {
        self.0.state.failed.store(true, Ordering::Release);
    }
}

impl Guarded {
    fn write_now(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.state.writes.fetch_add(1, Ordering::Relaxed);
        self.state.bytes_written.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.change(Op::Write, || self.inner.write(offset, data))
    }

    fn set_len_now(&self, len: u64) -> io::Result<()> {
        self.state.resizes.fetch_add(1, Ordering::Relaxed);
        self.change(Op::SetLen, || self.inner.set_len(len))
    }

    fn sync_now(&self) -> io::Result<()> {
        self.state.syncs.fetch_add(1, Ordering::Relaxed);
        if self.planted.is(Plant::SyncLeftOut) {
            return Ok(());
        }
        self.change(Op::Sync, || self.inner.sync_data())
    }

    /// Makes one change, unless an earlier one failed: what follows a failed sync could be durable
    /// without what came before it.
    fn change<R>(&self, op: Op, f: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        if self.state.failed() {
            return Err(io::Error::other("an earlier input or output of this store failed"));
        }
        self.latch(self.run(op, f))
    }

    fn keep_back(&self, change: Change) -> io::Result<()> {
        if self.state.failed() {
            return Err(io::Error::other("the file is not to be opened after all"));
        }
        self.journal.lock().push(change);
        Ok(())
    }

    /// Does one thing, or fails as a test said.
    #[cfg_attr(
        not(any(test, feature = "testing")),
        allow(clippy::unused_self, reason = "only tests have faults")
    )]
    fn run<R>(&self, op: Op, f: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        #[cfg(any(test, feature = "testing"))]
        return self.faults.run(op, f);
        #[cfg(not(any(test, feature = "testing")))]
        {
            let _ = op;
            f()
        }
    }

    fn latch<R>(&self, result: io::Result<R>) -> io::Result<R> {
        if result.is_err() && !self.planted.is(Plant::PoisonLeftOut) {
            self.state.failed.store(true, Ordering::Release);
        }
        result
    }

    /// Every entry asks this first, before it touches a lock that another thread may have held at
    /// the fork.
    fn check_process(&self) -> io::Result<()> {
        if self.state.is_inherited() {
            return Err(io::Error::other(self.state.inherited()));
        }
        Ok(())
    }

    fn is_staged(&self) -> bool {
        self.staged.load(Ordering::Acquire)
    }

    /// Waits for a lock, within bounds: a process that was stopped while it had it must not stop this one.
    fn lock_waiting(&self, mut f: impl FnMut() -> Result<bool, BackendError>) -> Result<(), BackendError> {
        let mut pause = Pauses::new(self.lock_wait.unwrap_or(Duration::from_millis(WRITE_WAIT_MS_DEFAULT)));
        while !self.lock(&mut f)? {
            if !pause.take() {
                return Err(io::Error::other(Stuck).into());
            }
        }
        Ok(())
    }

    fn lock(&self, f: impl FnOnce() -> Result<bool, BackendError>) -> Result<bool, BackendError> {
        self.check_process()?;
        self.run(Op::Lock, || Ok(()))?;
        let got = f()?;
        if got {
            self.state.locked.store(true, Ordering::Release);
        }
        Ok(got)
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.check_process()?;
        if self.0.is_staged() {
            return self.0.latch(self.0.journal.lock().len(&*self.0.inner));
        }
        self.0.latch(self.0.inner.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.check_process()?;
        self.0.state.reads.fetch_add(1, Ordering::Relaxed);
        self.0.latch(self.0.run(Op::Read, || {
            if self.0.is_staged() {
                return self.0.journal.lock().read(&*self.0.inner, offset, out);
            }
            self.0.inner.read(offset, out)
        }))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.check_process()?;
        if self.0.is_staged() {
            return self.0.keep_back(Change::SetLen(len));
        }
        self.0.set_len_now(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.check_process()?;
        if self.0.is_staged() {
            return self.0.keep_back(Change::Sync);
        }
        self.0.sync_now()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.check_process()?;
        if self.0.is_staged() {
            return self.0.keep_back(Change::Write { offset, data: data.to_vec() });
        }
        self.0.write_now(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.check_process()?;
        self.0.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.lock(|| self.0.inner.try_lock_range(start, end))
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.lock(|| self.0.inner.try_lock_shared_range(start, end))
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_waiting(|| self.0.inner.try_lock_range(start, end))
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_waiting(|| self.0.inner.try_lock_shared_range(start, end))
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.check_process()?;
        self.0.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.check_process()?;
        self.0.inner.query_lock_range(start, end)
    }
}

//! Opening a store's file: safely, alone, and without a trace when it fails.
//!
//! One process has a store open at a time; the lock is on the file itself, so another name of the same
//! file (a hard link) is refused too. Files on network file systems get no special handling: where they
//! have locks the rules hold as far as those do, where they have none the file is refused.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{self, Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use redb::backends::InMemoryBackend;
use redb::{ConcurrencyMode, Database, DatabaseError, StorageBackend, WriteTransaction};
use rustix::fs::Advice;
use rustix::io::Errno;

use super::backend::{Backend, FileId, FileState};
use super::fault::{before_commit, io_fault};
#[cfg(any(test, feature = "testing"))]
use super::inject::Faults;
use super::plant::Planted;
use super::{create, holder, timer};
use crate::limits::{CACHE_LEN_DEFAULT, OPEN_POLL_MS_MAX};
use crate::{Error, ErrorKind, Result};

/// What makes a redb file a store: how its tables begin, and how it is recognised.
pub(crate) trait Format {
    /// What recognising it finds out, such as its id.
    type Found;

    /// Makes the tables of a new store. Committed durably afterwards, or not at all.
    fn begin(&self, txn: &WriteTransaction) -> Result<()>;

    /// Recognises a store, reading only. Fails with `Incompatible` for another program's database.
    fn recognise(&self, db: &Database) -> Result<Self::Found>;
}

/// How to open.
#[derive(Clone)]
pub(crate) struct Options {
    /// Whether a store is made where there is no file. `false` for reopening: a store that is gone must
    /// not come back empty.
    pub(crate) create: bool,
    /// The page cache in bytes.
    pub(crate) cache_len: usize,
    /// Whether every page is verified first.
    pub(crate) verify: bool,
    /// Told the progress, 0.0 to 1.0, of a repair after a crash, should one be needed.
    pub(crate) progress: Option<Arc<dyn Fn(f64) + Send + Sync>>,
    /// How long to wait for another process that has the store open as well, if that may be.
    pub(crate) shared_wait: Option<Duration>,
    /// The mistakes to make, for tests.
    pub(crate) planted: Planted,
    /// The faults to inject.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) faults: Faults,
}

/// An open store's database, alone: no other process has it.
pub(crate) struct Opened<T> {
    pub(crate) db: Handle,
    pub(crate) state: Arc<FileState>,
    pub(crate) found: T,
}

/// The database of an open store. Dropping it in a forked child touches nothing.
///
/// In the process that opened it, dropping closes the database and hides errors: prefer
/// [`close`](Self::close).
pub(crate) struct Handle {
    // Empty only once it was closed.
    db: Option<Database>,
    state: Arc<FileState>,
}

/// Opens the store at `path`, making it first if there is no file and the options say so.
///
/// A failed opening leaves whatever is at the path unchanged, byte for byte. A new store appears whole
/// or not at all, and its folder entry is durable when this returns.
///
/// Errors: `Invalid` (a folder, no such folder, no permission), `Busy` (another process has it, named in
/// the message), `Incompatible` (no store, or another format), `Corrupt`, `Poisoned` (the disk failed or
/// is full).
pub(crate) fn open<F: Format>(path: &Path, options: &Options, format: &F) -> Result<Opened<F::Found>> {
    let path = absolute(path)?;
    // A file can be made, or replaced, between our looks at it; three such meetings are no accident.
    for _ in 0..3 {
        match fs::metadata(&path) {
            Ok(meta) => check_type(&path, &meta)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                check_absent(&path, options.create)?;
                create::create(&path, options, format)?;
            }
            Err(error) => return Err(path_fault(&path, error)),
        }
        if let Some(opened) = open_existing(&path, options, format)? {
            return Ok(opened);
        }
    }
    let message =
        format!("{} keeps being replaced by another process; stop it, then open again", path.display());
    Err(Error::busy(message, Duration::from_millis(OPEN_POLL_MS_MAX)))
}

/// Opens the store at `path` as one of several processes.
///
/// First alone, as always: a file that is no store is refused before a byte of it changes, what a crash has left is
/// repaired, a new store appears whole. If others have it open they have done so, and it is opened beside them.
fn open_shared<F: Format>(path: &Path, options: &Options, format: &F) -> Result<Opened<F::Found>> {
    let path = absolute(path)?;
    let alone = Options { shared_wait: None, ..options.clone() };
    match open(&path, &alone, format) {
        Ok(opened) => opened.db.close()?,
        Err(error) if error.kind() == ErrorKind::Busy => {}
        Err(error) => return Err(error),
    }
    // Verified alone, or by whoever opened it alone; nobody can beside others.
    let beside = Options { verify: false, ..options.clone() };
    open_existing(&path, &beside, format)?.ok_or_else(|| in_use(&path, None))
}

/// Opens as [`open`] does, waiting up to `wait` for another process (or an older handle) to let go of it.
///
/// For rolling restarts. Errors: those of [`open`]; `Busy` only after the wait.
pub(crate) fn open_wait<F: Format>(
    path: &Path,
    options: &Options,
    format: &F,
    wait: Duration,
) -> Result<Opened<F::Found>> {
    // Whoever opens it alone to look at it is soon done, and that is no reason to be refused.
    let wait = wait.max(options.shared_wait.unwrap_or_default());
    // No deadline: the wait is longer than time goes.
    let deadline = timer::now().checked_add(wait);
    let mut pause = Duration::from_millis(5);
    loop {
        let opened = match options.shared_wait {
            None => open(path, options, format),
            Some(_) => open_shared(path, options, format),
        };
        let busy = match opened {
            Err(error) if error.kind() == ErrorKind::Busy => error,
            result => return result,
        };
        let left = deadline.map_or(pause, |deadline| deadline.saturating_duration_since(timer::now()));
        if left.is_zero() {
            return Err(busy);
        }
        #[expect(clippy::disallowed_methods, reason = "another process's lock rings no bell")]
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(OPEN_POLL_MS_MAX));
    }
}

/// Opens a store that lives in memory only and ends with its handle.
pub(crate) fn in_memory<F: Format>(options: &Options, format: &F) -> Result<Opened<F::Found>> {
    on_backend(Box::new(InMemoryBackend::new()), options, format)
}

/// Opens or makes a store on any redb backend, such as a simulated disk or a host's byte store.
///
/// There is no rename there to make creation atomic: a database without any table is taken for a
/// creation that did not finish, and is made again.
pub(crate) fn on_backend<F: Format>(
    inner: Box<dyn StorageBackend>,
    options: &Options,
    format: &F,
) -> Result<Opened<F::Found>> {
    let backend = options.guard(Backend::other(inner)).staged();
    let state = Arc::clone(backend.state());
    if backend.len().map_err(io_fault)? == 0 {
        backend.go_live().map_err(io_fault)?;
    }
    let db = contained(&backend, || {
        let db = options.builder().create_with_backend(backend.clone()).map_err(before_commit)?;
        if create::is_bare(&db)? {
            backend.go_live().map_err(io_fault)?;
            create::begin(&db, format)?;
        }
        let found = format.recognise(&db)?;
        Ok((db, found))
    });
    let (db, found) = db?;
    live(&backend, Opened { db: Handle { db: Some(db), state: Arc::clone(&state) }, state, found })
}

/// Drops the file's pages from the system's cache, so that what is read next is what the disk has.
///
/// After a failed sync reads still show bytes that the disk does not have. Called before reopening,
/// while no handle is open.
pub(crate) fn drop_page_cache(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(|error| path_fault(path, error))?;
    // A page that waits to be written cannot be dropped. Whether this works does not matter: a failed
    // write leaves the page clean, and so does one that succeeds.
    let _ = file.sync_data();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(|errno| io_fault(errno.into()))
}

/// The error for a path that could not be opened, read or made.
pub(super) fn path_fault(path: &Path, error: io::Error) -> Error {
    let path = path.display();
    let invalid = |what: &str| Error::invalid(format!("{path} {what}"));
    let mapped = match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => invalid("does not exist; make its folder, or name the right file"),
        Some(Errno::ACCESS | Errno::PERM) => {
            invalid("may not be read, written or made by this user; give it the rights to file and folder")
        }
        Some(Errno::ROFS) => invalid("is on a read-only file system; a store has to be written"),
        Some(Errno::ISDIR | Errno::NOTDIR) => invalid("is a folder, or leads through a file; name a file"),
        Some(Errno::LOOP) => invalid("leads through symbolic links in a circle; name the file itself"),
        Some(Errno::NAMETOOLONG) => invalid("is too long a name; a store's file needs 30 bytes to spare"),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Error::busy(
            format!("{path} cannot be opened now: too many open files, or no memory; raise the limit"),
            Duration::from_millis(OPEN_POLL_MS_MAX),
        ),
        None if error.kind() == io::ErrorKind::InvalidInput => invalid("is no file name"),
        _ => return io_fault(error),
    };
    mapped.caused_by(error)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    // Absolute, so that a later change of the working folder does not change which file is watched.
    let path = path::absolute(path)
        .map_err(|error| Error::invalid("the store's path is empty; name a file").caused_by(error))?;
    if path.file_name().is_none() {
        return Err(Error::invalid(format!("{} is a folder; name a file in it", path.display())));
    }
    Ok(path)
}

fn check_type(path: &Path, meta: &fs::Metadata) -> Result<()> {
    let what = match meta.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a folder; name a file in it",
        _ => "no regular file; name one",
    };
    Err(Error::invalid(format!("{} is {what}", path.display())))
}

fn check_absent(path: &Path, create: bool) -> Result<()> {
    let shown = path.display();
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) {
        return Err(Error::invalid(format!("{shown} is a symbolic link to nothing; name the file itself")));
    }
    if !create {
        return Err(Error::invalid(format!(
            "there is no store at {shown}; name the right file, or restore it"
        )));
    }
    Ok(())
}

/// Opens the file there is; `None` if it stopped being the file at the path meanwhile.
fn open_existing<F: Format>(path: &Path, options: &Options, format: &F) -> Result<Option<Opened<F::Found>>> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(path_fault(path, error)),
    };
    check_type(path, &file.metadata().map_err(io_fault)?)?;
    check_magic(path, &file)?;
    let backend = options.guard(Backend::file(file, path).map_err(io_fault)?);
    // What is kept back while another process commits would undo its commit: beside others changes are made at once.
    let backend = if options.shared_wait.is_some() { backend } else { backend.staged() };
    let state = Arc::clone(backend.state());
    let db = match contained(&backend, || Ok(options.builder().create_with_backend(backend.clone()))) {
        Ok(Ok(db)) => db,
        Ok(Err(DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch)) => {
            // Closes our own handle, so that it is not found as the holder.
            let id = state.id();
            drop(backend);
            return Err(in_use(path, id));
        }
        Ok(Err(error)) => return Err(named(path, before_commit(error))),
        Err(error) => return Err(named(path, error)),
    };
    let opened = contained(&backend, || {
        let db = Handle { db: Some(db), state: Arc::clone(&state) };
        let found = format.recognise(&db)?;
        Ok(Opened { db, state: Arc::clone(&state), found })
    });
    let opened = opened.map_err(|error| named(path, error))?;
    if !state.locked() {
        backend.discard();
        let message = "is on a file system without locks: a second process could open it; move the store";
        return Err(Error::invalid(format!("{} {message}", path.display())));
    }
    if state.check_identity().is_err() {
        backend.discard();
        return Ok(None);
    }
    // Each time, not only when it is made: its maker may have died between the rename and the sync.
    create::sync_folder(path)?;
    live(&backend, opened).map(Some).map_err(|error| named(path, error))
}

/// Refuses what redb did not begin, so that redb never sees it.
fn check_magic(path: &Path, file: &File) -> Result<()> {
    let len = file.metadata().map_err(io_fault)?.len();
    let mut start = [0; MAGIC.len()];
    let start = start.split_at_mut(MAGIC.len().min(usize::try_from(len).unwrap_or(usize::MAX))).0;
    file.read_exact_at(start, 0).map_err(|error| path_fault(path, error))?;
    let shown = path.display();
    if start.is_empty() {
        let message = "is empty; if a store was here restore it, else remove the file: a store is never \
                       made over an existing file";
        return Err(Error::new(ErrorKind::Corrupt, format!("{shown} {message}")));
    }
    if !MAGIC.starts_with(start) {
        return Err(Error::new(ErrorKind::Incompatible, format!("{shown} is no store; name the right file")));
    }
    if start.len() < MAGIC.len() {
        let message = "was cut short; restore a copy of the store";
        return Err(Error::new(ErrorKind::Corrupt, format!("{shown} {message}")));
    }
    Ok(())
}

/// Runs redb on bytes that may be garbage: a panic is a damaged file, and any failure leaves no write.
///
/// Only a build that aborts on panic cannot be protected so.
fn contained<R>(backend: &Backend, f: impl FnOnce() -> Result<R>) -> Result<R> {
    let result = panic::catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Corrupt, "the file is damaged beyond what redb can read; restore a copy"))
    });
    if result.is_err() {
        backend.discard();
    }
    result
}

/// Lets the writes of a successful opening happen.
fn live<T>(backend: &Backend, opened: Opened<T>) -> Result<Opened<T>> {
    backend.go_live().map_err(io_fault)?;
    Ok(opened)
}

fn in_use(path: &Path, id: Option<FileId>) -> Error {
    let holder = match id.and_then(holder::find) {
        Some(pid) if pid == std::process::id() => format!("this process ({pid}), through another handle"),
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    };
    let message = format!("{} is in use by {holder}; wait for it to end, or stop it", path.display());
    Error::busy(message, Duration::from_millis(OPEN_POLL_MS_MAX))
}

/// The same error with the path in front.
fn named(path: &Path, error: Error) -> Error {
    Error::new(error.kind(), format!("{}: {}", path.display(), error.message())).caused_by(error)
}

impl Options {
    /// A database builder with these settings.
    pub(super) fn builder(&self) -> redb::Builder {
        let mut builder = Database::builder();
        builder.set_cache_size(self.cache_len);
        builder.set_check_integrity_on_open(self.verify);
        if self.shared_wait.is_some() {
            builder.set_concurrency_mode(ConcurrencyMode::MultiWriter);
        }
        let progress = self.progress.clone();
        builder.set_repair_callback(move |session| {
            let done = session.progress();
            tracing::info!(progress = done, "repairing a store that was not closed");
            let Some(progress) = &progress else { return };
            // A panic of the caller's must not look like a damaged file.
            if panic::catch_unwind(AssertUnwindSafe(|| progress(done))).is_err() {
                tracing::warn!("the progress callback panicked; the repair goes on");
            }
        });
        builder
    }

    pub(super) fn guard(&self, backend: Backend) -> Backend {
        let backend = backend.with_planted(self.planted);
        #[cfg(any(test, feature = "testing"))]
        let backend = backend.with_faults(&self.faults);
        backend.with_lock_wait(self.shared_wait)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            cache_len: CACHE_LEN_DEFAULT,
            verify: false,
            progress: None,
            shared_wait: None,
            planted: Planted::default(),
            #[cfg(any(test, feature = "testing"))]
            faults: Faults::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { create, cache_len, .. } = self;
        f.debug_struct("Options")
            .field("create", create)
            .field("cache_len", cache_len)
            .finish_non_exhaustive()
    }
}

impl Handle {
    /// Closes the database: all is flushed, the lock is gone when this returns.
    ///
    /// Errors: `Closed` in a forked child, which changes nothing; `Poisoned` if the last flush failed.
    pub(crate) fn close(mut self) -> Result<()> {
        self.state.check_process()?;
        let Some(db) = self.db.take() else { return Ok(()) };
        // After a panic inside it redb panics again on closing.
        panic::catch_unwind(AssertUnwindSafe(|| db.close().map_err(before_commit))).unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Poisoned, "redb panicked while it closed the store; check the disk"))
        })
    }
}

impl Deref for Handle {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.db.as_ref().expect("only close takes it, and close takes the handle with it")
    }
}

impl DerefMut for Handle {
    fn deref_mut(&mut self) -> &mut Database {
        self.db.as_mut().expect("only close takes it, and close takes the handle with it")
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.state.is_inherited() {
            // Another thread of the parent may have been inside redb at the fork: its locks are held for
            // ever here, and even a drop that the backend refuses could wait for them.
            std::mem::forget(self.db.take());
            return;
        }
        // Closing hides errors here, and a panic is one: redb panics if it panicked before.
        let db = self.db.take();
        drop(panic::catch_unwind(AssertUnwindSafe(|| drop(db))));
    }
}

impl<T: fmt::Debug> fmt::Debug for Opened<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("state", &self.state)
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}

/// The first bytes of every redb file.
pub(super) const MAGIC: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";

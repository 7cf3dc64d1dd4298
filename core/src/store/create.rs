//! Making a store: whole or not at all.
//!
//! It is built under another name in the same folder, made durable and closed, and only then renamed,
//! never over a file that exists. A crash leaves at most that other file, `<name>.new-<pid>-<random>`,
//! which nothing looks at and which may be removed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process;

use redb::{Database, ReadableDatabase};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use super::backend::Backend;
use super::fault::{before_commit, io_fault};
use super::file::{Format, Options, path_fault};
use crate::{Error, ErrorKind, Result};

/// Makes a store at `path`. If another process made one there first, theirs stays and this is no error.
///
/// Its folder entry is made durable by whoever opens it next.
pub(super) fn create<F: Format>(path: &Path, options: &Options, format: &F) -> Result<()> {
    let temporary = Temporary::new(path)?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary.0)
        .map_err(|error| path_fault(path, error))?;
    build(&temporary, &file, options, format)?;
    file.sync_all().map_err(io_fault)?;
    drop(file);
    publish(&temporary.0, path)
}

/// Makes the tables of a new store and makes them durable.
pub(super) fn begin<F: Format>(db: &Database, format: &F) -> Result<()> {
    let mut txn = db.begin_write().map_err(before_commit)?;
    txn.set_two_phase_commit(true);
    txn.set_quick_repair(true);
    format.begin(&txn)?;
    // Nobody was told of this store yet: an error here is no doubt, but the end of the attempt.
    txn.commit().map_err(before_commit)
}

/// Whether the database has no table at all.
pub(super) fn is_bare(db: &Database) -> Result<bool> {
    let txn = db.begin_read().map_err(before_commit)?;
    let tables = txn.list_tables().map_err(before_commit)?.next().is_some();
    let multimaps = txn.list_multimap_tables().map_err(before_commit)?.next().is_some();
    Ok(!tables && !multimaps)
}

/// Makes the folder's entries durable: without it a new file can vanish at a power loss.
///
/// A folder that this user may enter but not read cannot be synced, nor one on a file system that has
/// no such sync; both are let pass.
pub(super) fn sync_folder(path: &Path) -> Result<()> {
    // Where a link leads is where the file's name is.
    let path = fs::canonicalize(path).map_err(|error| path_fault(path, error))?;
    let Some(folder) = path.parent() else { return Ok(()) };
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    match synced.map_err(|error| (Errno::from_io_error(&error), error)) {
        Ok(()) | Err((Some(Errno::ACCESS | Errno::INVAL), _)) => Ok(()),
        Err((_, error)) => Err(io_fault(error)),
    }
}

fn build<F: Format>(temporary: &Temporary, file: &File, options: &Options, format: &F) -> Result<()> {
    let file = file.try_clone().map_err(|error| path_fault(&temporary.0, error))?;
    let backend = options.guard(Backend::file(file, &temporary.0).map_err(io_fault)?);
    let built = panic::catch_unwind(AssertUnwindSafe(|| {
        let db = options.builder().create_with_backend(backend).map_err(before_commit)?;
        begin(&db, format)?;
        db.close().map_err(before_commit)
    }));
    built.unwrap_or_else(|_| {
        let message = "making the store panicked; there is none now; report this";
        Err(Error::new(ErrorKind::Internal, message))
    })
}

/// Gives the finished file its name, unless there is one of that name by now.
fn publish(temporary: &Path, path: &Path) -> Result<()> {
    match rustix::fs::renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => publish_by_link(temporary, path),
        Err(errno) => Err(path_fault(path, errno.into())),
    }
}

/// The same where the file system has no such rename: a second name never replaces a file either.
///
/// The first name is removed by the caller.
fn publish_by_link(temporary: &Path, path: &Path) -> Result<()> {
    match fs::hard_link(temporary, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(path_fault(path, error)),
        _ => Ok(()),
    }
}

/// The file under construction; its name is removed at the end, whatever the end is.
struct Temporary(PathBuf);

impl Temporary {
    fn new(path: &Path) -> Result<Self> {
        let random = u128::from_le_bytes(crate::token::random_bytes()?);
        let mut name = path.file_name().map(OsString::from).unwrap_or_default();
        name.push(format!(".new-{}-{random:032x}", process::id()));
        Ok(Self(path.with_file_name(name)))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename there is nothing to remove.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_way_of_publishing_replaces_a_file() {
        for way in [publish, publish_by_link] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let (new, taken, free) =
                (folder.path().join("new"), folder.path().join("taken"), folder.path().join("free"));
            fs::write(&new, "new").expect("write");
            fs::write(&taken, "theirs").expect("write");
            way(&new, &taken).expect("losing is no error");
            assert_eq!(fs::read_to_string(&taken).expect("read"), "theirs");
            way(&new, &free).expect("there is room");
            assert_eq!(fs::read_to_string(&free).expect("read"), "new");
        }
    }
}

//! The lowest layer against a hostile world: files, folders, disks, processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use redb::{Database, ReadableDatabase, TableDefinition, WriteTransaction};
use tempfile::TempDir;

use super::fault::{at_commit, before_commit};
use super::file::{self, Format, Opened, Options};
use crate::{Error, ErrorKind, Result};

mod creation;
mod hostile;
mod medium;
mod process;

const META: TableDefinition<&[u8], &[u8]> = TableDefinition::new("meta");
const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");

/// A store of one row, and a table to write to.
struct Small;

impl Format for Small {
    type Found = Vec<u8>;

    fn begin(&self, txn: &WriteTransaction) -> Result<()> {
        let mut meta = txn.open_table(META).map_err(before_commit)?;
        meta.insert(&b"format"[..], &b"small"[..]).map_err(before_commit)?;
        txn.open_table(ROWS).map_err(before_commit)?;
        Ok(())
    }

    fn recognise(&self, db: &Database) -> Result<Vec<u8>> {
        let txn = db.begin_read().map_err(before_commit)?;
        let foreign = || Error::new(ErrorKind::Incompatible, "the file is another program's");
        let meta = txn.open_table(META).map_err(|error| foreign().caused_by(error))?;
        let row = meta.get(&b"format"[..]).map_err(before_commit)?;
        row.map(|row| row.value().to_vec()).ok_or_else(foreign)
    }
}

type Store = Opened<Vec<u8>>;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("store");
    (folder, path)
}

fn open(path: &Path) -> Result<Store> {
    file::open(path, &Options::default(), &Small)
}

fn refusal(path: &Path) -> Error {
    open(path).map(|store| panic!("{store:?} was opened")).unwrap_err()
}

fn put(store: &Store, row: &[u8]) -> Result<()> {
    let mut txn = store.db.begin_write().map_err(before_commit)?;
    txn.set_two_phase_commit(true);
    txn.set_quick_repair(true);
    txn.open_table(ROWS).map_err(before_commit)?.insert(row, row).map_err(before_commit)?;
    txn.commit().map_err(at_commit)
}

fn has(store: &Store, row: &[u8]) -> bool {
    let txn = store.db.begin_read().expect("open");
    let rows = txn.open_table(ROWS).expect("made with the store");
    rows.get(row).expect("readable").is_some()
}

/// A closed store with one row, and its bytes.
fn made(path: &Path) -> Vec<u8> {
    let store = open(path).expect("nothing is there yet");
    put(&store, b"kept").expect("a healthy disk");
    store.db.close().expect("a healthy disk");
    fs::read(path).expect("just made")
}

fn names(folder: &TempDir) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Starts this test program again as another process that runs only `process::helper`.
fn helper(role: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "store::tests::process::helper", "--nocapture", "--test-threads=1"])
        .env("KEYCLAIM_TEST_ROLE", role)
        .env("KEYCLAIM_TEST_PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program can be started")
}

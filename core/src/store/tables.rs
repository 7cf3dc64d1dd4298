//! redb's tables as [`Rows`]: all from bytes to bytes.
//!
//! | table | key | value |
//! |---|---|---|
//! | `records` | encoded id | record |
//! | `bodies` | encoded id, generation (8, big-endian) | bytes of a body over 16 KiB |
//! | `archive` | encoded id, generation (8, big-endian) | record of a failure whose key was used again |
//! | `due` | lane (1), due time in ms (8, big-endian), table (1), key in that table | empty |
//! | `outbox` | place, see [`outbox`](crate::outbox) | event |
//! | `app` | reserved | |
//! | `meta` | name | see [`meta`](super::meta) |

use std::ops::Bound;

use redb::{
    ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata, Table as RedbTable,
    TableDefinition, TableHandle, WriteTransaction,
};

use super::fault::before_commit;
use super::missing;
use super::plant::Planted;
use crate::rows::{Due, DueEntry, DueRow, Lane, Rows, Slot, Table};
use crate::{Error, ErrorKind, Millis, Result};

type Bytes = &'static [u8];
type Definition = TableDefinition<'static, Bytes, Bytes>;

pub(super) const META: Definition = TableDefinition::new("meta");
const RECORDS: Definition = TableDefinition::new("records");
const BODIES: Definition = TableDefinition::new("bodies");
const ARCHIVE: Definition = TableDefinition::new("archive");
const DUE: Definition = TableDefinition::new("due");
const OUTBOX: Definition = TableDefinition::new("outbox");
const APP: Definition = TableDefinition::new("app");
/// What the name of every later table of ours begins with.
const RESERVED: &str = "keyclaim";

/// Makes every table, so that a reader never meets a store without one.
pub(super) fn create_all(txn: &WriteTransaction) -> Result<()> {
    for definition in [META, RECORDS, BODIES, ARCHIVE, DUE, OUTBOX, APP] {
        txn.open_table(definition).map_err(before_commit)?;
    }
    Ok(())
}

/// Checks that a table is the caller's own by its name: all that keyclaim has or will have are refused.
pub(super) fn check_own(name: &str) -> Result<()> {
    let is_ours = [META, RECORDS, BODIES, ARCHIVE, DUE, OUTBOX, APP].iter().any(|ours| ours.name() == name);
    if is_ours || name.starts_with(RESERVED) || name.is_empty() {
        return Err(Error::invalid("the table's name is reserved for keyclaim; choose another"));
    }
    Ok(())
}

/// Checks that no table of a store is missing: a writer would make it anew, and its keys would be new.
pub(super) fn check_all(db: &impl redb::ReadableDatabase) -> Result<()> {
    let txn = db.begin_read().map_err(before_commit)?;
    let names: Vec<String> =
        txn.list_tables().map_err(before_commit)?.map(|table| table.name().to_owned()).collect();
    let has = |definition: &Definition| names.iter().any(|name| name == definition.name());
    if ![META, RECORDS, BODIES, ARCHIVE, DUE, OUTBOX, APP].iter().all(has) {
        return Err(Error::new(ErrorKind::Corrupt, "a table of the store is missing; restore a copy of it"));
    }
    Ok(())
}

/// The rows of a write transaction. Tables are opened when first touched: most groups need three.
pub(super) struct WriteRows<'txn> {
    txn: &'txn WriteTransaction,
    records: RedbTable<'txn, Bytes, Bytes>,
    due: RedbTable<'txn, Bytes, Bytes>,
    planted: Planted,
}

impl<'txn> WriteRows<'txn> {
    pub(super) fn open(txn: &'txn WriteTransaction, planted: Planted) -> Result<Self> {
        let records = txn.open_table(RECORDS).map_err(before_commit)?;
        let due = txn.open_table(DUE).map_err(before_commit)?;
        Ok(Self { txn, records, due, planted })
    }

    /// The mistakes that are made with them.
    pub(super) fn planted(&self) -> Planted {
        self.planted
    }
}

impl Rows for WriteRows<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = match table {
            Table::Records => value(table, &self.records, key),
            Table::Bodies | Table::Archive | Table::Outbox | Table::App => {
                value(table, &self.txn.open_table(definition(table)).map_err(before_commit)?, key)
            }
        };
        Ok(value?.map(|bytes| self.planted.read(table, key, bytes)))
    }

    fn put(&mut self, table: Table, key: &[u8], bytes: &[u8], due: Due) -> Result<()> {
        match table {
            Table::Records => drop(self.records.insert(key, bytes).map_err(before_commit)?),
            Table::Bodies | Table::Archive | Table::Outbox | Table::App => {
                let mut table = self.txn.open_table(definition(table)).map_err(before_commit)?;
                table.insert(key, bytes).map_err(before_commit)?;
            }
        }
        self.move_due(table, key, due)
    }

    fn delete(&mut self, table: Table, key: &[u8], due_was: Option<Slot>) -> Result<()> {
        match table {
            Table::Records => drop(self.records.remove(key).map_err(before_commit)?),
            Table::Bodies | Table::Archive | Table::Outbox | Table::App => {
                let mut table = self.txn.open_table(definition(table)).map_err(before_commit)?;
                table.remove(key).map_err(before_commit)?;
            }
        }
        self.move_due(table, key, Due { was: due_was, is: None })
    }

    fn move_due(&mut self, table: Table, key: &[u8], due: Due) -> Result<()> {
        if due.was == due.is {
            return Ok(());
        }
        if let Some(was) = due.was {
            self.due.remove(due_key(was, table, key).as_slice()).map_err(before_commit)?;
        }
        if let Some(is) = due.is {
            self.due.insert(due_key(is, table, key).as_slice(), &[][..]).map_err(before_commit)?;
        }
        Ok(())
    }

    fn next(&self, table: Table, after: &[u8], before: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match table {
            Table::Records => next(&self.records, after, before),
            table => next(&self.txn.open_table(definition(table)).map_err(before_commit)?, after, before),
        }
    }

    fn due_before(&self, last: Slot, after: Option<&[u8]>, limit: usize) -> Result<Vec<DueEntry>> {
        due_before(&self.due, last, after, limit)
    }
}

/// The rows of one snapshot. Never handed out: a forgotten snapshot makes the file grow without end.
pub(super) struct ReadRows {
    txn: ReadTransaction,
    records: ReadOnlyTable<Bytes, Bytes>,
    planted: Planted,
}

impl ReadRows {
    pub(super) fn open(txn: ReadTransaction, planted: Planted) -> Result<Self> {
        let records = txn.open_table(RECORDS).map_err(before_commit)?;
        Ok(Self { txn, records, planted })
    }

    /// The mistakes that are made with them.
    pub(super) fn planted(&self) -> Planted {
        self.planted
    }

    /// How many events there are.
    pub(super) fn outbox_len(&self) -> Result<u64> {
        self.txn.open_table(OUTBOX).map_err(before_commit)?.len().map_err(before_commit)
    }

    /// The snapshot, for the caller's own tables.
    pub(super) fn txn(&self) -> &ReadTransaction {
        &self.txn
    }

    /// Calls `look` with the records from `start` on until it says enough.
    pub(super) fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        mut look: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        for row in self.records.range::<&[u8]>(start..end).map_err(before_commit)? {
            let (key, bytes) = row.map_err(before_commit)?;
            if !look(key.value(), bytes.value())? {
                break;
            }
        }
        Ok(())
    }
}

impl Rows for ReadRows {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = match table {
            Table::Records => value(table, &self.records, key),
            Table::Bodies | Table::Archive | Table::Outbox | Table::App => {
                value(table, &self.txn.open_table(definition(table)).map_err(before_commit)?, key)
            }
        };
        Ok(value?.map(|bytes| self.planted.read(table, key, bytes)))
    }

    fn put(&mut self, _: Table, _: &[u8], _: &[u8], _: Due) -> Result<()> {
        Err(read_only())
    }

    fn delete(&mut self, _: Table, _: &[u8], _: Option<Slot>) -> Result<()> {
        Err(read_only())
    }

    fn move_due(&mut self, _: Table, _: &[u8], _: Due) -> Result<()> {
        Err(read_only())
    }

    fn next(&self, table: Table, after: &[u8], before: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match table {
            Table::Records => next(&self.records, after, before),
            table => next(&self.txn.open_table(definition(table)).map_err(before_commit)?, after, before),
        }
    }

    fn due_before(&self, last: Slot, after: Option<&[u8]>, limit: usize) -> Result<Vec<DueEntry>> {
        due_before(&self.txn.open_table(DUE).map_err(before_commit)?, last, after, limit)
    }
}

fn value(table: Table, rows: &impl ReadableTable<Bytes, Bytes>, key: &[u8]) -> Result<Option<Vec<u8>>> {
    match rows.get(key).map_err(before_commit)? {
        Some(bytes) => Ok(Some(bytes.value().to_vec())),
        None => missing::check(table, rows, key).map(|()| None),
    }
}

fn next(
    table: &impl ReadableTable<Bytes, Bytes>,
    after: &[u8],
    before: &[u8],
) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    // redb panics on a range that ends before it starts.
    if after >= before {
        return Ok(None);
    }
    let range = (Bound::Excluded(after), Bound::Excluded(before));
    let row =
        table.range::<&[u8]>(range).map_err(before_commit)?.next().transpose().map_err(before_commit)?;
    Ok(row.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())))
}

fn due_before(
    table: &impl ReadableTable<Bytes, Bytes>,
    last: Slot,
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<DueEntry>> {
    let lane = due_prefix(last);
    // From the lane's own byte on, so that a damaged entry is met and not hidden.
    let first = lane.get(..1).unwrap_or_default();
    // The bytes behind the time begin with a table's tag, and none is so high.
    let end = [&lane[..], &[u8::MAX]].concat();
    let start = after.map_or(Bound::Included(first), Bound::Excluded);
    // redb panics on a range that ends before it starts.
    if after.is_some_and(|after| after >= end.as_slice()) {
        return Ok(Vec::new());
    }
    let rows = table.range::<&[u8]>((start, Bound::Excluded(end.as_slice()))).map_err(before_commit)?;
    rows.take(limit)
        .map(|row| {
            let (key, _) = row.map_err(before_commit)?;
            Ok(DueEntry { place: key.value().to_vec(), row: split_due_key(key.value()) })
        })
        .collect()
}

fn definition(table: Table) -> Definition {
    match table {
        Table::Records => RECORDS,
        Table::Bodies => BODIES,
        Table::Archive => ARCHIVE,
        Table::Outbox => OUTBOX,
        Table::App => APP,
    }
}

fn due_key(slot: Slot, table: Table, key: &[u8]) -> Vec<u8> {
    let tag = match table {
        Table::Records => 0,
        Table::Archive => 1,
        Table::Bodies => 2,
        Table::Outbox => 3,
        Table::App => 4,
    };
    [&due_prefix(slot)[..], &[tag], key].concat()
}

fn due_prefix(slot: Slot) -> Vec<u8> {
    let lane = match slot.lane {
        Lane::Unfinished => 0,
        Lane::Finished => 1,
        Lane::Outbox => 2,
        Lane::Dead => 3,
    };
    [&[lane], &slot.when.0.to_be_bytes()[..]].concat()
}

/// None if it is no entry that this version writes: one bad entry must not hide the others.
fn split_due_key(bytes: &[u8]) -> Option<DueRow> {
    let (lane, rest) = bytes.split_first()?;
    let lane =
        [Lane::Unfinished, Lane::Finished, Lane::Outbox, Lane::Dead].into_iter().nth(usize::from(*lane))?;
    let (when, rest) = rest.split_first_chunk::<8>()?;
    let (table, key) = match rest {
        [0, key @ ..] => (Table::Records, key),
        [1, key @ ..] => (Table::Archive, key),
        [3, key @ ..] => (Table::Outbox, key),
        _ => return None,
    };
    let slot = Slot { lane, when: Millis(u64::from_be_bytes(*when)) };
    Some(DueRow { slot, table, key: key.to_vec() })
}

fn read_only() -> Error {
    Error::new(ErrorKind::Internal, "a snapshot was written to")
}

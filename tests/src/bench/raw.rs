//! The engine alone: the same rows in the same tables, with the same durability, and nothing else.

use std::path::Path;

use keyclaim::limits::CACHE_LEN_DEFAULT;
use keyclaim::machine::Record;
use keyclaim::{Id, Store, codec};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::load;

type Table = TableDefinition<'static, &'static [u8], &'static [u8]>;

const RECORDS: Table = TableDefinition::new("records");
const DUE: Table = TableDefinition::new("due");
const META: Table = TableDefinition::new("meta");
const OTHERS: [Table; 4] = [
    TableDefinition::new("bodies"),
    TableDefinition::new("archive"),
    TableDefinition::new("outbox"),
    TableDefinition::new("app"),
];
const KEY_NOW: &[u8] = b"now";
/// Rows of one transaction when a store is filled (arbitrary: few commits, little memory).
const FILL_ROWS: u64 = 20_000;

/// The rows that one claim leaves, taken from a store that made it.
pub(super) struct Template {
    record: Vec<u8>,
    due: Vec<u8>,
    now: Vec<u8>,
}

impl Template {
    /// What a store writes for a claim that is won.
    pub(super) fn of_claim(folder: &Path) -> Self {
        Self::made(folder, "claim.template", false)
    }

    /// What is left of a claim that is complete.
    pub(super) fn of_complete(folder: &Path) -> Self {
        Self::made(folder, "complete.template", true)
    }

    fn made(folder: &Path, name: &str, complete: bool) -> Self {
        let path = folder.join(name);
        Self::of(load::open(&path), &path, complete)
    }

    /// What is left of a complete claim in this new store, which is closed.
    pub(super) fn of(store: Store, path: &Path, complete: bool) -> Self {
        let claim = load::win(&store, &load::request(load::id(0)));
        if complete {
            claim.complete(&load::outcome()).expect("the claim is ours");
        }
        drop(claim);
        store.close().expect("the store closes");
        let db = open(path);
        let only = |table: Table| {
            let txn = db.begin_read().expect("a snapshot");
            let table = txn.open_table(table).expect("the store's own table");
            let (key, value) = table.first().expect("a read").expect("one row");
            (key.value().to_vec(), value.value().to_vec())
        };
        let txn = db.begin_read().expect("a snapshot");
        let meta = txn.open_table(META).expect("the store's own table");
        let now = meta.get(KEY_NOW).expect("a read").expect("the store's time").value().to_vec();
        Self { record: only(RECORDS).1, due: only(DUE).0, now }
    }

    /// The record itself.
    pub(super) fn record(&self) -> Record {
        codec::decode(&load::id(0).encode(), &self.record).expect("a store's own record")
    }

    /// The key in the due index of an id: as long as the store's, and as late.
    fn due(&self, id: &[u8]) -> Vec<u8> {
        // One byte that names the lane, 8 of time and one that names the table.
        [&self.due[..10], id].concat()
    }
}

/// A database without a store.
pub(super) struct Raw {
    db: Database,
    template: Template,
}

impl Raw {
    /// Makes one with a store's tables.
    pub(super) fn create(path: &Path, template: Template) -> Self {
        let db = Database::builder().set_cache_size(CACHE_LEN_DEFAULT).create(path).expect("a new database");
        let txn = db.begin_write().expect("a transaction");
        for table in [RECORDS, DUE, META].into_iter().chain(OTHERS) {
            txn.open_table(table).expect("a new table");
        }
        txn.commit().expect("a commit");
        Self { db, template }
    }

    /// The rows of one claim, made before they are written.
    pub(super) fn prepare(&self, id: &Id) -> (Vec<u8>, Vec<u8>) {
        let id = id.encode();
        let due = self.template.due(&id);
        (id, due)
    }

    /// Makes the rows of one claim and writes them.
    pub(super) fn commit_claim(&self, id: &Id) {
        let (id, due) = self.prepare(id);
        self.commit(&id, &due);
    }

    /// Writes them in a transaction of their own, as durable as a store's.
    pub(super) fn commit(&self, id: &[u8], due: &[u8]) {
        let mut txn = self.db.begin_write().expect("a transaction");
        txn.set_two_phase_commit(true);
        txn.set_quick_repair(true);
        insert(&txn, RECORDS, id, &self.template.record);
        insert(&txn, DUE, due, &[]);
        insert(&txn, META, KEY_NOW, &self.template.now);
        txn.commit().expect("a commit");
    }
}

/// Reads from a closed store's file.
pub(super) struct RawReader(Database);

impl RawReader {
    pub(super) fn open(path: &Path) -> Self {
        Self(open(path))
    }

    /// The length of a record that is there.
    pub(super) fn record_len(&self, id: &[u8]) -> usize {
        self.look(id, |bytes| std::hint::black_box(bytes).len())
    }

    /// The bytes of a record that is there.
    pub(super) fn record(&self, id: &[u8]) -> Vec<u8> {
        self.look(id, <[u8]>::to_vec)
    }

    fn look<R>(&self, id: &[u8], look: impl FnOnce(&[u8]) -> R) -> R {
        let txn = self.0.begin_read().expect("a snapshot");
        let table = txn.open_table(RECORDS).expect("the store's own table");
        let record = table.get(id).expect("a read").expect("the record");
        look(record.value())
    }
}

/// Fills the closed store at this path with complete records, numbered from 1.
///
/// Written straight into its tables, as its format has them: through the store a million lives would
/// take minutes, and leave the same rows. All have the same token, which a store would not give twice.
pub(super) fn fill(path: &Path, template: &Template, records: u64) {
    let record = template.record();
    fill_with(path, records, |_| (&record, &template.due[1..9]));
}

/// Fills the closed store with the records that are given for each number, due at these bytes of time.
pub(super) fn fill_with<'a>(path: &Path, records: u64, record: impl Fn(u64) -> (&'a Record, &'a [u8])) {
    let db = open(path);
    let mut next = 1;
    while next <= records {
        let end = records.min(next + FILL_ROWS - 1);
        let mut txn = db.begin_write().expect("a transaction");
        let durability = if end == records { Durability::Immediate } else { Durability::None };
        txn.set_durability(durability).expect("one process has it");
        {
            let mut table = txn.open_table(RECORDS).expect("the store's own table");
            let mut due = txn.open_table(DUE).expect("the store's own table");
            for number in next..=end {
                let id = load::id(number).encode();
                let (record, when) = record(number);
                let bytes = codec::encode(&id, record).expect("a valid record");
                table.insert(id.as_slice(), bytes.as_slice()).expect("a row");
                // Lane 1: finished; table 0: records.
                let place = [&[1], when, &[0], &id].concat();
                due.insert(place.as_slice(), &[][..]).expect("a row");
            }
        }
        txn.commit().expect("a commit");
        next = end + 1;
    }
    db.close().expect("the database closes");
}

fn open(path: &Path) -> Database {
    Database::builder().set_cache_size(CACHE_LEN_DEFAULT).open(path).expect("the store's file")
}

fn insert(txn: &WriteTransaction, table: Table, key: &[u8], value: &[u8]) {
    txn.open_table(table).expect("a table").insert(key, value).expect("a row");
}

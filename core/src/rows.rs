//! What an engine implements, and how a verdict becomes rows: the same for redb and for SQL.
//!
//! An engine reads, decides and writes inside one atomic step. All rows of a command are made
//! before the first is written, so a command that cannot be stored touches nothing (P3).

use crate::key::Id;
use crate::limits::BODY_INLINE_LEN_MAX;
use crate::machine::{
    Answer, Blob, Body, Change, Changes, Command, Decision, Facts, Record, Refusal, State, Verdict,
};
use crate::writes::Version;
use crate::{Error, ErrorKind, Generation, Millis, Result};
use crate::{app, codec, outbox};

/// The tables of a store, all from bytes to bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Table {
    /// Encoded id to record.
    Records,
    /// Encoded id and generation (8 bytes, big-endian) to the bytes of a large body.
    Bodies,
    /// Encoded id and generation to a finished failure whose key was used again.
    Archive,
    /// Place to an event that is not yet acknowledged; see [`outbox`].
    Outbox,
    /// Table and key of the caller's to a version and a value; see [`app`].
    App,
}

/// The lanes of the due index: whoever reads one never reads past what is another's work.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Lane {
    /// Records that are in flight or held.
    Unfinished,
    /// Records that are complete, and archived ones.
    Finished,
    /// Events that a relay may publish.
    Outbox,
    /// Events that no relay publishes until a person says so.
    Dead,
}

/// A place in the due index.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Slot {
    /// Its lane.
    pub lane: Lane,
    /// When the row is due.
    pub when: Millis,
}

/// Rows inside one atomic step of an engine.
pub trait Rows {
    /// The value of a row.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Sets a row and moves its entry in the due index.
    fn put(&mut self, table: Table, key: &[u8], value: &[u8], due: Due) -> Result<()>;

    /// Removes a row, if it is there, and its entry in the due index.
    fn delete(&mut self, table: Table, key: &[u8], due_was: Option<Slot>) -> Result<()>;

    /// Moves a row's entry in the due index, or removes it, and leaves the row as it is.
    fn move_due(&mut self, table: Table, key: &[u8], due: Due) -> Result<()>;

    /// The first row of a table whose key is greater than `after` and less than `before`.
    fn next(&self, table: Table, after: &[u8], before: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>>;

    /// The first entries of one lane of the due index at or before `last.when`, at most `limit`, earliest
    /// first; those behind the place `after`, if one is given.
    fn due_before(&self, last: Slot, after: Option<&[u8]>, limit: usize) -> Result<Vec<DueEntry>>;
}

/// One entry of the due index.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DueEntry {
    /// Its place in the index, to go on behind it. What it looks like is the engine's own affair.
    pub place: Vec<u8>,
    /// The row that is due; none if the entry is damaged.
    pub row: Option<DueRow>,
}

/// A row that is due.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DueRow {
    /// Its place, by the index.
    pub slot: Slot,
    /// Its table.
    pub table: Table,
    /// Its key.
    pub key: Vec<u8>,
}

/// A row's place in the due index before and after.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Due {
    /// Where it was, if the row was there and in the index.
    pub was: Option<Slot>,
    /// Where it is to be.
    pub is: Option<Slot>,
}

/// One write of a plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Write {
    /// Set a row.
    Put {
        /// Its table.
        table: Table,
        /// Its key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// Its place in the due index.
        due: Due,
    },
    /// Remove a row.
    Delete {
        /// Its table.
        table: Table,
        /// Its key.
        key: Vec<u8>,
        /// Its place in the due index before.
        due_was: Option<Slot>,
    },
    /// Move a row's entry in the due index only.
    MoveDue {
        /// Its table.
        table: Table,
        /// Its key.
        key: Vec<u8>,
        /// Its place in the due index.
        due: Due,
    },
}

/// The record of an encoded id. Its body stays where it is; see [`fill`].
pub fn load(rows: &impl Rows, id: &[u8]) -> Result<Option<Record>> {
    rows.get(Table::Records, id)?.map(|bytes| codec::decode(id, &bytes)).transpose()
}

/// Puts the bytes of a large body back into an answer, from the same snapshot its record came from.
///
/// Errors: `Corrupt` if they are missing or are not those the record was written with.
pub fn fill(rows: &impl Rows, id: &[u8], answer: &mut Answer) -> Result<()> {
    let Answer::Decision(Decision::Replay(replay)) = answer else {
        return Ok(());
    };
    let generation = replay.generation;
    fill_body(rows, id, generation, &mut replay.response.body)
}

/// Puts the bytes of one body back, if they are in a row of their own.
pub fn fill_body(rows: &impl Rows, id: &[u8], generation: Generation, body: &mut Body) -> Result<()> {
    let Body::Apart { len, hash } = *body else {
        return Ok(());
    };
    let bytes = rows.get(Table::Bodies, &with_generation(id, generation))?;
    match bytes {
        Some(bytes) if bytes.len() as u64 == len && *blake3::hash(&bytes).as_bytes() == hash => {
            *body = Body::Here(Blob(bytes));
            Ok(())
        }
        _ => Err(Error::new(
            ErrorKind::Corrupt,
            "a stored body is missing or damaged; stop, check the store and restore it",
        )),
    }
}

/// What a verdict comes to once the rows it rests on were read: what is said, and all that is written.
#[derive(Debug)]
pub struct Enacted {
    /// What is said.
    pub answer: std::result::Result<Answer, Refusal>,
    /// All writes, complete before the first of them is done.
    pub writes: Vec<Write>,
    /// Whether the token was used up.
    pub took_token: bool,
}

/// Joins a verdict with the writes that came with its command. If a condition of theirs does not hold,
/// nothing of the command happens.
///
/// `before` is the record as it is stored now, also if it is past its horizon.
pub fn enact(
    rows: &impl Rows,
    id: &[u8],
    before: Option<&Record>,
    command: &Command,
    verdict: Verdict,
    facts: Facts,
) -> Result<Enacted> {
    let Verdict { answer, changes } = verdict;
    let wanted = command.writes().filter(|_| changes.with_writes);
    let took_token = changes.took_token;
    let emits = match &changes.record {
        Change::Put(record) => Some((record.generation, record.events)),
        Change::Keep | Change::Delete => None,
    };
    let mut writes = plan(id, before, changes)?;
    let (Some(wanted), Some((generation, events))) = (wanted, emits) else {
        return Ok(Enacted { answer, writes, took_token });
    };
    match app::plan(rows, &wanted.rows, Version(facts.next_token.0))? {
        Ok(rows) => writes.extend(rows),
        Err(conflict) => {
            let answer = Ok(Answer::Conflict(conflict));
            return Ok(Enacted { answer, writes: Vec::new(), took_token: false });
        }
    }
    if !wanted.events.is_empty() {
        let first = events.saturating_sub(wanted.events_len());
        let id = Id::decode(id)?;
        let (order, now_ms) = (facts.next_token, facts.now_ms);
        let events = &wanted.events;
        writes.extend(outbox::plan(rows, id.scope(), generation, first, order, now_ms, events)?);
    }
    Ok(Enacted { answer, writes, took_token })
}

/// All writes that changes mean for one id, complete before the first of them is done.
///
/// `before` is the record as it is stored now, also if it is past its horizon.
pub fn plan(id: &[u8], before: Option<&Record>, changes: Changes) -> Result<Vec<Write>> {
    let mut writes = Vec::new();
    let due_was = before.map(Record::due);
    let mut kept_bodies = Vec::new();
    if let Some(archived) = changes.archive {
        let key = with_generation(id, archived.generation);
        let due = Due { was: None, is: Some(archived_slot(&archived)) };
        let value = codec::encode(&key, &archived)?;
        if body(&archived).is_some_and(is_apart) {
            kept_bodies.push(key.clone());
        }
        writes.push(Write::Put { table: Table::Archive, key, value, due });
    }
    match changes.record {
        Change::Keep => return Ok(writes),
        Change::Delete => {
            if before.is_some() {
                writes.push(Write::Delete { table: Table::Records, key: id.to_vec(), due_was });
            }
        }
        Change::Put(mut record) => {
            if let Some(write) = move_body_apart(id, &mut record) {
                writes.push(write);
            }
            if body(&record).is_some_and(is_apart) {
                kept_bodies.push(with_generation(id, record.generation));
            }
            let due = Due { was: due_was, is: Some(record.due()) };
            let value = codec::encode(id, &record)?;
            writes.push(Write::Put { table: Table::Records, key: id.to_vec(), value, due });
        }
    }
    if let Some(before) = before.filter(|before| body(before).is_some_and(is_apart)) {
        let key = with_generation(id, before.generation);
        if !kept_bodies.contains(&key) {
            writes.push(Write::Delete { table: Table::Bodies, key, due_was: None });
        }
    }
    Ok(writes)
}

/// Where an archived record is due.
pub fn archived_slot(archived: &Record) -> Slot {
    Slot { lane: Lane::Finished, when: archived.horizon_until_ms() }
}

/// All writes that remove one row of the archive, whose place in the due index this is.
pub fn plan_unarchive(key: &[u8], archived: &Record, due_was: Slot) -> Vec<Write> {
    let mut writes = vec![Write::Delete { table: Table::Archive, key: key.to_vec(), due_was: Some(due_was) }];
    // A body's row has the key that its record has in the archive.
    if body(archived).is_some_and(is_apart) {
        writes.push(Write::Delete { table: Table::Bodies, key: key.to_vec(), due_was: None });
    }
    writes
}

/// Does the writes of a plan.
pub fn apply(rows: &mut impl Rows, writes: &[Write]) -> Result<()> {
    writes.iter().try_for_each(|write| match write {
        Write::Put { table, key, value, due } => rows.put(*table, key, value, *due),
        Write::Delete { table, key, due_was } => rows.delete(*table, key, *due_was),
        Write::MoveDue { table, key, due } => rows.move_due(*table, key, *due),
    })
}

/// The key of a body's or an archived record's row.
pub fn with_generation(id: &[u8], generation: Generation) -> Vec<u8> {
    [id, &generation.0.to_be_bytes()].concat()
}

/// The one body a record has: the request until it is complete, then the response.
fn body(record: &Record) -> Option<&Body> {
    match &record.state {
        State::Complete { outcome, .. } => Some(&outcome.response.body),
        State::InFlight { .. } | State::Held { .. } => record.request.as_ref(),
    }
}

fn move_body_apart(id: &[u8], record: &mut Record) -> Option<Write> {
    let generation = record.generation;
    let body = match &mut record.state {
        State::Complete { outcome, .. } => &mut outcome.response.body,
        State::InFlight { .. } | State::Held { .. } => record.request.as_mut()?,
    };
    let Body::Here(bytes) = body else {
        return None;
    };
    if bytes.0.len() <= BODY_INLINE_LEN_MAX {
        return None;
    }
    let value = std::mem::take(&mut bytes.0);
    *body = Body::Apart { len: value.len() as u64, hash: *blake3::hash(&value).as_bytes() };
    let key = with_generation(id, generation);
    Some(Write::Put { table: Table::Bodies, key, value, due: Due::default() })
}

fn is_apart(body: &Body) -> bool {
    matches!(body, Body::Apart { .. })
}

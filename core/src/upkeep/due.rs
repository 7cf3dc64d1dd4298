//! What is to be done about one row that the due index names: plain functions over rows.

use crate::machine::{self, Answer, Command, Facts, Record, Swept};
use crate::rows::{self, Due, DueRow, Rows, Slot, Table, Write};
use crate::{Error, ErrorKind, Millis, Result, Token, codec};

/// One row's turn: what it comes to, and the writes that do it.
pub(crate) struct Turn {
    pub(crate) step: Step,
    pub(crate) writes: Vec<Write>,
}

/// What becomes of a row that is due.
#[derive(Debug)]
pub(crate) enum Step {
    /// It stays: it lives in this process, or it is due for somebody else.
    NotDue,
    /// The record is removed.
    Removed,
    /// The record keeps no body and no headers.
    Tombstoned,
    /// The archived failure is removed.
    Unarchived,
    /// It stays, and is marked as reported.
    Unfinished {
        /// The record, as it is before the mark.
        record: Box<Record>,
    },
    /// The index was wrong about the row, which stays or was gone before.
    Reindexed,
}

/// What is to be done about this row at this instant. `lives_here` says whether the owner of the record,
/// with this token, is a claim of this process.
pub(crate) fn turn(
    rows: &impl Rows,
    row: &DueRow,
    now_ms: Millis,
    lives_here: impl FnOnce(Token) -> bool,
) -> Result<Turn> {
    match row.table {
        Table::Records => record(rows, row, now_ms, lives_here),
        Table::Archive => archived(rows, row),
        Table::Bodies | Table::Outbox | Table::App => Err(Error::new(
            ErrorKind::Corrupt,
            "a row is in the wrong lane of the due index; check the store",
        )),
    }
}

fn record(
    rows: &impl Rows,
    row: &DueRow,
    now_ms: Millis,
    lives_here: impl FnOnce(Token) -> bool,
) -> Result<Turn> {
    let before = match rows::load(rows, &row.key)? {
        Some(record) if record.due() == row.slot => record,
        // Left where it is the entry would be read in every pass for ever.
        other => return Ok(reindex(row, other.map(|record| record.due()))),
    };
    let owner_lives_here = lives_here(before.token);
    // A sweep gives no token.
    let facts = Facts { now_ms, next_token: Token(0), owner_lives_here };
    let verdict = machine::decide(Some(&before), &Command::Sweep, facts);
    let step = match verdict.answer.map_err(Error::from)? {
        Answer::Swept(Swept::Tombstone) => Step::Tombstoned,
        Answer::Swept(Swept::Removed) => Step::Removed,
        Answer::Swept(Swept::Unfinished) => Step::Unfinished { record: Box::new(before.clone()) },
        _ => Step::NotDue,
    };
    Ok(Turn { step, writes: rows::plan(&row.key, Some(&before), verdict.changes)? })
}

fn archived(rows: &impl Rows, row: &DueRow) -> Result<Turn> {
    let stored = rows.get(Table::Archive, &row.key)?;
    let archived = stored.map(|bytes| codec::decode(&row.key, &bytes)).transpose()?;
    match archived {
        Some(archived) if rows::archived_slot(&archived) == row.slot => {
            Ok(Turn { step: Step::Unarchived, writes: rows::plan_unarchive(&row.key, &archived, row.slot) })
        }
        other => Ok(reindex(row, other.map(|archived| rows::archived_slot(&archived)))),
    }
}

fn reindex(row: &DueRow, is: Option<Slot>) -> Turn {
    let due = Due { was: Some(row.slot), is };
    Turn {
        step: Step::Reindexed,
        writes: vec![Write::MoveDue { table: row.table, key: row.key.clone(), due }],
    }
}

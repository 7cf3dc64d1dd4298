//! The step's transaction in SQLite, under BEGIN IMMEDIATE.
//!
//! SQLite has one writer at a time. BEGIN IMMEDIATE takes that place before anything else, so between `enter`
//! and COMMIT no other attempt can be there. A plain BEGIN takes it at the first write: the same as long as
//! that is `enter`, but once somebody reads in front of it, it can fail there (`SQLITE_BUSY_SNAPSHOT`) without
//! ever waiting. A process that dies gives up its place, and what it had not committed is gone.

use std::path::Path;
use std::time::Duration;

use keyclaim::machine::StepResult;
use keyclaim::{Call, Token};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::{Failure, Row, columns, judge, signed};

/// The tables: [`open`] makes them if they are not there.
pub const SCHEMA: &str = include_str!("../schema/sqlite.sql");

/// Inserts or raises, never lowers.
pub const ENTER: &str = "INSERT INTO keyclaim_effects AS seen (downstream_key, token) VALUES (?1, ?2) \
    ON CONFLICT (downstream_key) DO UPDATE SET token = max(seen.token, excluded.token) \
    RETURNING token, state, result";

/// Writes the step's result.
pub const LEAVE: &str =
    "UPDATE keyclaim_effects SET state = ?2, result = ?3, noted_at = unixepoch() WHERE downstream_key = ?1";

/// Opens the database as these statements need it, and makes the tables if they are not there.
///
/// *Durability*: `synchronous = FULL`. With NORMAL, WAL's usual companion, a power cut can take back a
/// commit whose step the store has already recorded as done: answered, and not there.
pub fn open(path: &Path) -> Result<Connection, Failure> {
    let conn = Connection::open(path)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.execute_batch(SCHEMA)?;
    Ok(conn)
}

/// Runs `business` in a transaction that at most one attempt of the intent ever commits; returns its result,
/// or that of the attempt that has done it.
///
/// `business` answers `Done` with what it wrote, `Refused` (what it wrote is taken back, the refusal stays),
/// or `NotSent` (everything is taken back). On an error nobody knows whether it was committed: ask.
pub fn once(
    conn: &mut Connection,
    call: &Call,
    token: Token,
    business: impl FnOnce(&Transaction<'_>) -> Result<StepResult, Failure>,
) -> Result<StepResult, Failure> {
    let txn = begin(conn, call.limit)?;
    if let Some(known) = enter(&txn, &call.downstream_key, token)? {
        return Ok(known);
    }
    txn.execute_batch("SAVEPOINT business")?;
    let result = business(&txn)?;
    let Some((state, bytes)) = columns(&result) else { return Ok(result) };
    if state != "done" {
        txn.execute_batch("ROLLBACK TO business")?;
    }
    let rows = txn.execute(LEAVE, (&call.downstream_key, state, bytes))?;
    if rows != 1 {
        return Err(Failure::Foreign("the row of keyclaim_effects is gone; stop what deletes from it"));
    }
    txn.commit()?;
    Ok(result)
}

/// Tells what became of the intent's step, and leaves it so: after `NotSent` no attempt with a lower token
/// can commit it any more, however late its transaction comes.
///
/// A transaction that is under way is waited for, up to the limit.
pub fn ask(conn: &mut Connection, call: &Call, token: Token) -> Result<StepResult, Failure> {
    settle(conn, &call.downstream_key, token, call.limit)
}

/// Like [`ask`], for a person who resolves a claim, and under the token that was seen with it: that attempt
/// cannot commit the step any more either. Its key is [`keyclaim::downstream_key`].
///
/// Say this before `resolve_absent`, `forget` or `resolve_resumable`. The next claim of a key that was made
/// new is another intent, with another downstream key: it would not meet this row.
pub fn close(
    conn: &mut Connection,
    downstream_key: &str,
    seen: Token,
    limit: Duration,
) -> Result<StepResult, Failure> {
    settle(conn, downstream_key, seen.next(), limit)
}

fn settle(
    conn: &mut Connection,
    downstream_key: &str,
    token: Token,
    limit: Duration,
) -> Result<StepResult, Failure> {
    let txn = begin(conn, limit)?;
    let known = enter(&txn, downstream_key, token)?;
    txn.commit()?;
    Ok(known.unwrap_or(StepResult::NotSent))
}

fn enter(txn: &Transaction<'_>, downstream_key: &str, token: Token) -> Result<Option<StepResult>, Failure> {
    let mine = signed(token)?;
    let row = txn.query_row(ENTER, (downstream_key, mine), |row| {
        Ok(Row { token: row.get(0)?, state: row.get(1)?, result: row.get(2)? })
    })?;
    judge(mine, row)
}

/// A transaction that waits for its place no longer than the limit.
fn begin(conn: &mut Connection, limit: Duration) -> Result<Transaction<'_>, Failure> {
    conn.busy_timeout(limit)?;
    Ok(conn.transaction_with_behavior(TransactionBehavior::Immediate)?)
}

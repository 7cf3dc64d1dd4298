//! The step's transaction in PostgreSQL, at READ COMMITTED.
//!
//! `enter` is an `INSERT .. ON CONFLICT DO UPDATE`, so it always ends up holding the lock of the intent's row.
//! If another transaction holds it, it waits until that one has committed or rolled back, and then sees what
//! it left: at READ COMMITTED `DO UPDATE` works on the newest committed version of the row, whatever the
//! statement's snapshot. At REPEATABLE READ or SERIALIZABLE it would fail instead (40001), which is safe and
//! tedious; so the level is named here, and a database whose default is another one changes nothing.

use std::time::Duration;

use keyclaim::machine::StepResult;
use keyclaim::{Call, Token};
use postgres::{Client, IsolationLevel, Transaction};

use crate::{Failure, Row, columns, judge, signed};

/// The tables: [`Client::batch_execute`] makes them if they are not there.
pub const SCHEMA: &str = include_str!("../schema/postgres.sql");

/// Inserts or raises, never lowers; the row stays locked until the transaction ends.
pub const ENTER: &str = "INSERT INTO keyclaim_effects AS seen (downstream_key, token) VALUES ($1, $2) \
    ON CONFLICT (downstream_key) DO UPDATE SET token = greatest(seen.token, excluded.token) \
    RETURNING token, state, result";

/// Writes the step's result.
pub const LEAVE: &str =
    "UPDATE keyclaim_effects SET state = $2, result = $3, noted_at = now() WHERE downstream_key = $1";

/// Runs `business` in a transaction that at most one attempt of the intent ever commits; returns its result,
/// or that of the attempt that has done it.
///
/// `business` answers `Done` with what it wrote, `Refused` (what it wrote is taken back, the refusal stays),
/// or `NotSent` (everything is taken back). On an error nobody knows whether it was committed: ask.
pub fn once(
    client: &mut Client,
    call: &Call,
    token: Token,
    business: impl FnOnce(&mut Transaction<'_>) -> Result<StepResult, Failure>,
) -> Result<StepResult, Failure> {
    let mut txn = begin(client, call.limit)?;
    if let Some(known) = enter(&mut txn, &call.downstream_key, token)? {
        return Ok(known);
    }
    let mut work = txn.transaction()?;
    let result = business(&mut work)?;
    let Some((state, bytes)) = columns(&result) else { return Ok(result) };
    let ended = if state == "done" { work.commit() } else { work.rollback() };
    ended?;
    let rows = txn.execute(LEAVE, &[&call.downstream_key, &state, &bytes])?;
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
pub fn ask(client: &mut Client, call: &Call, token: Token) -> Result<StepResult, Failure> {
    settle(client, &call.downstream_key, token, call.limit)
}

/// Like [`ask`], for a person who resolves a claim, and under the token that was seen with it: that attempt
/// cannot commit the step any more either. Its key is [`keyclaim::downstream_key`].
///
/// Say this before `resolve_absent`, `forget` or `resolve_resumable`. The next claim of a key that was made
/// new is another intent, with another downstream key: it would not meet this row.
pub fn close(
    client: &mut Client,
    downstream_key: &str,
    seen: Token,
    limit: Duration,
) -> Result<StepResult, Failure> {
    settle(client, downstream_key, seen.next(), limit)
}

fn settle(
    client: &mut Client,
    downstream_key: &str,
    token: Token,
    limit: Duration,
) -> Result<StepResult, Failure> {
    let mut txn = begin(client, limit)?;
    let known = enter(&mut txn, downstream_key, token)?;
    txn.commit()?;
    Ok(known.unwrap_or(StepResult::NotSent))
}

fn enter(
    txn: &mut Transaction<'_>,
    downstream_key: &str,
    token: Token,
) -> Result<Option<StepResult>, Failure> {
    let mine = signed(token)?;
    let row = txn.query_one(ENTER, &[&downstream_key, &mine])?;
    judge(mine, Row { token: row.try_get(0)?, state: row.try_get(1)?, result: row.try_get(2)? })
}

/// A transaction that the server ends by itself: a client that is cut off, or stuck, does not hold the row
/// for ever. That it keeps to the limit is a courtesy to whoever waits; what is safe does not hang on it.
fn begin(client: &mut Client, limit: Duration) -> Result<Transaction<'_>, Failure> {
    let mut txn = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start()?;
    // Zero would mean no limit.
    let limit_ms = limit.as_millis().clamp(1, 86_400_000);
    txn.batch_execute(&format!(
        "SET LOCAL statement_timeout = {limit_ms}; SET LOCAL idle_in_transaction_session_timeout = {limit_ms}"
    ))?;
    Ok(txn)
}

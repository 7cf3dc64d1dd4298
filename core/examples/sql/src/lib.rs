//! A step of a claim that is one transaction in PostgreSQL or SQLite: never applied twice, also when the
//! process is killed between the SQL commit and the store's.
//!
//! keyclaim's store and the SQL database are two stores, so there are two commits, and a process can die
//! between them. What closes the gap is a row that commits *with* the business data (table
//! `keyclaim_effects` in `schema/`), and three statements on it:
//!
//! ```text
//! enter   first in the transaction: insert (downstream key, token), or raise the token of the row that is
//!         there; locks the row till the end of the transaction and tells what is known
//! leave   last in the transaction: the step's result into that row, then COMMIT
//! ask     enter, then COMMIT: a SELECT that leaves its token behind
//! ```
//!
//! Copy [`postgres`] or [`sqlite`], and this file's [`Failure`] and rule of judgement; [`order`] shows how a
//! handler uses them. The reasons, and what each database has to be set to, are in core/docs/sql.md.

pub mod order;
pub mod postgres;
pub mod sqlite;

use std::error::Error as StdError;
use std::fmt;

use keyclaim::Token;
use keyclaim::machine::{Blob, StepResult};

/// Why a step has no result. After [`Failure::Overtaken`] nothing was written; after the others nobody knows.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// A newer attempt has been here: stop, and drop what was worked out.
    Overtaken {
        /// Its token.
        by: Token,
    },
    /// The database failed, or did not answer in time.
    Sql(Box<dyn StdError + Send + Sync>),
    /// The table holds what these statements never write: another program writes to it.
    Foreign(&'static str),
}

/// What the row of an intent says after `enter`.
struct Row {
    token: i64,
    state: String,
    result: Option<Vec<u8>>,
}

/// The one rule of both databases: what is there has happened and is answered, whoever asks; if nothing has,
/// only the attempt whose token stands in the row may do it.
fn judge(mine: i64, row: Row) -> Result<Option<StepResult>, Failure> {
    match (row.state.as_str(), row.result) {
        ("done", Some(bytes)) => Ok(Some(StepResult::Done(Blob(bytes)))),
        ("refused", Some(bytes)) => Ok(Some(StepResult::Refused(Blob(bytes)))),
        ("open", None) if row.token == mine => Ok(None),
        ("open", None) if row.token > mine => Err(Failure::Overtaken { by: Token(row.token.unsigned_abs()) }),
        _ => Err(Failure::Foreign("a row of keyclaim_effects is none of ours; stop what writes to it")),
    }
}

/// The columns `state` and `result` of a step that ended; none for one that was not sent.
fn columns(result: &StepResult) -> Option<(&'static str, &[u8])> {
    match result {
        StepResult::Done(Blob(bytes)) => Some(("done", bytes)),
        StepResult::Refused(Blob(bytes)) => Some(("refused", bytes)),
        StepResult::NotSent => None,
    }
}

/// SQL's integers are signed. A store reaches half of them after 2^63 attempts: never.
fn signed(token: Token) -> Result<i64, Failure> {
    i64::try_from(token.0)
        .map_err(|_| Failure::Foreign("the token is larger than a bigint; nothing was sent"))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overtaken { by } => write!(f, "attempt {by} has taken over; stop and drop the result"),
            // A driver's message can quote values, which are customer data: it is in `source` alone.
            Self::Sql(_) => f.write_str("the database failed, and the step may have happened; ask again"),
            Self::Foreign(what) => f.write_str(what),
        }
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Sql(error) => Some(error.as_ref()),
            Self::Overtaken { .. } | Self::Foreign(_) => None,
        }
    }
}

impl From<::postgres::Error> for Failure {
    fn from(error: ::postgres::Error) -> Self {
        Self::Sql(error.into())
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(
        mine: i64,
        token: i64,
        state: &str,
        result: Option<&[u8]>,
    ) -> Result<Option<StepResult>, Failure> {
        judge(mine, Row { token, state: state.into(), result: result.map(Into::into) })
    }

    #[test]
    fn what_happened_is_told_to_every_attempt() {
        for mine in [1, 2, 3] {
            let done = told(mine, 2, "done", Some(b"1"));
            assert_eq!(done.expect("known"), Some(StepResult::Done(Blob(b"1".to_vec()))));
            let refused = told(mine, 2, "refused", Some(b""));
            assert_eq!(refused.expect("known"), Some(StepResult::Refused(Blob(Vec::new()))));
        }
    }

    #[test]
    fn what_did_not_happen_is_left_to_the_newest_attempt() {
        assert_eq!(told(2, 2, "open", None).expect("mine"), None);
        assert!(matches!(told(1, 2, "open", None), Err(Failure::Overtaken { by: Token(2) })));
    }

    #[test]
    fn a_row_of_another_program_is_no_answer() {
        for (token, state, result) in
            [(1, "open", None), (2, "open", Some(&b"1"[..])), (2, "done", None), (2, "", None)]
        {
            assert!(matches!(told(2, token, state, result), Err(Failure::Foreign(_))), "{state}");
        }
        assert!(signed(Token(u64::MAX)).is_err());
    }
}

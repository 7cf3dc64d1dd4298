//! What a caller lets commit together with a claim, a checkpoint or an outcome: all of it or nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::{APP_KEY_LEN_MAX, APP_TABLE_LEN_MAX, APP_VALUE_LEN_MAX, WRITES_LEN_MAX, WRITES_MAX};
use crate::machine::Blob;
use crate::outbox::{self, Event};

/// Rows of the application and outbox events that commit with the command they are handed to, or not at all.
///
/// Rows are bytes under (table, key): tables need no making, and are the application's to name. Each row may be
/// named once. Conditions are checked against the same transaction, so that no other command comes between
/// check and write; if one does not hold, nothing of the command happens and the answer is a [`Conflict`].
///
/// A claim's own writes are applied once in a generation: with the first win that brings them, and neither when
/// that win is told again nor when it is taken over.
///
/// *Bounds*: 256 rows and events together, table 1 to 255 bytes, key 1 to 1,024, value up to 1 MiB,
/// 4 MiB in all.
#[derive(Clone, Default, Deserialize, Eq, PartialEq, Serialize)]
#[must_use]
pub struct Writes {
    pub(crate) rows: Vec<RowWrite>,
    pub(crate) events: Vec<Event>,
}

/// One row of the application, what must hold of it, and what becomes of it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct RowWrite {
    pub(crate) table: Blob,
    pub(crate) key: Blob,
    pub(crate) must: Must,
    pub(crate) then: Then,
}

/// What must hold of a row before.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Must {
    Anything,
    BeAbsent,
    BeAt(Version),
}

/// What becomes of a row.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Then {
    Stay,
    Become(Blob),
    Go,
}

/// Which writing of a row it is: another with every put, never used again, also not after a delete.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Version(pub u64);

/// A condition that did not hold. Nothing was written, and the command did not happen.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Conflict {
    /// Which of the rows it was, counted from 0 in the order they were added.
    pub row: usize,
    /// The version it has; none if it is absent.
    pub present: Option<Version>,
}

/// What became of a command that brought writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "a conflict means that nothing happened"]
pub enum Written<T = ()> {
    /// It happened, and all writes with it.
    Done(T),
    /// It did not happen, nor did any write: a condition did not hold.
    Conflict(Conflict),
}

impl Writes {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a row, whatever it was.
    pub fn put(self, table: &str, key: &[u8], value: &[u8]) -> Self {
        self.row(table, key, Must::Anything, Then::Become(value.into()))
    }

    /// Makes a row that must not be there.
    pub fn put_if_absent(self, table: &str, key: &[u8], value: &[u8]) -> Self {
        self.row(table, key, Must::BeAbsent, Then::Become(value.into()))
    }

    /// Sets a row that must be as it was read.
    pub fn put_if_version(self, table: &str, key: &[u8], read: Version, value: &[u8]) -> Self {
        self.row(table, key, Must::BeAt(read), Then::Become(value.into()))
    }

    /// Removes a row, if it is there.
    pub fn delete(self, table: &str, key: &[u8]) -> Self {
        self.row(table, key, Must::Anything, Then::Go)
    }

    /// Removes a row that must be as it was read.
    pub fn delete_if_version(self, table: &str, key: &[u8], read: Version) -> Self {
        self.row(table, key, Must::BeAt(read), Then::Go)
    }

    /// Leaves a row as it is, which must be as it was read: `None` means absent. For checks that rest on a
    /// row which is not written.
    pub fn require(self, table: &str, key: &[u8], read: Option<Version>) -> Self {
        self.row(table, key, read.map_or(Must::BeAbsent, Must::BeAt), Then::Stay)
    }

    /// Emits an event: it is in the outbox if and only if all else here is committed.
    pub fn emit(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Whether there is nothing in here.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.events.is_empty()
    }

    pub(crate) fn events_len(&self) -> u32 {
        u32::try_from(self.events.len()).unwrap_or(u32::MAX)
    }

    fn row(mut self, table: &str, key: &[u8], must: Must, then: Then) -> Self {
        self.rows.push(RowWrite { table: table.as_bytes().into(), key: key.into(), must, then });
        self
    }

    /// Checks lengths and counts, and that no row is named twice.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let fits = |fits: bool, reason| if fits { Ok(()) } else { Err(reason) };
        fits(
            self.rows.len() + self.events.len() <= WRITES_MAX,
            "over 256 rows and events in one command; write them in parts",
        )?;
        let mut len = 0;
        for row in &self.rows {
            fits(
                (1..=APP_TABLE_LEN_MAX).contains(&row.table.0.len()),
                "a table's name must have 1 to 255 bytes",
            )?;
            fits((1..=APP_KEY_LEN_MAX).contains(&row.key.0.len()), "a row's key must have 1 to 1,024 bytes")?;
            let value = if let Then::Become(value) = &row.then { value.0.len() } else { 0 };
            fits(value <= APP_VALUE_LEN_MAX, "a row's value is over 1 MiB; store it elsewhere")?;
            len += row.table.0.len() + row.key.0.len() + value;
        }
        outbox::check(&self.events)?;
        len += self.events.iter().map(|event| event.topic().len() + event.payload().len()).sum::<usize>();
        fits(
            len <= WRITES_LEN_MAX,
            "the rows and events of one command are over 4 MiB; write them in parts",
        )?;
        let mut places: Vec<_> = self.rows.iter().map(|row| (&row.table.0, &row.key.0)).collect();
        places.sort_unstable();
        let is_twice = places.windows(2).any(|pair| matches!(pair, [one, other] if one == other));
        fits(!is_twice, "a row is named twice in one command; say once what becomes of it")
    }
}

impl<T> Written<T> {
    /// The same with something else in place of what was done.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Written<U> {
        match self {
            Self::Done(done) => Written::Done(map(done)),
            Self::Conflict(conflict) => Written::Conflict(conflict),
        }
    }

    /// Whether it happened.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

impl fmt::Debug for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys and values are customer data.
        write!(f, "Writes({} rows, {} events)", self.rows.len(), self.events.len())
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.present {
            Some(version) => write!(f, "row {} is at version {}", self.row, version.0),
            None => write!(f, "row {} is absent", self.row),
        }
    }
}

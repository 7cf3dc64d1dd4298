//! The application's rows, outside of claims: read, listed, and written by themselves.

use super::Store;
use crate::app::{self, AppRow};
use crate::limits::{APP_KEY_LEN_MAX, APP_TABLE_LEN_MAX, PAGE_ROWS_MAX};
use crate::rows::{Rows, Table};
use crate::{Error, Result, Version, Writes, Written};

/// One page of a table's rows.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AppPage {
    /// Keys and rows, in the order of the keys' bytes.
    pub rows: Vec<(Vec<u8>, AppRow)>,
    /// Ask for the page after this key; none if this was the last one.
    pub next: Option<Vec<u8>>,
}

impl Store {
    /// The application's row under this table and key, as it was committed last; none if it is absent.
    ///
    /// Errors: `Invalid` (a name out of bounds), `Closed`, `Poisoned`, `Corrupt` (the row is damaged).
    pub fn app_row(&self, table: &str, key: &[u8]) -> Result<Option<AppRow>> {
        check_table(table)?;
        if !(1..=APP_KEY_LEN_MAX).contains(&key.len()) {
            return Err(Error::invalid("a row's key must have 1 to 1,024 bytes"));
        }
        self.running.shared.read(|rows| app::get(rows, table.as_bytes(), key))
    }

    /// One page of a table's rows after `after`, at most `rows_max` (and 1,000) of them, from one snapshot.
    ///
    /// Errors: those of [`Store::app_row`].
    pub fn app_rows(&self, table: &str, after: Option<&[u8]>, rows_max: usize) -> Result<AppPage> {
        check_table(table)?;
        if rows_max == 0 {
            return Err(Error::invalid("a page of no rows would never end; ask for one or more"));
        }
        // Keys are not empty, so no row is at the place itself, and none is above a key that is too long.
        let start = app::place(table.as_bytes(), &[]);
        let end = app::place(table.as_bytes(), &[u8::MAX; APP_KEY_LEN_MAX + 1]);
        let mut place = app::place(table.as_bytes(), after.unwrap_or_default());
        self.running.shared.read(|rows| {
            let mut page = AppPage::default();
            while let Some((found, bytes)) = rows.next(Table::App, &place, &end)? {
                if page.rows.len() == rows_max.min(PAGE_ROWS_MAX) {
                    page.next = page.rows.last().map(|(key, _)| key.clone());
                    break;
                }
                let row = app::decode(&found, &bytes)?;
                page.rows.push((found.get(start.len()..).unwrap_or_default().to_vec(), row));
                place = found;
            }
            Ok(page)
        })
    }

    /// Writes rows of the application by themselves, such as those that claims rest on: all of them or none.
    /// Returns the version they have from now on.
    ///
    /// It is no claim: asked again after `Unknown` it is a second writing, so bind it to the version that was
    /// read. Events are `Invalid` here, since they are named by the claim they come from.
    ///
    /// *Durability*: on disk when this returns. *Errors*: `Invalid`, `Unknown`, `Closed`, `Poisoned`, `Corrupt`.
    pub fn write(&self, writes: &Writes) -> Result<Written<Version>> {
        self.transaction(|t| match t.write(writes)? {
            Written::Done(version) => Ok(Written::Done(version)),
            Written::Conflict(conflict) => Err(Refused::Conflict(conflict)),
        })
        .or_else(|refused| match refused {
            Refused::Conflict(conflict) => Ok(Written::Conflict(conflict)),
            Refused::Error(error) => Err(error),
        })
    }
}

/// Why the transaction of a plain write is given up.
enum Refused {
    Conflict(crate::Conflict),
    Error(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

fn check_table(table: &str) -> Result<()> {
    if (1..=APP_TABLE_LEN_MAX).contains(&table.len()) {
        return Ok(());
    }
    Err(Error::invalid("a table's name must have 1 to 255 bytes"))
}

//! The application's rows: bytes under (table, key), for callers without tables of their own in redb.
//!
//! | part | bytes |
//! |---|---|
//! | key of the row | length of the table's name (1), the name, the key |
//! | value of the row | as a record's, with the payload: version (8, big-endian), the value |

use crate::Result;
use crate::codec::{self, Kind};
use crate::rows::{Due, Rows, Table, Write};
use crate::writes::{Conflict, Must, RowWrite, Then, Version};

/// A row of the application.
#[derive(Clone, Eq, PartialEq)]
pub struct AppRow {
    /// Which writing of the row it is, for a condition on it.
    pub version: Version,
    /// Its value.
    pub value: Vec<u8>,
}

/// The row under this table and key.
pub(crate) fn get(rows: &impl Rows, table: &[u8], key: &[u8]) -> Result<Option<AppRow>> {
    let place = place(table, key);
    rows.get(Table::App, &place)?.map(|bytes| decode(&place, &bytes)).transpose()
}

/// All writes of the application's rows, complete before the first is done; or the first condition that does
/// not hold. `version` is what the rows have from now on.
pub(crate) fn plan(
    rows: &impl Rows,
    wanted: &[RowWrite],
    version: Version,
) -> Result<std::result::Result<Vec<Write>, Conflict>> {
    let mut writes = Vec::new();
    for (at, row) in wanted.iter().enumerate() {
        // A row without a condition is not read: one that is damaged can still be replaced.
        let holds = match row.must {
            Must::Anything => Ok(()),
            Must::BeAbsent => present(rows, row)?.map_or(Ok(()), |present| Err(Some(present))),
            Must::BeAt(wanted) => match present(rows, row)? {
                Some(present) if present == wanted => Ok(()),
                other => Err(other),
            },
        };
        if let Err(present) = holds {
            return Ok(Err(Conflict { row: at, present }));
        }
        let key = place(&row.table.0, &row.key.0);
        match &row.then {
            Then::Stay => {}
            Then::Become(value) => {
                let value = encode(&key, version, &value.0);
                writes.push(Write::Put { table: Table::App, key, value, due: Due::default() });
            }
            Then::Go => writes.push(Write::Delete { table: Table::App, key, due_was: None }),
        }
    }
    Ok(Ok(writes))
}

fn present(rows: &impl Rows, row: &RowWrite) -> Result<Option<Version>> {
    Ok(get(rows, &row.table.0, &row.key.0)?.map(|row| row.version))
}

/// The key of a row: no two pairs of table and key share one, and a table is one range.
pub(crate) fn place(table: &[u8], key: &[u8]) -> Vec<u8> {
    let len = u8::try_from(table.len()).expect("checked: a table's name has at most 255 bytes");
    [&[len], table, key].concat()
}

fn encode(place: &[u8], version: Version, value: &[u8]) -> Vec<u8> {
    codec::seal(Kind::App, place, &[&version.0.to_be_bytes()[..], value].concat())
}

pub(crate) fn decode(place: &[u8], bytes: &[u8]) -> Result<AppRow> {
    let payload = codec::unseal(Kind::App, place, bytes)?;
    let (version, value) = payload.split_first_chunk::<8>().ok_or_else(|| codec::corrupt("too short"))?;
    Ok(AppRow { version: Version(u64::from_be_bytes(*version)), value: value.to_vec() })
}

impl std::fmt::Debug for AppRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values are customer data.
        write!(f, "AppRow(version {}, {} bytes)", self.version.0, self.value.len())
    }
}

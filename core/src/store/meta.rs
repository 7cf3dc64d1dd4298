//! What a store knows of itself.
//!
//! | row of `meta` | value | written |
//! |---|---|---|
//! | `format` | `keyclaim`, format number (4, big-endian) | at creation |
//! | `store id` | 16 random bytes | at creation |
//! | `upkeep reaper`, `upkeep completer` | process that does it (16 random bytes), until when (store time in ms, 8, big-endian), checksum (8) | with [`Sharing::Processes`](super::Sharing::Processes), by the process that does it |
//! | `now` | highest token used (8, big-endian), store time (see [`Saved`]), checksum (8) | with every group |

use redb::{ReadableTable, TableError, WriteTransaction};

use super::elect::{Part, Post, ProcessId};
use super::fault::before_commit;
use super::tables::META;
use crate::clock::Saved;
use crate::hash::{Domain, first_bytes};
use crate::{Error, ErrorKind, Millis, Result, StoreId, Token};

/// The number of today's format. Every keyclaim opens all older ones and refuses newer ones.
const FORMAT: u32 = 1;
const FORMAT_NAME: &[u8] = b"keyclaim";
const KEY_FORMAT: &[u8] = b"format";
const KEY_STORE_ID: &[u8] = b"store id";
const KEY_NOW: &[u8] = b"now";
const SUM_LEN: usize = 8;

pub(super) type MetaTable<'txn> = redb::Table<'txn, &'static [u8], &'static [u8]>;

static NOW: Domain = Domain::new("keyclaim 2026 meta checksum v1");

/// What changes with every group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Now {
    pub(super) token: Token,
    pub(super) time: Saved,
}

/// Writes what a new store begins with.
pub(super) fn create(txn: &WriteTransaction, id: StoreId, now: Now) -> Result<()> {
    let mut table = txn.open_table(META).map_err(before_commit)?;
    let format = [FORMAT_NAME, &FORMAT.to_be_bytes()].concat();
    table.insert(KEY_FORMAT, format.as_slice()).map_err(before_commit)?;
    table.insert(KEY_STORE_ID, id.0.as_slice()).map_err(before_commit)?;
    table.insert(KEY_NOW, encode(now).as_slice()).map_err(before_commit)?;
    Ok(())
}

/// Checks that the opened file is a store of a format that this keyclaim reads; its id.
pub(super) fn check(db: &impl redb::ReadableDatabase) -> Result<StoreId> {
    let txn = db.begin_read().map_err(before_commit)?;
    let table = match txn.open_table(META) {
        Ok(table) => table,
        Err(TableError::Storage(error)) => return Err(before_commit(error)),
        Err(_) => return Err(not_a_store()),
    };
    let format = table.get(KEY_FORMAT).map_err(before_commit)?.ok_or_else(not_a_store)?;
    match format.value().strip_prefix(FORMAT_NAME) {
        Some(number) if number == FORMAT.to_be_bytes() => {}
        Some(&[a, b, c, d]) => {
            let number = u32::from_be_bytes([a, b, c, d]);
            return Err(Error::new(
                ErrorKind::Incompatible,
                format!(
                    "the store has format {number} and this keyclaim reads format {FORMAT}; use a keyclaim that reads it"
                ),
            ));
        }
        _ => return Err(not_a_store()),
    }
    // Read in here too, so that a store whose clock is damaged is refused before it is written to.
    read(&table)?;
    let id = table.get(KEY_STORE_ID).map_err(before_commit)?.ok_or_else(|| damaged("its id is missing"))?;
    id.value().try_into().map(StoreId).map_err(|_| damaged("its id has another length"))
}

/// What the last group left.
pub(super) fn read(table: &impl ReadableTable<&'static [u8], &'static [u8]>) -> Result<Now> {
    let bytes = table.get(KEY_NOW).map_err(before_commit)?.ok_or_else(|| damaged("its clock is missing"))?;
    decode(bytes.value())
}

/// What this group leaves.
pub(super) fn write(table: &mut MetaTable<'_>, now: Now) -> Result<()> {
    table.insert(KEY_NOW, encode(now).as_slice()).map_err(before_commit)?;
    Ok(())
}

/// Which process does this part of the upkeep; none if none ever did, or if the row is damaged: nothing but who does
/// it depends on it.
pub(super) fn read_upkeep(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    part: Part,
) -> Result<Option<Post>> {
    let Some(bytes) = table.get(part.name()).map_err(before_commit)? else { return Ok(None) };
    let post = bytes.value().split_last_chunk::<SUM_LEN>().filter(|(body, stored)| sum(body) == **stored);
    Ok(post.and_then(|(body, _)| {
        let (holder, until_ms) = body.split_first_chunk::<16>()?;
        let until_ms = Millis(u64::from_be_bytes(until_ms.try_into().ok()?));
        Some(Post { holder: ProcessId(*holder), until_ms })
    }))
}

/// From now on this process does it.
pub(super) fn write_upkeep(table: &mut MetaTable<'_>, part: Part, post: Post) -> Result<()> {
    let mut bytes = post.holder.0.to_vec();
    bytes.extend(post.until_ms.0.to_be_bytes());
    let sum = sum(&bytes);
    bytes.extend(sum);
    table.insert(part.name(), bytes.as_slice()).map_err(before_commit)?;
    Ok(())
}

fn encode(now: Now) -> Vec<u8> {
    let mut bytes = now.token.0.to_be_bytes().to_vec();
    bytes.extend(now.time.to_bytes());
    let sum = sum(&bytes);
    bytes.extend(sum);
    bytes
}

fn decode(bytes: &[u8]) -> Result<Now> {
    let (body, stored) =
        bytes.split_last_chunk::<SUM_LEN>().ok_or_else(|| damaged("its clock is too short"))?;
    if sum(body) != *stored {
        return Err(damaged("its clock's checksum is wrong"));
    }
    let (token, time) = body.split_first_chunk::<8>().ok_or_else(|| damaged("its clock is too short"))?;
    Ok(Now { token: Token(u64::from_be_bytes(*token)), time: Saved::from_bytes(time)? })
}

/// A flipped bit here could move time or reissue a token, so this row has its own checksum.
fn sum(bytes: &[u8]) -> [u8; SUM_LEN] {
    first_bytes(NOW.hasher().update(bytes))
}

fn not_a_store() -> Error {
    Error::new(
        ErrorKind::Incompatible,
        "the file is a redb database but no keyclaim store; name another path",
    )
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the store is damaged: {what}; restore it from a backup"))
}

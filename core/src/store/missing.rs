//! A row that is not found: was it never there, or does a damaged key hide it?
//!
//! redb finds a row by halving, and verifies no checksum on the way. If one key or separator is damaged, every
//! other comparison is still right; so a search that is led astray ends right beside the damaged row, or at the
//! end of the leaf next to the right one. The rows around tell: each has a checksum bound to the key it was
//! written under, and behind the damaged one the order is wrong. Damage to a row's value alone changes no
//! order, so a key that was never used is still new.

use std::ops::Bound;

use redb::{AccessGuard, ReadableTable};

use super::fault::before_commit;
use crate::Result;
use crate::codec::{self, Kind, corrupt};
use crate::rows::Table;

type Bytes = &'static [u8];

/// Checks that the row is missing because it is not there.
///
/// Errors: `Corrupt` if the rows around show that it can be there, under a damaged key or behind one.
pub(super) fn check(table: Table, rows: &impl ReadableTable<Bytes, Bytes>, key: &[u8]) -> Result<()> {
    let kind = match table {
        Table::Records | Table::Archive => Kind::Record,
        Table::Outbox => Kind::Event,
        Table::App => Kind::App,
        // Whoever looks for a body knows that there is one.
        Table::Bodies => return Ok(()),
    };
    let below = (Bound::Unbounded, Bound::Excluded(key));
    let below = rows.range::<&[u8]>(below).map_err(before_commit)?.rev();
    check_side(below, kind, key, |found| found < key)?;
    let above = (Bound::Excluded(key), Bound::Unbounded);
    check_side(rows.range::<&[u8]>(above).map_err(before_commit)?, kind, key, |found| found > key)
}

/// Walks away from the place of the key, up to the first row that is whole.
fn check_side<'a>(
    rows: impl Iterator<
        Item = std::result::Result<(AccessGuard<'a, Bytes>, AccessGuard<'a, Bytes>), redb::StorageError>,
    >,
    kind: Kind,
    key: &[u8],
    is_in_order: impl Fn(&[u8]) -> bool,
) -> Result<()> {
    // One damaged row is passed over. A second one beside it is a damaged page, in which anything can be.
    let mut is_beside_damage = false;
    for row in rows {
        let (found, bytes) = row.map_err(before_commit)?;
        if !is_in_order(found.value()) || codec::is_of(kind, key, bytes.value()) {
            return Err(corrupt("its key"));
        }
        if codec::is_of(kind, found.value(), bytes.value()) {
            return Ok(());
        }
        if is_beside_damage {
            return Err(corrupt("its page"));
        }
        is_beside_damage = true;
    }
    Ok(())
}

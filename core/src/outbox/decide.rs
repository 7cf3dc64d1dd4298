//! Every decision about stored events, as plain functions over rows: emit, lease, end, requeue, drop.

use super::delivery::PublishError;
use super::event::{self, Event, EventId};
use super::row::{Place, Row, Standing, chain_end};
use crate::backoff::Backoff;
use crate::key::Scope;
use crate::machine::Blob;
use crate::rows::{Due, DueRow, Lane, Rows, Slot, Table, Write};
use crate::{Error, ErrorKind, Generation, Millis, Result, Token};

/// On what terms events are delivered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terms {
    /// How long a delivery is left alone.
    pub lease_ms: Millis,
    /// How many deliveries may fail until an event is a dead letter.
    pub attempts_max: u32,
    /// How long a failed one waits for the next.
    pub backoff: Backoff,
}

/// What became of a due event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Leased {
    /// It is to be delivered, as it is from now on.
    Deliver(Box<Row>),
    /// The lease of its last allowed delivery ran out: it is a dead letter.
    Died(Box<Row>),
    /// The index was wrong about it, and is put right.
    Reindexed,
}

/// How a delivery ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ending {
    /// The event was published.
    Published,
    /// It was not, or nobody knows.
    Failed(PublishError),
    /// It was not begun: it is due again at once, and the attempt does not count.
    Returned,
}

/// What became of an event whose delivery ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Settled {
    /// It is gone from the outbox, and the next one of its ordering key is due.
    Published,
    /// It is delivered again, from this instant on.
    Again {
        /// When.
        at_ms: Millis,
    },
    /// It is a dead letter, and stops its ordering key.
    Dead,
}

/// All writes that emit the events of one command.
///
/// `first_number` is how many events the generation has emitted before; `order` is a store token taken by this
/// command, so that whatever is emitted later has a greater one.
///
/// Errors: `Invalid` (an event is out of bounds; nothing is to be written), `Corrupt`.
pub fn plan(
    rows: &impl Rows,
    scope: &Scope,
    generation: Generation,
    first_number: u32,
    order: Token,
    now_ms: Millis,
    events: &[Event],
) -> Result<Vec<Write>> {
    event::check(events).map_err(Error::invalid)?;
    let mut begun: Vec<Vec<u8>> = Vec::new();
    let mut writes = Vec::with_capacity(events.len());
    for (event, at) in events.iter().zip(0_u32..) {
        let number = first_number.checked_add(at).ok_or_else(too_many)?;
        let place = Place::of(scope, event, order, number);
        let is_first = match place.chain() {
            None => true,
            Some(chain) if begun.iter().any(|begun| begun == chain) => false,
            Some(chain) => {
                begun.push(chain.to_vec());
                rows.next(Table::Outbox, chain, &chain_end(chain))?.is_none()
            }
        };
        let row = Row {
            event: event.clone(),
            id: EventId { generation, number },
            scope: Blob::from(scope.as_bytes()),
            created_ms: now_ms,
            attempts: 0,
            failure: None,
            standing: Standing::Waiting { from_ms: now_ms },
        };
        writes.push(put(&place, &row, None, is_first.then(|| row.slot()))?);
    }
    Ok(writes)
}

/// Leases the event that the due index names, for a delivery under this token; the token is a store's and new.
pub fn lease(
    rows: &impl Rows,
    due: &DueRow,
    terms: &Terms,
    token: Token,
    now_ms: Millis,
) -> Result<(Leased, Vec<Write>)> {
    let place = Place(due.key.clone());
    let mut row = match load(rows, &place)? {
        Some(row) if row.slot() == due.slot => row,
        // Left where it is the entry would be read in every pass for ever.
        other => {
            let due = Due { was: Some(due.slot), is: other.map(|row| row.slot()) };
            return Ok((Leased::Reindexed, vec![move_due(&place, due)]));
        }
    };
    let was = Some(row.slot());
    if row.attempts >= terms.attempts_max {
        row.standing = Standing::Dead { token, since_ms: now_ms };
        row.failure.get_or_insert_with(|| "its delivery did not end in time".to_owned());
        let write = put(&place, &row, was, Some(row.slot()))?;
        return Ok((Leased::Died(Box::new(row)), vec![write]));
    }
    row.attempts = row.attempts.saturating_add(1);
    row.standing = Standing::Leased { token, until_ms: now_ms.plus(terms.lease_ms) };
    let write = put(&place, &row, was, Some(row.slot()))?;
    Ok((Leased::Deliver(Box::new(row)), vec![write]))
}

/// Ends the delivery that has this token. A lease that is over counts as long as nobody leased the event anew.
/// `random` is any number; it chooses the delay of a failed event.
///
/// Errors: `Fenced` if the event was leased anew, is a dead letter or is gone.
pub fn end(
    rows: &impl Rows,
    place: &Place,
    token: Token,
    ending: &Ending,
    random: u64,
    terms: &Terms,
    now_ms: Millis,
) -> Result<(Settled, Vec<Write>)> {
    let is_current =
        |row: &Row| matches!(row.standing, Standing::Leased { token: current, .. } if current == token);
    let mut row = load(rows, place)?.filter(is_current).ok_or_else(overtaken)?;
    let was = Some(row.slot());
    let delay_ms = match ending {
        Ending::Published => return Ok((Settled::Published, remove(rows, place, &row, now_ms)?)),
        Ending::Returned => {
            row.attempts = row.attempts.saturating_sub(1);
            Some(Millis(0))
        }
        Ending::Failed(failure) => {
            row.failure = Some(failure.cut());
            let may_try = !failure.is_refused() && row.attempts < terms.attempts_max;
            may_try.then(|| terms.backoff.delay_ms(row.attempts, random))
        }
    };
    let settled = if let Some(delay_ms) = delay_ms {
        let at_ms = now_ms.plus(delay_ms);
        row.standing = Standing::Waiting { from_ms: at_ms };
        Settled::Again { at_ms }
    } else {
        row.standing = Standing::Dead { token, since_ms: now_ms };
        Settled::Dead
    };
    Ok((settled, vec![put(place, &row, was, Some(row.slot()))?]))
}

/// Makes a dead letter due again, as if it had never been delivered. Errors: `Fenced` if it no longer is the
/// dead letter with this token.
pub fn requeue(rows: &impl Rows, place: &Place, seen: Token, now_ms: Millis) -> Result<Vec<Write>> {
    let mut row = dead(rows, place, seen)?;
    let was = Some(row.slot());
    row.attempts = 0;
    row.failure = None;
    row.standing = Standing::Waiting { from_ms: now_ms };
    Ok(vec![put(place, &row, was, Some(row.slot()))?])
}

/// Removes a dead letter for good: the next event of its ordering key is due. Errors: those of [`requeue`].
pub fn drop_dead(rows: &impl Rows, place: &Place, seen: Token, now_ms: Millis) -> Result<Vec<Write>> {
    let row = dead(rows, place, seen)?;
    remove(rows, place, &row, now_ms)
}

/// The event of a place; none if it is gone. Errors: `Corrupt`, `Incompatible`.
pub fn load(rows: &impl Rows, place: &Place) -> Result<Option<Row>> {
    rows.get(Table::Outbox, &place.0)?.map(|bytes| Row::decode(place, &bytes)).transpose()
}

fn dead(rows: &impl Rows, place: &Place, seen: Token) -> Result<Row> {
    let is_seen = |row: &Row| matches!(row.standing, Standing::Dead { token, .. } if token == seen);
    load(rows, place)?.filter(is_seen).ok_or_else(no_such_letter)
}

/// Removes the first event of a chain; the one behind it is now the first.
fn remove(rows: &impl Rows, place: &Place, row: &Row, now_ms: Millis) -> Result<Vec<Write>> {
    let due_was = Some(row.slot());
    let mut writes = vec![Write::Delete { table: Table::Outbox, key: place.0.clone(), due_was }];
    let Some(chain) = place.chain() else { return Ok(writes) };
    if let Some((key, bytes)) = rows.next(Table::Outbox, &place.0, &chain_end(chain))? {
        let next = Place(key);
        let slot = match Row::decode(&next, &bytes) {
            Ok(row) => row.slot(),
            // Due all the same: whoever wants to deliver it finds out, and this one's end is not held up.
            Err(_) => Slot { lane: Lane::Outbox, when: now_ms },
        };
        writes.push(move_due(&next, Due { was: None, is: Some(slot) }));
    }
    Ok(writes)
}

fn put(place: &Place, row: &Row, was: Option<Slot>, is: Option<Slot>) -> Result<Write> {
    let value = row.encode(place)?;
    Ok(Write::Put { table: Table::Outbox, key: place.0.clone(), value, due: Due { was, is } })
}

fn move_due(place: &Place, due: Due) -> Write {
    Write::MoveDue { table: Table::Outbox, key: place.0.clone(), due }
}

fn too_many() -> Error {
    Error::invalid("one generation emits at most 4,294,967,295 events; let another request emit the others")
}

fn overtaken() -> Error {
    Error::new(
        ErrorKind::Fenced,
        "this delivery was overtaken and changed nothing: the event was leased anew, or is no longer to be delivered",
    )
}

pub(crate) fn no_such_letter() -> Error {
    Error::new(
        ErrorKind::Fenced,
        "the event is not, or no longer, that dead letter and nothing changed; list the dead letters again",
    )
}

#[cfg(test)]
mod tests;

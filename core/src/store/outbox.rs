//! The outbox in the store: what a relay does in one transaction, and what a person does about dead letters.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use parking_lot::Mutex;

use super::Store;
use super::commit::put;
use super::shared::Shared;
use super::tables::{ReadRows, WriteRows};
use crate::limits::{PAGE_READS_MAX, PAGE_ROWS_MAX, RELAY_BATCH_LEN_MAX};
use crate::outbox::{self, DeadLetter, Delivery, Ending, Leased, Place, RelayOptions, Settled, Terms};
use crate::rows::{DueRow, Lane, Rows, Slot, Write};
use crate::{Error, ErrorKind, EventId, Millis, Result, Token};

/// A delivery that has ended.
pub(crate) struct Ended {
    pub(crate) place: Place,
    pub(crate) token: Token,
    pub(crate) ending: Ending,
}

/// What one transaction of a relay did.
#[derive(Default)]
pub(crate) struct Turned {
    /// What became of the deliveries that had ended, in their order.
    pub(crate) settled: Vec<Result<Settled>>,
    pub(crate) leased: Vec<Delivery>,
    /// Events that died because the lease of their last delivery ran out.
    pub(crate) died: u64,
    pub(crate) damaged: u64,
    /// Due entries that were read.
    pub(crate) rows_read: u64,
    /// When the next event that was not met is due.
    pub(crate) next_ms: Option<Millis>,
}

/// Who is to be woken when events become due.
#[derive(Default)]
pub(crate) struct Relays(Mutex<Vec<Sender<()>>>);

/// The outbox at one instant.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct OutboxStanding {
    /// Events that are not yet published, dead letters included.
    pub events: u64,
    /// Dead letters; counted up to 1,000.
    pub dead_letters: u64,
    /// How long the event that is due longest has been waiting for a relay; none if no event is due. An event
    /// that is being delivered, and one that waits behind another, is not due.
    pub lag_ms: Option<Millis>,
}

/// One page of the dead letters, in the order of their deaths.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeadLetters {
    /// The dead letters.
    pub letters: Vec<DeadLetter>,
    /// Ask for the page after this; none if this was the last one.
    pub next: Option<DeadLetterPlace>,
    /// Dead letters that cannot be read: damaged, or written by a newer keyclaim.
    pub damaged: u64,
}

/// Where a page of dead letters ends.
#[derive(Clone, Eq, PartialEq)]
pub struct DeadLetterPlace(Vec<u8>);

impl Store {
    /// Leases up to `events_max` due events (and 256), for deliveries by hand. An event whose last allowed
    /// delivery did not end in time becomes a dead letter instead.
    ///
    /// Each is to be ended with [`Store::outbox_end`] before its lease is over; it is delivered again otherwise.
    /// *Durability*: the leases are on disk when this returns. *Errors*: `Invalid` (for none), `Unknown` and
    /// `Poisoned` (reopen; what was leased is due again after the lease), `Closed`. Damaged events are passed over.
    pub fn outbox_lease(&self, events_max: usize, options: &RelayOptions) -> Result<Vec<Delivery>> {
        if events_max == 0 {
            return Err(Error::invalid("a lease of no events does nothing; ask for one or more"));
        }
        let turned = self.running.shared.outbox_turn(&[], events_max, None, &options.terms)?;
        Ok(turned.leased)
    }

    /// Ends deliveries, in one commit: what became of each, in their order.
    ///
    /// *Durability*: on disk when this returns. *Errors*: `Invalid` (over 256 of them), `Unknown` (ask again: those that
    /// were applied are then `Fenced`), `Poisoned`, `Closed`. Of a single one: `Fenced` (the event was leased
    /// anew, is a dead letter or is gone; this delivery changed nothing), `Corrupt`.
    pub fn outbox_end(
        &self,
        deliveries: &[(&Delivery, Ending)],
        options: &RelayOptions,
    ) -> Result<Vec<Result<Settled>>> {
        if deliveries.len() > RELAY_BATCH_LEN_MAX {
            return Err(Error::invalid("at most 256 deliveries can be ended at once; split them"));
        }
        let ended = |(delivery, ending): &(&Delivery, Ending)| delivery.ended(ending.clone());
        let ended: Vec<_> = deliveries.iter().map(ended).collect();
        let shared = &self.running.shared;
        let turned = shared.outbox_turn(&ended, 0, None, &options.terms)?;
        shared.relays.ring();
        Ok(turned.settled)
    }

    /// One page of the dead letters after `after`, at most `rows_max` (and 1,000) of them, longest dead first.
    ///
    /// Errors: `Invalid` (for none), `Closed`, `Poisoned`.
    pub fn dead_letters(&self, after: Option<&DeadLetterPlace>, rows_max: usize) -> Result<DeadLetters> {
        if rows_max == 0 {
            return Err(Error::invalid("a page of no rows would never end; ask for one or more"));
        }
        let rows_max = rows_max.min(PAGE_ROWS_MAX);
        self.running.shared.read(|rows| {
            let entries = rows.due_before(ALL_DEAD, after.map(|after| after.0.as_slice()), rows_max)?;
            let mut page = DeadLetters::default();
            let is_full = entries.len() == rows_max;
            page.next = entries.last().filter(|_| is_full).map(|last| DeadLetterPlace(last.place.clone()));
            for entry in entries {
                match dead_letter(rows, entry.row) {
                    Ok(Some((_, letter))) => page.letters.push(letter),
                    Ok(None) => {}
                    Err(error) if is_of_one_row(&error) => page.damaged += 1,
                    Err(error) => return Err(error),
                }
            }
            Ok(page)
        })
    }

    /// Makes a dead letter due again, as if it had never been delivered; what waits behind it goes on waiting.
    ///
    /// The token is the one that [`Store::dead_letters`] showed. *Durability*: on disk when this returns.
    /// *Errors*: `Fenced` (the event is no dead letter with this token any more, and nothing happened),
    /// `Unknown` (list the dead letters again), `Poisoned`, `Closed`, `Corrupt`. Reads the dead letters to find it.
    pub fn requeue_event(&self, id: EventId, seen: Token) -> Result<()> {
        self.on_dead_letter(id, |rows, place, now_ms| outbox::requeue(rows, place, seen, now_ms))
    }

    /// Removes a dead letter for good: it is never published, and the next event of its scope and ordering key
    /// is due. Otherwise like [`Store::requeue_event`].
    pub fn drop_event(&self, id: EventId, seen: Token) -> Result<()> {
        self.on_dead_letter(id, |rows, place, now_ms| outbox::drop_dead(rows, place, seen, now_ms))
    }

    /// How many events wait to be published, and for how long. Reads two entries of the due index, and as many
    /// as there are dead letters, up to 1,000.
    ///
    /// Errors: `Closed`, `Poisoned`.
    pub fn outbox(&self) -> Result<OutboxStanding> {
        let shared = &self.running.shared;
        shared.read(|rows| OutboxStanding::read(rows, || shared.now_ms()))
    }

    fn on_dead_letter(
        &self,
        id: EventId,
        writes: impl Fn(&WriteRows<'_>, &Place, Millis) -> Result<Vec<Write>>,
    ) -> Result<()> {
        let shared = &self.running.shared;
        let place = shared.find_dead(id)?.ok_or_else(outbox::no_such_letter)?;
        shared.write_outbox(|rows, _, now_ms| {
            let writes = writes(rows, &place, now_ms)?;
            put(rows, &writes)?;
            Ok(((), Wrote::Rows))
        })?;
        shared.relays.ring();
        Ok(())
    }
}

/// What a transaction of the outbox is to be ended with.
enum Wrote {
    Nothing,
    Rows,
    /// Rows that hold the token.
    RowsWithToken,
}

impl Shared {
    /// Ends deliveries, then leases due events, in one transaction. None is made if there is nothing to do.
    ///
    /// `at_ms` is the instant at which an event must have been due to be leased; now, if none is given.
    pub(crate) fn outbox_turn(
        &self,
        ended: &[Ended],
        events_max: usize,
        at_ms: Option<Millis>,
        terms: &Terms,
    ) -> Result<Turned> {
        self.check()?;
        let events_max = events_max.min(RELAY_BATCH_LEN_MAX);
        if ended.is_empty() {
            let at_ms = at_ms.unwrap_or_else(|| self.now_ms());
            let first = self.read(|rows| Ok(first_due(rows, LAST_DUE, None)?.map(|slot| slot.when)))?;
            if events_max == 0 || first.is_none_or(|first| first > at_ms) {
                return Ok(Turned { next_ms: first, ..Turned::default() });
            }
        }
        // Drawn before the transaction: the writer waits for no system call of ours.
        let randoms = randoms(ended)?;
        self.write_outbox(|rows, token, now_ms| {
            let mut turned = Turned::default();
            let mut wrote = Wrote::Nothing;
            for (ended, random) in ended.iter().zip(&randoms) {
                let decided = self.alone(|| {
                    let (place, token) = (&ended.place, ended.token);
                    outbox::end(rows, place, token, &ended.ending, *random, terms, now_ms)
                });
                let settled = match unless_of_the_medium(decided)? {
                    Ok((settled, writes)) => {
                        put(rows, &writes)?;
                        wrote = Wrote::Rows;
                        Ok(settled)
                    }
                    Err(error) => Err(error),
                };
                turned.settled.push(settled);
            }
            let at_ms = at_ms.map_or(now_ms, |at_ms| at_ms.min(now_ms));
            let lease = Lease { terms, token, at_ms, now_ms };
            if events_max > 0 && self.lease_due(rows, &lease, events_max, &mut turned)? {
                wrote = Wrote::RowsWithToken;
            }
            Ok((turned, wrote))
        })
    }

    /// Leases what is due; whether anything was written.
    fn lease_due(
        &self,
        rows: &mut WriteRows<'_>,
        lease: &Lease<'_>,
        events_max: usize,
        turned: &mut Turned,
    ) -> Result<bool> {
        let last = Slot { lane: Lane::Outbox, when: lease.at_ms };
        let mut met: Option<Vec<u8>> = None;
        let mut has_written = false;
        // Ends: each look goes on behind the one before, and what is leased has moved beyond `last`.
        while turned.leased.len() < events_max && turned.rows_read < PAGE_READS_MAX as u64 {
            let entries = rows.due_before(last, met.as_deref(), events_max - turned.leased.len())?;
            let Some(end) = entries.last() else { break };
            met = Some(end.place.clone());
            for entry in entries {
                turned.rows_read += 1;
                let decided = self.alone(|| match &entry.row {
                    Some(due) => outbox::lease(rows, due, lease.terms, lease.token, lease.now_ms)
                        .map(|decided| (due, decided)),
                    None => Err(Error::new(ErrorKind::Corrupt, "an entry of the due index is damaged")),
                });
                match unless_of_the_medium(decided)? {
                    Ok((due, (leased, writes))) => {
                        put(rows, &writes)?;
                        has_written = true;
                        turned.leased(self, due, leased, lease.token)?;
                    }
                    Err(error) => turned.pass_over(&error),
                }
            }
        }
        turned.next_ms = first_due(rows, LAST_DUE, met.as_deref())?.map(|slot| slot.when);
        Ok(has_written)
    }

    /// One transaction of the outbox, at one instant, with the token that is next.
    fn write_outbox<R>(
        &self,
        write: impl FnOnce(&mut WriteRows<'_>, Token, Millis) -> Result<(R, Wrote)>,
    ) -> Result<R> {
        self.check()?;
        let mut result = None;
        let written = self.lock_writer()?.write_with_token(self, |rows, token| {
            let (found, ended) = write(rows, token, self.now_ms())?;
            result = Some(found);
            Ok((!matches!(ended, Wrote::Nothing), matches!(ended, Wrote::RowsWithToken)))
        });
        if self.engine.is_poisoned() {
            self.waiters.ring_all();
        }
        written?;
        result.ok_or_else(super::lost)
    }

    /// The place of a dead letter.
    fn find_dead(&self, id: EventId) -> Result<Option<Place>> {
        let mut after: Option<Vec<u8>> = None;
        // Page by page, for one snapshot over all of them would keep their pages from being used again.
        loop {
            let found = self.read(|rows| {
                let entries = rows.due_before(ALL_DEAD, after.as_deref(), PAGE_ROWS_MAX)?;
                after = entries.last().map(|last| last.place.clone());
                for entry in entries {
                    match dead_letter(rows, entry.row) {
                        Ok(Some((place, letter))) if letter.id == id => {
                            return Ok(Some(place));
                        }
                        Ok(_) => {}
                        Err(error) if is_of_one_row(&error) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(None)
            })?;
            if found.is_some() || after.is_none() {
                return Ok(found);
            }
        }
    }

    /// An error or panic in here concerns this event only.
    fn alone<R>(&self, decide: impl FnOnce() -> Result<R>) -> Result<R> {
        catch_unwind(AssertUnwindSafe(|| {
            self.options.maybe_panic();
            decide()
        }))
        .unwrap_or_else(|_| {
            let message = "a bug in keyclaim stopped this event before it changed anything; report it";
            Err(Error::new(ErrorKind::Internal, message))
        })
    }
}

impl OutboxStanding {
    /// What one snapshot shows; the time is read after it was taken.
    pub(super) fn read(rows: &ReadRows, now_ms: impl FnOnce() -> Millis) -> Result<Self> {
        let first = first_due(rows, LAST_DUE, None)?;
        let due = first.map(|slot| (slot.when, now_ms())).filter(|(when, now_ms)| when <= now_ms);
        Ok(Self {
            events: rows.outbox_len()?,
            dead_letters: rows.due_before(ALL_DEAD, None, PAGE_ROWS_MAX)?.len() as u64,
            lag_ms: due.map(|(when, now_ms)| now_ms.since(when)),
        })
    }
}

/// What all events of one look are leased with.
struct Lease<'a> {
    terms: &'a Terms,
    token: Token,
    at_ms: Millis,
    now_ms: Millis,
}

impl Turned {
    fn leased(&mut self, shared: &Shared, due: &DueRow, leased: Leased, token: Token) -> Result<()> {
        match leased {
            Leased::Deliver(row) => {
                self.leased.push(Delivery::of(shared.id, Place(due.key.clone()), *row, token)?);
            }
            Leased::Died(row) => {
                self.died += 1;
                tracing::warn!(target: "keyclaim", event = %row.id, "dead letter: its last delivery did not end in time");
            }
            Leased::Reindexed => {}
        }
        Ok(())
    }

    fn pass_over(&mut self, error: &Error) {
        self.damaged += 1;
        tracing::warn!(target: "keyclaim", %error, "a due event was passed over");
    }
}

impl Delivery {
    pub(crate) fn ended(&self, ending: Ending) -> Ended {
        Ended { place: self.place.clone(), token: self.token, ending }
    }
}

impl Relays {
    /// From now on the receiver has something whenever events may have become due.
    pub(crate) fn join(&self) -> Receiver<()> {
        let (sender, receiver) = bounded(1);
        self.0.lock().push(sender);
        receiver
    }

    /// Wakes every relay.
    pub(crate) fn ring(&self) {
        self.0.lock().retain(|relay| !matches!(relay.try_send(()), Err(TrySendError::Disconnected(()))));
    }

    /// Wakes every relay if one of these writes makes an event due.
    pub(super) fn ring_for(&self, writes: &[Write]) {
        if writes.iter().any(brings_up_event) {
            self.ring();
        }
    }
}

impl std::fmt::Debug for DeadLetterPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Its bytes hold a scope and an ordering key.
        f.write_str("DeadLetterPlace(..)")
    }
}

fn brings_up_event(write: &Write) -> bool {
    let (Write::Put { due, .. } | Write::MoveDue { due, .. }) = write else { return false };
    due.is.is_some_and(|slot| slot.lane == Lane::Outbox)
}

fn first_due(rows: &impl Rows, last: Slot, after: Option<&[u8]>) -> Result<Option<Slot>> {
    let first = rows.due_before(last, after, 1)?.into_iter().next();
    // A damaged entry is due: whoever leases finds out.
    Ok(first.map(|entry| entry.row.map_or(Slot { lane: last.lane, when: Millis(0) }, |row| row.slot)))
}

fn dead_letter(rows: &impl Rows, row: Option<DueRow>) -> Result<Option<(Place, DeadLetter)>> {
    let row = row.ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "an entry of the due index is damaged; check the store")
    })?;
    let place = Place(row.key);
    let Some(row) = outbox::load(rows, &place)? else { return Ok(None) };
    Ok(DeadLetter::of(row)?.map(|letter| (place, letter)))
}

/// A number for the delay of each delivery that failed.
fn randoms(ended: &[Ended]) -> Result<Vec<u64>> {
    let random = |ended: &Ended| match ended.ending {
        Ending::Failed(_) => {
            let bytes = crate::token::random_bytes()?;
            Ok(bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
        }
        Ending::Published | Ending::Returned => Ok(0),
    };
    ended.iter().map(random).collect()
}

/// An error of one event is part of the answer; one of the medium ends the turn.
fn unless_of_the_medium<R>(decided: Result<R>) -> Result<Result<R>> {
    match decided {
        Err(error) if matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Unknown) => Err(error),
        decided => Ok(decided),
    }
}

fn is_of_one_row(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Incompatible)
}

const ALL_DEAD: Slot = Slot { lane: Lane::Dead, when: Millis(u64::MAX) };
const LAST_DUE: Slot = Slot { lane: Lane::Outbox, when: Millis(u64::MAX) };

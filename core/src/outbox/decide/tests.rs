//! The decisions over rows in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;
use crate::rows::{self, DueEntry};

/// Rows as two sorted maps, and what any engine must refuse to do.
#[derive(Default)]
struct Memory {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    due: BTreeSet<(Lane, Millis, Vec<u8>)>,
}

impl Rows for Memory {
    fn get(&self, _: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.rows.get(key).cloned())
    }

    fn put(&mut self, table: Table, key: &[u8], value: &[u8], due: Due) -> Result<()> {
        self.rows.insert(key.to_vec(), value.to_vec());
        self.move_due(table, key, due)
    }

    fn delete(&mut self, table: Table, key: &[u8], was: Option<Slot>) -> Result<()> {
        assert!(self.rows.remove(key).is_some(), "a row that was not there was removed");
        self.move_due(table, key, Due { was, is: None })
    }

    fn move_due(&mut self, _: Table, key: &[u8], due: Due) -> Result<()> {
        if let Some(slot) = due.was {
            assert!(self.due.remove(&(slot.lane, slot.when, key.to_vec())), "its place was another");
        }
        if let Some(slot) = due.is {
            assert!(self.due.insert((slot.lane, slot.when, key.to_vec())), "it had a place already");
        }
        Ok(())
    }

    fn next(&self, _: Table, after: &[u8], before: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut rows = self.rows.iter().filter(|(key, _)| key.as_slice() > after && key.as_slice() < before);
        Ok(rows.next().map(|(key, value)| (key.clone(), value.clone())))
    }

    fn due_before(&self, last: Slot, _: Option<&[u8]>, limit: usize) -> Result<Vec<DueEntry>> {
        let due = self.due.iter().filter(|(lane, when, _)| *lane == last.lane && *when <= last.when);
        let entry = |(lane, when, key): &(Lane, Millis, Vec<u8>)| DueEntry {
            place: Vec::new(),
            row: Some(DueRow {
                slot: Slot { lane: *lane, when: *when },
                table: Table::Outbox,
                key: key.clone(),
            }),
        };
        Ok(due.take(limit).map(entry).collect())
    }
}

impl Memory {
    fn emit(&mut self, scope: &str, order: u64, events: &[Event]) {
        let scope = Scope::new(scope).unwrap();
        let (generation, now) = (Generation(order), Millis(order));
        let writes = plan(self, &scope, generation, 0, Token(order), now, events).unwrap();
        rows::apply(self, &writes).unwrap();
    }

    fn due(&self, now: u64) -> Vec<DueRow> {
        let last = Slot { lane: Lane::Outbox, when: Millis(now) };
        self.due_before(last, None, 99).unwrap().into_iter().map(|entry| entry.row.unwrap()).collect()
    }

    /// Leases the first due event under this token.
    fn lease(&mut self, token: u64, now: u64) -> (Place, Leased) {
        let due = self.due(now).remove(0);
        let (leased, writes) = lease(self, &due, &terms(), Token(token), Millis(now)).unwrap();
        rows::apply(self, &writes).unwrap();
        (Place(due.key), leased)
    }

    fn end(&mut self, place: &Place, token: u64, ending: &Ending, now: u64) -> Result<Settled> {
        let (settled, writes) = end(self, place, Token(token), ending, u64::MAX, &terms(), Millis(now))?;
        rows::apply(self, &writes).map(|()| settled)
    }

    /// The events that are due, by their payloads.
    fn payloads(&self, now: u64) -> Vec<String> {
        let payload = |row: DueRow| load(self, &Place(row.key)).unwrap().unwrap().event.payload().to_vec();
        self.due(now).into_iter().map(|row| String::from_utf8(payload(row)).unwrap()).collect()
    }
}

fn terms() -> Terms {
    let backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1)).unwrap();
    Terms { lease_ms: Millis(100), attempts_max: 2, backoff }
}

fn event(key: &str, payload: &str) -> Event {
    Event::new("orders", payload).ordering_key(key)
}

fn failed() -> Ending {
    Ending::Failed(PublishError::again("no route"))
}

fn refused(reason: &str) -> Ending {
    Ending::Failed(PublishError::refused(reason))
}

#[test]
fn only_the_first_event_of_a_chain_is_due() {
    let mut rows = Memory::default();
    let two = [event("k", "1"), Event::new("t", "free"), event("k", "2"), event("j", "other key")];
    rows.emit("a", 1, &two);
    rows.emit("a", 2, &[event("k", "3")]);
    rows.emit("b", 3, &[event("k", "other scope")]);
    let mut due = rows.payloads(9);
    due.sort_unstable();
    assert_eq!(due, ["1", "free", "other key", "other scope"]);
}

#[test]
fn an_end_brings_up_the_next_of_the_chain_in_the_order_of_commits() {
    let mut rows = Memory::default();
    rows.emit("a", 1, &[event("k", "1"), event("k", "2")]);
    rows.emit("a", 300, &[event("k", "3")]);
    for (token, payload) in [(500, "1"), (501, "2"), (502, "3")] {
        assert_eq!(rows.payloads(900), [payload]);
        let (place, _) = rows.lease(token, 900);
        assert!(rows.payloads(999).is_empty(), "what is behind a leased event is due");
        assert_eq!(rows.end(&place, token, &Ending::Published, 900).unwrap(), Settled::Published);
    }
    assert!(rows.rows.is_empty() && rows.due.is_empty());
}

#[test]
fn a_stale_token_ends_nothing() {
    let mut rows = Memory::default();
    rows.emit("a", 1, &[event("k", "1")]);
    let (place, _) = rows.lease(5, 10);
    // The lease ran out, and another relay has it: the same event, a second attempt.
    let (_, again) = rows.lease(6, 110);
    assert!(matches!(again, Leased::Deliver(row) if row.attempts == 2 && row.id.number == 0));
    let before = rows.rows.clone();
    for ending in [Ending::Published, failed(), refused("no"), Ending::Returned] {
        let error = rows.end(&place, 5, &ending, 110).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced);
    }
    assert_eq!(rows.rows, before);
    rows.end(&place, 6, &Ending::Published, 110).unwrap();
    assert_eq!(rows.end(&place, 6, &Ending::Published, 110).unwrap_err().kind(), ErrorKind::Fenced);
}

#[test]
fn a_lease_that_is_over_counts_until_somebody_else_has_the_event() {
    let mut rows = Memory::default();
    rows.emit("a", 1, &[event("k", "1")]);
    let (place, _) = rows.lease(5, 10);
    assert!(rows.payloads(109).is_empty());
    assert_eq!(rows.payloads(110), ["1"], "at the instant it ends a lease is over");
    assert_eq!(rows.end(&place, 5, &Ending::Published, 5_000).unwrap(), Settled::Published);
}

#[test]
fn a_failed_event_waits_its_delay_and_dies_of_its_last_attempt() {
    let mut rows = Memory::default();
    rows.emit("a", 1, &[event("k", "1"), event("k", "2")]);
    let (place, _) = rows.lease(5, 100);
    let again = rows.end(&place, 5, &failed(), 100).unwrap();
    assert_eq!(again, Settled::Again { at_ms: Millis(110) });
    assert!(rows.payloads(109).is_empty(), "what is behind a waiting event is due");
    rows.lease(6, 110);
    assert_eq!(rows.end(&place, 6, &failed(), 110).unwrap(), Settled::Dead);
    assert!(rows.payloads(u64::MAX).is_empty(), "what is behind a dead letter is due");
    let row = load(&rows, &place).unwrap().unwrap();
    assert_eq!(row.failure.as_deref(), Some("no route"));
    assert_eq!(row.standing, Standing::Dead { token: Token(6), since_ms: Millis(110) });
}

#[test]
fn an_event_whose_deliveries_never_end_dies_too() {
    let mut rows = Memory::default();
    rows.emit("a", 1, &[event("k", "1")]);
    rows.lease(5, 1);
    rows.lease(6, 101);
    let (place, died) = rows.lease(7, 201);
    assert!(matches!(died, Leased::Died(row) if row.failure.is_some()));
    assert!(rows.payloads(u64::MAX).is_empty());
    let error = rows.end(&place, 6, &Ending::Published, 200).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
}

#[test]
fn a_refused_event_is_dead_at_once_and_a_returned_one_was_never_tried() {
    let mut rows = Memory::default();
    rows.emit("a", 1, &[event("k", "1")]);
    let (place, _) = rows.lease(5, 10);
    let returned = rows.end(&place, 5, &Ending::Returned, 20).unwrap();
    assert_eq!(returned, Settled::Again { at_ms: Millis(20) });
    let (_, again) = rows.lease(6, 20);
    assert!(matches!(again, Leased::Deliver(row) if row.attempts == 1));
    let long = refused(&"x".repeat(300));
    assert_eq!(rows.end(&place, 6, &long, 20).unwrap(), Settled::Dead);
    assert_eq!(load(&rows, &place).unwrap().unwrap().failure.unwrap().len(), 255);
}

#[test]
fn a_person_requeues_or_drops_the_dead_letter_that_was_seen_and_no_other() {
    let refused = refused("no");
    let mut rows = Memory::default();
    rows.emit("a", 1, &[event("k", "1"), event("k", "2")]);
    let (place, _) = rows.lease(5, 10);
    rows.end(&place, 5, &refused, 10).unwrap();
    assert_eq!(requeue(&rows, &place, Token(4), Millis(50)).unwrap_err().kind(), ErrorKind::Fenced);
    let writes = requeue(&rows, &place, Token(5), Millis(50)).unwrap();
    rows::apply(&mut rows, &writes).unwrap();
    assert_eq!(requeue(&rows, &place, Token(5), Millis(50)).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(rows.payloads(50), ["1"]);
    let (_, again) = rows.lease(6, 50);
    assert!(matches!(again, Leased::Deliver(row) if row.attempts == 1 && row.failure.is_none()));
    rows.end(&place, 6, &refused, 50).unwrap();
    assert_eq!(drop_dead(&rows, &place, Token(5), Millis(60)).unwrap_err().kind(), ErrorKind::Fenced);
    let writes = drop_dead(&rows, &place, Token(6), Millis(60)).unwrap();
    rows::apply(&mut rows, &writes).unwrap();
    assert_eq!(rows.payloads(60), ["2"]);
    assert_eq!(rows.due.len(), 1);
}

#[test]
fn a_damaged_event_holds_up_its_own_chain_only_and_not_the_end_of_the_one_before() {
    let mut rows = Memory::default();
    rows.emit("a", 1, &[event("k", "1"), event("k", "2")]);
    let (place, _) = rows.lease(5, 10);
    rows.rows.last_entry().unwrap().get_mut()[20] ^= 1;
    assert_eq!(rows.end(&place, 5, &Ending::Published, 10).unwrap(), Settled::Published);
    let due = rows.due(10).remove(0);
    let error = lease(&rows, &due, &terms(), Token(6), Millis(10)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn an_entry_of_the_index_that_is_wrong_is_put_right() {
    let mut rows = Memory::default();
    rows.emit("a", 1, &[Event::new("t", "1")]);
    let mut due = rows.due(10).remove(0);
    rows.due = [(Lane::Outbox, Millis(0), due.key.clone()), (Lane::Outbox, Millis(0), vec![9])].into();
    for key in [due.key.clone(), vec![9]] {
        due = DueRow { slot: Slot { lane: Lane::Outbox, when: Millis(0) }, key, ..due };
        let (leased, writes) = lease(&rows, &due, &terms(), Token(6), Millis(10)).unwrap();
        assert_eq!(leased, Leased::Reindexed);
        rows::apply(&mut rows, &writes).unwrap();
    }
    assert_eq!(rows.payloads(10), ["1"]);
    assert_eq!(rows.due(10).len(), 1);
}

#[test]
fn events_out_of_bounds_are_invalid_and_plan_nothing() {
    let rows = Memory::default();
    let scope = Scope::new("a").unwrap();
    let plan = |first, events: &[Event]| {
        plan(&rows, &scope, Generation(1), first, Token(1), Millis(0), events).map_err(|error| error.kind())
    };
    assert_eq!(plan(0, &[event("k", "1"), Event::new("", "2")]), Err(ErrorKind::Invalid));
    assert_eq!(plan(u32::MAX, &[event("k", "1"), event("k", "2")]), Err(ErrorKind::Invalid));
    assert!(plan(u32::MAX, &[event("k", "1")]).is_ok());
}

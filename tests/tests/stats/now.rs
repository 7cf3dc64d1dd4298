//! How the unfinished records stand now, and what it costs to know.

use keyclaim::limits::STATS_READS_MAX;
use keyclaim::{Abandoned, Options, Store};
use redb::{Database, TableDefinition};

use crate::faulty::*;
use crate::kit::*;

fn done(store: &Store, key: &str) {
    won(store.claim(&request(key))).complete(&success(b"done")).expect("its owner");
}

#[test]
fn what_is_unfinished_is_told_with_the_age_of_the_oldest() {
    let World { store, clock } = world();
    let none = stats(&store);
    assert_eq!(
        (none.in_flight_now, none.held_now, none.orphaned_now, none.oldest_in_flight_ms),
        (0, 0, 0, 0)
    );
    let first = won(store.claim(&request("first")));
    clock.advance(250);
    let second = won(store.claim(&request("second")));
    won(store.claim(&request("held"))).hold().expect("its owner");
    done(&store, "done");
    clock.advance(LEASE - 250);
    // Its lease is over and its owner lives here: late, not orphaned.
    let now = stats(&store);
    assert_eq!((now.in_flight_now, now.held_now, now.orphaned_now), (2, 1, 0));
    assert_eq!((now.oldest_in_flight_ms, now.unfinished_rows_read), (LEASE, 3));
    drop(first);
    assert_eq!(stats(&store).orphaned_now, 1);
    // Gone, but its lease is not over.
    drop(second);
    assert_eq!(stats(&store).orphaned_now, 1);
    clock.advance(250);
    assert_eq!(stats(&store).orphaned_now, 2);
    // A takeover is the same generation, and as old as that.
    let owner = won(store.claim(&request("first")));
    let now = stats(&store);
    assert_eq!((now.in_flight_now, now.orphaned_now, now.oldest_in_flight_ms), (2, 1, LEASE + 250));
    owner.complete(&success(b"")).expect("its owner");
    let now = stats(&store);
    assert_eq!((now.in_flight_now, now.orphaned_now, now.oldest_in_flight_ms), (1, 1, LEASE));
    assert!(now.to_prometheus().contains("\nkeyclaim_oldest_in_flight_seconds 1.000\n"));
}

#[test]
fn a_claim_without_a_lease_is_never_orphaned() {
    let World { store, clock } = world();
    drop(won(store.claim(&request("a").policy(policy(Abandoned::Rerun).no_lease()))));
    clock.advance(100 * HORIZON);
    assert_eq!((stats(&store).in_flight_now, stats(&store).orphaned_now), (1, 0));
}

#[test]
fn finished_records_cost_nothing_to_read() {
    let World { store, clock } = world();
    let _owners = [won(store.claim(&request("a"))), won(store.claim(&request("b")))];
    for n in 0..500 {
        done(&store, &format!("done {n}"));
        assert_eq!(stats(&store).unfinished_rows_read, 2);
    }
    clock.advance(WINDOW + HORIZON);
    assert_eq!(stats(&store).unfinished_rows_read, 2, "due ones neither");
}

#[test]
fn beyond_the_bound_the_numbers_are_a_floor_and_say_so() {
    let World { store, .. } = world();
    for n in 0..STATS_READS_MAX {
        drop(won(store.claim(&request(&format!("key {n}")))));
    }
    let full = stats(&store);
    let count = STATS_READS_MAX as u64;
    assert_eq!(
        (full.in_flight_now, full.unfinished_rows_read, full.unfinished_is_floor),
        (count, count, false)
    );
    drop(won(store.claim(&request("one more"))));
    let over = stats(&store);
    assert_eq!(
        (over.in_flight_now, over.unfinished_rows_read, over.unfinished_is_floor),
        (count, count, true)
    );
    assert!(over.to_prometheus().contains("\nkeyclaim_unfinished_is_floor 1\n"));
}

#[test]
fn a_damaged_record_is_counted_and_hides_no_other() {
    let folder = fast_folder();
    let path = folder.path().join("store");
    let open = || Store::open(&path, Options::new(Abandoned::Rerun)).expect("closed");
    let store = open();
    for key in ["a", "b", "c"] {
        drop(won(store.claim(&request(key))));
    }
    store.close().expect("healthy");
    let db = Database::create(&path).expect("closed");
    let txn = db.begin_write().expect("healthy");
    let records: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
    txn.open_table(records)
        .expect("there")
        .insert(id("b").encode().as_slice(), &b"no record"[..])
        .expect("healthy");
    txn.commit().expect("healthy");
    drop(db);
    let now = stats(&open());
    assert_eq!((now.in_flight_now, now.unfinished_damaged, now.unfinished_rows_read), (2, 1, 3));
}

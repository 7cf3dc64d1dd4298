//! What a pass costs and bounds, and what does not stop it.

use std::fs;
use std::sync::{Arc, Mutex};

use keyclaim::limits::REAP_BATCH_LEN_MAX;
use keyclaim::store::Cancel;
use keyclaim::{Reap, Store};

use crate::faulty::*;
use crate::kit::*;

#[test]
fn a_commit_changes_a_bounded_number_of_rows() {
    let world = in_memory();
    world.complete_many("key", 1_000);
    world.clock.advance(HORIZON);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let reap = Reap::new().on_progress(move |done| noted.lock().expect("no panic").push(done.removed));
    let reaped = world.store.reap(&reap).expect("healthy");
    assert_eq!((reaped.removed, reaped.batches), (1_000, 4));
    let stats = world.store.stats().expect("healthy");
    assert_eq!((stats.reap_batches, stats.largest_reap_batch), (4, REAP_BATCH_LEN_MAX as u64));
    assert_eq!(*seen.lock().expect("no panic"), [256, 512, 768, 1_000]);
}

#[test]
fn a_pass_can_be_bounded_and_cancelled() {
    let world = in_memory();
    world.complete_many("key", 1_000);
    world.clock.advance(HORIZON);
    let reaped = world.store.reap(&Reap::new().changes_max(300)).expect("healthy");
    assert_eq!((reaped.removed, reaped.rows_read, reaped.is_whole), (300, 300, false));
    let cancel = Cancel::new();
    let switch = cancel.clone();
    let reap = Reap::new().or_until(&cancel).on_progress(move |_| switch.cancel());
    let reaped = world.store.reap(&reap).expect("healthy");
    assert_eq!((reaped.removed, reaped.is_whole), (256, false));
    assert_eq!(world.store.reap(&reap).expect("healthy").rows_read, 0, "cancelled for good");
    assert_eq!(world.reap().removed, 1_000 - 300 - 256);
}

#[test]
fn a_pass_reads_only_what_is_due() {
    let world = in_memory();
    world.complete_many("due", 1_000);
    world.clock.advance(HORIZON - 1);
    for n in 0..19_000 {
        drop(world.claim(&format!("not due {n}")));
    }
    world.clock.advance(1);
    let reaped = world.reap();
    assert_eq!((reaped.removed, reaped.rows_read), (1_000, 1_000));
    assert_eq!(world.store.stats().expect("healthy").last_reap_rows_read, 1_000);
}

#[test]
fn what_waits_for_somebody_else_is_read_once_and_holds_up_nothing() {
    let world = in_memory();
    for n in 0..600 {
        drop(won(world.store.claim(&request(&format!("abandoned {n}")).operation("charge", b"request"))));
    }
    world.clock.advance(2 * LEASE);
    world.complete_many("done", 10);
    world.clock.advance(WINDOW);
    // Those in flight have been due for longer, and are in a lane of their own.
    let reaped = world.store.reap(&Reap::new().changes_max(4)).expect("healthy");
    assert_eq!((reaped.rows_read, reaped.tombstoned, reaped.batches), (4, 4, 1));
    let reaped = world.reap();
    assert_eq!((reaped.rows_read, reaped.tombstoned, reaped.batches), (606, 6, 1));
    let reaped = world.reap();
    assert_eq!((reaped.rows_read, reaped.batches), (600, 0));
    assert_eq!(world.store.stats().expect("healthy").largest_reap_batch, 6);
}

#[test]
fn damaged_rows_are_passed_over_and_stale_entries_put_right() {
    let folder = fast_folder();
    let (world, path) = on_file(&folder);
    world.complete_many("key", 600);
    world.complete("kept", &success(b"kept"));
    let World { store, clock } = world;
    clock.advance(5);
    store.close().expect("healthy");
    let entry = |lane: u8, when: u64, table: u8, key: &[u8]| {
        [&[lane], &when.to_be_bytes()[..], &[table], key].concat()
    };
    edit(&path, |txn| {
        let mut records = txn.open_table(table("records")).expect("there");
        records.insert(id("key 7").encode().as_slice(), &b"\x01no record"[..]).expect("healthy");
        records.insert(id("key 8").encode().as_slice(), &b""[..]).expect("healthy");
        let mut due = txn.open_table(table("due")).expect("there");
        let at = 1_700_000_000_000;
        for stale in [
            entry(0, at, 0, &id("never was").encode()),
            entry(1, at, 1, b"no such failure"),
            entry(1, at + 1, 0, &id("kept").encode()),
        ] {
            due.insert(stale.as_slice(), &[][..]).expect("healthy");
        }
        for damaged in [entry(1, at, 9, b"key"), entry(1, at, 2, b"key"), b"\0".to_vec()] {
            due.insert(damaged.as_slice(), &[][..]).expect("healthy");
        }
    });

    clock.advance(HORIZON - 5 - 1);
    let store = Store::open(&path, options(&clock)).expect("closed");
    let world = World { store, clock };
    let reaped = world.reap();
    assert_eq!((reaped.damaged, reaped.reindexed, reaped.tombstoned, reaped.rows_read), (5, 3, 599, 607));
    world.clock.advance(1);
    let reaped = world.reap();
    assert_eq!((reaped.damaged, reaped.reindexed, reaped.removed), (5, 0, 599));
    assert_eq!(reaped.rows_read, 604, "each damaged row is read once in a pass");
    world.store.close().expect("healthy");
    assert_eq!(rows(&path), [2, 0, 0, 5], "what is damaged stays");
}

#[test]
fn a_crash_between_two_commits_loses_nothing() {
    let folder = fast_folder();
    let (world, path) = on_file(&folder);
    world.complete_many("gone", 600);
    world.claim("held").hold().expect("owner");
    world.clock.advance(HORIZON);
    world.complete_many("kept", 50);
    let images = Arc::new(Mutex::new(Vec::new()));
    let (noted, copies) = (images.clone(), folder.path().to_path_buf());
    let reap = Reap::new().on_progress(move |done| {
        let mut images = noted.lock().expect("no panic");
        // What is on disk between two commits is what a crash leaves.
        let copy = copies.join(format!("image {}", images.len()));
        fs::copy(&path, &copy).expect("copy");
        images.push((copy, done.removed, done.unfinished_reported));
    });
    world.store.reap(&reap).expect("healthy");
    let images = images.lock().expect("no panic").clone();
    assert_eq!(images.iter().map(|(_, removed, _)| *removed).collect::<Vec<_>>(), [256, 512, 600, 600]);
    for (image, removed, reported) in images {
        let image = World {
            store: Store::open(&image, options(&world.clock)).expect("a crashed store opens"),
            clock: world.clock.clone(),
        };
        for n in 0..50 {
            replay(image.store.claim(&request(&format!("kept {n}"))));
        }
        let rest = image.reap();
        assert_eq!(rest.removed, 600 - removed);
        assert_eq!(rest.unfinished_reported, 1 - reported);
        assert!(image.store.inspect(&id("held")).expect("healthy").is_some());
    }
}

//! Leases of deliveries by hand: whose end counts, and what a failure costs.

use std::sync::atomic::Ordering::SeqCst;

use keyclaim::outbox::{Ending, PublishError, Settled};
use keyclaim::store::inject::Op;
use keyclaim::{Abandoned, ErrorKind, Millis, Options, Store};

use crate::faulty::*;
use crate::kit::*;

fn failed() -> Ending {
    Ending::Failed(PublishError::again("no route"))
}

#[test]
fn an_event_whose_lease_ran_out_is_delivered_again_with_the_same_id() {
    let world = in_memory();
    world.emit("a", [ordered("k", 1)]);
    let first = world.store.outbox_lease(9, &options()).expect("healthy").remove(0);
    world.clock.advance(999);
    assert!(world.store.outbox_lease(9, &options()).expect("healthy").is_empty());
    world.clock.advance(1);
    let second = world.store.outbox_lease(9, &options()).expect("healthy").remove(0);
    assert_eq!((first.id, &first.key, first.attempt), (second.id, &second.key, 1));
    assert_eq!(second.attempt, 2);
}

#[test]
fn a_stale_end_is_fenced_and_changes_nothing() {
    let world = in_memory();
    world.emit("a", [ordered("k", 1), ordered("k", 2)]);
    let stale = world.store.outbox_lease(9, &options()).expect("healthy").remove(0);
    world.clock.advance(1_000);
    let current = world.store.outbox_lease(9, &options()).expect("healthy").remove(0);
    for ending in [Ending::Published, failed(), Ending::Returned, Ending::Failed(PublishError::refused("no"))]
    {
        let ended = world.store.outbox_end(&[(&stale, ending)], &options()).expect("healthy");
        refused(ended.into_iter().next().expect("one"), ErrorKind::Fenced);
    }
    assert_eq!(world.events(), 2);
    let ended = world.store.outbox_end(&[(&current, Ending::Published)], &options()).expect("healthy");
    assert!(matches!(ended[..], [Ok(Settled::Published)]), "{ended:?}");
    let again = world.store.outbox_end(&[(&current, Ending::Published)], &options()).expect("healthy");
    refused(again.into_iter().next().expect("one"), ErrorKind::Fenced);
    assert_eq!(world.drain(), ["2"]);
}

#[test]
fn many_ends_of_all_kinds_are_one_commit() {
    let world = in_memory();
    world.emit("a", (0..40).map(free));
    let leased = world.store.outbox_lease(40, &options()).expect("healthy");
    let ends: Vec<_> = leased
        .iter()
        .enumerate()
        .map(|(n, delivery)| (delivery, if n % 2 == 0 { Ending::Published } else { failed() }))
        .collect();
    let syncs = || world.store.stats().expect("healthy").file_syncs;
    let before = syncs();
    let ended = world.store.outbox_end(&ends, &options()).expect("healthy");
    // A durable commit of redb's syncs twice, with quick-repair thrice.
    assert!(syncs() - before <= 3, "{} syncs", syncs() - before);
    assert_eq!(ended.iter().filter(|ended| matches!(ended, Ok(Settled::Published))).count(), 20);
    assert_eq!(world.events(), 20);
    let too_many: Vec<_> = (0..257).map(|_| (&leased[0], Ending::Published)).collect();
    refused(world.store.outbox_end(&too_many, &options()), ErrorKind::Invalid);
    refused(world.store.outbox_lease(0, &options()), ErrorKind::Invalid);
}

#[test]
fn delays_of_events_that_failed_together_differ_and_stay_below_their_ceiling() {
    let world = in_memory();
    world.emit("a", (0..64).map(free));
    for ceiling in [100, 200] {
        let leased = world.store.outbox_lease(64, &options()).expect("healthy");
        assert_eq!(leased.len(), 64);
        let now = world.store.now_ms();
        let ends: Vec<_> = leased.iter().map(|delivery| (delivery, failed())).collect();
        let ended = world.store.outbox_end(&ends, &options()).expect("healthy");
        let mut delays: Vec<Millis> = ended
            .into_iter()
            .map(|ended| match ended {
                Ok(Settled::Again { at_ms }) => at_ms.since(now),
                other => panic!("{other:?}"),
            })
            .collect();
        delays.sort_unstable();
        assert!(delays[63].0 <= ceiling, "{delays:?}");
        // Of 64 even draws from 0 to 100 fewer than 20 differ, or none is in the upper half, once in 10^18 runs.
        assert!(delays[63].0 > ceiling / 2, "{delays:?}");
        delays.dedup();
        assert!(delays.len() >= 20, "{delays:?}");
        world.clock.advance(ceiling);
    }
}

#[test]
fn a_panic_over_one_event_is_its_own_and_the_others_are_leased() {
    let options_of_store = Options::new(Abandoned::Rerun);
    let panics = options_of_store.panics();
    let store = Store::in_memory(options_of_store).expect("memory");
    emit(&store, "a", "request", (0..5).map(free));
    panics.store(2, SeqCst);
    let leased = store.outbox_lease(9, &options()).expect("healthy");
    assert_eq!(leased.len(), 3);
    assert!(!store.is_poisoned());
    panics.store(1, SeqCst);
    let ends: Vec<_> = leased.iter().map(|delivery| (delivery, Ending::Published)).collect();
    let ended = store.outbox_end(&ends, &options()).expect("healthy");
    refused(ended.into_iter().next().expect("three"), ErrorKind::Internal);
    assert_eq!(store.outbox().expect("healthy").events, 3);
    assert_eq!(store.outbox_lease(9, &options()).expect("healthy").len(), 2);
}

#[test]
fn an_end_in_doubt_is_asked_again_after_reopening() {
    let folder = fast_folder();
    let options_of_store = Options::new(Abandoned::Rerun).cache_len(0);
    let faults = options_of_store.faults();
    let store = Store::open(folder.path().join("store"), options_of_store).expect("a fresh folder");
    emit(&store, "a", "request", [ordered("k", 1), ordered("k", 2)]);
    let delivery = store.outbox_lease(9, &options()).expect("healthy").remove(0);
    faults.add(once(Op::Sync));
    refused(store.outbox_end(&[(&delivery, Ending::Published)], &options()), ErrorKind::Unknown);
    refused(store.outbox_end(&[(&delivery, Ending::Published)], &options()), ErrorKind::Poisoned);
    refused(store.outbox_lease(9, &options()), ErrorKind::Poisoned);
    store.reopen().expect("the disk is well again");
    // Applied or not, it is over now: published, or fenced because it was.
    match &store.outbox_end(&[(&delivery, Ending::Published)], &options()).expect("healthy")[..] {
        [Ok(Settled::Published)] => {}
        [Err(error)] => assert_eq!(error.kind(), ErrorKind::Fenced),
        other => panic!("{other:?}"),
    }
    let next = store.outbox_lease(9, &options()).expect("healthy").remove(0);
    assert_eq!(payload(&next), "2");
}

#[test]
fn a_closed_store_says_so() {
    let store = Store::in_memory(Options::new(Abandoned::Rerun)).expect("memory");
    emit(&store, "a", "request", [free(1)]);
    let delivery = store.outbox_lease(1, &options()).expect("healthy").remove(0);
    let other = store.clone();
    store.close().expect("healthy");
    refused(other.outbox_lease(1, &options()), ErrorKind::Closed);
    refused(other.outbox_end(&[(&delivery, Ending::Published)], &options()), ErrorKind::Closed);
    refused(other.outbox(), ErrorKind::Closed);
    refused(other.dead_letters(None, 1), ErrorKind::Closed);
    refused(other.relay(&options(), |_| Ok(())), ErrorKind::Closed);
    refused(other.relay_once(Millis(0), &options(), |_| Ok(())), ErrorKind::Closed);
}

//! What is published, and in which order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use keyclaim::outbox::{Backoff, Delivery};
use keyclaim::{Abandoned, Options, Store, Writes};

use crate::faulty::*;
use crate::kit::*;

const CHAINS: usize = 8;
const LEN: usize = 30;

/// The scope and ordering key of an event, as one name.
fn chain(delivery: &Delivery) -> String {
    format!("{:?}/{:?}", delivery.scope.as_bytes(), delivery.event.ordered_by())
}

#[test]
fn every_chain_is_published_in_the_order_of_its_commits_by_many_workers() {
    let store = Store::in_memory(Options::new(Abandoned::Rerun)).expect("memory");
    let (published, tries) = (Published::default(), Arc::new(AtomicU64::new(0)));
    let running: Arc<Mutex<HashMap<String, Arc<AtomicBool>>>> = Arc::default();
    let (noted, inside) = (published.clone(), running.clone());
    let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(5)).expect("in bounds");
    let patient = long_lease().attempts_max(1_000).expect("in bounds").backoff(backoff);
    let relay = store.relay(&patient.workers(8).expect("in bounds"), move |delivery: &Delivery| {
        let alone = inside.lock().expect("no panic").entry(chain(delivery)).or_default().clone();
        assert!(!alone.swap(true, Ordering::SeqCst), "two of one chain at once");
        thread::yield_now();
        // Every fifth delivery fails, so that events are tried again among the others.
        let fails = tries.fetch_add(1, Ordering::Relaxed) % 5 == 4;
        if !fails {
            noted.note(delivery);
        }
        alone.store(false, Ordering::SeqCst);
        if fails { again() } else { Ok(()) }
    });
    let relay = relay.expect("open");
    // Two scopes that share their ordering keys, each filled by a thread of its own.
    thread::scope(|threads| {
        for scope in ["one", "two"] {
            let store = &store;
            threads.spawn(move || {
                for n in 0..LEN {
                    let events = (0..CHAINS / 2).map(|key| ordered(&format!("key {key}"), n));
                    emit(store, scope, &format!("request {n}"), events);
                }
            });
        }
    });
    eventually("all are published", || store.outbox().expect("healthy").events == 0);
    let done = relay.shutdown(LONG);
    assert_eq!((done.panicked, done.dead, done.open), (0, 0, 0), "{done:?}");
    let mut by_chain: HashMap<String, Vec<String>> = HashMap::new();
    for delivery in published.all() {
        by_chain.entry(chain(&delivery)).or_default().push(payload(&delivery));
    }
    assert_eq!(by_chain.len(), CHAINS);
    let in_order: Vec<_> = (0..LEN).map(|n| n.to_string()).collect();
    for payloads in by_chain.values() {
        assert_eq!(*payloads, in_order);
    }
}

#[test]
fn two_chains_are_published_side_by_side() {
    let world = in_memory();
    world.emit("a", [ordered("one", 1), ordered("two", 2)]);
    let both = Arc::new(Barrier::new(2));
    let relay = world.store.relay(&options(), move |_: &Delivery| {
        both.wait();
        Ok(())
    });
    eventually("both are published", || world.events() == 0);
    drop(relay.expect("open"));
}

#[test]
fn a_failed_event_is_tried_again_before_those_behind_it() {
    let world = in_memory();
    world.emit("a", (0..5).map(|n| ordered("k", n)));
    let published = Published::default();
    for _ in 0..20 {
        world.pass(|delivery| {
            if delivery.attempt < 3 {
                return again();
            }
            published.note(delivery);
            Ok(())
        });
        world.clock.advance(10_000);
    }
    assert_eq!(published.payloads(), ["0", "1", "2", "3", "4"]);
}

#[test]
fn an_event_is_there_if_and_only_if_its_command_happened() {
    let world = in_memory();
    let claim = won(world.store.claim(&request("a")));
    let conflicting = Writes::new().require("t", b"row", Some(keyclaim::Version(7))).emit(free("never"));
    assert!(!claim.complete_with(&success(b"done"), conflicting).expect("its owner").is_done());
    let checkpoint = claim.checkpoint_with("point", b"", Writes::new().emit(free("first")));
    assert!(checkpoint.expect("its owner").is_done());
    let writes = Writes::new().emit(free("second")).emit(free("third"));
    assert!(claim.complete_with(&success(b"done"), writes).expect("its owner").is_done());
    let published = Published::default();
    world.pass(published.handler());
    assert_eq!(published.payloads(), ["first", "second", "third"]);
    let ids: Vec<_> = published.all().iter().map(|delivery| delivery.id.to_string()).collect();
    let generation = claim.generation();
    assert_eq!(ids, [0, 1, 2].map(|number| format!("{generation}-{number}")));
    let key = format!("{}-{generation}-2", world.store.id());
    assert_eq!(published.all()[2].key.as_bytes(), key.as_bytes());
}

#[test]
fn a_command_whose_events_are_out_of_bounds_is_invalid_and_changes_nothing() {
    let world = in_memory();
    let claim = won(world.store.claim(&request("a")));
    for event in [keyclaim::Event::new("", "x"), free("x").ordering_key(""), free("x".repeat(65_537))] {
        let writes = Writes::new().emit(free("fits")).emit(event);
        refused(claim.complete_with(&success(b"done"), writes), keyclaim::ErrorKind::Invalid);
    }
    assert_eq!(world.events(), 0);
    claim.complete(&success(b"done")).expect("still the owner");
}

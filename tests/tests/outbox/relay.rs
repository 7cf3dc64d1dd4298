//! The relay's threads: what wakes them, how much they take, and how they end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use keyclaim::outbox::{Backoff, Delivery, RelayOptions, Relayed};
use keyclaim::store::inject::Op;
use keyclaim::{Abandoned, ErrorKind, Millis, Options, Store};

use crate::faulty::*;
use crate::kit::*;

/// Stops every handler until it is opened, and counts those that stand before it.
#[derive(Clone, Default)]
struct Barrier(Arc<(Mutex<(bool, usize)>, Condvar)>);

impl Barrier {
    fn pass(&self) {
        let (state, opened) = &*self.0;
        let mut state = state.lock().expect("no panic");
        state.1 += 1;
        while !state.0 {
            state = opened.wait(state).expect("no panic");
        }
    }

    fn open(&self) {
        self.0.0.lock().expect("no panic").0 = true;
        self.0.1.notify_all();
    }

    fn standing(&self) -> usize {
        self.0.0.lock().expect("no panic").1
    }
}

fn real() -> Store {
    Store::in_memory(Options::new(Abandoned::Rerun)).expect("memory")
}

fn workers(count: usize) -> RelayOptions {
    options().workers(count).expect("in bounds")
}

fn patient(count: usize) -> RelayOptions {
    long_lease().workers(count).expect("in bounds")
}

#[test]
fn a_commit_wakes_a_relay_that_has_nothing_to_do() {
    let world = in_memory();
    let published = Published::default();
    let relay = world.store.relay(&options(), published.handler()).expect("open");
    for n in 0..20 {
        // The clock stands still: nothing but the commit can be what wakes it.
        world.emit("a", [ordered("k", n)]);
        eventually("it is published", || published.all().len() == n + 1);
    }
    eventually("all are gone", || world.events() == 0);
    assert_eq!(relay.counts().published, 20);
}

#[test]
fn a_failed_event_is_tried_again_when_its_delay_is_over() {
    let store = real();
    let backoff = Backoff::new(Duration::from_millis(40), Duration::from_millis(40)).expect("in bounds");
    let tries: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = tries.clone();
    let relay =
        store.relay(&options().attempts_max(10).expect("in bounds").backoff(backoff), move |delivery| {
            noted.lock().expect("no panic").push(Instant::now());
            if delivery.attempt < 6 { again() } else { Ok(()) }
        });
    emit(&store, "a", "request", [free(1)]);
    eventually("it is published", || store.outbox().expect("healthy").events == 0);
    let done = relay.expect("open").shutdown(LONG);
    assert_eq!((done.begun, done.failed, done.published), (6, 5, 1));
    let tries = tries.lock().expect("no panic");
    let all = tries[5] - tries[0];
    // Its timer, and not the look once a second, is what wakes it for each of the five.
    assert!(all < Duration::from_secs(4), "{all:?}");
}

#[test]
fn a_relay_leases_no_more_than_it_has_hands_for() {
    let world = in_memory();
    world.emit("a", (0..60).map(free));
    let barrier = Barrier::default();
    let before = barrier.clone();
    let relay = world.store.relay(&workers(3), move |_| {
        before.pass();
        Ok(())
    });
    eventually("each worker has one", || barrier.standing() == 3);
    // Three run and three wait for a worker; all others can be had by somebody else.
    eventually("six are leased", || world.store.stats().is_ok() && world.leasable() == 54);
    thread::sleep(Duration::from_millis(30));
    assert_eq!((barrier.standing(), relay.as_ref().expect("open").counts().begun), (3, 3));
    barrier.open();
    drop(relay);
}

impl World {
    /// How many events nobody has leased; they are given back at once.
    fn leasable(&self) -> usize {
        let leased = self.store.outbox_lease(256, &options()).expect("healthy");
        let ends: Vec<_> = leased.iter().map(|d| (d, keyclaim::outbox::Ending::Returned)).collect();
        for ended in self.store.outbox_end(&ends, &options()).expect("healthy") {
            ended.expect("its own");
        }
        leased.len()
    }
}

#[test]
fn shutting_down_gives_back_at_once_what_was_not_begun() {
    let world = in_memory();
    world.emit("a", (0..10).map(free));
    let barrier = Barrier::default();
    let before = barrier.clone();
    let relay = world.store.relay(&workers(2), move |_| {
        before.pass();
        Ok(())
    });
    let relay = relay.expect("open");
    eventually("each worker has one", || barrier.standing() == 2);
    let done = relay.shutdown(Duration::ZERO);
    assert_eq!((done.begun, done.open, done.published), (2, 2, 0), "{done:?}");
    // Not a lease later: now.
    let again = world.store.outbox_lease(256, &options()).expect("healthy");
    assert_eq!(again.len(), 8);
    assert!(again.iter().all(|delivery| delivery.attempt == 1), "what was not begun was counted");
    // Those that ran on store their own end.
    barrier.open();
    eventually("both are published", || world.events() == 8);
}

#[test]
fn shutting_down_lets_running_deliveries_end() {
    let world = in_memory();
    world.emit("a", (0..10).map(free));
    let barrier = Barrier::default();
    let before = barrier.clone();
    let relay = world.store.relay(&workers(2), move |_| {
        before.pass();
        Ok(())
    });
    let relay = relay.expect("open");
    eventually("each worker has one", || barrier.standing() == 2);
    let ending = thread::spawn(move || relay.shutdown(LONG));
    eventually("the others are given back", || world.leasable() == 8);
    assert!(!ending.is_finished());
    barrier.open();
    let done: Relayed = ending.join().expect("no panic");
    assert_eq!((done.published, done.open, world.events()), (2, 0, 8));
}

#[test]
fn relays_that_come_and_go_publish_everything_and_nothing_twice() {
    let store = real();
    let (published, stop) = (Published::default(), Arc::new(AtomicU64::new(0)));
    let producer = {
        let (store, stop) = (store.clone(), stop.clone());
        thread::spawn(move || {
            for n in 0..40 {
                emit(
                    &store,
                    "a",
                    &format!("request {n}"),
                    (0..5).map(|m| ordered(&format!("k{m}"), n * 5 + m)),
                );
            }
            stop.store(1, Ordering::Release);
        })
    };
    let mut relays = 0;
    while stop.load(Ordering::Acquire) == 0 || store.outbox().expect("healthy").events > 0 {
        let relay = store.relay(&patient(3), published.handler()).expect("open");
        thread::sleep(Duration::from_millis(3));
        // Nothing outlasts its deadline here, so nothing is delivered twice.
        assert_eq!(relay.shutdown(LONG).open, 0);
        relays += 1;
        assert!(relays < 5_000, "never done");
    }
    producer.join().expect("no panic");
    let payloads = published.payloads();
    assert_eq!(payloads.iter().collect::<BTreeSet<_>>().len(), 200);
    assert_eq!(payloads.len(), 200);
}

#[test]
fn a_handler_that_panics_is_a_failed_delivery() {
    let world = in_memory();
    world.emit("a", [free("panics"), free("fine")]);
    let relay = world.store.relay(&workers(1), |delivery: &Delivery| {
        assert_ne!(payload(delivery), "panics", "a handler's own panic");
        Ok(())
    });
    let relay = relay.expect("open");
    eventually("both were handled", || {
        let done = relay.counts();
        (done.published, done.failed, done.panicked) == (1, 1, 1)
    });
    world.clock.advance(200);
    eventually("it was tried again", || relay.counts().failed == 2);
    world.clock.advance(400);
    eventually("it is dead", || relay.counts().dead == 1);
    let letter = world.store.dead_letters(None, 9).expect("healthy").letters.remove(0);
    assert_eq!(letter.failure.as_deref(), Some("the handler panicked"));
    assert!(!world.store.is_poisoned());
}

#[test]
fn a_handler_that_outlasts_its_lease_is_overtaken_and_counted() {
    let world = in_memory();
    world.emit("a", [ordered("k", "slow"), ordered("k", "next")]);
    let (barrier, published) = (Barrier::default(), Published::default());
    let (before, noted) = (barrier.clone(), published.clone());
    let relay = world.store.relay(&workers(2), move |delivery: &Delivery| {
        if delivery.attempt == 1 && payload(delivery) == "slow" {
            before.pass();
        }
        noted.note(delivery);
        Ok(())
    });
    let relay = relay.expect("open");
    eventually("it is slow", || barrier.standing() == 1);
    world.clock.advance(1_000);
    eventually("both are published meanwhile", || relay.counts().published == 2);
    barrier.open();
    eventually("the late end was refused", || relay.counts().overtaken == 1);
    assert_eq!(published.payloads(), ["slow", "next", "slow"]);
    assert_eq!((world.events(), relay.counts().published), (0, 2));
}

#[test]
fn closing_the_store_ends_its_relay_and_gives_back_what_was_not_begun() {
    let folder = fast_folder();
    let path = folder.path().join("store");
    let store = Store::open(&path, Options::new(Abandoned::Rerun)).expect("a fresh folder");
    emit(&store, "a", "request", (0..10).map(free));
    let barrier = Barrier::default();
    let before = barrier.clone();
    let relay = store.relay(&patient(2), move |_| {
        before.pass();
        Ok(())
    });
    let relay = relay.expect("open");
    eventually("each worker has one", || barrier.standing() == 2);
    let closing = thread::spawn(move || store.close());
    eventually("it is closed, and waits for no handler", || closing.is_finished());
    closing.join().expect("no panic").expect("healthy");
    let store = Store::open(&path, Options::new(Abandoned::Rerun)).expect("closed");
    assert_eq!(store.outbox_lease(256, &options()).expect("healthy").len(), 8);
    barrier.open();
    assert_eq!(relay.shutdown(LONG).published, 0, "its store is closed");
    assert_eq!(store.outbox().expect("healthy").events, 10);
}

#[test]
fn the_last_handle_closes_a_store_although_its_relay_runs() {
    let folder = fast_folder();
    let path = folder.path().join("store");
    let store = Store::open(&path, Options::new(Abandoned::Rerun)).expect("a fresh folder");
    let relay = store.relay(&options(), |_| Ok(())).expect("open");
    refused(Store::open(&path, Options::new(Abandoned::Rerun)), ErrorKind::Busy);
    drop(store);
    drop(Store::open(&path, Options::new(Abandoned::Rerun)).expect("the relay holds no handle"));
    drop(relay);
}

#[test]
fn a_relay_goes_on_once_a_poisoned_store_is_reopened() {
    let folder = fast_folder();
    let options_of_store = Options::new(Abandoned::Rerun).cache_len(0);
    let faults = options_of_store.faults();
    let store = Store::open(folder.path().join("store"), options_of_store).expect("a fresh folder");
    emit(&store, "a", "request", (0..20).map(|n| ordered("k", n)));
    let published = Published::default();
    let (noted, switch) = (published.clone(), faults.clone());
    let relay = store.relay(&workers(2), move |delivery: &Delivery| {
        if payload(delivery) == "7" && delivery.attempt == 1 {
            switch.add(once(Op::Sync));
        }
        noted.note(delivery);
        Ok(())
    });
    let relay = relay.expect("open");
    eventually("its commit failed", || store.is_poisoned());
    store.reopen().expect("the disk is well again");
    eventually("all are published", || store.outbox().expect("healthy").events == 0);
    let done = relay.shutdown(LONG);
    assert_eq!(done.open, 0);
    // In order, and again only what was in doubt.
    let mut payloads: Vec<u32> = published.payloads().iter().map(|p| p.parse().expect("a number")).collect();
    payloads.dedup();
    assert_eq!(payloads, (0..20).collect::<Vec<_>>());
}

#[test]
fn a_pass_by_hand_takes_what_was_due_then_and_cannot_run_ahead() {
    let world = in_memory();
    world.emit("a", [free("early")]);
    let then = world.store.now_ms();
    world.clock.advance(1);
    world.emit("a", [free("late")]);
    let published = Published::default();
    let once = |at| world.store.relay_once(at, &options(), published.handler());
    let done = once(then).expect("healthy");
    assert_eq!((done.published, published.payloads()), (1, vec!["early".to_owned()]));
    refused(once(world.store.now_ms().plus(Millis(1))), ErrorKind::Invalid);
    assert_eq!(once(world.store.now_ms()).expect("healthy").published, 1);
}

#[test]
fn a_delivery_whose_lease_ended_before_a_worker_was_free_is_not_begun() {
    let world = in_memory();
    world.emit("a", [free(1), free(2)]);
    let clock = world.clock.clone();
    let published = Published::default();
    let noted = published.clone();
    let one = options().workers(1).expect("in bounds");
    let done = world.store.relay_once(world.store.now_ms(), &one, move |delivery| {
        noted.note(delivery);
        if delivery.attempt == 1 && noted.all().len() == 1 {
            clock.advance(1_000);
        }
        Ok(())
    });
    let done = done.expect("healthy");
    // Both were leased at once, and the second was given back: due now, and so later than this pass.
    assert_eq!((done.begun, done.returned, done.published), (1, 1, 1), "{done:?}");
    assert_eq!(world.pass(published.handler()).published, 1);
    assert!(published.all().iter().all(|delivery| delivery.attempt == 1));
}

//! The completer's own threads: they finish by themselves, and end with the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keyclaim::store::Standing;
use keyclaim::store::inject::Op;
use keyclaim::{Abandoned, Completer, ErrorKind, Options, Store};

use crate::faulty::*;
use crate::kit::*;

const OFTEN: Duration = Duration::from_millis(20);

fn every(completer: &Completer) -> impl FnOnce(Options) -> Options {
    let completer = completer.clone();
    move |options| options.complete_every(OFTEN, completer).expect("in bounds")
}

fn is_complete(world: &World, key: &str) -> bool {
    matches!(world.look(key).standing, Standing::Complete { .. })
}

#[test]
fn the_threads_finish_what_is_abandoned_and_go_on_after_a_reopen() {
    let folder = fast_folder();
    let clock = keyclaim::clock::ManualClock::new(1_700_000_000_000);
    let (completer, count) = completing();
    let options = every(&completer)(options(&clock, Abandoned::Rerun)).cache_len(0);
    let store = Store::open(folder.path().join("store"), options.clone()).expect("a fresh folder");
    let world = World { store, clock };
    world.abandon_many(10);
    eventually("they are finished", || count.load(Ordering::SeqCst) == 10);
    eventually("and complete", || (0..10).all(|n| is_complete(&world, &format!("key {n}"))));

    drop(world.claim("after", b"order"));
    options.faults().add(once(Op::Sync));
    world.clock.advance(LEASE);
    eventually("the completer meets the fault", || world.store.is_poisoned());
    world.store.reopen().expect("the fault is over");
    // Its takeover may be durable: then its lease ends it, and the pause after it.
    eventually("a pass after the reopen", || {
        world.clock.advance(LEASE);
        count.load(Ordering::SeqCst) >= 11
    });
    bounded(move || world.store.close().expect("the threads are joined"));
}

#[test]
fn nothing_is_finished_unless_it_is_asked_for() {
    let world = in_memory();
    world.abandon_many(1);
    thread::sleep(3 * OFTEN);
    assert_eq!(world.look("key 0").attempt, 1);
    let options = Options::new(Abandoned::Rerun);
    refused(options.complete_every(Duration::from_millis(9), Completer::new()), ErrorKind::Invalid);
}

#[test]
fn closing_waits_for_a_handler_and_its_outcome_is_durable() {
    let folder = fast_folder();
    let path = folder.path().join("store");
    let clock = keyclaim::clock::ManualClock::new(1_700_000_000_000);
    let runs = Arc::new(AtomicBool::new(false));
    let running = runs.clone();
    let completer = orders(move |takeover| {
        running.store(true, Ordering::SeqCst);
        eventually("the store closes", || takeover.is_closing());
        thread::sleep(Duration::from_millis(50));
        takeover.claim().checkpoint("while it closes", b"")?;
        Ok(success(b"done").into())
    });
    let options = every(&completer)(options(&clock, Abandoned::Rerun));
    let store = Store::open(&path, options.clone()).expect("a fresh folder");
    let world = World { store, clock };
    world.abandon_many(1);
    eventually("the handler runs", || runs.load(Ordering::SeqCst));
    let World { store, .. } = world;
    bounded(move || store.close().expect("healthy"));
    let store = Store::open(&path, options).expect("closed");
    assert_eq!(replay(store.claim(&request("key 0"))).response.body.bytes(), Some(&b"done"[..]));
}

#[test]
fn closing_waits_no_longer_than_it_was_told_to_for_a_handler_that_hangs() {
    let (hangs, is_let_go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (hanging, let_go) = (hangs.clone(), is_let_go.clone());
    let closed = Arc::new(AtomicUsize::new(0));
    let told = closed.clone();
    let completer = orders(move |takeover| {
        hanging.store(true, Ordering::SeqCst);
        eventually("the test is over", || let_go.load(Ordering::SeqCst));
        let error = refused(takeover.claim().checkpoint("late", b""), ErrorKind::Closed);
        told.fetch_add(1, Ordering::SeqCst);
        Err(error.into())
    });
    let world = in_memory_with(Abandoned::Rerun, every(&completer.close_wait(Duration::from_millis(100))));
    world.abandon_many(1);
    eventually("the handler hangs", || hangs.load(Ordering::SeqCst));
    let start = Instant::now();
    world.store.close().expect("healthy");
    assert!((Duration::from_millis(100)..Duration::from_secs(10)).contains(&start.elapsed()));
    is_let_go.store(true, Ordering::SeqCst);
    eventually("the handler is told", || closed.load(Ordering::SeqCst) == 1);
}

#[test]
fn closing_does_not_wait_for_a_period() {
    let (completer, _) = completing();
    let hours = Duration::from_hours(1_000);
    let world = in_memory_with(Abandoned::Rerun, |options| {
        options.complete_every(hours, completer).expect("in bounds")
    });
    bounded(move || world.store.close().expect("healthy"));
}

/// Claims hold a store open, those of handlers too: a busy completer must not keep it open for ever.
#[test]
fn a_store_whose_last_handle_goes_closes_after_what_runs() {
    let folder = fast_folder();
    let path = folder.path().join("store");
    let clock = keyclaim::clock::ManualClock::new(1_700_000_000_000);
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let completer = orders(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(20));
        Ok(success(b"done").into())
    });
    let store =
        Store::open(&path, every(&completer)(options(&clock, Abandoned::Rerun))).expect("a fresh folder");
    let world = World { store, clock };
    world.abandon_many(500);
    eventually("they are being finished", || count.load(Ordering::SeqCst) > 4);
    let World { store, clock } = world;
    drop(store);
    let options = options(&clock, Abandoned::Rerun).open_wait(LONG);
    let store = Store::open(&path, options).expect("it closed by itself");
    assert!(count.load(Ordering::SeqCst) < 100, "it went on without a handle");
    let world = World { store, clock };
    let left = world.pass(&completing().0).completed;
    assert_eq!(left + count.load(Ordering::SeqCst) as u64, 500, "what ran has finished");
}

#[test]
fn a_handler_that_takes_long_holds_up_no_other() {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    let completer = orders(move |takeover| {
        if takeover.request() == b"slow" {
            eventually("the test is over", || over.load(Ordering::SeqCst));
        }
        Ok(success(b"done").into())
    });
    let completer = completer.concurrency(2).expect("in bounds");
    let world = in_memory_with(Abandoned::Rerun, every(&completer));
    drop(world.claim("slow", b"slow"));
    world.clock.advance(LEASE);
    for n in 0..5 {
        let key = format!("{n}");
        drop(world.claim(&key, b"order"));
        world.clock.advance(LEASE);
        eventually("a later pass finishes it", || is_complete(&world, &key));
    }
    is_over.store(true, Ordering::SeqCst);
    bounded(move || world.store.close().expect("healthy"));
}

#[test]
fn a_handler_may_close_the_store_it_works_for() {
    let slot = Arc::new(std::sync::Mutex::new(None::<Store>));
    let (taken, closed) = (slot.clone(), Arc::new(AtomicBool::new(false)));
    let done = closed.clone();
    let completer = orders(move |_| {
        if let Some(store) = taken.lock().expect("no panic").take() {
            store.close().expect("healthy");
            done.store(true, Ordering::SeqCst);
        }
        Ok(success(b"done").into())
    });
    let world = in_memory_with(Abandoned::Rerun, every(&completer.concurrency(1).expect("in bounds")));
    *slot.lock().expect("no panic") = Some(world.store.clone());
    world.abandon_many(3);
    eventually("it is closed", || closed.load(Ordering::SeqCst));
    refused(world.store.stats(), ErrorKind::Closed);
}

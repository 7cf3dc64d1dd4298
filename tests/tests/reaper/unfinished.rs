//! What is unfinished is reported once a horizon, and kept.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use keyclaim::machine::HoldReason;
use keyclaim::store::Standing;
use keyclaim::{Claim, ErrorKind, Id, Reap, Store};

use crate::faulty::*;
use crate::kit::*;

/// What the hook does; it has the store from here, and gives it back in the end.
type Slot = Arc<Mutex<Option<Store>>>;

fn hooked(hook: impl Fn(&Store, &Id) + Send + Sync + 'static) -> (World, Slot) {
    let slot = Slot::default();
    let inner = slot.clone();
    let world = in_memory_with(|options| {
        options.on_unfinished(move |unfinished| {
            let store = inner.lock().expect("no panic").clone().expect("filled");
            hook(&store, &unfinished.id);
        })
    });
    *slot.lock().expect("no panic") = Some(world.store.clone());
    (world, slot)
}

#[test]
fn what_is_unfinished_is_kept_and_reported_once_a_horizon() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let noted = calls.clone();
    let (world, slot) = hooked(move |store, id| {
        let found = store.inspect(id).expect("no lock is held").expect("it is there");
        assert!(found.horizon_until_ms <= found.now_ms, "it was recorded as reported before the hook");
        noted.lock().expect("no panic").push(id.clone());
    });
    world.claim("held").hold().expect("owner");
    world.claim("point").checkpoint("charged", b"data").expect("owner");
    drop(world.claim("nothing"));
    let since = world.store.now_ms();
    for round in 1..=3 {
        world.clock.advance(HORIZON - 1);
        assert_eq!(world.reap().rows_read, 0, "reported early in round {round}");
        world.clock.advance(1);
        let reaped = world.reap();
        assert_eq!((reaped.unfinished_reported, reaped.unfinished.len(), reaped.removed), (3, 3, 0));
        assert!(reaped.unfinished.iter().all(|each| each.found.applied_ms == since));
        let held = reaped.unfinished.iter().find(|each| each.id == id("held")).expect("reported");
        assert_eq!(held.found.standing, Standing::Held { reason: HoldReason::Owner });
        let mut called = std::mem::take(&mut *calls.lock().expect("no panic"));
        called.sort_by_key(|id| id.key().as_bytes().to_vec());
        assert_eq!(called, ["held", "nothing", "point"].map(id));
        assert_eq!(world.store.stats().expect("healthy").unfinished_reported, 3 * round);
    }
    assert_eq!(won(world.store.claim(&request("point"))).attempt(), 2, "it can still be taken over");
    slot.lock().expect("no panic").take();
}

#[test]
fn a_claim_that_lives_in_this_process_is_never_touched() {
    let world = in_memory();
    let claim: Claim = world.claim("a");
    claim.checkpoint("charged", b"data").expect("owner");
    let before = world.store.inspect(&id("a")).expect("healthy").expect("there");
    world.clock.advance(2 * HORIZON);
    let reaped = world.reap();
    assert_eq!((reaped.rows_read, reaped.unfinished_reported, reaped.batches), (1, 0, 0));
    let after = world.store.inspect(&id("a")).expect("healthy").expect("there");
    assert_eq!(after.horizon_until_ms, before.horizon_until_ms);
    claim.complete(&success(b"late")).expect("nobody took over");

    let claim = world.claim("b");
    claim.checkpoint("charged", b"data").expect("owner");
    drop(claim);
    world.clock.advance(HORIZON);
    assert_eq!(world.reap().unfinished_reported, 1, "its owner has gone");
}

#[test]
fn what_the_hook_resolves_is_not_recorded_as_reported() {
    let (world, slot) = hooked(|store, id| {
        let found = store.inspect(id).expect("healthy").expect("there");
        store.forget(id, found.token).expect("unchanged");
    });
    world.claim("a").hold().expect("owner");
    world.clock.advance(HORIZON);
    let reaped = world.reap();
    assert_eq!((reaped.unfinished_reported, reaped.unfinished.len()), (0, 0));
    assert_eq!(world.claim("a").attempt(), 1, "it is new");
    slot.lock().expect("no panic").take();
}

#[test]
fn a_report_whose_hook_panicked_is_made_again() {
    let panics = Arc::new(AtomicBool::new(true));
    let switch = panics.clone();
    let world = in_memory_with(|options| {
        options.on_unfinished(move |_| assert!(!switch.load(Ordering::SeqCst), "a test asked for this panic"))
    });
    world.claim("held").hold().expect("owner");
    world.complete("done", &success(b"done"));
    world.clock.advance(HORIZON);
    let reaped = world.reap();
    assert_eq!((reaped.failed, reaped.unfinished_reported, reaped.removed), (1, 0, 1));
    panics.store(false, Ordering::SeqCst);
    assert_eq!(world.reap().unfinished_reported, 1);
    assert_eq!(world.reap().rows_read, 0);
}

#[test]
fn a_pass_within_a_pass_is_busy() {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let noted = answers.clone();
    let (world, slot) = hooked(move |store, _| {
        noted.lock().expect("no panic").push(store.reap(&Reap::new()).map(drop));
    });
    world.claim("a").hold().expect("owner");
    world.clock.advance(HORIZON);
    assert_eq!(world.reap().unfinished_reported, 1);
    let answer = answers.lock().expect("no panic").pop().expect("the hook was called");
    assert!(refused(answer, ErrorKind::Busy).retry_after().is_some());
    slot.lock().expect("no panic").take();
}

//! Whoever else wants the same request: owners that live, callers who ask again, other completers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, RwLock};
use std::thread;

use keyclaim::machine::Decision;
use keyclaim::{CompleterPass, ErrorKind};

use crate::faulty::*;
use crate::kit::*;

/// Few are needed to race, and none is too many on a machine that is busy with other things.
const ROUNDS_MAX: usize = 2_000;

/// KC-017. A sweep picked up whatever was not complete, also what was still being handled. The owner's right
/// was lost to it. Handlers ran twice. A claim that lives in this process is never touched, however late.
#[test]
fn a_claim_that_lives_in_this_process_is_never_touched() {
    let world = in_memory();
    let claim = world.claim("a", b"order");
    let (completer, count) = completing();
    for _ in 0..10 {
        world.clock.advance(LEASE);
        let report = world.pass(&completer);
        assert_eq!((report.rows_read, report.tried, report.passed), (1, 0, 0));
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
    claim.complete(&success(b"the owner's")).expect("it is still the owner");
    assert_eq!(world.replayed("a"), b"the owner's");
}

/// KC-013. A starting instance cleared every claim older than itself. A live claim of an older instance was
/// lost. It ran twice. Opening a store and a pass right after it leave a live lease alone.
#[test]
fn a_pass_right_after_opening_leaves_a_live_lease_alone() {
    let folder = fast_folder();
    let (world, path) = on_file(&folder);
    drop(world.claim("a", b"order"));
    let World { store, clock } = world;
    store.close().expect("healthy");
    clock.advance(LEASE - 1);
    let options = options(&clock, keyclaim::Abandoned::Rerun);
    let world = World { store: keyclaim::Store::open(&path, options).expect("closed"), clock };
    assert_eq!(world.pass(&completing().0).tried, 0);
    world.clock.advance(1);
    assert_eq!(world.pass(&completing().0).completed, 1);
}

#[test]
fn an_owner_that_renews_in_another_thread_keeps_its_claims() {
    let world = Arc::new(in_memory());
    // Whoever claims does so while the clock stands: what is raced is a claim that lives.
    let (is_over, clock) = (Arc::new(AtomicBool::new(false)), Arc::new(RwLock::new(())));
    let ended = Arc::new(AtomicUsize::new(0));
    let owners: Vec<_> = (0..2)
        .map(|thread| {
            let (world, is_over) = (world.clone(), is_over.clone());
            let (clock, ended) = (clock.clone(), ended.clone());
            thread::spawn(move || {
                for round in 0.. {
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    let stands = clock.read().expect("no panic");
                    let claim = world.claim(&format!("{thread} {round}"), b"order");
                    drop(stands);
                    for _ in 0..3 {
                        claim.renew(None).expect("never overtaken");
                        thread::yield_now();
                    }
                    claim.complete(&success(b"the owner's")).expect("never overtaken");
                    ended.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let (completer, count) = completing();
    let mut read = 0;
    eventually("they race", || {
        {
            let _moves = clock.write().expect("no panic");
            world.clock.advance(LEASE);
        }
        read += world.pass(&completer).rows_read;
        (ended.load(Ordering::SeqCst) > 100 && read > 100)
            || owners.iter().any(thread::JoinHandle::is_finished)
    });
    is_over.store(true, Ordering::SeqCst);
    for owner in owners {
        owner.join().expect("never overtaken");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[test]
fn of_two_completers_one_wins_each_request() {
    let world = Arc::new(in_memory());
    let (mut rounds, mut tried, mut lost) = (0, 0, 0);
    while rounds < 20 || (lost == 0 && rounds < ROUNDS_MAX) {
        rounds += 1;
        for n in 0..10 {
            drop(world.claim(&format!("{rounds} {n}"), b"order"));
        }
        world.clock.advance(LEASE);
        let ran = Arc::new(Mutex::new(Vec::new()));
        let start = Arc::new(Barrier::new(2));
        let passes: Vec<_> = (0..2)
            .map(|_| {
                let (world, ran, start) = (world.clone(), ran.clone(), start.clone());
                thread::spawn(move || {
                    let completer = orders(move |takeover| {
                        ran.lock().expect("no panic").push(takeover.claim().id().clone());
                        Ok(success(b"done").into())
                    });
                    start.wait();
                    world.pass(&completer)
                })
            })
            .collect();
        for pass in passes {
            let report = pass.join().expect("no panic");
            assert_eq!((report.tried, report.lost), (report.completed, 0), "{report:?}");
            (tried, lost) = (tried + report.tried, lost + report.passed);
        }
        assert_eq!(ran.lock().expect("no panic").len(), 10, "each once");
    }
    assert_eq!(tried, 10 * rounds as u64);
    assert!(lost > 0, "the completers never met");
}

#[test]
fn a_caller_who_asks_again_and_the_completer_are_never_both_told_to_run() {
    let world = Arc::new(in_memory());
    let (by_caller, by_completer) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let both = || by_caller.load(Ordering::SeqCst).min(by_completer.load(Ordering::SeqCst));
    let mut rounds = 0;
    while rounds < 100 || (both() < 3 && rounds < ROUNDS_MAX) {
        rounds += 1;
        let key = format!("key {rounds}");
        drop(world.claim(&key, b"order"));
        world.clock.advance(LEASE);
        let start = Arc::new(Barrier::new(2));
        let running = Arc::new(AtomicUsize::new(0));
        let caller = {
            let (world, start, running, count) =
                (world.clone(), start.clone(), running.clone(), by_caller.clone());
            thread::spawn(move || {
                start.wait();
                match world.answer(&key) {
                    Decision::Won(claim) => {
                        assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "both run");
                        claim.complete(&success(b"done")).expect("the owner");
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                    Decision::InFlight { .. } | Decision::Replay(_) => {}
                    other => panic!("{}", other.name()),
                }
            })
        };
        let count = by_completer.clone();
        let completer = orders(move |_| {
            assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "both run");
            count.fetch_add(1, Ordering::SeqCst);
            Ok(success(b"done").into())
        });
        start.wait();
        let report = world.pass(&completer);
        assert_eq!((report.panicked, report.lost), (0, 0));
        caller.join().expect("no panic");
    }
    assert_eq!(by_caller.load(Ordering::SeqCst) + by_completer.load(Ordering::SeqCst), rounds);
    assert!(both() > 0, "one of them always won");
}

#[test]
fn a_store_that_closes_in_the_middle_of_a_pass_lets_what_runs_finish() {
    let folder = fast_folder();
    let (world, path) = on_file(&folder);
    world.abandon_many(40);
    let store = Mutex::new(Some(world.store.clone()));
    let closer = Arc::new(Mutex::new(None));
    let closing = closer.clone();
    let completer = orders(move |takeover| {
        if let Some(store) = store.lock().expect("no panic").take() {
            *closing.lock().expect("no panic") = Some(thread::spawn(move || store.close()));
        }
        eventually("it closes", || takeover.is_closing());
        Ok(success(b"done").into())
    });
    let completer = completer.concurrency(2).expect("in bounds");
    let (pass, store) = (CompleterPass::new(&completer), world.store.clone());
    let report = bounded(move || store.complete_abandoned(&pass)).expect("what ran has finished");
    assert!((1..=2).contains(&report.completed) && !report.is_whole, "{report:?}");
    assert_eq!((report.unheard, report.failed), (0, 0));
    closer.lock().expect("no panic").take().expect("it closed").join().expect("no panic").expect("healthy");
    refused(world.store.complete_abandoned(&CompleterPass::new(&completer)), ErrorKind::Closed);
    let World { clock, .. } = world;
    let store = keyclaim::Store::open(&path, options(&clock, keyclaim::Abandoned::Rerun)).expect("closed");
    let world = World { store, clock };
    assert_eq!(world.pass(&completing().0).completed, 40 - report.completed, "the rest is found again");
}

//! The reaper's own thread, and passes that race claims.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use keyclaim::clock::ManualClock;
use keyclaim::machine::Decision;
use keyclaim::store::inject::Op;
use keyclaim::{Abandoned, ErrorKind, Options, Reap, Store, Token};

use crate::faulty::*;
use crate::kit::*;

#[test]
fn the_thread_reaps_by_itself_and_goes_on_after_a_reopen() {
    let folder = fast_folder();
    let clock = ManualClock::new(1_700_000_000_000);
    let options = options(&clock).reap_every(Duration::from_millis(20)).expect("in bounds").cache_len(0);
    let store = Store::open(folder.path().join("store"), options.clone()).expect("a fresh folder");
    let world = World { store, clock };
    let removed = || world.store.stats().map_or(0, |stats| stats.reaped);
    world.complete("a", &success(b"done"));
    world.clock.advance(HORIZON);
    eventually("a first pass", || removed() == 1);

    world.complete("b", &success(b"done"));
    options.faults().add(once(Op::Sync));
    world.clock.advance(HORIZON);
    eventually("the reaper meets the fault", || world.store.is_poisoned());
    thread::sleep(Duration::from_millis(60));
    world.store.reopen().expect("the fault is over");
    eventually("a pass after the reopen", || removed() == 2);
    bounded(move || world.store.close().expect("the thread is joined"));
}

#[test]
fn nothing_is_removed_unless_it_is_asked_for() {
    let world = in_memory();
    world.complete("a", &success(b"done"));
    world.clock.advance(2 * HORIZON);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(world.store.stats().expect("healthy").reaped, 0);
    assert_eq!(world.reap().removed, 1);
    let options = Options::new(Abandoned::Rerun);
    refused(options.clone().reap_every(Duration::ZERO), ErrorKind::Invalid);
    assert!(options.reap_every(Duration::MAX).is_ok());
}

#[test]
fn closing_does_not_wait_for_a_period_or_a_pass() {
    let world = in_memory_with(|options| options.reap_every(Duration::from_hours(1_000)).expect("in bounds"));
    let store = world.store.clone();
    bounded(move || store.close().expect("healthy"));
    refused(world.store.reap(&Reap::new()), ErrorKind::Closed);
}

/// How often each owner of the race is to win.
const WINS: usize = 100;

/// Claims and passes on the same few keys while their times run out: a live record is never removed, so no
/// owner is ever fenced, and no token is won twice.
#[test]
fn passes_that_race_claims_keep_one_winner_and_remove_nothing_alive() {
    let world = Arc::new(in_memory());
    let (wins, is_over) = (Arc::new(Mutex::new(BTreeSet::<Token>::new())), Arc::new(AtomicBool::new(false)));
    let reaper = {
        let (world, is_over) = (world.clone(), is_over.clone());
        thread::spawn(move || {
            let mut reaped = 0;
            while !is_over.load(Ordering::SeqCst) {
                // Times run out while claims are held: by whole windows and horizons.
                world.clock.advance(HORIZON / 3);
                reaped += world.reap().removed;
            }
            reaped
        })
    };
    let owners: Vec<_> = (0..4)
        .map(|thread| {
            let (world, wins) = (world.clone(), wins.clone());
            thread::spawn(move || {
                let (mut own, mut round) = (0, thread);
                let start = Instant::now();
                while own < WINS {
                    assert!(start.elapsed() < LONG, "only {own} wins: keys are stuck");
                    let key = format!("key {}", round % 5);
                    round += 1;
                    // No lease: a claim ends only by what its owner says.
                    let asked = request(&key).policy(policy().no_lease());
                    match world.store.claim(&asked).expect("healthy") {
                        Decision::Won(claim) => {
                            own += 1;
                            assert!(wins.lock().expect("no panic").insert(claim.token()), "won twice");
                            claim.checkpoint("charged", b"data").expect("its record is there");
                            thread::yield_now();
                            claim.complete(&success(b"done")).expect("its record is there");
                        }
                        Decision::Replay(_) | Decision::InFlight { .. } => {}
                        other => panic!("no owner ends without an outcome: {}", other.name()),
                    }
                }
            })
        })
        .collect();
    let ended: Vec<_> = owners.into_iter().map(thread::JoinHandle::join).collect();
    is_over.store(true, Ordering::SeqCst);
    for owner in ended {
        owner.expect("no panic");
    }
    let removed = reaper.join().expect("no panic");
    assert_eq!(wins.lock().expect("no panic").len(), 4 * WINS);
    assert!(removed > 20, "nothing raced: {removed} removed");
}

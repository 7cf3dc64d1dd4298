//! The pause between two tries, and when they are used up.

use std::sync::atomic::Ordering;
use std::time::Duration;

use keyclaim::machine::{Decision, HoldReason, WonKind};
use keyclaim::outbox::Backoff;
use keyclaim::store::Standing;
use keyclaim::{Abandoned, Completer, CompleterPass, Millis, Store};

use crate::faulty::*;
use crate::kit::*;

/// A pause drawn from it is under a second only once in half a million draws.
const WEEK: u64 = 7 * 24 * 3_600_000;

fn paused(completer: Completer, first: u64, max: u64) -> Completer {
    completer
        .backoff(Backoff::new(Duration::from_millis(first), Duration::from_millis(max)).expect("in bounds"))
}

/// How long it takes until the next try, looking every millisecond.
fn until_next_try(world: &World, completer: &Completer) -> u64 {
    for waited in 0..10_000 {
        if world.pass(completer).tried > 0 {
            return waited;
        }
        world.clock.advance(1);
    }
    panic!("never tried again");
}

#[test]
fn a_pause_is_drawn_anew_under_a_bound_that_doubles_and_looking_does_not_reset_it() {
    let world = in_memory();
    world.abandon_many(1);
    let (completer, count) = failing();
    let completer = paused(completer, 40, 100);
    assert_eq!(until_next_try(&world, &completer), 0);
    let waits: Vec<u64> = (0..60).map(|_| until_next_try(&world, &completer)).collect();
    let bounds = [40, 80].into_iter().chain(std::iter::repeat(100));
    for (wait, bound) in waits.iter().zip(bounds) {
        assert!((1..=bound).contains(wait), "{waits:?}");
    }
    let (low, high) = (waits.iter().filter(|wait| **wait <= 35), waits.iter().filter(|wait| **wait > 65));
    assert!(low.count() > 5 && high.count() > 5, "these are not drawn from all of the bound: {waits:?}");
    assert_eq!(count.load(Ordering::SeqCst), 61);
}

#[test]
fn requests_that_failed_together_are_tried_again_apart() {
    let world = in_memory();
    world.abandon_many(100);
    let (completer, _) = failing();
    let completer = paused(completer, 1_000, 1_000);
    assert_eq!(world.pass(&completer).postponed, 100);
    let tried: Vec<u64> = (0..10)
        .map(|_| {
            world.clock.advance(100);
            world.store.complete_abandoned(&CompleterPass::new(&completing().0)).expect("healthy").completed
        })
        .collect();
    assert_eq!(tried.iter().sum::<u64>(), 100);
    assert!(tried.iter().all(|tried| *tried < 35), "they come together: {tried:?}");
}

#[test]
fn a_pause_survives_the_process() {
    let folder = fast_folder();
    let (world, path) = on_file(&folder);
    world.abandon_many(1);
    let (failing, _) = failing();
    let far = paused(failing, WEEK, WEEK);
    assert_eq!(world.pass(&far).postponed, 1);
    let World { store, clock } = world;
    store.close().expect("healthy");
    let store = Store::open(&path, options(&clock, Abandoned::Rerun)).expect("closed");
    let world = World { store, clock };
    world.clock.advance(LEASE);
    assert_eq!(world.pass(&far).rows_read, 0, "what pauses is not even read");
}

#[test]
fn a_process_that_dies_in_a_handler_is_followed_by_the_pause_as_well() {
    let folder = fast_folder();
    let (world, path) = on_file(&folder);
    world.abandon_many(1);
    let image = folder.path().join("image");
    let copy = image.clone();
    let completer = orders(move |_| {
        // What is on disk now is what a crash leaves.
        std::fs::copy(&path, &copy).expect("copied");
        Ok(success(b"done").into())
    });
    assert_eq!(world.pass(&paused(completer, WEEK, WEEK)).completed, 1);
    let store = Store::open(&image, options(&world.clock, Abandoned::Rerun)).expect("a crashed store opens");
    let world = World { store, clock: world.clock.clone() };
    assert_eq!(world.look("key 0").attempt, 2);
    let (completer, _) = completing();
    world.clock.advance(LEASE);
    assert_eq!(world.pass(&completer).rows_read, 0, "what pauses is not even read");
    world.clock.advance(WEEK);
    assert_eq!(world.pass(&completer).completed, 1);
}

#[test]
fn a_caller_who_asks_again_does_not_wait_for_the_pause() {
    let world = in_memory();
    world.abandon_many(1);
    let (failing, _) = failing();
    let day = 24 * 3_600_000;
    assert_eq!(world.pass(&paused(failing, day, day)).postponed, 1);
    let Decision::Won(claim) = world.answer("key 0") else { panic!("the attempt is over") };
    assert_eq!((claim.kind(), claim.attempt()), (WonKind::Takeover, 3));
    drop(claim);
    world.clock.advance(LEASE);
    assert_eq!(world.pass(&completing().0).tried, 0, "the caller's own attempt does not end the pause");
    world.clock.advance(day);
    assert_eq!(world.pass(&completing().0).completed, 1);
}

#[test]
fn it_gives_up_after_its_tries_and_a_person_gives_it_as_many_again() {
    let world = in_memory();
    drop(world.claim("a", b"order"));
    world.clock.advance(LEASE);
    // Callers' attempts are not tries: an outage they all ran into uses up nothing.
    for _ in 0..10 {
        drop(won(world.store.claim(&request("a"))));
        world.clock.advance(LEASE);
    }
    let (completer, count) = failing();
    let completer = paused(completer, 5, 5).tries_max(3).expect("in bounds");
    for round in 1..=2 {
        for _ in 0..3 {
            assert_eq!(world.pass(&completer).postponed, 1);
            world.clock.advance(5);
        }
        let report = world.pass(&completer);
        assert_eq!((report.given_up, report.tried), (1, 0));
        assert_eq!(count.load(Ordering::SeqCst), 3 * round);
        assert_eq!(world.look("a").standing, Standing::Held { reason: HoldReason::TriedTooOften });
        assert!(matches!(world.answer("a"), Decision::Held { .. }));
        assert_eq!(world.pass(&completer).given_up, 0, "once");
        world.store.resolve_resumable(&id("a"), world.look("a").token, None).expect("held");
    }
    assert_eq!(world.pass(&completing().0).completed, 1, "at once: a person said so");
}

#[test]
fn within_one_pass_nothing_is_tried_twice() {
    let world = in_memory();
    world.abandon_many(20);
    let (completer, count) = failing();
    let report = world.pass(&paused(completer, 1, 1));
    assert_eq!((report.tried, report.rows_read), (20, 20), "time stands still in this pass");
    assert_eq!(count.load(Ordering::SeqCst), 20);
    assert_eq!(world.look("key 0").now_ms, Millis(1_700_000_000_000).plus(Millis(LEASE)));
}

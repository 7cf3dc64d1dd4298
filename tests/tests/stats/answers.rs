//! Each answer to a claim is counted once, under what it was.

use std::pin::pin;
use std::time::Duration;

use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::machine::{Outcome, Response};
use keyclaim::store::Cancel;
use keyclaim::{Abandoned, AfterFailure, AfterWindow, ClaimRequest, ClaimWait, Nonce, Result};

use crate::faulty::*;
use crate::kit::*;

fn asking<'a>(key: &str, scheme: Scheme, payload: &'a [u8]) -> ClaimRequest<'a> {
    ClaimRequest::new(
        id(key),
        scheme,
        Request { method: b"POST", target: b"/pay", payload, ..Request::default() },
    )
}

fn json() -> Scheme {
    Scheme::json(Vec::<String>::new()).expect("no pointers")
}

/// Asked in this way and in the three others: counted once in each.
fn counts_in_every_way(world: &World, asked: &ClaimRequest<'_>, answer: &str) {
    let wait = ClaimWait::at_most(Duration::ZERO);
    let ways: [&dyn Fn() -> Result<_>; 4] = [
        &|| world.store.claim(asked),
        &|| block_on(world.store.claim_async(asked)),
        &|| world.store.claim_wait(asked, &wait),
        &|| block_on(world.store.claim_wait_async(asked, &wait)),
    ];
    for (way, ask) in ways.iter().enumerate() {
        let counted = moved(&world.store, || drop(ask()));
        assert_eq!(counted, these(&[(answer, 1)]), "way {way}");
    }
}

#[test]
fn every_answer_but_a_win_is_counted_once_in_every_way_of_asking() {
    let world = world();
    let owner = won(world.store.claim(&request("running")));
    counts_in_every_way(&world, &request("running"), "claims:in_flight");
    won(world.store.claim(&request("done"))).complete(&success(b"done")).expect("its owner");
    counts_in_every_way(&world, &request("done"), "claims:replayed");
    counts_in_every_way(&world, &asking("done", Scheme::Raw, b"2"), "claims:mismatched");
    owner.hold().expect("its owner");
    counts_in_every_way(&world, &request("running"), "claims:held");
    let once = request("once").policy(policy(Abandoned::Rerun).after_window(AfterWindow::Refuse));
    won(world.store.claim(&once)).complete(&success(b"done")).expect("its owner");
    world.clock.advance(WINDOW);
    counts_in_every_way(&world, &once, "claims:expired");
    let large = vec![0; keyclaim::limits::BODY_LEN_DEFAULT + 1];
    counts_in_every_way(&world, &request("large").operation("pay", &large), "claims:failed");
}

#[test]
fn a_win_is_counted_once_by_its_kind_and_its_repeats_apart() {
    let World { store, clock } = world();
    let nonce = Nonce([7; 16]);
    let asked = request("a").nonce(nonce);
    let mut first = None;
    assert_eq!(moved(&store, || first = Some(won(store.claim(&asked)))), these(&[("claims:won", 1)]));
    for _ in 0..2 {
        let again = moved(&store, || drop(won(store.claim(&asked))));
        assert_eq!(again, these(&[("claims:won_again", 1)]));
    }
    drop(first);
    clock.advance(LEASE);
    let mut owner = None;
    let takeover = moved(&store, || owner = Some(won(store.claim(&request("a")))));
    assert_eq!(takeover, these(&[("claims:won", 1), ("takeovers", 1)]));
    let owner = owner.expect("won above");
    let failure = Outcome::failure(Response::new(500, b"no"), AfterFailure::Reattempt);
    assert_eq!(moved(&store, || owner.complete(&failure).expect("its owner")), these(&[("completed", 1)]));
    let reattempt = moved(&store, || owner_completes(&store, "a"));
    assert_eq!(reattempt, these(&[("claims:won", 1), ("completed", 1)]));
    clock.advance(WINDOW);
    let reuse = moved(&store, || owner_completes(&store, "a"));
    assert_eq!(reuse, these(&[("claims:won", 1), ("completed", 1), ("expired_reuses", 1)]));
}

fn owner_completes(store: &keyclaim::Store, key: &str) {
    won(store.claim(&request(key))).complete(&success(b"done")).expect("its owner");
}

#[test]
fn a_claim_that_holds_what_was_abandoned_is_told_held_once() {
    let World { store, clock } = world();
    let asked = request("a").policy(policy(Abandoned::Hold));
    drop(won(store.claim(&asked)));
    clock.advance(LEASE);
    assert_eq!(moved(&store, || drop(store.claim(&asked))), these(&[("claims:held", 1)]));
    assert_eq!(moved(&store, || drop(store.claim(&asked))), these(&[("claims:held", 1)]));
}

/// A waiter looked ten times a second and each look was counted: a dashboard showed ten callers for one.
#[test]
fn a_wait_is_counted_once_by_what_it_returned() {
    let World { store, .. } = world();
    let owner = won(store.claim(&request("a")));
    for blocking in [true, false] {
        let counted = moved(&store, || {
            let cancel = Cancel::new();
            let (other, end) = (store.clone(), cancel.clone());
            let waiting = std::thread::spawn(move || {
                let wait = ClaimWait::at_most(LONG).or_until(&end);
                let asked = request("a");
                if blocking {
                    other.claim_wait(&asked, &wait)
                } else {
                    block_on(other.claim_wait_async(&asked, &wait))
                }
            });
            eventually("it waits", || stats(&store).waiters == 1);
            // Each of these rings, and the waiter looks again.
            for point in ["1", "2", "3"] {
                owner.checkpoint(point, b"").expect("its owner");
                std::thread::sleep(Duration::from_millis(20));
            }
            cancel.cancel();
            in_flight(waiting.join().expect("no panic"));
        });
        assert_eq!(counted, these(&[("claims:in_flight", 1)]));
    }
    let counted = moved(&store, || {
        let other = store.clone();
        let waiting = std::thread::spawn(move || other.claim_wait(&request("a"), &ClaimWait::at_most(LONG)));
        eventually("it waits", || stats(&store).waiters == 1);
        owner.complete(&success(b"done")).expect("its owner");
        replay(waiting.join().expect("no panic"));
    });
    assert_eq!(counted, these(&[("claims:replayed", 1), ("completed", 1)]));
}

#[test]
fn a_claim_asked_again_under_another_scheme_is_counted_once() {
    let World { store, .. } = world();
    let (stored, same) = (asking("a", json(), b"{\"a\": 1}"), asking("a", Scheme::Raw, b"{\"a\":1}"));
    let (other, nothing) = (asking("a", Scheme::Raw, b"{\"a\":2}"), asking("a", Scheme::Raw, b"no json"));
    let owner = won(store.claim(&stored));
    assert_eq!(moved(&store, || in_flight(store.claim(&same))), these(&[("claims:in_flight", 1)]));
    assert_eq!(moved(&store, || drop(store.claim(&other))), these(&[("claims:mismatched", 1)]));
    assert_eq!(moved(&store, || drop(store.claim(&nothing))), these(&[("claims:mismatched", 1)]));
    owner.complete(&success(b"done")).expect("its owner");
    assert_eq!(moved(&store, || drop(replay(store.claim(&same)))), these(&[("claims:replayed", 1)]));
}

/// Both were in the queue before either was decided, so the writer found the other scheme, not the look.
#[test]
fn another_scheme_found_by_the_writer_is_counted_once_too() {
    let (store, gate) = gated(10);
    let requests = [
        asking("in the writer", json(), b"1"),
        asking("a", json(), b"{\"a\": 1}"),
        asking("a", Scheme::Raw, b"{\"a\":1}"),
        asking("a", Scheme::Raw, b"no json"),
    ];
    let counted = moved(&store, || {
        gate.close();
        let mut futures: Vec<_> = requests.iter().map(|asked| Box::pin(store.claim_async(asked))).collect();
        assert!(poll_once(futures[0].as_mut()).is_pending());
        gate.wait_for_writer();
        for future in &mut futures[1..] {
            assert!(poll_once(future.as_mut()).is_pending());
        }
        gate.open();
        let told: Vec<_> =
            futures.into_iter().map(|future| block_on(future).expect("healthy").name()).collect();
        assert_eq!(told, ["won", "won", "in_flight", "mismatch"]);
    });
    assert_eq!(counted, these(&[("claims:in_flight", 1), ("claims:mismatched", 1), ("claims:won", 2)]));
}

#[test]
fn a_win_that_nobody_was_told_of_is_won_and_untold() {
    let (store, gate) = gated(10);
    let asked = request("a");
    let counted = moved(&store, || {
        {
            let mut future = pin!(store.claim_async(&asked));
            gate.close();
            assert!(poll_once(future.as_mut()).is_pending());
            gate.open();
        }
        eventually("it is undone", || stats(&store).untold == 1);
    });
    assert_eq!(counted, these(&[("claims:won", 1), ("untold", 1)]));
    // Nobody was told, and nothing was won: not counted.
    let owner = won(store.claim(&asked));
    let counted = moved(&store, || {
        let wait = ClaimWait::at_most(LONG);
        let mut future = pin!(store.claim_wait_async(&asked, &wait));
        assert!(poll_once(future.as_mut()).is_pending());
    });
    assert_eq!(counted, these(&[]));
    drop(owner);
}

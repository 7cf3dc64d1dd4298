//! What is removed, and when; and that nobody can tell from the answers.

use std::fs;
use std::time::Duration;

use keyclaim::machine::{Decision, Outcome, Response};
use keyclaim::store::Which;
use keyclaim::{AfterFailure, AfterWindow, Claim, ErrorKind, Millis, Reap, Store};

use crate::faulty::*;
use crate::kit::*;

fn failure(body: &[u8], after: AfterFailure) -> Outcome {
    Outcome::failure(Response::new(402, body), after)
}

#[test]
fn a_success_is_replayed_for_its_window_then_a_tombstone_then_gone() {
    let folder = fast_folder();
    let (world, path) = on_file(&folder);
    world.complete("a", &success(&large(7)));
    world.clock.advance(WINDOW - 1);
    assert_eq!(world.reap().rows_read, 0);
    assert_eq!(replay(world.store.claim(&request("a"))).response, success(&large(7)).response);

    world.clock.advance(1);
    let reaped = world.reap();
    assert_eq!((reaped.rows_read, reaped.tombstoned, reaped.removed), (1, 1, 0));
    assert_eq!(world.reap().rows_read, 0, "a tombstone is not due again before its horizon");
    let World { store, clock } = world;
    store.close().expect("healthy");
    assert_eq!(rows(&path), [1, 0, 0, 1], "the record stays, without its body");

    let world = World { store: Store::open(&path, options(&clock)).expect("closed"), clock };
    world.clock.advance(HORIZON - WINDOW - 1);
    assert_eq!(world.reap().rows_read, 0);
    world.clock.advance(1);
    let reaped = world.reap();
    assert_eq!((reaped.rows_read, reaped.removed, reaped.tombstoned), (1, 1, 0));
    let stats = world.store.stats().expect("healthy");
    assert_eq!((stats.reaped, stats.tombstoned, stats.last_reap_rows_read), (1, 0, 1));
    world.store.close().expect("healthy");
    assert_eq!(rows(&path), [0; 4]);
}

#[test]
fn a_failure_is_kept_whole_until_its_horizon() {
    let folder = fast_folder();
    let (world, path) = on_file(&folder);
    world.complete("a", &failure(&large(7), AfterFailure::Replay));
    world.clock.advance(HORIZON - 1);
    assert_eq!(world.reap().rows_read, 0);
    let World { store, clock } = world;
    store.close().expect("healthy");
    assert_eq!(rows(&path), [1, 1, 0, 1]);
    clock.advance(1);
    let store = Store::open(&path, options(&clock)).expect("closed");
    assert_eq!(store.reap(&Reap::new()).expect("healthy").removed, 1);
    store.close().expect("healthy");
    assert_eq!(rows(&path), [0; 4]);
}

#[test]
fn an_archived_failure_goes_at_its_own_horizon_with_its_body() {
    let folder = fast_folder();
    let (world, path) = on_file(&folder);
    world.complete("a", &failure(&large(7), AfterFailure::Replay));
    world.clock.advance(WINDOW);
    world.complete("a", &success(&large(8)));
    world.clock.advance(WINDOW - 1);
    assert_eq!(world.reap().rows_read, 0);
    world.clock.advance(HORIZON - 2 * WINDOW + 1);
    let reaped = world.reap();
    assert_eq!((reaped.archived_removed, reaped.tombstoned, reaped.removed), (1, 1, 0));
    assert_eq!(world.store.stats().expect("healthy").archived_removed, 1);
    world.store.close().expect("healthy");
    assert_eq!(rows(&path), [1, 0, 0, 1]);
}

#[test]
fn an_archived_failure_takes_no_body_but_its_own_along() {
    let folder = fast_folder();
    let (world, path) = on_file(&folder);
    world.complete("a", &failure(&large(7), AfterFailure::Replay));
    world.clock.advance(HORIZON - 1);
    world.complete("a", &success(&large(8)));
    world.clock.advance(1);
    assert_eq!(world.reap().archived_removed, 1);
    assert_eq!(replay(world.store.claim(&request("a"))).response, success(&large(8)).response);
    world.store.close().expect("healthy");
    assert_eq!(rows(&path), [1, 1, 0, 1]);
}

#[test]
fn an_extended_window_is_respected() {
    let world = in_memory();
    world.complete("a", &success(b"done"));
    let token = world.store.inspect(&id("a")).expect("healthy").expect("there").token;
    world.store.extend_window(&id("a"), token, Duration::from_millis(2 * HORIZON)).expect("finished");
    world.clock.advance(2 * HORIZON - 1);
    assert_eq!(world.reap().rows_read, 0);
    replay(world.store.claim(&request("a")));
    world.clock.advance(1);
    assert_eq!(world.reap().removed, 1);
}

/// One key for each way in which a request can stand, its claims dropped.
fn populate(world: &World) {
    let refusing = policy().after_window(AfterWindow::Refuse);
    let claim = |key: &str| world.claim(key);
    claim("success").complete(&success(b"a")).expect("owner");
    claim("large").complete(&success(&large(7))).expect("owner");
    claim("failure").complete(&failure(b"b", AfterFailure::Replay)).expect("owner");
    claim("attempted").complete(&failure(b"c", AfterFailure::Reattempt)).expect("owner");
    for (key, outcome) in
        [("refused", success(b"d")), ("refused failure", failure(b"e", AfterFailure::Replay))]
    {
        won(world.store.claim(&request(key).policy(refusing))).complete(&outcome).expect("owner");
    }
    claim("held").hold().expect("owner");
    claim("point").checkpoint("charged", b"f").expect("owner");
    drop(claim("nothing"));
    let asked = request("finishable").operation("charge", b"request");
    drop(won(world.store.claim(&asked)));
}

const KEYS: [&str; 10] = [
    "success",
    "large",
    "failure",
    "attempted",
    "refused",
    "refused failure",
    "held",
    "point",
    "nothing",
    "finishable",
];

fn told(decision: keyclaim::Result<Decision<Claim>>) -> String {
    let decision = decision.expect("healthy").map_won(|claim| {
        (claim.kind(), claim.token(), claim.generation(), claim.attempt(), claim.point().cloned())
    });
    match decision {
        // Its Debug shows no bytes.
        Decision::Replay(replay) => format!("{:?} {:?}", replay, replay.response.body.bytes()),
        other => format!("{other:?}"),
    }
}

#[test]
fn no_answer_tells_whether_a_sweep_has_run() {
    let instants =
        [0, LEASE, WINDOW - 1, WINDOW, WINDOW + LEASE, HORIZON - 1, HORIZON, HORIZON + 1, 2 * HORIZON]
            .map(Millis);
    for last in 1..=instants.len() {
        let (swept, unswept) = (in_memory(), in_memory());
        populate(&swept);
        populate(&unswept);
        let mut then = Millis(0);
        for now in &instants[..last] {
            swept.clock.advance(now.since(then).0);
            unswept.clock.advance(now.since(then).0);
            swept.reap();
            then = *now;
        }
        for key in KEYS {
            let asked = request(key);
            let (left, right) = (told(swept.store.claim(&asked)), told(unswept.store.claim(&asked)));
            assert_eq!(left, right, "{key} after {} ms", then.0);
        }
        if then.0 >= HORIZON {
            assert!(swept.store.stats().expect("healthy").reaped > 0, "nothing was swept in this test");
        }
    }
}

#[test]
fn the_file_does_not_grow_with_what_has_expired() {
    let folder = fast_folder();
    let (world, path) = on_file(&folder);
    let mut lengths = Vec::new();
    for cycle in 0..2_000 {
        world.complete(&format!("key {cycle}"), &success(&large(7)));
        world.clock.advance(HORIZON / 50);
        if cycle % 50 == 49 {
            world.reap();
            lengths.push(fs::metadata(&path).expect("there").len());
        }
    }
    // 2,000 bodies are 40 MB; those of one window are a good 300 KB.
    let (settled, last) = (lengths[lengths.len() / 4], lengths[lengths.len() - 1]);
    assert!(last <= settled && last < 8 << 20, "it grew: {lengths:?}");
    let page = world.store.list(id("any").scope(), Which::All, None, 1_000).expect("healthy");
    assert!(page.rows.len() <= 100, "{} records stay", page.rows.len());
}

#[test]
fn nothing_is_removed_by_a_time_to_come() {
    let world = in_memory();
    world.complete("a", &success(b"done"));
    let now = world.store.now_ms();
    refused(world.store.reap(&Reap::new().at(now.plus(Millis(HORIZON)))), ErrorKind::Invalid);
    replay(world.store.claim(&request("a")));
    // A time that has come does what was due then, and no more.
    world.clock.advance(HORIZON);
    let reaped = world.store.reap(&Reap::new().at(now.plus(Millis(WINDOW)))).expect("it has come");
    assert_eq!((reaped.tombstoned, reaped.removed), (1, 0));
    assert_eq!(world.reap().removed, 1);
}

//! Store time over openings: leases and windows follow it, whatever the clocks do.

mod faulty;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use faulty::*;
use keyclaim::clock::ManualClock;
use keyclaim::machine::{Decision, WonKind};
use keyclaim::{Abandoned, AfterWindow, Millis, Options, Policy, Store};

const START_MS: u64 = 1_800_000_000_000;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const YEAR_MS: u64 = 365 * DAY_MS;

fn open(path: &Path, clock: &ManualClock, policy: Policy) -> Store {
    Store::open(path, Options::with_policy(policy).clock(Arc::new(clock.clone())).renew_leases_max(0))
        .expect("nobody else has it")
}

/// Does this between two openings, or while the store is open, and expects store time to have moved so.
fn moved_by(between: bool, change: impl Fn(&ManualClock), expected_ms: u64) {
    let folder = fast_folder();
    let path = folder.path().join("store");
    let clock = ManualClock::new(START_MS);
    let mut store = open(&path, &clock, rerun());
    drop(won(store.claim(&request("a"))));
    let before = store.now_ms();
    if between {
        store.close().expect("healthy");
        change(&clock);
        store = open(&path, &clock, rerun());
    } else {
        change(&clock);
    }
    assert_eq!(store.now_ms().since(before), Millis(expected_ms));
    // A lease of a minute is over by store time, and by nothing else (KC-054, KC-013).
    if expected_ms < 60_000 {
        in_flight(store.claim(&request("a")));
        clock.advance(60_000 - expected_ms - 1);
        in_flight(store.claim(&request("a")));
        clock.advance(1);
    }
    assert_eq!(won(store.claim(&request("a"))).kind(), WonKind::Takeover);
    assert!(store.now_ms() >= before);
}

#[test]
fn a_wall_clock_that_jumps_moves_nothing() {
    for between in [false, true] {
        moved_by(between, |clock| clock.set_wall(START_MS - HOUR_MS), 0);
        moved_by(between, |clock| clock.set_wall(START_MS + 10 * YEAR_MS), 0);
        moved_by(between, |clock| clock.set_wall(0), 0);
        moved_by(between, |clock| clock.set_wall(u64::MAX), 0);
    }
}

#[test]
fn frozen_clocks_end_no_lease() {
    for between in [false, true] {
        moved_by(between, |_| {}, 0);
        moved_by(between, |clock| clock.advance(59_999), 59_999);
        moved_by(between, |clock| clock.advance(60_000), 60_000);
    }
}

#[test]
fn a_reboot_counts_the_gap_of_the_wall_clock_up_to_an_hour() {
    moved_by(true, ManualClock::reboot, 0);
    let after = |gap_ms: u64| {
        move |clock: &ManualClock| {
            clock.set_wall(START_MS + gap_ms);
            clock.reboot();
        }
    };
    moved_by(true, after(30_000), 30_000);
    moved_by(true, after(HOUR_MS), HOUR_MS);
    moved_by(true, after(HOUR_MS + 1), HOUR_MS);
    moved_by(true, after(10 * YEAR_MS), HOUR_MS);
    moved_by(
        true,
        |clock| {
            clock.set_wall(START_MS - HOUR_MS);
            clock.reboot();
        },
        0,
    );
}

#[test]
fn a_new_opening_leaves_a_live_lease_alone() {
    let folder = fast_folder();
    let path = folder.path().join("store");
    let clock = ManualClock::new(START_MS);
    let store = open(&path, &clock, rerun());
    let token = won(store.claim(&request("a"))).token();
    store.close().expect("healthy");
    for _ in 0..3 {
        clock.advance(10_000);
        let store = open(&path, &clock, rerun());
        in_flight(store.claim(&request("a")));
        // Whoever still knows its token goes on with it.
        assert_eq!(store.inspect(&id("a")).expect("healthy").expect("there").token, token);
        store.close().expect("healthy");
    }
    let store = open(&path, &clock, rerun());
    let again = won(store.claim(&request("a").token(token)));
    assert_eq!((again.token(), again.kind()), (token, WonKind::Again));
}

#[test]
fn recovery_takes_the_lease_and_not_the_window() {
    // KC-005, KC-008: a conflict only inside the lease, with a time to come back; then takeover.
    let clock = ManualClock::new(START_MS);
    let options = Options::with_policy(lease(1_000)).clock(Arc::new(clock.clone())).renew_leases_max(0);
    let store = Store::in_memory(options).expect("memory");
    drop(won(store.claim(&request("a"))));
    for at_ms in [0, 1, 500, 998, 999] {
        let Decision::InFlight { retry_after_ms, lease_until_ms } =
            store.claim(&request("a")).expect("healthy")
        else {
            panic!("not in flight at {at_ms}")
        };
        assert_eq!(lease_until_ms, Some(Millis(START_MS + 1_000)));
        assert!((1..=1_000).contains(&retry_after_ms.0));
        // A newcomer's own lease decides nothing.
        in_flight(store.claim(&request("a").policy(lease(1))));
        if let Some(step_ms) =
            [1, 499, 498, 1, 1].get([0, 1, 500, 998, 999].iter().position(|ms| *ms == at_ms).expect("listed"))
        {
            clock.advance(*step_ms);
        }
    }
    assert_eq!(store.now_ms(), Millis(START_MS + 1_000));
    let claim = won(store.claim(&request("a")));
    assert_eq!((claim.kind(), claim.attempt()), (WonKind::Takeover, 2));
}

#[test]
fn lease_and_window_end_to_the_millisecond_by_one_clock() {
    // KC-025: one unit; at its end each is over, a millisecond before it is not.
    for (lease_ms, window_ms) in [(1, 1), (1_000, 60_000), (60_000, 1_000)] {
        let clock = ManualClock::new(START_MS);
        let policy = lease(lease_ms).replay_window(Duration::from_millis(window_ms)).expect("in bounds");
        let options = Options::with_policy(policy).clock(Arc::new(clock.clone())).renew_leases_max(0);
        let store = Store::in_memory(options).expect("memory");
        let claim = won(store.claim(&request("a")));
        clock.advance(lease_ms - 1);
        in_flight(store.claim(&request("a")));
        clock.advance(1);
        let next = won(store.claim(&request("a")));
        assert_eq!(next.kind(), WonKind::Takeover);
        refused(claim.complete(&success(b"")), keyclaim::ErrorKind::Fenced);
        next.complete(&success(b"")).expect("the owner");
        clock.advance(window_ms - 1);
        replay(store.claim(&request("a")));
        clock.advance(1);
        assert_eq!(won(store.claim(&request("a"))).kind(), WonKind::ReusedAfterWindow);
    }
}

#[test]
fn after_its_window_a_key_is_new_or_refused_as_it_was_claimed() {
    // KC-053, KC-055, KC-056: window 24 h, horizon 72 h, a retry at 25 h and at 73 h, over openings.
    for (after_window, at_25_h, at_73_h) in
        [(AfterWindow::Reuse, "won", "in_flight"), (AfterWindow::Refuse, "expired", "won")]
    {
        let folder = fast_folder();
        let path = folder.path().join("store");
        let clock = ManualClock::new(START_MS);
        let policy = Policy::new(Abandoned::Rerun).no_lease().after_window(after_window);
        let store = open(&path, &clock, policy);
        won(store.claim(&request("a"))).complete(&success(b"done")).expect("healthy");
        store.close().expect("healthy");

        clock.advance(DAY_MS - 1);
        let store = open(&path, &clock, policy);
        let replayed = replay(store.claim(&request("a")));
        assert_eq!(replayed.window_until_ms, Millis(START_MS + DAY_MS), "the window is told");
        store.close().expect("healthy");

        clock.advance(HOUR_MS + 1);
        // The record keeps its own settings: this opening's change nothing about it.
        let store = open(&path, &clock, rerun().no_lease());
        let decision = store.claim(&request("a")).expect("healthy");
        assert_eq!(decision.name(), at_25_h);
        if let Decision::Won(claim) = decision {
            assert_eq!(claim.kind(), WonKind::ReusedAfterWindow);
        }
        store.close().expect("healthy");

        clock.advance(2 * DAY_MS);
        let store = open(&path, &clock, rerun().no_lease());
        let decision = store.claim(&request("a")).expect("healthy");
        assert_eq!(decision.name(), at_73_h);
        if let Decision::Won(claim) = decision {
            assert_eq!(claim.kind(), WonKind::Fresh, "nothing is known of it any more");
        }
    }
}

#[test]
fn a_forgotten_key_is_new_and_an_extended_window_replays_longer() {
    let clock = ManualClock::new(START_MS);
    let options = Options::with_policy(rerun()).clock(Arc::new(clock.clone()));
    let store = Store::in_memory(options).expect("memory");
    let claim = won(store.claim(&request("a")));
    claim.complete(&success(b"done")).expect("healthy");
    let seen =
        store.extend_window(&id("a"), claim.token(), Duration::from_millis(3 * DAY_MS)).expect("fresh");
    clock.advance(3 * DAY_MS - 1);
    replay(store.claim(&request("a")));
    store.forget(&id("a"), seen).expect("seen");
    assert_eq!(won(store.claim(&request("a"))).kind(), WonKind::Fresh);
}

/// A store was idle for ten hours and told the time all the while; then its machine was rebooted.
/// Only the last commit's time was on disk, and an hour of the gap counted. Its users saw time that
/// lay behind what they had been told. Closing saves the time, and an idle store saves it by itself.
#[test]
fn an_idle_store_does_not_fall_behind_the_time_it_told_over_a_reboot() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let clock = ManualClock::new(START_MS);
    let store = open(&path, &clock, Policy::new(Abandoned::Rerun));
    clock.advance(10 * HOUR_MS);
    let told = store.now_ms();
    store.close().expect("closed");
    clock.reboot();
    assert_eq!(open(&path, &clock, Policy::new(Abandoned::Rerun)).now_ms(), told);
}

/// KC-054: a time server that is wrong while one command commits moves no lease and no window, not even if the
/// machine goes down with the wrong time on disk.
#[test]
fn a_time_server_that_is_wrong_for_one_commit_changes_nothing() {
    for wrong_ms in [0, START_MS - 10 * YEAR_MS, START_MS + 10 * YEAR_MS, u64::MAX] {
        for reboots in [false, true] {
            let folder = fast_folder();
            let path = folder.path().join("store");
            let clock = ManualClock::new(START_MS);
            let store = open(&path, &clock, rerun());
            let done = won(store.claim(&request("done")));
            drop(won(store.claim(&request("in flight"))));
            clock.set_wall(wrong_ms);
            done.complete(&success(b"done")).expect("healthy");
            if reboots {
                // Down with the wrong time, up with the right one: at most an hour of the difference counts.
                let before = store.now_ms();
                store.close().expect("healthy");
                clock.set_wall(START_MS);
                clock.reboot();
                let store = open(&path, &clock, rerun());
                let gap_ms = if wrong_ms < START_MS { HOUR_MS } else { 0 };
                assert_eq!(store.now_ms().since(before), Millis(gap_ms), "wrong: {wrong_ms}");
                replay(store.claim(&request("done")));
                continue;
            }
            clock.set_wall(START_MS);
            assert_eq!(store.now_ms(), Millis(START_MS));
            in_flight(store.claim(&request("in flight")));
            let replayed = replay(store.claim(&request("done")));
            assert_eq!(replayed.window_until_ms, Millis(START_MS + DAY_MS));
            clock.advance(DAY_MS - 1);
            replay(store.claim(&request("done")));
        }
    }
}

#[test]
fn at_the_ends_of_time_nothing_wraps_and_no_token_comes_again() {
    for start_ms in [0, 1, u64::MAX - 61_000, u64::MAX - 1, u64::MAX] {
        let folder = fast_folder();
        let path = folder.path().join("store");
        let clock = ManualClock::new(start_ms);
        let store = open(&path, &clock, rerun());
        drop(won(store.claim(&request("in flight"))));
        won(store.claim(&request("done"))).complete(&success(b"done")).expect("healthy");
        for _ in 0..2 {
            // Where a lease can no longer end after now it is over at once, and the token still fences.
            match store.claim(&request("in flight")).expect("healthy") {
                Decision::InFlight { .. } => assert!(start_ms < u64::MAX),
                Decision::Won(claim) => assert!(claim.token().0 > 2 && store.now_ms() == Millis(u64::MAX)),
                other => panic!("{start_ms}: {other:?}"),
            }
            store.reap(&keyclaim::Reap::new()).expect("healthy");
        }
        let told = store.now_ms();
        store.close().expect("healthy");
        clock.reboot();
        clock.set_wall(u64::MAX);
        let store = open(&path, &clock, rerun());
        assert!(store.now_ms() >= told);
        // At the end of time a window ends with it: then the key is new, and its owner a later one.
        match store.claim(&request("done")).expect("healthy") {
            Decision::Replay(_) => {}
            Decision::Won(claim) => assert!(claim.token().0 > 2 && store.now_ms() == Millis(u64::MAX)),
            other => panic!("{start_ms}: {other:?}"),
        }
    }
}

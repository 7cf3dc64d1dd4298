//! What went wrong elsewhere, asked of a store: in memory and on a file, through every way to claim.
//!
//! The number of the reported case stands before each test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use keyclaim::clock::ManualClock;
use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::machine::{Body, Decision, HoldReason, InDoubt, Outcome, Response, StepResult, WonKind};
use keyclaim::store::inject::{Fault, Op};
use keyclaim::store::{Standing, Which};
use keyclaim::{
    Abandoned, AfterFailure, AfterWindow, Claim, ClaimRequest, ClaimWait, ErrorKind, Options, Policy, Result,
    Store,
};
use keyclaim_tests::block::block_on;
use keyclaim_tests::request::{id, id_in, paying, replayed, request, success, won};

const LEASE: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(100);
const HORIZON: Duration = Duration::from_mins(5);

/// A store and the clock it lives by.
struct World {
    store: Store,
    clock: ManualClock,
    dir: Option<tempfile::TempDir>,
}

impl World {
    /// One store in memory and one on a file: every case holds in both.
    fn both() -> [Self; 2] {
        let (clock, dir) = (ManualClock::new(1_700_000_000_000), tempfile::tempdir().unwrap());
        let memory = Store::in_memory(options(&clock)).unwrap();
        let memory = Self { store: memory, clock, dir: None };
        let clock = ManualClock::new(1_700_000_000_000);
        let file = Store::open(dir.path().join("store"), options(&clock)).unwrap();
        [memory, Self { store: file, clock, dir: Some(dir) }]
    }

    fn claim(&self, key: &str) -> Decision<Claim> {
        self.store.claim(&request(key)).unwrap()
    }

    fn advance(&self, span: Duration) {
        self.clock.advance(u64::try_from(span.as_millis()).unwrap());
    }

    /// Ends the process, as far as the store can tell: claims gone, file closed and opened again.
    fn restart(&mut self, options: Options) {
        let Some(dir) = &self.dir else { return };
        self.store.clone().close().unwrap();
        self.store = Store::open(dir.path().join("store"), options).unwrap();
    }
}

fn options(clock: &ManualClock) -> Options {
    Options::with_policy(policy(Abandoned::Rerun)).clock(Arc::new(clock.clone())).renew_leases_max(0)
}

fn policy(abandoned: Abandoned) -> Policy {
    let policy = Policy::new(abandoned).lease(LEASE).unwrap();
    policy.replay_window(WINDOW).unwrap().reaper_horizon(HORIZON).unwrap()
}

/// All ways to claim: both fast paths, and both that may wait.
fn every_way(store: &Store, request: &ClaimRequest<'_>) -> [Result<Decision<Claim>>; 4] {
    let wait = ClaimWait::at_most(Duration::ZERO);
    [
        store.claim(request),
        block_on(store.claim_async(request)),
        store.claim_wait(request, &wait),
        block_on(store.claim_wait_async(request, &wait)),
    ]
}

/// KC-001: losing the race is an answer, not a fault of the storage.
#[test]
fn the_loser_of_a_race_is_told_in_flight_then_the_answer() {
    for world in World::both() {
        let claim = won(world.claim("key"));
        for decision in every_way(&world.store, &request("key")) {
            assert_eq!(decision.unwrap().name(), "in_flight");
        }
        assert!(!world.store.is_poisoned());
        claim.complete(&success("made")).unwrap();
        for decision in every_way(&world.store, &request("key")) {
            assert_eq!(replayed(decision.unwrap()), b"made");
        }
        assert_eq!(world.store.stats().unwrap().won, 1);
    }
}

/// KC-002: a second start leaves the first one's record as it is.
#[test]
fn starting_a_key_in_flight_changes_nothing() {
    for world in World::both() {
        let claim = won(world.claim("key"));
        claim.checkpoint("half", b"data").unwrap();
        let before = world.store.inspect(&id("key")).unwrap();
        let longer = policy(Abandoned::Hold).lease(HORIZON).unwrap();
        for decision in every_way(&world.store, &request("key").policy(longer)) {
            assert_eq!(decision.unwrap().name(), "in_flight");
        }
        assert_eq!(world.store.inspect(&id("key")).unwrap(), before);
        claim.complete(&success("first")).unwrap();
    }
}

/// KC-003: callers that come while it runs wait for its result; another request never gets it.
#[test]
fn callers_that_wait_share_one_result_and_other_requests_do_not() {
    // A waiter looks again by itself after a second; ten rounds that take less were rung.
    let began = std::time::Instant::now();
    for World { store, .. } in (0..5).flat_map(|_| World::both()) {
        let claim = won(store.claim(&request("key")).unwrap());
        let waiters: Vec<_> = (0..8)
            .map(|_| {
                let store = store.clone();
                thread::spawn(move || {
                    let wait = ClaimWait::at_most(Duration::from_mins(1));
                    replayed(store.claim_wait(&request("key"), &wait).unwrap())
                })
            })
            .collect();
        while store.stats().unwrap().waiters < 8 {
            thread::yield_now();
        }
        for decision in every_way(&store, &paying("key", b"something else")) {
            assert_eq!(decision.unwrap().name(), "mismatch");
        }
        claim.complete(&success("the one result")).unwrap();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), b"the one result");
        }
    }
    assert!(began.elapsed() < Duration::from_secs(8), "the waiters were not woken by the completion");
}

/// KC-005, KC-008: a crash costs the lease, not the replay window; conflict before, takeover after.
#[test]
fn a_crashed_attempt_is_resumed_after_its_lease() {
    for mut world in World::both() {
        let claim = won(world.claim("key"));
        claim.checkpoint("charged", b"ch_1").unwrap();
        drop(claim);
        let again = options(&world.clock);
        world.restart(again);
        world.advance(LEASE.checked_sub(Duration::from_millis(1)).unwrap());
        let Decision::InFlight { retry_after_ms, .. } = world.claim("key") else {
            panic!("the lease is not over");
        };
        assert_eq!(retry_after_ms.0, 1);
        world.advance(Duration::from_millis(1));
        let next = won(world.claim("key"));
        assert_eq!((next.kind(), next.attempt()), (WonKind::Takeover, 2));
        assert_eq!(next.point().unwrap().data.0, b"ch_1");
    }
}

/// KC-013: whoever opens the store clears nobody's lease, whatever settings it comes with.
#[test]
fn opening_a_store_ends_no_lease() {
    for mut world in World::both() {
        drop(won(world.claim("key")));
        let before = world.store.inspect(&id("key")).unwrap();
        let short = policy(Abandoned::Rerun).lease(Duration::from_millis(1)).unwrap();
        let again = Options::with_policy(short).clock(Arc::new(world.clock.clone()));
        world.restart(again);
        assert_eq!(world.store.inspect(&id("key")).unwrap(), before);
        world.advance(LEASE.checked_sub(Duration::from_millis(1)).unwrap());
        assert_eq!(world.claim("key").name(), "in_flight");
    }
}

/// KC-015: no state of an unfinished key lets a second record in.
#[test]
fn every_unfinished_state_keeps_its_key() {
    for world in World::both() {
        let key_of = |state: &str| format!("key-{state}");
        let retried = won(world.claim(&key_of("retried")));
        retried.complete(&Outcome::failure(Response::new(503, "later"), AfterFailure::Reattempt)).unwrap();
        let retried = won(world.claim(&key_of("retried")));
        assert_eq!((retried.kind(), retried.attempt()), (WonKind::Reattempt, 2));
        won(world.claim(&key_of("held"))).hold().unwrap();
        let stepping = won(world.claim(&key_of("stepping")));
        stepping.begin_effect("charge", LEASE, InDoubt::Hold).unwrap();
        stepping.abandon().unwrap();
        for (state, answer) in [("retried", "in_flight"), ("held", "held"), ("stepping", "in_flight")] {
            for decision in every_way(&world.store, &request(&key_of(state))) {
                assert_eq!(decision.unwrap().name(), answer, "{state}");
            }
        }
        // And none of them stands in another's way.
        assert_eq!(won(world.claim("another")).attempt(), 1);
        let page = world.store.list(id("any").scope(), Which::Unfinished, None, 10).unwrap();
        assert_eq!(page.rows.len(), 4);
    }
}

/// KC-017: an owner that renews in time is not taken over, however long it runs.
#[test]
fn whoever_renews_first_keeps_its_claim() {
    for world in World::both() {
        let claim = won(world.claim("key"));
        for _ in 0..5 {
            world.advance(LEASE.checked_sub(Duration::from_millis(1)).unwrap());
            claim.renew(None).unwrap();
            assert_eq!(world.claim("key").name(), "in_flight");
        }
        // Late, but nobody took over: the owner is still the owner, and whoever comes now has lost.
        world.advance(LEASE);
        claim.renew(None).unwrap();
        assert_eq!(world.claim("key").name(), "in_flight");
        claim.complete(&success("slow")).unwrap();
    }
}

/// KC-018: without a lease nobody ever takes over by time.
#[test]
fn a_claim_without_a_lease_is_never_taken_over() {
    for mut world in World::both() {
        let endless = request("key").policy(policy(Abandoned::Rerun).no_lease());
        let claim = won(world.store.claim(&endless).unwrap());
        assert_eq!(claim.lease_until_ms(), None);
        world.advance(HORIZON * 1_000);
        assert_eq!(world.claim("key").name(), "in_flight");
        drop(claim);
        let again = options(&world.clock);
        world.restart(again);
        assert_eq!(world.claim("key").name(), "in_flight");
        let token = world.store.inspect(&id("key")).unwrap().unwrap().token;
        world.store.forget(&id("key"), token).unwrap();
        assert_eq!(won(world.claim("key")).kind(), WonKind::Fresh);
    }
}

/// KC-019, KC-020: an overtaken owner is told so, and what is there now; its renewals take nothing back.
#[test]
fn an_overtaken_owner_is_told_and_takes_nothing_back() {
    for world in World::both() {
        let stale = won(world.claim("key"));
        world.advance(LEASE);
        let owner = won(world.claim("key"));
        let error = stale.renew(Some(HORIZON)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced);
        assert_eq!(error.present().unwrap().to_string(), format!("in flight with token {}", owner.token()));
        assert!(stale.is_lost() && !owner.is_lost());
        owner.complete(&success("new")).unwrap();
        assert_eq!(stale.complete(&success("old")).unwrap_err().kind(), ErrorKind::Fenced);
        assert_eq!(replayed(world.claim("key")), b"new");
        let stats = world.store.stats().unwrap();
        assert_eq!((stats.fenced, stats.fenced_commands), (1, 2));
    }
}

/// KC-026: only the holder's stored lease decides; the newcomer's own does not.
#[test]
fn the_newcomers_lease_does_not_decide() {
    for world in World::both() {
        for (key, newcomer_ms) in [("shorter", 500), ("equal", 1_000), ("longer", 2_000)] {
            let own = policy(Abandoned::Rerun).lease(Duration::from_millis(newcomer_ms)).unwrap();
            let newcomer = request(key).policy(own);
            drop(won(world.claim(key)));
            world.advance(LEASE.checked_sub(Duration::from_millis(1)).unwrap());
            assert_eq!(world.store.claim(&newcomer).unwrap().name(), "in_flight");
            world.advance(Duration::from_millis(1));
            let taken = won(world.store.claim(&newcomer).unwrap());
            assert_eq!(taken.kind(), WonKind::Takeover);
            let lease_ms = taken.lease_until_ms().unwrap().since(world.store.now_ms()).0;
            assert_eq!(lease_ms, newcomer_ms, "from now on its own lease counts");
        }
    }
}

/// KC-039: what is read back is what was written, for every field; a genuine retry replays.
#[test]
fn a_record_is_read_back_as_it_was_written() {
    for mut world in World::both() {
        let body: Vec<u8> = (0..40_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let scheme = Scheme::json(["/at"]).unwrap();
        let payload = br#"{"amount": 10.0, "at": "09:30", "to": ["a", "b"]}"#;
        let retried = br#"{"to":["a","b"],"amount":1e1,"at":"09:31"}"#;
        let ask = |payload| {
            let request = Request {
                method: b"POST",
                target: b"/pay?x=1",
                media_type: Some(b"application/json"),
                payload,
                ..Request::default()
            };
            ClaimRequest::new(id("key"), scheme.clone(), request).operation("pay", b"stored request")
        };
        let claim = won(world.store.claim(&ask(payload)).unwrap());
        claim.checkpoint("p", b"\x00\xff").unwrap();
        assert_eq!(
            world.store.inspect(&id("key")).unwrap().unwrap().operation.as_deref(),
            Some("pay"),
            "kept until it is complete"
        );
        let response =
            Response::new(599, body).header("b", "2").header("a", "1").header("b", "3").header("", "");
        claim.complete(&Outcome::failure(response.clone(), AfterFailure::Replay)).unwrap();
        let before = world.store.inspect(&id("key")).unwrap().unwrap();
        let again = options(&world.clock);
        world.restart(again);
        assert_eq!(world.store.inspect(&id("key")).unwrap().unwrap(), before);
        for decision in every_way(&world.store, &ask(retried)) {
            let Decision::Replay(replay) = decision.unwrap() else { panic!("a genuine retry replays") };
            assert_eq!(replay.response, response);
            assert_eq!(replay.generation, claim.generation());
        }
    }
}

/// KC-040: every path that shows a record checks the fingerprint first, in flight, held and complete.
#[test]
fn no_path_answers_another_request() {
    for world in World::both() {
        let other = paying("key", b"another body");
        let all_mismatch = || {
            for decision in every_way(&world.store, &other) {
                assert_eq!(decision.unwrap().name(), "mismatch");
            }
        };
        let nonce = keyclaim::Nonce([7; 16]);
        let claim = won(world.store.claim(&request("key").nonce(nonce)).unwrap());
        all_mismatch();
        // Not even who brings the winner's nonce or token is handed its win for another request.
        let with_nonce = other.clone().nonce(nonce);
        assert_eq!(world.store.claim(&with_nonce).unwrap().name(), "mismatch");
        let with_token = other.clone().token(claim.token());
        assert_eq!(world.store.claim(&with_token).unwrap().name(), "mismatch");
        claim.hold().unwrap();
        all_mismatch();
        claim.complete(&success("secret")).unwrap();
        all_mismatch();
        // The writer decides like the fast path: past its lease, when only it may answer.
        drop(won(world.claim("late")));
        world.advance(LEASE);
        for decision in every_way(&world.store, &paying("late", b"another body")) {
            assert_eq!(decision.unwrap().name(), "mismatch");
        }
    }
}

/// KC-047: what was written is found, by whoever opens the store and names the same key.
#[test]
fn a_reopened_store_finds_what_was_written() {
    for mut world in World::both() {
        won(world.claim("key")).complete(&success("kept")).unwrap();
        let again = options(&world.clock);
        world.restart(again);
        assert_eq!(replayed(world.claim("key")), b"kept");
        assert!(world.store.inspect(&id_in("acct_1", "key")).unwrap().is_some());
        assert!(world.store.inspect(&id_in("acct_", "1key")).unwrap().is_none());
        let page = world.store.list(id("any").scope(), Which::All, None, 10).unwrap();
        assert_eq!(page.rows.len(), 1);
        assert_eq!(page.rows[0].0.as_bytes(), b"key");
    }
}

/// KC-055, KC-056: after the window the key is new, and says so, or stays used, and says so.
#[test]
fn after_its_window_a_key_is_new_or_expired_as_its_policy_says() {
    for world in World::both() {
        let refuse = policy(Abandoned::Rerun).after_window(AfterWindow::Refuse);
        won(world.claim("reused")).complete(&success("old")).unwrap();
        let refusing = request("refused").policy(refuse);
        won(world.store.claim(&refusing).unwrap()).complete(&success("old")).unwrap();
        world.advance(WINDOW);
        assert_eq!(won(world.claim("reused")).kind(), WonKind::ReusedAfterWindow);
        // Neither a newcomer's own policy nor another path makes an exception.
        for decision in every_way(&world.store, &request("refused")) {
            assert_eq!(decision.unwrap().name(), "expired");
        }
        world.advance(HORIZON.checked_sub(WINDOW).unwrap());
        assert_eq!(won(world.claim("refused")).kind(), WonKind::Fresh);
    }
}

/// KC-067: a finished key is never said to be in flight, and the fast path obeys its end and its removal.
#[test]
fn the_fast_path_answers_like_the_writer() {
    for world in World::both() {
        won(world.claim("key")).complete(&success("done")).unwrap();
        for _ in 0..3 {
            for decision in every_way(&world.store, &request("key")) {
                assert_eq!(replayed(decision.unwrap()), b"done");
            }
        }
        assert_eq!(world.store.stats().unwrap().in_flight, 0);
        let token = world.store.inspect(&id("key")).unwrap().unwrap().token;
        world.store.forget(&id("key"), token).unwrap();
        let second = won(world.claim("key"));
        assert_eq!(second.kind(), WonKind::Fresh);
        second.complete(&success("second")).unwrap();
        assert_eq!(replayed(world.claim("key")), b"second");
        world.advance(WINDOW);
        assert_eq!(won(world.claim("key")).kind(), WonKind::ReusedAfterWindow);
    }
}

/// KC-072: whether a failure is answered again or attempted again is stored with it.
#[test]
fn a_failure_is_replayed_or_attempted_again_as_it_was_stored() {
    for world in World::both() {
        let failed = |after| Outcome::failure(Response::new(500, "failed"), after);
        won(world.claim("final")).complete(&failed(AfterFailure::Replay)).unwrap();
        assert_eq!(replayed(world.claim("final")), b"failed");
        let first = won(world.claim("again"));
        first.begin_effect("charge", LEASE, InDoubt::Hold).unwrap();
        first.finish_effect("charge", StepResult::Done(b"ch_1".as_slice().into())).unwrap();
        first.complete(&failed(AfterFailure::Reattempt)).unwrap();
        let second = won(world.claim("again"));
        assert_eq!((second.kind(), second.attempt()), (WonKind::Reattempt, 2));
        assert_eq!(second.generation(), first.generation());
        assert_eq!(second.steps().len(), 1, "what was done is not done again");
        assert_eq!(world.claim("again").name(), "in_flight");
    }
}

/// KC-097: a claim whose answer was lost is asked again with its nonce; a completion is asked again as it was.
#[test]
fn whatever_was_unknown_is_told_when_asked_again() {
    let (mut found, mut completions) = (Vec::new(), 0);
    for (nth, done) in (1..=4).flat_map(|nth| [(nth, false), (nth, true)]) {
        let (dir, clock) = (tempfile::tempdir().unwrap(), ManualClock::new(1_700_000_000_000));
        let options = options(&clock);
        let faults = options.faults();
        let store = Store::open(dir.path().join("store"), options).unwrap();
        let earlier = won(store.claim(&request("earlier")).unwrap());
        let fault = Fault { op: Op::Sync, nth, from_then_on: true, done, errno: 5 };
        faults.add(fault);
        let mut again = request("key");
        match store.claim(&again) {
            Ok(_) => continue, // The commit has fewer syncs than that.
            // It failed before the commit: nothing happened, and there is nothing to ask again.
            Err(error) if error.kind() == ErrorKind::Poisoned => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unknown);
                again = again.nonce(error.nonce().expect("an unknown claim says what to ask again with"));
            }
        }
        assert!(store.is_poisoned());
        faults.clear();
        store.reopen().unwrap();
        let claim = won(store.claim(&again).unwrap());
        found.push(claim.kind());
        assert_eq!((claim.attempt(), store.claim(&request("key")).unwrap().name()), (1, "in_flight"));
        faults.add(fault);
        let told = claim.complete(&success("once"));
        faults.clear();
        if told.is_err() {
            completions += 1;
            store.reopen().unwrap();
            claim.complete(&success("once")).unwrap();
        }
        assert_eq!(replayed(store.claim(&request("key")).unwrap()), b"once");
        // The other claim lived through both failures.
        earlier.complete(&success("earlier")).unwrap();
    }
    assert!(completions > 1, "no completion failed");
    for kind in [WonKind::Fresh, WonKind::Again] {
        assert!(found.contains(&kind), "no lost answer was of a claim that is now {kind:?}: {found:?}");
    }
}

/// KC-007, KC-009, KC-022: an attempt that died is rerun or held as its policy says, not by the time alone.
#[test]
fn a_dead_attempt_that_recorded_nothing_ends_as_its_policy_says() {
    for world in World::both() {
        let hold = policy(Abandoned::Hold);
        drop(won(world.store.claim(&request("held").policy(hold)).unwrap()));
        drop(won(world.claim("rerun")));
        world.advance(LEASE);
        for decision in every_way(&world.store, &request("held")) {
            let Decision::Held { reason, .. } = decision.unwrap() else { panic!("nobody may run it") };
            assert_eq!(reason, HoldReason::Abandoned);
        }
        assert!(matches!(
            world.store.inspect(&id("held")).unwrap().unwrap().standing,
            Standing::Held { reason: HoldReason::Abandoned }
        ));
        assert_eq!(won(world.claim("rerun")).kind(), WonKind::Takeover);
    }
}

/// KC-062: what is too large to store is told, and does not run again.
#[test]
fn a_body_over_the_limit_is_told_and_the_key_stays_used() {
    for limit in [10_usize, 20_000] {
        let clock = ManualClock::new(1_700_000_000_000);
        let store = Store::in_memory(options(&clock).body_len_max(limit).unwrap()).unwrap();
        for len in [limit - 1, limit, limit + 1, limit * 10] {
            let key = format!("key-{len}");
            won(store.claim(&request(&key)).unwrap()).complete(&success(vec![7; len])).unwrap();
            let Decision::Replay(replay) = store.claim(&request(&key)).unwrap() else {
                panic!("it ran, whatever its size");
            };
            assert_eq!(replay.response.body.len(), len as u64);
            assert_eq!(matches!(replay.response.body, Body::Dropped { .. }), len > limit);
        }
    }
}

/// KC-111. Claims were kept where writes become visible late, and two isolates each won one. Reading
/// back what was written only narrowed the race. Both ran. A claim needs one place that decides: a
/// second opening of one file is refused, and two stores, which are two winners, are told apart.
#[test]
fn there_is_one_decider_for_one_file_and_two_stores_are_told_apart() {
    let [memory, file] = World::both();
    let path = file.dir.as_ref().unwrap().path().join("store");
    let error = Store::open(&path, options(&file.clock)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.retry_after().is_some() && error.message().contains(&std::process::id().to_string()));
    assert!(matches!(memory.claim("k"), Decision::Won(_)));
    assert!(matches!(file.claim("k"), Decision::Won(_)));
    assert_ne!(memory.store.id(), file.store.id());
}

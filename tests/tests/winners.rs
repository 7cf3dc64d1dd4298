//! One winner (P1): whoever races for a key, in threads or on one thread, in memory or on a file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use keyclaim::clock::ManualClock;
use keyclaim::machine::{Decision, Outcome, OutcomeClass, Response, WonKind};
use keyclaim::{Abandoned, AfterFailure, Claim, ClaimWait, Error, ErrorKind, Options, Policy, Result, Store};
use keyclaim_tests::block::{block_on, join_all, yield_now};
use keyclaim_tests::pool::Pool;
use keyclaim_tests::request::{id, paying, replayed, request, success, won};
use keyclaim_tests::seeded;
use proptest::prelude::*;

/// As many racers as the largest round has.
const RACERS_MAX: usize = 64;
const HOUR: Duration = Duration::from_hours(1);

/// What a key holds when the race for it begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    Absent,
    LeaseOver,
    FailedReattempt,
    WindowOver,
}

/// What a winner does before its racing siblings are done.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Keep,
    Complete,
    Release,
    Abandon,
}

/// Rounds of a race for one key of one store.
struct Rounds {
    store: Store,
    clock: ManualClock,
    pool: Pool,
    next: AtomicUsize,
    busy: AtomicUsize,
}

/// What a racer saw.
enum Seen {
    Won { token: u64, generation: u64, attempt: u32, kind: WonKind },
    InFlight,
    Replay { generation: u64, body: Vec<u8> },
    Busy,
}

#[test]
fn one_key_has_one_winner_in_memory() {
    let rounds = Rounds::new(Store::in_memory);
    let strategy = (2..=RACERS_MAX, any_start(), any_ending());
    seeded::check("one_key_has_one_winner_in_memory", 1_000, &strategy, |(racers, start, ending)| {
        rounds.race(racers, start, ending)
    });
}

#[test]
fn one_key_has_one_winner_on_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let rounds = Rounds::new(|options| Store::open(dir.path().join("store"), options));
    let strategy = (2..=RACERS_MAX, any_start(), any_ending());
    seeded::check("one_key_has_one_winner_on_a_file", 200, &strategy, |(racers, start, ending)| {
        rounds.race(racers, start, ending)
    });
}

#[test]
fn whoever_is_told_busy_has_lost_and_nobody_wins_twice() {
    let dir = tempfile::tempdir().unwrap();
    let rounds = Rounds::new(|options| Store::open(dir.path().join("store"), options.queue_len_max(1)?));
    let strategy = (16..=RACERS_MAX, any_start(), any_ending());
    seeded::check(
        "whoever_is_told_busy_has_lost_and_nobody_wins_twice",
        100,
        &strategy,
        |(racers, start, ending)| rounds.race(racers, start, ending),
    );
    assert!(rounds.busy.load(Ordering::Relaxed) > 0, "a queue of one was never full");
    assert_eq!(rounds.store.stats().unwrap().busy, rounds.busy.load(Ordering::Relaxed) as u64);
}

impl Rounds {
    fn new(open: impl FnOnce(Options) -> Result<Store>) -> Self {
        let clock = ManualClock::new(1_700_000_000_000);
        let policy = Policy::new(Abandoned::Rerun).replay_window(HOUR).unwrap();
        let options = Options::with_policy(policy).clock(Arc::new(clock.clone())).renew_leases_max(0);
        Self {
            store: open(options).unwrap(),
            clock,
            pool: Pool::new(RACERS_MAX),
            next: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
        }
    }

    fn race(&self, racers: usize, start: Start, ending: Ending) -> Result<(), TestCaseError> {
        let key = format!("key-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let generation_before = self.prepare(&key, start);
        let running = Arc::new(AtomicU64::new(0));
        let kept = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (store, racing, keeping) = (self.store.clone(), running.clone(), kept.clone());
        let raced = key.clone();
        let seen = self.pool.race(racers, move |_| {
            let decision = match store.claim(&request(&raced)) {
                Err(error) if error.kind() == ErrorKind::Busy => return Seen::Busy,
                decision => decision.unwrap(),
            };
            see(decision, |claim| {
                let others = racing.fetch_add(1, Ordering::SeqCst);
                assert_eq!(others, 0, "a second winner runs beside the first");
                end(&claim, ending, &racing);
                keeping.lock().unwrap().push(claim);
            })
        });
        let busy = seen.iter().filter(|seen| matches!(seen, Seen::Busy)).count();
        self.busy.fetch_add(busy, Ordering::Relaxed);
        self.judge(&key, (start, generation_before), ending, &seen)
    }

    /// Brings the key to where the race starts, with no owner alive.
    fn prepare(&self, key: &str, start: Start) -> Option<u64> {
        if matches!(start, Start::Absent) {
            return None;
        }
        let claim = won(self.store.claim(&request(key)).unwrap());
        match start {
            Start::Absent => unreachable!("returned above"),
            Start::LeaseOver => self.clock.advance(60_000),
            Start::FailedReattempt => {
                let failure = Outcome::failure(Response::new(500, "no"), AfterFailure::Reattempt);
                claim.complete(&failure).unwrap();
            }
            Start::WindowOver => {
                claim.complete(&success("old")).unwrap();
                self.clock.advance(3_600_000);
            }
        }
        Some(claim.generation().0)
    }

    /// Every intent has one first winner, every attempt one, and every token one.
    fn judge(
        &self,
        key: &str,
        (start, before): (Start, Option<u64>),
        ending: Ending,
        seen: &[Seen],
    ) -> Result<(), TestCaseError> {
        let mut wins: Vec<_> = seen
            .iter()
            .filter_map(|seen| match seen {
                Seen::Won { token, generation, attempt, kind } => {
                    Some((*token, *generation, *attempt, *kind))
                }
                _ => None,
            })
            .collect();
        wins.sort_by_key(|(token, ..)| *token);
        prop_assert!(!wins.is_empty() || seen.iter().all(|seen| matches!(seen, Seen::Busy)), "nobody won");
        for pair in wins.windows(2) {
            let ((token, generation, attempt, _), (next_token, next_generation, next_attempt, _)) =
                (pair[0], pair[1]);
            prop_assert!(token < next_token, "two winners hold token {token}");
            let follows = match ending {
                // Abandoned: the same intent goes on with its next attempt. Released: the key is new.
                Ending::Release if attempt == 1 => next_generation == next_token && next_attempt == 1,
                Ending::Abandon | Ending::Release => {
                    next_generation == generation && next_attempt == attempt + 1
                }
                Ending::Keep | Ending::Complete => false,
            };
            prop_assert!(follows, "{ending:?} gave two winners: {:?}", pair);
        }
        if let Some((_, generation, attempt, kind)) = wins.first().copied() {
            let (wanted_kind, wanted_attempt, is_new) = match start {
                Start::Absent => (WonKind::Fresh, 1, true),
                Start::LeaseOver => (WonKind::Takeover, 2, false),
                Start::FailedReattempt => (WonKind::Reattempt, 2, false),
                Start::WindowOver => (WonKind::ReusedAfterWindow, 1, true),
            };
            prop_assert_eq!((kind, attempt), (wanted_kind, wanted_attempt));
            prop_assert_eq!(Some(generation) == before, !is_new);
        }
        for seen in seen {
            if let Seen::Replay { generation, body } = seen {
                prop_assert!(matches!(ending, Ending::Complete), "a replay of what nobody completed");
                prop_assert_eq!(Some(*generation), wins.first().map(|(_, generation, ..)| *generation));
                prop_assert_eq!(body, &wins[0].0.to_le_bytes().to_vec());
            }
        }
        // What the store says afterwards is what the last winner left.
        let left = self.store.inspect(&id(key)).unwrap();
        if let (Some((token, ..)), Some(left)) = (wins.last(), left) {
            prop_assert_eq!(left.token.0, *token);
        }
        Ok(())
    }
}

fn see(decision: Decision<Claim>, run: impl FnOnce(Claim)) -> Seen {
    match decision {
        Decision::Won(claim) => {
            let seen = Seen::Won {
                token: claim.token().0,
                generation: claim.generation().0,
                attempt: claim.attempt(),
                kind: claim.kind(),
            };
            run(claim);
            seen
        }
        Decision::InFlight { .. } => Seen::InFlight,
        Decision::Replay(replay) => Seen::Replay {
            generation: replay.generation.0,
            body: replay.response.body.bytes().unwrap().to_vec(),
        },
        other => panic!("a racer with the same request was told {}", other.name()),
    }
}

/// Ends an attempt; from its last word on another may run.
fn end(claim: &Claim, ending: Ending, running: &AtomicU64) {
    match ending {
        Ending::Keep => {}
        Ending::Complete => claim.complete(&success(claim.token().0.to_le_bytes())).unwrap(),
        Ending::Release => {
            running.fetch_sub(1, Ordering::SeqCst);
            claim.release().unwrap();
        }
        Ending::Abandon => {
            running.fetch_sub(1, Ordering::SeqCst);
            claim.abandon().unwrap();
        }
    }
}

fn any_start() -> impl Strategy<Value = Start> {
    prop_oneof![
        4 => Just(Start::Absent),
        1 => Just(Start::LeaseOver),
        1 => Just(Start::FailedReattempt),
        1 => Just(Start::WindowOver),
    ]
}

fn any_ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        2 => Just(Ending::Keep),
        2 => Just(Ending::Complete),
        1 => Just(Ending::Release),
        1 => Just(Ending::Abandon),
    ]
}

/// Some keys are asked for far more often than others, and winners end whenever and however they like.
#[test]
fn busy_keys_have_one_owner_at_a_time() {
    const KEYS: usize = 8;
    let pool = Pool::new(16);
    // A racer's plan: which key each of its claims is for, how long a win runs and how it ends.
    let zipf = prop::sample::select(
        (0..KEYS).flat_map(|key| std::iter::repeat_n(key, 2 * KEYS / (key + 1))).collect::<Vec<_>>(),
    );
    let plan = prop::collection::vec((zipf, 0_usize..4, any_ending()), 20);
    let strategy = prop::collection::vec(plan, 2..=16);
    seeded::check("busy_keys_have_one_owner_at_a_time", 40, &strategy, |plans| {
        let store = Store::in_memory(Options::new(Abandoned::Rerun)).unwrap();
        let racing = store.clone();
        let owners: Arc<[AtomicU64; KEYS]> = Arc::default();
        let (racers, plans) = (plans.len(), Arc::new(plans));
        let wins = pool.race(racers, move |racer| {
            let mut wins = Vec::new();
            for (key, pauses, ending) in &plans[racer] {
                let decision = racing.claim(&request(&format!("key-{key}"))).unwrap();
                let seen = see(decision, |claim| {
                    let others = owners[*key].fetch_add(1, Ordering::SeqCst);
                    assert_eq!(others, 0, "key {key} has two owners");
                    (0..*pauses).for_each(|_| std::thread::yield_now());
                    // A kept claim would end the key's story: most of these keys should see many wins.
                    let ending = if matches!(ending, Ending::Keep) { Ending::Release } else { *ending };
                    end(&claim, ending, &owners[*key]);
                });
                if let Seen::Won { token, generation, attempt, .. } = seen {
                    wins.push((*key, generation, attempt, token));
                }
            }
            wins
        });
        let mut wins: Vec<_> = wins.into_iter().flatten().collect();
        wins.sort_unstable();
        let mut attempts = BTreeMap::<(usize, u64), u32>::new();
        for (key, generation, attempt, token) in &wins {
            let attempts = attempts.entry((*key, *generation)).or_default();
            prop_assert_eq!(*attempt, *attempts + 1, "attempts of an intent are won one by one, in order");
            prop_assert!((*attempt == 1) == (token == generation));
            *attempts = *attempt;
        }
        let stats = store.stats().unwrap();
        prop_assert_eq!((stats.won, stats.live_claims), (wins.len() as u64, 0));
        Ok(())
    });
}

/// KC-003: callers with another fingerprint never share the running result, nor the finished one.
#[test]
fn different_requests_under_one_key_share_nothing() {
    let pool = Pool::new(24);
    let store = Store::in_memory(Options::new(Abandoned::Rerun)).unwrap();
    let next = AtomicUsize::new(0);
    let strategy = (2_usize..=24, any::<bool>());
    seeded::check("different_requests_under_one_key_share_nothing", 200, &strategy, |(racers, completes)| {
        let key = format!("key-{}", next.fetch_add(1, Ordering::Relaxed));
        let racing = store.clone();
        let answers = pool.race(racers, move |racer| {
            let payload = [u8::try_from(racer % 3).unwrap()];
            match racing.claim(&paying(&key, &payload)).unwrap() {
                Decision::Won(claim) => {
                    if completes {
                        claim.complete(&success(payload)).unwrap();
                    }
                    (payload, "won", payload.to_vec())
                }
                Decision::Replay(replay) => {
                    (payload, "replay", replay.response.body.bytes().unwrap().to_vec())
                }
                other => (payload, other.name(), Vec::new()),
            }
        });
        let winners: Vec<_> = answers.iter().filter(|(_, answer, _)| *answer == "won").collect();
        prop_assert_eq!(winners.len(), 1);
        let (winner, ..) = winners[0];
        for (payload, answer, body) in &answers {
            match *answer {
                "won" => {}
                "in_flight" => prop_assert_eq!(payload, winner),
                "replay" => prop_assert_eq!((payload, &body[..]), (winner, &winner[..])),
                "mismatch" => prop_assert_ne!(payload, winner),
                other => prop_assert!(false, "a racer was told {}", other),
            }
        }
        Ok(())
    });
}

/// KC-010, KC-011: what runs is seen by async siblings on the same thread.
#[test]
fn one_of_many_siblings_on_one_thread_wins() {
    for siblings in 2..=RACERS_MAX {
        let store = Store::in_memory(Options::new(Abandoned::Rerun)).unwrap();
        let request = request("key");
        let decisions = join_all((0..siblings).map(|_| store.claim_async(&request)));
        let decisions: Vec<_> = decisions.into_iter().map(|decision| decision.unwrap()).collect();
        let wins = decisions.iter().filter(|decision| matches!(decision, Decision::Won(_))).count();
        let told = decisions.iter().filter(|decision| matches!(decision, Decision::InFlight { .. })).count();
        assert_eq!((wins, told), (1, siblings - 1));
    }
}

/// KC-003, KC-011: the others wait while the winner awaits, and get its result.
#[test]
fn siblings_on_one_thread_wait_for_the_one_result() {
    let dir = tempfile::tempdir().unwrap();
    for (round, siblings) in [2, 3, 17, RACERS_MAX].into_iter().enumerate() {
        let store =
            Store::open(dir.path().join(format!("store-{round}")), Options::new(Abandoned::Rerun)).unwrap();
        let request = request("key");
        let runs = AtomicUsize::new(0);
        let (store, request, runs) = (&store, &request, &runs);
        let bodies = join_all((0..siblings).map(|sibling| async move {
            let wait = ClaimWait::at_most(Duration::from_mins(1));
            match store.claim_wait_async(request, &wait).await.unwrap() {
                Decision::Won(claim) => {
                    runs.fetch_add(1, Ordering::Relaxed);
                    // The handler goes on while every sibling is polled, waits and holds a bell.
                    while store.stats().unwrap().waiters < siblings as u64 - 1 {
                        yield_now().await;
                    }
                    let body = format!("made by {sibling}").into_bytes();
                    claim.complete_async(&success(body.clone())).await.unwrap();
                    body
                }
                other => replayed(other),
            }
        }));
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        assert!(bodies.iter().all(|body| *body == bodies[0]) && bodies.len() == siblings);
    }
}

/// KC-019, KC-020: whatever a stale owner says, before or after the new one completes, blocking or
/// async, it is told that it was overtaken, and nothing changes.
#[test]
fn a_stale_token_can_change_nothing() {
    for command in 0..COMMANDS {
        for is_async in [false, true] {
            for completes_first in [false, true] {
                let clock = ManualClock::new(1_700_000_000_000);
                let options =
                    Options::new(Abandoned::Rerun).clock(Arc::new(clock.clone())).renew_leases_max(0);
                let store = Store::in_memory(options).unwrap();
                let stale = won(store.claim(&request("key")).unwrap());
                stale.checkpoint("paid", b"receipt").unwrap();
                stale
                    .begin_effect("mail", Duration::from_secs(1), keyclaim::machine::InDoubt::Repeat)
                    .unwrap();
                clock.advance(60_000);
                let owner = won(store.claim(&request("key")).unwrap());
                assert_eq!((owner.kind(), owner.attempt()), (WonKind::Takeover, 2));
                if completes_first {
                    finish(&owner);
                }
                let before = (store.inspect(&id("key")).unwrap().unwrap(), store.stats().unwrap().groups);
                let error = say(&stale, command, is_async);
                assert_eq!(error.kind(), ErrorKind::Fenced, "command {command}, async {is_async}");
                let present = error.present().expect("the overtaken owner is told what is there now");
                assert_eq!(format!("{present}").contains("complete"), completes_first);
                assert!(stale.is_lost(), "its renewals must stop");
                let after = (store.inspect(&id("key")).unwrap().unwrap(), store.stats().unwrap().groups);
                assert_eq!(before, after, "command {command} of a stale owner changed something");
                if !completes_first {
                    finish(&owner);
                }
                assert_eq!(replayed(store.claim(&request("key")).unwrap()), b"by the owner");
            }
        }
    }
}

const COMMANDS: usize = 8;

fn finish(owner: &Claim) {
    owner.begin_effect("mail", Duration::from_secs(1), keyclaim::machine::InDoubt::Repeat).unwrap();
    owner.finish_effect("mail", keyclaim::machine::StepResult::NotSent).unwrap();
    owner.complete(&success("by the owner")).unwrap();
}

/// Says the n-th of all owner commands, which must be refused.
fn say(claim: &Claim, command: usize, is_async: bool) -> Error {
    use keyclaim::machine::{InDoubt, StepResult};
    let (limit, doubt) = (Duration::from_secs(1), InDoubt::Repeat);
    let done = || StepResult::Done(b"sent".as_slice().into());
    let outcome = Outcome { class: OutcomeClass::Success, response: Response::new(200, "stale") };
    match (command, is_async) {
        (0, false) => claim.renew(None).unwrap_err(),
        (0, true) => block_on(claim.renew_async(None)).unwrap_err(),
        (1, false) => claim.checkpoint("later", b"").unwrap_err(),
        (1, true) => block_on(claim.checkpoint_async("later", b"")).unwrap_err(),
        (2, false) => claim.begin_effect("mail", limit, doubt).unwrap_err(),
        (2, true) => block_on(claim.begin_effect_async("mail", limit, doubt)).unwrap_err(),
        (3, false) => claim.finish_effect("mail", done()).unwrap_err(),
        (3, true) => block_on(claim.finish_effect_async("mail", done())).unwrap_err(),
        (4, false) => claim.complete(&outcome).unwrap_err(),
        (4, true) => block_on(claim.complete_async(&outcome)).unwrap_err(),
        (5, false) => claim.release().unwrap_err(),
        (5, true) => block_on(claim.release_async()).unwrap_err(),
        (6, false) => claim.abandon().unwrap_err(),
        (6, true) => block_on(claim.abandon_async()).unwrap_err(),
        (7, false) => claim.hold().unwrap_err(),
        (7, true) => block_on(claim.hold_async()).unwrap_err(),
        _ => unreachable!("there are {COMMANDS} owner commands"),
    }
}

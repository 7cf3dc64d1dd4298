//! Who lets go of what, and when: futures, claims, waiters, handles.

mod faulty;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use faulty::*;
use keyclaim::clock::{Clock, ManualClock, Reading};
use keyclaim::machine::{Decision, InDoubt, WonKind};
use keyclaim::store::{Cancel, Standing};
use keyclaim::{Abandoned, Claim, ClaimWait, ErrorKind, Millis, Nonce, Options, Result, Store, Token};

const SOON: Duration = Duration::from_millis(700);

fn gated() -> (Store, Gate) {
    let gate = Gate::new();
    let options = Options::new(Abandoned::Rerun).clock(Arc::new(gate.clone())).renew_leases_max(0);
    (Store::in_memory(options).expect("memory"), gate)
}

fn in_memory() -> Store {
    Store::in_memory(Options::new(Abandoned::Rerun)).expect("memory")
}

/// Stops the writer inside a group of its own, which holds this key.
fn stop_writer(store: &Store, gate: &Gate) -> impl FnOnce() + use<> {
    gate.close();
    let (store, other) = (store.clone(), gate.clone());
    let thread = thread::spawn(move || block_on(store.claim_async(&request("in the writer"))).map(drop));
    gate.wait_for_writer();
    move || {
        other.open();
        thread.join().expect("no panic").expect("healthy");
    }
}

/// The key is won long before any lease of it is over.
fn is_won_soon(store: &Store, key: &str) -> keyclaim::Claim {
    let start = Instant::now();
    let claim = won(store.claim_wait(&request(key), &ClaimWait::at_most(LONG)));
    assert!(start.elapsed() < SOON, "stuck for {:?}", start.elapsed());
    claim
}

/// Two who wait for the key "a", one blocking and one as a future, once both do.
fn wait_both_ways(store: &Store, wait: &ClaimWait) -> Vec<thread::JoinHandle<Result<Decision<Claim>>>> {
    let waiting = [true, false].map(|blocking| {
        let (store, wait) = (store.clone(), wait.clone());
        thread::spawn(move || {
            let asked = request("a");
            if blocking {
                store.claim_wait(&asked, &wait)
            } else {
                block_on(store.claim_wait_async(&asked, &wait))
            }
        })
    });
    eventually("both wait", || store.stats().expect("healthy").waiters == 2);
    waiting.into()
}

#[test]
fn a_claim_dropped_before_its_first_poll_was_never_made() {
    let store = in_memory();
    let asked = request("a");
    drop(store.claim_async(&asked));
    assert_eq!(won(store.claim(&asked)).token(), Token(1));
}

#[test]
fn a_claim_dropped_in_the_queue_leaves_no_key_stuck() {
    let (store, gate) = gated();
    let go_on = stop_writer(&store, &gate);
    let asked = request("a");
    {
        let mut future = pin!(store.claim_async(&asked));
        assert!(poll_once(future.as_mut()).is_pending());
    }
    go_on();
    let claim = is_won_soon(&store, "a");
    assert_eq!((claim.kind(), claim.attempt()), (WonKind::Fresh, 1));
    assert_eq!(store.stats().expect("healthy").untold, 1);
}

#[test]
fn a_claim_dropped_with_its_answer_unread_leaves_no_key_stuck() {
    let (store, gate) = gated();
    let asked = request("a");
    {
        let mut future = pin!(store.claim_async(&asked));
        gate.close();
        assert!(poll_once(future.as_mut()).is_pending());
        gate.open();
        eventually("it is won", || store.stats().expect("healthy").won == 1);
    }
    let claim = is_won_soon(&store, "a");
    assert_eq!((claim.kind(), claim.attempt()), (WonKind::Fresh, 1));
    assert_eq!(store.stats().expect("healthy").live_claims, 1);
}

#[test]
fn an_unread_takeover_goes_back_as_it_was() {
    let (store, gate) = gated();
    let owner = won(store.claim(&request("a")));
    owner.checkpoint("point", b"data").expect("healthy");
    let before = store.inspect(&id("a")).expect("healthy").expect("there");
    gate.clock().advance(60_000);
    let asked = request("a");
    {
        let mut future = pin!(store.claim_async(&asked));
        // The gate only makes sure that the writer is slower than this poll.
        gate.close();
        assert!(poll_once(future.as_mut()).is_pending());
        gate.open();
        eventually("it is taken over", || store.stats().expect("healthy").taken_over == 1);
    }
    eventually("it is let go of", || store.stats().expect("healthy").untold == 1);
    let mut after = store.inspect(&id("a")).expect("healthy").expect("there");
    after.now_ms = before.now_ms;
    assert_eq!(after, before);
    owner.complete(&success(b"")).expect("the owner is still the owner");
}

#[test]
fn an_unread_win_is_not_taken_from_whoever_was_told_of_it_too() {
    let (store, gate) = gated();
    for (round, is_read) in [(0, true), (1, false)] {
        let key = format!("key {round}");
        let asked = request(&key).nonce(Nonce([round; 16]));
        let go_on = stop_writer(&store, &gate);
        let mut first = Box::pin(store.claim_async(&asked));
        let mut second = Box::pin(store.claim_async(&asked));
        assert!(poll_once(first.as_mut()).is_pending());
        assert!(poll_once(second.as_mut()).is_pending());
        go_on();
        let mut claim = None;
        if is_read {
            claim = Some(won(block_on(&mut second)));
        } else {
            // Won and stored, so both are answered: they were in one group.
            eventually("it is won", || matches!(store.claim(&request(&key)), Ok(Decision::InFlight { .. })));
            won(block_on(store.claim_async(&request(&format!("after {round}")))));
        }
        drop(first);
        // Behind the letting go, in the queue.
        won(store.claim(&request(&format!("behind {round}"))));
        let claim = claim.unwrap_or_else(|| won(block_on(second)));
        in_flight(store.claim(&request(&key)));
        claim.complete(&success(b"")).expect("the second caller owns it");
        store
            .forget(
                &id("in the writer"),
                store.inspect(&id("in the writer")).expect("healthy").expect("there").token,
            )
            .expect("healthy");
    }
}

/// KC-030. The client hangs up and its task is cancelled while the outcome is being saved: it is saved all the same.
#[test]
fn a_completion_dropped_after_its_first_poll_completes() {
    let (store, gate) = gated();
    let claim = won(store.claim(&request("a")));
    let outcome = success(b"done");
    drop(claim.complete_async(&success(b"never polled")));
    let go_on = stop_writer(&store, &gate);
    {
        let mut future = pin!(claim.complete_async(&outcome));
        assert!(poll_once(future.as_mut()).is_pending());
    }
    go_on();
    eventually("it completes", || store.stats().expect("healthy").completed == 1);
    assert_eq!(replay(store.claim(&request("a"))).response, outcome.response);
    claim.complete(&outcome).expect("the same command, asked again");
    refused(claim.complete(&success(b"other")), ErrorKind::Fenced);
    assert_eq!(replay(store.claim(&request("a"))).response, outcome.response);
    assert!(!claim.is_lost(), "it has ended, and nobody else owns it");
}

#[test]
fn a_dropped_wait_leaves_no_waiter() {
    let store = in_memory();
    let _owner = won(store.claim(&request("a")));
    let (asked, wait) = (request("a"), ClaimWait::at_most(LONG));
    {
        let mut future = pin!(store.claim_wait_async(&asked, &wait));
        assert!(poll_once(future.as_mut()).is_pending());
        assert_eq!(store.stats().expect("healthy").waiters, 1);
    }
    assert_eq!(store.stats().expect("healthy").waiters, 0);
}

#[test]
fn a_dropped_claim_says_nothing() {
    let clock = ManualClock::new(1_000_000);
    let options = Options::new(Abandoned::Rerun).clock(Arc::new(clock.clone()));
    let store = Store::in_memory(options).expect("memory");
    drop(won(store.claim(&request("a"))));
    clock.advance(59_999);
    in_flight(store.claim(&request("a")));
    clock.advance(1);
    assert_eq!(won(store.claim(&request("a"))).kind(), WonKind::Takeover);
}

#[test]
fn renewals_keep_a_live_claim_for_its_most_leases_and_no_longer() {
    let store = Store::in_memory(Options::with_policy(lease(300)).renew_leases_max(4)).expect("memory");
    let claim = won(store.claim(&request("a")));
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_150) {
        in_flight(store.claim(&request("a")));
        thread::sleep(Duration::from_millis(10));
    }
    let next = won(store.claim_wait(&request("a"), &ClaimWait::at_most(LONG)));
    assert!(start.elapsed() < Duration::from_millis(2_500), "{:?}", start.elapsed());
    assert_eq!(next.kind(), WonKind::Takeover);
    refused(claim.complete(&success(b"")), ErrorKind::Fenced);
    assert!(claim.is_lost());
}

#[test]
fn a_dropped_claim_is_renewed_no_more() {
    let store = Store::in_memory(Options::with_policy(lease(300))).expect("memory");
    let claim = won(store.claim(&request("a")));
    thread::sleep(Duration::from_millis(500));
    in_flight(store.claim(&request("a")));
    drop(claim);
    let start = Instant::now();
    won(store.claim_wait(&request("a"), &ClaimWait::at_most(LONG)));
    assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
}

#[test]
fn renewals_keep_pace_with_a_lease_made_shorter() {
    let store = in_memory();
    let claim = won(store.claim(&request("a")));
    claim.renew(Some(Duration::from_millis(300))).expect("still the owner");
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_200) {
        in_flight(store.claim(&request("a")));
        thread::sleep(Duration::from_millis(10));
    }
    claim.complete(&success(b"")).expect("still the owner");
}

#[test]
fn a_renewal_finds_out_that_the_claim_is_lost() {
    let store = Store::in_memory(Options::with_policy(lease(300))).expect("memory");
    let claim = won(store.claim(&request("a")));
    assert!(!claim.is_lost());
    store.forget(&id("a"), claim.token()).expect("healthy");
    eventually("a renewal is fenced", || claim.is_lost());
}

/// A clock that takes a step when the writer reads it for the n-th time.
#[derive(Debug)]
struct Stepping {
    clock: ManualClock,
    reads: AtomicU64,
    at: u64,
    ms: u64,
    panics: Mutex<Option<Arc<AtomicU64>>>,
}

impl Clock for Stepping {
    fn read(&self) -> Reading {
        if on_writer() && self.reads.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            self.clock.advance(self.ms);
            if let Some(panics) = &*self.panics.lock().expect("no panic") {
                panics.store(1, Ordering::SeqCst);
            }
        }
        self.clock.read()
    }
}

fn slow_commit(ms: u64) -> (Store, Options, Arc<Stepping>) {
    // The first reading is the group's now, the second one comes after the commit.
    let clock = ManualClock::new(1_000_000);
    let stepping =
        Arc::new(Stepping { clock, reads: AtomicU64::new(0), at: 2, ms, panics: Mutex::new(None) });
    let options = Options::new(Abandoned::Rerun).clock(stepping.clone());
    (Store::in_memory(options.clone()).expect("memory"), options, stepping)
}

#[test]
fn a_win_whose_commit_took_long_is_renewed_before_it_is_handed_out() {
    for (ms, lease_until_ms) in [(30_000, 1_060_000), (30_001, 1_090_001), (70_000, 1_130_000)] {
        let (store, _, _) = slow_commit(ms);
        let claim = won(block_on(store.claim_async(&request("a"))));
        assert_eq!(claim.lease_until_ms(), Some(Millis(lease_until_ms)), "after {ms} ms");
        let Standing::InFlight { lease_until_ms: stored_ms } =
            store.inspect(&id("a")).expect("healthy").expect("there").standing
        else {
            panic!("not in flight")
        };
        assert_eq!(stored_ms, claim.lease_until_ms());
    }
}

#[test]
fn a_win_that_could_not_be_renewed_in_time_is_in_doubt_and_not_lost() {
    let (store, options, stepping) = slow_commit(40_000);
    *stepping.panics.lock().expect("no panic") = Some(options.panics());
    let error = refused(block_on(store.claim_async(&request("a"))), ErrorKind::Unknown);
    let asked = request("a").nonce(error.nonce().expect("it says what to ask again with"));
    assert_eq!(won(store.claim(&asked)).kind(), WonKind::Again);
}

#[test]
fn without_a_lease_nothing_is_ever_taken_over() {
    let clock = ManualClock::new(1_000_000);
    let options = Options::with_policy(rerun().no_lease()).clock(Arc::new(clock.clone()));
    let store = Store::in_memory(options).expect("memory");
    let claim = won(store.claim(&request("a")));
    assert_eq!(claim.lease_until_ms(), None);
    drop(claim);
    for _ in 0..3 {
        clock.advance(10 * 365 * 86_400_000);
        in_flight(store.claim(&request("a")));
        in_flight(store.claim(&request("a").policy(lease(1))));
    }
    let seen = store.inspect(&id("a")).expect("healthy").expect("there").token;
    store.forget(&id("a"), seen).expect("a person ends it");
    won(store.claim(&request("a")));
}

#[test]
fn a_cancelled_wait_ends_at_once_with_what_it_last_found() {
    let store = in_memory();
    let _owner = won(store.claim(&request("a")));
    let cancel = Cancel::new();
    let wait = ClaimWait::at_most(LONG).or_until(&cancel);
    let threads = wait_both_ways(&store, &wait);
    thread::sleep(Duration::from_millis(50));
    let start = Instant::now();
    cancel.cancel();
    for thread in threads {
        in_flight(thread.join().expect("no panic"));
    }
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    in_flight(store.claim_wait(&request("a"), &wait));
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
}

#[test]
fn a_wait_ends_at_its_deadline_its_replay_or_its_win() {
    let store = in_memory();
    let owner = won(store.claim(&request("a")));
    let start = Instant::now();
    in_flight(store.claim_wait(&request("a"), &ClaimWait::at_most(Duration::from_millis(150))));
    let asked = request("a");
    in_flight(block_on(store.claim_wait_async(&asked, &ClaimWait::at_most(Duration::from_millis(150)))));
    assert!((Duration::from_millis(300)..SOON).contains(&start.elapsed()), "{:?}", start.elapsed());

    let wait_for = |key: &'static str| {
        let store = store.clone();
        thread::spawn(move || store.claim_wait(&request(key), &ClaimWait::at_most(LONG)))
    };
    let waiter = wait_for("a");
    eventually("it waits", || store.stats().expect("healthy").waiters == 1);
    owner.complete(&success(b"done")).expect("healthy");
    assert_eq!(replay(waiter.join().expect("no panic")).response, success(b"done").response);

    let owner = won(store.claim(&request("b")));
    let waiter = wait_for("b");
    eventually("it waits", || store.stats().expect("healthy").waiters == 1);
    owner.release().expect("healthy");
    assert_eq!(won(waiter.join().expect("no panic")).kind(), WonKind::Fresh);

    drop(won(store.claim(&request("c").policy(lease(200)))));
    assert_eq!(won(wait_for("c").join().expect("no panic")).kind(), WonKind::Takeover);
}

#[test]
fn five_hundred_waiters_are_all_told() {
    let store = in_memory();
    let owner = won(store.claim(&request("a")));
    let (asked, wait) = (request("a"), ClaimWait::at_most(LONG));
    let mut futures: Vec<_> = (0..400).map(|_| Box::pin(store.claim_wait_async(&asked, &wait))).collect();
    for future in &mut futures {
        assert!(poll_once(future.as_mut()).is_pending());
    }
    let threads: Vec<_> = (0..100)
        .map(|_| {
            let (store, wait) = (store.clone(), wait.clone());
            thread::spawn(move || store.claim_wait(&request("a"), &wait))
        })
        .collect();
    eventually("all wait", || store.stats().expect("healthy").waiters == 500);
    owner.complete(&success(b"done")).expect("healthy");
    for thread in threads {
        assert_eq!(replay(thread.join().expect("no panic")).response, success(b"done").response);
    }
    for future in futures {
        assert_eq!(replay(block_on(future)).response, success(b"done").response);
    }
    assert_eq!(store.stats().expect("healthy").waiters, 0);
}

#[test]
fn a_closed_store_says_so_to_everybody_and_ends_its_threads() {
    let folder = fast_folder();
    let path = folder.path().join("store");
    let store = Store::open(&path, Options::new(Abandoned::Rerun)).expect("a fresh folder");
    let claim = won(store.claim(&request("a")));
    let waiters = wait_both_ways(&store, &ClaimWait::at_most(LONG));
    let other = store.clone();
    let start = Instant::now();
    bounded(move || store.close()).expect("healthy");
    for waiter in waiters {
        refused(waiter.join().expect("no panic"), ErrorKind::Closed);
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());

    let wait = ClaimWait::at_most(LONG);
    refused(other.claim(&request("a")), ErrorKind::Closed);
    refused(block_on(other.claim_async(&request("b"))), ErrorKind::Closed);
    refused(other.claim_wait(&request("a"), &wait), ErrorKind::Closed);
    refused(block_on(other.claim_wait_async(&request("a"), &wait)), ErrorKind::Closed);
    refused(other.inspect(&id("a")), ErrorKind::Closed);
    refused(other.list(id("a").scope(), keyclaim::store::Which::All, None, 1), ErrorKind::Closed);
    refused(other.forget(&id("a"), Token(1)), ErrorKind::Closed);
    refused(other.resolve_absent(&id("a"), Token(1)), ErrorKind::Closed);
    refused(other.resolve_complete(&id("a"), Token(1), success(b"")), ErrorKind::Closed);
    refused(other.resolve_resumable(&id("a"), Token(1), None), ErrorKind::Closed);
    refused(other.extend_window(&id("a"), Token(1), LONG), ErrorKind::Closed);
    refused(other.stats(), ErrorKind::Closed);
    refused(other.reopen(), ErrorKind::Closed);
    refused(claim.renew(None), ErrorKind::Closed);
    refused(claim.checkpoint("point", b""), ErrorKind::Closed);
    refused(claim.begin_effect("step", LONG, InDoubt::Hold), ErrorKind::Closed);
    refused(claim.finish_effect("step", keyclaim::machine::StepResult::NotSent), ErrorKind::Closed);
    refused(claim.complete(&success(b"")), ErrorKind::Closed);
    refused(claim.release(), ErrorKind::Closed);
    refused(claim.abandon(), ErrorKind::Closed);
    refused(claim.hold(), ErrorKind::Closed);
    refused(block_on(claim.complete_async(&success(b""))), ErrorKind::Closed);
    assert!(!other.is_poisoned());
    refused(other.close(), ErrorKind::Closed);
    drop(claim);
    let store = Store::open(&path, Options::new(Abandoned::Rerun)).expect("closed, so nobody has it");
    in_flight(store.claim(&request("a")));
}

/// Drops the task that it would wake, as an executor does that is gone.
struct DropsItsTask(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Wake for DropsItsTask {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().expect("no panic").take());
    }
}

#[test]
fn the_last_handle_may_go_on_the_writer_thread_inside_a_waker() {
    let folder = fast_folder();
    let path = folder.path().join("store");
    let gate = Gate::new();
    let options = Options::new(Abandoned::Rerun).clock(Arc::new(gate.clone()));
    let store = Store::open(&path, options).expect("a fresh folder");
    gate.close();
    let task = Arc::new(DropsItsTask(Mutex::new(None)));
    let mut future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
        let asked = request("a");
        store.claim_async(&asked).await.map(drop).expect("healthy");
    });
    let waker = Waker::from(task.clone());
    {
        let mut place = task.0.lock().expect("no panic");
        assert_eq!(future.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
        *place = Some(future);
    }
    gate.open();
    // Opening waits for the other handle to be closed.
    let options = Options::new(Abandoned::Rerun).open_wait(LONG);
    let store = bounded(move || Store::open(&path, options)).expect("closed by its own thread");
    let claim = won(store.claim(&request("a")));
    assert_eq!(claim.attempt(), 1, "the win nobody was told of was let go of before the end");
    assert!(task.0.lock().expect("no panic").is_none());
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker of the caller's");
    }
}

#[test]
fn a_waker_that_panics_stops_nobody_else() {
    let (store, gate) = gated();
    let waker = Waker::from(Arc::new(Panics));
    let mut context = Context::from_waker(&waker);
    let asked = request("a");
    let mut future = pin!(store.claim_async(&asked));
    gate.close();
    assert!(future.as_mut().poll(&mut context).is_pending());
    gate.open();
    eventually("it is won, and its waker panics", || store.stats().expect("healthy").won == 1);
    let owner = won(block_on(future));
    // On the timer's thread too.
    let (wait, asked) = (ClaimWait::at_most(Duration::from_millis(50)), request("a"));
    let mut waiting = pin!(store.claim_wait_async(&asked, &wait));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    thread::sleep(Duration::from_millis(100));
    in_flight(block_on(waiting));
    in_flight(block_on(store.claim_wait_async(&asked, &wait)));
    let same = store.clone();
    bounded(move || {
        won(block_on(same.claim_async(&request("b"))));
        owner.complete(&success(b"")).expect("healthy");
    });
}

struct ClaimsInWake(Mutex<Option<Store>>, AtomicU64);

impl Wake for ClaimsInWake {
    fn wake(self: Arc<Self>) {
        let store = self.0.lock().expect("no panic").take();
        if let Some(store) = store {
            won(store.claim(&request("in the waker")));
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn a_waker_may_ask_the_store() {
    bounded(|| {
        let store = in_memory();
        let owner = won(store.claim(&request("a")));
        let asks = Arc::new(ClaimsInWake(Mutex::new(Some(store.clone())), AtomicU64::new(0)));
        let waker = Waker::from(asks.clone());
        let (asked, wait) = (request("a"), ClaimWait::at_most(LONG));
        let mut future = pin!(store.claim_wait_async(&asked, &wait));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        // Commits on this thread, and wakes the other one from it.
        owner.complete(&success(b"")).expect("healthy");
        eventually("the waker asks", || asks.1.load(Ordering::SeqCst) == 1);
    });
}

#[test]
fn many_threads_may_speak_through_one_claim() {
    let store = in_memory();
    let claim = Arc::new(won(store.claim(&request("a"))));
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let claim = claim.clone();
            thread::spawn(move || {
                for n in 0..3_000 {
                    claim.checkpoint(&format!("{thread} {n}"), b"").expect("in order, whoever says it");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    claim.complete(&success(b"")).expect("still the owner");
}

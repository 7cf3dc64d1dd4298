//! A full queue refuses claims, and lets owners through.

mod faulty;

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use faulty::*;
use keyclaim::machine::WonKind;
use keyclaim::{Abandoned, ErrorKind, Options, Store};

fn gated(claims: usize) -> (Store, Gate) {
    let gate = Gate::new();
    let options = Options::new(Abandoned::Rerun).clock(Arc::new(gate.clone())).renew_leases_max(0);
    (Store::in_memory(options.queue_len_max(claims).expect("above zero")).expect("memory"), gate)
}

#[test]
fn the_claim_after_the_limit_is_told_busy_and_nothing_happens() {
    let (store, gate) = gated(3);
    let owner = won(store.claim(&request("owner")));
    gate.close();
    let keys = ["in the writer", "a", "b", "c"].map(request);
    let mut futures: Vec<_> = keys.iter().map(|key| Box::pin(store.claim_async(key))).collect();
    assert!(poll_once(futures[0].as_mut()).is_pending());
    gate.wait_for_writer();
    for future in &mut futures[1..] {
        assert!(poll_once(future.as_mut()).is_pending());
    }
    for _ in 0..2 {
        let error = refused(store.claim(&request("d")), ErrorKind::Busy);
        assert!(error.retry_after().is_some_and(|after| after > Duration::ZERO));
        refused(block_on(store.claim_async(&request("d"))), ErrorKind::Busy);
        refused(store.forget(&id("owner"), owner.token()), ErrorKind::Busy);
    }
    // The owner has a place of its own, and four at most.
    let mut said: Vec<_> =
        ["1", "2", "3", "4"].map(|point| Box::pin(owner.checkpoint_async(point, b""))).into();
    for future in &mut said {
        assert!(poll_once(future.as_mut()).is_pending());
    }
    let error = refused(block_on(owner.checkpoint_async("5", b"")), ErrorKind::Busy);
    assert!(error.retry_after().is_some_and(|after| after > Duration::ZERO));
    refused(owner.complete(&success(b"")), ErrorKind::Busy);
    gate.open();
    for future in futures {
        won(block_on(future));
    }
    for future in said {
        block_on(future).expect("applied, in order");
    }
    assert_eq!(store.stats().expect("healthy").busy, 6);
    assert_eq!(store.inspect(&id("d")).expect("healthy"), None, "a busy store has done nothing");
    let point = store.inspect(&id("owner")).expect("healthy").expect("there").point;
    assert_eq!(point.as_deref(), Some("4"));
    assert_eq!(won(store.claim(&request("d"))).kind(), WonKind::Fresh);
    owner.complete(&success(b"")).expect("its places are free again");
}

/// A waker that stops whoever wakes: the writer, with no lock held.
#[derive(Default)]
struct StopsTheWriter(Mutex<Stop>, Condvar);

#[derive(Default)]
struct Stop {
    is_closed: bool,
    stopped: bool,
}

impl Wake for StopsTheWriter {
    fn wake(self: Arc<Self>) {
        let mut stop = self.0.lock().expect("no panic");
        stop.stopped = true;
        while stop.is_closed {
            stop = self.1.wait(stop).expect("no panic");
        }
    }
}

#[test]
fn owners_go_before_the_claims_that_came_first() {
    let (store, gate) = gated(10);
    let owner = won(store.claim(&request("a")));
    // Its lease is over, so the claim below may win and has to ask the writer.
    gate.clock().advance(60_000);
    let (other, asked, outcome) = (request("first"), request("a"), success(b"done"));
    let stop = Arc::new(StopsTheWriter::default());
    let waker = Waker::from(stop.clone());
    let mut first = pin!(store.claim_async(&other));
    stop.0.lock().expect("no panic").is_closed = true;
    // The gate only makes sure that the writer is slower than this poll.
    gate.close();
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    gate.open();
    eventually("the writer stops", || stop.0.lock().expect("no panic").stopped);
    let mut claim = pin!(store.claim_async(&asked));
    assert!(poll_once(claim.as_mut()).is_pending());
    let mut complete = pin!(owner.complete_async(&outcome));
    assert!(poll_once(complete.as_mut()).is_pending());
    stop.0.lock().expect("no panic").is_closed = false;
    stop.1.notify_all();
    won(block_on(first));
    block_on(complete).expect("the owner goes first");
    assert_eq!(replay(block_on(claim)).response, outcome.response);
}

/// An owner's futures were dropped right after they were polled, in a loop. Each gave its place back
/// at once, so the lane had no bound. A place is given back when its command is answered.
#[test]
fn dropped_futures_of_an_owner_keep_their_places_until_they_are_served() {
    let (store, gate) = gated(3);
    let owner = won(store.claim(&request("owner")));
    gate.close();
    let key = request("in the writer");
    let mut claim = Box::pin(store.claim_async(&key));
    assert!(poll_once(claim.as_mut()).is_pending());
    gate.wait_for_writer();
    for point in ["1", "2", "3", "4"] {
        assert!(poll_once(Box::pin(owner.checkpoint_async(point, b"")).as_mut()).is_pending());
    }
    let fifth = poll_once(Box::pin(owner.checkpoint_async("5", b"")).as_mut());
    // Opened before it is judged: a failure here must not leave the writer stuck.
    gate.open();
    let std::task::Poll::Ready(told) = fifth else { panic!("a fifth command waits") };
    refused(told, ErrorKind::Busy);
    won(block_on(claim));
    // The four are served in a group after the claim's; then their places are free again.
    while let Err(error) = owner.complete(&success(b"")) {
        assert_eq!(error.kind(), ErrorKind::Busy);
        std::thread::yield_now();
    }
}

/// More callers waited for one key than the queue takes claims. When it was released they all asked
/// at once, and most were told that the store is busy. Whoever waits goes on waiting.
#[test]
fn whoever_waits_does_not_give_up_because_the_queue_is_full() {
    let (store, gate) = gated(1);
    gate.close();
    let keys = ["in the writer", "queued"].map(request);
    let mut futures: Vec<_> = keys.iter().map(|key| Box::pin(store.claim_async(key))).collect();
    assert!(poll_once(futures[0].as_mut()).is_pending());
    gate.wait_for_writer();
    assert!(poll_once(futures[1].as_mut()).is_pending());
    let wait = keyclaim::ClaimWait::at_most(Duration::from_mins(1));
    std::thread::scope(|scope| {
        let blocking = scope.spawn(|| store.claim_wait(&request("b"), &wait));
        let on_a_task = scope.spawn(|| block_on(store.claim_wait_async(&request("c"), &wait)));
        while store.stats().expect("healthy").busy < 2 {
            std::thread::yield_now();
        }
        gate.open();
        won(blocking.join().expect("no panic"));
        won(on_a_task.join().expect("no panic"));
    });
    for future in futures {
        won(block_on(future));
    }
}

//! The work that is measured: requests of a usual size, and how they are asked by many threads.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keyclaim::fingerprint::{Fingerprint, Request, Scheme};
use keyclaim::key::mint;
use keyclaim::machine::{Decision, Outcome, Response};
use keyclaim::{Abandoned, Claim, ClaimRequest, Id, Options, Scope, Store};

/// 200 bytes, a usual size of a payment's body.
const PAYLOAD: [u8; 200] = [b'p'; 200];
const REQUEST: Request<'static> = Request {
    method: b"POST",
    target: b"/v1/payments",
    media_type: Some(b"application/json"),
    content_encoding: None,
    payload: &PAYLOAD,
};
/// 300 bytes, a usual size of its answer.
const ANSWER: [u8; 300] = [b'a'; 300];

/// Keys that were never used before, each later than all before it.
pub(super) struct Keys(AtomicU64);

impl Keys {
    /// The keys from this number on.
    pub(super) fn from(number: u64) -> Self {
        Self(AtomicU64::new(number))
    }

    pub(super) fn next(&self) -> Id {
        id(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// The id with this number: a scope of one account, a key as a UUID version 7.
pub(super) fn id(number: u64) -> Id {
    let mut tail = [0x55; 16];
    tail[8..].copy_from_slice(&number.to_be_bytes());
    let key = mint::random_from(number, tail).expect("48 bits of time are a key");
    Id::new(Scope::new("acct_1032").expect("a valid scope"), key)
}

pub(super) fn request(id: Id) -> ClaimRequest<'static> {
    ClaimRequest::new(id, Scheme::Raw, REQUEST)
}

/// What a store makes of the request for every claim.
pub(super) fn fingerprint() -> Fingerprint {
    Scheme::Raw.fingerprint(&REQUEST).expect("raw takes any bytes")
}

pub(super) fn outcome() -> Outcome {
    Outcome::success(Response::new(201, ANSWER).header("content-type", "application/json"))
}

/// The store at this path, as everybody gets it: durable, with the default page cache.
pub(super) fn open(path: &Path) -> Store {
    Store::open(path, Options::new(Abandoned::Rerun)).expect("the bench's own store opens")
}

/// A claim on a key that must be new.
pub(super) fn win(store: &Store, request: &ClaimRequest<'_>) -> Claim {
    match store.claim(request).expect("the store answers") {
        Decision::Won(claim) => claim,
        other => panic!("a fresh key was answered {}", other.name()),
    }
}

/// A claim on a key that must be complete.
pub(super) fn replay(store: &Store, request: &ClaimRequest<'_>) -> u16 {
    match store.claim(request).expect("the store answers") {
        Decision::Replay(replay) => replay.response.status,
        other => panic!("a complete key was answered {}", other.name()),
    }
}

/// What one step took.
pub(super) fn timed<R>(step: impl FnOnce() -> R) -> (Duration, R) {
    let begun = Instant::now();
    let result = step();
    (begun.elapsed(), result)
}

/// What a load of many threads took, together and each step of it.
pub(super) struct Took {
    pub(super) whole: Duration,
    pub(super) steps: Vec<Duration>,
}

impl Took {
    pub(super) fn per_second(&self) -> f64 {
        self.steps.len() as f64 / self.whole.as_secs_f64()
    }

    /// The step that this share of the steps is at most as long as.
    pub(super) fn quantile(&self, share: f64) -> Duration {
        quantile(&self.steps, share)
    }
}

/// Lets `threads` threads do `all` steps together, each thread the same number of them.
///
/// `prepare` is not measured, nor is dropping what a step returns. Keys are to be drawn within the step:
/// drawn before, each thread would have a run of them, and keys in time order would not come in that order.
pub(super) fn on_threads<P, R>(
    threads: usize,
    all: usize,
    prepare: impl Fn() -> P + Sync,
    step: impl Fn(P) -> R + Sync,
) -> Took
where
    P: Send,
    R: Send,
{
    let each = all.div_ceil(threads);
    let ready = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let prepared: Vec<P> = (0..each).map(|_| prepare()).collect();
                    ready.wait();
                    let done: Vec<_> =
                        prepared.into_iter().map(|prepared| timed(|| step(prepared))).collect();
                    let ended = Instant::now();
                    (ended, done)
                })
            })
            .collect();
        ready.wait();
        let begun = Instant::now();
        let done: Vec<_> =
            running.into_iter().map(|thread| thread.join().expect("a load thread ends")).collect();
        let ended = done.iter().map(|(ended, _)| *ended).max().expect("there is a thread");
        let steps = done.iter().flat_map(|(_, steps)| steps.iter().map(|(took, _)| *took)).collect();
        Took { whole: ended.duration_since(begun), steps }
    })
}

pub(super) fn quantile(steps: &[Duration], share: f64) -> Duration {
    let mut sorted = steps.to_vec();
    sorted.sort_unstable();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within the slice, by the minimum"
    )]
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len() - 1);
    sorted[at]
}

pub(super) fn median(steps: &[Duration]) -> Duration {
    quantile(steps, 0.5)
}

pub(super) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

pub(super) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

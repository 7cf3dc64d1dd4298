//! What the fault tests share: requests, waiting with a bound, and a future polled by hand.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::needless_pass_by_value, reason = "an answer is checked where it is given")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::{Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use keyclaim::clock::{Clock, ManualClock, Reading};
use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::machine::{Decision, Outcome, Replay, Response};
use keyclaim::store::inject::{Fault, Op};
use keyclaim::{Abandoned, Claim, ClaimRequest, Error, ErrorKind, Id, Key, Policy, Result, Scope};

/// Longer than anything here takes; only a hang is this late.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// Input or output error.
pub(crate) const EIO: i32 = 5;
/// No space left on the device.
pub(crate) const ENOSPC: i32 = 28;

pub(crate) fn id(key: &str) -> Id {
    Id::new(Scope::new("account").expect("short"), Key::new(key).expect("short"))
}

pub(crate) fn request(key: &str) -> ClaimRequest<'static> {
    let request = Request { method: b"POST", target: b"/pay", payload: b"1", ..Request::default() };
    ClaimRequest::new(id(key), Scheme::Raw, request)
}

pub(crate) fn rerun() -> Policy {
    Policy::new(Abandoned::Rerun)
}

pub(crate) fn lease(ms: u64) -> Policy {
    rerun().lease(Duration::from_millis(ms)).expect("in bounds")
}

pub(crate) fn success(body: &[u8]) -> Outcome {
    Outcome::success(Response::new(201, body).header("a", "b"))
}

pub(crate) fn won(decision: Result<Decision<Claim>>) -> Claim {
    match decision {
        Ok(Decision::Won(claim)) => claim,
        other => panic!("expected a win: {other:?}"),
    }
}

pub(crate) fn replay(decision: Result<Decision<Claim>>) -> Replay {
    match decision {
        Ok(Decision::Replay(replay)) => replay,
        other => panic!("expected a replay: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn in_flight(decision: Result<Decision<Claim>>) {
    assert!(matches!(decision, Ok(Decision::InFlight { .. })), "expected in flight: {decision:?}");
}

#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind) -> Error {
    let error = result.expect_err("it must be refused");
    assert_eq!(error.kind(), kind, "{error:?}");
    error
}

/// A folder in memory where there is one: faults are injected, so the medium does not matter.
pub(crate) fn fast_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

/// Fails the first operation of this kind, once.
pub(crate) fn once(op: Op) -> Fault {
    Fault { op, nth: 1, from_then_on: false, done: false, errno: EIO }
}

/// Waits until it is so.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "never happened: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Polls once; wakes nobody.
pub(crate) fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs a future to its end on this thread.
#[track_caller]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    let start = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(start.elapsed() < LONG, "the future was never ready");
        thread::park_timeout(LONG);
    }
}

/// Runs it on a thread of its own and fails if it hangs.
#[track_caller]
pub(crate) fn bounded<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    let thread = thread::spawn(run);
    eventually("the thread ends", || thread.is_finished());
    thread.join().expect("it must not panic")
}

/// A manual clock that can stop the writer thread: it reads the time once in every group.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<(ManualClock, Mutex<GateState>, Condvar)>);

#[derive(Debug, Default)]
struct GateState {
    is_closed: bool,
    stopped: bool,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Arc::new((ManualClock::new(1_000_000_000_000), Mutex::default(), Condvar::new())))
    }

    pub(crate) fn clock(&self) -> &ManualClock {
        &self.0.0
    }

    /// The writer stops at its next group.
    pub(crate) fn close(&self) {
        self.0.1.lock().expect("no panic").is_closed = true;
    }

    pub(crate) fn open(&self) {
        *self.0.1.lock().expect("no panic") = GateState::default();
        self.0.2.notify_all();
    }

    /// Waits until the writer stands at the gate.
    pub(crate) fn wait_for_writer(&self) {
        eventually("the writer comes", || self.0.1.lock().expect("no panic").stopped);
    }
}

impl Clock for Gate {
    fn read(&self) -> Reading {
        if on_writer() {
            let mut state = self.0.1.lock().expect("no panic");
            while state.is_closed {
                state.stopped = true;
                state = self.0.2.wait(state).expect("no panic");
            }
        }
        self.0.0.read()
    }
}

/// Whether this is the thread that commits.
pub(crate) fn on_writer() -> bool {
    thread::current().name() == Some("keyclaim-writer")
}

//! Where one answer is left by the writer and fetched by whoever asked, blocking or async.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::sync::{Condvar, Mutex};

/// Makes the two ends of one answer.
pub(super) fn slot<T>() -> (Giver<T>, Taker<T>) {
    let slot = Arc::new(Slot { state: Mutex::new(State::Waiting(None)), ready: Condvar::new() });
    (Giver(Some(slot.clone())), Taker(slot))
}

/// The end that gives. Dropped without giving, the other end learns that the answer is lost.
pub(super) struct Giver<T>(Option<Arc<Slot<T>>>);

/// The end that takes.
pub(crate) struct Taker<T>(Arc<Slot<T>>);

struct Slot<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
}

enum State<T> {
    Waiting(Option<Waker>),
    Given(T),
    /// Taken, or nobody is left to take it.
    Over,
    /// The giver went without giving.
    Lost,
}

impl<T> Giver<T> {
    /// Leaves the answer; hands it back if nobody will ever take it.
    pub(super) fn give(mut self, value: T) -> Option<T> {
        let slot = self.0.take()?;
        slot.settle(State::Given(value))
    }
}

impl<T> Taker<T> {
    /// Waits for the answer; none if it is lost.
    pub(super) fn wait(&self) -> Option<T> {
        let mut state = self.0.state.lock();
        while matches!(*state, State::Waiting(_)) {
            self.0.ready.wait(&mut state);
        }
        take(&mut state)
    }

    /// Whether the answer is still to come.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(*self.0.state.lock(), State::Waiting(_))
    }

    /// Says that nobody will take the answer any more, and returns it if it was there already.
    pub(super) fn renounce(&self) -> Option<T> {
        match std::mem::replace(&mut *self.0.state.lock(), State::Over) {
            State::Given(value) => Some(value),
            State::Waiting(_) | State::Over | State::Lost => None,
        }
    }
}

impl<T> Slot<T> {
    fn settle(&self, settled: State<T>) -> Option<T> {
        let mut state = self.state.lock();
        match &mut *state {
            State::Waiting(waker) => {
                let waker = waker.take();
                *state = settled;
                drop(state);
                self.ready.notify_all();
                // Woken outside the lock: a waker may run anything, even poll this slot at once.
                waker.into_iter().for_each(wake);
                None
            }
            State::Given(_) | State::Over | State::Lost => match settled {
                State::Given(value) => Some(value),
                State::Waiting(_) | State::Over | State::Lost => None,
            },
        }
    }
}

impl<T> Future for Taker<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.state.lock();
        if let State::Waiting(waker) = &mut *state {
            match waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        Poll::Ready(take(&mut state))
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            slot.settle(State::Lost);
        }
    }
}

/// Wakes a task. A waker is the caller's code and may panic; the store's threads must outlive it.
pub(super) fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!(target: "keyclaim", "a waker panicked; its task may never run again");
    }
}

fn take<T>(state: &mut State<T>) -> Option<T> {
    match std::mem::replace(state, State::Over) {
        State::Given(value) => Some(value),
        State::Waiting(_) | State::Over | State::Lost => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_nobody_will_take_comes_back() {
        let (giver, taker) = slot();
        assert_eq!(taker.renounce(), None);
        assert_eq!(giver.give(1), Some(1));
    }

    #[test]
    fn an_answer_given_before_it_is_renounced_is_returned_once() {
        let (giver, taker) = slot();
        assert_eq!(giver.give(1), None);
        assert_eq!(taker.renounce(), Some(1));
        assert_eq!(taker.renounce(), None);
    }

    #[test]
    fn a_giver_that_goes_without_giving_wakes_the_taker() {
        let (giver, taker) = slot::<u8>();
        drop(giver);
        assert_eq!(taker.wait(), None);
    }
}

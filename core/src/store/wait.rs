//! Who waits for a key to be decided, and how they are woken.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::slot::wake;
use super::sync::{Condvar, Mutex};
use super::timer::after;

/// Wakes whoever waits, once, blocking or async.
#[derive(Default)]
pub(crate) struct Bell {
    state: Mutex<Rung>,
    rung: Condvar,
}

#[derive(Default)]
struct Rung {
    is_rung: bool,
    waker: Option<Waker>,
}

/// All who wait, by encoded id.
pub(super) struct Waiters {
    opener_pid: u32,
    by_id: Mutex<HashMap<Vec<u8>, Vec<Weak<Bell>>>>,
}

/// A place among the waiters of one id; dropped, it is given up.
pub(super) struct Ticket<'a> {
    waiters: &'a Waiters,
    id: Vec<u8>,
    bell: Arc<Bell>,
}

impl Bell {
    pub(super) fn ring(&self) {
        let mut state = self.state.lock();
        state.is_rung = true;
        let waker = state.waker.take();
        drop(state);
        self.rung.notify_all();
        waker.into_iter().for_each(wake);
    }

    /// Waits until it is rung or the instant has come.
    pub(super) fn wait_until(&self, until: Instant) {
        let mut state = self.state.lock();
        while !state.is_rung {
            if self.rung.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }
}

impl Waiters {
    pub(super) fn new() -> Self {
        Self { opener_pid: std::process::id(), by_id: Mutex::default() }
    }

    /// Takes a place. Do so before asking: whatever is decided from then on rings the bell.
    pub(super) fn join(&self, id: Vec<u8>) -> Ticket<'_> {
        let bell = Arc::new(Bell::default());
        self.by_id.lock().entry(id.clone()).or_default().push(Arc::downgrade(&bell));
        Ticket { waiters: self, id, bell }
    }

    /// Rings for all who wait for this id.
    pub(super) fn ring(&self, id: &[u8]) {
        let bells: Vec<_> = {
            let by_id = self.by_id.lock();
            by_id.get(id).map_or_else(Vec::new, |bells| bells.iter().filter_map(Weak::upgrade).collect())
        };
        for bell in bells {
            bell.ring();
        }
    }

    /// Rings for all: the store is closing or was poisoned.
    pub(super) fn ring_all(&self) {
        let bells: Vec<_> = self.by_id.lock().values().flatten().filter_map(Weak::upgrade).collect();
        for bell in bells {
            bell.ring();
        }
    }

    /// How many wait, for tests and stats.
    pub(super) fn len(&self) -> usize {
        self.by_id.lock().values().map(Vec::len).sum()
    }
}

impl Ticket<'_> {
    pub(super) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        // In a forked child the lock may be held for ever.
        if self.waiters.opener_pid != std::process::id() {
            return;
        }
        let mut by_id = self.waiters.by_id.lock();
        if let Some(bells) = by_id.get_mut(&self.id) {
            bells.retain(|bell| !std::ptr::eq(bell.as_ptr(), Arc::as_ptr(&self.bell)));
            if bells.is_empty() {
                by_id.remove(&self.id);
            }
        }
    }
}

/// Resolves once the bell was rung.
pub(crate) struct Ringing(pub(super) Arc<Bell>);

impl Ringing {
    /// Waits until it is rung, at most this long.
    pub(crate) fn wait(&self, timeout: Duration) {
        self.0.wait_until(after(timeout));
    }
}

impl Future for Ringing {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.state.lock();
        if state.is_rung {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

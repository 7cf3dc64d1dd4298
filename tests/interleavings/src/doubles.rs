//! The locks of `core/src/store/sync.rs` as the scheduler knows them, in the shape of parking_lot.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

#[cfg(feature = "loom")]
use loom::sync as of;
#[cfg(feature = "shuttle")]
use shuttle::sync as of;

pub(crate) use of::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct Mutex<T>(of::Mutex<T>);

/// Empty only while its owner waits.
pub(crate) struct MutexGuard<'a, T>(Option<of::MutexGuard<'a, T>>);

#[derive(Debug)]
pub(crate) struct Condvar(of::Condvar);

/// Nobody is woken by time.
pub(crate) struct Awake;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(of::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect("no model panics with a lock")))
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it does not wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it does not wait")
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(of::Condvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let waiting = guard.0.take().expect("it does not wait");
        guard.0 = Some(self.0.wait(waiting).expect("no model panics with a lock"));
    }

    pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _until: Instant) -> Awake {
        self.wait(guard);
        Awake
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Awake {
    pub(crate) fn timed_out(&self) -> bool {
        false
    }
}

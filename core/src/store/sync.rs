//! The locks and counters at which the threads of a store meet.
//!
//! One place for all, so that `tests/interleavings` can compile the same files with doubles of them, whose threads it
//! lets run in every order.

pub(crate) use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

//! The files under test.

#[path = "../../../core/src/store/desk.rs"]
pub(crate) mod desk;
#[path = "../../../core/src/store/health.rs"]
pub(crate) mod health;
#[path = "../../../core/src/store/queue.rs"]
pub(crate) mod queue;
#[path = "../../../core/src/store/slot.rs"]
pub(crate) mod slot;
#[path = "../../../core/src/store/wait.rs"]
pub(crate) mod wait;

#[path = "doubles.rs"]
pub(crate) mod sync;

pub(crate) mod timer {
    use std::time::{Duration, Instant};

    /// Far away: in a model nobody is woken by time, so that a lost wake-up is a deadlock.
    pub(crate) fn after(span: Duration) -> Instant {
        Instant::now() + span
    }
}

#[cfg(test)]
#[path = "models.rs"]
mod models;

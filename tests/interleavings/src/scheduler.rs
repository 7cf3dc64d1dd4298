//! Runs a model in the orders that the scheduler knows.

#[cfg(feature = "loom")]
pub(crate) use loom::thread::{JoinHandle, spawn};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::thread::{JoinHandle, spawn};

/// Every order with so many preemptions at most. Three find what two threads can do to each other; with more a model of
/// three threads takes minutes.
#[cfg(feature = "loom")]
const PREEMPTIONS_MAX: usize = 3;

/// Runs the model in every order. loom says itself how a failure is seen again (`LOOM_CHECKPOINT_FILE`).
#[cfg(feature = "loom")]
pub(crate) fn in_every_order(_name: &str, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

/// Runs the model in `KEYCLAIM_ORDERS` (10000) random orders, and in as many that search with few preemptions. A
/// failure prints the schedule, which `KEYCLAIM_SCHEDULE` replays.
#[cfg(feature = "shuttle")]
pub(crate) fn in_every_order(name: &str, model: fn()) {
    if let Ok(schedule) = std::env::var("KEYCLAIM_SCHEDULE") {
        return shuttle::replay(model, &schedule);
    }
    struct Told<'a>(&'a str);
    impl Drop for Told<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!(
                    "replay: KEYCLAIM_SCHEDULE='the schedule above' cargo test --manifest-path \
                     tests/interleavings/Cargo.toml --features shuttle {}",
                    self.0
                );
            }
        }
    }
    let _told = Told(name);
    let orders =
        std::env::var("KEYCLAIM_ORDERS").ok().and_then(|orders| orders.parse().ok()).unwrap_or(10_000);
    shuttle::check_random(model, orders);
    shuttle::check_pct(model, orders, 3);
}

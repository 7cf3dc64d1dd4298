//! Threads that race: kept for many rounds, and started together in each.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads that wait for a race.
pub struct Pool {
    threads: Vec<(Sender<Job>, JoinHandle<()>)>,
}

impl Pool {
    /// Starts this many threads.
    pub fn new(threads: usize) -> Self {
        let threads = (0..threads).map(|_| {
            let (sender, jobs) = channel::<Job>();
            (sender, thread::spawn(move || jobs.iter().for_each(|job| job())))
        });
        Self { threads: threads.collect() }
    }

    /// Runs `f(0)` to `f(racers - 1)`, each on a thread of its own and none before all are ready.
    /// Returns what they returned, in order.
    ///
    /// # Panics
    /// If one of them did, or if the pool has fewer threads.
    pub fn race<T: Send + 'static>(
        &self,
        racers: usize,
        f: impl Fn(usize) -> T + Send + Sync + 'static,
    ) -> Vec<T> {
        assert!(racers <= self.threads.len(), "the pool has too few threads for this race");
        let (f, barrier) = (Arc::new(f), Arc::new(Barrier::new(racers)));
        let (results, arrivals) = channel();
        for (racer, (jobs, _)) in self.threads.iter().take(racers).enumerate() {
            let (f, barrier, results) = (f.clone(), barrier.clone(), results.clone());
            let job = Box::new(move || {
                barrier.wait();
                let result = catch_unwind(AssertUnwindSafe(|| f(racer)));
                // Let go before answering: when the race is over, nothing of it is still held.
                drop(f);
                drop(results.send((racer, result)));
            });
            jobs.send(job).expect("a pool's threads live as long as the pool");
        }
        drop(results);
        let mut all: Vec<_> = arrivals.iter().collect();
        all.sort_by_key(|(racer, _)| *racer);
        all.into_iter().map(|(_, result)| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (jobs, thread) in self.threads.drain(..) {
            drop(jobs);
            drop(thread.join());
        }
    }
}

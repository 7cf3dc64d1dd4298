//! Threads that claim, own and resolve a few keys of one store, while its clock is turned, its disk fails and its
//! power is cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use keyclaim::clock::ManualClock;
use keyclaim::store::disk::{DiskFault, SimDisk};
use keyclaim::store::plant::Plant;
use keyclaim::{Options, Store};
use parking_lot::Mutex;

use super::client::{Client, Record};
use super::history::{History, Operation};
use super::spec::Rules;
use crate::proofs::disk::Cut;
use crate::seeded::Draws;

/// What the store is opened with.
pub const RULES: Rules = Rules { lease_ms: 10_000, window_ms: 100_000, horizon_ms: 300_000 };

/// Few, so that clients meet (arbitrary; as the numbers below).
const KEYS: u64 = 3;
const CLIENTS: u64 = 4;
/// So many that no key of a run has more operations than the search takes.
const ASKED: u64 = 9;
const EPOCHS: u64 = 3;
const EVENTS: u64 = 12;
const START_MS: u64 = 1_700_000_000_000;
const EIO: i32 = 5;

/// What one run has done to each key, and what happened to its store.
pub(super) fn run(seed: u64, plant: Option<Plant>) -> (BTreeMap<u64, History>, BTreeMap<&'static str, u64>) {
    let mut draws = Draws::new(seed);
    let clock = ManualClock::new(START_MS);
    let book = Book::default();
    let mut disk = SimDisk::new();
    for epoch in 0..EPOCHS {
        let store = Store::on_disk(&disk, plant.into_iter().fold(options(&clock), Options::plant))
            .expect("what a power cut leaves opens");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (store, book, is_over) = (&store, &book, &is_over);
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let draws = Draws::new(draws.below(u64::MAX));
                    let number = epoch * CLIENTS + client;
                    scope.spawn(move || Client::new(number, store, book, draws).run(ASKED, is_over))
                })
                .collect();
            trouble(store, &disk, &clock, book, &mut draws, || {
                clients.iter().all(thread::ScopedJoinHandle::is_finished)
            });
            is_over.store(true, Ordering::Release);
        });
        let (durable, unsynced) = disk.unsynced();
        disk.cut();
        drop(store);
        let cut = draws.one_of(&Cut::ALL);
        disk = SimDisk::holding(cut.of(&durable, &unsynced, &mut draws));
    }
    book.close()
}

fn options(clock: &ManualClock) -> Options {
    Options::with_policy(RULES.policy())
        .clock(Arc::new(clock.clone()))
        .renew_leases_max(0)
        .cache_len(256 * 1024)
}

/// What happens to the store while its clients work, until they are done or the power is cut.
fn trouble(
    store: &Store,
    disk: &SimDisk,
    clock: &ManualClock,
    book: &Book,
    draws: &mut Draws,
    is_done: impl Fn() -> bool,
) {
    for _ in 0..EVENTS {
        thread::sleep(Duration::from_micros(draws.below(400)));
        match draws.below(16) {
            0..6 => clock.advance(draws.one_of(&[1, 3_000, 9_999, 10_000, 40_000])),
            6 => clock.advance(draws.one_of(&[RULES.window_ms, RULES.horizon_ms])),
            7 | 8 => {
                clock.set_wall(draws.below(2 * START_MS));
                book.count("wall clock set");
            }
            9 => {
                // One change fails, whichever comes next; the store is reopened under its clients.
                let fault = DiskFault {
                    reads: false,
                    at: draws.below(4),
                    from_then_on: false,
                    errno: EIO,
                    done_percent: draws.one_of(&[0, 50, 100]),
                };
                disk.fail(fault);
                thread::sleep(Duration::from_micros(draws.below(400)));
                disk.heal();
                if store.is_poisoned() {
                    book.count("reopened");
                    store.reopen().expect("the disk is well again");
                }
            }
            10 => {
                book.count("power cuts");
                disk.cut();
                return;
            }
            _ => {}
        }
    }
    while !is_done() {
        thread::sleep(Duration::from_micros(200));
        if store.is_poisoned() {
            book.count("reopened");
            store.reopen().expect("the disk is well again");
        }
    }
}

/// Who asked what when, by all clients.
#[derive(Default)]
struct Book {
    order: AtomicU64,
    operations: Mutex<Vec<(u64, Operation)>>,
    /// The token with which each key was last seen held.
    held: Mutex<BTreeMap<u64, u64>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Record for Book {
    fn stamp(&self) -> u64 {
        self.order.fetch_add(1, Ordering::SeqCst)
    }

    fn number(&self) -> u64 {
        self.stamp()
    }

    fn key(&self, draws: &mut Draws) -> u64 {
        draws.below(KEYS)
    }

    fn end(&self, key: u64, operation: Operation) {
        let told = operation.and_its_renewal();
        self.operations.lock().extend(told.into_iter().map(|operation| (key, operation)));
    }

    fn held(&self) -> &Mutex<BTreeMap<u64, u64>> {
        &self.held
    }
}

impl Book {
    fn count(&self, what: &'static str) {
        *self.counts.lock().entry(what).or_default() += 1;
    }

    fn close(self) -> (BTreeMap<u64, History>, BTreeMap<&'static str, u64>) {
        let mut keys: BTreeMap<u64, History> = BTreeMap::new();
        let mut operations = self.operations.into_inner();
        operations.sort_by_key(|(_, operation)| operation.called_at);
        for (key, operation) in operations {
            keys.entry(key).or_default().operations.push(operation);
        }
        (keys, self.counts.into_inner())
    }
}

//! A store with short times on a clock turned by hand, and a look at its tables from outside.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyclaim::clock::ManualClock;
use keyclaim::machine::Outcome;
use keyclaim::{Abandoned, Claim, Options, Policy, Reap, Reaped, Store};
use redb::{Database, ReadableTableMetadata, TableDefinition, WriteTransaction};

use crate::faulty::*;

pub(crate) const LEASE: u64 = 1_000;
pub(crate) const WINDOW: u64 = 10_000;
pub(crate) const HORIZON: u64 = 30_000;

/// Longer than what is stored with its record.
const LARGE: usize = 20 * 1_024;

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) clock: ManualClock,
}

/// A body of these bytes that has a row of its own.
pub(crate) fn large(byte: u8) -> Vec<u8> {
    vec![byte; LARGE]
}

pub(crate) fn policy() -> Policy {
    let span = Duration::from_millis;
    let policy = Policy::new(Abandoned::Rerun).lease(span(LEASE)).expect("in bounds");
    let policy = policy.replay_window(span(WINDOW)).expect("in bounds");
    policy.reaper_horizon(span(HORIZON)).expect("in bounds")
}

/// Options on this clock, without renewals: a claim's lease ends when its time is over.
pub(crate) fn options(clock: &ManualClock) -> Options {
    Options::with_policy(policy()).clock(Arc::new(clock.clone())).renew_leases_max(0)
}

pub(crate) fn in_memory() -> World {
    in_memory_with(|options| options)
}

pub(crate) fn in_memory_with(set: impl FnOnce(Options) -> Options) -> World {
    let clock = ManualClock::new(1_700_000_000_000);
    let store = Store::in_memory(set(options(&clock))).expect("memory");
    World { store, clock }
}

pub(crate) fn on_file(folder: &tempfile::TempDir) -> (World, PathBuf) {
    let (clock, path) = (ManualClock::new(1_700_000_000_000), folder.path().join("store"));
    let store = Store::open(&path, options(&clock)).expect("a fresh folder");
    (World { store, clock }, path)
}

impl World {
    pub(crate) fn claim(&self, key: &str) -> Claim {
        won(self.store.claim(&request(key)))
    }

    pub(crate) fn complete(&self, key: &str, outcome: &Outcome) {
        self.claim(key).complete(outcome).expect("its owner");
    }

    pub(crate) fn complete_many(&self, prefix: &str, count: usize) {
        (0..count).for_each(|n| self.complete(&format!("{prefix} {n}"), &success(b"done")));
    }

    /// One whole pass over what is due now.
    pub(crate) fn reap(&self) -> Reaped {
        let reaped = self.store.reap(&Reap::new()).expect("healthy");
        assert!(reaped.is_whole);
        reaped
    }
}

/// How many rows the tables records, bodies, archive and due of a closed store have.
pub(crate) fn rows(path: &Path) -> [u64; 4] {
    let mut counts = [0; 4];
    edit(path, |txn| {
        counts = ["records", "bodies", "archive", "due"]
            .map(|name| txn.open_table(table(name)).expect("there").len().expect("healthy"));
    });
    counts
}

/// Changes a closed store's rows as no program of ours would.
pub(crate) fn edit(path: &Path, change: impl FnOnce(&WriteTransaction)) {
    let db = Database::create(path).expect("closed");
    let txn = db.begin_write().expect("healthy");
    change(&txn);
    txn.commit().expect("healthy");
}

pub(crate) fn table(name: &str) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
    TableDefinition::new(name)
}

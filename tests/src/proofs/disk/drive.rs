//! The workload on one store: does what was drawn, holds each answer against the model, and notes what was told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keyclaim::clock::ManualClock;
use keyclaim::outbox::Delivery;
use keyclaim::store::disk::SimDisk;
use keyclaim::{Abandoned, Claim, Error, Millis, Options, Policy, Store, Token};

use super::Mode;
use super::world::{Delta, World};
use crate::seeded::Draws;

pub(super) const LEASE_MS: u64 = 10_000;
pub(super) const WINDOW_MS: u64 = 100_000;
pub(super) const HORIZON_MS: u64 = 300_000;
const START_MS: u64 = 1_700_000_000_000;

/// Why an action came to nothing.
#[derive(Debug)]
pub(super) enum Fail {
    /// The store said so.
    Store(Error),
    /// A promise is broken.
    Broken(String),
}

pub(super) type Did = Result<Vec<Delta>, Fail>;

pub(super) struct Owner {
    pub(super) claim: Claim,
    /// How many recorded steps it has met.
    pub(super) met: usize,
    /// Whether it is the first attempt and has recorded nothing.
    pub(super) is_clean: bool,
    pub(super) is_open: bool,
}

pub(super) struct Driver {
    pub(super) store: Option<Store>,
    pub(super) disk: SimDisk,
    pub(super) clock: ManualClock,
    pub(super) passed_ms: u64,
    pub(super) world: World,
    pub(super) owners: BTreeMap<u64, Owner>,
    pub(super) overtaken: Vec<(u64, Claim)>,
    /// Tokens that were told, oldest first; some of them are current.
    pub(super) tokens: Vec<(u64, Token)>,
    pub(super) leased: Vec<Delivery>,
    pub(super) draws: Draws,
    numbers: u64,
    pub(super) mode: Mode,
}

/// The options of a store in this mode, at this time after the start.
pub(super) fn options(mode: Mode, passed_ms: u64) -> (Options, ManualClock) {
    let clock = ManualClock::new(START_MS);
    clock.advance(passed_ms);
    let policy = Policy::new(Abandoned::Rerun)
        .lease(Duration::from_millis(LEASE_MS))
        .and_then(|policy| policy.replay_window(Duration::from_millis(WINDOW_MS)))
        .and_then(|policy| policy.reaper_horizon(Duration::from_millis(HORIZON_MS)))
        .expect("in bounds");
    let mut options = Options::with_policy(policy).clock(Arc::new(clock.clone())).sharing(mode.sharing);
    if let Some(plant) = mode.plant {
        options = options.plant(plant);
    }
    // Renewals would come when the system's timer says, and not when the seed does.
    (options.renew_leases_max(0).cache_len(256 * 1024), clock)
}

impl Driver {
    pub(super) fn new(draws: Draws, mode: Mode) -> Result<Self, Error> {
        let (disk, (options, clock)) = (SimDisk::new(), options(mode, 0));
        Ok(Self {
            store: Some(Store::on_disk(&disk, options)?),
            disk,
            clock,
            passed_ms: 0,
            world: World::default(),
            owners: BTreeMap::new(),
            overtaken: Vec::new(),
            tokens: Vec::new(),
            leased: Vec::new(),
            draws,
            numbers: 0,
            mode,
        })
    }

    /// The options with which the workload opens its store now.
    pub(super) fn options(&self) -> (Options, ManualClock) {
        options(self.mode, self.passed_ms)
    }

    pub(super) fn store(&self) -> &Store {
        self.store.as_ref().expect("it is only away while it is reopened")
    }

    /// Lets go of the store and its claims.
    pub(super) fn end(self) {
        self.disk.cut();
        drop(self);
    }

    pub(super) fn now_ms(&self) -> Millis {
        now_after(self.passed_ms)
    }

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn owns(&self, key: u64) -> bool {
        self.owners.contains_key(&key)
    }

    pub(super) fn met(&self, key: u64) -> usize {
        self.owners.get(&key).map_or(0, |owner| owner.met)
    }

    pub(super) fn is_clean(&self, key: u64) -> bool {
        self.owners.get(&key).is_some_and(|owner| owner.is_clean)
    }

    /// Whether this owner has begun a step that it is to end next.
    pub(super) fn is_open(&self, key: u64) -> bool {
        self.owners.get(&key).is_some_and(|owner| owner.is_open)
    }

    /// Takes in what was told.
    pub(super) fn told(&mut self, deltas: &[Delta]) {
        for delta in deltas {
            self.world.apply(delta);
            if let Some((key, Some(told))) = &delta.key
                && self.tokens.last() != Some(&(*key, told.token))
            {
                self.tokens.push((*key, told.token));
            }
        }
    }
}

/// Store time after this much has passed: a clock that runs evenly is believed as it is.
pub(super) fn now_after(passed_ms: u64) -> Millis {
    Millis(START_MS + passed_ms)
}

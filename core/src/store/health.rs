//! Whether a store is healthy, poisoned or closed, as all its threads see it.

use super::queue::closed;
use super::sync::{AtomicU8, AtomicU64, Ordering};
use crate::{Error, ErrorKind, Result};

/// Healthy at first. Closed is for good: nothing that happens meanwhile opens it again.
pub(super) struct Health {
    state: AtomicU8,
    poisonings: AtomicU64,
}

const HEALTHY: u8 = 0;
const POISONED: u8 = 1;
const CLOSED: u8 = 2;

impl Health {
    pub(super) fn new() -> Self {
        Self { state: AtomicU8::new(HEALTHY), poisonings: AtomicU64::new(0) }
    }

    /// Whether commands can be served.
    pub(super) fn check(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            HEALTHY => Ok(()),
            POISONED => Err(poisoned()),
            _ => Err(closed()),
        }
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.state.load(Ordering::Acquire) == POISONED
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    /// Poisons what was healthy; whether it was.
    pub(super) fn poison(&self) -> bool {
        let is_news = self.goes(HEALTHY, POISONED);
        if is_news {
            self.poisonings.fetch_add(1, Ordering::Relaxed);
        }
        is_news
    }

    /// The same without counting it: it is reopened for another reason.
    pub(super) fn poison_quietly(&self) {
        self.goes(HEALTHY, POISONED);
    }

    /// Heals what was poisoned; whether it was. One that was closed meanwhile stays so.
    pub(super) fn heal(&self) -> bool {
        self.goes(POISONED, HEALTHY)
    }

    pub(super) fn close(&self) {
        self.state.swap(CLOSED, Ordering::AcqRel);
    }

    /// How often it was poisoned.
    pub(super) fn poisonings(&self) -> u64 {
        self.poisonings.load(Ordering::Relaxed)
    }

    fn goes(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

pub(super) fn poisoned() -> Error {
    Error::new(
        ErrorKind::Poisoned,
        "the store's file failed; reopen the store, then ask again what was answered Unknown",
    )
}

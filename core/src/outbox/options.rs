//! How events are delivered.

use std::time::Duration;

use super::decide::Terms;
use crate::backoff::Backoff;
use crate::limits::{
    EVENT_ATTEMPTS_DEFAULT, EVENT_LEASE_MS_DEFAULT, LEASE_MS_MAX, RELAY_WORKERS_DEFAULT, RELAY_WORKERS_MAX,
};
use crate::{Error, Millis, Result};

/// How events are delivered: how many at once, how long each may take, and how often it is tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RelayOptions {
    pub(crate) terms: Terms,
    pub(crate) workers: usize,
}

impl RelayOptions {
    /// Four workers, a lease of 30 s, 20 attempts with delays of up to 10 minutes between them.
    pub fn new() -> Self {
        let terms = Terms {
            lease_ms: Millis(EVENT_LEASE_MS_DEFAULT),
            attempts_max: EVENT_ATTEMPTS_DEFAULT,
            backoff: Backoff::default(),
        };
        Self { terms, workers: RELAY_WORKERS_DEFAULT }
    }

    /// Sets how many deliveries run at once, each in a thread of its own; as many more wait for one, leased.
    /// Events with one scope and ordering key are delivered one after the other all the same.
    ///
    /// Errors: `Invalid` unless 1 to 128.
    pub fn workers(mut self, workers: usize) -> Result<Self> {
        if !(1..=RELAY_WORKERS_MAX).contains(&workers) {
            return Err(Error::invalid("a relay has 1 to 128 workers"));
        }
        self.workers = workers;
        Ok(self)
    }

    /// Sets how long a delivery is left alone before the event is delivered again: longer than the handler
    /// ever takes, for it is not renewed.
    ///
    /// Errors: `Invalid` unless between 1 ms and a week.
    pub fn lease(mut self, lease: Duration) -> Result<Self> {
        let lease_ms = Millis::from_duration(lease);
        if !(1..=LEASE_MS_MAX).contains(&lease_ms.0) {
            return Err(Error::invalid("the lease of a delivery must be between 1 ms and a week"));
        }
        self.terms.lease_ms = lease_ms;
        Ok(self)
    }

    /// Sets how many deliveries of an event may fail, or not end, until it is a dead letter.
    ///
    /// Errors: `Invalid` for none.
    pub fn attempts_max(mut self, attempts: u32) -> Result<Self> {
        if attempts == 0 {
            return Err(Error::invalid(
                "an event that is never tried is never delivered; allow 1 attempt or more",
            ));
        }
        self.terms.attempts_max = attempts;
        Ok(self)
    }

    /// Sets how long a failed event waits for its next attempt.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.terms.backoff = backoff;
        self
    }

    /// How many events a relay has leased at most: one for each worker, and one that waits for it.
    #[cfg(feature = "store")]
    pub(crate) fn in_hand_max(&self) -> usize {
        self.workers.saturating_mul(2)
    }
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_would_deliver_nothing_are_refused() {
        let options = RelayOptions::new();
        assert!(options.workers(0).is_err() && options.workers(129).is_err() && options.workers(128).is_ok());
        assert!(options.lease(Duration::ZERO).is_err() && options.lease(Duration::MAX).is_err());
        assert!(options.attempts_max(0).is_err() && options.attempts_max(1).is_ok());
    }
}

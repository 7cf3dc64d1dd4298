//! What a claim asks for: how long its owner is left alone, how long it is answered again, and what
//! follows when it dies. Three times, three settings: a lease is never a replay window.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::{HORIZON_MS_DEFAULT, HORIZON_MS_MAX, LEASE_MS_DEFAULT, LEASE_MS_MAX, WINDOW_MS_DEFAULT};
use crate::{Error, Result};

/// Milliseconds: an instant of store time, or a span of it. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Millis(pub u64);

impl Millis {
    /// This instant moved forward; stays at the end of time instead of wrapping.
    #[must_use]
    pub fn plus(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The time from `earlier` until this instant, zero if there is none.
    #[must_use]
    pub fn since(self, earlier: Millis) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// Converts a span, rounding a part of a millisecond up: no time-out becomes shorter than asked.
    pub fn from_duration(span: Duration) -> Self {
        let millis = u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Self(millis)
    }

    /// This span as a [`Duration`].
    pub fn to_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

/// What happens to an attempt whose lease ended and that had recorded nothing.
///
/// It has no default: only whoever writes the handler knows.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum Abandoned {
    /// The next claim simply runs again: every effect is inside the store's transaction or carries
    /// the downstream key.
    Rerun,
    /// The key is held for a person: an effect may have happened that nobody recorded.
    Hold,
}

/// What a claim on a finished key finds after its replay window.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum AfterWindow {
    /// The key is new: it is won, and the winner is told `reused_after_window`.
    #[default]
    Reuse,
    /// The key stays used until the reaper horizon: `Expired`.
    Refuse,
}

/// What a claim on a failed key finds within its replay window.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum AfterFailure {
    /// The failure is answered again, as a success is (Stripe's v1).
    #[default]
    Replay,
    /// The request may be attempted again, with the steps already done (Stripe's v2).
    Reattempt,
}

/// The settings of one claim, checked when they are made and kept with the record they started.
///
/// Only the stored settings decide about a record: a newcomer's own settings never shorten
/// another's lease or window.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Policy {
    pub(crate) lease_ms: Option<Millis>,
    pub(crate) window_ms: Millis,
    pub(crate) horizon_ms: Millis,
    pub(crate) abandoned: Abandoned,
    pub(crate) after_window: AfterWindow,
    pub(crate) after_failure: AfterFailure,
}

impl Policy {
    /// The defaults (lease 60 s, replay window 24 h, reaper horizon 72 h) and the one choice without a default.
    pub fn new(abandoned: Abandoned) -> Self {
        Self {
            lease_ms: Some(Millis(LEASE_MS_DEFAULT)),
            window_ms: Millis(WINDOW_MS_DEFAULT),
            horizon_ms: Millis(HORIZON_MS_DEFAULT),
            abandoned,
            after_window: AfterWindow::default(),
            after_failure: AfterFailure::default(),
        }
    }

    /// Sets how long an owner is left alone before another claim may take over: above zero, at most a week.
    pub fn lease(mut self, lease: Duration) -> Result<Self> {
        self.lease_ms = Some(bounded("lease", Millis::from_duration(lease), LEASE_MS_MAX)?);
        Ok(self)
    }

    /// Without a lease a claim ends only by command, never by time.
    #[must_use]
    pub fn no_lease(mut self) -> Self {
        self.lease_ms = None;
        self
    }

    /// Sets how long after its completion a request is answered again. A reaper horizon shorter than that is moved to it.
    pub fn replay_window(mut self, window: Duration) -> Result<Self> {
        self.window_ms = bounded("replay window", Millis::from_duration(window), HORIZON_MS_MAX)?;
        self.horizon_ms = self.horizon_ms.max(self.window_ms);
        Ok(self)
    }

    /// Sets when a record is removed, from its last command; never before the replay window ends.
    pub fn reaper_horizon(mut self, horizon: Duration) -> Result<Self> {
        let horizon = bounded("reaper horizon", Millis::from_duration(horizon), HORIZON_MS_MAX)?;
        if horizon < self.window_ms {
            return Err(Error::invalid(
                "the reaper horizon is shorter than the replay window; set it to the window or more",
            ));
        }
        self.horizon_ms = horizon;
        Ok(self)
    }

    /// Sets what a claim finds after the replay window.
    #[must_use]
    pub fn after_window(mut self, choice: AfterWindow) -> Self {
        self.after_window = choice;
        self
    }

    /// Sets what a claim finds after a failure; a completion can say otherwise for itself.
    #[must_use]
    pub fn after_failure(mut self, choice: AfterFailure) -> Self {
        self.after_failure = choice;
        self
    }
}

fn bounded(name: &str, span: Millis, max: u64) -> Result<Millis> {
    if span.0 == 0 || span.0 > max {
        return Err(Error::invalid(format!("the {name} must be between 1 ms and {max} ms")));
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_or_endless_span_is_refused() {
        let policy = Policy::new(Abandoned::Rerun);
        assert!(policy.lease(Duration::ZERO).is_err());
        assert!(policy.lease(Duration::MAX).is_err());
        assert!(policy.replay_window(Duration::ZERO).is_err());
        assert!(policy.reaper_horizon(Duration::from_millis(1)).is_err());
    }

    #[test]
    fn a_part_of_a_millisecond_is_rounded_up() {
        assert_eq!(Millis::from_duration(Duration::from_nanos(1)), Millis(1));
        assert_eq!(Millis::from_duration(Duration::from_millis(7)), Millis(7));
        assert_eq!(Millis::from_duration(Duration::MAX), Millis(u64::MAX));
    }
}

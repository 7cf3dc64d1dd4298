//! How long a failed delivery, or a failed try to finish a request, waits for its next one.

use std::time::Duration;

use crate::limits::{BACKOFF_BASE_MS_DEFAULT, BACKOFF_CAP_MS_DEFAULT, HORIZON_MS_MAX};
use crate::{Error, Millis, Result};

/// Full jitter: any delay from a millisecond up to a ceiling that doubles with each attempt, up to a cap.
///
/// All delays are equally likely, so what failed together is not tried together (AWS Architecture Blog,
/// "Exponential Backoff And Jitter", 2015).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Backoff {
    base_ms: Millis,
    cap_ms: Millis,
}

impl Backoff {
    /// At most `base` before the second attempt, twice that before the third, and never more than `cap`.
    ///
    /// Errors: `Invalid` if `base` is zero, `cap` is shorter than it or longer than ten years.
    pub fn new(base: Duration, cap: Duration) -> Result<Self> {
        let backoff = Self { base_ms: Millis::from_duration(base), cap_ms: Millis::from_duration(cap) };
        let fits =
            backoff.base_ms.0 > 0 && backoff.base_ms <= backoff.cap_ms && backoff.cap_ms.0 <= HORIZON_MS_MAX;
        if fits {
            Ok(backoff)
        } else {
            Err(Error::invalid("delays must be above zero, and their cap between that and ten years"))
        }
    }

    /// The delay after this many attempts, chosen by a random number that is any `u64`.
    pub fn delay_ms(&self, attempts: u32, random: u64) -> Millis {
        let doubled = 1_u64.checked_shl(attempts.saturating_sub(1)).unwrap_or(u64::MAX);
        let ceiling = self.base_ms.0.saturating_mul(doubled).min(self.cap_ms.0);
        // The high half of the product: without the bias of a remainder. Never nothing, so that a pass over what
        // is due at one instant does not meet an event again that failed in it.
        let share = (u128::from(random) * u128::from(ceiling)) >> u64::BITS;
        Millis(u64::try_from(share + 1).unwrap_or(ceiling))
    }
}

impl Default for Backoff {
    /// At most a second at first, ten minutes in the end.
    fn default() -> Self {
        Self { base_ms: Millis(BACKOFF_BASE_MS_DEFAULT), cap_ms: Millis(BACKOFF_CAP_MS_DEFAULT) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_reaches_from_a_millisecond_to_a_ceiling_that_doubles_up_to_the_cap() {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1)).expect("valid");
        let ceilings =
            [(0, 100), (1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (64, 1_000), (u32::MAX, 1_000)];
        for (attempts, ceiling) in ceilings {
            assert_eq!(backoff.delay_ms(attempts, 0), Millis(1));
            assert_eq!(backoff.delay_ms(attempts, u64::MAX), Millis(ceiling), "after {attempts}");
            assert_eq!(backoff.delay_ms(attempts, u64::MAX / 2), Millis(ceiling / 2));
        }
    }

    #[test]
    fn delays_that_cannot_be_meant_are_refused() {
        let new = |base, cap| Backoff::new(Duration::from_millis(base), Duration::from_millis(cap));
        assert!(new(1, 1).is_ok() && new(1, HORIZON_MS_MAX).is_ok());
        assert!(new(0, 1).is_err() && new(2, 1).is_err() && new(1, HORIZON_MS_MAX + 1).is_err());
        assert!(Backoff::new(Duration::MAX, Duration::MAX).is_err());
    }
}

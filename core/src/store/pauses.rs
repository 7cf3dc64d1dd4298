//! Waiting for another process, which rings no bell: short looks, further and further apart, up to a deadline.

use std::thread;
use std::time::{Duration, Instant};

use super::timer;
use crate::limits::WRITE_POLL_US;

/// The pauses of one wait.
pub(super) struct Pauses {
    until: Instant,
    next: Duration,
}

impl Pauses {
    /// For so long.
    pub(super) fn new(wait: Duration) -> Self {
        Self { until: timer::after(wait), next: Duration::from_micros(WRITE_POLL_US.0) }
    }

    /// Waits a little; whether to look again.
    pub(super) fn take(&mut self) -> bool {
        let left = self.until.saturating_duration_since(timer::now());
        if left.is_zero() {
            return false;
        }
        #[expect(clippy::disallowed_methods, reason = "another process's lock rings no bell")]
        thread::sleep(self.next.min(left));
        self.next = (self.next * 2).min(Duration::from_micros(WRITE_POLL_US.1));
        true
    }
}

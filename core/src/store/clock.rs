//! The host's clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::Millis;
use crate::clock::{Boot, Clock, Reading};

/// The wall clock and, on Linux, the clock that runs from boot and through suspend.
///
/// Where the boot id cannot be read (no `/proc`), there is no boot clock: two boots could not be told
/// apart.
#[derive(Debug)]
pub struct SystemClock {
    boot_id: Option<[u8; 16]>,
}

impl SystemClock {
    /// Reads the boot id, once: it does not change while this process lives.
    pub fn new() -> Self {
        Self { boot_id: read_boot_id() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the system's wall clock")]
impl Clock for SystemClock {
    fn read(&self) -> Reading {
        // A wall clock before 1970 is broken; zero is as good as any other value then.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        Reading { wall_ms, boot: self.boot_id.map(|id| Boot { id, ms: boot_ms().0 }) }
    }
}

#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the system's boot clock")]
fn boot_ms() -> Millis {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let millis = u64::try_from(now.tv_nsec / 1_000_000).unwrap_or(0);
    Millis(seconds.saturating_mul(1_000).saturating_add(millis))
}

#[cfg(target_os = "linux")]
fn read_boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.trim().split('-').collect();
    // Exactly 32 digits: a number alone would also take fewer, or a sign.
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

#[cfg(not(target_os = "linux"))]
fn boot_ms() -> Millis {
    Millis(0)
}

#[cfg(not(target_os = "linux"))]
fn read_boot_id() -> Option<[u8; 16]> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_boot_clock_runs_and_names_its_boot() {
        let clock = SystemClock::new();
        let first = clock.read();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let second = clock.read();
        let (then, now) = (first.boot.expect("Linux has one"), second.boot.expect("Linux has one"));
        assert_eq!(then.id, now.id);
        assert_eq!(SystemClock::new().read().boot.map(|boot| boot.id), Some(then.id));
        assert!(now.ms >= then.ms + 20, "{then:?} {now:?}");
        assert!(first.wall_ms > 1_700_000_000_000, "the unit is milliseconds since 1970");
    }
}

//! A clock that a test turns by hand.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Boot, Clock, Reading};

/// A clock for tests; clones show and turn the same one.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Reading>>);

impl ManualClock {
    /// Starts at this wall clock, one minute after boot number one.
    pub fn new(wall_ms: u64) -> Self {
        let boot = Some(Boot { id: boot_id(1), ms: 60_000 });
        Self(Arc::new(Mutex::new(Reading { wall_ms, boot })))
    }

    /// Lets both clocks run for `ms`.
    pub fn advance(&self, ms: u64) {
        self.change(|reading| {
            reading.wall_ms = reading.wall_ms.saturating_add(ms);
            if let Some(boot) = &mut reading.boot {
                boot.ms = boot.ms.saturating_add(ms);
            }
        });
    }

    /// Sets the wall clock alone, as a time server or a person does.
    pub fn set_wall(&self, wall_ms: u64) {
        self.change(|reading| reading.wall_ms = wall_ms);
    }

    /// Sets the boot-time clock, or takes it away.
    pub fn set_boot(&self, boot: Option<Boot>) {
        self.change(|reading| reading.boot = boot);
    }

    /// Boots the machine again: another boot id, and its clock at zero. The wall clock stays.
    pub fn reboot(&self) {
        self.change(|reading| {
            let last = reading.boot.map_or(0, |boot| u128::from_le_bytes(boot.id));
            reading.boot = Some(Boot { id: boot_id(last.wrapping_add(1)), ms: 0 });
        });
    }

    fn change(&self, f: impl FnOnce(&mut Reading)) {
        // A reading is plain numbers: one left by a panicking test is still a reading.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Clock for ManualClock {
    fn read(&self) -> Reading {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn boot_id(number: u128) -> [u8; 16] {
    number.to_le_bytes()
}

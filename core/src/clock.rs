//! Store time: the one clock that leases and windows are measured with.
//!
//! The rules are plain arithmetic over [`Reading`]s, so that every clock bug is a unit test. On one
//! boot, store time runs with the boot-time clock, also across openings; the wall clock only says
//! how long the machine was down, within bounds. A broken time server can so neither end a lease
//! nor empty the replay window (P6).
//!
//! ```text
//! this reading            store time moves by
//! same boot               the boot-time clock's difference
//! another boot            the wall clock's difference, at least 0, at most the largest gap
//! no boot clock           up to the wall clock, never back
//! first opening           starts at the wall clock
//! ```

use std::fmt::Debug;

use crate::hash::{Domain, first_bytes};
use crate::limits::{CLOCK_DISORDER_MS, CLOCK_GAP_MS_DEFAULT};
use crate::{Error, ErrorKind, Millis, Result};

#[cfg(any(test, feature = "testing"))]
mod manual;

#[cfg(any(test, feature = "testing"))]
pub use manual::ManualClock;

/// What the host's clocks show at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reading {
    /// Milliseconds since 1970 by the wall clock. It may jump either way.
    pub wall_ms: u64,
    /// The clock that runs evenly since the machine booted, where the host has one.
    pub boot: Option<Boot>,
}

/// A clock that runs evenly, also through suspend, from one boot to the next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Boot {
    /// Which boot this is.
    pub id: [u8; 16],
    /// Milliseconds since that boot.
    pub ms: u64,
}

/// Where readings come from: the host, or a test.
pub trait Clock: Debug + Send + Sync {
    /// Returns what the clocks show now. Never fails: a clock that cannot be read is left out.
    fn read(&self) -> Reading;
}

/// What a store keeps of its time, so that the next opening continues by it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Saved {
    /// Store time at the reading below.
    pub store_ms: Millis,
    /// The wall clock at that moment.
    pub wall_ms: u64,
    /// The boot-time clock at that moment.
    pub boot: Option<Boot>,
}

impl Saved {
    /// The length of the encoding in bytes.
    pub const LEN: usize = 50;

    /// Encodes as `version u8 = 1, boot present u8, store u64, wall u64, boot id 16 bytes, boot u64,
    /// checksum 8 bytes`, integers little-endian, an absent boot as zeros.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let boot = self.boot.unwrap_or(Boot { id: [0; 16], ms: 0 });
        let body = [
            &[VERSION, u8::from(self.boot.is_some())][..],
            &self.store_ms.0.to_le_bytes(),
            &self.wall_ms.to_le_bytes(),
            &boot.id,
            &boot.ms.to_le_bytes(),
        ]
        .concat();
        let mut bytes = [0; Self::LEN];
        bytes.iter_mut().zip(body.iter().chain(&checksum(&body))).for_each(|(to, from)| *to = *from);
        bytes
    }

    /// Decodes what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// Errors: `Incompatible` for another version, `Corrupt` for anything else that was not written
    /// by it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let corrupt = || Error::new(ErrorKind::Corrupt, "the saved store time is damaged; restore the store");
        let version = *bytes.first().ok_or_else(corrupt)?;
        if version != VERSION {
            return Err(Error::new(
                ErrorKind::Incompatible,
                format!(
                    "the saved store time has version {version}; this keyclaim reads {VERSION}: upgrade it"
                ),
            ));
        }
        let bytes: &[u8; Self::LEN] = bytes.try_into().map_err(|_| corrupt())?;
        let (body, check) = bytes.split_at(Self::LEN - CHECK_LEN);
        if check != checksum(body) {
            return Err(corrupt());
        }
        let mut rest = body;
        let [_, present] = take(&mut rest).ok_or_else(corrupt)?;
        let store_ms = Millis(u64::from_le_bytes(take(&mut rest).ok_or_else(corrupt)?));
        let wall_ms = u64::from_le_bytes(take(&mut rest).ok_or_else(corrupt)?);
        let boot = Boot {
            id: take(&mut rest).ok_or_else(corrupt)?,
            ms: u64::from_le_bytes(take(&mut rest).ok_or_else(corrupt)?),
        };
        let boot = match present {
            0 => None,
            1 => Some(boot),
            _ => return Err(corrupt()),
        };
        Ok(Self { store_ms, wall_ms, boot })
    }
}

/// Store time itself: a value that moves forward with each reading it is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StoreTime {
    last: Saved,
    gap_max_ms: u64,
}

impl StoreTime {
    /// The longest time that counts across a reboot, unless the store is told otherwise.
    pub const GAP_MAX_DEFAULT: Millis = Millis(CLOCK_GAP_MS_DEFAULT);

    /// Continues from what the last opening saved, or starts at the wall clock if there is nothing.
    ///
    /// At most `gap_max` of a time that only the wall clock saw is believed.
    pub fn resume(saved: Option<Saved>, reading: Reading, gap_max: Millis) -> Self {
        let Reading { wall_ms, boot } = reading;
        let first = Saved { store_ms: Millis(wall_ms), wall_ms, boot };
        let mut time = Self { last: saved.unwrap_or(first), gap_max_ms: gap_max.0 };
        time.advance(reading, 0);
        time
    }

    /// Moves to `reading` and returns the store time there, never less than it returned before.
    ///
    /// Readings of two threads may arrive in the wrong order; the older one changes nothing.
    pub fn now(&mut self, reading: Reading) -> Millis {
        self.advance(reading, CLOCK_DISORDER_MS);
        self.last.store_ms
    }

    /// Goes on from what another process has saved, if that is further: all that share a store have one time.
    pub fn catch_up(&mut self, saved: Saved, reading: Reading) {
        self.advance(reading, CLOCK_DISORDER_MS);
        let mut other = Self { last: saved, ..*self };
        // That process may have read its clock behind this one.
        other.advance(reading, CLOCK_DISORDER_MS);
        if other.last.store_ms > self.last.store_ms {
            self.last = other.last;
        }
    }

    /// What to keep in the store for the next opening.
    pub fn saved(&self) -> Saved {
        self.last
    }

    fn advance(&mut self, reading: Reading, disorder_ms: u64) {
        let last = self.last;
        let store_ms = match (last.boot, reading.boot) {
            (Some(then), Some(now)) if then.id == now.id && now.ms >= then.ms => {
                last.store_ms.plus(Millis(now.ms - then.ms))
            }
            (Some(then), Some(now)) if then.id == now.id && then.ms - now.ms <= disorder_ms => return,
            (_, Some(_)) => {
                let gap_ms = reading.wall_ms.saturating_sub(last.wall_ms).min(self.gap_max_ms);
                last.store_ms.plus(Millis(gap_ms))
            }
            (_, None) => last.store_ms.max(Millis(reading.wall_ms)),
        };
        self.last = Saved { store_ms, wall_ms: reading.wall_ms, boot: reading.boot };
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (here, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*here)
}

fn checksum(body: &[u8]) -> [u8; CHECK_LEN] {
    first_bytes(SAVED.hasher().update(body))
}

const VERSION: u8 = 1;
const CHECK_LEN: usize = 8;

static SAVED: Domain = Domain::new("keyclaim saved store time 1");

#[cfg(test)]
mod tests;

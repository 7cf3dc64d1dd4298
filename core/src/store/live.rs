//! The claims that live in this process: who they are, and until when the store renews them.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{Millis, Token};

/// A live claim's place: the encoded id and the token.
pub(crate) type Place = (Vec<u8>, Token);

#[derive(Default)]
pub(super) struct Live {
    claims: Mutex<HashMap<Place, Entry>>,
}

struct Entry {
    /// How many claim objects hold this token: asking again for a win makes another one.
    held: usize,
    /// The store renews no longer than this.
    renew_until_ms: Millis,
    /// Told fenced: nothing is left to renew.
    is_lost: bool,
}

impl Live {
    /// Takes in a claim; true if it was not there and its renewals are to be planned.
    pub(super) fn join(&self, place: Place, renew_until_ms: Millis) -> bool {
        let mut claims = self.claims.lock();
        let is_new = !claims.contains_key(&place);
        let entry = claims.entry(place).or_insert(Entry { held: 0, renew_until_ms, is_lost: false });
        entry.held += 1;
        entry.renew_until_ms = entry.renew_until_ms.max(renew_until_ms);
        is_new
    }

    /// One claim object less.
    pub(super) fn leave(&self, place: &Place) {
        let mut claims = self.claims.lock();
        if let Some(entry) = claims.get_mut(place) {
            entry.held = entry.held.saturating_sub(1);
            if entry.held == 0 {
                claims.remove(place);
            }
        }
    }

    /// Whether the owner with this token is a claim object of this process.
    pub(super) fn lives(&self, place: &Place) -> bool {
        self.claims.lock().contains_key(place)
    }

    /// The claim was overtaken or has ended: no more renewals.
    pub(super) fn lose(&self, place: &Place) {
        if let Some(entry) = self.claims.lock().get_mut(place) {
            entry.is_lost = true;
        }
    }

    pub(super) fn is_lost(&self, place: &Place) -> bool {
        self.claims.lock().get(place).is_none_or(|entry| entry.is_lost)
    }

    /// Whether the store should renew this claim now.
    pub(super) fn wants_renewal(&self, place: &Place, now_ms: Millis) -> bool {
        self.claims.lock().get(place).is_some_and(|entry| !entry.is_lost && now_ms < entry.renew_until_ms)
    }

    pub(super) fn len(&self) -> usize {
        self.claims.lock().len()
    }
}

/// How often a claim with this lease is renewed: a third of it, so that two renewals may be late.
pub(super) fn renew_every(lease_ms: Millis) -> Duration {
    Duration::from_millis((lease_ms.0 / 3).max(1))
}

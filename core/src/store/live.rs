//! The claims that live in this process: who they are, and until when the store renews them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::wait::Bell;
use crate::{Millis, Token};

/// A live claim's place: the encoded id and the token.
pub(crate) type Place = (Vec<u8>, Token);

#[derive(Default)]
pub(super) struct Live {
    claims: Mutex<HashMap<Place, Entry>>,
}

#[derive(Default)]
struct Entry {
    /// How many claim objects hold this token: asking again for a win makes another one.
    held: usize,
    /// The store renews no longer than this.
    renew_until_ms: Millis,
    /// Which plan of renewals is the current one: a new lease length makes a new plan.
    plan: u64,
    /// The owner has said its last word: nothing is left to renew.
    is_over: bool,
    /// Told fenced: nothing is left to renew, and the key is another's.
    is_lost: bool,
    /// Won in a transaction that was given up. Another process may be given the same token for the same key, so the
    /// record cannot tell that it is not this one's.
    is_void: bool,
    /// Who wants to know as soon as it is lost.
    bells: Vec<Weak<Bell>>,
}

impl Live {
    /// Takes in a claim.
    pub(super) fn join(&self, place: Place) {
        let mut claims = self.claims.lock();
        let entry = claims.entry(place).or_default();
        entry.held += 1;
        // It was won just now, whatever an owner before had said or was told.
        (entry.is_over, entry.is_lost, entry.is_void) = (false, false, false);
    }

    /// Plans renewals until then, in place of those planned before. None if the claim is gone.
    pub(super) fn plan(&self, place: &Place, renew_until_ms: Millis) -> Option<u64> {
        let mut claims = self.claims.lock();
        let entry = claims.get_mut(place)?;
        entry.plan += 1;
        entry.renew_until_ms = entry.renew_until_ms.max(renew_until_ms);
        Some(entry.plan)
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
        self.claims.lock().get(place).is_some_and(|entry| !entry.is_void)
    }

    /// It never was a claim: the transaction it was won in is given up.
    pub(super) fn void(&self, place: &Place) {
        if let Some(entry) = self.claims.lock().get_mut(place) {
            entry.is_void = true;
        }
    }

    pub(super) fn is_void(&self, place: &Place) -> bool {
        self.claims.lock().get(place).is_some_and(|entry| entry.is_void)
    }

    /// The claim has ended: no more renewals.
    pub(super) fn end(&self, place: &Place) {
        if let Some(entry) = self.claims.lock().get_mut(place) {
            entry.is_over = true;
        }
    }

    /// Whether the claim has ended.
    pub(super) fn is_over(&self, place: &Place) -> bool {
        self.claims.lock().get(place).is_none_or(|entry| entry.is_over)
    }

    /// The claim was overtaken: no more renewals. Whether that is news; not if its claim object is gone.
    pub(super) fn lose(&self, place: &Place) -> bool {
        let (was_lost, bells) = match self.claims.lock().get_mut(place) {
            Some(entry) => (std::mem::replace(&mut entry.is_lost, true), std::mem::take(&mut entry.bells)),
            None => return false,
        };
        // Rung without the lock: whoever is woken may run anything.
        for bell in bells.iter().filter_map(Weak::upgrade) {
            bell.ring();
        }
        !was_lost
    }

    /// A bell that rings when the claim is lost. Ask afterwards whether it was lost before.
    pub(super) fn watch(&self, place: &Place) -> Arc<Bell> {
        let bell = Arc::new(Bell::default());
        if let Some(entry) = self.claims.lock().get_mut(place) {
            entry.bells.retain(|bell| bell.strong_count() > 0);
            entry.bells.push(Arc::downgrade(&bell));
        }
        bell
    }

    pub(super) fn is_lost(&self, place: &Place) -> bool {
        self.claims.lock().get(place).is_none_or(|entry| entry.is_lost)
    }

    /// Whether the store should renew this claim now, by this plan.
    pub(super) fn wants_renewal(&self, place: &Place, plan: u64, now_ms: Millis) -> bool {
        self.claims.lock().get(place).is_some_and(|entry| {
            entry.plan == plan && !entry.is_over && !entry.is_lost && now_ms < entry.renew_until_ms
        })
    }

    pub(super) fn len(&self) -> usize {
        self.claims.lock().len()
    }
}

/// How often a claim with this lease is renewed: a third of it, so that two renewals may be late.
pub(super) fn renew_every(lease_ms: Millis) -> Duration {
    Duration::from_millis((lease_ms.0 / 3).max(1))
}

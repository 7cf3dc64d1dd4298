//! What the workload does next: drawn from a seed and from what was told so far, and nothing else.

use keyclaim::{Millis, Nonce};

use super::drive::Driver;
use super::look::KEYS;
use super::world::{Stands, Told};

/// One thing to do. Asked again after `Unknown`, the same value is the same command.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// Claims a key; `writes` numbers what commits with it.
    Claim { key: u64, nonce: Nonce, writes: Option<u64> },
    /// Claims with a condition that does not hold.
    Conflict { key: u64 },
    /// Begins the next step, or meets one that was recorded.
    Begin { key: u64, step: String },
    /// Ends the open step.
    Finish { key: u64, number: u64 },
    /// Records a recovery point, with writes.
    Checkpoint { key: u64, number: u64 },
    /// Records the outcome; with writes if it says so.
    Complete { key: u64, number: u64, writes: bool },
    /// Ends the attempt so.
    Release { key: u64 },
    /// Ends the attempt so.
    Abandon { key: u64 },
    /// Ends the attempt so.
    Hold { key: u64 },
    /// Lets the lease run anew.
    Renew { key: u64 },
    /// Resolves a held key: 0 as absent, 1 as complete, 2 as resumable.
    Resolve { key: u64, how: u64, number: u64 },
    /// Writes a row of the application by itself.
    Write { number: u64 },
    /// Claims, writes and completes in one transaction.
    Transaction { key: u64, nonce: Nonce, number: u64 },
    /// Several commands on different keys, decided in one commit.
    Group(Vec<Action>),
    /// Leases events.
    Lease,
    /// Ends the delivery that was leased first: published, or failed.
    End { is_published: bool },
    /// Removes what is past its horizon.
    Reap,
    /// Closes the store and opens it again.
    Reopen,
    /// Lets time pass.
    Pass(u64),
    /// Says something by an owner that was overtaken.
    Stale,
}

/// Which workload: what cannot be told apart when it is asked again is left out where faults happen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Workload {
    Whole,
    Retried,
}

impl Driver {
    /// What to do next.
    pub(super) fn choose(&mut self, workload: Workload) -> Action {
        let key = self.draws.below(KEYS);
        let is_whole = workload == Workload::Whole;
        match self.draws.below(30) {
            0 => Action::Write { number: self.number() },
            1 => Action::Lease,
            2 | 3 if !self.leased.is_empty() => Action::End { is_published: self.draws.below(4) > 0 },
            4 => Action::Reap,
            5 if is_whole => Action::Reopen,
            6 => Action::Pass([1_000, 11_000, 101_000, 301_000][self.below(4)]),
            7 => Action::Stale,
            8 | 9 if is_whole => self.group(),
            10 | 11 if self.is_free(key) => {
                Action::Transaction { key, nonce: self.nonce(), number: self.number() }
            }
            12 if self.is_free(key) && self.world.rows.contains_key(&super::look::name(key)) => {
                Action::Conflict { key }
            }
            _ => self.on_key(key, is_whole),
        }
    }

    /// What somebody may do about this key, as it was told to stand.
    fn on_key(&mut self, key: u64, is_whole: bool) -> Action {
        let told = self.world.told(key, self.now_ms()).cloned();
        match told {
            // Somebody else, while its owner still believes that it owns the key.
            Some(Told { stands: Stands::InFlight { lease_until_ms: Some(until_ms), .. }, .. })
                if self.now_ms() >= until_ms && self.draws.below(2) == 0 =>
            {
                let writes = (self.draws.below(2) == 0).then(|| self.number());
                Action::Claim { key, nonce: self.nonce(), writes }
            }
            Some(told @ Told { stands: Stands::InFlight { .. }, .. }) if self.owns(key) => {
                self.own_act(key, &told)
            }
            // Its own caller asks again, also one whose process died.
            Some(Told { stands: Stands::InFlight { nonce: Some(nonce), .. }, .. })
                if self.draws.below(3) > 0 =>
            {
                Action::Claim { key, nonce, writes: None }
            }
            Some(Told { stands: Stands::Held, .. }) if is_whole => {
                Action::Resolve { key, how: self.draws.below(3), number: self.number() }
            }
            // Whoever takes over brings the same writes along, as any handler does.
            Some(Told { stands: Stands::InFlight { .. } | Stands::Held, .. }) => {
                let writes = (self.draws.below(2) == 0).then(|| self.number());
                Action::Claim { key, nonce: self.nonce(), writes }
            }
            Some(Told { stands: Stands::Complete { .. }, .. }) | None => {
                let writes = (self.is_free(key) && self.draws.below(2) == 0).then(|| self.number());
                Action::Claim { key, nonce: self.nonce(), writes }
            }
        }
    }

    fn own_act(&mut self, key: u64, told: &Told) -> Action {
        if self.is_open(key) {
            let number = self.number();
            let is_given_up = self.draws.below(6) == 0;
            return if is_given_up { Action::Abandon { key } } else { Action::Finish { key, number } };
        }
        if let Some((step, _)) = told.steps.get(self.met(key)) {
            return Action::Begin { key, step: step.clone() };
        }
        let number = self.number();
        match self.draws.below(14) {
            0..=3 if told.steps.len() < 4 => {
                Action::Begin { key, step: format!("step-{}", told.steps.len()) }
            }
            4 | 5 => Action::Checkpoint { key, number },
            6 if self.is_clean(key) => Action::Release { key },
            7 => Action::Abandon { key },
            8 => Action::Hold { key },
            9 => Action::Renew { key },
            choice => Action::Complete { key, number, writes: choice % 2 == 0 },
        }
    }

    /// Claims of new keys and outcomes of owned ones, up to three.
    fn group(&mut self) -> Action {
        let mut actions = Vec::new();
        for key in 0..KEYS {
            let told = self.world.told(key, self.now_ms()).cloned();
            let may_complete = told.as_ref().is_some_and(|told| {
                matches!(told.stands, Stands::InFlight { .. })
                    && self.owns(key)
                    && self.met(key) == told.steps.len()
                    && !self.is_open(key)
            });
            if self.is_free(key) {
                let writes = (self.draws.below(2) == 0).then(|| self.number());
                actions.push(Action::Claim { key, nonce: self.nonce(), writes });
            } else if may_complete {
                actions.push(Action::Complete { key, number: self.number(), writes: true });
            }
            if actions.len() == 3 {
                break;
            }
        }
        Action::Group(actions)
    }

    /// Whether a claim of this key begins a new intent.
    fn is_free(&self, key: u64) -> bool {
        let now_ms: Millis = self.now_ms();
        match self.world.told(key, now_ms) {
            None => true,
            Some(told) => {
                matches!(told.stands, Stands::Complete { window_until_ms, .. } if now_ms >= window_until_ms)
            }
        }
    }

    fn nonce(&mut self) -> Nonce {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.number().to_be_bytes());
        bytes[8..].copy_from_slice(&self.draws.below(u64::MAX).to_be_bytes());
        Nonce(bytes)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.draws.below(end as u64)).unwrap_or_default()
    }
}

//! The model: what the store has told, and so must still say after any crash. It knows no rule of the store's
//! beyond what the answers and the public documentation say, and calls nothing of the machine.

use std::collections::{BTreeMap, BTreeSet};

use keyclaim::{Generation, Millis, Nonce, Token};

/// All that was acknowledged.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct World {
    pub(super) keys: BTreeMap<u64, Told>,
    /// The application's rows, of one table.
    pub(super) rows: BTreeMap<String, Bytes>,
    /// A table of the caller's own in the engine.
    pub(super) own: BTreeMap<u64, u64>,
    /// Events that were emitted and not yet said to be published, by payload.
    pub(super) events: BTreeSet<String>,
    /// The highest token that anybody was told.
    pub(super) token: u64,
}

/// What was told of a key that is not new.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Told {
    pub(super) generation: Generation,
    pub(super) token: Token,
    pub(super) attempt: u32,
    /// Whether a claim's own writes were applied in this generation: they are once.
    pub(super) wrote: bool,
    pub(super) steps: Vec<(String, StepTold)>,
    pub(super) point: Option<(String, Vec<u8>)>,
    pub(super) stands: Stands,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum StepTold {
    Begun,
    Done(Vec<u8>),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Stands {
    InFlight {
        /// None once the attempt was ended by command.
        nonce: Option<Nonce>,
        /// None if nobody was told.
        lease_until_ms: Option<Millis>,
    },
    Held,
    Complete {
        body: Bytes,
        completed_ms: Millis,
        window_until_ms: Millis,
        horizon_until_ms: Millis,
    },
}

/// What one command changes: all of it or nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Delta {
    pub(super) key: Option<(u64, Option<Told>)>,
    pub(super) rows: Vec<(String, Bytes)>,
    pub(super) own: Option<(u64, u64)>,
    pub(super) emitted: Option<String>,
    pub(super) published: Vec<String>,
    /// Finished records that a pass of the reaper has removed.
    pub(super) reaped: Vec<u64>,
    pub(super) token: u64,
}

impl World {
    pub(super) fn apply(&mut self, delta: &Delta) {
        match &delta.key {
            Some((key, Some(told))) => drop(self.keys.insert(*key, told.clone())),
            Some((key, None)) => drop(self.keys.remove(key)),
            None => {}
        }
        self.rows.extend(delta.rows.iter().cloned());
        self.own.extend(delta.own);
        self.events.extend(delta.emitted.clone());
        self.events.retain(|payload| !delta.published.contains(payload));
        delta.reaped.iter().for_each(|key| drop(self.keys.remove(key)));
        self.token = self.token.max(delta.token);
    }

    /// What may be found after a crash in the middle of these commands: each of them wholly there or not.
    pub(super) fn in_doubt(&self, deltas: &[Delta]) -> Vec<Self> {
        let mut worlds = vec![self.clone()];
        for delta in deltas {
            let mut with = worlds.clone();
            for world in &mut with {
                world.apply(delta);
            }
            worlds.extend(with);
        }
        worlds
    }

    /// What is known of this key now: a finished one past its horizon is new.
    pub(super) fn told(&self, key: u64, now_ms: Millis) -> Option<&Told> {
        self.keys.get(&key).filter(|told| !told.is_past(now_ms))
    }

    /// The same with what became of all of these commands.
    pub(super) fn after(&self, deltas: &[Delta]) -> Self {
        let mut world = self.clone();
        for delta in deltas {
            world.apply(delta);
        }
        world
    }
}

impl Told {
    pub(super) fn is_past(&self, now_ms: Millis) -> bool {
        matches!(self.stands, Stands::Complete { horizon_until_ms, .. } if now_ms >= horizon_until_ms)
    }
}

impl Delta {
    pub(super) fn of_key(key: u64, told: Option<Told>) -> Self {
        let token = told.as_ref().map_or(0, |told| told.token.0);
        Self { key: Some((key, told)), token, ..Self::default() }
    }
}

/// Bytes that are compared in full and shown in short.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let start = self.0.get(..40.min(self.0.len())).unwrap_or_default();
        write!(f, "{} bytes {}..", self.0.len(), start.escape_ascii())
    }
}

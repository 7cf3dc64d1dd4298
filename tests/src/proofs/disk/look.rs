//! What a store that was opened after a crash says, held against what it may say.

use std::collections::{BTreeMap, BTreeSet};

use keyclaim::machine::{Decision, WonKind};
use keyclaim::outbox::{Ending, RelayOptions};
use keyclaim::store::redb::{ReadableTable, TableDefinition};
use keyclaim::store::{Standing, StepStanding};
use keyclaim::{Error, Generation, Millis, Reap, Store, Token, transaction_error};

use super::world::{Bytes, Delta, Stands, StepTold, Told, World};
use crate::request::{id, request};

pub(super) const OWN: TableDefinition<u64, u64> = TableDefinition::new("balances");
pub(super) const TABLE: &str = "ledger";
/// How many keys there are.
pub(super) const KEYS: u64 = 6;

/// All that can be seen without changing anything.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Seen {
    keys: BTreeMap<u64, KeySeen>,
    rows: BTreeMap<String, Bytes>,
    own: BTreeMap<u64, u64>,
    events: u64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct KeySeen {
    generation: Generation,
    token: Token,
    attempt: u32,
    steps: Vec<(String, bool)>,
    point: Option<String>,
    stands: StandsSeen,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum StandsSeen {
    InFlight(Option<Millis>),
    Held,
    /// The body is seen within the replay window only.
    Complete(Millis, Millis, Option<Bytes>),
}

pub(super) fn name(key: u64) -> String {
    format!("key-{key}")
}

impl Seen {
    /// Looks, without writing anything.
    pub(super) fn of(store: &Store) -> Result<Self, Error> {
        let mut seen = Self { events: store.outbox()?.events, ..Self::default() };
        for key in 0..KEYS {
            if let Some(key_seen) = see_key(store, key)? {
                seen.keys.insert(key, key_seen);
            }
        }
        for (key, row) in store.app_rows(TABLE, None, 1_000)?.rows {
            seen.rows.insert(String::from_utf8_lossy(&key).into_owned(), Bytes(row.value));
        }
        store.view::<_, Error>(|view| {
            let Some(table) = view.open_table(OWN)? else { return Ok(()) };
            for row in table.iter().map_err(transaction_error)? {
                let (key, value) = row.map_err(transaction_error)?;
                seen.own.insert(key.value(), value.value());
            }
            Ok(())
        })?;
        Ok(seen)
    }

    /// The worlds among these that show this; else what differs from the last one.
    pub(super) fn find<'w>(&self, worlds: &'w [World], now_ms: Millis) -> Result<Vec<&'w World>, String> {
        let mut differs = "no world is possible".to_owned();
        let mut found = Vec::new();
        for world in worlds {
            match self.is_of(world, now_ms) {
                Ok(()) => found.push(world),
                Err(what) => differs = what,
            }
        }
        if found.is_empty() { Err(format!("{differs} (of {} possible)", worlds.len())) } else { Ok(found) }
    }

    /// These changes as this shows them: in another course of events what was in doubt has another token,
    /// unless that was told before.
    pub(super) fn as_shown(&self, world: &World, deltas: &[Delta]) -> Vec<Delta> {
        let mut deltas = deltas.to_vec();
        for delta in &mut deltas {
            let Some((key, Some(told))) = &mut delta.key else { continue };
            let Some(seen) = self.keys.get(key).filter(|seen| seen.token.0 > world.token) else { continue };
            if told.token.0 > world.token {
                if told.generation.0 == told.token.0 {
                    told.generation = Generation(seen.token.0);
                }
                told.token = seen.token;
            }
        }
        deltas
    }

    fn is_of(&self, world: &World, now_ms: Millis) -> Result<(), String> {
        for key in 0..KEYS {
            let expected = world.told(key, now_ms).map(|told| KeySeen::expected(told, now_ms));
            let mut seen = self.keys.get(&key).cloned();
            if let (Some(KeySeen { stands: StandsSeen::InFlight(lease), .. }), Some(expected)) =
                (&mut seen, &expected)
                && expected.stands == StandsSeen::InFlight(None)
            {
                *lease = None;
            }
            same(&name(key), &seen, &expected)?;
        }
        same("the application's rows", &self.rows, &world.rows)?;
        same("the caller's own table", &self.own, &world.own)?;
        same("the number of events", &self.events, &(world.events.len() as u64))
    }
}

impl KeySeen {
    fn expected(told: &Told, now_ms: Millis) -> Self {
        let steps = told.steps.iter().map(|(name, step)| (name.clone(), matches!(step, StepTold::Done(_))));
        let stands = match &told.stands {
            Stands::InFlight { lease_until_ms, .. } => StandsSeen::InFlight(*lease_until_ms),
            Stands::Held => StandsSeen::Held,
            Stands::Complete { body, completed_ms, window_until_ms, .. } => StandsSeen::Complete(
                *completed_ms,
                *window_until_ms,
                (now_ms < *window_until_ms).then(|| body.clone()),
            ),
        };
        Self {
            generation: told.generation,
            token: told.token,
            attempt: told.attempt,
            steps: steps.collect(),
            point: told.point.as_ref().map(|(name, _)| name.clone()),
            stands,
        }
    }
}

fn see_key(store: &Store, key: u64) -> Result<Option<KeySeen>, Error> {
    let Some(found) = store.inspect(&id(&name(key)))? else { return Ok(None) };
    let stands = match found.standing {
        Standing::InFlight { lease_until_ms } => StandsSeen::InFlight(lease_until_ms),
        Standing::Complete { completed_ms, window_until_ms, .. } => {
            let is_answered = found.now_ms < window_until_ms;
            let body = if is_answered { Some(replayed(store, key)?) } else { None };
            StandsSeen::Complete(completed_ms, window_until_ms, body)
        }
        // Held: there are no others.
        _ => StandsSeen::Held,
    };
    let steps = found.steps.into_iter().map(|(name, step)| (name, step == StepStanding::Done));
    let (generation, token, attempt, point) = (found.generation, found.token, found.attempt, found.point);
    Ok(Some(KeySeen { generation, token, attempt, steps: steps.collect(), point, stands }))
}

/// Status, headers and body in one piece, as a claim is answered them.
fn replayed(store: &Store, key: u64) -> Result<Bytes, Error> {
    Ok(match store.claim(&request(&name(key)))? {
        Decision::Replay(replay) => answer_bytes(&replay.response),
        other => Bytes(format!("no replay but {}", other.name()).into_bytes()),
    })
}

/// A response as bytes, none of it left out.
pub(super) fn answer_bytes(response: &keyclaim::machine::Response) -> Bytes {
    let mut bytes = response.status.to_be_bytes().to_vec();
    for (name, value) in &response.headers {
        bytes.extend([&name.0[..], b": ", &value.0, b"\n"].concat());
    }
    bytes.extend(response.body.bytes().unwrap_or(b"no body"));
    Bytes(bytes)
}

fn same<T: Eq + std::fmt::Debug>(what: &str, seen: &T, expected: &T) -> Result<(), String> {
    if seen == expected {
        return Ok(());
    }
    let short = |text: String| text.chars().take(400).collect::<String>();
    let (seen, expected) = (short(format!("{seen:?}")), short(format!("{expected:?}")));
    Err(format!("{what}: found {seen}, expected {expected}"))
}

/// Asks what only asking shows, and so changes the store: the owners go on, stale ones do not, tokens rise, every
/// event is delivered in its order, and each row is in the due index.
pub(super) fn probe(
    store: &Store,
    worlds: &[&World],
    stale: &[(u64, Token)],
    advance: impl FnOnce(),
) -> Result<(), String> {
    let failed = |error: Error| format!("asking failed: {error}");
    let now_ms = store.now_ms();
    // The one that was acknowledged comes first.
    let Some((world, others)) = worlds.split_first() else { return Ok(()) };
    for (key, token) in stale {
        // Only a repeat is told the old token; nobody may be told that it owns the key by it.
        if world.told(*key, now_ms).is_some_and(|told| told.token == *token) {
            continue;
        }
        if let Some(Told { stands: Stands::InFlight { lease_until_ms: Some(until_ms), .. }, .. }) =
            world.told(*key, now_ms)
            && now_ms < *until_ms
        {
            let told = store.claim(&request(&name(*key)).token(*token)).map_err(failed)?;
            let is_in_flight = matches!(told, Decision::InFlight { .. });
            same(&format!("stale token {token} of {}", name(*key)), &is_in_flight, &true)?;
        }
    }
    for key in 0..KEYS {
        let Some(told) = world.told(key, now_ms) else { continue };
        let Stands::InFlight { nonce: Some(nonce), .. } = told.stands else { continue };
        // Two worlds can look the same from outside.
        if others.iter().any(|other| other.keys.get(&key) != Some(told)) {
            continue;
        }
        let Decision::Won(claim) = store.claim(&request(&name(key)).nonce(nonce)).map_err(failed)? else {
            return Err(format!("{}: asked again with its nonce, its owner is refused", name(key)));
        };
        same("how it was won", &claim.kind(), &WonKind::Again)?;
        same("the owner's token", &claim.token(), &told.token)?;
        let point = claim.point().map(|point| (point.name.clone(), point.data.0.clone()));
        same("the recovery point", &point, &told.point)?;
        let results: Vec<_> = claim.steps().iter().map(result).collect();
        let expected: Vec<_> = told.steps.iter().map(|(_, step)| step.clone()).collect();
        same("the results of the steps", &results, &expected)?;
    }
    let Decision::Won(claim) = store.claim(&request("a new key")).map_err(failed)? else {
        return Err("a new key cannot be won".to_owned());
    };
    if claim.token().0 <= world.token {
        return Err(format!("token {} is issued although {} was told", claim.token(), world.token));
    }
    claim.release().map_err(failed)?;
    drop(claim);
    advance();
    drain(store, world)?;
    let reaped = store.reap(&Reap::new()).map_err(failed)?;
    let stored = |world: &World| {
        let is_finished = |told: &&Told| matches!(told.stands, Stands::Complete { .. });
        let finished = world.keys.values().filter(is_finished).count();
        (finished as u64, (world.keys.len() - finished) as u64)
    };
    let found = (reaped.removed, reaped.unfinished_reported);
    if !worlds.iter().any(|world| stored(world) == found) {
        let expected = stored(world);
        return Err(format!("the due index has {found:?} finished and unfinished records, not {expected:?}"));
    }
    same("wrong entries of the due index", &(reaped.reindexed + reaped.damaged + reaped.failed), &0)
}

/// Delivers all events, once their leases are over.
fn drain(store: &Store, world: &World) -> Result<(), String> {
    let failed = |error: Error| format!("draining the outbox failed: {error}");
    let options = RelayOptions::new();
    let mut delivered: Vec<String> = Vec::new();
    // Bounded: each round publishes one event or more.
    for _ in 0..=world.events.len() {
        let leased = store.outbox_lease(256, &options).map_err(failed)?;
        delivered.extend(leased.iter().map(|d| String::from_utf8_lossy(d.event.payload()).into_owned()));
        let ends: Vec<_> = leased.iter().map(|delivery| (delivery, Ending::Published)).collect();
        if ends.is_empty() {
            break;
        }
        for settled in store.outbox_end(&ends, &options).map_err(failed)? {
            settled.map_err(failed)?;
        }
    }
    let set: BTreeSet<String> = delivered.iter().cloned().collect();
    same("events delivered", &set, &world.events)?;
    same("deliveries", &delivered.len(), &world.events.len())?;
    // Payloads of one key are numbered upwards, and those with an ordering key come in that order.
    for key in 0..KEYS {
        let ordered = format!("ordered-{key}-");
        let numbers: Vec<&String> =
            delivered.iter().filter(|payload| payload.starts_with(&ordered)).collect();
        same("the order of events", &numbers.is_sorted(), &true)?;
    }
    Ok(())
}

fn result(step: &keyclaim::machine::Step) -> StepTold {
    match &step.progress {
        keyclaim::machine::StepProgress::Begun { .. } => StepTold::Begun,
        keyclaim::machine::StepProgress::Done(bytes) | keyclaim::machine::StepProgress::Refused(bytes) => {
            StepTold::Done(bytes.0.clone())
        }
    }
}

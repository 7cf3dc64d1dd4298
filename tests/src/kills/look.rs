//! The parent's own look at what a killed child has left, key by key.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use keyclaim::machine::Decision;
use keyclaim::outbox::{Delivery, PublishError, RelayOptions};
use keyclaim::store::redb::ReadableTable;
use keyclaim::store::{Inspection, Standing, StepStanding};
use keyclaim::{Error, ErrorKind, Options, Store, transaction_error};

use super::child::{BALANCES, MOVES, number};
use super::ledger::{Ledger, owner};
use super::script::{self, CLAIMED, COUNTERS, COUNTERS_LEN, DONE, Kind, POINTED};
use crate::request::id;
use crate::seeded::Draws;

/// Keys of long ago that are looked at again each time (arbitrary).
const OLD_KEYS: u64 = 60;

/// Opens the file and holds it against the ledger. Returns how many keys were looked at; `all` also has every
/// page verified.
pub(super) fn at(path: &Path, ledger: &mut Ledger, all: bool, draws: &mut Draws) -> Result<u64, String> {
    let options = Options::with_policy(script::policy(Kind::Long)).verify_on_open(all);
    let store = Store::open(path, options).map_err(|error| format!("it does not open: {error:?}"))?;
    let mut look = Look { store, ledger };
    let mut keys = look.ledger.take_fresh(all);
    let old = look.ledger.keys();
    for _ in 0..OLD_KEYS {
        let at = usize::try_from(draws.below(old.len() as u64)).unwrap_or_default();
        keys.extend(old.get(at));
    }
    for key in &keys {
        look.key(*key)?;
    }
    for counter in 0..COUNTERS_LEN {
        look.counter(counter)?;
    }
    look.movements()?;
    if all {
        look.events(&keys)?;
    }
    look.store.close().map_err(|error| format!("it does not close: {error:?}"))?;
    Ok(keys.len() as u64)
}

struct Look<'a> {
    store: Store,
    ledger: &'a mut Ledger,
}

impl Look<'_> {
    fn key(&mut self, key: u64) -> Result<(), String> {
        let name = script::name(key);
        let found = self.store.inspect(&id(&name)).map_err(|error| told(&error))?;
        if let Some(found) = &found {
            self.ledger.seen(found.token.0, &owner(key))?;
        }
        let row = |table: &str| {
            let row = self.store.app_row(table, name.as_bytes()).map_err(|error| told(&error))?;
            Ok::<_, String>(row.map(|row| String::from_utf8_lossy(&row.value).into_owned()))
        };
        let rows = Rows { claimed: row(CLAIMED)?, pointed: row(POINTED)?, done: row(DONE)? };
        self.is_whole(key, found.as_ref(), &rows)?;
        self.is_acknowledged(key, found.as_ref(), &rows)?;
        if Kind::of(key).stays()
            && let Some(Inspection { standing: Standing::Complete { .. }, token, .. }) = found
        {
            self.is_replayed(key, token.0)?;
        }
        Ok(())
    }

    /// Record and rows are of the same commits, acknowledged or not.
    fn is_whole(&self, key: u64, found: Option<&Inspection>, rows: &Rows) -> Result<(), String> {
        let half = |what: &str| Err(format!("half of key {key}: {what}; {found:?}, {rows:?}"));
        let kind = Kind::of(key);
        let completed = found
            .filter(|found| matches!(found.standing, Standing::Complete { .. }))
            .map(|found| found.token.0.to_string());
        if completed.is_some() && rows.done != completed {
            return half("an outcome without its row");
        }
        if !kind.stays() {
            return Ok(());
        }
        if rows.done != completed {
            return half("a row without its outcome");
        }
        // A record that is complete keeps neither point nor steps.
        if completed.is_none() && found.is_some_and(|found| found.point != rows.pointed) {
            return half("point and row differ");
        }
        if kind != Kind::Moved && found.is_some() != rows.claimed.is_some() {
            return half("a claim and its row do not come together");
        }
        if found.is_none() && (rows.done.is_some() || rows.pointed.is_some()) {
            return half("rows without a claim");
        }
        let known = self.ledger.known(key);
        if let (Some(name), Some(known)) = (&rows.claimed, known)
            && !known.attempt_names.contains(name)
        {
            return half("the claim's row is nobody's");
        }
        Ok(())
    }

    /// All that was acknowledged is there.
    fn is_acknowledged(&self, key: u64, found: Option<&Inspection>, rows: &Rows) -> Result<(), String> {
        let Some(known) = self.ledger.known(key) else { return Ok(()) };
        let lost = |what: &str| Err(format!("lost of key {key}: {what}; {found:?}, {rows:?}, {known:?}"));
        if !Kind::of(key).stays() {
            return Ok(());
        }
        let Some(found) = found else {
            let is_known = !known.wins.is_empty() || known.done.is_some();
            return if is_known { lost("its record") } else { Ok(()) };
        };
        if known.wins.keys().next_back().is_some_and(|token| found.token.0 < *token) {
            return lost("a win");
        }
        if let Some(done) = known.done
            && (found.token.0 != done || !matches!(found.standing, Standing::Complete { .. }))
        {
            return lost("its outcome");
        }
        if known.held && !matches!(found.standing, Standing::Held { .. }) {
            return lost("that it is held");
        }
        if matches!(found.standing, Standing::Complete { .. }) {
            return Ok(());
        }
        known.check_point(key, found.point.as_deref())?;
        let has = |step: &String| found.steps.contains(&(step.clone(), StepStanding::Done));
        if known.steps.iter().any(|step| !has(step)) { lost("a step") } else { Ok(()) }
    }

    /// The replay is the bytes that this attempt completed with.
    fn is_replayed(&self, key: u64, token: u64) -> Result<(), String> {
        match self.store.claim(&script::ask(key)).map_err(|error| told(&error))? {
            Decision::Replay(replay) => {
                let bytes = replay.response.body.bytes().unwrap_or_default();
                let is_right = script::completer(key, bytes) == Some(token);
                if is_right {
                    Ok(())
                } else {
                    Err(format!("the replay of key {key} is not what {token} completed"))
                }
            }
            other => Err(format!("key {key} is complete and was told {}", other.name())),
        }
    }

    fn counter(&mut self, counter: u64) -> Result<(), String> {
        let row = self.store.app_row(COUNTERS, &counter.to_be_bytes()).map_err(|error| told(&error))?;
        let value = row.as_ref().map_or(0, |row| number(&row.value));
        let known = self.ledger.counter(counter);
        if value < known.acked || value > known.acked.saturating_add(known.open) {
            return Err(format!("counter {counter} is {value}; known is {known:?}"));
        }
        if let Some(row) = row {
            self.ledger.seen(row.version.0, &format!("counter {counter}"))?;
        }
        self.ledger.settle(counter, value);
        Ok(())
    }

    /// Each outcome has its event, and no event is without one: nothing was published before.
    fn events(&self, keys: &[u64]) -> Result<(), String> {
        let seen = RefCell::new(BTreeSet::new());
        let handler = |delivery: &Delivery| {
            let key = number(delivery.event.payload());
            if !seen.borrow_mut().insert(key) && Kind::of(key).stays() {
                return Err(PublishError::refused("twice"));
            }
            Ok(())
        };
        let relayed = self.store.relay_once(self.store.now_ms(), &RelayOptions::new(), handler);
        let relayed = relayed.map_err(|error| told(&error))?;
        if relayed.dead + relayed.damaged > 0 {
            return Err(format!("an event came twice or is damaged: {relayed:?}"));
        }
        for key in keys.iter().filter(|key| Kind::of(**key).stays() && Kind::of(**key) != Kind::Moved) {
            let found = self.store.inspect(&id(&script::name(*key))).map_err(|error| told(&error))?;
            let is_complete = found.is_some_and(|found| matches!(found.standing, Standing::Complete { .. }));
            if is_complete != seen.borrow().contains(key) {
                return Err(format!(
                    "half of key {key}: complete {is_complete}, and its event does not agree"
                ));
            }
        }
        Ok(())
    }

    /// What moved is in both accounts, and each movement has its outcome.
    fn movements(&self) -> Result<(), String> {
        let (balances, moves) = self
            .store
            .view(|v| {
                let mut balances = Vec::new();
                if let Some(table) = v.open_table(BALANCES)? {
                    for row in table.iter().map_err(transaction_error)? {
                        let (account, balance) = row.map_err(transaction_error)?;
                        balances.push((account.value(), balance.value()));
                    }
                }
                let mut moves = Vec::new();
                if let Some(table) = v.open_table(MOVES)? {
                    for row in table.iter().map_err(transaction_error)? {
                        let (key, amount) = row.map_err(transaction_error)?;
                        moves.push((key.value(), amount.value()));
                    }
                }
                Ok::<_, Error>((balances, moves))
            })
            .map_err(|error| told(&error))?;
        let mut expected = std::collections::BTreeMap::<u64, i64>::new();
        for (key, amount) in &moves {
            let (from, to, due) = script::movement(*key);
            if due != *amount {
                return Err(format!("key {key} moved {amount} and not {due}"));
            }
            *expected.entry(from).or_default() -= due;
            *expected.entry(to).or_default() += due;
            let row =
                self.store.app_row(DONE, script::name(*key).as_bytes()).map_err(|error| told(&error))?;
            if row.is_none() {
                return Err(format!("half of key {key}: money moved and no outcome is there"));
            }
        }
        if expected.into_iter().ne(balances.iter().copied()) {
            return Err(format!("the balances are not the sum of the movements: {balances:?}"));
        }
        let all: std::collections::HashSet<u64> = moves.iter().map(|(key, _)| *key).collect();
        let lost = self.ledger.keys().into_iter().find(|key| {
            let is_done = self.ledger.known(*key).is_some_and(|known| known.done.is_some());
            Kind::of(*key) == Kind::Moved && is_done && !all.contains(key)
        });
        lost.map_or(Ok(()), |key| Err(format!("lost: the movement of key {key}")))
    }
}

#[derive(Debug)]
struct Rows {
    claimed: Option<String>,
    pointed: Option<String>,
    done: Option<String>,
}

fn told(error: &Error) -> String {
    debug_assert_ne!(error.kind(), ErrorKind::Busy, "nobody else is here");
    format!("the store refuses: {error:?}")
}

//! The independent model: what was said, and what must therefore be there. It knows none of the store's code.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::line::Line;
use super::script::{self, Act, Kind};

/// What all the children of one file have said.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    keys: BTreeMap<u64, Known>,
    /// To whom each token and each version of a row was given.
    given: HashMap<u64, String>,
    /// All that earlier children were given, and what the file showed, is at most this.
    floor: u64,
    counters: HashMap<u64, Counter>,
    /// Keys that were spoken of since the last look.
    fresh: BTreeSet<u64>,
    acks: u64,
    takeovers: u64,
}

/// What was said of one key.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) wins: BTreeMap<u64, Win>,
    /// What the claims' own row may hold.
    pub(super) attempt_names: HashSet<String>,
    pub(super) done: Option<u64>,
    pub(super) held: bool,
    pub(super) steps: BTreeSet<String>,
    pub(super) point: Option<String>,
    replay: Option<(u64, u64)>,
}

/// One win.
#[derive(Debug)]
pub(super) struct Win {
    generation: u64,
    attempt: u32,
    until_ms: u64,
    /// Whether its owner may have given it up.
    let_go: bool,
}

/// What is known of a counter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counter {
    pub(super) acked: u64,
    /// Counts that were begun and not answered, or answered with a conflict.
    pub(super) open: u64,
}

/// The checksum of a body, as lines tell it.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

impl Ledger {
    pub(super) fn acks(&self) -> u64 {
        self.acks
    }

    pub(super) fn takeovers(&self) -> u64 {
        self.takeovers
    }

    /// What is known of a key.
    pub(super) fn known(&self, key: u64) -> Option<&Known> {
        self.keys.get(&key)
    }

    pub(super) fn counter(&self, counter: u64) -> Counter {
        self.counters.get(&counter).copied().unwrap_or_default()
    }

    /// The keys to look at: those spoken of since the last look, or all.
    pub(super) fn take_fresh(&mut self, all: bool) -> Vec<u64> {
        let fresh = std::mem::take(&mut self.fresh);
        if all { self.keys.keys().copied().collect() } else { fresh.into_iter().collect() }
    }

    /// The first key that nobody has spoken of.
    pub(super) fn next_key(&self) -> u64 {
        self.keys.keys().next_back().map_or(0, |key| key + 1)
    }

    /// The keys that were spoken of, in order.
    pub(super) fn keys(&self) -> Vec<u64> {
        self.keys.keys().copied().collect()
    }

    /// From now on every new token is above all that were given or seen.
    pub(super) fn end_of_child(&mut self) {
        self.floor = self.given.keys().copied().max().unwrap_or_default();
    }

    /// A token that the file shows, acknowledged or not.
    pub(super) fn seen(&mut self, token: u64, owner: &str) -> Result<(), String> {
        self.give(token, owner)?;
        self.floor = self.floor.max(token);
        Ok(())
    }

    /// The counter as the file shows it.
    pub(super) fn settle(&mut self, counter: u64, value: u64) {
        self.counters.insert(counter, Counter { acked: value, open: 0 });
    }

    fn give(&mut self, token: u64, owner: &str) -> Result<(), String> {
        match self.given.get(&token) {
            Some(other) if other != owner => {
                Err(format!("token {token} was given to {other} and to {owner}"))
            }
            _ => {
                self.given.insert(token, owner.to_owned());
                Ok(())
            }
        }
    }

    fn give_new(&mut self, token: u64, owner: &str) -> Result<(), String> {
        if token <= self.floor {
            return Err(format!(
                "token {token} of {owner} is not above {}, which was known before",
                self.floor
            ));
        }
        if let Some(other) = self.given.get(&token) {
            return Err(format!("token {token} was given to {other} and to {owner}"));
        }
        self.give(token, owner)
    }

    fn key(&mut self, key: u64) -> &mut Known {
        self.fresh.insert(key);
        self.keys.entry(key).or_default()
    }

    /// Takes one line in; what it contradicts is a violation.
    pub(super) fn hear(&mut self, text: &str) -> Result<(), String> {
        let line = Line::parse(text).ok_or_else(|| format!("no line: {text}"))?;
        self.take(line).map_err(|violation| format!("{violation} (heard: {text})"))
    }

    fn take(&mut self, line: Line) -> Result<(), String> {
        if !matches!(line, Line::Ready | Line::Trying { .. } | Line::LettingGo { .. } | Line::Counting { .. })
        {
            self.acks += 1;
        }
        match line {
            Line::Ready | Line::Reaped { .. } => {}
            Line::Trying { key, attempt_name } => {
                self.key(key).attempt_names.insert(attempt_name);
            }
            Line::LettingGo { key, token } => {
                if let Some(win) = self.key(key).wins.get_mut(&token) {
                    win.let_go = true;
                }
            }
            Line::Counting { counter } => self.counters.entry(counter).or_default().open += 1,
            Line::Won { key, token, generation, attempt, kind, until_ms, now_ms, point, steps, .. } => {
                self.give_new(token, &owner(key))?;
                self.takeovers += u64::from(kind == "Takeover");
                let win = Win { generation, attempt, until_ms, let_go: false };
                self.key(key).win(key, token, win, &kind, now_ms)?;
                self.key(key).handed(key, &point, &steps)?;
            }
            Line::Replayed { key, len, sum } => self.key(key).replayed(key, len, sum)?,
            Line::Stepped { key, name, .. } => {
                self.key(key).steps.insert(name);
            }
            Line::Pointed { key, name, .. } => self.key(key).pointed(key, name),
            Line::Renewed { key, token, until_ms } => {
                if let Some(win) = self.key(key).wins.get_mut(&token) {
                    win.until_ms = win.until_ms.max(until_ms);
                }
            }
            Line::Done { key, token, moved } => {
                if moved != 0 {
                    self.give_new(token, &owner(key))?;
                }
                let known = self.key(key);
                if Kind::of(key).stays() && known.done.is_some_and(|done| done != token) {
                    return Err(format!("key {key} was completed twice"));
                }
                known.done = Some(known.done.unwrap_or_default().max(token));
            }
            Line::Held { key, .. } => self.key(key).held = true,
            Line::Counted { counter, version, value } => {
                self.give_new(version, &format!("counter {counter}"))?;
                let counter = self.counters.entry(counter).or_default();
                // Others' lines may come late, but no value is reached twice.
                counter.acked = counter.acked.max(value);
            }
            Line::Wrong(what) => return Err(format!("a child was told what must not be: {what}")),
        }
        Ok(())
    }
}

pub(super) fn owner(key: u64) -> String {
    format!("key {key}")
}

impl Known {
    fn win(&mut self, key: u64, token: u64, win: Win, kind: &str, now_ms: u64) -> Result<(), String> {
        if let Some((before, last)) = self.wins.range(..token).next_back() {
            if kind == "Takeover" && last.generation == win.generation {
                if win.attempt <= last.attempt {
                    return Err(format!(
                        "attempt {} of key {key} follows attempt {}",
                        win.attempt, last.attempt
                    ));
                }
                if now_ms < last.until_ms && !last.let_go {
                    return Err(format!("key {key} was taken over before the lease of {before} was over"));
                }
            }
            if Kind::of(key).stays() && last.generation != win.generation {
                return Err(format!("key {key} was forgotten: a new generation after token {before}"));
            }
        }
        if Kind::of(key).stays()
            && let Some(done) = self.done
        {
            return Err(format!("key {key} was won again after {done} had completed it"));
        }
        if self.held {
            return Err(format!("key {key} was won although it is held"));
        }
        self.wins.insert(token, win);
        Ok(())
    }

    /// What a win hands out of earlier attempts holds all that was acknowledged.
    fn handed(&self, key: u64, point: &str, steps: &str) -> Result<(), String> {
        if !Kind::of(key).stays() {
            return Ok(());
        }
        self.check_point(key, Some(point).filter(|point| *point != "-"))?;
        let steps: BTreeSet<&str> = steps.split(',').collect();
        match self.steps.iter().find(|step| !steps.contains(step.as_str())) {
            Some(step) => Err(format!("step {step} of key {key} was acknowledged and is gone")),
            None => Ok(()),
        }
    }

    /// A recovery point goes forward only, and never behind one that was acknowledged.
    pub(super) fn check_point(&self, key: u64, found: Option<&str>) -> Result<(), String> {
        let place = |name: Option<&str>| {
            let name = name?;
            script::acts(key).iter().position(|act| *act == Act::Point(name.to_owned()))
        };
        if found.is_some() && place(found).is_none() {
            return Err(format!("key {key} has the point {found:?}, which nobody made"));
        }
        if place(found) < place(self.point.as_deref()) {
            return Err(format!("point {:?} of key {key} was acknowledged; there is {found:?}", self.point));
        }
        Ok(())
    }

    fn pointed(&mut self, key: u64, name: String) {
        if self.check_point(key, Some(&name)).is_ok() {
            self.point = Some(name);
        }
    }

    /// A replay is the body of an attempt that won, and for a key that stays always the same one.
    fn replayed(&mut self, key: u64, len: u64, sum: u64) -> Result<(), String> {
        if Kind::of(key).stays() {
            match self.replay {
                Some(before) if before != (len, sum) => {
                    return Err(format!("two replays of key {key} differ"));
                }
                _ => self.replay = Some((len, sum)),
            }
        }
        let is_of = |token: u64| {
            let body = script::body(key, token);
            (body.len() as u64, self::sum(&body)) == (len, sum)
        };
        // A movement's win is told together with its end, which may not have been said.
        let is_right = match (Kind::of(key), self.done) {
            (Kind::Moved, None) => true,
            (kind, Some(done)) if kind.stays() => is_of(done),
            _ => self.wins.keys().any(|token| is_of(*token)),
        };
        if is_right { Ok(()) } else { Err(format!("a replay of key {key} is no attempt's body")) }
    }
}

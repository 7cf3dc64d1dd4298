//! The child: threads that work on one store and say what they were answered, until they are killed.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use keyclaim::machine::{Blob, Decision, EffectAnswer, InDoubt, StepResult};
use keyclaim::store::redb::{ReadableTable, TableDefinition};
use keyclaim::{
    Claim, Error, ErrorKind, Event, Millis, Options, Reap, Result, Store, Version, Writes, Written,
    transaction_error,
};

use super::Plant;
use super::line::Line;
use super::script::{self, Act, CLAIMED, COUNTERS, COUNTERS_LEN, DONE, Kind, POINTED};
use crate::request::success;
use crate::seeded::Draws;

/// Balances of the accounts, in redb itself.
pub(super) const BALANCES: TableDefinition<'static, u64, i64> = TableDefinition::new("balances");
/// What moved, by key.
pub(super) const MOVES: TableDefinition<'static, u64, i64> = TableDefinition::new("moves");

/// Threads meet on this many keys, and on what the child before has left (arbitrary).
const RECENT: u64 = 30;

/// Works on a store until it is killed. The arguments are path, seed, number of the child, the first key that is
/// new to it, plant, threads. One thread alone has its leases renewed by nobody, so that all writes are its own.
///
/// # Panics
/// If the arguments are not these, or the store cannot be opened: the parent reads why.
pub fn main(arguments: &[String]) {
    let [path, seed, number, first_key, plant, threads] = arguments else {
        panic!("six arguments are wanted")
    };
    end_with_parent();
    let number: u64 = number.parse().expect("a number");
    let threads: u64 = threads.parse().expect("a number");
    let mut options = Options::with_policy(script::policy(Kind::Long));
    if threads == 1 {
        options = options.renew_leases_max(0);
    }
    let store = Store::open(Path::new(path), options)
        .unwrap_or_else(|error| panic!("opening what the killed child left: {error:?}"));
    let work = Work {
        store,
        seed: seed.parse().expect("a number"),
        number,
        next_key: AtomicU64::new(first_key.parse().expect("a number")),
        plant: Plant::named(plant),
    };
    say(&Line::Ready);
    thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || work.run(thread));
        }
    });
}

/// Ends this process when its parent is gone; nobody else would.
pub(crate) fn end_with_parent() {
    thread::Builder::new()
        .spawn(|| {
            drop(std::io::stdin().read_to_end(&mut Vec::new()));
            std::process::exit(0);
        })
        .expect("a thread");
}

/// One line is one write, made once the answer it tells of was given.
fn say(line: &Line) {
    let mut stdout = std::io::stdout().lock();
    let is_said = stdout.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdout.flush());
    if is_said.is_err() {
        std::process::exit(0);
    }
}

struct Work {
    store: Store,
    seed: u64,
    number: u64,
    next_key: AtomicU64,
    plant: Option<Plant>,
}

impl Work {
    fn run(&self, thread: u64) {
        let mut draws = Draws::new(self.seed ^ (thread << 48));
        for round in 0.. {
            let told = match draws.below(100) {
                0..45 => self.order(self.new_key(), &format!("{}-{thread}-{round}", self.number), &mut draws),
                45..80 => {
                    let newest = self.next_key.load(Ordering::Relaxed).max(1);
                    // Recent keys, on which threads meet and which the children before have left; or any.
                    let back = if draws.below(3) == 0 { newest } else { newest.min(RECENT) };
                    let key = newest - 1 - draws.below(back);
                    self.order(key, &format!("{}-{thread}-{round}", self.number), &mut draws)
                }
                80..95 => self.count(draws.below(COUNTERS_LEN)),
                _ => self.reap(),
            };
            match told {
                Ok(()) => {}
                // The lease was over before the owner had spoken: on a busy machine that happens.
                Err(error) if error.kind() == ErrorKind::Fenced => {}
                Err(error) => say(&Line::Wrong(format!("{error:?}"))),
            }
        }
    }

    fn new_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    fn order(&self, key: u64, attempt_name: &str, draws: &mut Draws) -> Result<()> {
        let kind = Kind::of(key);
        if kind == Kind::Moved {
            return self.transfer(key);
        }
        say(&Line::Trying { key, attempt_name: attempt_name.to_owned() });
        let mut writes = Writes::new();
        if kind.has_claimed_row() {
            writes = writes.put(CLAIMED, script::name(key).as_bytes(), attempt_name.as_bytes());
        }
        match self.store.claim_with(&script::ask(key), &writes)? {
            Written::Done(Decision::Won(claim)) => {
                say(&self.won(key, &claim, attempt_name));
                self.attempt(key, &claim, draws)
            }
            Written::Done(decision) => {
                tell(key, &decision);
                Ok(())
            }
            Written::Conflict(conflict) => {
                say(&Line::Wrong(format!("a claim without conditions met a conflict: {conflict}")));
                Ok(())
            }
        }
    }

    fn won(&self, key: u64, claim: &Claim, attempt_name: &str) -> Line {
        let steps: Vec<_> = claim.steps().iter().map(|step| step.name.clone()).collect();
        Line::Won {
            key,
            token: claim.token().0,
            generation: claim.generation().0,
            attempt: claim.attempt(),
            kind: format!("{:?}", claim.kind()),
            until_ms: claim.lease_until_ms().unwrap_or(Millis(u64::MAX)).0,
            now_ms: self.store.now_ms().0,
            point: claim.point().map_or_else(|| "-".to_owned(), |point| point.name.clone()),
            steps: if steps.is_empty() { "-".to_owned() } else { steps.join(",") },
            attempt_name: attempt_name.to_owned(),
        }
    }

    fn attempt(&self, key: u64, claim: &Claim, draws: &mut Draws) -> Result<()> {
        let token = claim.token().0;
        let acts = script::acts(key);
        let point = claim.point().map(|point| point.name.clone());
        let resumed =
            acts.iter().position(|act| matches!(act, Act::Point(name) if point.as_ref() == Some(name)));
        for act in acts.iter().skip(resumed.map_or(0, |at| at + 1)) {
            match act {
                Act::Step(name) => self.step(key, claim, name)?,
                Act::Point(name) => {
                    let line = Line::Pointed { key, token, name: name.clone() };
                    let writes = Writes::new().put(POINTED, script::name(key).as_bytes(), name.as_bytes());
                    let data = script::result(key, name);
                    self.acked(&line, || claim.checkpoint_with(name, &data, writes).map(drop))?;
                }
                Act::Renew => {
                    let until_ms = claim.renew(None)?.unwrap_or(Millis(u64::MAX)).0;
                    say(&Line::Renewed { key, token, until_ms });
                }
            }
        }
        match Kind::of(key) {
            Kind::Abandoned if claim.attempt() == 1 => {
                say(&Line::LettingGo { key, token });
                claim.abandon()
            }
            Kind::Released if draws.below(2) == 0 => {
                say(&Line::LettingGo { key, token });
                claim.release()
            }
            Kind::Held => self.acked(&Line::Held { key, token }, || claim.hold()),
            _ => self.complete(key, claim),
        }
    }

    fn complete(&self, key: u64, claim: &Claim) -> Result<()> {
        let token = claim.token().0;
        let mut body = script::body(key, token);
        if self.plant == Some(Plant::OtherBody) && key.is_multiple_of(4) {
            body.push(0);
        }
        let done = Writes::new()
            .put(DONE, script::name(key).as_bytes(), token.to_string().as_bytes())
            .emit(Event::new(DONE, key.to_string()));
        let line = Line::Done { key, token, moved: 0 };
        if self.plant == Some(Plant::Halves) {
            claim.complete(&success(body))?;
            let late = Writes::new().put(DONE, script::name(key).as_bytes(), token.to_string().as_bytes());
            self.store.write(&late).map(drop)?;
            say(&line);
            return Ok(());
        }
        self.acked(&line, || claim.complete_with(&success(body), done).map(drop))
    }

    fn step(&self, key: u64, claim: &Claim, name: &str) -> Result<()> {
        let result = script::result(key, name);
        match claim.begin_effect(name, Duration::from_secs(5), InDoubt::Repeat)? {
            EffectAnswer::Run { .. } => {
                let line = Line::Stepped { key, token: claim.token().0, name: name.to_owned() };
                self.acked(&line, || claim.finish_effect(name, StepResult::Done(Blob(result))))
            }
            EffectAnswer::Done { result: found, .. } if found.0 == result => Ok(()),
            other => {
                say(&Line::Wrong(format!("step {name} of {key}: {other:?}")));
                Ok(())
            }
        }
    }

    /// Asks, then says so; with the plant, the other way round.
    fn acked(&self, line: &Line, ask: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.plant == Some(Plant::AckFirst) {
            say(line);
            return ask();
        }
        ask()?;
        say(line);
        Ok(())
    }

    /// Claim, movement and outcome in one transaction.
    fn transfer(&self, key: u64) -> Result<()> {
        let (from, to, amount) = script::movement(key);
        let told = self.store.transaction(|t| {
            let claim = match t.claim(&script::ask(key))? {
                Decision::Won(claim) => claim,
                decision => return Ok(Err(decision)),
            };
            let mut balances = t.open_table(BALANCES)?;
            for (account, change) in [(from, -amount), (to, amount)] {
                let had = balances.get(account).map_err(transaction_error)?.map_or(0, |row| row.value());
                balances.insert(account, had + change).map_err(transaction_error)?;
            }
            t.open_table(MOVES)?.insert(key, amount).map_err(transaction_error)?;
            let token = claim.token().0;
            let done = Writes::new().put(DONE, script::name(key).as_bytes(), token.to_string().as_bytes());
            t.complete_with(&claim, &success(script::body(key, token)), done).map(drop)?;
            Ok::<_, Error>(Ok(token))
        })?;
        match told {
            Ok(token) => say(&Line::Done { key, token, moved: amount.unsigned_abs() }),
            Err(decision) => tell(key, &decision),
        }
        Ok(())
    }

    /// One more, if nobody else was quicker.
    fn count(&self, counter: u64) -> Result<()> {
        let name = counter.to_be_bytes();
        let (read, value) = match self.store.app_row(COUNTERS, &name)? {
            Some(row) => (Some(row.version), number(&row.value)),
            None => (None, 0),
        };
        let next = (value + 1).to_string();
        let writes = match read {
            Some(version) => Writes::new().put_if_version(COUNTERS, &name, version, next.as_bytes()),
            None => Writes::new().put_if_absent(COUNTERS, &name, next.as_bytes()),
        };
        say(&Line::Counting { counter });
        if let Written::Done(Version(version)) = self.store.write(&writes)? {
            say(&Line::Counted { counter, version, value: value + 1 });
        }
        Ok(())
    }

    fn reap(&self) -> Result<()> {
        match self.store.reap(&Reap::new()) {
            Ok(done) => {
                say(&Line::Reaped { changes: done.removed + done.tombstoned });
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Busy => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The number that a counter's row holds.
pub(super) fn number(bytes: &[u8]) -> u64 {
    std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

fn tell(key: u64, decision: &Decision<Claim>) {
    match decision {
        Decision::Replay(replay) => {
            let bytes = replay.response.body.bytes().unwrap_or_default();
            say(&Line::Replayed { key, len: bytes.len() as u64, sum: super::ledger::sum(bytes) });
        }
        Decision::InFlight { .. } => {}
        Decision::Held { .. } if Kind::of(key) == Kind::Held => {}
        other => say(&Line::Wrong(format!("{key} was told {}", other.name()))),
    }
}

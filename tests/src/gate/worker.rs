//! The worker: a store, and a thread for each order it is given.

use std::sync::Arc;
use std::time::Duration;

use keyclaim::limits::PAGE_ROWS_MAX;
use keyclaim::machine::{Blob, Decision, StepResult};
use keyclaim::outbox::Backoff;
use keyclaim::store::{Standing, StepStanding, Which};
use keyclaim::{Abandoned, ClaimWait, Completer, Ended, Options, Policy, Result, Store, Takeover};
use tokio::runtime::Runtime;

use super::steps::{Attempt, Bench, ORDERS, run_unclaimed, stop_at};
use super::{Boundary, Failure, Plant, Settings, say};
use crate::request::{id, paying};

/// How long an order waits for another attempt of it (arbitrary; longer than all leases and limits here).
const PATIENCE: Duration = Duration::from_secs(20);

/// The operation's name.
const OPERATION: &str = "order";
/// How often a worker looks for what is abandoned, and the longest pause between two tries (arbitrary).
const COMPLETE_EVERY: Duration = Duration::from_millis(50);

struct Worker {
    store: Store,
    bench: Arc<Bench>,
}

/// Works until stdin ends. Its lines, and what it says to them:
///
/// ```text
/// order <key> <boundary or -> ->  at <key> <boundary>              it stops there, until it is killed
///                                 won <key> <attempt>
///                                 done <key> <attempt or 0> <answer>   0: replayed
///                                 held <key> <reason> <step in doubt or ->
///                                 failed <key> <why>               send it again
/// open                        ->  open <count>     so many orders are in flight
/// resolve <key> <name or ->   ->  resolved <key>   the step in doubt was booked by this name, or not at all
/// ```
pub(super) fn work(runtime: &Runtime, settings: Settings) -> std::result::Result<(), Failure> {
    // Rerun: whatever is done outside is a step, so an attempt that recorded nothing has called nobody.
    let policy = Policy::new(Abandoned::Rerun).lease(settings.lease)?;
    let mut options = Options::with_policy(policy);
    if !settings.renews {
        options = options.renew_leases_max(0);
    }
    let bench = Arc::new(Bench { settings, runtime: runtime.handle().clone() });
    if bench.settings.completes {
        options = options.complete_every(COMPLETE_EVERY, completer(bench.clone())?)?;
    }
    let store = Store::open(&bench.settings.store, options)?;
    let worker = Arc::new(Worker { store, bench });
    say("ready");
    for line in std::io::stdin().lines() {
        let line = line?;
        let worker = worker.clone();
        // A thread for each, so that one which stops at a boundary stops nothing else.
        std::thread::Builder::new().name("gate-order".into()).spawn(move || worker.obey(&line))?;
    }
    Ok(())
}

/// Finishes abandoned orders by the same phases as whoever sends them again.
fn completer(bench: Arc<Bench>) -> Result<Completer> {
    let finish = move |takeover: &Takeover| {
        let (claim, key) = (takeover.claim(), String::from_utf8_lossy(takeover.request()));
        Attempt { bench: &bench, claim, key: &key, stop: None, waits: false }.run()?;
        Ok(Ended::Said)
    };
    let backoff = Backoff::new(COMPLETE_EVERY / 5, COMPLETE_EVERY)?;
    Completer::new().backoff(backoff).concurrency(8)?.handler(OPERATION, finish)
}

impl Worker {
    fn obey(&self, line: &str) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["order", key, stop] => say(&self.order(key, Boundary::named(stop))),
            ["resolve", key, name] => match self.resolve(key, name) {
                Ok(()) => say(&format!("resolved {key}")),
                Err(error) => say(&format!("failed {key} {error}")),
            },
            ["open"] => match self.open() {
                Ok(open) => say(&format!("open {open}")),
                Err(error) => say(&format!("cannot list: {error}")),
            },
            _ => say("no such line"),
        }
    }

    fn order(&self, key: &str, stop: Option<Boundary>) -> String {
        stop_at(key, stop, Boundary::BeforeClaim);
        let request = paying(key, b"order").operation(OPERATION, key.as_bytes());
        let wait = match self.bench.settings.plant {
            Some(Plant::RunUnclaimed) => ClaimWait::at_most(Duration::ZERO),
            _ => ClaimWait::at_most(PATIENCE),
        };
        let decision = match self.store.claim_wait(&request, &wait) {
            Ok(decision) => decision,
            Err(error) => return format!("failed {key} {error}"),
        };
        match decision {
            Decision::Won(claim) => {
                say(&format!("won {key} {}", claim.attempt()));
                let attempt = Attempt { bench: &self.bench, claim: &claim, key, stop, waits: true };
                match attempt.run() {
                    Ok(answer) => format!("done {key} {} {answer}", claim.attempt()),
                    Err(why) => self.held(key).unwrap_or_else(|| format!("failed {key} {why}")),
                }
            }
            Decision::Replay(replay) => {
                let answer = replay.response.body.bytes().map(String::from_utf8_lossy).unwrap_or_default();
                self.check_row(key, &answer);
                format!("done {key} 0 {answer}")
            }
            Decision::InFlight { .. } if self.bench.settings.plant == Some(Plant::RunUnclaimed) => {
                let ran = run_unclaimed(&self.bench, key);
                format!("failed {key} {ran:?}")
            }
            decision => {
                self.held(key).unwrap_or_else(|| format!("failed {key} was told {}", decision.name()))
            }
        }
    }

    /// The order's row is the one that the answer names: it was made once, with the recovery point.
    fn check_row(&self, key: &str, answer: &str) {
        let row = self.store.app_row(ORDERS, key.as_bytes()).ok().flatten().map(|row| row.value);
        if row.as_deref() != answer.split(' ').next().map(str::as_bytes) {
            say(&format!("wrong {key} the row is {row:?}, the answer {answer}"));
        }
    }

    fn open(&self) -> Result<usize> {
        self.store.list(id("-").scope(), Which::InFlight, None, PAGE_ROWS_MAX).map(|page| page.rows.len())
    }

    fn held(&self, key: &str) -> Option<String> {
        let seen = self.store.inspect(&id(key)).ok()??;
        let Standing::Held { reason } = seen.standing else { return None };
        let open = seen.steps.iter().find(|(_, standing)| matches!(standing, StepStanding::Begun { .. }));
        let step = open.map_or("-", |(name, _)| name);
        Some(format!("held {key} {reason:?} {step}"))
    }

    /// What a person says who has looked into the provider's ledger.
    fn resolve(&self, key: &str, name: &str) -> Result<()> {
        let result = match name {
            "-" => StepResult::NotSent,
            name => StepResult::Done(Blob::from(name.as_bytes())),
        };
        let Some(seen) = self.store.inspect(&id(key))? else { return Ok(()) };
        self.store.resolve_resumable(&id(key), seen.token, Some(result)).map(drop)
    }
}

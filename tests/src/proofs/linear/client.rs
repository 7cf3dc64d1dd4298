//! One caller of a few keys: claims, owns, resolves and looks, and writes down what it was told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use keyclaim::machine::{Decision, WonKind};
use keyclaim::store::Standing;
use keyclaim::{Claim, Error, ErrorKind, Nonce, Store, Token};
use parking_lot::Mutex;

use super::history::{Act, Answer, Kind, Look, Op, Operation, Stands};
use crate::request::{id, paying, success};
use crate::seeded::Draws;

/// Longer than any history lasts.
const FAR_MS: u64 = 3_600_000;

/// Where what was asked and told is written down.
pub(super) trait Record: Sync {
    /// A place in the order of all calls and answers.
    fn stamp(&self) -> u64;
    /// A number that nobody else is given.
    fn number(&self) -> u64;
    /// The key to ask about next.
    fn key(&self, draws: &mut Draws) -> u64;
    /// This is asked now, and nothing was told yet.
    fn begin(&self, _key: u64, _operation: &Operation) {}
    /// This was asked and told.
    fn end(&self, key: u64, operation: Operation);
    /// The token with which each key was last seen held.
    fn held(&self) -> &Mutex<BTreeMap<u64, u64>>;
}

/// One thread that asks.
pub(super) struct Client<'a> {
    number: u64,
    store: &'a Store,
    book: &'a dyn Record,
    draws: Draws,
    /// Claims that it has won.
    mine: Vec<(u64, Claim)>,
}

impl<'a> Client<'a> {
    pub(super) fn new(number: u64, store: &'a Store, book: &'a dyn Record, draws: Draws) -> Self {
        Self { number, store, book, draws, mine: Vec::new() }
    }

    /// Asks so often, or until it is over. What was not told is asked again first.
    pub(super) fn run(mut self, asked: u64, is_over: &AtomicBool) {
        let mut doubt: Option<(u64, Op, Option<usize>)> = None;
        for _ in 0..asked {
            let (key, op, owner) = doubt.take().unwrap_or_else(|| self.choose());
            let answer = self.ask(key, &op, owner);
            if answer == Answer::Unknown {
                doubt = Some((key, op, owner));
                // Until it was reopened, or for good.
                while self.store.is_poisoned() && !is_over.load(Ordering::Acquire) {
                    thread::sleep(Duration::from_micros(50));
                }
                if is_over.load(Ordering::Acquire) {
                    break;
                }
            }
        }
    }

    fn choose(&mut self) -> (u64, Op, Option<usize>) {
        let key = self.book.key(&mut self.draws);
        let choice = self.draws.below(20);
        let owned: Vec<usize> =
            self.mine.iter().enumerate().filter(|(_, (its, _))| *its == key).map(|(at, _)| at).collect();
        let held = self.book.held().lock().get(&key).copied();
        match (choice, held, owned.last()) {
            (0 | 1, _, _) => (key, Op::Inspect, None),
            (2 | 3, Some(seen), _) => (key, Op::Resolve { seen, absent: self.draws.below(2) == 0 }, None),
            (4..15, _, Some(newest)) => {
                // Now and then by an owner that was overtaken meanwhile.
                let old = self.draws.one_of(&owned);
                let at = if self.draws.below(4) == 0 { old } else { *newest };
                let token = self.mine.get(at).map_or(0, |(_, claim)| claim.token().0);
                (key, Op::Own { token, number: self.book.number(), act: self.act() }, Some(at))
            }
            _ => {
                let payload = u8::from(self.draws.below(8) == 0);
                (key, Op::Claim { nonce: self.book.number(), payload }, None)
            }
        }
    }

    fn act(&mut self) -> Act {
        match self.draws.below(12) {
            0..2 => Act::Renew,
            2..5 => Act::Checkpoint(self.book.number()),
            5..9 => Act::Complete(self.book.number()),
            9 => Act::Release,
            10 => Act::Abandon,
            _ => Act::Hold,
        }
    }

    fn ask(&mut self, key: u64, op: &Op, owner: Option<usize>) -> Answer {
        let from_ms = self.store.now_ms().0;
        let called_at = self.book.stamp();
        let mut operation = Operation {
            client: self.number,
            op: op.clone(),
            answer: Answer::Unknown,
            called_at,
            told_at: u64::MAX,
            from_ms,
            // When it is decided is not known until it is told.
            to_ms: from_ms + FAR_MS,
        };
        self.book.begin(key, &operation);
        let answer = match op {
            Op::Claim { nonce, payload } => self.claim(key, *nonce, *payload),
            Op::Own { act, .. } => match owner.and_then(|at| self.mine.get(at)) {
                Some((_, claim)) => said(claim, *act),
                None => Answer::Unknown,
            },
            Op::Resolve { seen, absent } => {
                let (id, seen) = (id(&name(key)), Token(*seen));
                let told = if *absent {
                    self.store.resolve_absent(&id, seen)
                } else {
                    self.store.resolve_resumable(&id, seen, None)
                };
                told.map_or_else(|error| failed(&error), |token| Answer::Resolved { token: token.0 })
            }
            Op::Inspect => self.look(key),
            // Nobody asks this.
            Op::RenewLate { .. } => Answer::Unknown,
        };
        if let Answer::Held { token } = answer {
            self.book.held().lock().insert(key, token);
        }
        operation.told_at = self.book.stamp();
        operation.to_ms = self.store.now_ms().0;
        operation.answer = answer.clone();
        self.book.end(key, operation);
        answer
    }

    fn claim(&mut self, key: u64, nonce: u64, payload: u8) -> Answer {
        let payload = [payload];
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&nonce.to_be_bytes());
        let name = name(key);
        let request = paying(&name, &payload).nonce(Nonce(bytes));
        match self.store.claim(&request) {
            Ok(Decision::Won(claim)) => {
                let answer = Answer::Won {
                    token: claim.token().0,
                    generation: claim.generation().0,
                    attempt: claim.attempt(),
                    kind: kind(claim.kind()),
                    until_ms: claim.lease_until_ms().map_or(u64::MAX, |until_ms| until_ms.0),
                    point: claim.point().map(|point| number(&point.name)),
                };
                self.mine.push((key, claim));
                answer
            }
            Ok(Decision::InFlight { lease_until_ms, .. }) => {
                Answer::InFlight { until_ms: lease_until_ms.map_or(u64::MAX, |until_ms| until_ms.0) }
            }
            Ok(Decision::Replay(replay)) => {
                let body = replay.response.body.bytes().and_then(|bytes| bytes.try_into().ok());
                Answer::Replay {
                    body: body.map_or(u64::MAX, u64::from_be_bytes),
                    completed_ms: replay.completed_ms.0,
                }
            }
            Ok(Decision::Mismatch { .. }) => Answer::Mismatch,
            Ok(Decision::Held { token, .. }) => Answer::Held { token: token.0 },
            // This policy has no such answer, and the rules know none.
            Ok(Decision::Expired) => Answer::NotHeld,
            Err(error) => failed(&error),
        }
    }

    fn look(&self, key: u64) -> Answer {
        match self.store.inspect(&id(&name(key))) {
            Err(error) => failed(&error),
            Ok(None) => Answer::Seen(None),
            Ok(Some(found)) => {
                let stands = match found.standing {
                    Standing::InFlight { lease_until_ms } => {
                        Stands::InFlight(lease_until_ms.map_or(u64::MAX, |until_ms| until_ms.0))
                    }
                    Standing::Complete { completed_ms, .. } => Stands::Complete(completed_ms.0),
                    _ => Stands::Held,
                };
                Answer::Seen(Some(Look {
                    token: found.token.0,
                    generation: found.generation.0,
                    attempt: found.attempt,
                    point: found.point.as_deref().map(number),
                    stands,
                }))
            }
        }
    }
}

fn said(claim: &Claim, act: Act) -> Answer {
    let done = |told: Result<(), Error>| told.map_or_else(|error| failed(&error), |()| Answer::Done);
    match act {
        Act::Renew => match claim.renew(None) {
            Ok(until_ms) => Answer::Renewed { until_ms: until_ms.map_or(u64::MAX, |until_ms| until_ms.0) },
            Err(error) => failed(&error),
        },
        Act::Checkpoint(point) => done(claim.checkpoint(&format!("point-{point}"), b"")),
        Act::Complete(body) => done(claim.complete(&success(body.to_be_bytes()))),
        Act::Release => done(claim.release()),
        Act::Abandon => done(claim.abandon()),
        Act::Hold => done(claim.hold()),
    }
}

fn failed(error: &Error) -> Answer {
    match error.kind() {
        ErrorKind::Fenced => Answer::Fenced,
        // Of the commands that are asked here only a resolution of what is not held is refused like this.
        ErrorKind::Invalid => Answer::NotHeld,
        _ => Answer::Unknown,
    }
}

fn kind(kind: WonKind) -> Kind {
    match kind {
        WonKind::Fresh => Kind::Fresh,
        WonKind::ReusedAfterWindow => Kind::Reused,
        WonKind::Again => Kind::Again,
        // No outcome of a history lets the request run again.
        _ => Kind::Takeover,
    }
}

fn number(point: &str) -> u64 {
    point.strip_prefix("point-").and_then(|number| number.parse().ok()).unwrap_or(u64::MAX)
}

fn name(key: u64) -> String {
    format!("key-{key}")
}

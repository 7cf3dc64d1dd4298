//! Threads that claim, own and resolve a few keys of one store, while its clock is turned, its disk fails and its
//! power is cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use keyclaim::clock::ManualClock;
use keyclaim::machine::{Decision, WonKind};
use keyclaim::store::Standing;
use keyclaim::store::disk::{DiskFault, SimDisk};
use keyclaim::store::plant::Plant;
use keyclaim::{Abandoned, Claim, Error, ErrorKind, Nonce, Options, Policy, Store, Token};
use parking_lot::Mutex;

use super::history::{Act, Answer, History, Kind, Look, Op, Operation, Stands};
use super::spec::Rules;
use crate::proofs::disk::Cut;
use crate::request::{id, paying, success};
use crate::seeded::Draws;

/// What the store is opened with.
pub const RULES: Rules = Rules { lease_ms: 10_000, window_ms: 100_000, horizon_ms: 300_000 };

/// Few, so that clients meet (arbitrary; as the numbers below).
const KEYS: u64 = 3;
const CLIENTS: u64 = 4;
/// So many that no key of a run has more operations than the search takes.
const ASKED: u64 = 9;
const EPOCHS: u64 = 3;
const EVENTS: u64 = 12;
const START_MS: u64 = 1_700_000_000_000;
const EIO: i32 = 5;

/// What one run has done to each key, and what happened to its store.
pub(super) fn run(seed: u64, plant: Option<Plant>) -> (BTreeMap<u64, History>, BTreeMap<&'static str, u64>) {
    let mut draws = Draws::new(seed);
    let clock = ManualClock::new(START_MS);
    let book = Book::default();
    let mut disk = SimDisk::new();
    for epoch in 0..EPOCHS {
        let store = Store::on_disk(&disk, plant.into_iter().fold(options(&clock), Options::plant))
            .expect("what a power cut leaves opens");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (store, book, is_over) = (&store, &book, &is_over);
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let draws = Draws::new(draws.below(u64::MAX));
                    let number = epoch * CLIENTS + client;
                    scope
                        .spawn(move || Client { number, store, book, is_over, draws, mine: Vec::new() }.run())
                })
                .collect();
            trouble(store, &disk, &clock, book, &mut draws, || {
                clients.iter().all(thread::ScopedJoinHandle::is_finished)
            });
            is_over.store(true, Ordering::Release);
        });
        let (durable, unsynced) = disk.unsynced();
        disk.cut();
        drop(store);
        let cut = draws.one_of(&Cut::ALL);
        disk = SimDisk::holding(cut.of(&durable, &unsynced, &mut draws));
    }
    book.close()
}

fn options(clock: &ManualClock) -> Options {
    let policy = Policy::new(Abandoned::Rerun)
        .lease(Duration::from_millis(RULES.lease_ms))
        .and_then(|policy| policy.replay_window(Duration::from_millis(RULES.window_ms)))
        .and_then(|policy| policy.reaper_horizon(Duration::from_millis(RULES.horizon_ms)))
        .expect("in bounds");
    Options::with_policy(policy).clock(Arc::new(clock.clone())).renew_leases_max(0).cache_len(256 * 1024)
}

/// What happens to the store while its clients work, until they are done or the power is cut.
fn trouble(
    store: &Store,
    disk: &SimDisk,
    clock: &ManualClock,
    book: &Book,
    draws: &mut Draws,
    is_done: impl Fn() -> bool,
) {
    for _ in 0..EVENTS {
        thread::sleep(Duration::from_micros(draws.below(400)));
        match draws.below(16) {
            0..6 => clock.advance(draws.one_of(&[1, 3_000, 9_999, 10_000, 40_000])),
            6 => clock.advance(draws.one_of(&[RULES.window_ms, RULES.horizon_ms])),
            7 | 8 => {
                clock.set_wall(draws.below(2 * START_MS));
                book.count("wall clock set");
            }
            9 => {
                // One change fails, whichever comes next; the store is reopened under its clients.
                let fault = DiskFault {
                    reads: false,
                    at: draws.below(4),
                    from_then_on: false,
                    errno: EIO,
                    done_percent: draws.one_of(&[0, 50, 100]),
                };
                disk.fail(fault);
                thread::sleep(Duration::from_micros(draws.below(400)));
                disk.heal();
                if store.is_poisoned() {
                    book.count("reopened");
                    store.reopen().expect("the disk is well again");
                }
            }
            10 => {
                book.count("power cuts");
                disk.cut();
                return;
            }
            _ => {}
        }
    }
    while !is_done() {
        thread::sleep(Duration::from_micros(200));
        if store.is_poisoned() {
            book.count("reopened");
            store.reopen().expect("the disk is well again");
        }
    }
}

/// Who asked what when, by all clients.
#[derive(Default)]
struct Book {
    order: AtomicU64,
    operations: Mutex<Vec<(u64, Operation)>>,
    /// The token with which each key was last seen held.
    held: Mutex<BTreeMap<u64, u64>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Book {
    fn next(&self) -> u64 {
        self.order.fetch_add(1, Ordering::SeqCst)
    }

    fn count(&self, what: &'static str) {
        *self.counts.lock().entry(what).or_default() += 1;
    }

    fn close(self) -> (BTreeMap<u64, History>, BTreeMap<&'static str, u64>) {
        let mut keys: BTreeMap<u64, History> = BTreeMap::new();
        let mut operations = self.operations.into_inner();
        operations.sort_by_key(|(_, operation)| operation.called_at);
        for (key, operation) in operations {
            keys.entry(key).or_default().operations.push(operation);
        }
        (keys, self.counts.into_inner())
    }
}

struct Client<'a> {
    number: u64,
    store: &'a Store,
    book: &'a Book,
    is_over: &'a AtomicBool,
    draws: Draws,
    /// Claims that it has won, with what it could not be told of each: asked again first.
    mine: Vec<(u64, Claim)>,
}

impl Client<'_> {
    fn run(mut self) {
        let mut doubt: Option<(u64, Op, Option<usize>)> = None;
        for _ in 0..ASKED {
            let (key, op, owner) = doubt.take().unwrap_or_else(|| self.choose());
            let answer = self.ask(key, &op, owner);
            if answer == Answer::Unknown {
                doubt = Some((key, op, owner));
                // Until it was reopened, or for good.
                while self.store.is_poisoned() && !self.is_over.load(Ordering::Acquire) {
                    thread::sleep(Duration::from_micros(50));
                }
                if self.is_over.load(Ordering::Acquire) {
                    break;
                }
            }
        }
        // Claims of a store outlive their thread in practice; here nobody asks them again.
    }

    fn choose(&mut self) -> (u64, Op, Option<usize>) {
        let key = self.draws.below(KEYS);
        let choice = self.draws.below(20);
        let owned: Vec<usize> =
            self.mine.iter().enumerate().filter(|(_, (its, _))| *its == key).map(|(at, _)| at).collect();
        let held = self.book.held.lock().get(&key).copied();
        match (choice, held, owned.last()) {
            (0 | 1, _, _) => (key, Op::Inspect, None),
            (2 | 3, Some(seen), _) => (key, Op::Resolve { seen, absent: self.draws.below(2) == 0 }, None),
            (4..15, _, Some(newest)) => {
                // Now and then by an owner that was overtaken meanwhile.
                let old = self.draws.one_of(&owned);
                let at = if self.draws.below(4) == 0 { old } else { *newest };
                let token = self.mine.get(at).map_or(0, |(_, claim)| claim.token().0);
                (key, Op::Own { token, number: self.book.next(), act: self.act() }, Some(at))
            }
            _ => {
                let payload = u8::from(self.draws.below(8) == 0);
                (key, Op::Claim { nonce: self.book.next(), payload }, None)
            }
        }
    }

    fn act(&mut self) -> Act {
        match self.draws.below(12) {
            0..2 => Act::Renew,
            2..5 => Act::Checkpoint(self.book.next()),
            5..9 => Act::Complete(self.book.next()),
            9 => Act::Release,
            10 => Act::Abandon,
            _ => Act::Hold,
        }
    }

    fn ask(&mut self, key: u64, op: &Op, owner: Option<usize>) -> Answer {
        let from_ms = self.store.now_ms().0;
        let called_at = self.book.next();
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
        };
        if let Answer::Held { token } = answer {
            self.book.held.lock().insert(key, token);
        }
        let told_at = self.book.next();
        let to_ms = self.store.now_ms().0;
        let (client, op) = (self.number, op.clone());
        let operation = Operation { client, op, answer: answer.clone(), called_at, told_at, from_ms, to_ms };
        let mut operations = self.book.operations.lock();
        if let Answer::Won { token, until_ms, .. } = answer {
            let op = Op::Own { token, number: called_at, act: Act::Renew };
            let answer = Answer::Renewed { until_ms };
            operations.push((key, operation.clone()));
            operations.push((key, Operation { op, answer, ..operation }));
        } else {
            operations.push((key, operation));
        }
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

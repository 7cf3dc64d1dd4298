//! What a thread does in one turn, and what it must be told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keyclaim::machine::{Blob, Decision, EffectAnswer, InDoubt, Outcome, Response, StepResult, WonKind};
use keyclaim::store::{Standing, Which};
use keyclaim::{
    AfterFailure, Claim, ClaimRequest, Ended, ErrorKind, Event, Later, Nonce, Result, Scope, Store, Takeover,
    Writes, Written,
};

use super::known::{Done, Known};
use super::{LEASE, PATIENCE, Plant};
use crate::request::{id, paying};
use crate::seeded::Draws;

/// What the completer finishes.
pub(super) const OPERATION: &str = "order";
/// Rows beside the outcomes: few, each written again and again.
const ROWS: u64 = 500;
/// Longer than a step takes on any machine.
const STEP_LIMIT: Duration = Duration::from_secs(10);

/// How an order of this key goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Plain,
    /// With a step and a recovery point.
    Stepped,
    /// Released first, then claimed and completed.
    Released,
    /// Given up in words.
    Abandoned,
    /// Given up in silence: its lease has to end.
    Dropped,
    Failed,
}

impl Kind {
    fn of(key: u64) -> Self {
        match key % 10 {
            0 | 1 => Self::Stepped,
            2 => Self::Released,
            3 => Self::Abandoned,
            4 => Self::Dropped,
            5 => Self::Failed,
            _ => Self::Plain,
        }
    }
}

/// Why a turn ended early.
enum Stop {
    /// Somebody else has the key: the lease was over, as happens on a busy machine.
    Fenced,
    Wrong(String),
}

type Told<T = ()> = std::result::Result<T, Stop>;

pub(super) struct Turns {
    draws: Draws,
    plant: Option<Plant>,
}

impl Turns {
    pub(super) fn new(seed: u64, thread: u64, plant: Option<Plant>) -> Self {
        Self { draws: Draws::new(seed ^ (thread << 48)), plant }
    }

    pub(super) fn take(&mut self, store: &Store, known: &Known, next_key: &AtomicU64) {
        let turn = Turn { store, known, plant: self.plant };
        let told = match self.draws.below(100) {
            0..50 => turn.order(next_key.fetch_add(1, Ordering::Relaxed)),
            50..75 => with(known.any_done(&mut self.draws), |done| turn.ask_again(done)),
            75..80 => with(known.any_done(&mut self.draws), |done| turn.ask_otherwise(done)),
            80..88 => with(known.any_done(&mut self.draws), |done| turn.look(done)),
            88..94 => with(known.take_abandoned(), |done| turn.is_finished(done)),
            94..98 => with(known.take_old(), |done| turn.order(done.key)),
            _ => turn.list(),
        };
        match told {
            Ok(()) => {}
            Err(Stop::Fenced) => known.count("fenced"),
            Err(Stop::Wrong(what)) => known.wrong(what),
        }
    }
}

struct Turn<'a> {
    store: &'a Store,
    known: &'a Known,
    plant: Option<Plant>,
}

impl Turn<'_> {
    fn order(&self, key: u64) -> Told {
        match self.claim(key, payload(key).as_bytes())? {
            Decision::Won(claim) => self.attempt(key, claim),
            other => {
                Err(Stop::Wrong(format!("key {key} is new or long gone, and was told {}", other.name())))
            }
        }
    }

    fn attempt(&self, key: u64, mut claim: Claim) -> Told {
        match Kind::of(key) {
            Kind::Released => {
                self.again(|| claim.release())?;
                claim = match self.claim(key, payload(key).as_bytes())? {
                    // Told again, if the sync failed that was to make it durable, and it was.
                    Decision::Won(claim) if is_first(&claim) => claim,
                    Decision::Won(claim) => {
                        let (kind, attempt) = (claim.kind(), claim.attempt());
                        return Err(Stop::Wrong(format!(
                            "key {key} was released, and is {kind:?} {attempt}"
                        )));
                    }
                    other => {
                        let name = other.name();
                        return Err(Stop::Wrong(format!("key {key} was released, and was told {name}")));
                    }
                };
            }
            kind @ (Kind::Abandoned | Kind::Dropped) => {
                let since = Instant::now();
                if kind == Kind::Abandoned {
                    self.again(|| claim.abandon())?;
                }
                self.known.abandoned(Done { key, token: claim.token().0, since });
                return Ok(());
            }
            Kind::Stepped => {
                self.steps(key, &claim)?;
                self.again(|| claim.checkpoint("half", &receipt(key)))?;
            }
            Kind::Plain | Kind::Failed => {}
        }
        self.complete(key, &claim)
    }

    fn steps(&self, key: u64, claim: &Claim) -> Told {
        if self.again(|| steps(claim, key))? {
            return Ok(());
        }
        Err(Stop::Wrong(format!("the step of key {key} is not what it was")))
    }

    fn complete(&self, key: u64, claim: &Claim) -> Told {
        let token = claim.token().0;
        let mut body = body(key, token);
        if self.plant == Some(Plant::OtherBody) && key.is_multiple_of(7) {
            body.push(0);
        }
        let response = Response::new(201, body).header("location", payload(key));
        let outcome = match Kind::of(key) {
            Kind::Failed => Outcome::failure(response, AfterFailure::Replay),
            _ => Outcome::success(response),
        };
        let event = Event::new("orders", format!("{key} {token}")).ordering_key((key % 50).to_string());
        let row = (key % ROWS).to_string();
        let writes = Writes::new().put("soak", row.as_bytes(), token.to_string().as_bytes()).emit(event);
        let since = Instant::now();
        self.known.emitting(key, token);
        match self.again(|| claim.complete_with(&outcome, writes.clone())) {
            Ok(Written::Done(())) => {
                self.known.completed(Done { key, token, since });
                Ok(())
            }
            Ok(Written::Conflict(conflict)) => {
                Err(Stop::Wrong(format!("key {key}: writes without conditions met a conflict: {conflict}")))
            }
            Err(stop) => {
                if !self.known.not_emitted(key, token) {
                    return Err(Stop::Wrong(format!(
                        "key {key}: the event of {token} came without its outcome"
                    )));
                }
                Err(stop)
            }
        }
    }

    fn ask_again(&self, done: Done) -> Told {
        let Done { key, token, .. } = done;
        match self.claim(key, payload(key).as_bytes())? {
            Decision::Replay(replay) => {
                self.known.count("replays");
                is_exact(key, token, &replay.response)
            }
            Decision::Won(claim) if !done.is_in_window() => self.complete(key, &claim),
            _ if !done.is_in_window() => Ok(()),
            other => {
                Err(Stop::Wrong(format!("key {key} was completed by {token}, and was told {}", other.name())))
            }
        }
    }

    /// The same key for another request.
    fn ask_otherwise(&self, done: Done) -> Told {
        match self.claim(done.key, b"another request")? {
            Decision::Mismatch { .. } => {
                self.known.count("mismatches");
                Ok(())
            }
            Decision::Won(claim) if !done.is_in_window() => self.again(|| claim.release()),
            other if done.is_in_window() => {
                Err(Stop::Wrong(format!("key {}: another request was told {}", done.key, other.name())))
            }
            _ => Ok(()),
        }
    }

    fn look(&self, done: Done) -> Told {
        let found = self.again(|| self.store.inspect(&id(&name(done.key))))?;
        let is_right = found.as_ref().is_some_and(|found| {
            matches!(found.standing, Standing::Complete { .. }) && found.token.0 == done.token
        });
        self.known.count("looks");
        if is_right || !done.is_in_window() {
            return Ok(());
        }
        Err(Stop::Wrong(format!("key {} was completed by {}, and is {found:?}", done.key, done.token)))
    }

    /// What was abandoned was finished by the completer; or is by us, if that was slow.
    fn is_finished(&self, done: Done) -> Told {
        let Done { key, token, .. } = done;
        match self.claim(key, payload(key).as_bytes())? {
            Decision::Replay(replay) => {
                let by = replay.response.body.bytes().and_then(completer).unwrap_or_default();
                if by <= token {
                    return Err(Stop::Wrong(format!(
                        "key {key} was abandoned by {token} and finished by {by}"
                    )));
                }
                self.known.count("finished by the completer");
                is_exact(key, by, &replay.response)
            }
            Decision::Won(claim) => {
                self.known.count("finished by the next caller");
                self.steps(key, &claim)?;
                self.complete(key, &claim)
            }
            Decision::InFlight { .. } => {
                self.known.count("not finished in time");
                Ok(())
            }
            other => Err(Stop::Wrong(format!("key {key} was abandoned, and was told {}", other.name()))),
        }
    }

    fn list(&self) -> Told {
        let scope = Scope::new("acct_1").expect("the scope of all tests");
        self.again(|| self.store.list(&scope, Which::All, None, 50))?;
        self.again(|| self.store.outbox())?;
        self.known.count("lists");
        Ok(())
    }

    /// Claims as one caller, who asks again until there is an answer.
    fn claim(&self, key: u64, payload: &[u8]) -> Told<Decision<Claim>> {
        let name = name(key);
        let nonce = Nonce::random().map_err(|error| Stop::Wrong(format!("{error:?}")))?;
        let mut request: ClaimRequest = paying(&name, payload).nonce(nonce);
        if matches!(Kind::of(key), Kind::Abandoned | Kind::Dropped | Kind::Stepped) {
            request = request.operation(OPERATION, payload);
        }
        let began = Instant::now();
        let decision = self.again(|| self.store.claim(&request))?;
        self.known.claimed(began.elapsed());
        if let Decision::Won(claim) = &decision {
            self.known.count(match claim.kind() {
                WonKind::Fresh => "won: fresh",
                WonKind::Again => "won: again",
                WonKind::Takeover => "won: takeover",
                _ => "won: after its window",
            });
            // Told again of the same win, after a sync that failed.
            if claim.kind() != WonKind::Again {
                self.known.won(claim.token());
            }
        }
        Ok(decision)
    }

    /// Asks until it is answered: a store that was poisoned is reopened soon.
    fn again<T>(&self, ask: impl FnMut() -> Result<T>) -> Told<T> {
        let began = Instant::now();
        let mut ask = ask;
        loop {
            let error = match ask() {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::Fenced => return Err(Stop::Fenced),
                ErrorKind::Unknown | ErrorKind::Poisoned | ErrorKind::Busy if began.elapsed() < PATIENCE => {
                    self.known.count("asked again");
                    thread::sleep(Duration::from_millis(10));
                }
                _ => return Err(Stop::Wrong(format!("{error:?}"))),
            }
        }
    }
}

fn is_first(claim: &Claim) -> bool {
    matches!(claim.kind(), WonKind::Fresh | WonKind::Again) && claim.attempt() == 1
}

/// The ledger may have nothing to look at yet.
fn with(done: Option<Done>, then: impl FnOnce(Done) -> Told) -> Told {
    done.map_or(Ok(()), then)
}

/// The answer is what this attempt completed with.
fn is_exact(key: u64, token: u64, response: &Response) -> Told {
    let location = (Blob::from("location".as_bytes()), Blob::from(payload(key).as_bytes()));
    let is_exact = response.status == 201
        && response.headers == [location]
        && response.body.bytes() == Some(body(key, token).as_slice());
    if is_exact {
        Ok(())
    } else {
        Err(Stop::Wrong(format!("the replay of key {key} is not what {token} completed")))
    }
}

/// The completer's handler: the same steps, and an outcome of its own.
pub(super) fn finish(takeover: &Takeover, known: &Known) -> std::result::Result<Ended, Later> {
    let Some(key) = std::str::from_utf8(takeover.request()).ok().and_then(key_of) else {
        known.wrong("the completer was given another request".into());
        return Ok(Ended::Hold);
    };
    known.won(takeover.claim().token());
    if Kind::of(key) == Kind::Stepped && !steps(takeover.claim(), key)? {
        known.wrong(format!("the completer's step of key {key} is not what it was"));
    }
    let response = Response::new(201, body(key, takeover.claim().token().0)).header("location", payload(key));
    Ok(Ended::Complete(Outcome::success(response)))
}

/// The one step of an order, whoever runs it. False if it is not answered with the result that it had.
fn steps(claim: &Claim, key: u64) -> Result<bool> {
    match claim.begin_effect("charge", STEP_LIMIT, InDoubt::Repeat)? {
        EffectAnswer::Run { .. } => {
            claim.finish_effect("charge", StepResult::Done(Blob(receipt(key))))?;
            Ok(true)
        }
        EffectAnswer::Done { result, .. } => Ok(result.0 == receipt(key)),
        _ => Ok(false),
    }
}

fn name(key: u64) -> String {
    format!("order-{key:08}")
}

/// The request of a key.
fn payload(key: u64) -> String {
    format!("/orders/{key}")
}

fn key_of(payload: &str) -> Option<u64> {
    payload.strip_prefix("/orders/")?.parse().ok()
}

fn receipt(key: u64) -> Vec<u8> {
    format!("receipt {key}").into_bytes()
}

/// Lengths of bodies: mostly little, now and then more than is stored with the record. They take turns, so that what
/// is live at a time is always as much.
const BODY_LENS: [usize; 20] = [
    20, 100, 300, 500, 700, 900, 1_000, 1_200, 1_400, 1_600, 1_800, 2_000, 2_500, 3_000, 4_000, 6_000, 9_000,
    15_000, 40_000, 100_000,
];

/// What the attempt with this token answers.
fn body(key: u64, token: u64) -> Vec<u8> {
    let mut body = format!("{key} {token}\n").into_bytes();
    let len = BODY_LENS.iter().cycle().nth(usize::try_from(key / 10 % 20).unwrap_or_default());
    let first = Draws::new(key ^ (token << 32)).below(256);
    body.extend((first..).map(|byte| byte.to_le_bytes()[0]).take(len.copied().unwrap_or_default()));
    body
}

/// The token that a body says it was completed with.
fn completer(body: &[u8]) -> Option<u64> {
    let line = body.split(|byte| *byte == b'\n').next()?;
    payload_of_event(line).map(|(_, token)| token)
}

/// The key and the token that an event tells of.
pub(super) fn payload_of_event(payload: &[u8]) -> Option<(u64, u64)> {
    let (key, token) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
    Some((key.parse().ok()?, token.parse().ok()?))
}

const _: () = assert!(LEASE.as_millis() < STEP_LIMIT.as_millis());

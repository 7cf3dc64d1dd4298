//! A handler that places an order: claimed in keyclaim, stored in SQL, answered once.

use std::cell::RefCell;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::machine::{Blob, Decision, Outcome, Response, StepResult};
use keyclaim::{
    AfterFailure, Call, Claim, ClaimRequest, ClaimWait, EffectError, Effected, Error, Id, Store, Token,
};
use rusqlite::Connection;

use crate::{Failure, postgres, sqlite};

/// What the client asks for.
#[derive(Clone, Debug)]
pub struct Order {
    /// The client and its key.
    pub id: Id,
    /// What is ordered.
    pub item: String,
}

/// Where orders are kept.
pub trait Orders {
    /// Stores the order in a transaction of its own, and returns its number as the step's result.
    fn place(&mut self, call: &Call, token: Token, order: &Order) -> Result<StepResult, Failure>;

    /// What became of it.
    fn ask(&mut self, call: &Call, token: Token) -> Result<StepResult, Failure>;
}

/// How the step goes on after an attempt that died in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InDoubt {
    /// The transaction is run again: it finds its own row. The shorter way, if "it did not happen" has no
    /// other consequence than to do it now.
    Repeat,
    /// The table is asked first.
    Ask,
}

/// Why there is no answer yet.
#[derive(Debug)]
#[non_exhaustive]
pub enum NoAnswer {
    /// This is what the store says of the key; on `InFlight` the client asks again.
    Decision(&'static str),
    /// The step has no result: the client asks again.
    Step(EffectError<Failure>),
    /// The store failed.
    Store(Error),
}

/// How a step of one short transaction is run.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// The longest that it may take. Until then nobody else takes over.
    pub limit: Duration,
    /// How it goes on in doubt.
    pub in_doubt: InDoubt,
}

/// The number of the client's order, which is placed at most once however often this is called.
pub fn answer(
    store: &Store,
    orders: &mut dyn Orders,
    order: &Order,
    steps: Steps,
) -> Result<Vec<u8>, NoAnswer> {
    let payload = order.item.as_bytes();
    let request = Request { method: b"POST", target: b"/orders", payload, ..Request::default() };
    let request = ClaimRequest::new(order.id.clone(), Scheme::Raw, request);
    // An attempt that died holds the key until its limit: wait that long, and a little more.
    let patience = ClaimWait::at_most(steps.limit.saturating_mul(4));
    let claim = match store.claim_wait(&request, &patience).map_err(NoAnswer::Store)? {
        Decision::Won(claim) => claim,
        Decision::Replay(replay) => match replay.response.body.bytes() {
            Some(number) => return Ok(number.to_vec()),
            None => return Err(NoAnswer::Decision("replay without a body")),
        },
        told => return Err(NoAnswer::Decision(told.name())),
    };
    match placed(&claim, orders, order, steps) {
        Ok(effected) => {
            let (outcome, answer) = worded(effected);
            claim.complete(&outcome).map_err(NoAnswer::Store)?;
            Ok(answer)
        }
        Err(error) => {
            // The next attempt may go on at once. Should this fail, it goes on when the lease is over.
            let _ = claim.abandon();
            Err(NoAnswer::Step(error))
        }
    }
}

/// A refusal is an answer too, and final.
fn worded(effected: Effected) -> (Outcome, Vec<u8>) {
    match effected {
        Effected::Done(number) => (Outcome::success(Response::new(201, number.clone())), number),
        Effected::Refused(why) => {
            (Outcome::failure(Response::new(409, why.clone()), AfterFailure::Replay), why)
        }
    }
}

fn placed(
    claim: &Claim,
    orders: &mut dyn Orders,
    order: &Order,
    steps: Steps,
) -> Result<Effected, EffectError<Failure>> {
    let token = claim.token();
    let orders = RefCell::new(orders);
    let place = |call: Call| orders.borrow_mut().place(&call, token, order);
    let ask = |call: Call| orders.borrow_mut().ask(&call, token);
    let step = || claim.effect("order", steps.limit);
    if steps.in_doubt == InDoubt::Repeat {
        return step().repeat_in_doubt().run(place);
    }
    // No settling time: the question itself sees to it that nothing comes after its answer.
    let ready = || step().reconcile_in_doubt(Duration::ZERO, ask);
    match ready().run_or_ask(place) {
        Err(EffectError::NotSent) => ready().run_or_ask(place),
        told => told,
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decision(told) => write!(f, "the store says {told} of this key"),
            Self::Step(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl StdError for NoAnswer {}

impl Orders for ::postgres::Client {
    fn place(&mut self, call: &Call, token: Token, order: &Order) -> Result<StepResult, Failure> {
        postgres::once(self, call, token, |txn| {
            let insert = "INSERT INTO orders (request, item) VALUES ($1, $2) RETURNING id";
            let number: i64 = txn.query_one(insert, &[&order.request(), &order.item])?.try_get(0)?;
            Ok(done(number))
        })
    }

    fn ask(&mut self, call: &Call, token: Token) -> Result<StepResult, Failure> {
        postgres::ask(self, call, token)
    }
}

impl Orders for Connection {
    fn place(&mut self, call: &Call, token: Token, order: &Order) -> Result<StepResult, Failure> {
        sqlite::once(self, call, token, |txn| {
            let insert = "INSERT INTO orders (request, item) VALUES (?1, ?2) RETURNING id";
            let number: i64 = txn.query_row(insert, (order.request(), &order.item), |row| row.get(0))?;
            Ok(done(number))
        })
    }

    fn ask(&mut self, call: &Call, token: Token) -> Result<StepResult, Failure> {
        sqlite::ask(self, call, token)
    }
}

impl Order {
    /// The client's key, as the order notes it.
    pub fn request(&self) -> String {
        String::from_utf8_lossy(self.id.key().as_bytes()).into_owned()
    }
}

/// The step's result: the order's number.
pub fn done(number: i64) -> StepResult {
    StepResult::Done(Blob(number.to_string().into_bytes()))
}
